"""docs/traces.md names every format and every reason a row can be set aside for."""

from __future__ import annotations

from pathlib import Path

from assets.ingest import FORMATS
from assets.ingest.fields import REASONS

TEXT = (Path(__file__).parents[3] / "docs" / "traces.md").read_text()


def test_every_reason_and_format_is_described() -> None:
    assert [name for name in (*REASONS, *FORMATS) if f"`{name}`" not in TEXT] == []
