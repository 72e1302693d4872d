"""The readable summary of a run, from its row in `runs` and its rows in `metrics`."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from perf_db.store import Store
from pipelines.options import warehouse_root
from pipelines.pool_summary import QUERIES as of_pools
from pipelines.pool_summary import pool_lines, separate

MetricRow = Sequence[Any]  # scope, metric, stat, value, unit, n
Figures = Mapping[tuple[str, str, str], float | None]

LATENCY_ROWS = (("TTFT", "ttft"), ("TTST", "ttst"), ("TPOT", "tpot"), ("ITL", "itl"), ("E2E", "e2e_latency"))
LATENCY_STATS = (("mean", "mean"), ("p50", "median"), ("p90", "p90"), ("p99", "p99"))

QUERIES = (
    (
        "who waited longest for the first token, and in the queue or in the engine?",
        "SELECT request_id, prompt_tokens, cached_share, queue_ms, ttft_ms FROM request_latency "
        "WHERE run_id = '{run_id}' ORDER BY ttft_ms DESC LIMIT 10",
    ),
    (
        "what were the passes filled with, and what did that take?",
        "SELECT * EXCLUDE (run_id, replay_id) FROM pass_mix WHERE run_id = '{run_id}'",
    ),
    (
        "how full was the KV pool, minute by minute?",
        "SELECT floor(start_s / 60)::INTEGER AS minute, max(active_share) AS fullest, count(*) AS passes FROM kv_usage "
        "WHERE run_id = '{run_id}' GROUP BY minute ORDER BY minute",
    ),
)


def figures(rows: Iterable[MetricRow]) -> dict[tuple[str, str, str], float | None]:
    """Metric rows as a lookup by (scope, metric, stat)."""
    return {(scope, metric, stat): value for scope, metric, stat, value, _unit, _n in rows}


def summary_text(run: Mapping[str, Any], metrics: Iterable[MetricRow], store: Store) -> str:
    """The summary as people read it. `run` is a row of `runs`; the store is asked about separate pools alone."""
    found = figures(metrics)
    return "\n".join([*_head(run, found), "", *_latencies(found), "", *_facts(run, found, pool_lines(store, run))])


def next_steps(database: Path, run: Mapping[str, Any]) -> str:
    """Where the tables are, and what to ask them first, as commands that can be pasted."""
    command = f"{own_name()} sql"
    if database.parent != warehouse_root(None):
        command += f" -w {shlex.quote(str(database.parent))}"
    lines = [f"database      {database}", "", "Try next:"]
    for what, query in (*QUERIES[:2], *of_pools) if separate(run) else QUERIES:
        lines += [f"  # {what}", f'  {command} "{query.format(run_id=run["run_id"])}"']
    return "\n".join(lines)


def own_name() -> str:
    """How the person who reads this can call us: by name where the shell finds us, else by path."""
    script = Path(sys.executable).parent / "tracemill"
    found = shutil.which("tracemill")
    if (found and Path(found) == script) or not script.exists():
        return "tracemill"
    return shlex.quote(str(script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script))


def number(value: float | None, form: str = ",.2f") -> str:
    """A figure, or a dash where no sample exists."""
    return "–" if value is None else format(value, form)


def _head(run: Mapping[str, Any], found: Figures) -> list[str]:
    served = " on ".join(str(run[k]) for k in ("model", "hardware") if run.get(k))
    about = " · ".join(part for part in (run["name"], f"{run['backend']} (profile {run['profile']})", served) if part)
    counts = [f"{run['n_completed']:,} completed"]
    counts += [f"{run[f'n_{k}']:,} {k}" for k in ("rejected", "failed", "canceled", "unfinished") if run.get(f"n_{k}")]
    simulated = number((found.get(("run", "duration", "total")) or 0) / 1e3, ",.1f")
    return [
        about,
        f"run {run['run_id']} · replay {run['replay_id'][:12]}",
        f"{run['n_requests']:,} requests: {', '.join(counts)} · {run['n_passes']:,} passes · "
        f"{simulated} s simulated in {run['engine_ms'] / 1e3:,.2f} s, "
        f"{run['total_ms'] / 1e3:,.1f} s with reading and writing",
    ]


def _latencies(found: Figures) -> list[str]:
    table = [[number(found.get(("run", metric, stat))) for _, stat in LATENCY_STATS] for _, metric in LATENCY_ROWS]
    width = max(12, 2 + max(len(cell) for row in table for cell in row))
    lines = [f"{'ms':<6}" + "".join(f"{title:>{width}}" for title, _ in LATENCY_STATS)]
    lines += [f"{title:<6}" + "".join(f"{cell:>{width}}" for cell in row)
              for (title, _), row in zip(LATENCY_ROWS, table, strict=True)]  # fmt: skip
    return lines


def _timing(run: Mapping[str, Any]) -> list[str]:
    """Where the milliseconds come from: model and hardware are recorded, but not every price depends on them."""
    workers = json.loads(run["config_json"])["engine"]["workers"]
    provenance = json.loads(run["provenance_json"])
    told, files = provenance.get("performance") or {}, provenance.get("constants") or {}
    host = [f"host          constants of {_file(files['host'])}"] if "host" in files else []
    if "aggregated" in workers:
        said = _prices(workers["aggregated"]["timing"], told, files.get("aggregated"))
        return [f"timing        {said}", *host]
    return [
        f"{'timing' if role == 'prefill' else '':<14}{role}: "
        + _prices(workers[role]["timing"], told.get(role) or {}, files.get(role))
        for role in ("prefill", "decode")
    ]


def _file(snapshot: Mapping[str, str]) -> str:
    return f"{snapshot['path']} (snapshot {snapshot['digest'][:12]})"


def _prices(timing: Mapping[str, Any], told: Mapping[str, Any], file: Mapping[str, str] | None) -> str:
    """What prices the passes of a pool: its source, and whatever was changed about it."""
    kind, mode, source = timing["type"], told.get("estimation_mode"), told.get("source") or {}
    if mode == "embedded":
        said = f"tables that ship with tracemill: {_deployment(told['deployment'])}"
    elif mode == "op_level":
        held = f"{source['distribution']} {source['version']}" if source.get("version") else "of a folder"
        state = "repaired" if told.get("clean") else "as they are"
        said = f"measured operators ({held}, {state}): {_deployment(told['deployment'])}"
    elif mode == "fpm_regression":
        said = f"a plane fitted to the passes in {told.get('file')}"
    elif mode is not None:
        said = f"measured passes: {told.get('file')}"
    else:
        own = {"polynomial": "the built-in polynomial, fitted to no model or hardware"}
        said = own.get(kind, f"{kind}, as configured" if file is None else f"{kind}, constants of {_file(file)}")
    if told.get("snapshot"):
        said += f"; corrected by {told['snapshot']['path']}"
    if timing.get("factors"):
        said += f"; what if: {', '.join(f'{name} × {factor:g}' for name, factor in timing['factors'].items())}"
    return said


def _speculation(run: Mapping[str, Any], found: Figures) -> list[str]:
    given = json.loads(run["config_json"])["engine"].get("speculation")
    if not given:
        return []
    tokens = number(found.get(("run", "accept_length", "mean")))
    return [f"speculation   {given['kind']}, {given['drafts']} drafts · {tokens} tokens a round; gaps in a burst are 0"]


def _first_token(run: Mapping[str, Any]) -> list[str]:
    ends = run.get("ttft_ends")
    if ends is None:
        return []
    said = {
        "decode": "TTFT ends with a decode worker's first token: transfer and a decode pass are in it",
        "prefill": "TTFT ends when the prompt is computed, all else is of decode-side tokens: "
        "TTFT + (n - 1) TPOT is less than E2E by handing over and a decode pass",
    }
    return [f"first token   {said[ends]}"]


def _unproven(run: Mapping[str, Any]) -> list[str]:
    marks = [mark for mark in (run.get("unproven") or "").split(",") if mark]
    return [f"unproven      {', '.join(marks)} (no engine to compare with; docs/correctness.md)"] if marks else []


def _goodput(run: Mapping[str, Any], found: Figures) -> list[str]:
    """Of all requests that count: who failed or was turned away had no good service either."""
    good, completed = found.get(("run", "goodput", "completed")), found.get(("run", "requests", "completed"))
    submitted = found.get(("run", "requests", "submitted"))
    if good is None or not submitted:
        return []
    said = f"{good / submitted:.1%} of all {submitted:,.0f} requests within the limits"
    if completed and completed != submitted:
        said += f", {good / completed:.1%} of the {completed:,.0f} completed"
    return [f"goodput       {said} · {number(found.get(('run', 'goodput', 'request_throughput')))} requests/s"]


def _deployment(told: Mapping[str, Any]) -> str:
    return f"{told['backend']} {told['version']}, TP {told['tp']}, {told['gemm']}"


def _facts(run: Mapping[str, Any], found: Figures, pools: Sequence[str] = ()) -> list[str]:
    def value(metric: str, stat: str) -> float | None:
        return found.get(("run", metric, stat))

    rates = f"{number(value('request_throughput', 'mean'))} requests/s · "
    rates += f"{number(value('input_throughput', 'mean'), ',.0f')} input tokens/s · "
    rates += f"{number(value('output_throughput', 'mean'), ',.0f')} output tokens/s"
    lines = [*_timing(run), *_speculation(run, found), *_first_token(run), *_unproven(run)]
    lines += [f"throughput    {rates}", *_goodput(run, found)]
    reuse = value("prefix_reuse", "max")
    shown = "unknown: the trace carries no prefix ids" if reuse is None else f"{reuse:.3%} of input tokens"
    lines.append(f"prefix reuse  {shown}")
    lines.append(f"preemptions   {run['n_preemptions']:,}")
    if run["n_rejected"]:
        why = "SELECT reason, count(*) FROM requests WHERE status = 'rejected' GROUP BY reason"
        lines.append(f"rejected      {run['n_rejected']:,}; why: {why}")
    if pools:
        lines += pools
    else:
        share = value("kv_usage", "peak")
        of_pool = "" if share is None else f" ({share:.1%} of its pool)"
        lines.append(f"KV peak       {run['peak_active_blocks']:,} blocks on one rank{of_pool}")
    return [*lines, _rows(run)]


def _rows(run: Mapping[str, Any]) -> str:
    """What became of the rows of the trace, those that nobody asked to replay included."""
    told, n, set_aside = json.loads(run["provenance_json"]), run["n_requests"], run["n_quarantined"]
    clean = told.get("clean", n)
    said = f"trace rows    {clean + set_aside:,} read = {clean:,} clean + {set_aside:,} quarantined"
    if n == clean:
        return said
    stop = json.loads(run["config_json"]).get("traffic", {}).get("stop") or {}
    return f"{said}; {n:,} of the clean ones replayed" + (" (traffic.stop)" if any(stop.values()) else "")
