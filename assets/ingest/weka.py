"""Weka agent sessions (callanjfox/kv-cache-tester): a JSON document per session; a file, lines, or a folder of files.

Times in seconds from the session's start, ids of whole blocks only (the last, partly filled block has none and is
nobody else's), ids local to their document. No call starts before its recorded time in the session. Calls that follow
one another are turns: each waits for the one before and then, if it goes on from its prompt, as long as the recorded
pause. Where calls overlap, go on from an earlier one, or launch subagents, they wait for what had ended when they were
made: `weka_graph`. Times of nested calls count from their subagent's start in some files and from the session's start
in others; a nested time before its subagent's own can only be the former.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from assets.ingest.fields import BadRow, prompt_tokens, tokens
from assets.ingest.json_text import hash_ids, json_object
from assets.ingest.parser import Format, Options, Parser
from assets.ingest.rows import Row
from assets.ingest.times import UNITS, span_ns
from assets.ingest.weka_graph import Agent, Call, Launch, calls_that_wait, is_chain, overlaps, turns

S, MS = UNITS["s"], UNITS["ms"]
CALLS, SUBAGENT = ("n", "s"), "subagent"
MOST_TOKENS = 10_000_000
MOST_NESTED = 50
REPLAY = (
    "calls wait for the ones they followed and the recorded pauses, and for their recorded time in the session: an "
    "engine that is faster than the recorded one meets the same calls, later ones of a slower engine move"
)


def recognise(lines: list[bytes]) -> str | None:
    """Why these lines are a Weka session, or None. The first line may be all that was read of a long one."""
    start = b"\n".join(lines[:200])
    if all(each in start for each in (b'"requests"', b'"block_size"', b'"hash_ids"', b'"in"', b'"out"')):
        return "a JSON document with block_size and requests with in, out and hash_ids"
    return None


class _Session(NamedTuple):
    ordinal: int
    number: int
    agent: Agent


class Reader(Parser):
    """Reads the documents of one source."""

    whole = True

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._block: int | None = options.asserted_block
        self._sessions: list[_Session] = []
        self._names: set[str] = set()
        self._found: Counter[tuple[str, str]] = Counter()
        self._fresh: Counter[tuple[str, str]] = Counter()  # in the document at hand, which may turn out to be bad

    @property
    def block_tokens(self) -> int:
        """The documents say it."""
        return self._block or self.options.block_tokens

    def take(self, ordinal: int, number: int, line: bytes) -> int:
        document = json_object(line)
        self._fresh = Counter()
        name = document.get("id")
        if type(name) is not str or not name:
            raise BadRow("missing_field" if name is None else "wrong_type", "id", name)
        if name in self._names:
            raise BadRow("duplicate_id", "id", name)
        if document.get("hash_id_scope", "local") != "local":
            raise BadRow("unknown_schema", "hash_id_scope", document["hash_id_scope"])
        block = prompt_tokens(tokens(document.get("block_size"), "block_size"), "block_size")
        if self._block not in (None, block):
            raise BadRow("conflicting_fields", "block_size", f"{block} where others have {self._block}")
        agent = self._agent(document.get("requests"), "requests", 0, len(self._sessions), block)
        calls = agent.all_calls()
        if not calls:
            raise BadRow("missing_field", "requests")
        self._block = block
        self._names.add(name)
        self._found += self._fresh
        for i, each in enumerate(calls):
            each.ordinal, each.row = ordinal + i, each.row._replace(session=name)
        self._sessions.append(_Session(ordinal, number, agent))
        return len(calls)

    def _agent(self, entries: Any, at: str, base_ns: int, session: int, block: int) -> Agent:
        if type(entries) is not list:
            raise BadRow("missing_field" if entries is None else "wrong_type", at)
        if at.count(".requests") > MOST_NESTED:
            raise BadRow("out_of_range", at.removeprefix("requests")[:60], "subagents of subagents without end")
        agent = Agent([], [])
        for i, entry in enumerate(entries):
            field = f"{at}[{i}]"
            if type(entry) is not dict:
                raise BadRow("wrong_type", field, entry)
            start_ns = base_ns + span_ns(entry.get("t"), f"{field}.t", S)
            if entry.get("type") == SUBAGENT:
                self._fresh["subagents", ""] += 1
                inner, blocks = entry.get("requests"), entry.get("status") != "async_launched"
                if not inner and blocks:
                    raise BadRow("missing_field", f"{field}.requests")
                inner_base_ns = start_ns if self._basis(entry, inner) == "relative" else base_ns
                took = entry.get("duration_ms")
                end_ns = start_ns if took is None else start_ns + span_ns(took, f"{field}.duration_ms", MS)
                found = self._agent(inner or [], f"{field}.requests", inner_base_ns, session, block)
                agent.launched.append(Launch(len(agent.calls), end_ns, blocks, found))
            elif entry.get("type") in CALLS:
                agent.calls.append(self._call(entry, field, start_ns, session, block))
            else:
                raise BadRow("unknown_schema", f"{field}.type", entry.get("type"))
        return agent

    def _basis(self, marker: dict[str, Any], inner: Any) -> str:
        """What nested times count from: told, or relative if one of them lies before the marker."""
        basis = self.options.nested_basis
        if basis == "auto":
            times = [each.get("t") for each in inner or [] if type(each) is dict]
            early = any(type(t) in (int, float) and t < marker["t"] for t in times)
            basis = "relative" if early else "absolute"
        self._fresh["basis", basis] += 1
        return basis

    def _call(self, entry: dict[str, Any], field: str, start_ns: int, session: int, block: int) -> Call:
        prompt = prompt_tokens(tokens(entry.get("in"), f"{field}.in"), f"{field}.in")
        if prompt > MOST_TOKENS:
            raise BadRow("out_of_range", f"{field}.in", prompt)
        output = tokens(entry.get("out"), f"{field}.out")
        ids = hash_ids(entry.get("hash_ids") or [], f"{field}.hash_ids")
        self._fresh["rows_with_surplus_hash_ids", ""] += len(ids) > -(-prompt // block)
        ids = ids[: prompt // block]
        if session:
            # Equal ids of two documents are not the same text.
            if any(not 0 <= each < 2**40 for each in ids):
                raise BadRow("out_of_range", f"{field}.hash_ids", next(each for each in ids if not 0 <= each < 2**40))
            ids = array("q", [each + (session << 40) for each in ids])
        took = entry.get("api_time")
        self._fresh["calls_without_end", ""] += took is None
        end_ns = None if took is None else start_ns + span_ns(took, f"{field}.api_time", S)
        model = str(entry.get("model"))
        self._fresh["model", model] += 1
        text = json.dumps({k: v for k, v in entry.items() if k != "hash_ids"}).encode()
        return Call(start_ns, end_ns, model, Row(start_ns, prompt, output, ids), text)

    def finish(self) -> Iterator[tuple[int, int, bytes, Row | BadRow]]:
        for session in self._sessions:
            self._found["overlapping_calls", ""] += overlaps(session.agent)
        # One file, one kind of session: turns that follow one another, or calls that wait for one another.
        graph = not all(is_chain(session.agent) for session in self._sessions)
        for session in self._sessions:
            for call, row in calls_that_wait(session.agent) if graph else turns(session.agent):
                yield call.ordinal, session.number, call.text, row

    def notes(self) -> dict[str, Any]:
        bases, models = self._values("basis"), self._values("model")
        return {
            "replay": REPLAY,
            "sessions": len(self._sessions),
            "nested_timestamp_basis": ", ".join(bases) or "not_applicable",
            "models": models,
            **{
                name: self._count(name)
                for name in ("subagents", "overlapping_calls", "calls_without_end", "rows_with_surplus_hash_ids")
            },
        }

    def _count(self, name: str) -> int:
        return self._found[name, ""]

    def _values(self, name: str) -> dict[str, int]:
        return {value: count for (kind, value), count in sorted(self._found.items()) if kind == name}


FORMAT = Format("weka", "Weka agent sessions", recognise, Reader, block_tokens=64, layout="documents")
