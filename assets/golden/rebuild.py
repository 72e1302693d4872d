"""The stored tables hold spans and exceptions; this turns them back into a list of every pass with its requests."""

from __future__ import annotations

from dataclasses import dataclass, field

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


@dataclass
class Pass:
    """One pass of one rank: its row of the passes table, who ran in running order, who was preempted before it."""

    row: dict[str, int]
    requests: list[Scheduled] = field(default_factory=list)
    preempted: list[int] = field(default_factory=list)


def passes(tables: dict[str, Columns], worker: int = 0, dp_rank: int = 0) -> list[Pass]:
    """Every pass of one rank, in order.

    A request is in a pass because `chunks` says so, or because it made a token there: then it was a plain decode of one
    token, and had computed everything it knew but its newest token.
    """
    here = {
        name: _of_rank(tables[name], worker, dp_rank)
        for name in ("passes", "chunks", "spans", "admissions", "pressure")
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
        )
    prompts = tables["requests"]["prompt_tokens"]
    for span in _rows(here["spans"]):
        for i in range(span["n_tokens"]):
            request, number = span["request"], span["first_token_no"] + i
            plain = Scheduled(request, 1, int(prompts[request]) + number - 1, 0)
            scheduled[span["first_pass"] + i].setdefault(request, plain)
    orders = _running_orders(here["admissions"])
    for number, (pass_, present) in enumerate(zip(rebuilt, scheduled, strict=True)):
        pass_.requests = sorted(present.values(), key=lambda s: _order_at(orders[s.request], number))
    for victim in _rows(here["pressure"]):
        rebuilt[victim["pass_no"]].preempted.append(victim["request"])
    return rebuilt


def token_times(tables: dict[str, Columns]) -> list[list[int]]:
    """The time of every token of every request, ns."""
    ends: dict[tuple[int, int], np.ndarray] = {}
    times: list[list[int]] = [[] for _ in tables["requests"]["request"]]
    for span in _rows(tables["spans"]):
        rank = (span["worker"], span["dp_rank"])
        if rank not in ends:
            ends[rank] = _of_rank(tables["passes"], *rank)["end_ns"]
        first = span["first_pass"]
        times[span["request"]] += ends[rank][first : first + span["n_tokens"]].tolist()
    # A request's spans reach the table in the order they ended, which is the order of its tokens.
    return times


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
