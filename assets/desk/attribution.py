"""Where a change of TTFT and of E2E comes from, in whole nanoseconds that add up to the change exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from assets.desk.pair import Pair, Recorded

# Parts of a request's time, in the order it passes through them; columns of view `request_phases`.
HANDOVER = {
    "destination": "destination_ns",
    "transfer": "transfer_ns",
    "decode admission": "ready_ns",
    "first decode pass": "first_decode_ns",
}
_START = {"queueing": "queue_ns", "prefill": "prefill_ns", **HANDOVER}
PARTS = {
    "ttft": {**_START, "preemption": "preempted_first_ns"},
    "e2e": {**_START, "pass time": "decode_ns", "preemption": "preempted_ns"},
}
ONE_SIDED = "requests on one side only"


@dataclass(frozen=True, slots=True)
class Attribution:
    """The change of a latency, summed over all completed requests that made a token.

    Attributes:
        latency: "ttft" or "e2e".
        n_common: requests that have it on both sides.
        n_base: on the base's side; its sum is `base_ns`.
        parts: name -> (sum over common requests in base, in head), ns. Those of HANDOVER only where prompts were
            handed over on either side.
        only_base_ns: sum over requests that have it in base only; with `only_head_ns` the last term.
    """

    latency: str
    n_common: int
    n_base: int
    n_head: int
    base_ns: int
    head_ns: int
    parts: dict[str, tuple[int, int]]
    only_base_ns: int
    only_head_ns: int

    @property
    def change_ns(self) -> int:
        return self.head_ns - self.base_ns

    @property
    def terms(self) -> dict[str, int]:
        """Name -> share of the change, ns. They add up to `change_ns`."""
        terms = {name: head - base for name, (base, head) in self.parts.items()}
        return terms | {ONE_SIDED: self.only_head_ns - self.only_base_ns}


def attribute(pair: Pair) -> list[Attribution]:
    """TTFT and E2E."""
    sums = []
    for latency, parts in PARTS.items():
        for alias, side in (("b", pair.base), ("h", pair.head)):
            name = "base" if alias == "b" else "head"
            for part, column in parts.items():
                # Where TTFT ends with the prefill, what comes after is no part of it.
                counts = part not in HANDOVER or latency != "ttft" or _holds_handover(side)
                value = f"{alias}.{column}" if counts else "0"
                sums.append(f"sum({value}) FILTER (common) AS {name}_{latency}_{column}")
    query = f"""
        WITH joined AS (
            SELECT b, h, b.request_id IS NOT NULL AND h.request_id IS NOT NULL AS common
            FROM base.request_phases b FULL JOIN head.request_phases h USING (request_id)
        )
        SELECT count(*) FILTER (common) AS n_common, count(b.request_id) AS n_base, count(h.request_id) AS n_head,
               sum(b.ttft_ns) AS base_ttft, sum(h.ttft_ns) AS head_ttft,
               sum(b.e2e_ns) AS base_e2e, sum(h.e2e_ns) AS head_e2e,
               sum(b.ttft_ns) FILTER (NOT common) AS only_base_ttft,
               sum(h.ttft_ns) FILTER (NOT common) AS only_head_ttft,
               sum(b.e2e_ns) FILTER (NOT common) AS only_base_e2e,
               sum(h.e2e_ns) FILTER (NOT common) AS only_head_e2e,
               {", ".join(sums)}
        FROM joined
    """
    row = pair.row(query)
    return [_attribution(latency, parts_of(latency, pair), row) for latency in PARTS]


def parts_of(latency: str, pair: Pair) -> dict[str, str]:
    """Name -> column of view `request_phases`, of the parts that these runs have."""
    sides = (pair.base, pair.head)
    between = pair.hands_over and (latency != "ttft" or any(_holds_handover(side) for side in sides))
    return {n: c for n, c in PARTS[latency].items() if between or n not in HANDOVER}


def _holds_handover(side: Recorded) -> bool:
    """Whether the TTFT of this run counts to a decode worker's token."""
    return side.run.get("ttft_ends") != "prefill"


def _attribution(latency: str, parts: dict[str, str], row: dict[str, Any]) -> Attribution:
    def ns(name: str) -> int:
        return int(row[name] or 0)

    return Attribution(
        latency=latency,
        n_common=row["n_common"],
        n_base=row["n_base"],
        n_head=row["n_head"],
        base_ns=ns(f"base_{latency}"),
        head_ns=ns(f"head_{latency}"),
        parts={n: (ns(f"base_{latency}_{c}"), ns(f"head_{latency}_{c}")) for n, c in parts.items()},
        only_base_ns=ns(f"only_base_{latency}"),
        only_head_ns=ns(f"only_head_{latency}"),
    )
