"""A prepared trace: a folder with canonical rows as parquet, the quarantine, and where both come from.

The folder is built under another name and appears whole or not at all. A replay reads the columns it needs from it.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from assets.ingest.trace import Counts, Quarantine, Trace, TraceError, Waits
from perf_db.tables import QUARANTINE, TRACES

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

ROWS, BAD, ABOUT = "rows.parquet", "quarantine.parquet", "trace.json"
VERSION = 2
ROW_GROUP = 131_072


def is_prepared(path: Path) -> bool:
    """Whether the path is such a folder."""
    return (path / ABOUT).is_file()


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """A folder to build in, which becomes `out` at the end. An older `out` stays until then; leftovers are removed."""
    if out.exists() and not is_prepared(out):
        raise TraceError(f"{out}: exists and is not a prepared trace; name another folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    _sweep(out)
    aside = out.with_name(f".{out.name}.{os.getpid()}.partial")
    aside.mkdir()
    try:
        yield aside
        for name in (ROWS, BAD, ABOUT):
            with (aside / name).open("rb") as file:
                os.fsync(file.fileno())
        old = out.with_name(f".{out.name}.{os.getpid()}.old")
        if out.exists():
            out.rename(old)
        aside.rename(out)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _sweep(out: Path) -> None:
    """Remove what writers of this folder left that are no longer there."""
    for left in out.parent.glob(f".{glob.escape(out.name)}.*"):
        parts = left.name.rsplit(".", 2)
        if parts[0] != f".{out.name}" or parts[-1] not in ("partial", "old") or not parts[1].isdigit():
            continue
        try:
            os.kill(int(parts[1]), 0)
        except ProcessLookupError:
            shutil.rmtree(left, ignore_errors=True)
        except PermissionError:
            continue
        else:
            if int(parts[1]) == os.getpid():
                shutil.rmtree(left, ignore_errors=True)


class Writer:
    """Rows and bad rows of one trace, a batch at a time, in file order."""

    def __init__(self, folder: Path) -> None:
        import pyarrow.parquet as pq

        self._folder = folder
        options: dict[str, Any] = {"compression": "zstd", "compression_level": 1, "use_dictionary": ["session_id"]}
        self._rows = pq.ParquetWriter(folder / ROWS, TRACES.arrow_schema(), **options)
        self._bad = pq.ParquetWriter(folder / BAD, QUARANTINE.arrow_schema(), compression="zstd")
        # Packing runs beside reading; one batch at a time, so that memory stays bounded.
        self._pool = ThreadPoolExecutor(1)
        self._packing: Future[None] | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._n_waiting = 0
        self._last_ns: int | None = None
        self.base_ns: int | None = None
        self.n_late = self.n_rows = 0
        self.first_ns = 0

    def rows(self, columns: dict[str, Any]) -> None:
        """Append rows; `arrival_ns` counts from any epoch, and columns left out are null."""
        import pyarrow as pa

        arrival_ns = columns["arrival_ns"]
        n = len(arrival_ns)
        if n == 0:
            return
        if self.base_ns is None or self._last_ns is None:
            self.base_ns = self._last_ns = int(arrival_ns[0])
        latest = np.maximum.accumulate(np.append(np.array([self._last_ns]), arrival_ns))
        self.n_late += int((arrival_ns < latest[:-1]).sum())
        self._last_ns = int(latest[-1])
        shifted = arrival_ns - self.base_ns
        self.first_ns = min(self.first_ns, int(shifted.min()))
        schema = TRACES.arrow_schema()
        made = {**columns, "arrival_ns": shifted}
        arrays = [
            _array(made[field.name], field.type) if made.get(field.name) is not None else pa.nulls(n, field.type)
            for field in schema
        ]
        self._waiting.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
        self._n_waiting += n
        self.n_rows += n
        if self._n_waiting >= ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        self._settle()
        if self._waiting:
            batch = pa.Table.from_batches(self._waiting)
            self._packing = self._pool.submit(self._rows.write_table, batch, 2 * ROW_GROUP)
        self._waiting, self._n_waiting = [], 0

    def _settle(self) -> None:
        if self._packing is not None:
            self._packing.result()
            self._packing = None

    def abandon(self) -> None:
        """Let go of the files, whatever state they are in."""
        self._pool.shutdown(cancel_futures=True)
        self._rows.close()
        self._bad.close()

    def bad(self, quarantine: Quarantine) -> None:
        """Append bad rows."""
        import pyarrow as pa

        if len(quarantine):
            self._bad.write_table(pa.table(quarantine.columns(), schema=QUARANTINE.arrow_schema()))

    def close(self, about: dict[str, Any]) -> None:
        """Finish the files: rows in order of arrival, the earliest at 0."""
        self._flush()
        self._settle()
        self._pool.shutdown()
        self._rows.close()
        self._bad.close()
        if self.n_late or self.first_ns:
            self._sort()
        text = json.dumps({"version": VERSION, **about}, indent=1)
        (self._folder / ABOUT).write_text(text)

    def _sort(self) -> None:
        import duckdb

        path, spill = self._folder / ROWS, self._folder / "spill"
        ordered = self._folder / "ordered.parquet"
        limits: dict[str, Any] = {"memory_limit": "1GB", "threads": 2, "temp_directory": str(spill)}
        with duckdb.connect(config=limits) as con:
            # Equal times keep the order in which rows were written.
            con.execute(
                f"COPY (SELECT * EXCLUDE (file_row_number) REPLACE (arrival_ns - ({self.first_ns}) AS arrival_ns) "
                "FROM read_parquet(?, file_row_number = true) ORDER BY arrival_ns, file_row_number) "
                f"TO '{_quoted(ordered)}' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, "
                f"ROW_GROUP_SIZE {ROW_GROUP})",
                [str(path)],
            )
        os.replace(ordered, path)
        shutil.rmtree(spill, ignore_errors=True)


def read_prepared(
    path: Path, *, needs_timestamps: bool | None, needs_output: bool, most_ids: int | None = None
) -> Trace:
    """A prepared trace as if its source had been read.

    Args:
        most_ids: prefix ids are left out, as if none were known, if there are more than this.
    """
    import pyarrow.parquet as pq

    about = json.loads((path / ABOUT).read_text())
    if about.get("version") != VERSION:
        raise TraceError(f"{path}: prepared by another version of this program; prepare it again from its source")
    counts = Counts(**about["counts"])
    file = pq.ParquetFile(path / ROWS)
    skipped = {"hashed_tokens"} if about["ids_reach_prompts_only"] else set()
    if most_ids is not None and _ids_in(file) > most_ids:
        skipped |= {"hash_ids", "hashed_tokens"}
    missing = set(about["columns_without_values"])
    wanted = [name for name in TRACES.column_names if name not in missing | skipped]
    rows = file.read(columns=wanted)
    quarantine = Quarantine()
    for bad in pq.read_table(path / BAD).to_pylist():
        quarantine.add(bad["source_line"], bad["reason"], bad["field"], bad["value"], bad["raw"])
    if needs_timestamps and not about["has_timestamps"]:
        raise TraceError(f"{path}: the trace has no arrival times; use another traffic.load than trace_timestamps")
    if needs_output:
        rows, quarantine, counts = _without_output(rows, quarantine, counts)
    return _trace(path, about, rows, quarantine, counts)


def _ids_in(file: pq.ParquetFile) -> int:
    """Prefix ids in the file, by its own account."""
    facts = file.metadata
    groups = [facts.row_group(i) for i in range(facts.num_row_groups)]
    columns = [group.column(i) for group in groups for i in range(group.num_columns)]
    return sum(column.num_values for column in columns if column.path_in_schema.startswith("hash_ids."))


def _without_output(rows: pa.Table, quarantine: Quarantine, counts: Counts) -> tuple[pa.Table, Quarantine, Counts]:
    import dataclasses

    import pyarrow.compute as pc

    empty = pc.equal(rows["output_tokens"], 0)
    for line in rows.filter(empty)["source_line"].to_pylist():
        quarantine.add(line, "zero_output", "output", "0", "")
    n = pc.sum(empty).as_py() or 0
    kept = dataclasses.replace(counts, clean=counts.clean - n, quarantined=counts.quarantined + n)
    return rows.filter(pc.invert(empty)), quarantine, kept


def _trace(path: Path, about: dict[str, Any], rows: pa.Table, quarantine: Quarantine, counts: Counts) -> Trace:
    def column(name: str, none: int = -1) -> np.ndarray | None:
        if name not in rows.column_names:
            return None
        found = rows[name]
        return np.asarray(found.fill_null(none) if found.null_count else found).astype(np.int64)

    def given(name: str) -> np.ndarray:
        found = column(name)
        assert found is not None
        return found

    offsets = ids = session = None
    names: list[str] = []
    if "hash_ids" in rows.column_names:
        offsets, ids = _lists(rows["hash_ids"])
    if "session_id" in rows.column_names:
        coded = rows["session_id"].combine_chunks().dictionary_encode()
        coded = coded.chunk(0) if hasattr(coded, "chunk") else coded
        names = coded.dictionary.to_pylist()
        session = np.asarray(coded.indices.fill_null(-1)).astype(np.int64)
    return Trace(
        request_id=given("request_id"),
        source_line=given("source_line"),
        external_id=rows["external_id"].to_pylist() if "external_id" in rows.column_names else None,
        session=session,
        session_names=names,
        turn=column("turn"),
        arrival_ns=given("arrival_ns"),
        delay_ns=column("delay_ns", 0),
        not_before_ns=column("not_before_ns", 0),
        waits=_waits(rows),
        prompt_tokens=given("prompt_tokens"),
        output_tokens=given("output_tokens"),
        pinned_rank=column("pinned_rank"),
        hash_offsets=offsets,
        hash_ids=ids,
        hash_block_tokens=about["hash_block_tokens"],
        hashed_tokens=column("hashed_tokens"),
        has_timestamps=about["has_timestamps"],
        quarantine=quarantine,
        counts=counts,
        path=str(path),
        format=about["format"],
        why=f"{about['why']}; prepared from {about['path']}",
        digest=about["digest"],
        notes=about["notes"],
    )


def _lists(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and values of a column of lists."""
    lists = column.combine_chunks()
    lists = lists.chunk(0) if hasattr(lists, "chunk") else lists
    offsets = np.asarray(lists.offsets).astype(np.int64)
    return offsets - offsets[0], np.asarray(lists.values)[offsets[0] : offsets[-1]]


def _waits(rows: pa.Table) -> Waits | None:
    if "wait_on" not in rows.column_names:
        return None
    offsets, on = _lists(rows["wait_on"])
    return Waits(offsets, on, _lists(rows["wait_delay_ns"])[1], _lists(rows["wait_on_dispatch"])[1])


def _array(values: Any, type_: pa.DataType) -> pa.Array:
    import pyarrow as pa

    found = values if isinstance(values, pa.Array) else pa.array(values)
    return found if found.type == type_ else found.cast(type_)


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
