"""Per-request logs of a vLLM server or benchmark, JSON lines: lengths and the times at which things happened.

`arrival_time` is on the wall clock (seconds since 1970); `queued_ts` and what follows it are on a clock of the engine's
own that drifts against it, so they are never mixed: arrivals come from `arrival_time`, or from `queued_ts` in logs that
have no other. What the server answered (`first_token_ts`, ...) is no input and is left alone. No prefixes.
"""

from __future__ import annotations

from assets.ingest.fields import BadRow, name, prompt_tokens, tokens
from assets.ingest.json_text import json_object, objects
from assets.ingest.parser import Format, Options, Parser
from assets.ingest.rows import Row
from assets.ingest.times import UNITS, span_ns

CLOCKS = ("arrival_time", "queued_ts")
PROMPT, OUTPUT, ID = "input_toks", "output_toks", "request_id"


def recognise(lines: list[bytes]) -> str | None:
    """Why these lines are a vLLM log, or None."""
    if any({PROMPT, OUTPUT} <= row.keys() for row in objects(lines)):
        return f"JSON lines with {PROMPT} and {OUTPUT}"
    return None


class Reader(Parser):
    """Reads one file's lines."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._clock: str | None = None

    def row(self, line: bytes) -> Row:
        row = json_object(line)
        if self._clock is None:
            self._clock = next((each for each in CLOCKS if row.get(each) is not None), None)
        clock = self._clock or CLOCKS[0]
        if row.get(clock) is None:
            raise BadRow("missing_field", clock)
        return Row(
            span_ns(row[clock], clock, UNITS["s"]),
            prompt_tokens(tokens(row.get(PROMPT), PROMPT), PROMPT),
            tokens(row.get(OUTPUT), OUTPUT),
            external_id=None if row.get(ID) is None else name(row[ID], ID),
        )

    def notes(self) -> dict[str, object]:
        return {"clock": self._clock}


FORMAT = Format("vllm_log", "vLLM per-request log", recognise, Reader)
