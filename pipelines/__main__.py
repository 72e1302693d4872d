"""`python -m pipelines ...` is `tracemill ...`."""

from pipelines.cli import main

main(prog_name="tracemill")
