"""Reports are whole pages that need nothing else, and say what the tables say."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from assets.desk.pair import Recorded
from assets.desk.report import series
from assets.desk.report.of_diff import diff_page
from assets.desk.report.of_run import run_page
from assets.desk.session import open_run
from perf_db.layout import StoreError
from perf_db.shard import ALWAYS_KEPT, ShardWriter
from perf_db.store import Store
from tests.assets.desk.large import long_run
from tests.assets.desk.tamper import tamper
from tests.assets.desk.worlds import deployment, record, traffic
from tests.perf_db.hand_made import write_run
from tests.pipelines.conftest import Cli, cli, root, tiny  # noqa: F401  (fixtures)


class Links(HTMLParser):
    """Everything that a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [str(v) for k, v in attrs if k in ("src", "href", "data", "poster", "srcset")]


def text_of(page: str) -> str:
    """The page without its scripts and styles."""
    return re.sub(r"<(script|style)[^>]*>.*?</\1>", "", page, flags=re.DOTALL)


def test_a_run_as_a_page(tmp_path: Path) -> None:
    side = record(tmp_path, "r", deployment(2, blocks=20), traffic(2), name="small & <mild>").recorded
    page = run_page(side)
    links = Links()
    links.feed(page)
    assert links.found == []
    text = text_of(page)
    assert "small &amp; &lt;mild&gt;" in text and "checks, all fine" in text
    assert page.count('class="chart') == 7 and "Plotly.newPlot" in page
    assert f">{side.run['n_passes']:,}<" in text


def test_what_is_wrong_stands_on_top(tmp_path: Path) -> None:
    record(tmp_path, "run", deployment(2, blocks=20), traffic(2))
    tamper(tmp_path, "run", "UPDATE passes SET n_admitted = 0 WHERE pass_no = 0 AND dp_rank = 0")
    text = text_of(run_page(Recorded.of_store(Store(tmp_path), "run")))
    assert "A law is broken: the figures mean nothing" in text and "passes_count_their_requests" in text


def test_a_diff_as_a_page(tmp_path: Path) -> None:
    base = record(tmp_path, "base", deployment(3), traffic(3)).recorded
    head = record(tmp_path, "head", deployment(3, max_num_seqs=2), traffic(3)).recorded
    page = diff_page(base, head)
    links = Links()
    links.feed(page)
    assert links.found == []
    text = text_of(page)
    for said in ("engine.max_num_seqs", "admission/gate", "First divergent pass", "Requests that moved most"):
        assert said in text
    assert page.count('class="chart') == 8 and '"waterfall"' in page
    assert "The same rows" in text_of(diff_page(base, base))


def test_charts_of_a_long_run_stay_small(tmp_path: Path) -> None:
    side = long_run(tmp_path, "r", 20_000)
    with open_run(side) as con:
        times = series.over_time(con, "r")
        passes = series.passes(con, "r", 20_000)
        shares = series.distribution(con, "r", "TTFT")
    assert len(times.s) <= series.BUCKETS and len(shares.x) <= series.BUCKETS + 1
    assert all(len(p.x) <= series.BUCKETS + 1 for p in passes.values())
    assert max(times.running) == 1 and shares.y[-1] == 100


def test_rows_that_were_not_kept_make_no_page(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with ShardWriter(store, "shard-1") as shard:
        write_run(shard.scratch, "a")
        shard.take("a", keep=ALWAYS_KEPT)
        shard.commit({})
    with pytest.raises(StoreError, match="were not kept"):
        run_page(Recorded.of_store(store, "a"))


def test_the_command(cli: Cli, tiny: Path, root: Path, tmp_path: Path) -> None:  # noqa: F811
    for change in ((), ("--set", "engine.workers.aggregated.timing.decode_ms=4")):
        assert cli("replay", tiny, "--json", *change).exit_code == 0
    first = json.loads(cli("sql", "SELECT min(run_id) AS r FROM runs", "--format", "json").stdout)["r"]
    target = tmp_path / "page.html"
    for words in (("last",), (first, "last"), ()):
        made = cli("report", *words, "-o", target)
        assert made.exit_code == 0 and "self-contained" in made.stdout
        assert target.read_text().startswith("<!doctype html>")
    assert cli("report", "a", "b", "c", "-o", target).exit_code == 2
    assert cli("report", "nobody", "-o", target).exit_code == 2
    assert cli("report", "last", "-o", tmp_path / "no" / "such.html").exit_code == 2
    assert not list(tmp_path.glob(".page*"))
