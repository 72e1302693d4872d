"""The diff of two runs: identity first, then inputs, the first divergent pass, and what it amounts to."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from assets.desk.attribution import Attribution, attribute
from assets.desk.divergence import FirstPass, first_divergent_pass
from assets.desk.figures import Figure, figures, movers, requests, windows
from assets.desk.inputs import Change, input_changes, software
from assets.desk.mechanism import UNEXPLAINED, Mechanism, explain, explain_requests
from assets.desk.pair import Pair, Recorded, open_pair, same_rows
from perf_db.layout import StoreError
from perf_db.tables import RESULT_TABLES


@dataclass(frozen=True)
class Diff:
    """What a reviewer asks of two runs.

    Attributes:
        base, head: rows of `runs`.
        tables: (table, rows in base, rows in head) of those that differ.
        first_pass: None when no pass differs.
        mechanism: why the runs part; None when no pass, no request and no handover differs.
        matched_by: how requests of the two sides were found to be the same.
        same_in_common: releases that declare tables differently hold the same rows in the columns that both write.
    """

    base: dict[str, Any]
    head: dict[str, Any]
    inputs: list[Change] = field(default_factory=list)
    software: list[Change] = field(default_factory=list)
    tables: list[tuple[str, int, int]] = field(default_factory=list)
    first_pass: FirstPass | None = None
    mechanism: Mechanism | None = None
    attribution: list[Attribution] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    windows: list[dict[str, Any]] = field(default_factory=list)
    requests: dict[str, Any] = field(default_factory=dict)
    movers: list[dict[str, Any]] = field(default_factory=list)
    matched_by: str = "request_id"
    same_in_common: bool = False

    @property
    def same(self) -> bool:
        return self.same_in_common or bool(self.base["result_digest"] == self.head["result_digest"])

    @property
    def explained(self) -> bool:
        """Whether a mechanism was found, and something in the inputs can have set it off."""
        return self.same or bool(self.inputs and (self.mechanism is None or self.mechanism.name != UNEXPLAINED))

    @property
    def input_change(self) -> list[str]:
        """Names of the inputs that differ; ["none"] if all are the same."""
        return [c.name for c in self.inputs] or ["none"]

    def as_json(self) -> dict[str, Any]:
        """Everything, in plain values. Times in ns as integers."""
        if self.same:
            return {
                "same": True,
                "same_in_common": self.same_in_common,
                "base": _named(self.base),
                "head": _named(self.head),
            }
        first = self.first_pass
        return {
            "same": False,
            "explained": self.explained,
            "base": _named(self.base),
            "head": _named(self.head),
            "input_change": self.input_change,
            "mechanism": self.mechanism.name if self.mechanism else None,
            "detail": self.mechanism.detail if self.mechanism else None,
            "inputs": [asdict(c) for c in self.inputs],
            "software": [asdict(c) for c in self.software],
            "tables": [{"table": t, "base_rows": b, "head_rows": h} for t, b, h in self.tables],
            "first_divergent_pass": asdict(first) | {"differing": first.differing()} if first else None,
            "attribution": [
                {
                    "latency": a.latency,
                    "base_ns": a.base_ns,
                    "head_ns": a.head_ns,
                    "change_ns": a.change_ns,
                    "terms_ns": a.terms,
                    "requests_on_both_sides": a.n_common,
                    "requests_in_base": a.n_base,
                    "requests_in_head": a.n_head,
                }
                for a in self.attribution
            ],
            "metrics": [asdict(f) | {"change": f.change, "relative": f.relative} for f in self.figures],
            "requests": self.requests | {"matched_by": self.matched_by},
            "movers": self.movers,
            "windows": self.windows,
        }


def diff_runs(base: Recorded, head: Recorded) -> Diff:
    """Compare two recorded runs. Equal result digests end it at once.

    Raises:
        StoreError: they differ, and the rows of one were not kept.
    """
    if same_rows(base, head):
        return Diff(base.run, head.run, same_in_common=base.run["result_digest"] != head.run["result_digest"])
    for side in (base, head):
        if lost := side.lost():
            run_id = side.run["run_id"]
            raise StoreError(f"run {run_id}: rows of {', '.join(lost)} were not kept, so nothing can be explained")
    with open_pair(base, head) as pair:
        return _diff(pair)


def _diff(pair: Pair) -> Diff:
    first = first_divergent_pass(pair)
    return Diff(
        base=pair.base.run,
        head=pair.head.run,
        inputs=input_changes(pair),
        software=software(pair),
        tables=[(n, pair.base.n_rows(n), pair.head.n_rows(n)) for n in RESULT_TABLES if not pair.same(n)],
        first_pass=first,
        mechanism=explain(pair, first) if first else explain_requests(pair),
        attribution=attribute(pair),
        figures=figures(pair),
        windows=windows(pair) if first else [],
        requests=requests(pair),
        movers=movers(pair),
        matched_by=pair.matched_by,
    )


def _named(run: dict[str, Any]) -> dict[str, Any]:
    names = ("run_id", "replay_id", "name", "result_digest", "started_at", "engine_digest", "trace_digest")
    return {name: run[name] for name in names}
