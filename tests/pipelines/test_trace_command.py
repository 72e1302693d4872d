"""`tracemill trace show` and `trace ingest`."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from pipelines.cli import main

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "examples" / "traces" / "demo.jsonl"


def run(*arguments: object) -> str:
    result = CliRunner().invoke(main, [str(each) for each in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_show_says_what_is_there() -> None:
    said = run("trace", "show", DEMO)
    for part in (
        "mooncake (JSON lines with",
        "rows ",
        "clean + ",
        "arrivals",
        "ties",
        "prompt",
        "output",
        "prefixes    at best",
    ):
        assert part in said, part
    found = json.loads(run("trace", "show", DEMO, "--json"))
    assert found["counts"]["clean"] + found["counts"]["quarantined"] == found["counts"]["rows_read"]


def test_show_of_a_prepared_trace_is_the_same(tmp_path: Path) -> None:
    out = tmp_path / "demo.trace"
    assert f"prepared in {out}" in run("trace", "ingest", DEMO, "-o", out)
    one, other = (json.loads(run("trace", "show", path, "--json")) for path in (DEMO, out))
    for name in ("counts", "digest", "prompt_tokens", "output_tokens", "arrivals", "prefix", "quarantine", "sessions"):
        assert one[name] == other[name], name
    assert "mooncake" in run("validate", out)


def test_columns_are_named_on_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("t,in,out\n0,5,1\n2,5,1\nx,5,1\n")
    named = (
        "--column",
        "arrival=t",
        "--column",
        "prompt_tokens=in",
        "--column",
        "output_tokens=out",
        "--time-unit",
        "s",
    )
    said = run("trace", "show", path, *named)
    assert "arrivals    2 over 2 s" in said
    assert "wrong_type, first in line 4: x,5,1" in said
    assert "prefixes    unknown" in said


def test_bad_input_ends_with_2(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(DEMO.read_text() + "x\n")
    for arguments in (
        ["trace", "show", str(tmp_path / "absent")],
        ["trace", "ingest", str(path), "--strict"],
        ["trace", "show", str(path), "--column", "arrived=t"],
    ):
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 2, result.output
    assert [each.name for each in tmp_path.iterdir()] == ["bad.jsonl"]
