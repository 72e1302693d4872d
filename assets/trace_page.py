"""What the asset page of a trace shows, and the checks that come with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg

from assets.ingest import Trace
from assets.metadata import PREVIEW_ROWS, picture, preview
from assets.plots import spark
from assets.quarantine_limits import judge
from assets.run_plots import arrivals
from assets.trace_plots import trace_panels
from assets.trace_stats import trace_stats
from perf_db.tables import QUARANTINE
from sim.config.traffic import QuarantineLimits

LIMITS = "quarantine_within_limits"


def page(trace: Trace) -> dict[str, Any]:
    """Tables and pictures of a trace, as metadata of its asset."""
    stats = trace_stats(trace)
    found: dict[str, Any] = {
        "counts": _records([{"what": name, "n": n} for name, n in stats["counts"].items()]),
        "lengths": _records([_lengths(name, stats[name]) for name in ("prompt_tokens", "output_tokens")]),
        "prefix_reuse": dg.MetadataValue.md(_reuse(stats["prefix"])),
        "quarantine_summary": _records(
            [
                {
                    "reason": each["reason"],
                    "rows": each["rows"],
                    "share": f"{each['rows'] / max(trace.counts.rows_read, 1):.4%}",
                    "first_line": each["first_line"],
                    "example": each["example"][:200],
                }
                for each in stats["quarantine"]
            ],
            ("reason", "rows", "share", "first_line", "example"),
        ),
        "first_quarantined_rows": preview(QUARANTINE, _first_bad(trace)),
        "pictures": picture(trace_panels(trace, stats), "load over time, lengths and prefix reuse of the trace"),
        "why_this_format": stats["why_this_format"],
        "notes": dg.MetadataValue.json(stats["notes"]),
    }
    if load := stats["arrivals"]:
        found["arrivals_over_time"] = dg.MetadataValue.md(
            spark(load["per_bucket"], "requests over the time of the trace")
        )
        found["arrivals"] = _records(
            [{"what": name.replace("_", " "), "value": _figure(n)} for name, n in load.items() if name != "per_bucket"]
        )
    if stats["sessions"]:
        found["sessions"] = _records([{**stats["sessions"], **(stats["waits"] or {})}])
    if stats["warnings"]:
        found["warnings"] = dg.MetadataValue.md("\n".join(f"* {each}" for each in stats["warnings"]))
    return found


def made_up_page(rows: Any) -> dict[str, Any]:
    """Pictures of traffic without a file behind it (an arrow table of `traces`)."""
    panels = arrivals(rows)
    return {
        "arrivals_over_time": dg.MetadataValue.md(spark(panels[0].y, "requests over the time of the trace")),
        "pictures": picture(panels, "arrivals and prompt lengths"),
    }


def limits_spec(asset: str) -> dg.AssetCheckSpec:
    """The check on how many rows were set aside."""
    return dg.AssetCheckSpec(
        LIMITS, asset=asset, blocking=True, description="no more rows set aside than traffic.source.quarantine allows"
    )


def limits_check(rows_read: int, reasons: Mapping[str, int], limits: QuarantineLimits) -> dg.AssetCheckResult:
    """Beyond `fail_above` an error, which keeps what follows from running; beyond `warn_above` a warning."""
    verdict, bad = judge(rows_read, reasons, limits), sum(reasons.values())
    return dg.AssetCheckResult(
        check_name=LIMITS,
        passed=not (verdict.failed or verdict.warned),
        severity=dg.AssetCheckSeverity.ERROR if verdict.failed else dg.AssetCheckSeverity.WARN,
        description=verdict.failed or verdict.warned or None,
        metadata={
            "quarantined": bad,
            "rows_read": rows_read,
            "share": bad / max(rows_read, 1),
            **({} if limits.warn_above is None else {"warn_above": limits.warn_above}),
            "fail_above": limits.fail_above,
        },
    )


def _first_bad(trace: Trace) -> list[tuple[Any, ...]]:
    columns = trace.quarantine.columns()
    return list(zip(*(columns[name][:PREVIEW_ROWS] for name in QUARANTINE.column_names), strict=True))


def _records(rows: list[dict[str, Any]], names: tuple[str, ...] = ()) -> dg.TableMetadataValue:
    columns = names or tuple(rows[0])
    schema = dg.TableSchema([dg.TableColumn(name) for name in columns])
    return dg.MetadataValue.table([dg.TableRecord(row) for row in rows], schema=schema)


def _lengths(name: str, found: dict[str, Any]) -> dict[str, Any]:
    figures = ("total", "mean", "min", "p50", "p90", "p99", "max")
    return {"tokens": name.removesuffix("_tokens"), **{each: _figure(found[each]) for each in figures}}


def _reuse(found: dict[str, Any] | None) -> str:
    if found is None:
        return "unknown: the trace says nothing about prefixes"
    blocks = f"{found['reusable_blocks']:,} of {found['blocks']:,} blocks of {found['block_tokens']} tokens"
    return (
        f"at best **{found['share_of_prompt_tokens']:.2%}** of prompt tokens can be reused ({blocks}, infinite cache); "
        f"{found['fully_cached_requests']:,} prompts had been asked before from end to end"
    )


def _figure(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value
