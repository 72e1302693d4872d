"""`python -m perf_db.gpu.docs` writes the list of operator tables into docs/performance-data.md; `--check` compares."""

from __future__ import annotations

from pathlib import Path

from perf_db.docs import main
from perf_db.gpu.operator_tables import OPERATOR_TABLES, OperatorTable

PAGE = Path(__file__).parents[2] / "docs" / "performance-data.md"
BEGIN = "<!-- tables: made by python -m perf_db.gpu.docs -->"
END = "<!-- end of tables -->"


def page() -> str:
    """The page with the list as it should be."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{listing()}\n{END}{rest.partition(END)[2]}"


def listing() -> str:
    """One line per kind of table."""
    lines = ["| folder / file | one row | categories | axes | measured |", "|---|---|---|---|---|"]
    tables = sorted(OPERATOR_TABLES.values(), key=lambda table: (table.family, table.name))
    return "\n".join([*lines, *map(_line, tables)]) + "\n"


def _line(table: OperatorTable) -> str:
    axes = "; ".join(f"{' + '.join(a.columns)} ({a.unit}{'' if a.grows else ', any order'})" for a in table.axes)
    measured = ", ".join(f"{m.column} ({m.unit})" for m in table.measures)
    categories = ", ".join(f"{c} (may be absent)" if c in table.optional else c for c in table.categories)
    return f"| `{table.family}/{table.file_name}` | {table.row_is} | {categories} | {axes} | {measured} |"


if __name__ == "__main__":
    raise SystemExit(main(PAGE, page(), "python -m perf_db.gpu.docs"))
