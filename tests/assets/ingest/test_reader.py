"""What holds for every format: line numbers, sums, recognition, and clear errors."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
from pathlib import Path

import pytest

from assets.ingest import FORMATS, TraceError, detect, read_trace
from sim.config.traffic import TRACE_FORMATS

ROW = '{"timestamp": 0, "input_length": 600, "output_length": 7, "hash_ids": [1, 2]}'
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"


def write(tmp_path: Path, text: str, name: str = "trace") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_the_configuration_knows_the_formats_we_read() -> None:
    assert set(TRACE_FORMATS) == set(FORMATS)


@pytest.mark.parametrize(("text", "name", "why"), [(ROW, "mooncake", "input_length"), (AZURE, "azure", "TIMESTAMP")])
def test_the_format_is_recognised_by_content_and_says_why(tmp_path: Path, text: str, name: str, why: str) -> None:
    path = write(tmp_path, text)
    found, reason = detect(path)
    assert found.name == name
    assert why in reason
    trace = read_trace(path)
    assert (trace.format, trace.why) == (name, reason)
    assert read_trace(path, format=name).why == "named in the configuration"


def test_bad_lines_at_the_start_do_not_hide_the_format(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, f"\n\nserver restarted\n{{}}\n{ROW}\n"))
    assert trace.source_line.tolist() == [5]
    assert trace.quarantine.source_line == [3, 4]


@pytest.mark.parametrize(
    "text",
    [
        "arrived,prompt,output\n0.0,1,2\n",
        '{"chat_id": 1, "timestamp": 0.5, "input_length": 2, "output_length": 3,"hash_ids": [1]}',
        '{"schema": "x.agentic", "version": 2, "block_size": 64}\n' + ROW,
        '{"id": "t", "requests": []}',
        "\x00\x01\x02",
    ],
)
def test_files_of_other_kinds_are_not_guessed_at(tmp_path: Path, text: str) -> None:
    with pytest.raises(TraceError, match=r"not recognised; the first line is .* mooncake, mooncake-delta, .*columns"):
        read_trace(write(tmp_path, text))


def test_a_file_that_two_formats_recognise_has_to_be_named(tmp_path: Path) -> None:
    path = write(tmp_path, AZURE.replace("GeneratedTokens", "GeneratedTokens,num_prefill_tokens,num_decode_tokens"))
    with pytest.raises(TraceError, match=r"several formats \(azure: CSV header with TIMESTAMP.*; vidur: CSV header"):
        read_trace(path)


def test_an_unknown_format_name(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="format 'wakame' is not one of mooncake, mooncake-delta"):
        read_trace(write(tmp_path, ROW), format="wakame")


def test_strict_stops_at_the_first_bad_row(tmp_path: Path) -> None:
    path = write(tmp_path, f"{ROW}\n\n{ROW.replace('600', '-600')}\nx\n")
    with pytest.raises(TraceError, match=r"line 3: negative in input_length=-600: \{"):
        read_trace(path, strict=True)
    assert len(read_trace(path)) == 1


@pytest.mark.parametrize("text", ["", "\n\n  \n"])
@pytest.mark.parametrize("format", [None, "mooncake", "azure"])
def test_an_empty_trace(tmp_path: Path, text: str, format: str | None) -> None:
    with pytest.raises(TraceError, match="the trace is empty"):
        read_trace(write(tmp_path, text), format=format)


def test_a_header_alone_is_empty(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="the trace is empty"):
        read_trace(write(tmp_path, AZURE.splitlines()[0]))


def test_no_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such trace file"):
        read_trace(tmp_path / "absent")
    with pytest.raises(TraceError, match=r"no file in this folder ends in \.json"):
        read_trace(tmp_path)
    with pytest.raises(TraceError, match="is a folder"):
        read_trace(tmp_path, format="mooncake")


def test_all_rows_in_quarantine_is_an_error_that_shows_some(tmp_path: Path) -> None:
    bad = ROW.replace("600", "-600")
    with pytest.raises(TraceError) as error:
        read_trace(write(tmp_path, f"{bad}\n" * 5 + "x\n"))
    said = str(error.value)
    assert "no usable row among 6 (read as Mooncake JSON lines): 5 x negative, 1 x bad_json" in said
    assert "  line 1: negative in input_length: {" in said


def zstd(data: bytes) -> bytes:
    import pyarrow as pa

    packed = pa.BufferOutputStream()
    with pa.CompressedOutputStream(packed, "zstd") as stream:
        stream.write(data)
    return bytes(packed.getvalue())


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_packed_files_are_read_as_they_are_and_digests_differ(tmp_path: Path, packing: str) -> None:
    plain = write(tmp_path, f"{ROW}\n{ROW}\n")
    packed = tmp_path / "packed"
    data = plain.read_bytes()
    packed.write_bytes(gzip.compress(data, mtime=0) if packing == "gzip" else zstd(data))
    one, other = read_trace(plain), read_trace(packed)
    assert one.prompt_tokens.tolist() == other.prompt_tokens.tolist()
    assert one.counts == other.counts
    for trace, path in ((one, plain), (other, packed)):
        assert trace.digest == hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    packed.write_bytes(packed.read_bytes()[:-12])
    with pytest.raises(TraceError, match=f"broken {packing}"):
        read_trace(packed)


def test_a_byte_order_mark_is_no_character(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    for text in (ROW, AZURE):
        path.write_bytes(b"\xef\xbb\xbf" + text.encode())
        assert len(read_trace(path)) == 1


def test_progress_ends_at_the_size(tmp_path: Path) -> None:
    path, seen = write(tmp_path, f"{ROW}\n" * 1000), []
    read_trace(path, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)


def planted(path: Path, n: int) -> tuple[dict[int, str], list[int], list[int]]:
    """Write n lines, bad and blank ones among them; return the truth: reason per bad line, clean lines, blank lines."""
    draw = random.Random(5)
    faults = {
        "bad_json": '{"timestamp": 1, "inp',
        "missing_field": '{"timestamp": 1, "input_length": 3, "hash_ids": [1]}',
        "wrong_type": '{"timestamp": 1, "input_length": "3", "output_length": 1, "hash_ids": [1]}',
        "negative": '{"timestamp": -1, "input_length": 3, "output_length": 1, "hash_ids": [1]}',
        "not_finite": '{"timestamp": NaN, "input_length": 3, "output_length": 1, "hash_ids": [1]}',
        "hash_count_mismatch": '{"timestamp": 1, "input_length": 9999, "output_length": 1, "hash_ids": [1]}',
    }
    bad, clean, blank = {}, [], []
    with path.open("wb") as file:
        for number in range(1, n + 1):
            u = draw.random()
            if u < 0.002:
                reason = draw.choice(sorted(faults))
                bad[number], text = reason, faults[reason]
            elif u < 0.003:
                blank.append(number)
                text = draw.choice(["", "   "])
            else:
                clean.append(number)
                length = draw.randrange(1, 20_000)
                ids = list(range(-(-length // 512)))
                text = json.dumps({"timestamp": number, "input_length": length, "output_length": 5, "hash_ids": ids})
            file.write(text.encode() + draw.choice([b"\n", b"\r\n"]))
    return bad, clean, blank


def test_line_numbers_on_a_large_file_agree_with_a_line_by_line_count(tmp_path: Path) -> None:
    path = tmp_path / "large.jsonl"
    bad, clean, blank = planted(path, 60_000)
    assert path.stat().st_size > 8 << 20  # many read buffers, so that lines straddle their borders
    trace = read_trace(path)
    assert dict(zip(trace.quarantine.source_line, trace.quarantine.reason)) == bad
    assert trace.source_line.tolist() == clean
    assert trace.counts.blank == len(blank)
    assert trace.counts.lines == 60_000 == trace.counts.clean + trace.counts.quarantined + trace.counts.blank
    rows = sorted([*clean, *bad])
    assert trace.request_id.tolist() == [rows.index(line) for line in clean[:200]] + trace.request_id.tolist()[200:]
    with path.open("rb") as file:
        raw = {number: line.rstrip(b"\r\n").decode() for number, line in enumerate(file, 1) if number in bad}
    assert dict(zip(trace.quarantine.source_line, trace.quarantine.raw)) == raw


# Published files are not ours to ship: name a folder that holds them to check the reader against their known counts.
REAL = os.environ.get("TRACEMILL_TRACES")


@pytest.mark.skipif(not REAL, reason="TRACEMILL_TRACES names no folder with published traces")
@pytest.mark.parametrize(
    ("name", "rows", "prompt", "output", "ids"),
    [
        ("mooncake/conversation_trace.jsonl", 12_031, 144_793_823, 4_122_048, 288_500),
        ("mooncake/synthetic_trace.jsonl", 3_993, 61_194_628, 595_432, 121_877),
        ("azure/AzureLLMInferenceTrace_code.csv", 8_819, 18_059_974, 245_896, None),
        ("azure/AzureLLMInferenceTrace_conv.csv", 19_366, 22_361_870, 4_088_665, None),
        ("vidur/splitwise_code.csv", 8_819, 18_059_974, 245_896, None),
        ("vidur/splitwise_conv.csv", 19_366, 22_361_870, 4_088_665, None),
        ("vidur/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv", 28_257, 73_131_321, 8_234_948, None),
        ("splitwise/test_trace.csv", 3, 8_192, 56, None),
        ("weka", 62, 3_828_926, 29_686, 59_799),
        ("vllm_ground_truth/rtx4090_llama-3.1-8b/requests.jsonl", 300, 257_239, 195_753, None),
    ],
)
def test_published_traces(name: str, rows: int, prompt: int, output: int, ids: int | None) -> None:
    trace = read_trace(Path(str(REAL)) / name, needs_timestamps="arxiv" not in name)
    assert len(trace) == trace.counts.rows_read == rows
    assert (int(trace.prompt_tokens.sum()), int(trace.output_tokens.sum())) == (prompt, output)
    assert ids is None if trace.hash_ids is None else len(trace.hash_ids) == ids
    assert trace.notes["sorted"] or name == "weka"


@pytest.mark.skipif(not REAL, reason="TRACEMILL_TRACES names no folder with published traces")
@pytest.mark.parametrize("name", ["code", "conv"])
def test_published_azure_and_vidur_files_are_equal_row_by_row(name: str) -> None:
    azure = read_trace(Path(str(REAL)) / f"azure/AzureLLMInferenceTrace_{name}.csv")
    vidur = read_trace(Path(str(REAL)) / f"vidur/splitwise_{name}.csv")
    assert azure.prompt_tokens.tolist() == vidur.prompt_tokens.tolist()
    assert azure.output_tokens.tolist() == vidur.output_tokens.tolist()
    assert abs(azure.arrival_ns - vidur.arrival_ns).max() < 1000
