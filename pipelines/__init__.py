"""When and how things run: the command line, and the Dagster code location."""
