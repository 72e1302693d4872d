"""What ratios of prefill to decode workers are worth: the last runs of a suite's scenarios with separate pools."""

from __future__ import annotations

from typing import Any

from assets.desk.matrix.plan import last_rows
from perf_db.store import Store

# Column of view `pool_ratios` -> how a table names it.
SHOWN = {
    "ratio": "P:D",
    "gpus": "GPUs",
    "requests_per_s_per_gpu": "req/s/GPU",
    "output_tokens_per_s_per_gpu": "tok/s/GPU",
    "ttft_p50_ms": "TTFT p50",
    "ttft_p99_ms": "TTFT p99",
    "tpot_p50_ms": "TPOT p50",
    "tpot_p99_ms": "TPOT p99",
    "e2e_p99_ms": "E2E p99",
    "good_share": "good",
    "good_requests_per_s_per_gpu": "good/s/GPU",
    "prefill_busy": "P busy",
    "decode_busy": "D busy",
    "prefill_held": "P held",
    "decode_active": "D active",
    "queue_ms": "P wait",
    "transfer_ms": "transfer",
    "decode_wait_ms": "D wait",
    "limited_by": "limited by",
}
_SHARES = {"good_share", "prefill_busy", "decode_busy", "prefill_held", "decode_active"}


def ratios(store: Store, suite: str) -> list[dict[str, Any]]:
    """Rows of view `pool_ratios` of the scenarios' last runs, and under `scenario` their names without the suite's.

    Scenarios that differ in nothing but the pools stand together, the one with most goodput (without limits, most
    requests) per GPU first.
    """
    last = {row["run_id"]: row for row in last_rows(store, suite).values() if row["run_id"]}
    if not last:
        return []
    with store.connect() as con:
        cursor = con.execute(f"FROM pool_ratios WHERE run_id IN ({', '.join('?' * len(last))})", list(last))
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, values, strict=True)) for values in cursor.fetchall()]

    def order(row: dict[str, Any]) -> tuple[Any, ...]:
        scenario = last[row["run_id"]]
        good, served = row["good_requests_per_s_per_gpu"], row["requests_per_s_per_gpu"]
        return tuple(scenario[a] or "" for a in ("trace", "load", "timing")), -(good or 0), -(served or 0), row["name"]

    return [{"scenario": row["name"].partition(".")[2]} | row for row in sorted(rows, key=order)]


def cells(row: dict[str, Any]) -> dict[str, str]:
    """What a table shows of a row of `ratios`."""
    return {"scenario": row["scenario"], **{title: _cell(column, row[column]) for column, title in SHOWN.items()}}


def _cell(column: str, value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.1%}" if column in _SHARES else f"{value:,.2f}"
    return str(value)
