"""Any CSV, JSON lines or parquet file whose columns the configuration names (`traffic.source.columns`).

Times are numbers in `time_unit` or wall-clock text. Columns named as ours are need no mapping.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from assets.ingest.csv_text import Plain, cells
from assets.ingest.fields import BadRow, name, prompt_tokens, tokens, tokens_in_text
from assets.ingest.json_text import enough_ids, hash_ids, json_object
from assets.ingest.lines import head
from assets.ingest.parser import Format, Options, Parser, never
from assets.ingest.rows import Row
from assets.ingest.times import UNITS, span_in_text_ns, span_ns, wall_clock_ns
from assets.ingest.trace import TraceError

NEEDED = ("prompt_tokens", "output_tokens")
OPTIONAL = ("arrival", "delay", "session_id", "request_id", "dp_rank", "hash_ids")
FIELDS = (*NEEDED, *OPTIONAL)


class Reader(Parser):
    """Turns one row, as a mapping from the file's names to values, into a request."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.names = {field: options.columns.get(field, field) for field in FIELDS}
        self._unit_ns = UNITS[options.time_unit]
        self._surplus = 0

    def request(self, row: dict[str, Any], span: Callable[[Any, str, int], int], line: bytes) -> Row:
        names = self.names
        given = {field: row.get(names[field]) for field in FIELDS}
        given = {field: None if value == "" else value for field, value in given.items()}
        as_count = tokens_in_text if span is span_in_text_ns else tokens
        counted = [as_count(_needed(given, field, names), names[field]) for field in NEEDED]
        prompt = prompt_tokens(counted[0], names["prompt_tokens"])
        ids = None
        if given["hash_ids"] is not None:
            ids = _ids(given["hash_ids"], names["hash_ids"], line)
            needed = enough_ids(ids, prompt, self.options.block_tokens, names["hash_ids"])
            self._surplus += len(ids) > needed
            ids = ids[:needed]
        arrival, delay, rank = given["arrival"], given["delay"], given["dp_rank"]
        return Row(
            None if arrival is None else self._arrival_ns(arrival, span),
            prompt,
            counted[1],
            ids,
            None if given["session_id"] is None else name(given["session_id"], names["session_id"]),
            None if delay is None else span(delay, names["delay"], self._unit_ns),
            None if given["request_id"] is None else name(given["request_id"], names["request_id"]),
            -1 if rank is None else as_count(rank, names["dp_rank"]),
        )

    def _arrival_ns(self, value: Any, span: Callable[[Any, str, int], int]) -> int:
        if type(value) is str and value[4:5] == "-" and value[7:8] == "-":
            return wall_clock_ns(value, self.names["arrival"])
        return span(value, self.names["arrival"], self._unit_ns)

    def notes(self) -> dict[str, Any]:
        return {
            "columns": {k: v for k, v in self.names.items() if k != v},
            "rows_with_surplus_hash_ids": self._surplus,
        }


def insist_on_columns(path: Path, format: Format, columns: Mapping[str, str]) -> None:
    """Every column that was named has to be in the header; rows of JSON may leave fields out.

    Raises:
        TraceError: one is not.
    """
    if not columns or format.name not in (CSV.name, PARQUET.name):
        return
    there = _parquet_names(path) if format is PARQUET else cells(next(iter(head(path)), b""))
    if there is None:  # no header that can be read: the reader says what is wrong
        return
    for field, column in columns.items():
        if column not in there:
            close = get_close_matches(column, there, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise TraceError(
                f"{path} has no column {column} (traffic.source.columns.{field}); it has {', '.join(there)}{hint}"
            )


def _parquet_names(path: Path) -> list[str] | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return list(pq.read_schema(path).names)
    except (pa.ArrowException, OSError):
        return None


class JsonReader(Reader):
    """JSON lines, and rows of parquet files."""

    def row(self, line: bytes) -> Row:
        return self.request(json_object(line), span_ns, line)


class CsvReader(Reader):
    """CSV with a header. Hash ids are written as a JSON list, or as numbers between spaces."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._header: list[str] = []

    def header(self, line: bytes) -> bool:
        names = cells(line) or []
        if not {self.names[field] for field in NEEDED} <= set(names):
            return False
        self._header = names
        return True

    def plain(self, lines: list[bytes]) -> Plain | None:
        """Files with arrivals and lengths only: identities and prefixes are read line by line."""
        names = self.names
        if not self._header or any(names[field] in self._header for field in OPTIONAL if field != "arrival"):
            return None
        used = {"prompt": (names["prompt_tokens"], "count"), "output": (names["output_tokens"], "count")}
        if names["arrival"] in self._header:
            first = next(self._usable(lines), None)
            if first is None or first[1].arrival_ns is None:
                return None
            text = dict(zip(self._header, cells(first[0]) or []))[names["arrival"]]
            used["arrival"] = (names["arrival"], "clock" if text[4:5] == "-" else self.options.time_unit)
        return Plain(self._header, used)

    def _usable(self, lines: list[bytes]) -> Iterator[tuple[bytes, Row]]:
        for line in lines:
            try:
                yield line, self.row(line)
            except BadRow:
                continue

    def row(self, line: bytes) -> Row:
        found = cells(line)
        if found is None or len(found) != len(self._header):
            raise BadRow("bad_line")
        return self.request(dict(zip(self._header, found)), span_in_text_ns, b"true")


def _needed(given: dict[str, Any], field: str, names: dict[str, str]) -> Any:
    if given[field] is None:
        raise BadRow("missing_field", names[field])
    return given[field]


def _ids(value: Any, field: str, line: bytes) -> array[int]:
    if type(value) is str:
        try:
            value = json.loads(value) if value.startswith("[") else [int(each) for each in value.split()]
        except (ValueError, RecursionError):
            raise BadRow("wrong_type", field, value) from None
    return hash_ids(value, field, line)


CSV = Format("csv", "CSV with named columns", never, CsvReader)
JSONL = Format("jsonl", "JSON lines with named columns", never, JsonReader)
PARQUET = Format("parquet", "parquet with named columns", never, JsonReader, layout="parquet")
