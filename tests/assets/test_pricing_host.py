"""Constants of the host in a replay: a calibrated deployment replays as it was foretold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perf_db.gpu.errors import PerfDataError
from sim.config import ConfigError, load_run_config

CLIENTS = 16
ROW = {
    "row_id": "a", "backend": "vllm", "mode": "agg", "model": "Qwen/Qwen3-30B-A3B", "model_family": "qwen3-30b-a3b",
    "system": "h200_sxm", "tp": 2, "pp": 1, "attention_dp": 1, "moe_tp": 2, "moe_ep": 1, "gemm_quant": None,
    "moe_quant": None, "prompt_tokens": 1024, "output_tokens": 128, "concurrency": CLIENTS, "origin": "dump",
    "backend_version": None, "deployment_group": "g", "repeat_of": None, "grain": "deployment", "statistic": "mean",
    "metric": "ttft", "value": 100.0, "truth_set": "t",
}  # fmt: skip
IN_PASSES = {
    "vllm.prefill_pass_ms_per_layer": 0.4, "vllm.decode_pass_us_per_layer": 12.0, "vllm.decode_pass_ms": 0.3,
    "vllm.prefill_pass_ms": 2.0, "vllm.running_request_us": 20.0, "vllm.prefill_token_us": 3.0,
    "vllm.moe_decode_factor": 1.3, "vllm.gemm_factor": 1.1, "vllm.decode_factor": 0.95, "vllm.mla_decode_factor": 0.7,
}  # fmt: skip
AROUND = {"vllm.tokenization_ms_per_1024": 7.5, "vllm.client_ms": 0.67, "vllm.request_ms": 5.0}


def engine(host: dict[str, Any], **more: Any) -> dict[str, Any]:
    worker = {
        "parallelism": {"tensor": 2, "moe_tensor": 2},
        "scheduler": {"max_sequences": CLIENTS},
        "kv_cache": {"block_size": 16, "prefix_caching": False, "capacity": {"type": "fixed", "blocks": 1 << 17}},
        "timing": {"type": "default"},
    }
    return {
        "engine": {
            "model": ROW["model"], "hardware": ROW["system"], "estimation_mode": "op_level",
            "precision": {"kv_cache": "fp8"},  # as measured rows of this GPU are read
            "workers": {"aggregated": worker}, "host": host, **more,
        }
    }  # fmt: skip


def foretold(constants: dict[str, float]) -> dict[str, float]:
    """Every metric of the row, ms and tokens/s, as a report predicts it from a snapshot."""
    from assets.accuracy.predict import predict_deployments
    from assets.accuracy.truth import UNITS, TruthSet

    rows = [{**dict.fromkeys(("precision",)), **ROW, "metric": metric} for metric in UNITS if metric != "pass"]
    of_backend = {"vllm": {name.partition(".")[2]: value for name, value in constants.items()}}
    try:
        told = predict_deployments(TruthSet("t", rows, "silicon"), constants=of_backend)
    except PerfDataError:
        pytest.skip("needs the perfdata extra")
    assert {row["reason"] for row in told.rows} == {None}
    return {row["metric"]: row["prediction"] for row in told.rows}


def replayed(constants: dict[str, float], folder: Path) -> dict[str, float]:
    """The same from a replay of the same requests, its constants from a snapshot's file."""
    from assets.accuracy.closed_loop import lengths
    from assets.accuracy.loops import case_of
    from assets.pricing import price_deployment
    from sim.engine import replay
    from sim.inputs import Workload
    from sim.metrics import Tap

    (folder / "snapshot.json").write_text(json.dumps({"host_constants": constants}))
    config = load_run_config(engine({"snapshot": "snapshot.json"}), base=folder)
    spec = price_deployment(config, base=folder).spec
    loop = case_of(ROW).loop
    assert loop is not None
    prompts, outputs = lengths(loop)
    sink = Tap()
    outcome = replay(spec, Workload(np.zeros(len(prompts), np.int64), prompts, outputs, concurrency=CLIENTS), sink)
    run = sink.compute(outcome, spec).run
    names = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2e": "e2e_latency"}
    found = {metric: run.latencies[name].stats()["mean"] or 0.0 for metric, name in names.items()}
    return {**found, "output_throughput": run.rate(run.output_tokens)}


def test_a_snapshot_replays_as_it_foretold(tmp_path: Path) -> None:
    """Constants of passes and factors change no schedule, so what is left is the lattice that prices are looked up on
    and the few decodes beside prompts."""
    told, got = foretold(IN_PASSES), replayed(IN_PASSES, tmp_path)
    assert got == pytest.approx(told, rel=2e-3)
    bare = foretold({})
    assert all(abs(told[name] / bare[name] - 1) > 0.05 for name in told)  # the constants do something


def test_ways_to_the_engine_stagger_the_clients_of_a_loop(tmp_path: Path) -> None:
    """A fit adds them to the mean after the replay. Within one they also keep slots empty, and break up the groups that
    are admitted together."""
    told, got = foretold(IN_PASSES | AROUND), replayed(IN_PASSES | AROUND, tmp_path)
    without = replayed(IN_PASSES, tmp_path)
    way = 7.5 * 0.9 + 0.67 * CLIENTS + 5.0
    assert got["ttft"] - without["ttft"] == pytest.approx(way, rel=0.35)
    assert got == pytest.approx(told, rel=0.03)


@pytest.mark.parametrize(
    ("host", "more", "says"),
    [
        (
            {"factors": {"colour_factor": 2.0}},
            {},
            "engine.host.factors.colour_factor: the host model has no such factor",
        ),
        ({"prefill_pass_ms_per_layer": 0.4}, {"estimation_mode": "auto", "precision": {}}, "needs prices by operator"),
    ],
)
def test_what_has_nothing_to_act_on_is_refused(
    monkeypatch: pytest.MonkeyPatch, host: dict[str, Any], more: dict[str, Any], says: str
) -> None:
    from assets.pricing import price_deployment
    from perf_db.gpu import source

    if more:  # without the extra the embedded sample answers
        monkeypatch.setattr(source, "PACKAGE", "no_such_package")
    config = load_run_config(engine(host, **more))
    try:
        with pytest.raises(ConfigError, match=says.replace(".", r"\.")):
            price_deployment(config, base=Path())
    except PerfDataError:
        pytest.skip("needs the perfdata extra")
