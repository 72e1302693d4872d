"""Benchmarks: `python -m benchmarks --help`. Figures are in RESULTS.md, raw ones in results.json."""
