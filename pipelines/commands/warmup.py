"""`tracemill warmup`: compile the kernels ahead of the first replay."""

from __future__ import annotations

from itertools import product

import click


@click.command()
@click.option("--speculation", is_flag=True, help="Those of replays with speculative decoding as well.")
@click.option(
    "--routing",
    is_flag=True,
    help="Those behind a KV-aware router as well, or with conditional disaggregation; with --speculation the "
    "combinations too.",
)
def warmup(speculation: bool, routing: bool) -> None:
    """Compile the engine's kernels, once per version of the sources and kind of replay.

    Kinds: one pool and separate pools, always; both with speculative decoding, KV-aware routing, or the two together,
    as asked for. Each takes a minute or a few.
    """
    from pipelines.compiling import compile_kernels

    asked = [(False, True) if is_asked else (False,) for is_asked in (routing, speculation, True)]
    for looks, drafting, pools in product(*asked):
        compile_kernels(drafting=drafting, pools=pools, routing=looks)
