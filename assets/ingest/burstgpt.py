"""BurstGPT CSV (HPMLL/BurstGPT): seconds from midnight of the first day, lengths, sessions in newer files.

Calls without response tokens failed where they were recorded. With `Elapsed time` (of the whole answer), a later turn's
think time runs from the end of the answer before it, otherwise from its start. No prefixes.
"""

from __future__ import annotations

from assets.ingest.csv_text import CsvParser, Plain, has_columns
from assets.ingest.fields import BadRow, prompt_tokens, tokens_in_text
from assets.ingest.parser import Format, Options
from assets.ingest.rows import Row
from assets.ingest.times import UNITS, span_in_text_ns

TIME, MODEL, PROMPT, OUTPUT = "Timestamp", "Model", "Request tokens", "Response tokens"
TOTAL, KIND, ELAPSED = "Total tokens", "Log Type", "Elapsed time"
SESSION = ("Session ID", "SessionID")


def recognise(lines: list[bytes]) -> str | None:
    """Why these lines are a BurstGPT trace, or None."""
    return has_columns(lines, (TIME, PROMPT, OUTPUT, TOTAL))


class Reader(CsvParser):
    """Reads one file's lines."""

    required, optional = (TIME, MODEL, PROMPT, OUTPUT, TOTAL, KIND), (*SESSION, ELAPSED)

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._ends: dict[str, int] = {}
        self._models: dict[str, int] = {}

    def plain(self, lines: list[bytes]) -> Plain | None:
        """Lines without a session: turns depend on those before."""
        names = self.names or list(self.required)
        used = {
            "arrival": (TIME, "s"),
            "model": (MODEL, "word"),
            "prompt": (PROMPT, "count"),
            "output": (OUTPUT, "count"),
            "total": (TOTAL, "count"),
            "elapsed": (ELAPSED, "number or nothing"),
            **{each: (each, "nothing") for each in SESSION},
        }
        there = {ours: (column, kind) for ours, (column, kind) in used.items() if column in names}
        return Plain(names, there, least_output=1)

    def saw(self, models: dict[str, int]) -> None:
        """Count models of lines that were not read here."""
        for model, n in models.items():
            self._models[model] = self._models.get(model, 0) + n

    def row(self, line: bytes) -> Row:
        cells = dict(zip(self.names or self.required, self.cells(line)))
        arrival_ns = span_in_text_ns(cells[TIME], TIME, UNITS["s"])
        prompt, output = tokens_in_text(cells[PROMPT], PROMPT), tokens_in_text(cells[OUTPUT], OUTPUT)
        if tokens_in_text(cells[TOTAL], TOTAL) != prompt + output:
            raise BadRow("total_mismatch", TOTAL, cells[TOTAL])
        if output == 0:
            raise BadRow("failed_at_source", OUTPUT, 0)
        prompt_tokens(prompt, PROMPT)
        session = next((cells[each] for each in SESSION if cells.get(each)), None)
        took = cells.get(ELAPSED)
        end_ns = arrival_ns + (span_in_text_ns(took, ELAPSED, UNITS["s"]) if took else 0)
        delay_ns = None
        if session is not None:
            if session in self._ends:
                # An answer may still have been under way: then the next turn follows it at once.
                delay_ns = max(0, arrival_ns - self._ends[session])
            self._ends[session] = end_ns
        self._models[cells[MODEL]] = self._models.get(cells[MODEL], 0) + 1
        return Row(arrival_ns, prompt, output, None, session, delay_ns)

    def notes(self) -> dict[str, object]:
        return {"models": dict(sorted(self._models.items())), **super().notes()}


FORMAT = Format("burstgpt", "BurstGPT CSV", recognise, Reader)
