"""Hold the compiled engine to the plain one in many random worlds.

    python -m tests.sim.fuzz --count 100000 --seed 1 [--processes 2] [--family small|deep|both]

A world that answers differently is printed with its seed, shrunk to a small one. Exit code 1 if there is any.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import sim.engine
import sim.reference
from tests.sim.answers import ask, difference
from tests.sim.shrink import shrink
from tests.sim.worlds import World, world

BATCH = 250
MOST_SHOWN = 5


def differ(world: World) -> str:
    """How the engines differ on a world; empty if they agree."""
    return difference(ask(sim.reference.replay, world), ask(sim.engine.replay, world))


def sweep(family: str, seeds: range) -> list[tuple[int, str]]:
    """The seeds of a family whose worlds are answered differently, and how."""
    return [(seed, said) for seed in seeds if (said := differ(world(family, seed)))]


def _batches(options: argparse.Namespace) -> Iterator[tuple[str, range]]:
    families = ["small", "deep"] if options.family == "both" else [options.family]
    # In both, every tenth world is a deep one: it takes ten times as long.
    shares = [options.count - options.count // 10, options.count // 10] if len(families) == 2 else [options.count]
    for family, share in zip(families, shares):
        last = options.seed + share
        for low in range(options.seed, last, BATCH):
            yield family, range(low, min(low + BATCH, last))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2_000, help="worlds in all")
    parser.add_argument("--seed", type=int, default=0, help="first seed; world number i has seed + i")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--family", choices=["small", "deep", "both"], default="small")
    options = parser.parse_args()
    batches, began = list(_batches(options)), time.perf_counter()
    done, failed = 0, []
    with ProcessPoolExecutor(options.processes) as pool:
        for (family, seeds), found in zip(batches, pool.map(sweep, *zip(*batches))):
            done += len(seeds)
            for seed, said in found:
                failed.append((family, seed))
                if len(failed) <= MOST_SHOWN:
                    least = shrink(world(family, seed), differ)
                    print(f"\n{family} {seed}: {said}\n  shrunk: {differ(least)}\n  {least!r}", flush=True)
            print(f"\r{done} of {options.count}, {time.perf_counter() - began:.0f} s", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(f"{done - len(failed)} passed, {len(failed)} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
