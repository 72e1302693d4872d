"""From a configuration to prices: which estimator answers, what is recorded, and what is refused."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

from assets.checks import check_run
from assets.pricing import price_deployment
from assets.replay_run import RunReport, run_replay
from assets.strict import ExtrapolationError
from assets.views import open_store
from perf_db.gpu import source
from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.forward import write_forward_table
from perf_db.gpu.forward_jsonl import RankWork
from perf_db.gpu.snapshot import Corrections, Options, Snapshot
from sim.config import ConfigError, load_run_config
from sim.errors import TimingError
from sim.timing.tables import ArrayTiming
from tests.perf_db.gpu.forward_rows import rows

needs_data = pytest.mark.skipif(
    importlib.util.find_spec("aiconfigurator_core") is None, reason="needs the extra: pip install 'tracemill[perfdata]'"
)


def values(timing: dict[str, Any], **engine: Any) -> dict[str, Any]:
    return {
        "traffic": {
            "source": {"type": "synthetic", "input_tokens": 100, "output_tokens": 8},
            "load": {"type": "concurrency", "concurrency": 4},
            "stop": {"requests": 12},
        },
        "engine": {
            "model": "Qwen/Qwen3-32B",
            "hardware": "h200_sxm",
            "backend_version": "0.24.0",
            "context_length": 4096,
            "workers": {
                "aggregated": {
                    "parallelism": {"tensor": 2},
                    "scheduler": {"max_batched_tokens": 512, "max_sequences": 8},
                    "kv_cache": {"block_size": 16, "capacity": {"type": "fixed", "blocks": 300}},
                    "timing": {"type": "default", **timing},
                }
            },
            **engine,
        },
    }


def replayed(tmp_path: Path, content: dict[str, Any], *overrides: str) -> RunReport:
    config = load_run_config(content, overrides=overrides)
    return run_replay(config, open_store(tmp_path / "warehouse"), base=tmp_path)


def ask(tmp_path: Path, sql: str) -> list[tuple[Any, ...]]:
    with open_store(tmp_path / "warehouse").connect() as con:
        return con.execute(sql).fetchall()


@pytest.fixture
def no_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "PACKAGE", "a_package_that_nobody_has")


@pytest.fixture
def forward(tmp_path: Path) -> dict[str, Any]:
    """A whole-forward table beside the configuration, wide enough for its traffic."""
    prefill = [(b, t, 0, 5.0 + t / 100) for b in (1, 2, 3, 4) for t in (b, 1_000)]
    decode = [(b, kv, 2.0 + b / 10 + kv / 1_000) for b in (1, 2, 3, 4) for kv in (b, 5_000)]
    own = {"model_path": "Qwen/Qwen3-32B", "tp": 2}
    write_forward_table(tmp_path / "t.parquet", rows(prefill, decode, **own), measurement_policy="by hand")
    return values({"fpm_parquet_path": "t.parquet"}, estimation_mode="fpm_interpolation")


def test_a_given_timing_needs_no_data(tmp_path: Path) -> None:
    found = price_deployment(load_run_config(values({"type": "polynomial"})), base=tmp_path)
    assert (found.source, found.provenance, found.mixed_pass) == ("given", {}, "two_prices")


def test_a_run_at_whole_forward_prices_says_so_and_its_evidence_adds_up(
    tmp_path: Path, forward: dict[str, Any]
) -> None:
    report = replayed(tmp_path, forward)
    assert (report.run["timing"], report.run["mixed_pass"]) == ("fpm_interpolation", "composed")
    about = json.loads(report.run["provenance_json"])["performance"]
    assert about["identity"]["tp"] == 2 and about["file"] == "t.parquet" and len(about["sha256"]) == 64
    with open_store(tmp_path / "warehouse").connect() as con:
        assert [v.law.name for v in check_run(con, report.run_id) if not v.passed] == []
    phases = ask(tmp_path, "SELECT phase, source, sum(n_lookups) FROM evidence GROUP BY ALL")
    assert {phase for phase, _, _ in phases} >= {"prefill", "decode"}
    assert {how for _, how, _ in phases} <= {"measured", "interpolated"}
    spent = ask(tmp_path, "SELECT phase, operator, total_ms FROM time_by_operator")
    assert {operator for _, operator, _ in spent} == {"all"}
    paid = ask(tmp_path, "SELECT sum(prefill_ns + decode_ns) / 1e6 FROM passes")
    assert sum(ms for _, _, ms in spent) == pytest.approx(paid[0][0])


def test_a_run_says_which_method_answered_its_prefills(tmp_path: Path) -> None:
    """A known model and system, and no operator table: the rooflines of both compare what was measured."""
    from tests.perf_db.gpu.measured import write_root
    from tests.perf_db.gpu.tiny import CONFIG, MODEL

    write_root(tmp_path / "data", {})
    (tmp_path / "data" / "model_configs" / "tiny--dense_config.json").write_text(json.dumps(CONFIG))
    prefill = [(b, t, kv, 5.0 + t / 100) for b in (1, 4) for t in (b, 1_000) for kv in (0, 4_000)]
    decode = [(b, kv, 2.0) for b in (1, 2, 3, 4) for kv in (b, 5_000)]
    write_forward_table(tmp_path / "t.parquet", rows(prefill, decode, model_path=MODEL), measurement_policy="by hand")
    content = values({"fpm_parquet_path": "t.parquet", "perf_root": "data"}, estimation_mode="fpm_interpolation")
    content["engine"] |= {"model": MODEL}
    content["engine"]["workers"]["aggregated"]["parallelism"]["tensor"] = 1
    # Batches 2 and 3 were not measured, which only rooflines bridge.
    content["traffic"] |= {"load": {"type": "concurrency", "concurrency": 3}}
    report = replayed(tmp_path, content)
    about = json.loads(report.run["provenance_json"])["performance"]
    assert about["prefill_method"] == "roofline" and report.run["n_completed"] == 12
    assert set(about["roofline"]["files"]) == {"systems/h200_sxm.yaml", "model_configs/tiny--dense_config.json"}
    assert ask(tmp_path, "SELECT max(n_prefill) FROM passes")[0][0] in (2, 3)
    # A model that nobody knows: between the curves of one batch, and the run says why.
    unknown = rows(prefill, decode, model_path="tiny/other")
    write_forward_table(tmp_path / "t.parquet", unknown, measurement_policy="by hand")
    content["engine"] |= {"model": "tiny/other"}
    made = price_deployment(load_run_config(content), base=tmp_path)
    assert made.provenance["prefill_method"] == "direct"
    assert made.provenance["no_roofline"]["reason"] == "unknown_model"
    with pytest.raises(TimingError, match="answers between measured curves only"):
        replayed(tmp_path, content)
    with pytest.raises(PerfDataError, match=r"no systems/ and no model_configs/"):
        replayed(tmp_path, content, "engine.workers.aggregated.timing.perf_root=elsewhere")


def test_the_deployment_must_be_the_tables_own(tmp_path: Path, forward: dict[str, Any]) -> None:
    with pytest.raises(PerfDataError, match=r"no cell is exactly this deployment.*tp is 2, asked for 4"):
        replayed(tmp_path, forward, "engine.workers.aggregated.parallelism.tensor=4")
    assert not list((tmp_path / "warehouse").glob("runs/*"))


def test_a_flat_addition_to_mixed_passes_changes_the_run_and_its_identity(
    tmp_path: Path, forward: dict[str, Any]
) -> None:
    stretched = {
        "source": {"type": "synthetic", "input_tokens": 100, "output_tokens": {"type": "uniform", "min": 2, "max": 9}}
    }
    forward["traffic"] |= stretched
    plain = replayed(tmp_path, forward)
    dearer = replayed(tmp_path, forward, "engine.workers.aggregated.timing.mixed_pass_extra_ms=5")
    assert dearer.replay_id != plain.replay_id
    mixed = ask(
        tmp_path,
        "SELECT run_id, max(prefill_ns) FROM passes WHERE n_prefill > 0 AND n_decode > 0 GROUP BY 1 ORDER BY 1",
    )
    assert mixed[1][1] > mixed[0][1] + 4_000_000


def tuned(tmp_path: Path, forward: dict[str, Any], **identity: Any) -> None:
    from assets.pricing import native_identity

    made = price_deployment(load_run_config(forward), base=tmp_path)
    own = native_identity(made.provenance["identity"], made.spec.timing) | identity
    kept = Corrections(Options(min_observations=1))
    kept.observe(RankWork(4, 400), 10.0, 15.0)
    Snapshot(own, kept, {}, {"made_from": "by hand"}).save(tmp_path / "s.json")


def test_a_snapshot_corrects_and_evidence_says_where(tmp_path: Path, forward: dict[str, Any]) -> None:
    tuned(tmp_path, forward)
    snapshot = "engine.workers.aggregated.timing.snapshot=s.json"
    plain, corrected = replayed(tmp_path, forward), replayed(tmp_path, forward, snapshot)
    assert plain.replay_id != corrected.replay_id
    found = dict(ask(tmp_path, f"SELECT correction_bin, correction FROM evidence WHERE run_id = '{corrected.run_id}'"))
    assert found[0] == 1.5
    assert json.loads(corrected.run["provenance_json"])["performance"]["snapshot"]["observations"]["prefill"] == 1
    first = [r[0] for r in ask(tmp_path, "SELECT prefill_ns FROM passes WHERE pass_no = 0 ORDER BY run_id")]
    assert first[1] == first[0] * 1.5


def test_a_snapshot_of_another_deployment_or_of_other_data_is_refused(tmp_path: Path, forward: dict[str, Any]) -> None:
    snapshot = "engine.workers.aggregated.timing.snapshot=s.json"
    for change in ({"tp": 8}, {"native": "other"}):
        tuned(tmp_path, forward, **change)
        with pytest.raises(PerfDataError, match="tuned for another deployment"):
            replayed(tmp_path, forward, snapshot)


def test_tuning_halves_what_was_measured_twice_as_fast(tmp_path: Path, forward: dict[str, Any]) -> None:
    from assets.perf_tune import tune_snapshot

    def line(np_: int, tp: int, b: int, kv: int, ms: float) -> str:
        counts = {"num_prefill_requests": np_, "sum_prefill_tokens": tp, "num_decode_requests": b}
        return json.dumps({"wall_time": ms / 1e3, "scheduled_requests": counts | {"sum_decode_kv_tokens": kv}})

    # Prefills take what the table says (5 ms and 0.01 ms a token), decodes of four requests half of it.
    lines = [line(1, t, 0, 0, 5.0 + t / 100) for t in range(100, 200, 10)]
    lines += [line(0, 0, 4, kv, (2.4 + kv / 1_000) / 2) for kv in range(400, 500, 10)]
    lines.append(line(9, 9_000, 0, 0, 50.0))  # the table does not reach so far
    (tmp_path / "seen.jsonl").write_text("\n".join(lines))
    config = load_run_config(forward)
    made = tune_snapshot(config, tmp_path / "seen.jsonl", base=tmp_path)
    assert made.counts == {"used": 20, "outside": 0, "unpriced": 1, "idle": 0, "untimed": 0}
    assert made.native_error > 0.4 and made.corrected_error < 1e-9
    made.snapshot.save(tmp_path / "s.json")
    plain = replayed(tmp_path, forward)
    corrected = replayed(tmp_path, forward, "engine.workers.aggregated.timing.snapshot=s.json")
    decode = "SELECT sum(decode_ns) FROM passes WHERE n_prefill = 0 AND run_id = "
    (before,), (after,) = (ask(tmp_path, f"{decode}'{report.run_id}'")[0] for report in (plain, corrected))
    assert after == pytest.approx(before / 2, rel=1e-6)
    with pytest.raises(ConfigError, match="only prices from performance data can be tuned"):
        tune_snapshot(load_run_config(values({"type": "polynomial"})), tmp_path / "seen.jsonl", base=tmp_path)


def test_a_regression_prices_what_it_has_seen(tmp_path: Path) -> None:
    def line(np_: int, tp: int, b: int, kv: int) -> dict[str, Any]:
        ms = 2.0 + tp / 100 + b / 10 + kv / 5_000
        counts = {
            "num_prefill_requests": np_,
            "sum_prefill_tokens": tp,
            "num_decode_requests": b,
            "sum_decode_kv_tokens": kv,
        }
        return {"wall_time": ms / 1e3, "scheduled_requests": counts}

    lines = [line(n, 50 * n + 7 * i, 0, 0) for n in (1, 2, 4) for i in range(5)]
    lines += [line(0, 0, n, n * (90 + 9 * i)) for n in (1, 2, 4) for i in range(5)]
    (tmp_path / "seen.jsonl").write_text("\n".join(json.dumps(each) for each in lines))
    content = values({"fpm_jsonl_path": "seen.jsonl"}, estimation_mode="fpm_regression")
    report = replayed(tmp_path, content)
    assert (report.run["timing"], report.run["mixed_pass"]) == ("fpm_regression", "one_forward")
    stores = json.loads(report.run["provenance_json"])["performance"]["stores"]
    assert stores["prefill"]["rows"] == 15 and stores["mixed"]["rows"] == 0
    # Nothing mixed was seen: such a pass has no price, and no other store's.
    content["traffic"]["source"] = {
        "type": "synthetic",
        "input_tokens": 100,
        "output_tokens": {"type": "uniform", "min": 2, "max": 9},
    }
    with pytest.raises(TimingError, match="seen too few passes of the kind asked for"):
        replayed(tmp_path, content)


def test_metrics_of_an_engine_are_a_table_of_its_pure_passes(tmp_path: Path) -> None:
    def line(np_: int, tp: int, b: int, kv: int, ms: float) -> str:
        counts = {"num_prefill_requests": np_, "sum_prefill_tokens": tp, "num_decode_requests": b}
        return json.dumps({"wall_time": ms / 1e3, "scheduled_requests": counts | {"sum_decode_kv_tokens": kv}})

    lines = [line(n, t, 0, 0, 5.0 + t / 100) for n in (1, 2, 3, 4) for t in (n, 1_000)]
    lines += [line(0, 0, n, kv, 2.0 + kv / 1_000) for n in (1, 2, 3, 4) for kv in (n, 5_000)]
    (tmp_path / "seen.jsonl").write_text("\n".join(lines))
    report = replayed(tmp_path, values({"fpm_jsonl_path": "seen.jsonl"}, estimation_mode="fpm_interpolation"))
    assert (report.run["timing"], report.run["mixed_pass"]) == ("fpm_interpolation", "composed")
    assert ask(tmp_path, "SELECT prefill_ns FROM passes WHERE pass_no = 0") == [(9_000_000,)]
    (tmp_path / "seen.jsonl").write_text(line(1, 8, 1, 9, 5.0))
    with pytest.raises(PerfDataError, match="not one pass that only prefills or only decodes"):
        replayed(tmp_path, values({"fpm_jsonl_path": "seen.jsonl"}, estimation_mode="fpm_interpolation"))


def test_op_level_without_the_extra_is_refused_with_the_line_to_type(tmp_path: Path, no_extra: None) -> None:
    folder = r"pip install 'tracemill\[perfdata\]'.*model_configs/ with engine\.workers\.<role>\.timing\.perf_root"
    with pytest.raises(PerfDataError, match=folder):
        replayed(tmp_path, values({}, estimation_mode="op_level"))


def test_auto_without_the_extra_takes_the_embedded_table_and_says_so(tmp_path: Path, no_extra: None) -> None:
    report = replayed(tmp_path, values({}))
    assert report.run["timing"] == "embedded" and report.run["mixed_pass"] == "composed"
    assert any("small table that comes with this package" in warning for warning in report.warnings)
    with pytest.raises(ConfigError, match="the embedded table has no operators to change"):
        replayed(tmp_path, values({"factors": {"gemm": 2.0}}))
    with pytest.raises(PerfDataError, match="is not among the embedded tables"):
        replayed(tmp_path, values({}, hardware="h100_sxm"))
    for name in ("h100", "h200"):
        said = rf"^engine\.hardware='{name}': unknown system '{name}'; did you mean {name}_sxm\?.* Embedded \(vllm\): "
        with pytest.raises(PerfDataError, match=said):
            replayed(tmp_path, values({}, hardware=name))


@needs_data
def test_an_unknown_system_is_named_by_its_field(tmp_path: Path) -> None:
    with pytest.raises(PerfDataError, match=r"^engine\.hardware='h200': unknown system 'h200'; nearest: .*h200_sxm"):
        replayed(tmp_path, values({}, hardware="h200"))


@pytest.mark.parametrize(
    ("timing", "engine", "said"),
    [
        ({}, {"precision": {"gemm": "fp8"}}, "engine.precision.gemm='fp8': the embedded table holds 'bfloat16'"),
        ({}, {"backend_version": "0.1.0"}, "engine.backend_version='0.1.0': the embedded table holds '0.24.0'"),
        ({"data_version": "9.9.9"}, {}, "timing.data_version='9.9.9': the embedded table holds '0.12.0'"),
        ({"clean": False}, {}, "timing.clean=false: the embedded table was made from repaired data"),
    ],
)
def test_the_embedded_table_is_not_taken_for_another_deployment(
    tmp_path: Path, no_extra: None, timing: dict[str, Any], engine: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        replayed(tmp_path, values(timing, **engine))
    assert not (tmp_path / "warehouse" / "tracemill.duckdb").exists()


@needs_data
def test_op_level_prices_name_the_raw_rows_behind_them(tmp_path: Path) -> None:
    content = values({}, estimation_mode="op_level")
    report = replayed(tmp_path, content)
    assert (report.run["timing"], report.run["mixed_pass"]) == ("op_level", "one_forward")
    assert report.run["kv_blocks"] == 300 and report.run["kv_blocks_estimated"] > 1_000
    about = json.loads(report.run["provenance_json"])["performance"]
    assert about["clean"] is True and about["source"]["files"] and about["deviation"]["decode_inside"]["max"] < 0.5
    with open_store(tmp_path / "warehouse").connect() as con:
        assert [v.law.name for v in check_run(con, report.run_id) if not v.passed] == []
    missing = "SELECT count(*) FROM evidence e ANTI JOIN cell_ops c USING (run_id, role, phase, cell)"
    assert ask(tmp_path, missing) == [(0,)]
    wrong = (
        "SELECT phase, cell, operator, sum(share) FROM cell_ops GROUP BY ALL HAVING abs(sum(share) - 1) > 1e-9 "
        "UNION ALL SELECT phase, cell, '', sum(s) FROM (SELECT DISTINCT phase, cell, operator, operator_share AS s "
        "FROM cell_ops) GROUP BY ALL HAVING abs(sum(s) - 1) > 1e-9"
    )
    assert ask(tmp_path, wrong) == []
    files = {name for (name,) in ask(tmp_path, "SELECT DISTINCT file FROM cell_ops")}
    assert any("gemm" in name for name in files) and any("generation_attention" in name for name in files)
    spent = ask(tmp_path, "SELECT sum(total_ms) FROM time_by_operator")
    assert spent[0][0] == pytest.approx(ask(tmp_path, "SELECT sum(prefill_ns + decode_ns) / 1e6 FROM passes")[0][0])
    # A second run reads what was said of its cells, and says the same.
    again = replayed(tmp_path, content)
    assert again.run["result_digest"] == report.run["result_digest"]


@needs_data
def test_in_parity_the_same_deployment_is_priced_twice(tmp_path: Path) -> None:
    assert replayed(tmp_path, values({}), "profile=parity").run["mixed_pass"] == "two_prices"


@needs_data
def test_a_what_if_factor_changes_the_run_and_is_recorded(tmp_path: Path) -> None:
    plain = replayed(tmp_path, values({}))
    slower = replayed(tmp_path, values({"factors": {"gemm": 2.0}}))
    assert slower.run["end_ns"] > plain.run["end_ns"] and slower.replay_id != plain.replay_id
    config = json.loads(slower.run["config_json"])
    assert config["engine"]["workers"]["aggregated"]["timing"]["factors"] == {"gemm": 2}
    assert json.loads(slower.run["provenance_json"])["performance"]["factors"] == {"gemm": 2.0}
    with pytest.raises(PerfDataError, match="gem"):
        replayed(tmp_path, values({"factors": {"gem": 2.0}}))


@needs_data
def test_strict_mode_names_the_cells_outside_and_writes_nothing(tmp_path: Path) -> None:
    far = values({"strict": {"max_extrapolated_share": 0.1, "max_octaves": 0.1}}, context_length=40_960)
    far["traffic"]["source"]["input_tokens"] = 30_000
    far["engine"]["workers"]["aggregated"]["kv_cache"]["capacity"]["blocks"] = 9_000
    with pytest.raises(
        ExtrapolationError, match=r"of pass time is extrapolated, 10.0% is allowed; the farthest"
    ) as error:
        replayed(tmp_path, far)
    assert "prefill cell" in str(error.value) and "measured up to about" in str(error.value)
    assert ask(tmp_path, "SELECT count(*) FROM runs") == [(0,)]
    near = values({"strict": {"max_extrapolated_share": 0.5, "max_octaves": 1}})
    assert replayed(tmp_path, near).run["n_completed"] == 12


@needs_data
def test_the_pool_follows_from_memory_and_given_blocks_win(tmp_path: Path) -> None:
    capacity = "engine.workers.aggregated.kv_cache.capacity"
    derived = replayed(tmp_path, values({}), f"{capacity}={{type: default}}")
    assert derived.run["kv_blocks"] == derived.run["kv_blocks_estimated"] > 1_000
    less = replayed(tmp_path, values({}), f"{capacity}={{type: default, memory_fraction: 0.7}}")
    assert less.run["kv_blocks"] < derived.run["kv_blocks"]
    given = replayed(tmp_path, values({}), f"{capacity}={{type: default, blocks: 400}}")
    assert (given.run["kv_blocks"], given.run["kv_blocks_estimated"]) == (400, derived.run["kv_blocks"])
    assert json.loads(derived.run["provenance_json"])["performance"]["memory"]["weights_bytes"] > 1e9
    fixed = replayed(
        tmp_path, values({"type": "fixed", "prefill_ms": 1, "decode_ms": 1}), f"{capacity}={{type: default}}"
    )
    assert fixed.run["kv_blocks"] == derived.run["kv_blocks"]


@needs_data
def test_a_pinned_version_of_the_data_is_held_to(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data_version='0.0.1': the data at hand are"):
        replayed(tmp_path, values({"data_version": "0.0.1"}))


@needs_data
@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ({"model": "Qwen/Qwen3-33B"}, "Qwen/Qwen3-32B"),
        ({"hardware": "h200"}, "h200_sxm"),
        ({"backend_version": "9.9"}, "0.24.0"),
        ({"precision": {"gemm": "fp7"}}, "fp8"),
    ],
)
def test_unknown_names_are_answered_with_known_ones(tmp_path: Path, engine: dict[str, Any], said: str) -> None:
    with pytest.raises(PerfDataError, match=said):
        replayed(tmp_path, values({}, **engine))


def test_a_nearly_full_pool_is_a_warning(tmp_path: Path) -> None:
    given = values({"type": "fixed", "prefill_ms": 1, "decode_ms": 1}, context_length=256)
    small = replayed(tmp_path, given, "engine.workers.aggregated.kv_cache.capacity.blocks=28")
    assert any(warning.startswith("KV demand reached ") for warning in small.warnings)
    assert not any(warning.startswith("KV demand") for warning in replayed(tmp_path, given).warnings)


def test_arrays_are_part_of_a_runs_identity(tmp_path: Path, forward: dict[str, Any]) -> None:
    from assets.identity import timing_digest

    timing = price_deployment(load_run_config(forward), base=tmp_path).spec.timing
    assert isinstance(timing, ArrayTiming)
    other = ArrayTiming(timing.kind, timing.header, {**timing.arrays, "prefill_ms": timing.arrays["prefill_ms"] * 2})
    named = ArrayTiming(timing.kind, {**timing.header, "where": "elsewhere"}, timing.arrays)
    assert timing_digest(other) != timing_digest(timing) == timing_digest(named)
