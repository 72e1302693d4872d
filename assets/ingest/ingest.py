"""From a trace file to a prepared trace, in bounded memory: `tracemill trace ingest`.

Plain lines of the common formats go through DuckDB many at a time, rows of parquet through arrow, everything else line
by line; all ways give the same rows and the same quarantine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from assets.ingest import azure, burstgpt, csv_bulk, generic, mooncake, mooncake_bulk, parquet_bulk, vidur
from assets.ingest.bulk import Bulk, NotPlain, Part, part_of
from assets.ingest.chunks import Chunks, ahead
from assets.ingest.fields import BadRow
from assets.ingest.lines import ParquetRows, Progress, head, raw_text, row_texts
from assets.ingest.parser import Format, Options
from assets.ingest.prepared import Writer, staged
from assets.ingest.reader import Batch, Reading, choose
from assets.ingest.rows import Row, SomeRowsHaveIds
from assets.ingest.trace import Counts, Quarantine, TraceError, Waits

BATCH = 65_536
# Formats whose lines can be read many at a time.
BULK: dict[str, Callable[[Any, Any, Options, list[bytes]], Bulk]] = {
    mooncake.FORMAT.name: lambda con, reader, options, lines: mooncake_bulk.of(con, options, lines),
    **dict.fromkeys((azure.FORMAT.name, burstgpt.FORMAT.name, vidur.FORMAT.name), csv_bulk.of),
    generic.CSV.name: csv_bulk.of,
}
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
    expected: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Prepare a trace; return what is known of it (the content of `trace.json`).

    Args:
        expected: digest of the file; an error if it turns out to be another one. Other arguments as in `read_trace`.

    Raises:
        TraceError: as `read_trace`; then there is no `out`, or the one that was there before.
    """
    path, out = Path(path), Path(out)
    chosen, why = choose(path, format, mapped=columns is not None)
    generic.insist_on_columns(path, chosen, columns or {})
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
    if chosen.name in BULK:
        ways.insert(0, lambda writer: _in_bulk(path, chosen, options, strict, progress, writer))
    elif chosen.name == generic.PARQUET.name:
        ways.insert(0, lambda writer: _from_parquet(path, options, strict, progress, writer))
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
                if expected not in (None, about["digest"]):
                    raise TraceError(
                        f"{path}: was written to while it was read; put it there again once it is complete"
                    )
                order = {"sorted": writer.n_late == 0, "rows_out_of_order": writer.n_late}
                about["notes"] = order | about["notes"]
                writer.close(about)
            return about
        except (NotPlain, SomeRowsHaveIds):
            continue
    raise AssertionError(f"{path}: no way of reading it came to an end")


def _in_bulk(
    path: Path, chosen: Format, options: Options, strict: bool, progress: Progress | None, writer: Writer
) -> dict[str, Any]:
    import duckdb

    reader = chosen.reader(options)
    chunks = Chunks(path, progress)
    n_header = n_blank = n_bad = n_rows = 0
    with duckdb.connect(config={"memory_limit": "512MB", "threads": 2}) as con:
        bulk: Bulk | None = None
        for chunk in ahead(chunks):
            left_out = chunk.blank()
            n_blank += int(left_out.sum())
            if bulk is None:
                first = int(left_out.argmin())
                if not left_out.all() and reader.header(chunk.line(first)):
                    left_out[first], n_header = True, 1
                bulk = BULK[chosen.name](con, reader, options, head(path))
            part = part_of(bulk, chunk, left_out, lambda i, chunk=chunk: reader.row(chunk.line(i)))  # type: ignore[misc]
            # Ordinal among the rows of the file, bad ones included.
            ordinal = n_rows + np.cumsum(~left_out) - 1
            quarantine = Quarantine()
            for i, bad in part.bad:
                if strict:
                    _refuse(path, chunk.first + i, bad, chunk.line(i))
                quarantine.add(chunk.first + i, bad.reason, bad.field, bad.text, raw_text(chunk.line(i)))
            writer.bad(quarantine)
            writer.rows(bulk_columns(part, ordinal, chunk.first, options.block_tokens))
            n_bad += len(part.bad)
            n_rows += len(chunk) - int(left_out.sum())
    counts = Counts(chunks.count, n_header, n_blank, n_rows, writer.n_rows, n_bad, 0, n_rows)
    if n_rows != counts.clean + counts.quarantined or counts.lines != n_header + n_blank + n_rows:
        raise AssertionError(f"{path}: lines got lost: {counts}")
    if bulk is None or not counts.clean:
        raise NotPlain  # the line reader says what is wrong, with examples
    return bulk_facts(bulk, chunks.digest, counts, options, reader.notes())


def _from_parquet(
    path: Path, options: Options, strict: bool, progress: Progress | None, writer: Writer
) -> dict[str, Any]:
    import pyarrow as pa

    reader = generic.JsonReader(options)
    source = ParquetRows(path, progress)
    bulk: Bulk | None = None
    n_rows = n_bad = 0
    try:
        for batch in source.batches(BATCH):
            if bulk is None:
                bulk = parquet_bulk.Bulk(batch.schema, reader.names, options)
                if bulk.has_times and not batch.column(reader.names["arrival"])[0].is_valid:
                    raise NotPlain
            texts: dict[int, bytes] = {}

            def read(i: int, batch: pa.RecordBatch = batch, texts: dict[int, bytes] = texts) -> Row:
                texts[i] = row_texts(batch.slice(i, 1))[0]
                return reader.row(texts[i])

            part = part_of(bulk, batch, np.zeros(batch.num_rows, bool), read)
            quarantine = Quarantine()
            for i, bad in part.bad:
                if strict:
                    _refuse(path, n_rows + i + 1, bad, texts[i])
                quarantine.add(n_rows + i + 1, bad.reason, bad.field, bad.text, raw_text(texts[i]))
            writer.bad(quarantine)
            writer.rows(
                bulk_columns(part, n_rows + np.arange(batch.num_rows, dtype=np.int64), n_rows + 1, options.block_tokens)
            )
            n_bad += len(part.bad)
            n_rows += batch.num_rows
    except pa.ArrowException as error:
        raise TraceError(f"{path}: broken parquet after row {n_rows}: {error}") from None
    if bulk is None or not writer.n_rows:
        raise NotPlain
    counts = Counts(n_rows, 0, 0, n_rows, writer.n_rows, n_bad, 0, n_rows)
    return bulk_facts(bulk, source.digest, counts, options, reader.notes())


def bulk_columns(part: Part, ordinal: np.ndarray, first: int, block_tokens: int) -> dict[str, Any]:
    """Columns of table `traces` from those of a chunk that begins at line `first`."""
    has_ids = part.hash_ids is not None
    return {
        "request_id": ordinal[part.at],
        "source_line": first + part.at.astype(np.int64),
        "arrival_ns": part.arrival_ns,
        "prompt_tokens": part.prompt_tokens,
        "output_tokens": part.output_tokens,
        "hash_ids": part.hash_ids,
        "hashed_tokens": part.prompt_tokens if has_ids else None,
        "hash_block_tokens": np.full(len(part.at), block_tokens) if has_ids else None,
    }


def bulk_facts(bulk: Bulk, digest: str, counts: Counts, options: Options, notes: dict[str, Any]) -> dict[str, Any]:
    """What is known of a file at its end."""
    return {
        "digest": digest,
        "counts": asdict(counts),
        "hash_block_tokens": options.block_tokens,
        "has_timestamps": bulk.has_times,
        "ids_reach_prompts_only": True,
        "columns_without_values": [
            *OF_SOME,
            *(() if bulk.has_ids else ("hash_ids", "hashed_tokens", "hash_block_tokens")),
        ],
        "notes": notes,
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
