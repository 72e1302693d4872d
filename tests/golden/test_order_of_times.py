"""Metrics rule MR-12: no time of a request runs backwards, in any recorded world."""

import json
from pathlib import Path

import numpy as np
import pytest

from assets.golden import peer_case, rebuild, vllm_case
from assets.golden.run import run
from sim.errors import ReplayError

HERE = Path(__file__).parent
SKIPS = json.loads((HERE / "expected_skips.json").read_text())
STEPS = ("arrival_ns", "admitted_ns", "first_token_ns", "second_token_ns", "last_token_ns", "end_ns")


@pytest.mark.parametrize("kind", ["peer", "vllm"])
def test_mr12_arrival_admission_tokens_end(kind, engine):
    replayed = 0
    for file in sorted((HERE / kind).glob("*.json")):
        if file.stem in SKIPS[kind]:
            continue
        case = json.loads(file.read_text())
        loaded = peer_case.load(case, file.parent) if kind == "peer" else vllm_case.load(case)
        try:
            tables = run(loaded.spec, loaded.workload, engine).tables
        except ReplayError:
            continue  # recorded as refused
        replayed += 1
        latest = np.zeros(len(loaded.workload), np.int64)
        for step in STEPS:
            at = tables["requests"][step]
            assert ((at < 0) | (at >= latest)).all(), f"{file.stem}: {step} before what precedes it"
            latest = np.maximum(latest, at)
        for times, row in zip(rebuild.token_times(tables), tables["requests"]["output_tokens"].tolist(), strict=True):
            assert len(times) == row
            assert times == sorted(times)
        passes = tables["passes"]
        assert (passes["chosen_ns"] <= passes["start_ns"]).all()
        assert (passes["start_ns"] <= passes["end_ns"]).all()
    assert replayed > 20
