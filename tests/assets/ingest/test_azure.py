"""Azure CSV: wall-clock times to the last digit, and the ways such a file comes."""

from __future__ import annotations

from pathlib import Path

import pytest

from assets.ingest import Trace, TraceError, read_trace

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"


def trace(tmp_path: Path, *rows: str, header: str = HEADER, end: str = "\n", last: str = "") -> Trace:
    path = tmp_path / "trace.csv"
    path.write_bytes((end.join([header, *rows]) + last).encode())
    return read_trace(path)


ROWS = (
    "2023-11-16 18:15:46.6805900,374,44",
    "2023-11-16 18:15:50.9951690,396,109",
    "2023-11-17 00:00:00.0000001,879,0",
)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["", "\n", "\r\n", "\n\n"])
def test_line_ends_of_every_kind(tmp_path: Path, end: str, last: str) -> None:
    found = trace(tmp_path, *ROWS, end=end, last=last)
    assert found.prompt_tokens.tolist() == [374, 396, 879]
    assert found.output_tokens.tolist() == [44, 109, 0]
    assert found.source_line.tolist() == [2, 3, 4]
    assert found.request_id.tolist() == [0, 1, 2]
    assert (found.counts.header, found.counts.blank) == (1, 1 if last == "\n\n" else 0)


def test_seven_fractional_digits_lose_nothing(tmp_path: Path) -> None:
    found = trace(tmp_path, *ROWS)
    assert found.arrival_ns.tolist() == [0, 4_314_579_000, (5 * 3600 + 44 * 60 + 13) * 10**9 + 319_410_100]


@pytest.mark.parametrize(
    ("stamp", "ns"),
    [
        ("2024-05-10 00:00:01", 1_000_000_000),
        ("2024-05-10T00:00:01.5", 1_500_000_000),
        ("2024-05-10 00:00:01.123456789Z", 1_123_456_789),
        ("2024-05-10 02:00:01+02:00", 1_000_000_000),
        ("2024-05-10 02:30:01+0230", 1_000_000_000),
        ("2024-05-10 02:00:01+02", 1_000_000_000),
        ("2024-05-09 19:00:01-05:00", 1_000_000_000),
    ],
)
def test_a_zone_is_optional(tmp_path: Path, stamp: str, ns: int) -> None:
    found = trace(tmp_path, "2024-05-10 00:00:00.0000000,1,1", f"{stamp},1,1")
    assert found.arrival_ns.tolist() == [0, ns]


def test_no_prefixes_and_no_sessions_are_none_not_zero(tmp_path: Path) -> None:
    found = trace(tmp_path, *ROWS)
    assert found.hash_offsets is None
    assert found.hash_ids is None
    assert found.session is None
    assert found.external_id is None


@pytest.mark.parametrize(
    ("bad", "reason", "field"),
    [
        ("2023-11-16 18:15:46,374", "bad_line", None),
        ("2023-11-16 18:15:46,374,44,9", "bad_line", None),
        (",374,44", "missing_field", "TIMESTAMP"),
        ("2023-11-16 18:15:46,,44", "missing_field", "ContextTokens"),
        ("yesterday,374,44", "bad_timestamp", "TIMESTAMP"),
        ("2023-11-31 18:15:46,374,44", "bad_timestamp", "TIMESTAMP"),
        ("2023-11-16 24:15:46,374,44", "bad_timestamp", "TIMESTAMP"),
        ("2023-11-16 18:15:46 ,37 4,44", "wrong_type", "ContextTokens"),
        ("2023-11-16 18:15:46,374,44.0", "wrong_type", "GeneratedTokens"),
        ("2023-11-16 18:15:46,3_74,44", "wrong_type", "ContextTokens"),
        ("2023-11-16 18:15:46,+374,44", "wrong_type", "ContextTokens"),
        ("2023-11-16 18:15:46,٣,44", "wrong_type", "ContextTokens"),
        ("2023-11-16 18:15:46,nan,44", "not_finite", "ContextTokens"),
        ("2023-11-16 18:15:46,374,-44", "negative", "GeneratedTokens"),
        ("2023-11-16 18:15:46,0,44", "non_positive", "ContextTokens"),
        ("2023-11-16 18:15:46,99999999999999999999999,44", "out_of_range", "ContextTokens"),
        ("1815-11-16 18:15:46,374,44", "out_of_range", "TIMESTAMP"),
    ],
)
def test_bad_rows_are_set_aside_with_a_reason(tmp_path: Path, bad: str, reason: str, field: str | None) -> None:
    found = trace(tmp_path, ROWS[0], bad, ROWS[1])
    assert (found.quarantine.reason, found.quarantine.field) == ([reason], [field])
    assert found.quarantine.source_line == [3]
    assert found.quarantine.raw == [bad]


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    found = trace(
        tmp_path,
        '1,"44",2023-11-16 18:15:46,374',
        header='NumImages,"GeneratedTokens",TIMESTAMP,ContextTokens',
    )
    assert (found.prompt_tokens.tolist(), found.output_tokens.tolist()) == ([374], [44])
    assert found.notes["ignored_fields"] == ["NumImages"]


def test_text_that_is_not_utf8_stays_readable(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(f"{HEADER}\n{ROWS[0]}\n".encode() + b"caf\xe9,1,1\n")
    found = read_trace(path)
    assert found.quarantine.reason == ["bad_line"]
    assert found.quarantine.raw == ["caf\\xe9,1,1"]


def test_a_file_without_its_header_is_not_taken_for_one(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(ROWS))
    with pytest.raises(TraceError, match="not recognised"):
        read_trace(path)
    # Whoever insists gets the columns in their published order.
    assert read_trace(path, format="azure").prompt_tokens.tolist() == [374, 396, 879]
