"""The regression desk: what changed between two runs, why, and whether it is allowed. Free of Dagster."""
