"""A diff as a reviewer reads it on a terminal: verdict, inputs, first divergent pass, where the time went, figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from assets.desk.attribution import ONE_SIDED, PARTS, Attribution
from assets.desk.diff import Diff
from assets.desk.divergence import FirstPass
from assets.desk.figures import Figure

# What the figures table shows unless everything is asked for: (metric, statistics).
SHOWN = {
    "ttft": ("mean", "median", "p90", "p99"),
    "tpot": ("mean", "median", "p90", "p99"),
    "itl": ("mean", "p99"),
    "e2e_latency": ("mean", "median", "p90", "p99"),
    "output_throughput": ("mean",),
    "request_throughput": ("mean",),
    "goodput": ("share",),
    "prefix_reuse": ("max",),
    "kv_usage": ("peak",),
    "duration": ("total",),
}
LATENCIES = {"ttft": "TTFT", "e2e": "E2E"}
# The rows of the pass that are printed, in groups.
PASS_ROWS = (
    ("chosen, ns", "chosen_ns"),
    ("start, ns", "start_ns"),
    ("end, ns", "end_ns"),
    ("prefill requests", "n_prefill"),
    ("prefill tokens", "prefill_tokens"),
    ("  already there", "prefill_kv_tokens"),
    ("decode requests", "n_decode"),
    ("  their context", "decode_kv_tokens"),
    ("tokens made", "n_tokens"),
    ("admitted", "n_admitted"),
    ("preempted", "n_preempted"),
    ("completed", "n_completed"),
    ("running", "n_running"),
    ("waiting", "n_waiting"),
    ("  after preemption", "n_waiting_preempted"),
    ("KV in use, blocks", "active_blocks"),
    ("KV cached, blocks", "cached_blocks"),
    ("KV free, blocks", "free_blocks"),
    ("prefill price, ns", "prefill_ns"),
    ("decode price, ns", "decode_ns"),
)


def diff_text(diff: Diff, *, everything: bool = False) -> str:
    """The whole page. `everything`: all figures and all windows."""
    if diff.same:
        how = "in the columns that both write" if diff.same_in_common else f"digest {_short(diff.base)}"
        return f"same  {_run(diff.base)}  and  {_run(diff.head)}  hold the same rows ({how})"
    parts = [
        [f"base  {_run(diff.base)}", f"head  {_run(diff.head)}", *_verdict(diff)],
        _inputs(diff),
        _first_pass(diff),
        *(_attribution(a) for a in diff.attribution),
        _figures(diff.figures, everything=everything),
        _requests(diff),
        _windows(diff),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def _run(run: dict[str, Any]) -> str:
    return f"{run['run_id']} ({run['name']})"


def _short(run: dict[str, Any]) -> str:
    return str(run["result_digest"])[:12]


def _verdict(diff: Diff) -> list[str]:
    tables = ", ".join(name for name, _, _ in diff.tables)
    lines = [f"DIFFERENT in {tables}"]
    if diff.base["replay_id"] == diff.head["replay_id"]:
        lines.append("NOT REPRODUCIBLE: both runs have the same replay_id, so they should hold the same rows")
    if diff.matched_by != "request_id":
        lines.append(f"requests are matched by {diff.matched_by}: their places in the source have shifted")
    return lines


def _inputs(diff: Diff) -> list[str]:
    if not diff.inputs:
        lines = ["input change   none: the same configuration, trace, performance data and engine"]
    else:
        lines = ["input change"]
        rows = [
            [c.name, "" if c.note == "digest" and not c.base else f"{c.base} → {c.head}", _note(c.note)]
            for c in diff.inputs
        ]
        lines += _columns(rows)
    if diff.software:
        lines += _columns([[f"also: {c.field}", f"{c.base} → {c.head}", ""] for c in diff.software])
    return lines


def _note(note: str) -> str:
    return f"({note})" if note else ""


def _first_pass(diff: Diff) -> list[str]:
    first = diff.first_pass
    if first is None:
        if diff.mechanism is None:
            return ["first divergent pass   none: every request and every pass is the same"]
        return [
            "first divergent pass   none: every pass is the same",
            f"  mechanism   {diff.mechanism.name}: {diff.mechanism.detail}",
        ]
    where = f"pass {first.pass_no} of rank {first.worker}.{first.dp_rank}"
    lines = [f"first divergent pass   {where}, at {first.at_ns / 1e9:,.6f} s"]
    if diff.mechanism is not None:
        lines.append(f"  mechanism   {diff.mechanism.name}: {diff.mechanism.detail}")
    return lines + _sides(first)


def _sides(first: FirstPass) -> list[str]:
    rows = [["", "base", "head", ""]]
    for title, column in PASS_ROWS:
        base, head = (None if r is None else r[column] for r in (first.base, first.head))
        change = f"{head - base:+,}" if base is not None and head is not None and base != head else ""
        if base or head:
            rows.append([title, _whole(base), _whole(head), change])
    return _columns(rows, right=(1, 2, 3))


def _attribution(a: Attribution) -> list[str]:
    name = LATENCIES[a.latency]
    head = f"{name} summed over {a.n_common:,} requests on both sides"
    if a.n_base != a.n_common or a.n_head != a.n_common:
        head += f", {a.n_base - a.n_common:,} in base only, {a.n_head - a.n_common:,} in head only"
    if not any(a.terms.values()):
        return [f"{head}: unchanged"]
    rows = [["ms", "base", "head", "change", "per request"]]
    for part, (base, after) in a.parts.items():
        per_request = (after - base) / max(a.n_common, 1)
        rows.append([part, _ms(base), _ms(after), _ms(after - base, "+"), _ms(per_request, "+")])
    if a.only_base_ns or a.only_head_ns:
        extra = a.terms[ONE_SIDED]
        rows.append(["on one side only", _ms(a.only_base_ns), _ms(a.only_head_ns), _ms(extra, "+"), ""])
    rows.append(["total", _ms(a.base_ns), _ms(a.head_ns), _ms(a.change_ns, "+"), ""])
    return [head, *_columns(rows, right=(1, 2, 3, 4))]


def _figures(found: Iterable[Figure], *, everything: bool) -> list[str]:
    rows = [["figure", "base", "head", "change", "relative"]]
    order = {(m, s): i for i, (m, s) in enumerate((m, s) for m, stats in SHOWN.items() for s in stats)}
    shown = [f for f in found if everything or (f.scope == "run" and (f.metric, f.stat) in order)]
    if not everything:
        shown.sort(key=lambda f: order[f.metric, f.stat])
    for f in shown:
        if f.base is None and f.head is None:
            continue
        relative = "" if f.relative is None or not f.change else f"{f.relative:+.3%}"
        scope = "" if f.scope == "run" else f"{f.scope} "
        change = "=" if f.change == 0 else _figure(f.change, "+")
        rows.append([f"{scope}{f.metric} {f.stat}, {f.unit}", _figure(f.base), _figure(f.head), change, relative])
    return _columns(rows, right=(1, 2, 3, 4), indent="") if len(rows) > 1 else []


def _requests(diff: Diff) -> list[str]:
    r = diff.requests
    counts = [
        ("in base only", r["only_base"]),
        ("in head only", r["only_head"]),
        ("end otherwise", r["status_differs"]),
        ("other output length", r["output_differs"]),
        ("other prefix reuse", r["reuse_differs"]),
        ("other number of preemptions", r["preemptions_differ"]),
        ("TTFT later", r["ttft_later"]),
        ("TTFT earlier", r["ttft_earlier"]),
        ("E2E later", r["e2e_later"]),
        ("E2E earlier", r["e2e_earlier"]),
    ]
    told = " · ".join(f"{n:,} {what}" for what, n in counts if n) or "none differs"
    lines = [f"requests   {told}"]
    if diff.movers:
        names = mover_columns(diff)
        rows = [["moved most, ms", *names]]
        rows += [[f"request {m['request_id']}", *(_ms(m[c], "+") for c in names.values())] for m in diff.movers]
        lines += _columns(rows, right=range(1, 1 + len(names)))
    return lines


def mover_columns(diff: Diff) -> dict[str, str]:
    """Title -> key of the parts of a mover's change, then TTFT and E2E."""
    known = PARTS["e2e"] | {"TTFT": "ttft_ns", "E2E": "e2e_ns"}
    return {title: column for title, column in known.items() if diff.movers and column in diff.movers[0]}


def _windows(diff: Diff) -> list[str]:
    if not diff.windows:
        return []
    counts = ("passes", "tokens", "completed", "waiting", "preempted")
    titles = ["window, s", "passes", "tokens made", "completed", "most waiting", "preempted"]
    rows = [[*titles, "mean TTFT, ms", "mean E2E, ms"]]
    for w in diff.windows:
        span = f"{w['from_ns'] / 1e9:,.1f}–{w['to_ns'] / 1e9:,.1f}"
        pairs = [_pair(w[f"base_{c}"], w[f"head_{c}"]) for c in counts]
        means = [_mean(w[f"{c}_change_ns"], w["requests"]) for c in ("ttft", "e2e")]
        rows.append([span, *pairs, *means])
    return ["aligned windows, base → head (latencies: change, by arrival in base)", *_columns(rows, right=range(1, 8))]


def _pair(base: int, head: int) -> str:
    return f"{base:,} =" if base == head else f"{base:,} → {head:,}"


def _mean(total_ns: int | None, n: int) -> str:
    return "–" if not n or total_ns is None else _ms(total_ns / n, "+") if total_ns else "="


def _ms(ns: float, sign: str = "") -> str:
    return "=" if sign and not ns else f"{ns / 1e6:{sign},.3f}"


def _whole(value: int | None) -> str:
    return "no such pass" if value is None else f"{value:,}"


def _figure(value: float | None, sign: str = "") -> str:
    return "–" if value is None else f"{value:{sign},.4f}"


def _columns(rows: Sequence[Sequence[str]], *, right: Iterable[int] = (), indent: str = "  ") -> list[str]:
    """Aligned cells, the columns numbered in `right` to the right."""
    to_right = set(right)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    return [
        indent
        + "  ".join(c.rjust(w) if i in to_right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths))).rstrip()
        for row in rows
    ]
