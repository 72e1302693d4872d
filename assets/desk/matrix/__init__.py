"""Scenario matrices: many configurations from one file, run in batches, each held against its baseline."""
