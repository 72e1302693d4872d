"""A store of its own for every test."""

from __future__ import annotations

from pathlib import Path

import pytest

from assets.views import open_store
from perf_db.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Without derived views, which take longest to make."""
    return Store(tmp_path / "store")


@pytest.fixture
def warehouse(tmp_path: Path) -> Store:
    """With the views that ship."""
    return open_store(tmp_path / "warehouse")
