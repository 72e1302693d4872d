"""Qwen-Bailian JSON lines (alibaba-edu/qwen-bailian-usagetraces-anon): Mooncake's look, other units.

Times in seconds, ids of 16-token blocks. Chats form trees: `parent_chat_id` names the turn before, -1 a root. The
first row that follows a parent continues its session and waits for it; another row after the same parent (an answer
asked for again) starts at its own time, as a session of its own, and so does one whose parent is not in the file.
Both are counted.
"""

from __future__ import annotations

from typing import Any

from assets.ingest.fields import BadRow, name, prompt_tokens, tokens
from assets.ingest.json_text import enough_ids, hash_ids, json_object, objects
from assets.ingest.parser import Format, Options, Parser
from assets.ingest.rows import Row
from assets.ingest.times import UNITS, span_ns


def recognise(lines: list[bytes]) -> str | None:
    """Why these lines are a Bailian trace, or None."""
    if any({"chat_id", "parent_chat_id", "hash_ids"} <= row.keys() for row in objects(lines)):
        return "JSON lines with chat_id, parent_chat_id and hash_ids"
    return None


class Reader(Parser):
    """Reads one file's lines."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._session: dict[str, str] = {}  # of every chat that nobody has continued yet
        self._chats: set[str] = set()
        self._types: dict[str, int] = {}
        self._branches = self._orphans = self._surplus = 0

    def row(self, line: bytes) -> Row:
        row = json_object(line)
        chat, parent = (_chat(row.get(each), each) for each in ("chat_id", "parent_chat_id"))
        if chat in self._chats:
            raise BadRow("duplicate_id", "chat_id", chat)
        prompt = prompt_tokens(tokens(row.get("input_length"), "input_length"), "input_length")
        output = tokens(row.get("output_length"), "output_length")
        ids = hash_ids(row.get("hash_ids"), "hash_ids", line)
        needed = enough_ids(ids, prompt, self.options.block_tokens, "hash_ids")
        arrival_ns = span_ns(row.get("timestamp"), "timestamp", UNITS["s"])
        self._surplus += len(ids) > needed
        session = self._session.pop(parent, None) if parent != "-1" else None
        if session is None:
            session = chat
            if parent != "-1":
                self._branches += parent in self._chats
                self._orphans += parent not in self._chats
        self._session[chat] = session
        self._chats.add(chat)
        kind = str(row.get("type"))
        self._types[kind] = self._types.get(kind, 0) + 1
        return Row(arrival_ns, prompt, output, ids[:needed], session, None, chat)

    def notes(self) -> dict[str, Any]:
        return {
            "rows_with_surplus_hash_ids": self._surplus,
            "second_answers_to_one_turn": self._branches,
            "turns_whose_parent_is_not_in_the_file": self._orphans,
            "types": dict(sorted(self._types.items())),
        }


def _chat(value: Any, field: str) -> str:
    if value is None:
        raise BadRow("missing_field", field)
    return name(value, field)


FORMAT = Format("qwen_bailian", "Qwen-Bailian JSON lines", recognise, Reader, block_tokens=16)
