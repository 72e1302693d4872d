"""The pictures of a diff for its asset's page: where the change came from, and both runs in one frame."""

from __future__ import annotations

from assets.desk.attribution import Attribution
from assets.desk.diff import Diff
from assets.desk.pair import Recorded
from assets.desk.report.series import Points, distribution, over_time
from assets.desk.session import open_run
from assets.desk.text import LATENCIES
from assets.plots import Drawn
from assets.plots_compare import Line, Lines, Waterfall

POINTS = 160  # per line: six of them share a picture of 50 kB
SHARE = 0.995  # the last half percent would squeeze everything else to the left edge


def diff_pictures(diff: Diff, base: Recorded, head: Recorded) -> list[Drawn]:
    """Waterfalls of TTFT and E2E, the distribution of TTFT, KV pool and queue over time. None of a diff without one."""
    drawn: list[Drawn] = [_waterfall(a) for a in diff.attribution if a.change_ns]
    shares, pools, queues = [], [], []
    for name, side in (("base", base), ("head", head)):
        with open_run(side) as con:
            points = distribution(con, side.run["run_id"], "TTFT")
            times = over_time(con, side.run["run_id"])
        shares.append(_upto(name, points))
        pools.append(_thinned(Line(name, times.s, times.kv_percent)))
        queues.append(_thinned(Line(name, times.s, times.waiting)))
    return [
        *drawn,
        Lines("TTFT: requests within x ms, %", shares, "ms"),
        Lines("KV blocks in use, % of the pool (busiest rank)", pools, "s"),
        Lines("waiting requests (busiest rank)", queues, "s"),
    ]


def _waterfall(a: Attribution) -> Waterfall:
    steps = [(name, ns / 1e6) for name, ns in a.terms.items() if ns]
    title = f"{LATENCIES[a.latency]} summed over requests: from base to head"
    return Waterfall(title, a.base_ns / 1e6, steps, a.head_ns / 1e6, "ms")


def _upto(name: str, points: Points) -> Line:
    n = max(1, round(len(points.x) * SHARE))
    return _thinned(Line(name, points.x[:n], points.y[:n]))


def _thinned(line: Line) -> Line:
    """The highest of every few points, so that no peak is lost."""
    n = len(line.x)
    if n <= POINTS:
        return line
    cuts = [range(i * n // POINTS, (i + 1) * n // POINTS) for i in range(POINTS)]
    kept = [max(cut, key=lambda i: line.y[i]) for cut in cuts]
    return Line(line.name, [line.x[i] for i in kept], [line.y[i] for i in kept])
