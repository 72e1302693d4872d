"""`perf check` and `perf show` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.perf_db.gpu.measured import extra_root
from tests.perf_db.gpu.tiny import MODEL, write_tiny
from tests.pipelines.conftest import Cli

RECORDED = Path(__file__).parents[1] / "golden" / "perf"


@pytest.fixture
def folder(tmp_path):
    return write_tiny(tmp_path / "root").path


def test_show_prints_curves_operators_and_blocks(cli: Cli, folder: Path, tmp_path: Path) -> None:
    picture = tmp_path / "curves.svg"
    got = cli("perf", "show", MODEL, "--system", "h200_sxm", "--perf-root", folder, "--no-clean", "--plot", picture)
    assert got.exit_code == 0, got.output
    assert got.stdout.startswith("tiny/dense on h200_sxm, vllm 0.24.0, TP 1")
    for said in (
        "prefill, ms per pass (* beyond the measured points)",
        "decode: 64 requests at KV length 2,048",
        "generation_attention",
        "KV blocks of 16 tokens at 256 bytes per token",
        "from 5 files of a folder of yours, cleaning off",
    ):
        assert said in got.stdout
    assert picture.read_text().startswith("<svg")


def test_show_as_json_holds_the_same_figures(cli: Cli, folder: Path) -> None:
    got = cli("perf", "show", MODEL, "--system", "h200_sxm", "--perf-root", folder, "--no-clean", "--json")
    page = json.loads(got.stdout)
    operators = page["breakdown"]["prefill"]["operators"]
    (same,) = [p for p in page["curves"]["prefill"] if p["new tokens"] == 2048 and p["prefix"] == 0]
    assert sum(line["ms"] for line in operators) == pytest.approx(same["ms"]) and same["extrapolated"]
    assert page["deployment"]["tp"] == 1 and page["refused"] == {}


def test_a_what_if_factor_changes_the_price(cli: Cli, folder: Path) -> None:
    asked = ("perf", "show", MODEL, "--system", "h200_sxm", "--perf-root", folder, "--no-clean", "--json")

    def ffn2(*more: str) -> float:
        lines = json.loads(cli(*asked, *more).stdout)["breakdown"]["decode"]["operators"]
        return next(line["ms"] for line in lines if line["op"] == "generation_ffn2_gemm")

    assert ffn2("--factor", "ffn2_gemm=0.5") == pytest.approx(0.5 * ffn2())


@pytest.mark.parametrize(
    ("named", "said"),
    [
        (("tiny/dens", "--system", "h200_sxm"), "unknown model 'tiny/dens'; nearest: tiny/dense"),
        ((MODEL, "--system", "h100"), "unknown system 'h100'; nearest: h200_sxm"),
        ((MODEL, "--system", "h200_sxm", "--gemm", "fp8"), "no gemm rows with gemm_dtype=fp8"),
        ((MODEL, "--system", "h200_sxm", "--factor", "gemm"), "--factor 'gemm': write NAME=X"),
        ((MODEL, "--system", "h200_sxm", "--factor", "gemm=-1"), "--factor 'gemm=-1': write NAME=X"),
    ],
)
def test_what_cannot_be_priced_exits_with_2(cli: Cli, folder: Path, named: tuple[str, ...], said: str) -> None:
    got = cli("perf", "show", *named, "--perf-root", folder)
    assert got.exit_code == 2 and said in got.stderr


def test_check_lists_differences_and_closes_with_counts(cli: Cli) -> None:
    extra_root("0.12.0")
    got = cli("perf", "check", RECORDED, "--failed")
    assert got.exit_code == 0, got.output
    assert got.stdout.splitlines()[-2:] == ["1,986 figures compared", "54 passed, 0 failed, 1 skipped"]


def test_check_of_another_folder_exits_with_2(cli: Cli, folder: Path) -> None:
    got = cli("perf", "check", folder, "--perf-root", folder)
    assert got.exit_code == 2 and "no status.csv" in got.stderr
