"""SplitwiseSim CSV (Mutinifni/splitwise-sim, traces): arrivals in seconds, lengths, the request's name."""

from __future__ import annotations

from assets.ingest.csv_text import CsvParser, has_columns
from assets.ingest.fields import name, prompt_tokens, tokens_in_text
from assets.ingest.parser import Format
from assets.ingest.rows import Row
from assets.ingest.times import UNITS, span_in_text_ns

ID, TIME, PROMPT, OUTPUT = "request_id", "arrival_timestamp", "prompt_size", "token_size"


def recognise(lines: list[bytes]) -> str | None:
    """Why these lines are a SplitwiseSim trace, or None."""
    return has_columns(lines, (TIME, PROMPT, OUTPUT))


class Reader(CsvParser):
    """Reads one file's lines."""

    required = (ID, TIME, PROMPT, OUTPUT)

    def row(self, line: bytes) -> Row:
        cells, at = self.cells(line), self.at
        return Row(
            span_in_text_ns(cells[at[TIME]], TIME, UNITS["s"]),
            prompt_tokens(tokens_in_text(cells[at[PROMPT]], PROMPT), PROMPT),
            tokens_in_text(cells[at[OUTPUT]], OUTPUT),
            external_id=name(cells[at[ID]], ID),
        )


FORMAT = Format("splitwise", "SplitwiseSim CSV", recognise, Reader)
