"""`python -m perf_db.docs` writes docs/tables.md from the declarations; `--check` only compares."""

from __future__ import annotations

import sys
from pathlib import Path

from perf_db.tables import RUN_COLUMNS, TABLES

PAGE = Path(__file__).parents[1] / "docs" / "tables.md"

_INTRO = (
    f"""# Tables

Every table a replay writes, and how they hang together. This page is made from the declarations in `perf_db/tables`
by `python -m perf_db.docs`; edit those.

A replay is kept as one parquet file per table, seen together through the DuckDB file `tracemill.duckdb`. There every
table of a replay has two more columns in front, {" and ".join(f"`{c.name}`" for c in RUN_COLUMNS)}:

| column | meaning |
|---|---|
"""
    + "".join(f"| `{c.name}` | {c.meaning} |\n" for c in RUN_COLUMNS)
    + """
Times ending in `_ns` are whole nanoseconds on the replay's virtual clock, which starts at 0. Filter on `run_id`: only
the files of that run are then read. What is derived from these tables (latencies in milliseconds, the time of every
token, queues, KV usage) is in [views](views.md).

How to join them:

- `requests`, `spans`, `bursts`, `admissions`, `chunks`, `pressure`, `acceptance`, `handoffs`: on `run_id` and
  `request_id`;
- a pass: on `run_id`, `worker`, `dp_rank` and `pass_no`;
- a token was made in a pass of its rank and became visible at that pass's `end_ns`: token *i* of a span in pass
  `first_pass + i`, and with speculative decoding, where a pass may make several, as `bursts` has it (the view
  `token_passes` puts both together). With a front end, token and end times of `requests` are later by
  `runs.output_path_ns`;
- everything else about a run: `runs`, on `run_id`.

What one row is:

"""
)


def page() -> str:
    """The page as it should be."""
    contents = "".join(f"- [{t.name}](#{t.name}): {t.row_is}\n" for t in TABLES.values())
    return _INTRO + contents + "\n" + "\n".join(t.markdown() for t in TABLES.values())


def main(page_file: Path, text: str, command: str) -> int:
    """Write the page, or with `--check` compare it. Returns the exit code."""
    if "--check" in sys.argv[1:]:
        if page_file.exists() and page_file.read_text(encoding="utf-8") == text:
            return 0
        print(f"{page_file} is out of date; run: {command}", file=sys.stderr)
        return 1
    page_file.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(PAGE, page(), "python -m perf_db.docs"))
