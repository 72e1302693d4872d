"""How fast a large trace is prepared, and in how much memory: `python -m benchmarks.ingest --mb 2000 --dirt 0.007`.

Rows look like those of the Mooncake conversation trace: about 250 bytes, most of them hash ids. Everything is made in a
temporary folder and removed.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

DIRT = {
    "bad_json": b'{"timestamp": 1, "inp\n',
    "missing_field": b'{"timestamp": 1, "input_length": 3, "hash_ids": [1]}\n',
    "wrong_type": b'{"timestamp": 1, "input_length": "3", "output_length": 1, "hash_ids": [1]}\n',
    "negative": b'{"timestamp": -1, "input_length": 3, "output_length": 1, "hash_ids": [1]}\n',
    "not_finite": b'{"timestamp": NaN, "input_length": 3, "output_length": 1, "hash_ids": [1]}\n',
    "hash_count_mismatch": b'{"timestamp": 1, "input_length": 9999, "output_length": 1, "hash_ids": [1]}\n',
    "out_of_range": b'{"timestamp": 1, "input_length": 3, "output_length": 4294967296, "hash_ids": [1]}\n',
}
BATCH = 20_000


def batches(*, seed: int, dirt: float, planted: dict[int, str]) -> Iterator[bytes]:
    """Batches of lines without end; bad ones among them are noted in `planted` by line number."""
    rng = np.random.Generator(np.random.Philox(seed))
    names = list(DIRT)
    row = 0
    while True:
        prompts = np.minimum(np.exp(rng.normal(8.84, 1.0, BATCH)).astype(int) + 1, 126_000)
        outputs = np.minimum(np.exp(rng.normal(5.6, 0.9, BATCH)).astype(int) + 1, 2_000)
        bad, kind = rng.random(BATCH) < dirt, rng.integers(len(names), size=BATCH)
        lines = []
        for i in range(BATCH):
            row += 1
            if bad[i]:
                planted[row] = names[kind[i]]
                lines.append(DIRT[names[kind[i]]].decode())
                continue
            ids = ", ".join(map(str, range(row * 7, row * 7 + -(-int(prompts[i]) // 512))))
            head = f'{{"timestamp": {row * 3}, "input_length": {prompts[i]}, "output_length": {outputs[i]}'
            lines.append(f'{head}, "hash_ids": [{ids}]}}\n')
        yield "".join(lines).encode()


def make(path: Path, *, megabytes: float, seed: int = 3, dirt: float = 0.0) -> dict[int, str]:
    """Write a trace of about this size; return the bad lines and why they are bad."""
    planted: dict[int, str] = {}
    written = 0
    with path.open("wb") as file:
        for batch in batches(seed=seed, dirt=dirt, planted=planted):
            written += file.write(batch)
            if written >= megabytes * 1e6:
                return planted
    return planted


def main() -> None:
    """Make, prepare, compare, report."""
    from assets.ingest.ingest import ingest

    options = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    options.add_argument("--mb", type=float, default=250)
    options.add_argument("--dirt", type=float, default=0.0, help="share of bad lines")
    options.add_argument("--dir", type=Path, default=None, help="where to make the file")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        source = Path(folder) / "made.jsonl"
        planted = make(source, megabytes=given.mb, dirt=given.dirt)
        size = source.stat().st_size / 1e6
        start, busy = time.perf_counter(), time.process_time()
        about = ingest(source, Path(folder) / "made.trace")
        seconds, busy = time.perf_counter() - start, time.process_time() - busy
        found = _bad_lines(Path(folder) / "made.trace")
    counts, peak = about["counts"], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    peak = peak / 1024 if sys.platform == "darwin" else peak
    speed = f"{size:,.0f} MB in {seconds:.1f} s: {size / seconds:.0f} MB/s"
    # The second figure is what counts where others share the machine.
    speed += f" ({size / busy:.0f} MB per CPU second), peak {peak:,.0f} MB"
    print(f"{counts['rows_read']:,} rows, {speed}")
    right = sum(found.get(line) == reason for line, reason in planted.items())
    print(f"bad lines planted {len(planted):,}, found at their places {right:,}")
    print("reasons", dict(Counter(found.values())))
    if found != planted:
        raise SystemExit("the bad lines found are not those planted")


def _bad_lines(folder: Path) -> dict[int, str]:
    import pyarrow.parquet as pq

    table = pq.read_table(folder / "quarantine.parquet", columns=["source_line", "reason"])
    return dict(zip(table["source_line"].to_pylist(), table["reason"].to_pylist()))


if __name__ == "__main__":
    main()
