"""The stored tables hold spans and exceptions; this turns them back into a list of every pass with its requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sim.result import KIND_NAMES, Columns

PLAIN = KIND_NAMES[2]


@dataclass
class Scheduled:
    """What one request computed in one pass. `cached` is -1 unless this pass admitted it."""

    request: int
    tokens: int
    computed_before: int
    prompt_tokens: int
    kind: str = PLAIN
    cached: int = -1
    drafts: int = 0  # of the tokens


@dataclass
class Pass:
    """One pass of one rank: its row of the passes table, who ran in running order, who was preempted before it."""

    row: dict[str, int]
    requests: list[Scheduled] = field(default_factory=list)
    preempted: list[int] = field(default_factory=list)


class Burst(NamedTuple):
    """Tokens that a request made in one pass; `token` is the place of the first among all its tokens."""

    pass_no: int
    request: int
    span: int
    token: int
    made: int
    drafts: int


def passes(tables: dict[str, Columns], worker: int = 0, dp_rank: int = 0, *, in_flight: int = 1) -> list[Pass]:
    """Every pass of one rank, in order.

    A request is in a pass because `chunks` says so, or because it made tokens there: then it was a plain decode of one
    token and its drafts, and had computed everything it knew but its newest token. With two batches `in_flight` the
    choice was made while the pass before ran, as if all drafts of that one were accepted.
    """
    here = {
        name: _of_rank(tables[name], worker, dp_rank)
        for name in ("passes", "chunks", "spans", "bursts", "admissions", "pressure")
    }
    rebuilt = [Pass(row) for row in _rows(here["passes"])]
    scheduled: list[dict[int, Scheduled]] = [{} for _ in rebuilt]
    for chunk in _rows(here["chunks"]):
        scheduled[chunk["pass_no"]][chunk["request"]] = Scheduled(
            chunk["request"],
            chunk["n_tokens"],
            chunk["computed_before"],
            chunk["prompt_tokens"],
            KIND_NAMES[chunk["kind"]],
            chunk["cached_tokens"],
            chunk["n_drafts"],
        )
    prompts = tables["requests"]["prompt_tokens"]
    before: dict[tuple[int, int, int], Burst] = {}  # by request, span and pass
    for burst in _bursts(here["spans"], here["bursts"]):
        request = burst.request
        before[request, burst.span, burst.pass_no] = burst
        last = before.get((request, burst.span, burst.pass_no - 1)) if in_flight > 1 else None
        known = int(prompts[request]) + burst.token
        computed = known - 1 if last is None else known - last.made + last.drafts
        plain = Scheduled(request, 1 + burst.drafts, computed, 0, drafts=burst.drafts)
        scheduled[burst.pass_no].setdefault(request, plain)
    orders = _running_orders(here["admissions"])
    for number, (pass_, present) in enumerate(zip(rebuilt, scheduled, strict=True)):
        pass_.requests = sorted(present.values(), key=lambda s: _order_at(orders[s.request], number))
    for victim in _rows(here["pressure"]):
        if victim["pass_no"] < len(rebuilt):  # else no pass followed the choice: what was in flight ended everybody
            rebuilt[victim["pass_no"]].preempted.append(victim["request"])
    return rebuilt


def token_times(tables: dict[str, Columns]) -> list[list[int]]:
    """The time of every token of every request, ns."""
    times: list[list[int]] = [[] for _ in tables["requests"]["request"]]
    # A request's spans reach the table in the order they ended, which is the order of its tokens.
    for (worker, dp_rank), spans, bursts in _by_rank(tables):
        ends = _of_rank(tables["passes"], worker, dp_rank)["end_ns"]
        for burst in _bursts(spans, bursts):
            times[burst.request] += [int(ends[burst.pass_no])] * burst.made
    return times


def _by_rank(tables: dict[str, Columns]) -> Iterator[tuple[tuple[int, int], Columns, Columns]]:
    spans, bursts = tables["spans"], tables["bursts"]
    for rank in sorted(set(zip(spans["worker"].tolist(), spans["dp_rank"].tolist(), strict=True))):
        yield rank, _of_rank(spans, *rank), _of_rank(bursts, *rank)


def _bursts(spans: Columns, bursts: Columns) -> Iterator[Burst]:
    """What the spans of a rank hold, pass by pass; a request's bursts in order."""
    if not len(bursts["request"]):
        for span in _rows(spans):
            for i in range(span["n_tokens"]):
                yield Burst(span["first_pass"] + i, span["request"], span["span_no"], span["first_token_no"] + i, 1, 0)
        return
    order = np.lexsort([bursts["first_pass"], bursts["request"]])
    for row in _rows({name: column[order] for name, column in bursts.items()}):
        token = row["first_token_no"]
        for i in range(row["n_passes"]):
            made, drafts = row["tokens_packed"] >> 4 * i & 15, row["drafts_packed"] >> 4 * i & 15
            yield Burst(row["first_pass"] + i, row["request"], row["span_no"], token, made, drafts)
            token += made


def _running_orders(admissions: Columns) -> dict[int, list[tuple[int, int]]]:
    orders: dict[int, list[tuple[int, int]]] = {}
    for row in _rows(admissions):
        orders.setdefault(row["request"], []).append((row["pass_no"], row["order_no"]))
    return orders


def _order_at(admissions: list[tuple[int, int]], pass_no: int) -> int:
    """Place in the running order: given by the latest admission up to this pass."""
    return max(order for admitted, order in admissions if admitted <= pass_no)


def _of_rank(table: Columns, worker: int, dp_rank: int) -> Columns:
    mask = (table["worker"] == worker) & (table["dp_rank"] == dp_rank)
    chosen = {name: column[mask] for name, column in table.items()}
    if "end_ns" in chosen and "pass_no" in chosen:  # passes, by number whatever order they were written in
        order = np.argsort(chosen["pass_no"], kind="stable")
        chosen = {name: column[order] for name, column in chosen.items()}
    return chosen


def _rows(table: Columns) -> list[dict[str, int]]:
    names = list(table)
    return [dict(zip(names, values, strict=True)) for values in zip(*(table[n].tolist() for n in names), strict=True)]
