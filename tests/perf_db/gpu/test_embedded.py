"""The tables that ship with the project: small, whole, told where they come from, near what they were made from."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest

from perf_db.gpu.deployment import Deployment
from perf_db.gpu.embedded import FOLDER, PROVENANCE, embedded_deployments, embedded_timing, table_name
from perf_db.gpu.embedded.check import deviations
from perf_db.gpu.embedded.generate import LONGEST, MOST_TOKENS, PREFILL, deployments
from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.forward import read_forward_table
from perf_db.gpu.oplevel import OpLevel
from tests.perf_db.gpu.measured import extra_root

NAMES = sorted(table_name(d.model, d.system, d.tp) for d in deployments())


def test_they_are_small_and_complete():
    files = {path.name: path.stat().st_size for path in FOLDER.iterdir() if path.suffix in (".parquet", ".json")}
    assert sum(files.values()) <= 200_000
    assert set(files) == {PROVENANCE.name, *(f"{n}{end}" for n in NAMES for end in (".parquet", ".metadata.json"))}
    assert (FOLDER / "NOTICE.md").is_file()


def test_provenance_names_the_source():
    told = json.loads(PROVENANCE.read_text())
    assert told["source"]["distribution"] == "aiconfigurator-core" and told["source"]["licence"] == "Apache-2.0"
    assert sorted(told["tables"]) == NAMES
    assert any(name.endswith("/gemm_perf.parquet") for name in told["source"]["files_blake2b"])
    assert [Deployment(**each) for each in embedded_deployments()] == sorted(
        deployments(), key=lambda d: table_name(d.model, d.system, d.tp)
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_pass_of_a_usual_engine_is_covered(name):
    columns = read_forward_table(FOLDER / f"{name}.parquet").columns
    kind = np.array(columns["workload_kind"])
    batch, tokens, kv = (np.array(columns[c]) for c in ("batch_size", "total_prefill_tokens", "total_kv_read_tokens"))
    prefill = kind == "prefill"
    for b in range(1, PREFILL[-1][0] + 1):
        own = prefill & (batch == b)
        # The corners of the box are there, so everything between is read and never refused.
        for past in (0, b * LONGEST):
            at = own & (kv == past)
            assert tokens[at].min() == b and tokens[at].max() == MOST_TOKENS
    decode = np.unique(batch[~prefill])
    for low, high in pairwise(decode.tolist()):
        least = [kv[~prefill & (batch == b)].min() for b in (low, high)]
        most = [kv[~prefill & (batch == b)].max() for b in (low, high)]
        # Between two batches the larger one reaches down to 2 tokens each of the smallest in between.
        assert least[1] <= 2 * (low + 1) and most == [low * LONGEST, high * LONGEST]


def test_a_deployment_is_found_and_the_others_are_refused():
    asked = {"model": "Qwen/Qwen3-32B", "system": "h200_sxm", "backend": "vllm"}
    header, arrays, about = embedded_timing(**asked, tp=4)
    assert about["deployment"]["tp"] == 4 and "decode_ms" in arrays and "flat_batch" in header
    with pytest.raises(PerfDataError, match=r"not among the embedded tables.*tracemill\[perfdata\]") as caught:
        embedded_timing(**asked, tp=8)
    assert caught.value.reason == "missing_shape" and "Qwen/Qwen3-30B-A3B on b200_sxm TP 2" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("deployment", list(deployments()), ids=lambda d: table_name(d.model, d.system, d.tp))
def test_reading_between_the_points_stays_near_the_evaluation(deployment):
    model = OpLevel(deployment, extra_root("0.12.0"), clean=True)
    path = FOLDER / f"{table_name(deployment.model, deployment.system, deployment.tp)}.parquet"
    for kind, gap in deviations(path, model, n=1000, seed=3).items():
        middle, high = np.percentile(gap, [50, 95])
        assert middle < 0.015 and high < 0.12, kind
