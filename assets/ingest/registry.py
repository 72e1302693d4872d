"""The formats we read, and how a file's format is found out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from assets.ingest import azure, mooncake
from assets.ingest.lines import head, raw_text
from assets.ingest.rows import Row
from assets.ingest.trace import TraceError


class LineParser(Protocol):
    """Turns lines into rows. Made anew for every file, so it may remember what it has seen."""

    def header(self, line: bytes) -> bool:
        """Whether the file's first non-blank line is a header (and then take it in)."""

    def row(self, line: bytes) -> Row:
        """One request, or BadRow."""

    def notes(self) -> dict[str, object]:
        """Facts about the file that are no faults."""


@dataclass(frozen=True, slots=True)
class Format:
    """One trace format.

    Attributes:
        name: what `traffic.source.format` calls it.
        title: what a person calls it.
        recognise: from the first non-blank lines to why this is the format, or None.
        parser: makes a line parser, given the tokens per hash id.
    """

    name: str
    title: str
    recognise: Callable[[list[bytes]], str | None]
    parser: Callable[[int], LineParser]


# More formats go here, one file each.
FORMATS: dict[str, Format] = {
    each.name: each
    for each in (
        Format("mooncake", "Mooncake JSON lines", mooncake.recognise, mooncake.Parser),
        Format("azure", "Azure LLM inference CSV", azure.recognise, azure.Parser),
    )
}


def detect(path: Path) -> tuple[Format, str]:
    """The format of a file, and why.

    Raises:
        TraceError: no such file, an empty one, or one that no format (or more than one) recognises.
    """
    lines = head(path)
    if not lines:
        raise TraceError(f"{path}: the trace is empty")
    found = [(each, why) for each in FORMATS.values() if (why := each.recognise(lines))]
    if len(found) == 1:
        return found[0]
    names = ", ".join(FORMATS)
    if found:
        guesses = "; ".join(f"{each.name}: {why}" for each, why in found)
        raise TraceError(f"{path}: could be of several formats ({guesses}); say which with format: {names}")
    first = raw_text(lines[0])
    shown = first if len(first) <= 120 else first[:117] + "..."
    raise TraceError(
        f"{path}: the format is not recognised; the first line is {shown!r}. "
        f"If it is one of {names}, say so with traffic.source.format"
    )
