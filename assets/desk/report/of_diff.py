"""The page about the difference of two runs."""

from __future__ import annotations

from assets.desk.diff import Diff, diff_runs
from assets.desk.figures import Figure
from assets.desk.pair import Recorded
from assets.desk.report import charts, series
from assets.desk.report.of_run import KV_TITLE
from assets.desk.report.page import Page
from assets.desk.session import open_run
from assets.desk.text import LATENCIES, PASS_ROWS, SHOWN, diff_text, mover_columns


def diff_page(base: Recorded, head: Recorded) -> str:
    """
    Raises:
        StoreError: the runs differ, and the rows of one were not kept.
    """
    diff = diff_runs(base, head)
    page = Page(
        f"{base.run['name']} → {head.run['name']}" if base.run["name"] != head.run["name"] else head.run["name"],
        f"base {base.run['run_id']} · head {head.run['run_id']}",
    )
    if diff.same:
        page.verdict("The same rows", diff_text(diff), good=True)
        return page.html()
    _verdict(page, diff)
    _inputs(page, diff)
    _first_pass(page, diff)
    page.heading("Where the time went")
    page.charts([(charts.waterfall(a, LATENCIES[a.latency]), False) for a in diff.attribution])
    _comparison(page, {"base": base, "head": head})
    page.heading("Figures")
    _figures(page, diff.figures)
    _movers(page, diff)
    page.heading("The same as text")
    page.text(diff_text(diff, everything=True))
    return page.html()


def _verdict(page: Page, diff: Diff) -> None:
    where = "No pass differs."
    if diff.first_pass is not None:
        first = diff.first_pass
        where = f"They part at pass {first.pass_no} of rank {first.worker}.{first.dp_rank}, {first.at_ns / 1e9:,.6f} s."
    why = f" {diff.mechanism.name}: {diff.mechanism.detail}." if diff.mechanism else ""
    head = "Different" if diff.explained else "Different, and not explained"
    if diff.base["replay_id"] == diff.head["replay_id"]:
        head = "Not reproducible: both runs have the same replay_id"
    inputs = f"Input change: {', '.join(diff.input_change)}. "
    page.verdict(head, inputs + where + why, good=None if diff.explained else False)


def _inputs(page: Page, diff: Diff) -> None:
    page.heading("What was put in")
    changes = [*diff.inputs, *diff.software]
    if not changes:
        page.verdict("none", "the same configuration, trace, performance data and engine", good=None)
        return
    page.table(["input", "base", "head", "note"], [[c.name, str(c.base), str(c.head), c.note] for c in changes])


def _first_pass(page: Page, diff: Diff) -> None:
    first = diff.first_pass
    if first is None:
        return
    page.heading(f"First divergent pass: {first.pass_no} of rank {first.worker}.{first.dp_rank}")
    rows: list[list[str]] = []
    moved: list[int] = []
    for title, column in PASS_ROWS:
        base, head = (None if r is None else r[column] for r in (first.base, first.head))
        if not (base or head):
            continue
        if base != head:
            moved.append(len(rows))
        change = f"{head - base:+,}" if base is not None and head is not None and base != head else ""
        rows.append([title.strip(), *("no such pass" if v is None else f"{v:,}" for v in (base, head)), change])
    page.table(["", "base", "head", "change"], rows, right=(1, 2, 3), moved=moved)


def _comparison(page: Page, sides: dict[str, Recorded]) -> None:
    times: dict[str, series.OverTime] = {}
    shares: dict[str, dict[str, series.Points]] = {name: {} for name in series.LATENCIES}
    passes: dict[str, dict[str, series.Points]] = {}
    for name, side in sides.items():
        run_id = side.run["run_id"]
        with open_run(side) as con:
            times[name] = series.over_time(con, run_id)
            for latency, of in shares.items():
                of[name] = series.distribution(con, run_id, latency)
            passes[name] = series.passes(con, run_id, side.run["n_passes"])
    highest = max((y for found in passes.values() for p in found.values() for y in p.y), default=1.0)
    page.heading("Base and head")
    page.charts(
        [
            *((charts.distributions(of, name), False) for name, of in shares.items()),
            (charts.over_time(times, "kv_percent", KV_TITLE, of_100=True), False),
            (charts.over_time(times, "waiting", "waiting requests (busiest rank)"), False),
            *((charts.passes(p, f"{n}: passes by duration, ms", y_range=(0, 1.05 * highest)), False)
              for n, p in passes.items()),
        ]
    )  # fmt: skip


def _figures(page: Page, found: list[Figure]) -> None:
    wanted = {(m, s) for m, stats in SHOWN.items() for s in stats}
    shown = [f for f in found if f.scope == "run" and (f.metric, f.stat) in wanted]
    order = {metric: i for i, metric in enumerate(SHOWN)}
    shown.sort(key=lambda f: (order[f.metric], SHOWN[f.metric].index(f.stat)))
    rows: list[list[str]] = []
    moved: list[int] = []
    for f in shown:
        if f.base is None and f.head is None:
            continue
        if f.base != f.head:
            moved.append(len(rows))
        relative = "" if f.relative is None or not f.change else f"{f.relative:+.3%}"
        change = "=" if f.change == 0 else _number(f.change, "+")
        rows.append([f"{f.metric} {f.stat}", f.unit, _number(f.base), _number(f.head), change, relative])
    page.table(["figure", "unit", "base", "head", "change", "relative"], rows, right=(2, 3, 4, 5), moved=moved)


def _movers(page: Page, diff: Diff) -> None:
    if not diff.movers:
        return
    page.heading("Requests that moved most, ms")
    names = mover_columns(diff)
    rows = [[str(m["request_id"]), *(f"{m[c] / 1e6:+,.3f}" for c in names.values())] for m in diff.movers]
    page.table(["request", *names], rows, right=range(1, 1 + len(names)))


def _number(value: float | None, sign: str = "") -> str:
    return "–" if value is None else f"{value:{sign},.4f}"
