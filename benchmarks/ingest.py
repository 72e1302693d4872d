"""How fast a large trace is prepared, and in how much memory: `python -m benchmarks.ingest --mb 2000 --dirt 0.007`.

Rows of `--form jsonl` look like those of the Mooncake conversation trace: about 250 bytes, most of them hash ids. `csv`
are lines of the Azure traces, `parquet` the Mooncake rows as columns. Everything is made in a temporary folder and
removed.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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
CSV_DIRT = {
    "bad_line": b"2023-11-16 18:15:46.6805900,374\n",
    "missing_field": b"2023-11-16 18:15:46.6805900,,44\n",
    "wrong_type": b"2023-11-16 18:15:46.6805900,374,x\n",
    "negative": b"2023-11-16 18:15:46.6805900,-374,44\n",
    "not_finite": b"2023-11-16 18:15:46.6805900,NaN,44\n",
    "non_positive": b"2023-11-16 18:15:46.6805900,0,44\n",
    "bad_timestamp": b"2023-13-16 18:15:46.6805900,374,44\n",
    "out_of_range": b"2023-11-16 18:15:46.6805900,374,4294967296\n",
}
ROW_DIRT: dict[str, dict[str, Any]] = {
    "missing_field": {"input_length": None},
    "negative": {"output_length": -1},
    "non_positive": {"input_length": 0},
    "out_of_range": {"output_length": 2**32},
    "hash_count_mismatch": {"hash_ids": [1], "input_length": 9999},
}
BATCH = 20_000
MAPPED = {"prompt_tokens": "input_length", "output_tokens": "output_length", "arrival": "timestamp"}


def jsonl(rng: np.random.Generator, row: int) -> list[str]:
    """Lines of Mooncake requests that follow row `row`."""
    prompts, outputs = _lengths(rng)
    lines = []
    for i in range(BATCH):
        row += 1
        ids = ", ".join(map(str, range(row * 7, row * 7 + -(-int(prompts[i]) // 512))))
        head = f'{{"timestamp": {row * 3}, "input_length": {prompts[i]}, "output_length": {outputs[i]}'
        lines.append(f'{head}, "hash_ids": [{ids}]}}\n')
    return lines


def csv(rng: np.random.Generator, row: int) -> list[str]:
    """Lines of Azure requests that follow row `row`."""
    prompts, outputs = _lengths(rng)
    at = np.datetime64("2023-11-16T18:15:46.680590") + np.arange(row, row + BATCH) * np.timedelta64(3_017, "us")
    times = np.datetime_as_string(at, unit="us")
    return [f"{time.replace('T', ' ')}0,{a},{b}\n" for time, a, b in zip(times.tolist(), prompts, outputs)]


def _lengths(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    prompts = np.minimum(np.exp(rng.normal(8.84, 1.0, BATCH)).astype(int) + 1, 126_000)
    return prompts, np.minimum(np.exp(rng.normal(5.6, 0.9, BATCH)).astype(int) + 1, 2_000)


FORMS: dict[str, tuple[str, Callable[..., list[str]], dict[str, bytes]]] = {
    "jsonl": ("", jsonl, DIRT),
    "csv": ("TIMESTAMP,ContextTokens,GeneratedTokens\n", csv, CSV_DIRT),
}


def batches(form: str, *, seed: int, dirt: float, planted: dict[int, str]) -> Iterator[bytes]:
    """Batches of lines without end; bad ones among them are noted in `planted` by line number."""
    header, lines_of, kinds = FORMS[form]
    rng = np.random.Generator(np.random.Philox(seed))
    names, row = list(kinds), 0
    first = len(header) > 0
    yield header.encode()
    while True:
        lines = lines_of(rng, row)
        bad, kind = rng.random(BATCH) < dirt, rng.integers(len(names), size=BATCH)
        for i in np.flatnonzero(bad).tolist():
            planted[row + i + 1 + first] = names[kind[i]]
            lines[i] = kinds[names[kind[i]]].decode()
        row += BATCH
        yield "".join(lines).encode()


def make(path: Path, *, megabytes: float, form: str = "jsonl", seed: int = 3, dirt: float = 0.0) -> dict[int, str]:
    """Write a trace of about this size; return the bad lines and why they are bad."""
    planted: dict[int, str] = {}
    if form == "parquet":
        return make_parquet(path, megabytes=megabytes, seed=seed, dirt=dirt)
    written = 0
    with path.open("wb") as file:
        for batch in batches(form, seed=seed, dirt=dirt, planted=planted):
            written += file.write(batch)
            if written >= megabytes * 1e6:
                return planted
    return planted


def make_parquet(path: Path, *, megabytes: float, seed: int, dirt: float) -> dict[int, str]:
    """The same as columns; the size is that of the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng, planted, row = np.random.Generator(np.random.Philox(seed)), dict[int, str](), 0
    int64, names = pa.int64(), list(ROW_DIRT)
    schema = pa.schema(
        [("timestamp", int64), ("input_length", int64), ("output_length", int64), ("hash_ids", pa.list_(int64))]
    )
    with pq.ParquetWriter(path, schema) as writer:
        while not path.exists() or path.stat().st_size < megabytes * 1e6:
            rows = [json.loads(line) for line in jsonl(rng, row)]
            for i in np.flatnonzero(rng.random(BATCH) < dirt).tolist():
                name = names[rng.integers(len(names))]
                planted[row + i + 1], rows[i] = name, rows[i] | ROW_DIRT[name]
            writer.write_table(pa.Table.from_pylist(rows, schema))
            row += BATCH
    return planted


def main() -> None:
    """Make, prepare, compare, report."""
    from assets.ingest.ingest import ingest

    options = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    options.add_argument("--mb", type=float, default=250)
    options.add_argument("--dirt", type=float, default=0.0, help="share of bad lines")
    options.add_argument("--form", choices=[*FORMS, "parquet"], default="jsonl")
    options.add_argument("--dir", type=Path, default=None, help="where to make the file")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        source = Path(folder) / f"made.{given.form}"
        planted = make(source, megabytes=given.mb, form=given.form, dirt=given.dirt)
        size = source.stat().st_size / 1e6
        start, busy = time.perf_counter(), time.process_time()
        how: dict[str, Any] = {"format": "parquet", "columns": MAPPED} if given.form == "parquet" else {}
        about = ingest(source, Path(folder) / "made.trace", **how)
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
