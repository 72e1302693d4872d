"""`tracemill warmup`: compile the kernels ahead of the first replay."""

from __future__ import annotations

import click


@click.command()
@click.option("--speculation", is_flag=True, help="Those of replays with speculative decoding as well.")
def warmup(speculation: bool) -> None:
    """Compile the engine's kernels, once per version of the sources; those of separate pools as well."""
    from pipelines.compiling import compile_kernels

    compile_kernels()
    compile_kernels(pools=True)
    if speculation:
        compile_kernels(drafting=True)
        compile_kernels(drafting=True, pools=True)
