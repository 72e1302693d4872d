"""The summary: offered queries can be asked, wide figures stay apart, and it says where milliseconds come from."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path

import pytest
import yaml

from assets.views import open_store
from pipelines.pool_summary import QUERIES as OF_POOLS
from pipelines.summary import QUERIES, _latencies, _timing
from tests.assets.desk.test_pools import POOLS
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


def test_constants_of_a_snapshot_name_its_file(cli: Cli, tiny: Path) -> None:
    names = ("weights_ms", "token_us", "attention_pair_ns", "decode_request_us", "kv_token_ns", "prefill_pass_ms")
    (tiny.parent / "cost.json").write_text(json.dumps({"host_constants": {"base_ms": 2} | dict.fromkeys(names, 0)}))
    timing = "engine.workers.aggregated.timing={type: pass_cost, snapshot: cost.json}"
    found = cli("replay", tiny, "--set", timing).stdout
    assert re.search(r"^timing        pass_cost, constants of cost\.json \(snapshot [0-9a-f]{12}\)$", found, re.M), (
        found
    )
    by_hand = cli("replay", tiny, "--set", "engine.workers.aggregated.timing={type: pass_cost, base_ms: 2}").stdout
    assert "timing        pass_cost, as configured" in by_hand


def test_host_constants_of_a_snapshot_name_its_file() -> None:
    file = {"path": "host.json", "digest": "0123456789abcdef"}
    run = {"config_json": json.dumps({"engine": {"workers": {"aggregated": {"timing": {"type": "fixed"}}}}})}
    run["provenance_json"] = json.dumps({"constants": {"host": file}})
    assert _timing(run)[1:] == ["host          constants of host.json (snapshot 0123456789ab)"]


def test_rows_that_were_not_replayed_are_rows_of_the_trace(cli: Cli, tiny: Path) -> None:
    whole = cli("replay", tiny).stdout
    assert "trace rows    4 read = 3 clean + 1 quarantined\n" in whole
    stopped = cli("replay", tiny, "--set", "traffic.stop.requests=2").stdout
    assert "trace rows    4 read = 3 clean + 1 quarantined; 2 of the clean ones replayed (traffic.stop)" in stopped


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


def test_one_pool_has_a_share(cli: Cli, tiny: Path) -> None:
    alone = cli("replay", tiny).stdout
    assert re.search(r"^KV peak       \d+ blocks on one rank \([\d.]+% of its pool\)$", alone, re.M)


def pools(folder: Path, **transfer: object) -> Path:
    """A prefill and a decode pool whose transfers may share links, fail and come too late."""
    content = copy.deepcopy(POOLS)
    content["engine"]["kv_transfer"] |= transfer
    content["evaluation"] = {"sla": {"e2e_ms": 60_000}, "ttft": "prefill"}
    content |= {"profile": "parity"}
    (folder / "pools.yaml").write_text(yaml.safe_dump(content))
    return folder / "pools.yaml"


def test_separate_pools_and_their_transfers(cli: Cli, tmp_path: Path) -> None:
    told = {"links": "shared", "failure_rate": 0.4, "retries": 1, "bandwidth_gb_per_second": 0.8}
    said = cli("replay", pools(tmp_path, **told)).stdout
    lines = {line[:14].strip(): line[14:] for line in said.splitlines()}
    busy = r"prefill: 2 workers · busy [\d.]+% of the time · [\d.]+% of KV .* held for transfers"
    assert re.fullmatch(busy, lines["pools"])
    assert "  decode: 1 worker · busy" in said
    with open_store(tmp_path / "warehouse").connect() as con:
        n, done, again, link = con.execute(
            "SELECT count(*), count(*) FILTER (outcome = 'activated'), sum(attempts - 1),"
            " avg(began_ns - queued_ns) FILTER (outcome = 'activated') / 1e6 FROM handoffs"
        ).fetchall()[0]
        failed, submitted, peak = con.execute("SELECT n_failed, n_requests, peak_active_blocks FROM runs").fetchall()[0]
        most = con.execute("SELECT max(active_blocks) FILTER (worker = 2), max(active_blocks) FROM passes").fetchone()
    assert failed and again and lines["transfers"].startswith(f"{done} of {n} done · mean ")
    assert f" ms, {link:,.2f} ms of it waiting for the link (last attempt) · p99 " in lines["transfers"]
    assert f" · {again} retries · {failed} failed" in lines["transfers"]
    assert most == (peak, peak)
    of_prefill = r"blocks on one rank: prefill \d+ of 60 \([\d.]+%\) · "
    assert re.fullmatch(of_prefill + rf"decode {peak} of 70 \({peak / 70:.1%}\)", lines["KV peak"])
    assert lines["unproven"].startswith("transfers_share_links, transfer_failures (no engine")
    share = (submitted - failed) / submitted
    assert lines["goodput"].startswith(f"{share:.1%} of all {submitted} requests within the limits, 100.0% of the ")
    assert "TTFT + (n - 1) TPOT is less than E2E" in lines["first token"]
    assert all(cli("sql", query).exit_code == 0 for query in re.findall(r'sql "(.*)"', said))
    assert "FROM pool_utilisation" in said and "FROM request_phases" in said
    assert cli("show").stdout.partition("s simulated")[0] == said.partition("s simulated")[0]


def test_prompts_that_nobody_can_decode(cli: Cli, tmp_path: Path) -> None:
    """Nothing was transferred, so nothing took 0 ms; and the report of a pool without a pass is a page."""
    small = "engine.workers.decode.kv_cache.capacity.blocks=1"
    said = cli("replay", pools(tmp_path), "--set", small).stdout
    n = int(re.search(r"^([\d,]+) requests: ", said, re.M)[1].replace(",", ""))  # type: ignore[index]
    assert f"transfers     0 of {n} done · " in said and "p99 –" in said and f"{n} never fit" in said
    got = cli("report", "last", "-o", tmp_path / "report.html")
    assert got.exit_code == 0, got.output
    assert "limited by" not in (tmp_path / "report.html").read_text()


def test_the_largest_seed_is_stored(cli: Cli, tiny: Path) -> None:
    assert cli("replay", tiny, "--set", f"seed={2**64 - 1}").exit_code == 0
    assert str(2**64 - 1) in cli("sql", "SELECT seed FROM runs", "--format", "csv").stdout


def test_one_pool_says_nothing_of_two(cli: Cli, tiny: Path) -> None:
    said = cli("replay", tiny).stdout
    assert not any(word in said for word in ("pools  ", "transfers", "unproven", *(query for _, query in OF_POOLS)))
