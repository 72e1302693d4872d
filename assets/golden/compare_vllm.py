"""A replay against what vLLM's own scheduler decided, pass by pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from assets.golden import rebuild
from assets.golden.run import Replayed

BLOCKS = ("active_blocks", "free_blocks", "inactive_cached_blocks")
# With two batches in flight the parity profile chooses at another instant and therefore sees other blocks and queues
# (rule A1): what it computes is compared, what it saw is not.
CHOICE = ("committed", "running", "waiting", *BLOCKS)


def differences(case: Mapping[str, Any], names: tuple[str, ...], replayed: Replayed) -> Iterator[str]:
    """Every place where the replay departs from `expected`, one line each, in pass order."""
    expected = case["expected"]
    skipped = CHOICE if replayed.spec.profile == "parity" and replayed.spec.sides[0].async_scheduling else ()
    got = _passes(names, replayed)
    if len(got) != len(expected["passes"]):
        yield f"passes: expected {len(expected['passes'])}, got {len(got)}"
    for want, have in zip(expected["passes"], got, strict=False):
        for column, value in want.items():
            if column not in skipped and have[column] != value:
                yield f"pass {want['pass']}, {column}: expected {_short(value)}, got {_short(have[column])}"
    rows = _requests(names, replayed)
    for want in expected["requests"]:
        have = rows[want["id"]]
        for column, value in want.items():
            if have[column] != value:
                yield f"request {want['id']}, {column}: expected {_short(value)}, got {_short(have[column])}"


def _passes(names: tuple[str, ...], replayed: Replayed) -> list[dict[str, Any]]:
    """The passes of rank 0 in the words of a case file."""
    listed = []
    two = replayed.spec.profile == "vllm" and replayed.spec.sides[0].async_scheduling
    for pass_ in rebuild.passes(replayed.tables, in_flight=2 if two else 1):
        row, requests = pass_.row, []
        for s in pass_.requests:
            entry = {"id": names[s.request], "tokens": s.tokens, "computed_before": s.computed_before, "kind": s.kind}
            if s.drafts:
                entry["drafts"] = s.drafts
            if s.cached >= 0:
                entry["cached_tokens"] = s.cached
            requests.append(entry)
        listed.append(
            {
                "pass": row["pass_no"],
                "committed": row["chosen_ns"] / 1e6,
                "start": row["start_ns"] / 1e6,
                "end": row["end_ns"] / 1e6,
                "requests": requests,
                "preempted": [names[victim] for victim in pass_.preempted],
                "prefill_requests": sum(s.prompt_tokens > 0 for s in pass_.requests),
                "prefill_tokens": sum(s.prompt_tokens for s in pass_.requests),
                "decode_requests": sum(s.prompt_tokens == 0 for s in pass_.requests),
                "running": row["n_running"],
                "waiting": row["n_waiting"] + row["n_waiting_preempted"],
                "active_blocks": row["active_blocks"],
                # vLLM counts what it can hand out, cached blocks included.
                "free_blocks": row["free_blocks"] + row["cached_blocks"],
                "inactive_cached_blocks": row["cached_blocks"],
            }
        )
    return listed


def _requests(names: tuple[str, ...], replayed: Replayed) -> dict[str, dict[str, Any]]:
    table, times = replayed.tables["requests"], rebuild.token_times(replayed.tables)
    admissions = replayed.tables["admissions"]
    first = admissions["admission_no"] == 0
    passes = dict(zip(admissions["request"][first].tolist(), admissions["pass_no"][first].tolist(), strict=True))
    # The recorded count is over passes: a preemption after the last one is in none.
    victims = [victim for pass_ in rebuild.passes(replayed.tables) for victim in pass_.preempted]
    listed = {}
    for r, name in enumerate(names):
        row = {column: int(values[r]) for column, values in table.items()}
        listed[name] = {
            "id": name,
            "prompt_len": row["prompt_tokens"],
            "output_len": row["requested_tokens"],
            "arrival_ms": _ms(row["arrival_ns"]),
            "admit_pass": passes.get(r),
            "admitted_ms": _ms(row["admitted_ns"]),
            "cached_tokens": None if row["cached_tokens_first"] < 0 else row["cached_tokens_first"],
            "first_token_ms": _ms(row["first_token_ns"]),
            "last_token_ms": _ms(row["last_token_ns"]),
            "tokens": row["output_tokens"],
            "preemptions": victims.count(r),
            "token_ms": [t / 1e6 for t in times[r]],
        }
    return listed


def _ms(ns: int) -> float | None:
    return None if ns < 0 else ns / 1e6


def _short(value: Any) -> str:
    """Values as a reader wants them; a pass's requests one by one."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return " ".join(
            f"{q['id']}:{q['tokens']}@{q['computed_before']}"
            + (f"({q['kind']}, {q['cached_tokens']} cached)" if "cached_tokens" in q else "")
            for q in value
        )
    return repr(value)
