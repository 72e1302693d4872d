"""Applied Compute agentic JSON lines: a line is one conversation of an agent with its tools.

`num_turns` answers, each followed by a tool's output (after `tool_call_latency` seconds), then a final answer:
num_turns + 1 requests, each with everything before it in its prompt. There are no arrivals: the load has to make
them, usually a closed loop. A later prompt finds the prompt before it in the cache; the answer between them is sent
anew as text, and the recorded engine does not find it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from assets.ingest.fields import MAX_TOKENS, BadRow, prompt_tokens, tokens
from assets.ingest.json_text import json_object, objects
from assets.ingest.parser import Format, Options, Parser
from assets.ingest.rows import Row
from assets.ingest.times import UNITS, span_ns

PROMPT, TURNS, FINAL = "input_prompt_length", "num_turns", "final_assistant_response_length"
ANSWERS, TOOLS, LATENCY = "assistant_response_length", "tool_call_output_length", "tool_call_latency"


def recognise(lines: list[bytes]) -> str | None:
    """Why these lines are Applied Compute conversations, or None."""
    if any({TURNS, PROMPT} <= row.keys() for row in objects(lines)):
        return f"JSON lines with {TURNS} and {PROMPT}"
    return None


class Reader(Parser):
    """Reads one file's lines."""

    timed = False

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._conversations = 0

    @property
    def block_tokens(self) -> int:
        """The ids are made here, so their size is free."""
        return self.options.cut_tokens or self.options.block_tokens

    def rows(self, line: bytes) -> Sequence[Row]:
        row = json_object(line)
        turns = tokens(row.get(TURNS), TURNS)
        answers, tools, waits = (_list(row, each, turns) for each in (ANSWERS, TOOLS, LATENCY))
        prompt = prompt_tokens(tokens(row.get(PROMPT), PROMPT), PROMPT)
        prompts, outputs, delays = [prompt], [], [0]
        for answer, tool, wait in zip(answers, tools, waits):
            outputs.append(tokens(answer, ANSWERS))
            prompts.append(prompts[-1] + outputs[-1] + tokens(tool, TOOLS))
            delays.append(span_ns(wait, LATENCY, UNITS["s"]))
        outputs.append(tokens(row.get(FINAL), FINAL))
        if prompts[-1] > MAX_TOKENS:
            raise BadRow("out_of_range", PROMPT, prompts[-1])
        self._conversations += 1
        session, first = f"conversation-{self._conversations}", self._conversations << 32
        return [
            Row(
                None,
                length,
                output,
                array("q", range(first, first - (-length // self.block_tokens))),
                session,
                delay,
            )
            for length, output, delay in zip(prompts, outputs, delays)
        ]

    def notes(self) -> dict[str, Any]:
        return {"conversations": self._conversations}


def _list(row: dict[str, Any], field: str, length: int) -> list[Any]:
    found = row.get(field)
    if type(found) is not list:
        raise BadRow("missing_field" if found is None else "wrong_type", field, found)
    if len(found) != length:
        raise BadRow("too_few_turns", field, f"{len(found)} values for {length} turns")
    return found


FORMAT = Format("applied_compute_agentic", "Applied Compute agentic JSON lines", recognise, Reader)
