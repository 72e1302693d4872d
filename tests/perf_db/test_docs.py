"""docs/tables.md is what the declarations say."""

from __future__ import annotations

from perf_db import docs
from perf_db.tables import TABLES


def test_the_page_is_up_to_date():
    assert docs.PAGE.read_text() == docs.page(), "run: python -m perf_db.docs"


def test_the_page_has_every_table_and_column():
    text = docs.page()
    for table in TABLES.values():
        section = text.split(f"\n## {table.name}\n")[1].split("\n## ")[0]
        for column in table.columns:
            assert f"| `{column.name}` | {column.dtype.value}" in section


def test_a_stale_page_is_told(tmp_path, monkeypatch, capsys):
    stale = tmp_path / "tables.md"
    stale.write_text("old")
    monkeypatch.setattr("sys.argv", ["docs", "--check"])
    assert docs.main(stale, "new", "python -m perf_db.docs") == 1
    assert "out of date; run: python -m perf_db.docs" in capsys.readouterr().err
    monkeypatch.setattr("sys.argv", ["docs"])
    assert docs.main(stale, "new", "python -m perf_db.docs") == 0
    assert stale.read_text() == "new"
