"""Every view on the replay drawn in hand_made.py, with the numbers of the drawing. Request ids: A 0, B 2, C 3."""

from __future__ import annotations

import json
from collections.abc import Iterator

import duckdb
import numpy as np
import pytest

from assets import views
from assets.checks import check_run
from assets.golden import rebuild
from assets.views import load_views, open_store
from perf_db.store import Identity
from perf_db.views import ViewError, in_order, parse_view
from sim.distribution import rank
from sim.inputs import Workload
from sim.metrics import Sla, compute, is_good
from sim.reference import replay
from sim.result import TABLES, MemorySink
from sim.spec import EngineSpec, FixedTiming, Speculation
from tests.perf_db.hand_made import A, B, C, hand_made, run_facts, write_run

REPLAY = "0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """Two runs of the same replay: a view that mixes them up gives itself away."""
    store = open_store(tmp_path_factory.mktemp("views"))
    write_run(store, "r1")
    write_run(store, "r2")
    with store.connect() as connection:
        yield connection


def ask(con: duckdb.DuckDBPyConnection, select: str, view: str, order: str = "ALL") -> list[tuple]:
    return con.execute(f"SELECT {select} FROM {view} WHERE run_id = 'r2' ORDER BY {order}").fetchall()


def test_request_latency(con):
    columns = "request_id, queue_ms, ttft_ms, ttst_ms, tpot_ms, mean_itl_ms, e2e_ms, cached_share"
    assert ask(con, columns, "request_latency") == [
        (0, 0.0, 10.0, 20.0, 14.0, 14.0, 52.0, 0.0),
        (2, 6.0, 26.0, 5.0, 5.0, 5.0, 31.0, 32 / 60),
        (3, 15.0, 20.0, None, None, None, 20.0, 0.0),  # one token: no gap, and that is not zero
    ]


def test_latency_summary(con):
    columns = "latency, n, mean_ms, p50_ms, p90_ms, p99_ms, max_ms"
    assert ask(con, columns, "latency_summary") == [
        ("e2e", 3, 103 / 3, 31.0, 52.0, 52.0, 52.0),
        ("queue", 3, 7.0, 6.0, 15.0, 15.0, 15.0),
        ("tpot", 2, 9.5, 14.0, 14.0, 14.0, 14.0),  # of two values the median is the upper one: halves up
        ("ttft", 3, 56 / 3, 20.0, 26.0, 26.0, 26.0),
        ("ttst", 2, 12.5, 20.0, 20.0, 20.0, 20.0),
    ]


def test_token_times(con):
    columns = "request_id, token_no, span_no, pass_no, token_ns // 1000000, since_arrival_ms"
    assert ask(con, columns, "token_times") == [
        (0, 0, 0, 0, 10, 10.0),
        (0, 1, 0, 1, 30, 30.0),
        (0, 2, 0, 2, 35, 35.0),
        (0, 3, 1, 4, 52, 52.0),
        (2, 0, 0, 1, 30, 26.0),
        (2, 1, 0, 2, 35, 31.0),
        (3, 0, 0, 3, 40, 20.0),
    ]


def test_itl_gaps_count_a_gap_once_for_all_who_had_it(con):
    assert ask(con, "pass_no, gap_ms, n_gaps, across_spans", "itl_gaps") == [
        (1, 20.0, 1, False),  # A
        (2, 5.0, 2, False),  # A and B
        (4, 17.0, 1, True),  # A, which sat out pass 3
    ]


def test_itl_summary_is_over_every_gap(con):
    """Gaps 5, 5, 17, 20."""
    columns = "n, mean_ms, p50_ms, p90_ms, p99_ms, max_ms"
    assert ask(con, columns, "itl_summary") == [(4, 11.75, 17.0, 20.0, 20.0, 20.0)]


def test_itl_gaps_are_those_of_completed_requests(tmp_path):
    """As the metrics have it (rule 12.1): stop the replay before A ends, and only B's gap is left."""
    tables = hand_made()
    tables["requests"]["status"][A] = 2
    store = open_store(tmp_path)
    write_run(store, "r1", tables=tables)
    with store.connect() as con:
        assert con.execute("SELECT gap_ms, n_gaps FROM itl_gaps").fetchall() == [(5.0, 1)]


def test_views_and_metrics_agree_to_the_last_bit(tmp_path):
    """A replay with preemptions on two ranks, against the figures of `sim.metrics`."""
    rng = np.random.default_rng(0)
    n = 60
    workload = Workload(
        arrival_ns=np.sort(rng.integers(0, 2_000_000_000, n)),
        prompt_tokens=rng.integers(1, 200, n),
        output_tokens=rng.integers(1, 60, n),
    )
    spec = EngineSpec(
        timing=FixedTiming(10, 5), blocks=40, block_tokens=16, max_num_seqs=8, max_batched_tokens=256, dp=2
    )
    kept = MemorySink()
    outcome = replay(spec, workload, kept)
    store = open_store(tmp_path)
    with store.begin("r1", identity=Identity(np.arange(n))) as writer:
        for name in TABLES:
            writer.rows(name, kept.table(name))
        writer.metrics(compute(kept.table("requests"), outcome, None, spec, sla=Sla(ttft_ms=40, itl_ms=7)).rows())
        writer.commit(run_facts())
    with store.connect() as con:
        query = "SELECT metric, stat, value FROM metrics WHERE scope = 'run'"
        figures = {(metric, stat): value for metric, stat, value in con.execute(query).fetchall()}
        assert figures["preemptions", "total"] > 0
        latencies = con.execute(
            "SELECT latency, mean_ms, p50_ms, p90_ms, p99_ms, max_ms FROM latency_summary"
        ).fetchall()
        latencies += con.execute("SELECT 'itl', mean_ms, p50_ms, p90_ms, p99_ms, max_ms FROM itl_summary").fetchall()
        for latency, *found in latencies:
            metric = {"e2e": "e2e_latency"}.get(latency, latency)
            if metric != "queue":
                assert found == [figures[metric, stat] for stat in ("mean", "median", "p90", "p99", "max")], metric
        reuse = con.execute("SELECT reuse_first, reuse_max FROM prefix_reuse").fetchone()
        assert reuse == (figures["prefix_reuse", "first"], figures["prefix_reuse", "max"])
        good = con.execute("SELECT n_good, good_tokens_per_s FROM goodput(ttft_ms := 40, itl_ms := 7)").fetchone()
        assert good == (figures["goodput", "completed"], figures["goodput", "output_throughput"])
        (rate,) = con.execute("SELECT output_tokens_per_s FROM replay_totals").fetchone()
        assert rate == figures["output_throughput", "mean"]
        (same,) = con.execute(
            "SELECT count(*) = 0 FROM (SELECT pass_no, dp_rank, scheduled_tokens FROM passes "
            "EXCEPT SELECT pass_no, dp_rank, sum(n_tokens) FROM pass_requests GROUP BY ALL)"
        ).fetchone()
        assert same


@pytest.mark.parametrize("profile", ["vllm", "parity"])
@pytest.mark.parametrize("two_in_flight", [False, True])
def test_views_of_a_replay_that_drafts(tmp_path, profile, two_in_flight):
    """Bursts, preemptions and two ranks: views against what the tables are rebuilt to, and against the metrics."""
    rng = np.random.default_rng(1)
    n = 40
    workload = Workload(
        arrival_ns=np.sort(rng.integers(0, 500_000_000, n)),
        prompt_tokens=rng.integers(1, 200, n),
        output_tokens=rng.integers(1, 90, n),
    )
    spec = EngineSpec(
        profile=profile, timing=FixedTiming(10, 5), blocks=40, block_tokens=16, max_num_seqs=8, max_batched_tokens=256,
        dp=2, async_scheduling=two_in_flight, speculation=Speculation("mtp", 3, (0.8, 0.6, 0.4)),
    )  # fmt: skip
    kept = MemorySink()
    outcome = replay(spec, workload, kept)
    tables = {name: kept.table(name) for name in TABLES}
    store = open_store(tmp_path)
    with store.begin("r1", identity=Identity(np.arange(n))) as writer:
        for name in TABLES:
            writer.rows(name, tables[name])
        metrics = compute(tables["requests"], outcome, None, spec, acceptance=tables["acceptance"])
        writer.metrics(metrics.rows())
        writer.commit(run_facts())
    with store.connect() as con:
        assert con.execute("SELECT count(*) FROM pressure").fetchone() > (0,)
        times = con.execute(
            "SELECT request_id, list(token_ns ORDER BY token_no) FROM token_times GROUP BY 1"
        ).fetchall()
        assert dict(times) == {r: t for r, t in enumerate(rebuild.token_times(tables)) if t}
        for dp_rank in (0, 1):
            columns = "pass_no, request_id, n_tokens, n_drafts, computed_before"
            query = f"SELECT {columns} FROM pass_requests WHERE dp_rank = {dp_rank}"
            wanted = rebuild.passes(tables, 0, dp_rank, in_flight=1 + (two_in_flight and profile == "vllm"))
            assert sorted(con.execute(query).fetchall()) == sorted(
                (p.row["pass_no"], s.request, s.tokens, s.drafts, s.computed_before) for p in wanted for s in p.requests
            )
        assert all(verdict.passed for verdict in check_run(con, "r1"))
        found = con.execute("SELECT n, mean_ms, p50_ms, p90_ms, p99_ms, max_ms FROM itl_summary").fetchone()
        itl = metrics.run.latencies["itl"]
        assert found == (itl.n, *(itl.stats()[s] for s in ("mean", "median", "p90", "p99", "max")))


def test_kv_usage(con):
    assert ask(con, "pass_no, start_s, active_blocks, blocks, active_share, cached_share", "kv_usage") == [
        (0, 0.0, 7, 20, 0.35, 0.0),
        (1, 0.01, 9, 20, 0.45, 0.1),
        (2, 0.03, 11, 20, 0.55, 0.1),
        (3, 0.035, 13, 20, 0.65, 0.3),
        (4, 0.04, 7, 20, 0.35, 0.2),
    ]


def test_queue_depth(con):
    columns = "pass_no, chosen_s, n_running, n_waiting, n_waiting_preempted, n_present"
    assert ask(con, columns, "queue_depth")[2:] == [
        (2, 0.03, 2, 1, 0, 3),
        (3, 0.035, 1, 0, 1, 2),
        (4, 0.04, 1, 0, 0, 1),
    ]


def test_pass_mix(con):
    columns = "mix, n_passes, share_of_passes, busy_ms, share_of_time, prefill_tokens, n_tokens, mean_decode"
    assert ask(con, columns, "pass_mix") == [
        ("decode_only", 1, 0.2, 5.0, 5 / 52, 0, 2, 2.0),
        ("mixed", 2, 0.4, 32.0, 32 / 52, 64, 3, 1.0),  # pass 1, and A's recomputation, which ends in a decode
        ("prefill_only", 2, 0.4, 15.0, 15 / 52, 300, 2, 0.0),
    ]


def test_prefix_reuse(con):
    columns = "n_requests, n_hits, input_tokens, reused_first_tokens, reused_max_tokens, reuse_first, reuse_max"
    assert ask(con, columns, "prefix_reuse") == [(3, 1, 360, 32, 96, 32 / 360, 96 / 360)]


def test_preemption_summary(con):
    columns = "n_preemptions, n_victims, max_per_request, self_preemptions, tokens_lost, blocks_released, first_s"
    assert ask(con, columns, "preemption_summary") == [(1, 1, 1, 0, 102, 7, 0.035)]


def test_preemption_summary_says_zero_where_there_was_none(tmp_path):
    store = open_store(tmp_path)
    write_run(store, "r1", tables={"requests": hand_made()["requests"]})
    with store.connect() as con:
        assert con.execute("SELECT n_preemptions, n_victims, first_s FROM preemption_summary").fetchall() == [
            (0, 0, None)
        ]


def test_replay_totals(con):
    columns = "n_requests, n_completed, input_tokens, output_tokens, duration_s, requests_per_s, output_tokens_per_s"
    assert ask(con, columns, "replay_totals") == [(5, 3, 360, 7, 0.052, 3 / 0.052, 7 / 0.052)]


def test_evidence_summary(con):
    columns = "phase, n_cells, n_lookups, total_ms, extrapolated_lookups, extrapolated_share"
    assert ask(con, columns, "evidence_summary") == [("decode", 1, 3, 12.0, 0, 0.0), ("prefill", 2, 4, 40.0, 1, 0.125)]


def test_pass_requests_are_the_batches_as_chosen(con):
    columns = "pass_no, request_id, kind, n_tokens, computed_before, cached_tokens"
    assert ask(con, columns, "pass_requests") == [
        (0, 0, "new", 100, 0, 0),
        (1, 0, "decode", 1, 100, None),
        (1, 2, "new", 28, 32, 32),
        (2, 0, "decode", 1, 101, None),
        (2, 2, "decode", 1, 60, None),
        (3, 3, "new", 200, 0, 0),
        (4, 0, "resumed", 39, 64, 64),
    ]
    per_pass = "SELECT sum(n_tokens) FROM pass_requests WHERE run_id = 'r2' GROUP BY pass_no ORDER BY pass_no"
    scheduled = "SELECT scheduled_tokens FROM passes WHERE run_id = 'r2' ORDER BY pass_no"
    assert con.execute(per_pass).fetchall() == con.execute(scheduled).fetchall()


@pytest.mark.parametrize(
    ("limits", "good"),
    [
        ({"ttft_ms": 20}, [A, C]),  # C is exactly on the limit
        ({"itl_ms": 5}, [B, C]),  # C has one token, hence no gap
        ({"ttft_ms": 26, "itl_ms": 13.9}, [B, C]),
        ({"e2e_ms": 31}, [B, C]),
        ({"e2e_ms": 19.999999}, []),
    ],
)
def test_goodput_agrees_with_the_metrics(con, limits, good):
    arguments = ", ".join(f"{name} := {value}" for name, value in limits.items())
    query = f"SELECT n_completed, n_good, good_requests_per_s FROM goodput({arguments}) WHERE run_id = 'r2'"
    assert con.execute(query).fetchall() == [(3, len(good), len(good) * 1e9 / 52_000_000)]
    requests = hand_made()["requests"]
    assert is_good(requests, requests["status"] == 0, Sla(**limits)).nonzero()[0].tolist() == good


def test_goodput_wants_one_kind_of_limit(con):
    with pytest.raises(duckdb.Error, match="name at least one of"):
        con.execute("FROM goodput()").fetchall()
    with pytest.raises(duckdb.Error, match="e2e_ms excludes ttft_ms and itl_ms"):
        con.execute("FROM goodput(e2e_ms := 1, ttft_ms := 1)").fetchall()


@pytest.mark.parametrize("n", [1, 2, 3, 10, 11, 12, 101])
def test_pct_is_the_percentile_of_the_metrics(con, n):
    for p in (0, 25, 50, 75, 90, 99, 100):
        (value,) = con.execute(f"SELECT pct(i * 10, {p}) FROM range({n}) t(i)").fetchone()
        assert value == rank(n, p) * 10


def test_pct_of_the_specification(con):
    values = "[22, 0, 4, 1, 1, 2.5, 4, 7.25, 9.5, 15, 22, 100, NULL]"
    assert con.execute(f"SELECT pct(x, 50) FROM unnest({values}) t(x)").fetchone() == (7.25,)
    assert con.execute("SELECT pct(x, 50) FROM unnest([]::INTEGER[]) t(x)").fetchone() == (None,)


@pytest.mark.parametrize("view", [v for v in load_views() if not v.is_macro], ids=lambda v: v.name)
def test_every_column_is_explained_and_every_row_names_its_replay(con, view):
    names_a_row = {"run_id", "replay_id", "request_id", "external_id", "worker", "dp_rank", "pass_no"}
    stored = {"arrival_ns", "prompt_tokens", "output_tokens"}  # as in the table of that name
    columns = [c[0] for c in con.execute(f"FROM {view.name} LIMIT 0").description]
    assert set(view.columns) <= set(columns)
    assert set(columns) - set(view.columns) <= names_a_row | stored
    assert columns[0] == "replay_id" if view.name == "replay_conflicts" else columns[:2] == ["run_id", "replay_id"]
    comments = dict(
        con.execute(
            "SELECT column_name, comment FROM duckdb_columns() WHERE database_name = 'tracemill' AND table_name = ?",
            [view.name],
        ).fetchall()
    )
    assert {c: comments[c] for c in view.columns} == dict(view.columns)


@pytest.mark.parametrize("view", [v.name for v in load_views() if not v.is_macro and v.name != "replay_conflicts"])
def test_a_filter_on_the_run_reads_only_its_files(con, view):
    (_, plan), *_ = con.execute(f"EXPLAIN ANALYZE SELECT * FROM {view} WHERE run_id = 'r2'").fetchall()
    assert "Scanning Files: 2/2" not in plan and "run_id=r1/" not in plan


def joins(node: dict) -> list[list[str]]:
    """Conditions of every join in a plan."""
    found = node.get("extra_info", {}).get("Conditions", [])
    own = [[found] if isinstance(found, str) else found] if "JOIN" in node["name"] else []
    return own + [c for child in node["children"] for c in joins(child)]


@pytest.mark.parametrize("view", ["token_times", "itl_gaps", "itl_summary", "pass_requests"])
def test_no_join_has_only_the_run_in_common(con, view):
    """With the run fixed, such a join is a cross product: 262,144 requests x 133,000 passes once filled a disk."""
    (_, plan), *_ = con.execute(f"EXPLAIN (FORMAT json) SELECT * FROM {view} WHERE run_id = 'r2'").fetchall()
    found = [conditions for node in json.loads(plan) for conditions in joins(node)]
    assert found
    assert all(len(conditions) > 1 for conditions in found), found


def test_no_view_adds_up_doubles():
    """sum(DOUBLE) depends on the order of addition."""
    for view in load_views():
        assert "avg(" not in view.statement.lower(), view.name


def test_the_page_is_up_to_date():
    assert views.PAGE.read_text() == views.page(), "run: python -m assets.views"


def test_what_a_column_means_may_take_several_lines():
    view = parse_view(
        "v", "-- One row\n-- is one.\n-- a [ms] how\n-- long\n-- b [] what\nCREATE OR REPLACE VIEW v AS SELECT 1"
    )
    assert view.comment == "One row is one."
    assert view.columns == {"a": "[ms] how long", "b": "[] what"}


def test_views_come_after_those_they_read():
    order = [v.name for v in in_order(load_views())]
    assert order.index("request_latency") < order.index("latency_summary")
    assert order.index("itl_gaps") < order.index("itl_summary")
    circle = [parse_view(n, f"-- x\nCREATE OR REPLACE VIEW {n} AS FROM {m}") for n, m in ("ab", "ba")]
    with pytest.raises(ViewError, match="in a circle"):
        in_order(circle)


@pytest.mark.parametrize(
    "text",
    [
        "-- one row\nCREATE VIEW v AS SELECT 1",
        "-- one row\nCREATE OR REPLACE VIEW w AS SELECT 1",
        "-- one row\nCREATE OR REPLACE VIEW v AS SELECT 1; DROP TABLE runs",
        "CREATE OR REPLACE VIEW v AS SELECT 1",
    ],
)
def test_a_view_file_holds_one_explained_view_of_its_name(text):
    with pytest.raises(ViewError, match="view 'v': the text must"):
        parse_view("v", text)
