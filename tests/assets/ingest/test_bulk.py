"""CSV and parquet many rows at a time come to the same rows and the same quarantine as one by one."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assets.ingest import azure, burstgpt, generic, read_trace, vidur
from assets.ingest.ingest import ingest
from tests.assets.ingest.samples import AZURE, VIDUR
from tests.assets.ingest.test_csv_formats import NEW_BURST
from tests.assets.ingest.test_ingest import both, same

COUNTS = [
    "0",
    "-3",
    "+7",
    " 7 ",
    "7.0",
    "1e3",
    "007",
    "4294967296",
    "99999999999999999999",
    "",
    "x",
    "NaN",
    "inf",
    '"7"',
]
NUMBERS = [*COUNTS, "0.1234567891", "1000000.5", "1700000000.123456789", ".5", "5.", "9999999999", "1_0", "٣"]
CLOCKS = [
    "2024-02-30 00:00:00",
    "2024-02-29T23:59:59.123456789",
    "2024-02-29 24:00:00",
    "2024-02-29 23:59:60",
    "2024-05-10 00:00:00.009930+00:00",
    "2024-05-10 00:00:00Z",
    "2024-05-10 02:00:00+02:00",
    "1969-12-31 23:59:59",
    "2300-01-01 00:00:00",
    "0000-01-01 00:00:00",
    "2024-05-10",
    "",
]
LINES = ["", "   ", "a", "1,2", "1,2,3,4,5,6,7,8,9,10", '"1,2,3', "\x00", "1,2,3\r4"]


def made(header: str, row: list[list[str]], plain: list[Any], draw: random.Random, n: int = 3000) -> bytes:
    """A file whose lines are mostly plain; now and then one field, or all of the line, is something else."""
    text = [header.encode()] if header else []
    for i in range(n):
        cells = [each(i, draw) for each in plain]
        chance = draw.random()
        if chance < 0.1:
            at = draw.randrange(len(cells))
            cells[at] = draw.choice(row[at])
        line = ",".join(cells).encode()
        if 0.1 < chance < 0.12:
            line = draw.choice(LINES).encode()
        elif 0.12 < chance < 0.125:
            line = b"\xff" + line
        text.append(line + (b"\r" if draw.random() < 0.1 else b""))
    return b"\n".join(text)


def clock(i: int, draw: random.Random) -> str:
    at = dt.datetime(2023, 11, 16) + dt.timedelta(microseconds=draw.randrange(10**12))
    return f"{at}{draw.choice(['', 'Z', '+00:00'])}" if at.microsecond else str(at)


def seconds(i: int, draw: random.Random) -> str:
    return draw.choice([str(i), f"{i}.{draw.randrange(10**9):09}", f"{i}.5", repr(draw.random() * 1e6)])


def count(i: int, draw: random.Random) -> str:
    return str(draw.randrange(1, 9000))


def total(i: int, draw: random.Random) -> str:
    return draw.choice(["9", "12"])


CASES: dict[str, tuple[str, list[list[str]], list[Any]]] = {
    "azure": ("TIMESTAMP,ContextTokens,GeneratedTokens", [CLOCKS, COUNTS, COUNTS], [clock, count, count]),
    "azure, more columns": (
        *("TIMESTAMP,Images,ContextTokens,GeneratedTokens", [CLOCKS, COUNTS, COUNTS, COUNTS]),
        [clock, lambda i, d: "a b", count, count],
    ),
    "vidur": ("arrived_at,num_prefill_tokens,num_decode_tokens", [NUMBERS, COUNTS, COUNTS], [seconds, count, count]),
    "vidur, no times": (
        *("num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio", [COUNTS] * 4),
        [lambda i, d: "4", lambda i, d: "5", total, seconds],
    ),
    "burstgpt": (
        *(
            "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
            [NUMBERS, COUNTS, *[COUNTS] * 3, COUNTS],
        ),
        [seconds, lambda i, d: d.choice(["GPT-4", "ChatGPT", "G P"]), lambda i, d: "4", lambda i, d: "5", total]
        + [lambda i, d: "API log"],
    ),
    "burstgpt, no sessions yet": (
        *(NEW_BURST.strip(), [NUMBERS, ["", " "], NUMBERS, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS]),
        [seconds, lambda i, d: "", seconds, lambda i, d: "m", lambda i, d: "4", lambda i, d: "5", total, count],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_lines_of_every_kind_get_the_line_reader_s_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("assets.ingest.chunks.CHUNK", 1 << 14)
    draw = random.Random(name)
    for header in (CASES[name][0], ""):
        text = made(header, *CASES[name][1:], draw)
        if not header and name != "azure":
            continue  # without a header the others say nothing
        kinds = {"format": name.split(",")[0], "needs_timestamps": None}
        read = both_ways(tmp_path, text, **kinds)
        assert len(set(read.quarantine.reason)) >= 5
        assert len(read) > 1000


def both_ways(folder: Path, text: bytes, **options: Any) -> Any:
    """As `both`, with the line reader told what an ingest is not asked: whether times are needed."""
    path = folder / "source"
    path.write_bytes(text)
    read = read_trace(path, **options)
    options.pop("needs_timestamps", None)
    ingest(path, folder / "out.trace", **options)
    same(read_trace(folder / "out.trace", needs_timestamps=None), read)
    return read


@pytest.mark.parametrize(("unit", "values"), [("s", NUMBERS), ("ms", NUMBERS), ("us", NUMBERS), ("ns", NUMBERS)])
def test_named_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unit: str, values: list[str]) -> None:
    monkeypatch.setattr("assets.ingest.chunks.CHUNK", 1 << 14)
    header = "note,n_in,start,output_tokens"
    text = made(header, [COUNTS, COUNTS, values, COUNTS], [clock, count, seconds, count], random.Random(unit))
    columns = {"prompt_tokens": "n_in", "arrival": "start"}
    read = both_ways(tmp_path, text, format="csv", columns=columns, time_unit=unit, needs_timestamps=None)
    assert len(read) > 2000


@pytest.mark.parametrize(
    "body",
    [
        "5,2,\n5,2,0.5\n",  # the first has no time: then none needs one
        "5,2,2024-01-01 00:00:00\n5,2,0.5\n",
        "x,2,\n5,2,0.5\n5,2,\n",
        "5,2,0.5\n5,2,\n",
    ],
)
def test_times_of_named_columns_are_needed_if_the_first_row_has_one(tmp_path: Path, body: str) -> None:
    text = f"prompt_tokens,output_tokens,arrival\n{body}".encode()
    both_ways(tmp_path, text, format="csv", needs_timestamps=None)


def test_sessions_names_and_ids_are_read_line_by_line(tmp_path: Path) -> None:
    text = "prompt_tokens,output_tokens,arrival,session_id,hash_ids\n5,2,0.5,s,1 2\n6,2,0.75,s,[1]"
    both(tmp_path, text, format="csv")
    both(tmp_path, f"{NEW_BURST}0,,1,m,5,5,10,x\n1,a,1,m,5,5,10,x\n2,a,1,m,5,5,10,x")


PLAIN: dict[str, tuple[Any, bytes, dict[str, Any]]] = {
    "azure": (azure.Reader, AZURE.encode(), {}),
    "vidur": (vidur.Reader, VIDUR.encode(), {}),
    "burstgpt": (burstgpt.Reader, f"{NEW_BURST}0,,1,m,5,5,10,x\n1.5,,0.5,m,5,5,10,x\n".encode(), {}),
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_lines_do_not_pass_the_line_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    reader, text, options = PLAIN[name]
    (tmp_path / "source").write_bytes(text)
    monkeypatch.setattr(reader, "row", None)
    assert ingest(tmp_path / "source", tmp_path / "out.trace", **options)["counts"]["clean"] >= 2


VALUES: dict[str, list[Any]] = {
    "prompt_tokens": [0, -1, None, 2**31, 2**40],
    "output_tokens": [0, -1, None, 2**31],
    "arrival": [None, -1.0, float("nan"), float("inf"), 1e18, 1_700_000_000.123456, 5e5 + 1 / 3],
    "hash_ids": [None, [], [1], [1, None, 3], [1, 2, 3, 4]],
}
TYPES: dict[str, Any] = {
    "seconds": pa.float64(),
    "whole": pa.int64(),
    "few": pa.float32(),
    "times": pa.timestamp("ns"),
    "zoned": pa.timestamp("us", tz="Europe/Berlin"),
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("has_ids", [False, True])
def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, has_ids: bool) -> None:
    monkeypatch.setattr("assets.ingest.ingest.BATCH", 500)
    draw, rows = random.Random(kind), []
    for i in range(2000):
        prompt = draw.randrange(1, 1500)
        at: Any = draw.random() * 1e6 if kind in ("seconds", "few") else i * 1000
        if kind in ("times", "zoned"):
            at = dt.datetime(2024, 5, 10, tzinfo=dt.UTC) + dt.timedelta(microseconds=draw.randrange(10**12))
        row = {"prompt_tokens": prompt, "output_tokens": draw.randrange(300), "arrival": at}
        row["hash_ids"] = [draw.randrange(2**40) for _ in range(-(-prompt // 512))]
        if i and draw.random() < 0.1:
            name = draw.choice(list(VALUES))
            value = draw.choice(VALUES[name])
            if not (name == "arrival" and isinstance(value, float) and kind not in ("seconds", "few")):
                row[name] = value
        if not has_ids:
            del row["hash_ids"]
        rows.append(row)
    schema = [("prompt_tokens", pa.int64()), ("output_tokens", pa.int64()), ("arrival", TYPES[kind])]
    schema += [("hash_ids", pa.list_(pa.int64()))] if has_ids else []
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(schema)), tmp_path / "made.parquet", row_group_size=700)
    read = read_trace(tmp_path / "made.parquet", time_unit="s", format="parquet")
    ingest(tmp_path / "made.parquet", tmp_path / "out.trace", time_unit="s", format="parquet")
    same(read_trace(tmp_path / "out.trace"), read)
    assert len(read.quarantine) > 40
    assert len(read) > 1500


def test_parquet_rows_that_are_plain_are_never_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"prompt_tokens": [5, 6], "output_tokens": [1, 2], "arrival": [0, 1]})
    pq.write_table(table, tmp_path / "made.parquet")
    monkeypatch.setattr(generic.JsonReader, "row", None)
    assert ingest(tmp_path / "made.parquet", tmp_path / "out.trace", format="parquet")["counts"]["clean"] == 2


def test_parquet_times_to_the_nanosecond(tmp_path: Path) -> None:
    """Nanoseconds do not fit Python's own times."""
    at = pa.array([1_700_000_000_000_000_001, 1_700_000_000_000_000_999], pa.timestamp("ns"))
    table = pa.table({"prompt_tokens": [5, 6], "output_tokens": [1, 2], "arrival": at})
    pq.write_table(table, tmp_path / "made.parquet")
    assert read_trace(tmp_path / "made.parquet", format="parquet").arrival_ns.tolist() == [0, 998]
