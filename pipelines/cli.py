"""Command line: `tracemill ...`. Assembles the commands; each lives in a file of its own."""

from __future__ import annotations

import click


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tracemill")
def main() -> None:
    """Replay LLM-serving traces and ask what happened, in SQL."""
