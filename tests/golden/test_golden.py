"""Recorded answers of two other engines, request by request and pass by pass. See README.md in this folder."""

import json
from pathlib import Path

import pytest

from assets.golden.check import check_case, check_dir

HERE = Path(__file__).parent
SKIPS = json.loads((HERE / "expected_skips.json").read_text())
CASES = sorted(HERE.glob("*/*.json"))
RUNNABLE = [file for file in CASES if file.stem not in SKIPS[file.parent.name]]
BOTH = [f for f in RUNNABLE if f.parent.name == "vllm" and json.loads(f.read_text())["profile"] == "both"]


def answer(file: Path, **more):
    return check_case(json.loads(file.read_text()), name=file.stem, base=file.parent, **more)


@pytest.mark.parametrize("file", RUNNABLE, ids=lambda f: f"{f.parent.name}-{f.stem}")
def test_case_replays_to_its_recorded_answer(file, engine):
    result = answer(file, engine=engine)
    assert result.status == "passed", "\n".join([file.stem, *result.details[:20]])


@pytest.mark.parametrize("file", BOTH, ids=lambda f: f.stem)
def test_case_of_both_profiles_holds_in_parity_too(file, engine):
    result = answer(file, engine=engine, profile="parity")
    assert result.status == "passed", "\n".join([file.stem, *result.details[:20]])


@pytest.mark.parametrize("kind", ["peer", "vllm"])
def test_exactly_the_listed_cases_are_skipped_for_the_listed_reasons(kind):
    report = check_dir(HERE / kind, engine="reference")
    assert report.skips == SKIPS[kind]
    assert report.closing == f"{len(report.results) - len(SKIPS[kind])} passed, 0 failed, {len(SKIPS[kind])} skipped"
