"""From a trace file to a prepared trace, in bounded memory: `tracemill trace ingest`.

Plain Mooncake lines go through DuckDB many at a time, everything else line by line; both ways give the same rows and
the same quarantine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from assets.ingest import mooncake
from assets.ingest.chunks import Chunks, ahead
from assets.ingest.fields import BadRow
from assets.ingest.json_text import objects
from assets.ingest.lines import Progress, head, raw_text
from assets.ingest.mooncake_bulk import Bulk, NotPlain
from assets.ingest.parser import Options
from assets.ingest.prepared import Writer, staged
from assets.ingest.reader import Batch, Reading, choose
from assets.ingest.rows import SomeRowsHaveIds
from assets.ingest.trace import Counts, Quarantine, TraceError, Waits

BATCH = 65_536
# Columns that only some formats fill.
OF_SOME = (
    *("external_id", "session_id", "turn", "pinned_rank"),
    *("delay_ns", "not_before_ns", "wait_on", "wait_delay_ns", "wait_on_dispatch"),
)


def ingest(
    path: str | Path,
    out: str | Path,
    *,
    format: str | None = None,
    block_tokens: int | None = None,
    columns: dict[str, str] | None = None,
    time_unit: str = "ms",
    nested_basis: str = "auto",
    strict: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Prepare a trace; return what is known of it (the content of `trace.json`).

    Raises:
        TraceError: as `read_trace`; then there is no `out`, or the one that was there before.
    """
    path, out = Path(path), Path(out)
    chosen, why = choose(path, format, mapped=columns is not None)
    options = Options(
        block_tokens=block_tokens or chosen.block_tokens,
        asserted_block=block_tokens,
        columns=columns or {},
        time_unit=time_unit,
        nested_basis=nested_basis,
    )
    reading = Reading(path, chosen, why, options, strict, progress)
    ways: list[Callable[[Writer], dict[str, Any]]] = [
        lambda writer: _line_by_line(reading, writer, needs_ids=False),
        lambda writer: _line_by_line(reading, writer, needs_ids=True),
    ]
    if chosen.name == mooncake.FORMAT.name:
        ways.insert(0, lambda writer: _in_bulk(path, options, strict, progress, writer))
    for way in ways:
        try:
            with staged(out) as folder:
                writer = Writer(folder)
                try:
                    found = way(writer)
                except BaseException:
                    writer.abandon()
                    raise
                about = {"path": str(path), "format": chosen.name, "why": why, **found}
                order = {"sorted": writer.n_late == 0, "rows_out_of_order": writer.n_late}
                about["notes"] = order | about["notes"]
                writer.close(about)
            return about
        except (NotPlain, SomeRowsHaveIds):
            continue
    raise AssertionError(f"{path}: no way of reading it came to an end")


def _in_bulk(path: Path, options: Options, strict: bool, progress: Progress | None, writer: Writer) -> dict[str, Any]:
    import duckdb

    reader = mooncake.Reader(options)
    first = next((row for row in objects(head(path)) if {"input_length", "input_tokens"} & row.keys()), None)
    if first is None:
        raise NotPlain
    chunks = Chunks(path, progress)
    n_blank = n_bad = n_rows = 0
    with duckdb.connect(config={"memory_limit": "512MB", "threads": 2}) as con:
        bulk = Bulk(con, list(first), reader, options.block_tokens)
        for chunk in ahead(chunks):
            blank = chunk.blank()
            part = bulk.part(chunk, blank)
            # Ordinal among the rows of the file, bad ones included.
            ordinal = n_rows + np.cumsum(~blank) - 1
            quarantine = Quarantine()
            for i, bad in part.bad:
                if strict:
                    _refuse(path, chunk.first + i, bad, chunk.line(i))
                quarantine.add(chunk.first + i, bad.reason, bad.field, bad.text, raw_text(chunk.line(i)))
            writer.bad(quarantine)
            writer.rows(
                {
                    "request_id": ordinal[part.at],
                    "source_line": chunk.first + part.at.astype(np.int64),
                    "arrival_ns": part.arrival_ns,
                    "prompt_tokens": part.prompt_tokens,
                    "output_tokens": part.output_tokens,
                    "hash_ids": part.hash_ids,
                    "hashed_tokens": None if part.hash_ids is None else part.prompt_tokens,
                    "hash_block_tokens": None if part.hash_ids is None else np.full(len(part.at), options.block_tokens),
                }
            )
            n_blank += int(blank.sum())
            n_bad += len(part.bad)
            n_rows += len(chunk) - int(blank.sum())
    counts = Counts(chunks.count, 0, n_blank, n_rows, writer.n_rows, n_bad, 0, n_rows)
    if n_rows != counts.clean + counts.quarantined or counts.lines != n_blank + n_rows:
        raise AssertionError(f"{path}: lines got lost: {counts}")
    if not counts.clean:
        raise NotPlain  # the line reader says what is wrong, with examples
    has_ids = "hash_ids" in first
    absent = list(OF_SOME)
    return {
        "digest": chunks.digest,
        "counts": asdict(counts),
        "hash_block_tokens": options.block_tokens,
        "has_timestamps": True,
        "ids_reach_prompts_only": True,
        "columns_without_values": absent + ([] if has_ids else ["hash_ids", "hashed_tokens", "hash_block_tokens"]),
        "notes": reader.notes(),
    }


def _line_by_line(reading: Reading, writer: Writer, *, needs_ids: bool) -> dict[str, Any]:
    seen: set[str] = set()
    reached_prompts_only = True

    def keep(batch: Batch) -> None:
        nonlocal reached_prompts_only
        columns = table_columns(batch.rows, batch.block_tokens)
        reached_prompts_only &= not (batch.rows["hashed_tokens"] >= 0).any()
        seen.update(name for name, values in columns.items() if values is not None)
        writer.rows(columns)
        writer.bad(batch.quarantine)

    end = reading.stream(keep, batch_rows=BATCH, needs_ids=needs_ids)
    absent = [name for name in (*OF_SOME, "hash_ids", "hashed_tokens") if name not in seen]
    return {
        "digest": end.digest,
        "counts": asdict(end.counts),
        "hash_block_tokens": end.parser.block_tokens,
        "has_timestamps": end.has_timestamps,
        "ids_reach_prompts_only": reached_prompts_only,
        "columns_without_values": absent + (["hash_block_tokens"] if "hash_ids" in absent else []),
        "notes": end.parser.notes(),
    }


def table_columns(rows: dict[str, Any], block_tokens: int) -> dict[str, Any]:
    """Columns of table `traces` from those of `Rows.drain`; None for columns without a value."""
    import pyarrow as pa

    def or_null(name: str) -> pa.Array | None:
        values = rows[name]
        return pa.array(values, mask=values < 0) if (values >= 0).any() else None

    offsets, in_session = rows["hash_offsets"], rows["session"] >= 0
    has_ids = rows["has_ids"]
    reach = np.where(rows["hashed_tokens"] >= 0, rows["hashed_tokens"], rows["prompt_tokens"])
    names = rows["session_names"]
    return {
        "request_id": rows["request_id"],
        "external_id": rows["external_id"] if any(each is not None for each in rows["external_id"]) else None,
        "source_line": rows["source_line"],
        "session_id": [names[i] if i >= 0 else None for i in rows["session"].tolist()] if in_session.any() else None,
        "turn": or_null("turn"),
        "pinned_rank": or_null("pinned_rank"),
        "arrival_ns": rows["arrival_ns"],
        "delay_ns": rows["delay_ns"] if in_session.any() and rows["waits"] is None else None,
        "not_before_ns": rows["not_before_ns"],
        **wait_columns(rows["waits"]),
        "prompt_tokens": rows["prompt_tokens"],
        "output_tokens": rows["output_tokens"],
        "hash_ids": pa.ListArray.from_arrays(offsets.astype(np.int32), rows["hash_ids"]) if has_ids else None,
        "hashed_tokens": np.minimum(reach, np.diff(offsets) * block_tokens) if has_ids else None,
        "hash_block_tokens": np.full(len(reach), block_tokens) if has_ids else None,
    }


def wait_columns(waits: Waits | None) -> dict[str, Any]:
    """The columns that say who waits for whom; None if nobody does."""
    import pyarrow as pa

    names = ("wait_on", "wait_delay_ns", "wait_on_dispatch")
    if waits is None:
        return dict.fromkeys(names)
    offsets = pa.array(waits.offsets.astype(np.int32))
    return {name: pa.ListArray.from_arrays(offsets, column) for name, column in zip(names, waits[1:])}


def _refuse(path: Path, number: int, bad: BadRow, line: bytes) -> None:
    where = f" in {bad.field}={bad.text}" if bad.field else ""
    raise TraceError(f"{path}: line {number}: {bad.reason}{where}: {raw_text(line)[:200]}")
