"""Measurements as the tools write them, small and made up; every importer on a good file and on bad ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assets.accuracy.importers import About, read_truth
from assets.accuracy.truth import TruthError, figures_of
from perf_db.tables import ACCURACY, GROUND_TRUTH


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def values(path: Path, **about: Any) -> dict[str, dict[str, float]]:
    """row_id -> metric -> value, after the rows were held against their declaration."""
    found = read_truth(path, about=About(truth_set="t", **about))
    GROUND_TRUTH.validate(typed(found.rows, GROUND_TRUTH), source=str(path))
    return {name: {m: row["value"] for m, row in known.items()} for name, known in figures_of(found.rows).items()}


def typed(rows: list[dict[str, Any]], table: Any) -> Any:
    import pyarrow as pa

    return pa.Table.from_pylist(rows, schema=table.arrow_schema())


VLLM = {"request_id": "r0", "input_toks": 8, "output_toks": 5, "arrival_time": 1e9}


def test_vllm_log_counts_from_the_queue_on_the_engines_clock(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "log.jsonl",
        [
            {**VLLM, "queued_ts": 10.0, "scheduled_ts": 10.0, "first_token_ts": 10.25, "last_token_ts": 10.65},
            {
                **VLLM,
                "request_id": "r1",
                "output_toks": 1,
                "queued_ts": 10.5,
                "first_token_ts": 11,
                "last_token_ts": 11,
            },
        ],
    )
    found = read_truth(path, about=About("t", model="m"))
    assert {(r["clock"], r["backend"], r["model"]) for r in found.rows} == {("engine", "vllm", "m")}
    assert [r["arrival_ns"] for r in found.rows if r["metric"] == "ttft"] == [0, 500_000_000]
    told = values(path)
    assert told["r0"] == pytest.approx({"ttft": 250, "tpot": 100, "e2e": 650})
    assert told["r1"] == pytest.approx({"ttft": 500, "e2e": 500})  # one token has no time per later token


def test_a_simulators_answers_beside_a_vllm_log_come_along(tmp_path: Path) -> None:
    log = {**VLLM, "queued_ts": 10.0, "first_token_ts": 10.25, "last_token_ts": 10.65}
    path = lines(tmp_path / "log.jsonl", [log, {**log, "request_id": "r1", "input_toks": 9}])
    peer = tmp_path / "peer_sim_requests.csv"
    peer.write_text(
        "instance id,request id,input,output,latency,TTFT,TPOT\n"
        "0,1,9,5,700000000,300000000,100000000\n0,0,77,5,1,1,1\n0,9,8,5,1,1,1\n"
    )
    found = read_truth(path, about=About("t"))
    told = {(r["predictor"], r["row_id"], r["metric"]): r["prediction"] for r in found.recorded}
    name = "peer_simulator"
    assert told == pytest.approx({(name, "r1", "ttft"): 300, (name, "r1", "tpot"): 100, (name, "r1", "e2e"): 700})
    assert found.set_aside == {"answers_about_other_requests": 2}  # another length, no such place
    ACCURACY.validate(typed(found.recorded, ACCURACY), source="recorded")
    peer.write_text("request id,input\nx,1\n")
    with pytest.raises(TruthError, match=r"peer_sim_requests.csv:2: no answer .* field 'request id' is 'x', a whole"):
        read_truth(path, about=About("t"))


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (b"0,1,9,5,7,3,1\n\n0,1,9,5,7,3,1\n", r":4: request id 1 was answered on line 2 already; keep one of the two"),
        (b"0,1,9,5,inf,3,1\n", r":2: no answer .* field 'latency' is 'inf', a finite number is wanted"),
        (b"0,1,9,5,nan,3,1\n", r":2: no answer .* field 'latency' is 'nan', a finite number is wanted"),
        (b"0,1,9,5,7,-3,1\n", r":2: field 'TTFT' of a simulator's answer is '-3', a time above 0 is wanted"),
        (b"0,1,9.0,5,7,3,1\n", r":2: no answer .* field 'input' is '9.0', a whole number is wanted"),
        (b"0,1,9,5,7,3\n", r":2: no answer .* field 'TPOT' is missing"),
        (b"0,1,9,5,7,3,\xff\n", r":\d: no CSV text in UTF-8"),
        (b"0," + b"1" * 200_000 + b",9,5,7,3,1\n", r":\d: no CSV text in UTF-8 \(field larger"),
    ],
)
def test_an_answer_that_is_none_is_refused_with_its_line(tmp_path: Path, answers: bytes, said: str) -> None:
    log = {**VLLM, "queued_ts": 10.0, "first_token_ts": 10.25, "last_token_ts": 10.65}
    path = lines(tmp_path / "log.jsonl", [log, {**log, "request_id": "r1", "input_toks": 9}])
    head = b"\xef\xbb\xbfinstance id,request id,input,output,latency,TTFT,TPOT\n"
    (tmp_path / "peer_sim.csv").write_bytes(head + answers)
    with pytest.raises(TruthError, match="peer_sim.csv" + said):
        read_truth(path, about=About("t"))


def test_two_requests_of_one_name_are_refused(tmp_path: Path) -> None:
    log = {**VLLM, "queued_ts": 10.0, "first_token_ts": 10.25, "last_token_ts": 10.65}
    path = lines(tmp_path / "log.jsonl", [log, {**log, "request_id": "r1"}, {**log, "request_id": "r1"}])
    with pytest.raises(TruthError, match=r"log.jsonl:3: request 'r1' was measured on line 2 already; give every one"):
        read_truth(path, about=About("t"))


def test_vllm_bench_gives_the_summary_and_the_requests(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text(
        json.dumps(
            {
                "model_id": "m", "max_concurrency": 4, "completed": 2, "total_input_tokens": 20,
                "total_output_tokens": 6, "mean_ttft_ms": 150.0, "median_ttft_ms": 150.0, "mean_tpot_ms": 20.0,
                "mean_itl_ms": 20.0, "mean_e2el_ms": 190.0, "output_throughput": 42.0,
                "input_lens": [10, 10, 10], "output_lens": [3, 3, 3], "ttfts": [0.1, 0.2, 0.0],
                "itls": [[0.02, 0.02], [0.03], []], "start_times": [5.0, 5.5, 5.6], "errors": ["", "", "refused"],
            }
        )
    )  # fmt: skip
    found = read_truth(path, about=About("t"))
    assert found.set_aside == {"failed_at_source": 1}
    told = values(path)
    assert told["summary"]["output_throughput"] == 42
    assert told["request-0"] == pytest.approx({"ttft": 100, "tpot": 20, "itl": 20, "e2e": 140})
    # Two tokens in one chunk: the mean gap is longer than the time per token.
    assert told["request-1"] == pytest.approx({"ttft": 200, "tpot": 15, "itl": 30, "e2e": 230})
    summary = [r for r in found.rows if r["row_id"] == "summary"]
    assert {(r["grain"], r["concurrency"], r["prompt_tokens"], r["output_tokens"]) for r in summary} == {
        ("deployment", 4, 10, 3)
    }
    assert {r["statistic"] for r in summary} == {"mean", "median"}


def test_aiperf_sets_aside_what_was_no_measurement(tmp_path: Path) -> None:
    def record(phase: str = "profiling", error: Any = None, start: int = 7_000_000_000) -> dict[str, Any]:
        metrics = {
            "time_to_first_token": {"value": 0.2, "unit": "s"},
            "inter_token_latency": {"value": 12.5, "unit": "ms"},
            "request_latency": {"value": 1450.0, "unit": "ms"},
            "input_sequence_length": {"value": 550, "unit": "tokens"},
            "output_sequence_length": {"value": 101, "unit": "tokens"},
        }
        meta = {"x_request_id": f"{phase}-{start}", "request_start_ns": start, "benchmark_phase": phase}
        return {"metadata": meta, "metrics": metrics, "error": error}

    path = lines(
        tmp_path / "profile_export.jsonl",
        [record(), record("warmup"), record(error={"code": 500}), record(start=7_500_000_000)],
    )
    found = read_truth(path, about=About("t"))
    assert (found.form, found.set_aside) == ("aiperf", {"warm_up": 1, "failed_at_source": 1})
    told = values(path)
    assert told["profiling-7000000000"] == pytest.approx({"ttft": 200, "tpot": 12.5, "e2e": 1450})
    assert {r["arrival_ns"] for r in found.rows if r["grain"] == "request"} == {0, 500_000_000}
    # Of both together: 202 tokens from the first arrival to the last token, 1.95 s later.
    assert told["whole-log"] == pytest.approx({"output_throughput": 202 / 1.95})


def test_guidellm_per_token_time_leaves_the_first_token_out(tmp_path: Path) -> None:
    request = {
        "request_id": "a", "prompt_tokens": 9, "output_tokens": 5, "start_time": 1.0, "first_token_time": 1.5,
        "last_token_time": 2.3, "end_time": 2.4, "time_per_output_token_ms": 160.0,
    }  # fmt: skip
    path = tmp_path / "guide.json"
    path.write_text(
        json.dumps({"benchmarks": [{"requests": {"successful": [request], "errored": [{}], "incomplete": [{}, {}]}}]})
    )
    assert read_truth(path).set_aside == {"failed_at_source": 1, "canceled": 2}
    assert values(path)["0/a"] == pytest.approx({"ttft": 500, "tpot": 200, "e2e": 1400})


def test_telemetry_of_ranks_is_one_pass(tmp_path: Path) -> None:
    def rank(counter: int, wall: float | None, **held: int) -> dict[str, Any]:
        names = (
            "num_prefill_requests", "sum_prefill_tokens", "sum_prefill_kv_tokens", "num_decode_requests",
            "sum_decode_kv_tokens",
        )  # fmt: skip
        return {
            "worker_id": "w", "counter_id": counter, "wall_time": wall,
            "scheduled_requests": {name: held.get(name, 0) for name in names},
        }  # fmt: skip

    path = lines(
        tmp_path / "fpm.jsonl",
        [
            rank(1, 0.010, num_decode_requests=3, sum_decode_kv_tokens=300),
            rank(1, 0.012, num_prefill_requests=1, sum_prefill_tokens=500),
            rank(2, 0.009),
            rank(3, None, num_decode_requests=1, sum_decode_kv_tokens=10),
        ],
    )
    found = read_truth(path, about=About("t"))
    assert found.set_aside == {"without_work": 1, "without_time": 1}
    (row,) = found.rows
    assert (row["grain"], row["value"], row["prefill_tokens"], row["n_decode"]) == ("pass", 12.0, 500, 0)


def test_own_columns_from_csv_and_json(tmp_path: Path) -> None:
    csv = tmp_path / "a.csv"
    csv.write_text(
        "request_id,prompt_tokens,output_tokens,arrival_ms,ttft_ms,e2e_ms\nx,10,4,100,20,80\ny,10,4,150,30,\n"
    )
    assert values(csv) == {"x": {"ttft": 20, "e2e": 80}, "y": {"ttft": 30}}
    path = lines(tmp_path / "a.jsonl", [{"prompt_tokens": 1, "output_tokens": 1, "ttft_ms": 5}])
    assert values(path) == {"line-1": {"ttft": 5}}


def silicon(folder: Path) -> Path:
    """Three runs of two deployments, one of them published twice."""
    import polars as pl

    base = {
        "backend": "vllm", "backend_version": "0.19.0", "model_path": "org/m", "system": "h200_sxm", "mode": "agg",
        "isl": 1024, "osl": 256, "tp_size": 2, "pp_size": 1, "attention_dp_size": 1, "moe_tp_size": 0,
        "moe_ep_size": None, "gemm_quant_mode": "fp8", "moe_quant_mode": None, "precision": "fp8", "batch_size": 8,
        "model_family": "m", "measured_on": "2026-01-02", "origin": "dump_a",
    }  # fmt: skip
    rows = [
        {**base, "id": "one", "silicon_ttft_ms": 100.0, "silicon_tpot_ms": 10.0, "concurrency": 32, "group": "g1"},
        {**base, "id": "two", "silicon_ttft_ms": 100.004, "silicon_tpot_ms": 10.0, "concurrency": 8, "group": "g1",
         "origin": "dump_b"},
        {**base, "id": "three", "silicon_ttft_ms": 250.0, "silicon_tpot_ms": 20.0, "concurrency": None, "group": "g2"},
        {**base, "id": "four", "silicon_ttft_ms": None, "silicon_tpot_ms": None, "concurrency": 1, "group": "g2"},
    ]  # fmt: skip
    path = folder / "silicon.parquet"
    pl.DataFrame(rows, infer_schema_length=None).write_parquet(path)
    pl.DataFrame(
        {
            "id": ["one", "three"], "predicted_ttft_ms": [120.0, None], "predicted_tpot_ms": [9.0, None],
            "hybrid_ttft_ms": [None, 300.0], "hybrid_tpot_ms": [None, 22.0],
        }
    ).write_csv(folder / "peer_baseline_x.csv")  # fmt: skip
    return path


def test_silicon_table_knows_repeats_and_brings_other_answers(tmp_path: Path) -> None:
    found = read_truth(silicon(tmp_path), about=About("t"))
    ttft = {r["row_id"]: r for r in found.rows if r["metric"] == "ttft"}
    assert set(ttft) == {"one", "two", "three"} and found.set_aside == {"not_measured": 1}
    assert {name: row["repeat_of"] for name, row in ttft.items()} == {"one": None, "two": "one", "three": None}
    assert ttft["one"]["concurrency"] == 8  # batch x ranks: 32 clients were those of four engines
    assert ttft["three"]["concurrency"] == 8
    assert (ttft["one"]["moe_tp"], ttft["one"]["statistic"]) == (None, "mean")
    told = {(r["predictor"], r["row_id"], r["metric"]): r for r in found.recorded}
    assert told["reference_silicon", "one", "ttft"]["signed_error"] == pytest.approx(0.2)
    assert told["reference_silicon", "three", "ttft"]["reason"] == "refused_by_estimator"
    assert told["reference_hybrid", "three", "tpot"]["prediction"] == 22
    assert told["reference_hybrid", "one", "tpot"]["prediction"] == 9  # asked only where the other refuses
    ACCURACY.validate(typed(found.recorded, ACCURACY), source="recorded")


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({**VLLM, "queued_ts": 1, "first_token_ts": 0.5, "last_token_ts": 2}, "bad.jsonl:1: .* run backwards"),
        ({**VLLM, "queued_ts": 1, "first_token_ts": "x", "last_token_ts": 2}, "first_token_ts='x': a finite number"),
        ({**VLLM, "input_toks": 0, "queued_ts": 1, "first_token_ts": 2, "last_token_ts": 2}, "must not be below 1"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: dict[str, Any], says: str) -> None:
    with pytest.raises(TruthError, match=says):
        read_truth(lines(tmp_path / "bad.jsonl", [row]))


def test_files_that_are_none(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    with pytest.raises(TruthError, match="not a file of measurements"):
        read_truth(empty)
    with pytest.raises(TruthError, match="format 'x' is not known"):
        read_truth(empty, form="x")
    cut = tmp_path / "cut.jsonl"
    good = json.dumps({**VLLM, "queued_ts": 1, "first_token_ts": 2, "last_token_ts": 3})
    cut.write_text(f"{good}\n{good[:30]}")
    with pytest.raises(TruthError, match=r"cut\.jsonl:2: no JSON .* remove its last line"):
        read_truth(cut)


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("tfft_ms", "e2e_ms"), "no column ttft_ms; unknown column tfft_ms; did you mean ttft_ms?"),
        (("tfft_ms",), "no column ttft_ms; unknown column tfft_ms; did you mean ttft_ms?"),
        (("ttft_ms", "arival_ms"), "no column arrival_ms; unknown column arival_ms; did you mean arrival_ms?"),
    ],
)
def test_a_mistyped_column_is_not_a_missing_one(tmp_path: Path, ending: str, names: tuple[str, ...], said: str) -> None:
    row = {"prompt_tokens": 10, "output_tokens": 2, **dict.fromkeys(names, 5)}
    path = tmp_path / f"log.{ending}"
    header = ",".join(row) + "\n" + ",".join(map(str, row.values())) + "\n"
    path.write_text(header if ending == "csv" else json.dumps(row) + "\n")
    with pytest.raises(TruthError) as error:
        read_truth(path)
    assert str(error.value) == f"{path}: {said}"


def test_columns_of_others_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("prompt_tokens,output_tokens,e2e_ms,ttst_ms,user,total_tokens\n10,2,5,3,me,12\n")
    assert {row["metric"] for row in read_truth(path).rows if row["grain"] == "request"} == {"e2e"}


def test_a_length_that_is_mistyped_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("prompt_token,output_tokens,e2e_ms\n10,2,5\n")
    with pytest.raises(TruthError, match=r"no column prompt_tokens; unknown column prompt_token; did you mean"):
        read_truth(path)
