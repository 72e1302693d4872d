"""The views that ship: one SQL file each in `assets/sql`, named as the view.

`python -m assets.views` writes docs/views.md from them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from perf_db import docs
from perf_db.store import Store
from perf_db.views import View, parse_view

SQL = Path(__file__).parent / "sql"
PAGE = docs.PAGE.with_name("views.md")

_INTRO = """# Views

What the tables say, worked out. Each is one file in `assets/sql`, and this page is made from them by
`python -m assets.views`. Besides the columns explained here they carry those that name a row (`run_id`, `replay_id`,
`request_id`, `worker`, `dp_rank`), which mean what they mean in the [tables](tables.md). Filter on `run_id`.

Views count every request, those of `traffic.warmup` too, which the `metrics` table leaves out.

`pct(x, p)` is the percentile that the `metrics` table uses: the value at rank (n - 1) * p / 100 of the sorted values,
halves up.

"""


@cache
def load_views() -> tuple[View, ...]:
    """Every view, by name."""
    return tuple(parse_view(path.stem, path.read_text(encoding="utf-8")) for path in sorted(SQL.glob("*.sql")))


def open_store(root: Path | str) -> Store:
    """The store under `root`, offering the views that ship."""
    return Store(root, load_views())


def page() -> str:
    """docs/views.md as it should be."""
    sections = []
    for view in load_views():
        text = f"## {view.name}\n\n{view.comment}\n"
        if view.columns:
            rows = (meaning.removeprefix("[").split("] ", 1) for meaning in view.columns.values())
            text += "\n| column | unit | meaning |\n|---|---|---|\n" + "".join(
                f"| `{name}` | {unit or '–'} | {meaning} |\n" for name, (unit, meaning) in zip(view.columns, rows)
            )
        sections.append(text)
    return _INTRO + "\n".join(sections)


if __name__ == "__main__":
    raise SystemExit(docs.main(PAGE, page(), "python -m assets.views"))
