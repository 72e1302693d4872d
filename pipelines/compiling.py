"""First use compiles the kernels; say so while it lasts."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from sim.config import RunConfig


def compile_for(configs: Iterable[RunConfig]) -> None:
    """`compile_kernels`, of the kinds that these replays run on."""
    kinds = {
        (config.speculation is not None, config.engine.mode == "disaggregated", _looks(config)) for config in configs
    }
    for drafting, pools, routing in sorted(kinds):
        compile_kernels(drafting=drafting, pools=pools, routing=routing)


def _looks(config: RunConfig) -> bool:
    """Whether placement depends on what ranks hold or do."""
    return config.router.routing is not None or config.local_prefill_tokens is not None


def compile_kernels(*, drafting: bool = False, pools: bool = False, routing: bool = False) -> None:
    """Make sure that compiled kernels are on disk, with a progress line while they are being made.

    Args:
        drafting: those of replays with speculative decoding.
        pools: those of replays on separate pools.
        routing: of any of these, those behind a KV-aware router.
    """
    from sim.jit import is_cached, prune

    if is_cached(drafting=drafting, pools=pools, routing=routing):
        return
    where = (" in" if drafting else " for") + " separate pools" if pools else ""
    what = (" for speculative decoding" if drafting else "") + where
    what += " and KV-aware routing" if what and routing else " for KV-aware routing" if routing else ""
    title = f"Compiling the engine{what} (once per version and kind of replay; a minute or a few)"
    started = time.perf_counter()
    done = threading.Event()
    terminal = sys.stderr.isatty()
    click.echo(f"{title} ...", err=True, nl=not terminal)

    def tick() -> None:
        while not done.wait(1.0):
            click.echo(f"\r{title} ... {time.perf_counter() - started:.0f} s", err=True, nl=False)

    ticker = threading.Thread(target=tick, daemon=True)
    if terminal:
        ticker.start()
    try:
        _load(drafting, pools, routing)
    finally:
        done.set()
    prune()
    end = f"compiled in {time.perf_counter() - started:.0f} s"
    click.echo(f"\r{title} ... {end}" if terminal else f"Engine {end}", err=True)


def _load(drafting: bool, pools: bool, routing: bool) -> None:
    if pools:
        from sim.pools.engine import load_kernels as load_pools

        load_pools(drafting=drafting, routing=routing)
        return
    from sim.engine import load_kernels

    load_kernels(drafting=drafting, routing=routing)
