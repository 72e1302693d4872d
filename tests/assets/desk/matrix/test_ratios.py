"""Ratios of prefill to decode workers, side by side: the view's rows of a suite's last runs, the command, Dagster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from assets.desk.matrix.ratios import SHOWN, cells, ratios
from assets.desk.matrix.run import run_matrix
from assets.desk.matrix.suite import load_suite
from assets.scenarios import _ratios
from assets.views import open_store
from perf_db.store import Store
from tests.pipelines.conftest import Cli, cli, root  # noqa: F401  (fixtures)

ROOT = Path(__file__).parents[4]
TIMING = {"type": "fixed", "prefill_ms": 40, "decode_ms": 5}
SUITE = {
    "keep": "all",
    "common": {
        "evaluation.sla": {"ttft_ms": 400},
        "traffic.source": {"type": "synthetic", "input_tokens": 200, "output_tokens": 30},
        "traffic.stop": {"requests": 24},
        "traffic.load": {"type": "poisson", "requests_per_second": 30},
        "engine.workers": {
            role: {"kv_cache": {"capacity": {"type": "fixed", "blocks": 200}}, "timing": TIMING}
            for role in ("prefill", "decode")
        },
        "engine.mode": "disaggregated",
        "profile": "parity",
    },
    "engines": {
        f"p{p}d{d}": {f"engine.workers.{role}.parallelism.replicas": n for role, n in (("prefill", p), ("decode", d))}
        for p, d in ((1, 3), (2, 2), (3, 1))
    },
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("ratios")
    (folder / "pd.yaml").write_text(yaml.safe_dump(SUITE))
    store = open_store(folder / "warehouse")
    outcome = run_matrix(load_suite(folder / "pd.yaml"), store, folder / "baselines", workers=1)
    assert outcome.count("new") == 3
    return store


def test_the_best_ratio_stands_first_and_says_what_limits(store: Store) -> None:
    rows = ratios(store, "pd")
    assert {row["ratio"] for row in rows} == {"1:3", "2:2", "3:1"} and {row["gpus"] for row in rows} == {4}
    good = [row["good_requests_per_s_per_gpu"] for row in rows]
    assert good == sorted(good, reverse=True) and good[0] > good[-1]
    limits = {row["ratio"]: row["limited_by"] for row in rows}
    assert limits["1:3"] == "prefill"  # a prompt at a time takes 40 ms, and they come every 33
    assert limits["3:1"] == "neither"
    assert [row["scenario"] for row in rows][-1] == "p1d3"
    with store.connect() as con:
        n_good = "SELECT count(*) FROM request_first_token WHERE run_id = ? AND ttft_at_ns - arrival_ns <= 400e6"
        for row in rows:
            assert con.execute(n_good, [row["run_id"]]).fetchone() == (round(row["good_share"] * 24),)
    assert set(cells(rows[0])) == {"scenario", *SHOWN.values()}
    assert ratios(store, "other") == []
    told = _ratios(store, "pd")["prefill_to_decode"]
    assert [record.data["P:D"] for record in told.records] == [row["ratio"] for row in rows]
    assert _ratios(store, "other") == {}


def test_the_command(store: Store, cli: Cli, tmp_path: Path) -> None:  # noqa: F811
    suite = tmp_path / "pd.yaml"
    suite.write_text(yaml.safe_dump(SUITE))
    shown = cli("matrix", "ratios", suite, "-w", store.root)
    assert shown.exit_code == 0 and "limited by" in shown.stdout and "3:1" in shown.stdout
    rows = json.loads(cli("matrix", "ratios", suite, "--json", "-w", store.root).stdout)
    assert rows == json.loads(json.dumps(ratios(store, "pd")))
    none = cli("matrix", "ratios", suite, "-w", tmp_path / "empty")
    assert none.exit_code == 2 and "separate pools" in none.stderr


def test_the_suite_that_ships_has_three_ratios_of_four_workers() -> None:
    suite = load_suite(ROOT / "examples" / "scenarios" / "pools.yaml")
    shapes = [tuple(side.worker.parallelism.replicas for side in s.config.sides) for s in suite.scenarios]
    assert shapes == [(1, 3), (2, 2), (3, 1)]
