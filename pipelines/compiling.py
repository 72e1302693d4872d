"""First use compiles the kernels; say so while it lasts."""

from __future__ import annotations

import sys
import threading
import time

import click


def compile_kernels(*, drafting: bool = False) -> None:
    """Make sure that compiled kernels are on disk, with a progress line while they are being made.

    Args:
        drafting: those of replays with speculative decoding.
    """
    from sim.jit import is_cached, prune

    if is_cached(drafting=drafting):
        return
    from sim.engine import load_kernels

    title = f"Compiling the engine{' for speculative decoding' if drafting else ''} (once per version, under a minute)"
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
        load_kernels(drafting=drafting)
    finally:
        done.set()
    prune()
    end = f"compiled in {time.perf_counter() - started:.0f} s"
    click.echo(f"\r{title} ... {end}" if terminal else f"Engine {end}", err=True)
