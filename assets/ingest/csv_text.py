"""CSV: what the formats that use it share."""

from __future__ import annotations

import csv
from typing import Any, NamedTuple

from assets.ingest.fields import BadRow
from assets.ingest.parser import Options, Parser


def cells(line: bytes) -> list[str] | None:
    """The fields of a line; None for what is no text, or no CSV (a carriage return inside, an endless field)."""
    try:
        text = line.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        return None
    # Quotes are legal and never occur in published files: the plain split is the fast path.
    try:
        found = next(csv.reader([text]), []) if '"' in text else text.split(",")
    except csv.Error:
        return None
    return [cell.strip() for cell in found]


def has_columns(lines: list[bytes], names: tuple[str, ...], but: tuple[str, ...] = ()) -> str | None:
    """Why these lines are a CSV file with these columns (and none of those), or None."""
    found = cells(lines[0])
    if found and set(names) <= set(found) and not set(but) & set(found):
        return "CSV header with " + ", ".join(names[:-1]) + " and " + names[-1]
    return None


class Plain(NamedTuple):
    """What an ordinary line holds, for reading many at once (`csv_bulk`).

    Attributes:
        names: the columns of a line, in order.
        columns: of what is used (arrival, prompt, output, total, model, or any name): its column, and how it is
            written there: one of `csv_bulk.PATTERNS`.
        least_output: output tokens below which a row needs a closer look.
    """

    names: list[str]
    columns: dict[str, tuple[str, str]]
    least_output: int = 0


class CsvParser(Parser):
    """A file with a header line.

    Attributes:
        required: columns without which the header is none.
        optional: columns that are used where they are there.
    """

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.names: list[str] = []
        # Without a header, the columns that have to be there, in their usual order.
        self.at = {name: i for i, name in enumerate(self.required)}

    def header(self, line: bytes) -> bool:
        names = cells(line) or []
        if not set(self.required) <= set(names):
            return False
        self.names = names
        self.at = {name: names.index(name) for name in (*self.required, *self.optional) if name in names}
        return True

    def plain(self, lines: list[bytes]) -> Plain | None:
        """What an ordinary line of this file holds, or None: then lines are read one by one.

        Args:
            lines: the first ones after the header.
        """
        return None

    def cells(self, line: bytes) -> list[str]:
        found = cells(line)
        if found is None or len(found) != (len(self.names) or len(self.required)):
            raise BadRow("bad_line")
        return found

    def notes(self) -> dict[str, Any]:
        used = (*self.required, *self.optional)
        return {"ignored_fields": [name for name in self.names if name not in used]}
