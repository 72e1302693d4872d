"""Vidur CSV (microsoft/vidur, data/processed_traces): arrivals in seconds, or none at all; lengths only.

Files without `arrived_at` hold lengths for a load of another kind.
"""

from __future__ import annotations

from assets.ingest.csv_text import CsvParser, Plain, has_columns
from assets.ingest.fields import BadRow, prompt_tokens, tokens_in_text
from assets.ingest.parser import Format
from assets.ingest.rows import Row
from assets.ingest.times import UNITS, span_in_text_ns

PROMPT, OUTPUT = "num_prefill_tokens", "num_decode_tokens"
TIME, TOTAL = "arrived_at", "num_total_tokens"


def recognise(lines: list[bytes]) -> str | None:
    """Why these lines are a Vidur trace, or None."""
    return has_columns(lines, (PROMPT, OUTPUT))


class Reader(CsvParser):
    """Reads one file's lines."""

    required, optional = (PROMPT, OUTPUT), (TIME, TOTAL)

    @property
    def timed(self) -> bool:
        """Some files hold lengths only."""
        return TIME in self.at

    def plain(self, lines: list[bytes]) -> Plain | None:
        used = {
            "arrival": (TIME, "s"),
            "prompt": (PROMPT, "count"),
            "output": (OUTPUT, "count"),
            "total": (TOTAL, "count"),
        }
        there = {ours: (column, kind) for ours, (column, kind) in used.items() if column in self.at}
        return Plain(self.names or list(self.required), there)

    def row(self, line: bytes) -> Row:
        cells, at = self.cells(line), self.at
        arrival_ns = span_in_text_ns(cells[at[TIME]], TIME, UNITS["s"]) if TIME in at else None
        prompt = prompt_tokens(tokens_in_text(cells[at[PROMPT]], PROMPT), PROMPT)
        output = tokens_in_text(cells[at[OUTPUT]], OUTPUT)
        if TOTAL in at and tokens_in_text(cells[at[TOTAL]], TOTAL) != prompt + output:
            raise BadRow("total_mismatch", TOTAL, cells[at[TOTAL]])
        return Row(arrival_ns, prompt, output)


FORMAT = Format("vidur", "Vidur CSV", recognise, Reader)
