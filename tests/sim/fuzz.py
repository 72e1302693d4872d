"""Hold the compiled engine to the plain one in many random worlds.

    python -m tests.sim.fuzz --count 100000 --seed 1 [--processes 2] [--family small|squeezed|deep|mixed]

A world that answers differently is printed with its seed, shrunk to a small one. Exit code 1 if there is any.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

import sim.engine
import sim.reference
from tests.sim.answers import ask, difference
from tests.sim.shrink import shrink
from tests.sim.worlds import FAMILIES, World, world

BATCH = 250
MOST_SHOWN = 5


def differ(world: World) -> str:
    """How the engines differ on a world; empty if they agree."""
    return difference(ask(sim.reference.replay, world), ask(sim.engine.replay, world))


def sweep(seeds: range, family: str) -> list[tuple[int, str]]:
    """The seeds whose worlds are answered differently, and how."""
    return [(seed, said) for seed in seeds if (said := differ(world(seed, family)))]


def _sweeps(batches: list[range], family: str, processes: int) -> Iterator[list[tuple[int, str]]]:
    families = [family] * len(batches)
    if processes == 1:
        yield from map(sweep, batches, families)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(sweep, batches, families)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2_000, help="worlds in all")
    parser.add_argument("--seed", type=int, default=0, help="first seed; world number i has seed + i")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--family", choices=[*FAMILIES, "mixed"], default="mixed")
    options = parser.parse_args(arguments)
    last, began = options.seed + options.count, time.perf_counter()
    batches = [range(low, min(low + BATCH, last)) for low in range(options.seed, last, BATCH)]
    done, failed = 0, 0
    for seeds, found in zip(batches, _sweeps(batches, options.family, options.processes)):
        for seed, said in found:
            failed += 1
            if failed <= MOST_SHOWN:
                least = shrink(world(seed, options.family), differ)
                print(f"\n{options.family} {seed}: {said}\n  shrunk: {differ(least)}\n  {least!r}", flush=True)
        done += len(seeds)
        seconds = time.perf_counter() - began
        print(f"\r{done} of {options.count} worlds, {seconds:.0f} s", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(f"{done - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
