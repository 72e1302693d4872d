"""What random worlds got to: executed lines, and named events that lines stand for."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import sim.reference
from sim.result import KIND_RESUMED, UNFINISHED
from tests.sim.answers import Answer
from tests.sim.worlds import World

# An event has happened when the line of `sim/reference.py` that holds this text has been executed; if that line asks
# something, when the answer was yes.
LINES = {
    "preemption": "self.preempt(victim, request, batch, now)",
    "eviction of a cached block": "gone, _ = self.cached.popitem(last=False)",
    "gated arrival [parity]": "if self.gated and request.gate > self.next_pass:",
    "gates that fall [parity]": "request.gate = min(request.gate, self.next_pass)",
    "throttled admission": "if throttled and rest > 1:",
    "throttled prefill": "if throttled and self.is_prefill(request):",
    "full hit that gives up its last block": "hit = hit[: (request.known - 1) // bs]",
    "no room for the head of the queue": "if reach - held_by_others + spare > self.pool.available:",
    "no budget for the head of the queue": "if tokens <= 0 and rest > 0:",
    "tokenless admission on a spent budget [parity]": "if spent_already:",
    "chunking off: a prompt waits": "spec.chunked_prefill and (rest if vllm else request.prompt - cached) > budget:",
    "refused on arrival: length": "return PROMPT_AT_LIMIT",
    "refused on arrival: pool": "return EXCEEDS_POOL",
    "rejected at the head: length [parity]": "self.reject(request, PROMPT_AT_LIMIT, batch)",
    "rejected at the head: pool [parity]": "self.reject(request, EXCEEDS_POOL, batch)",
    "last token in flight: left alone": "request.computed + 2 - request.owed >= request.prompt + request.output:",
    "last token in flight: preempted": "self.waiting.remove(request)  # its last token was",
    "empty batch dropped": "self.queue.popleft()  # an empty batch",
    "second look at the inbox": "if batch.is_empty and not batch.preempted and self.read_inbox(now, True):",
    "padded admission [vllm]": "padding = spec.speculation.drafts",
    "padding that does not fit [vllm]": "if rest + padding > budget or cached + rest + padding > self.limit:",
    "nothing to compute below the length limit [vllm]": "if tokens <= 0:",
    "full hit that gives up one more block": "hit.pop()  # after the cut of a full hit",
    "a round without a trigger": "return 0  # nothing found",
    "drafts off above a batch": "request.drafts = 0  # too many run",
    "burst that does not fit [policy]": "self.preempt(victim, ready[0].request, batch, now, reserving=True)",
    "prefill of a victim of a burst [policy]": "item.samples = False  # computed, and paid",
    "head that was counted too well [parity]": "budget += self.take_back(victim, batch)  # asked",
    "admission that is taken back at once [parity]": "item.tokens, item.samples = 0, False",
    "request for no tokens leaves before bursts [policy]": "self.let_go(item.request)",
    "burst that never fits [policy]": "self.refuse(never[0].request, batch)",
    "computed for a request that had ended [vllm]": "continue  # computed for nothing",
    "stop time": "if spec.stop_ns is not None and upcoming > spec.stop_ns:",
    "deadlock": "raise Deadlock(",
}


def _chunked(world: World, answer: Answer) -> bool:
    chunks, prompt = answer.tables["chunks"], world.load.prompt_tokens
    return bool((chunks["computed_before"] + chunks["n_tokens"] < prompt[chunks["request"]]).any())


def _sat_out(world: World, answer: Answer) -> bool:
    table = answer.tables["requests"]
    return bool((table["n_spans"] > table["n_preemptions"] + 1).any())


def _cut_at_the_limit(world: World, answer: Answer) -> bool:
    table = answer.tables["requests"]
    return bool(((table["status"] == 0) & (table["output_tokens"] < table["requested_tokens"])).any())


def _group_pass(world: World, answer: Answer) -> bool:
    table = answer.tables["passes"]
    together = list(zip(table["worker"].tolist(), table["group_pass_no"].tolist()))
    return len(set(together)) < len(together)


def _own_answer_hit(world: World, answer: Answer) -> bool:
    table, prompt = answer.tables["admissions"], world.load.prompt_tokens
    return bool(((table["kind"] == KIND_RESUMED) & (table["cached_tokens"] > prompt[table["request"]])).any())


def _fifo_skip(world: World, answer: Answer) -> bool:
    table = answer.tables["pressure"]
    skips = (table["asker"] != table["request"]) & (table["n_running"] > 1)
    return world.spec.preemption == "fifo" and bool(skips.any())


def _whole_hit(world: World, answer: Answer) -> bool:
    chunks = answer.tables["chunks"]
    return bool(((chunks["n_tokens"] == 0) & (world.load.output_tokens[chunks["request"]] > 0)).any())


def _unfinished(world: World, answer: Answer) -> bool:
    table = answer.tables["requests"]
    return bool(((table["status"] == UNFINISHED) & (table["output_tokens"] > 0)).any())


def _fewer_drafts(world: World, answer: Answer) -> bool:
    """Cut by the budget or the length limit, where nothing else takes drafts away."""
    spec, bursts = world.spec, answer.tables["bursts"]
    speculation = spec.speculation
    if speculation is None or speculation.max_batch is not None or speculation.trigger_rate < 1:
        return False
    return any(0 < drafts >> 4 * i & 15 < speculation.drafts for drafts in bursts["drafts_packed"] for i in range(16))


def _cut_burst(world: World, answer: Answer) -> bool:
    """The end of an output cuts off what was accepted."""
    table = answer.tables["passes"]
    return bool((table["n_accepted"] + table["n_bursts"] > table["n_tokens"]).any())


# What the tables of an answer show.
SHOWN: dict[str, Callable[[World, Answer], bool]] = {
    "chunked prefill": _chunked,
    "decode that sits a pass out": _sat_out,
    "output cut at the length limit": _cut_at_the_limit,
    "ranks of a group in one pass": _group_pass,
    "hit on own answer after a preemption": _own_answer_hit,
    "first-in victim ahead: the next is skipped": _fifo_skip,
    "full hit that stays whole [trtllm]": _whole_hit,
    "stopped in the middle of an answer": _unfinished,
    "drafts cut short [vllm]": _fewer_drafts,
    "burst cut at the end of an output": _cut_burst,
    "bursts of different sizes": lambda world, answer: len(set(answer.tables["acceptance"]["accepted_1"])) > 2,
    "preempted while it drafts": lambda world, answer: bool(
        world.spec.speculation and len(answer.tables["pressure"]["request"])
    ),
    "drafts with two batches in flight": lambda world, answer: (
        world.spec.native_drafts and world.spec.async_scheduling and bool(answer.tables["passes"]["n_drafts"].any())
    ),
    "thrown out [trtllm, max_utilization]": lambda world, answer: (
        world.spec.profile == "trtllm" and len(answer.tables["pressure"]["request"]) > 0
    ),
    "drafts of TensorRT-LLM": lambda world, answer: (
        world.spec.profile == "trtllm" and bool(answer.tables["passes"]["n_drafts"].any())
    ),
    "request without tokens": lambda world, answer: bool((world.load.output_tokens == 0).any()),
    "extrapolated price": lambda world, answer: bool(answer.tables["evidence"]["extrapolated"].any()),
    "replicas": lambda world, answer: len(set(answer.tables["passes"]["worker"].tolist())) > 1,
    "sessions": lambda world, answer: world.load.session is not None and world.load.concurrency is None,
    "sessions in a closed loop": lambda world, answer: world.load.session is not None and bool(world.load.concurrency),
    "two batches in flight": lambda world, answer: world.spec.profile == "vllm" and world.spec.async_scheduling,
}


class Lines:
    """Records which lines of some files are executed inside a `with` block."""

    def __init__(self, files: Iterable[str | Path]) -> None:
        self.files = {str(f) for f in files}
        self.hit: set[tuple[str, int]] = set()

    def __enter__(self) -> Lines:
        self._before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _called(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        return self._executed if frame.f_code.co_filename in self.files else None

    def _executed(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
        if event == "line":
            self.hit.add((frame.f_code.co_filename, frame.f_lineno))
        return self._executed

    def missed(self, but: Collection[tuple[str, int]] = ()) -> list[str]:
        """Lines of functions that were never executed, as file:line text."""
        found = []
        for file in sorted(self.files):
            text = Path(file).read_text().splitlines()
            for line in sorted(_lines_of_functions(compile("\n".join(text), file, "exec"))):
                if (file, line) not in self.hit and (file, line) not in but:
                    found.append(f"{Path(file).name}:{line}: {text[line - 1].strip()}")
        return found


def _lines_of_functions(code: CodeType, *, inside: bool = False) -> set[int]:
    found = {line for _, line in dis.findlinestarts(code) if line} if inside else set()
    if inside:
        found.discard(code.co_firstlineno)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            # A class body runs when its file is read; its methods are functions.
            is_function = bool(constant.co_flags & 0x2)  # CO_NEWLOCALS
            found |= _lines_of_functions(constant, inside=is_function)
    return found


def lines_that_say(wanted: str, file: str) -> set[tuple[str, int]]:
    """The lines of a file that hold a text; of a question, the line that follows if the answer is yes."""
    text = Path(file).read_text().splitlines()
    found = {(file, i + line.endswith(":")) for i, line in enumerate(text, start=1) if wanted in line}
    assert found, f"no line of {file} holds {wanted!r} any more: tell {__file__}"
    return found


def events() -> dict[str, tuple[str, int]]:
    """The line of `sim/reference.py` that stands for each event."""
    places = {}
    for event, wanted in LINES.items():
        (places[event],) = lines_that_say(wanted, sim.reference.__file__)
    return places
