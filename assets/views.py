"""The views that ship: one SQL file each in `assets/sql`, named as the view."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from perf_db.store import Store
from perf_db.views import View, parse_view

SQL = Path(__file__).parent / "sql"


@cache
def load_views() -> tuple[View, ...]:
    """Every view, by name."""
    return tuple(parse_view(path.stem, path.read_text(encoding="utf-8")) for path in sorted(SQL.glob("*.sql")))


def open_store(root: Path | str) -> Store:
    """The store under `root`, offering the views that ship."""
    return Store(root, load_views())
