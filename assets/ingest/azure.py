"""Azure LLM inference traces (Azure/AzurePublicDataset, 2023 and 2024): CSV, prompt and output lengths only.

Wall-clock times with up to nine fractional digits, without a zone (then UTC) or with one. No prefixes, no sessions.
"""

from __future__ import annotations

from assets.ingest.csv_text import CsvParser, Plain, has_columns
from assets.ingest.fields import prompt_tokens, tokens_in_text
from assets.ingest.parser import Format
from assets.ingest.rows import Row
from assets.ingest.times import wall_clock_ns

TIME, PROMPT, OUTPUT = "TIMESTAMP", "ContextTokens", "GeneratedTokens"


def recognise(lines: list[bytes]) -> str | None:
    """Why these lines are an Azure trace, or None."""
    return has_columns(lines, (TIME, PROMPT, OUTPUT))


class Reader(CsvParser):
    """Reads one file's lines."""

    required = (TIME, PROMPT, OUTPUT)

    def plain(self, lines: list[bytes]) -> Plain | None:
        used = {"arrival": (TIME, "clock"), "prompt": (PROMPT, "count"), "output": (OUTPUT, "count")}
        return Plain(self.names or list(self.required), used)

    def row(self, line: bytes) -> Row:
        cells, at = self.cells(line), self.at
        return Row(
            wall_clock_ns(cells[at[TIME]], TIME),
            prompt_tokens(tokens_in_text(cells[at[PROMPT]], PROMPT), PROMPT),
            tokens_in_text(cells[at[OUTPUT]], OUTPUT),
        )


FORMAT = Format("azure", "Azure LLM inference CSV", recognise, Reader)
