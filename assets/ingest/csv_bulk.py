"""CSV lines many at a time, through DuckDB (see `bulk`).

A line is plain if it has as many fields as the header, no quotes, and in every column that is used what is usually
there: a count of at most nine digits, a decimal number, a wall-clock time in UTC, a word, or nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from assets.ingest.bulk import NotPlain
from assets.ingest.chunks import Chunk
from assets.ingest.csv_text import Plain
from assets.ingest.fields import MAX_NS
from assets.ingest.parser import Options
from assets.ingest.times import UNITS

CLOCK = r"([0-9]{4}-[0-9]{2}-[0-9]{2}[ T](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?)(?:Z|\+00:00)?"
PATTERNS = {
    "count": "([0-9]{1,9})",
    "clock": CLOCK,
    # As many digits after the point as make whole nanoseconds: then a product of doubles rounds to the same.
    "s": r"([0-9]{1,10}(?:\.[0-9]{1,9})?)",
    "ms": r"([0-9]{1,13}(?:\.[0-9]{1,6})?)",
    "us": r"([0-9]{1,16}(?:\.[0-9]{1,3})?)",
    "ns": "([0-9]{1,19})",
    "word": r'([^,"\s]*)',
    "number or nothing": r"(?:[0-9]{1,9}(?:\.[0-9]{1,9})?)?",
    "nothing": "",
    "anything": r'[^,"\r\n]*',
}
VALUES = {
    "count": "TRY_CAST({} AS BIGINT)",
    "clock": "epoch_ns(TRY_CAST({} AS TIMESTAMP_NS))",
    **{unit: f"TRY_CAST(TRY_CAST({{}} AS DECIMAL(19, 9)) * {ns} AS BIGINT)" for unit, ns in UNITS.items()},
    "ms": "TRY_CAST(TRY_CAST({} AS DECIMAL(19, 6)) * 1000000 AS BIGINT)",
    "us": "TRY_CAST(TRY_CAST({} AS DECIMAL(19, 3)) * 1000 AS BIGINT)",
    "ns": "TRY_CAST({} AS BIGINT)",
    "word": "{}",
}


class Bulk:
    """Reads chunk after chunk of one file."""

    has_ids = False

    def __init__(self, con: Any, reader: Any, plain: Plain) -> None:
        self._con, self._reader, self._plain = con, reader, plain
        self.has_times = "arrival" in plain.columns
        self._sql = _query(plain)

    def plain(self, chunk: Chunk) -> tuple[Any, np.ndarray]:
        """Columns of all lines, and which of them are plain."""
        import pyarrow as pa

        read = chunk.asked(self._con, self._sql)
        columns = {name: np.asarray(read[name].fill_null(-1)) for name in read.column_names if name != "model"}
        prompt, output = columns["prompt"], columns["output"]
        plain = (prompt >= 1) & (output >= self._plain.least_output)
        if "total" in columns:
            plain &= columns["total"] == prompt + output
        arrival_ns = columns.get("arrival", np.zeros(len(prompt), np.int64))
        plain &= (arrival_ns >= 0) & (arrival_ns < MAX_NS)
        if "model" in read.column_names:
            counts = read["model"].filter(pa.array(plain)).value_counts()
            self._reader.saw({each["values"].as_py(): each["counts"].as_py() for each in counts})
        return pa.table({"arrival_ns": arrival_ns, "prompt_tokens": prompt, "output_tokens": output}), plain


def _query(plain: Plain) -> str:
    """What is in the columns of a line; null where the line is not plain."""
    kinds = {column: (ours, kind) for ours, (column, kind) in plain.columns.items()}
    pattern = ",".join(PATTERNS[kinds.get(name, ("", "anything"))[1]] for name in plain.names)
    groups = [kinds[name] for name in plain.names if name in kinds and "(" in PATTERNS[kinds[name][1]][:1]]
    groups = [(ours, kind) for ours, kind in groups if kind in VALUES]
    names = ", ".join(f"'{ours}'" for ours, _ in groups)
    values = ", ".join(f"{VALUES[kind].format(f'found.{ours}')} AS {ours}" for ours, kind in groups)
    return f"SELECT {values} FROM (SELECT regexp_extract(line, '^{pattern}\\r?\\n?$', [{names}]) AS found FROM chunk)"


def of(con: Any, reader: Any, options: Options, lines: list[bytes]) -> Bulk:
    """For a file that begins with these lines, once the reader has seen the header."""
    plain = reader.plain(lines[1:] if lines else [])
    if plain is None or len(set(plain.names)) < len(plain.names):
        raise NotPlain
    return Bulk(con, reader, plain)
