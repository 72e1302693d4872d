"""What a format is: how it is recognised, and a reader that turns its lines into rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from assets.ingest.fields import BadRow
from assets.ingest.rows import Row


class Options(NamedTuple):
    """What the configuration says about how to read a file.

    Attributes:
        block_tokens: tokens per hash id.
        asserted_block: the same, where the configuration says it: a file that says otherwise is refused.
        cut_tokens: the engine's block size, where it is known: text that a reader puts together itself is cut in it.
        columns: generic formats: our name of a field -> the file's.
        time_unit: generic formats: unit of times and delays.
        nested_basis: Weka: what the times of nested calls count from.
    """

    block_tokens: int = 512
    asserted_block: int | None = None
    cut_tokens: int | None = None
    columns: Mapping[str, str] = {}
    time_unit: str = "ms"
    nested_basis: str = "auto"


class Parser:
    """Reads one file; made anew for every file, so it may remember what it has seen.

    A format overrides `row` where a line is one request, `rows` where it is several of a session, and `take` and
    `finish` where no request can be made before the last line is known (then `whole` is true).
    """

    whole = False

    def __init__(self, options: Options) -> None:
        self.options = options

    def header(self, line: bytes) -> bool:
        """Whether the file's first non-blank line is a header (and then take it in)."""
        return False

    def row(self, line: bytes) -> Row:
        """One request, or BadRow."""
        raise NotImplementedError

    def rows(self, line: bytes) -> Sequence[Row]:
        """The requests of a line (all or none of them are kept), or BadRow."""
        return (self.row(line),)

    def kept(self) -> None:
        """The rows made last are in the trace (they may still be set aside after `rows`, as repeated names are)."""

    def take(self, ordinal: int, number: int, line: bytes) -> int:
        """Remember a line whose first request has this ordinal; return how many requests it holds, or BadRow."""
        raise NotImplementedError

    def finish(self) -> Iterator[tuple[int, int, bytes, Row | BadRow]]:
        """The requests of all lines taken: ordinal, line number, text for the quarantine, and the row or its fault."""
        return iter(())

    @property
    def timed(self) -> bool:
        """Whether the file has arrivals at all."""
        return True

    @property
    def block_tokens(self) -> int:
        """Tokens per id of the rows made."""
        return self.options.block_tokens

    def notes(self) -> dict[str, Any]:
        """Facts about the file that are no faults."""
        return {}


@dataclass(frozen=True, slots=True)
class Format:
    """One trace format.

    Attributes:
        name: what `traffic.source.format` calls it.
        title: what a person calls it.
        recognise: from the first non-blank lines to why this is the format, or None.
        reader: makes the reader of one file.
        block_tokens: tokens per hash id, where the configuration does not say.
        layout: "lines"; "documents" for JSON documents, one per line, per file or per file of a folder; "parquet".
    """

    name: str
    title: str
    recognise: Callable[[list[bytes]], str | None]
    reader: Callable[[Options], Parser]
    block_tokens: int = 512
    layout: str = "lines"


def never(lines: list[bytes]) -> str | None:
    """For formats that nothing in a file tells apart from another one: they have to be named."""
    return None
