"""Tables about performance data in a store: parquet beside the runs, shown by the DuckDB file like everything else.

`performance/<system>/<backend>/<version>/<table>.parquet`, written whole by whoever examines a version. They belong to
no run: examining again replaces them.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from perf_db.layout import Layout
from perf_db.schema import Table, quoted
from perf_db.tables import PERFORMANCE_TABLES


def performance_folder(root: Path) -> Path:
    """Where a store keeps them."""
    return root / "performance"


def performance_files(root: Path) -> list[Path]:
    """All files of a store, in order of paths."""
    folder = performance_folder(root)
    return sorted(path for path in folder.glob("*/*/*/*.parquet") if path.stem in PERFORMANCE_TABLES)


def performance_digest(layout: Layout) -> str:
    """Changes whenever a file is added, replaced or removed."""
    state = hashlib.blake2b(digest_size=16)
    for path in performance_files(layout.root):
        stat = path.stat()
        state.update(f"{path.relative_to(layout.root)}|{stat.st_size}|{stat.st_mtime_ns}\n".encode())
    return state.hexdigest()


def performance_views(layout: Layout) -> list[str]:
    """Statements that make one view per table over its files; empty views without any."""
    files = performance_files(layout.root)
    statements = []
    for table in PERFORMANCE_TABLES.values():
        paths = [path for path in files if path.stem == table.name and _as_declared(path, table)]
        statements.append(f"CREATE OR REPLACE VIEW {table.name} AS {_select(table, paths)}")
        statements += table.comments("VIEW")
    return statements


def _select(table: Table, paths: list[Path]) -> str:
    if not paths:
        return f"SELECT {', '.join(f'NULL::{c.dtype.value} AS {c.name}' for c in table.columns)} WHERE false"
    return f"SELECT {', '.join(table.column_names)} FROM read_parquet([{', '.join(quoted(str(p)) for p in paths)}])"


def _as_declared(path: Path, table: Table) -> bool:
    """Whether the file has the columns of this release; one of another release waits until it is examined again."""
    import pyarrow.parquet as pq

    return pq.read_schema(path).names == list(table.column_names)
