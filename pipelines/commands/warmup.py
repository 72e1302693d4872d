"""`tracemill warmup`: compile the kernels ahead of the first replay."""

from __future__ import annotations

import click


@click.command()
def warmup() -> None:
    """Compile the engine's kernels, once per version of the sources."""
    from pipelines.compiling import compile_kernels

    compile_kernels()
