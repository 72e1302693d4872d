"""The page about one run."""

from __future__ import annotations

import json
from typing import Any

from assets.desk.anomalies import Anomaly, ask, claims
from assets.desk.attribution import HANDOVER, PARTS
from assets.desk.kv_peak import peaks
from assets.desk.pair import Recorded
from assets.desk.report import charts, series
from assets.desk.report.page import Page
from assets.desk.session import open_run
from perf_db.layout import StoreError

LATENCIES = {"TTFT": "ttft", "TTST": "ttst", "TPOT": "tpot", "ITL": "itl", "E2E": "e2e_latency"}
KV_TITLE = "KV blocks in use, % of the pool (busiest rank)"
STATS = ("mean", "median", "p90", "p95", "p99", "max")


def run_page(side: Recorded) -> str:
    """
    Raises:
        StoreError: the run's rows were not kept.
    """
    if lost := side.lost():
        raise StoreError(f"run {side.run['run_id']}: rows of {', '.join(lost)} were not kept; replay it again")
    run, run_id = side.run, side.run["run_id"]
    with open_run(side) as con:
        figures = {
            (metric, stat): value
            for metric, stat, value in con.execute(
                "SELECT metric, stat, value FROM metrics WHERE run_id = ? AND scope = 'run'", [run_id]
            ).fetchall()
        }
        found = ask(con, run_id)
        of_pools = peaks(con, run)
        times = {"": series.over_time(con, run_id)}
        shares = {name: {"": series.distribution(con, run_id, name)} for name in series.LATENCIES}
        passes = series.passes(con, run_id, run["n_passes"])
        mixes = con.execute(
            "SELECT mix, n_passes, share_of_time, mean_decode, busy_ms / n_passes FROM pass_mix WHERE run_id = ? "
            "ORDER BY share_of_time DESC",
            [run_id],
        ).fetchall()
        pools = con.execute(
            "SELECT role, workers, gpus, n_passes, busy_share, mean_running, active_share, held_share, "
            "prompt_tokens_per_s, output_tokens_per_s FROM pool_utilisation WHERE run_id = ? ORDER BY role DESC",
            [run_id],
        ).fetchall()
        ratio = con.execute(
            "SELECT ratio, limited_by, queue_ms, transfer_ms, decode_wait_ms FROM pool_ratios WHERE run_id = ?",
            [run_id],
        ).fetchone()
        parts = {n: c for n, c in PARTS["e2e"].items() if side.n_rows("handoffs") or n not in HANDOVER}
        asked = ", ".join(f"{column} / 1e6" for column in ("ttft_ns", *parts.values(), "e2e_ns"))
        slow = con.execute(
            f"SELECT request_id, {asked} FROM request_phases WHERE run_id = ? "
            "ORDER BY ttft_ns DESC, request_id LIMIT 10",
            [run_id],
        ).fetchall()
    served = " on ".join(str(run[k]) for k in ("model", "hardware") if run.get(k))
    about = [f"{run['backend']} (profile {run['profile']})", served, f"run {run_id}", f"replay {run['replay_id'][:12]}"]
    page = Page(f"Run {run['name']}", " · ".join(part for part in about if part))
    _findings(page, found)
    page.cards(_cards(run, figures, of_pools))
    page.heading("Latency")
    page.table(
        ["ms", *STATS],
        [[name, *(_number(figures.get((metric, s))) for s in STATS)] for name, metric in LATENCIES.items()],
        right=range(1, 1 + len(STATS)),
    )
    page.heading("Over virtual time")
    bucketed = "" if run["n_passes"] <= series.SINGLE_PASSES else ", the longest of every stretch"
    page.charts(
        [
            *((charts.distributions(of, name), False) for name, of in shares.items()),
            (
                charts.over_time(times, "kv_percent", KV_TITLE, of_100=True),
                False,
            ),
            (charts.over_time(times, "waiting", "waiting requests (busiest rank)"), False),
            (charts.passes(passes, f"passes by duration, ms{bucketed}"), True),
            (charts.over_time(times, "tokens_per_s", "output tokens per second"), False),
            (charts.over_time(times, "prompt_tokens_per_s", "prompt tokens computed per second"), False),
        ]
    )
    page.heading("What passes were filled with")
    rows = [[m, f"{n:,}", f"{share:.1%}", _number(decode), _number(ms)] for m, n, share, decode, ms in mixes]
    page.table(["passes", "number", "share of time", "mean decoding", "ms per pass"], rows, right=range(1, 5))
    if side.n_rows("handoffs"):
        _pools(page, pools, ratio)
    page.heading("Who waited longest for a first token")
    page.table(
        ["request", "TTFT, ms", *parts, "E2E, ms"],
        [[str(r), *(_number(v) for v in rest)] for r, *rest in slow],
        right=range(1, 3 + len(parts)),
    )
    page.heading("Configuration")
    page.text(json.dumps(json.loads(run["config_json"]), indent=1))
    return page.html()


def _findings(page: Page, found: list[Anomaly]) -> None:
    errors = [a for a in found if a.severity == "error"]
    if not found:
        page.verdict("Nothing is wrong", f"{len(claims())} checks, all fine", good=True)
        return
    head = "A law is broken: the figures mean nothing" if errors else "Something is strange"
    page.verdict(head, "; ".join(f"{a.check_name}: {a.explanation}" for a in found), good=False if errors else None)
    rows = [[a.severity, a.check_name, a.table_name, a.row_key, f"{a.n_rows:,}", a.explanation] for a in found]
    page.table(["severity", "check", "table", "worst row", "rows", "explanation"], rows, right=[4])


def _pools(page: Page, pools: list[tuple[Any, ...]], ratio: tuple[Any, ...] | None) -> None:
    """What each pool was doing, and which of them limits."""
    page.heading("Pools")
    rows = [
        [role, f"{workers:,}", f"{gpus:,}", f"{n or 0:,}", _share(busy), _number(running), _share(active), _share(held),
         _number(prompt), _number(output)]
        for role, workers, gpus, n, busy, running, active, held, prompt, output in pools
    ]  # fmt: skip
    titles = ["pool", "workers", "GPUs", "passes", "busy", "running, a rank", "KV active", "KV held for transfer",
              "prompt tokens/s", "output tokens/s"]  # fmt: skip
    page.table(titles, rows, right=range(1, len(titles)))
    if ratio is not None:
        name, limit, queue, transfer, wait = ratio
        waits = f"prefill pool {_number(queue)} ms, transfer {_number(transfer)} ms, decode pool {_number(wait)} ms"
        page.verdict(f"{name}, limited by {limit}" if limit else name, f"mean waits: {waits}", good=None)


def _cards(
    run: dict[str, Any], figures: dict[tuple[str, str], float | None], of_pools: list[tuple[str, int, int]]
) -> list[tuple[str, str]]:
    kv_peak = [(f"KV peak, {role} pool", _share(most / blocks)) for role, most, blocks in of_pools]
    cards = [
        ("completed requests", f"{run['n_completed']:,} of {run['n_requests']:,}"),
        ("passes", f"{run['n_passes']:,}"),
        ("simulated", f"{(figures.get(('duration', 'total')) or 0) / 1e3:,.1f} s"),
        ("output tokens/s", _number(figures.get(("output_throughput", "mean")))),
        ("input tokens/s", _number(figures.get(("input_throughput", "mean")))),
        ("preemptions", f"{run['n_preemptions']:,}"),
        *(kv_peak or [("KV peak", _share(figures.get(("kv_usage", "peak"))))]),
        ("prefix reuse", _share(figures.get(("prefix_reuse", "max")))),
    ]
    good, submitted = figures.get(("goodput", "completed")), figures.get(("requests", "submitted"))
    if good is not None and submitted:
        cards.append(("goodput, of all requests", _share(good / submitted)))
    if run["n_rejected"] or run["n_unfinished"]:
        cards.append(("rejected, unfinished", f"{run['n_rejected']:,}, {run['n_unfinished']:,}"))
    if run.get("n_failed") or run.get("n_canceled"):
        cards.append(("failed, canceled", f"{run.get('n_failed') or 0:,}, {run.get('n_canceled') or 0:,}"))
    return cards


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.2f}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"
