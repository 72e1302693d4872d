"""CSV formats: the quirks of the published files, on small samples of our own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.assets.ingest.samples import AZURE, VIDUR, S, read, reasons, refused

BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
NEW_BURST = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


def test_azure_and_vidur_of_one_recording_give_one_table(tmp_path: Path) -> None:
    """Azure's sub-second times are kept to the last digit, and its file has no final newline."""
    azure, vidur = read(tmp_path, AZURE), read(tmp_path, VIDUR, "other")
    assert azure.arrival_ns.tolist() == [0, 4_314_579_000, 4_541_877_000] == vidur.arrival_ns.tolist()
    for name in ("prompt_tokens", "output_tokens", "request_id", "source_line"):
        assert getattr(azure, name).tolist() == getattr(vidur, name).tolist()
    assert (azure.format, vidur.format) == ("azure", "vidur")
    assert azure.hash_ids is None, "nothing is known of prefixes; that is not an empty list"
    assert vidur.hash_ids is None


@pytest.mark.parametrize("zone", ["+00:00", "+0000", "Z", "+00"])
def test_azure_2024_has_a_zone(tmp_path: Path, zone: str) -> None:
    rows = [line.replace(",", f"{zone},", 1) for line in AZURE.split("\n")[1:]]
    trace = read(tmp_path, "\r\n".join([AZURE.split("\n")[0], *rows, ""]))
    assert trace.arrival_ns.tolist() == read(tmp_path, AZURE, "plain").arrival_ns.tolist()


def test_azure_zones_are_taken_off(tmp_path: Path) -> None:
    rows = ["2024-05-10 02:00:00.000000009+02:00,1,1", "2024-05-09 20:00:01-04:00,2,1"]
    trace = read(tmp_path, "\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]))
    assert trace.arrival_ns.tolist() == [0, S - 9]


def test_vidur_without_arrivals(tmp_path: Path) -> None:
    rows = ["3772,54,3826,69.8", "1,4055,4057,0.1", "1,4055,4056,0.1"]
    text = "\n".join(["num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio", *rows])
    refused(tmp_path, text, "no arrival times; use a traffic.load of type concurrency")
    trace = read(tmp_path, text, needs_timestamps=False)
    assert trace.prompt_tokens.tolist() == [3772, 1]
    assert reasons(trace) == [(3, "total_mismatch", "num_total_tokens")]
    assert trace.notes["ignored_fields"] == ["pd_ratio"]


def test_splitwise(tmp_path: Path) -> None:
    head = "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n"
    trace = read(tmp_path, f"{head}0,2,0,1,1,4096,32\n1,2,0,3.25,1,2048,8\n1,2,0,4,1,2048,8\n")
    assert trace.format == "splitwise"
    assert trace.external_id == ["0", "1"]
    assert trace.arrival_ns.tolist() == [0, 2_250_000_000]
    assert reasons(trace) == [(4, "duplicate_id", "request_id")]


def test_burstgpt_failures_are_set_aside(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        BURST + "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,0,1087,API log\n45,ChatGPT,417,276,694,API log\n"
        "45,ChatGPT,417,276,693,API log\n",
    )
    assert trace.format == "burstgpt"
    assert reasons(trace) == [(3, "failed_at_source", "Response tokens"), (4, "total_mismatch", "Total tokens")]
    assert trace.prompt_tokens.tolist() == [472, 417]
    assert trace.arrival_ns.tolist() == [0, 40 * S]
    assert trace.session is None
    assert trace.notes["models"] == {"ChatGPT": 2}


def test_burstgpt_sessions_think_from_the_end_of_an_answer(tmp_path: Path) -> None:
    rows = ["0,a,10,GPT-4,5,5,10,x", "4,,1,GPT-4,5,5,10,API", "30,a,2.5,GPT-4,5,5,10,x", "31,a,1,GPT-4,5,5,10,x"]
    trace = read(tmp_path, NEW_BURST + "\n".join(rows))
    assert trace.session is not None
    assert trace.delay_ns is not None
    assert trace.session.tolist() == [0, -1, 0, 0]
    assert trace.delay_ns.tolist() == [0, 0, 20 * S, 0]


@pytest.mark.parametrize("number", ["1e3", "1000.0", "1000"])
def test_seconds_in_any_notation(tmp_path: Path, number: str) -> None:
    trace = read(tmp_path, f"arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,1,1\n{number},1,1\n")
    assert trace.arrival_ns.tolist() == [0, 999_500_000_000]


@pytest.mark.parametrize(
    ("cell", "reason"),
    [("", "missing_field"), ("x", "wrong_type"), ("-1", "negative"), ("nan", "not_finite"), ("1e300", "out_of_range")],
)
def test_bad_seconds(tmp_path: Path, cell: str, reason: str) -> None:
    trace = read(tmp_path, f"{VIDUR}{cell},1,1\n")
    assert reasons(trace) == [(5, reason, "arrived_at")]


def test_epoch_seconds_keep_their_microseconds(tmp_path: Path) -> None:
    rows = "1787267980.0827403,1,1\n1787267980.0827404,1,1\n"
    trace = read(tmp_path, "arrived_at,num_prefill_tokens,num_decode_tokens\n" + rows)
    assert np.diff(trace.arrival_ns).tolist() == [100]
