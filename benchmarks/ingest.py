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


# What is measured: form, megabytes, share of bad rows, and MB per second that are asked for.
CASES = (
    ("jsonl", 2000, 0.0, 60),
    ("jsonl", 2000, 0.007, 25),
    ("csv", 1000, 0.0, 25),
    ("csv", 1000, 0.007, 25),
    ("parquet", 500, 0.0, 25),
    ("parquet", 500, 0.007, 25),
)
LIMIT_MB = 2048  # peak memory


def sizes(*, quick: bool, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Every case in a process of its own."""
    from benchmarks.process import run

    found = []
    for form, megabytes, dirt, asked in CASES:
        size = 2 if quick else megabytes
        command = [sys.executable, "-m", "benchmarks.ingest", "--json", "--form", form]
        answer = run([*command, "--mb", str(size), "--dirt", str(dirt)]).answer
        spent = f"{answer['seconds']:.1f} s, {answer['cpu_seconds']:.1f} CPU s"
        say(f"{answer['mb']:,.0f} MB of {form}, {dirt:.1%} bad: {spent}")
        found.append({"form": form, "dirt": dirt, "asked_mb_per_s": asked, **answer})
    return found


def main() -> None:
    """Make, prepare, compare, report."""
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    options.add_argument("--mb", type=float, default=250)
    options.add_argument("--dirt", type=float, default=0.0, help="share of bad lines")
    options.add_argument("--form", choices=[*FORMS, "parquet"], default="jsonl")
    options.add_argument("--dir", type=Path, default=None, help="where to make the file")
    options.add_argument("--json", action="store_true", help="one JSON object")
    given = options.parse_args()
    got = measure(given.form, given.mb, given.dirt, given.dir)
    if given.json:
        print(json.dumps(got))
        return
    speed = f"{got['mb']:,.0f} MB in {got['seconds']:.1f} s: {got['mb'] / got['seconds']:.0f} MB/s"
    # The second figure is what counts where others share the machine.
    speed += f" ({got['mb'] / got['cpu_seconds']:.0f} MB per CPU second), peak {got['peak_mb']:,.0f} MB"
    print(f"{got['rows']:,} rows, {speed}")
    print(f"bad lines planted {got['planted']:,}, all found at their places")


def measure(form: str, megabytes: float, dirt: float, folder: Path | None) -> dict[str, Any]:
    """Make a file, prepare it, and make sure that every bad line is found on its line.

    Raises:
        SystemExit: the bad lines found are not those planted.
    """
    from assets.ingest.ingest import ingest

    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        source = Path(scratch) / f"made.{form}"
        planted = make(source, megabytes=megabytes, form=form, dirt=dirt)
        size = source.stat().st_size / 1e6
        start, busy = time.perf_counter(), time.process_time()
        how: dict[str, Any] = {"format": "parquet", "columns": MAPPED} if form == "parquet" else {}
        about = ingest(source, Path(scratch) / "made.trace", **how)
        seconds, busy = time.perf_counter() - start, time.process_time() - busy
        found = _bad_lines(Path(scratch) / "made.trace")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if found != planted:
        right = sum(found.get(line) == reason for line, reason in planted.items())
        raise SystemExit(f"of {len(planted):,} bad lines {right:,} were found at their places, {len(found):,} in all")
    return {
        "mb": size,
        "rows": about["counts"]["rows_read"],
        "planted": len(planted),
        "seconds": seconds,
        "cpu_seconds": busy,
        "peak_mb": peak / 1024 if sys.platform == "darwin" else peak,
    }


def _bad_lines(folder: Path) -> dict[int, str]:
    import pyarrow.parquet as pq

    table = pq.read_table(folder / "quarantine.parquet", columns=["source_line", "reason"])
    return dict(zip(table["source_line"].to_pylist(), table["reason"].to_pylist()))


if __name__ == "__main__":
    main()
