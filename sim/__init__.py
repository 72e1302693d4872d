"""The replay engine: numbers in, numbers out. Knows no files, no Dagster, no DuckDB."""
