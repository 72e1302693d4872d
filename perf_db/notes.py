"""What is said about runs after they were made: small tables whose rows come from JSON files under `notes/`.

A committed run never changes; a note on it may be written again. Each file holds all rows of one writer, so that
writing it twice leaves nothing doubled.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from perf_db.commit import read_shard_notes
from perf_db.layout import Layout, StoreError, checked_id, write_whole
from perf_db.schema import Dtype, Table
from perf_db.tables import NOTE_TABLES


def write_notes(layout: Layout, table: Table, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Replace what `name` (a run, say) has to tell in this table.

    Raises:
        SchemaError: the rows do not match the declaration.
    """
    import pyarrow as pa

    schema = table.arrow_schema()
    moments = [c.name for c in table.columns if c.dtype is Dtype.TIMESTAMP]  # text in JSON
    plain = [{n: dt.datetime.fromisoformat(v) if v and n in moments else v for n, v in row.items()} for row in rows]
    typed = pa.Table.from_pylist(plain, schema=schema)
    table.validate(typed, source=f"notes of {name!r}")
    folder = layout.notes / table.name
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / f"{checked_id('name', name)}.json", json.dumps(list(rows), indent=1))


def read_notes(layout: Layout, table: Table) -> list[dict[str, Any]]:
    """All rows of the table, by name of their writer, those that came with shards last."""
    rows: list[dict[str, Any]] = []
    written: set[str] = set()
    for path in sorted((layout.notes / table.name).glob("[!.]*.json")):
        try:
            rows += json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise StoreError(f"{path} is no JSON ({error}); remove it and examine the run again") from error
        written.add(path.name.removesuffix(".json"))
    # What was written about a run later replaces what came with its shard.
    return rows + [row for row in read_shard_notes(layout, table.name) if row.get("run_id") not in written]


def notes_digest(layout: Layout) -> str:
    """Changes when any note does. Names and times of the files are enough: each is replaced as a whole."""
    state = hashlib.blake2b(digest_size=16)
    for table in NOTE_TABLES.values():
        for path in sorted((layout.notes / table.name).glob("[!.]*.json")):
            about = path.stat()
            state.update(f"{table.name}/{path.name} {about.st_mtime_ns} {about.st_size} {about.st_ino}\n".encode())
    return state.hexdigest()
