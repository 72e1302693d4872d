"""The summary: offered queries can be asked, wide figures stay apart, and it says where milliseconds come from."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pipelines.summary import QUERIES, _facts, _latencies
from tests.pipelines.conftest import Cli


@pytest.mark.parametrize(("what", "query"), QUERIES)
def test_every_offered_query_has_a_short_answer(cli: Cli, tiny: Path, what: str, query: str) -> None:
    assert cli("replay", tiny).exit_code == 0
    with_run = query.format(run_id=cli("sql", "SELECT run_id FROM runs", "--format", "csv").stdout.split()[-1])
    answer = cli("sql", with_run)
    assert answer.exit_code == 0, f"{what}: {answer.stderr}"
    assert 1 < len(answer.stdout.splitlines()) < 20


def test_latencies_above_an_hour_keep_their_columns_apart() -> None:
    found = {("run", metric, stat): 3_879_679.95 for metric in ("ttft", "itl") for stat in ("mean", "p99")}
    ttft = next(line for line in _latencies(found) if line.startswith("TTFT"))
    assert ttft.split() == ["TTFT", "3,879,679.95", "–", "–", "3,879,679.95"]


def test_it_says_what_the_milliseconds_rest_on(cli: Cli, tiny: Path) -> None:
    fixed = cli("replay", tiny).stdout
    curve = cli("replay", tiny, "--set", "engine.workers.aggregated.timing={type: polynomial}").stdout
    assert "timing        fixed, as configured" in fixed
    assert "timing        the built-in polynomial, fitted to no model or hardware" in curve


def test_rejections_come_with_the_question_why(cli: Cli, tiny: Path) -> None:
    said = cli("replay", tiny, "--set", "engine.context_length=650").stdout
    line = next(line for line in said.splitlines() if line.startswith("rejected"))
    assert line.startswith("rejected      1; why: SELECT reason")
    assert "prompt_reaches_max_model_len" in cli("sql", line.partition("why: ")[2]).stdout


def test_a_table_for_people_ends_and_says_so(cli: Cli, tiny: Path) -> None:
    assert cli("replay", tiny).exit_code == 0
    shown = cli("sql", "FROM range(1500)")
    assert len(shown.stdout.splitlines()) < 1_010
    assert "only the first 1,000 rows are shown" in shown.stderr
    assert len(cli("sql", "FROM range(1500)", "--format", "csv").stdout.splitlines()) == 1_501


def test_two_pools_have_no_share_of_one(cli: Cli, tiny: Path) -> None:
    alone = cli("replay", tiny).stdout
    assert re.search(r"^KV peak       \d+ blocks on one rank \([\d.]+% of its pool\)$", alone, re.M)
    run = {"peak_active_blocks": 212, "n_requests": 3, "n_quarantined": 0, "n_preemptions": 0, "n_rejected": 0}
    workers = {role: {"timing": {"type": "polynomial"}} for role in ("prefill", "decode")}
    run |= {"config_json": json.dumps({"engine": {"workers": workers}}), "provenance_json": "{}"}
    assert "KV peak       212 blocks on one rank" in _facts(run, {})
