"""Performance data on the command line and in Dagster, on a small folder of made-up tables."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import dagster as dg
import polars as pl
import pytest

from assets.views import open_store
from perf_db.gpu.quality import PerfVersion
from perf_db.gpu.source import PerfRoot
from perf_db.tables import PERFORMANCE_TABLES
from pipelines.perf_partitions import register_versions
from tests.perf_db.gpu.measured import gemm, write_root
from tests.perf_db.hand_made import write_run
from tests.pipelines.conftest import Cli

VLLM = "h200_sxm/gemm/vllm/0.24.0/gemm_perf.parquet"
SGLANG = "h200_sxm/gemm/sglang/0.5.14/gemm_perf.parquet"
VERSION = PerfVersion("h200_sxm", "vllm", "0.24.0")


@pytest.fixture
def held(tmp_path: Path) -> PerfRoot:
    """vLLM with a spike, a fall and a host-bound slice; sglang without."""
    good = gemm({1: 0.010, 64: 0.012, 128: 0.014, 256: 0.02})
    block = gemm({1: 0.011, 64: 0.012, 2048: 0.1}, gemm_dtype="fp8_block")
    own = gemm({1: 0.010, 64: 0.05, 128: 0.014, 256: 0.012})
    bound = gemm({1: 0.2, 64: 0.21, 2048: 0.22}, gemm_dtype="fp8_block")
    return write_root(tmp_path / "held", {VLLM: own.vstack(bound), SGLANG: good.vstack(block)})


def materialize(store_root: Path, held: PerfRoot) -> dg.ExecuteInProcessResult:
    from pipelines.definitions import defs

    with dg.DagsterInstance.ephemeral() as instance:
        (key,) = register_versions(instance, store_root, held, [VERSION])
        return (
            defs()
            .resolve_job_def("performance_data")
            .execute_in_process(
                instance=instance,
                partition_key=key,
                resources={"store": open_store(store_root)},
                raise_on_error=False,
                run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
            )
        )


def checks(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {each.check_name: each.passed for each in result.get_asset_check_evaluations()}


def test_a_version_is_examined_and_shown(root: Path, held: PerfRoot) -> None:
    result = materialize(root, held)
    assert result.success
    assert checks(result) == {
        "files_are_valid": True,
        "few_falling_pairs": False,
        "duplicates_agree": True,
        "no_host_bound_slices": False,
        "cleaned_curves_do_not_fall": True,
    }
    metadata = {
        event.asset_key.to_user_string(): event.step_materialization_data.materialization.metadata
        for event in result.get_asset_materialization_events()
        if event.asset_key
    }
    assert set(metadata) == set(PERFORMANCE_TABLES)
    drawn = metadata["perf_anomalies"]["worst_slices"]
    assert isinstance(drawn, dg.MarkdownMetadataValue) and len(drawn.md_str or "") <= 50_000
    folder = root / "performance" / "h200_sxm" / "vllm" / "0.24.0"
    for name, table in PERFORMANCE_TABLES.items():
        frame = pl.read_parquet(folder / f"{name}.parquet")
        assert frame.columns == list(table.column_names) and frame.height
        assert frame["version"].unique().to_list() == ["0.24.0"]


def test_a_bad_file_stops_what_comes_after(root: Path, held: PerfRoot) -> None:
    (held.data / VLLM).write_bytes(b"no parquet")
    result = materialize(root, held)
    assert not checks(result)["files_are_valid"]


def test_a_version_that_is_gone_is_a_readable_failure(root: Path, held: PerfRoot) -> None:
    (held.data / VLLM).unlink()
    result = materialize(root, held)
    (failed,) = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    assert failed.user_failure_data is not None
    assert "holds no h200_sxm|vllm|0.24.0 any more" in (failed.user_failure_data.description or "")


def test_quality_prints_and_writes(cli: Cli, held: PerfRoot, tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = cli("perf", "quality", "--perf-root", held.path, "--backend", "vllm", "--repairs", "--out", out)
    assert said.exit_code == 0, said.output
    for part in ("h200_sxm/gemm/vllm/0.24.0/gemm_perf.parquet", "host_bound 1", "spike 1", "cleaning changes"):
        assert part in said.output, part
    assert {p.stem for p in out.iterdir()} == set(PERFORMANCE_TABLES)
    rows = [json.loads(line) for line in cli("perf", "quality", "--perf-root", held.path, "--json").output.splitlines()]
    assert [row["n_host_bound"] for row in rows] == [0, 1]


def test_quality_of_a_bad_file_is_exit_code_1(cli: Cli, held: PerfRoot) -> None:
    (held.data / VLLM).write_bytes(b"no parquet")
    said = cli("perf", "quality", "--perf-root", held.path)
    assert said.exit_code == 1 and "not a parquet file" in said.output


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (("--system", "h20_sxm"), "unknown system 'h20_sxm'; nearest: h200_sxm"),
        (("--backend", "vlm"), "unknown backend 'vlm'; nearest: vllm"),
        (("--version", "1"), "unknown version '1'"),
        (("--table", "gem"), "unknown table 'gem'; nearest: gemm"),
    ],
)
def test_a_name_nobody_has_is_exit_code_2(cli: Cli, held: PerfRoot, wish: tuple[str, str], said: str) -> None:
    result = cli("perf", "quality", "--perf-root", held.path, *wish)
    assert result.exit_code == 2 and said in result.stderr


def test_list_shows_what_is_held(cli: Cli, held: PerfRoot) -> None:
    rows = [json.loads(line) for line in cli("perf", "list", "--perf-root", held.path, "--json").output.splitlines()]
    assert [(row["backend"], row["gemm"]) for row in rows] == [
        ("sglang", ["bfloat16", "fp8_block"]),
        ("vllm", ["bfloat16", "fp8_block"]),
    ]
    assert "models (0)" in cli("perf", "list", "--perf-root", held.path).output


def test_import_then_diff(cli: Cli, held: PerfRoot, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    assert cli("perf", "import", held.path, copy).exit_code == 0
    assert cli("perf", "diff", held.path, copy).exit_code == 0
    mine = tmp_path / "gemm_perf.parquet"
    gemm({1: 0.009, 64: 0.05}).write_parquet(mine)
    about = ("--system", "h200_sxm", "--backend", "vllm", "--version", "0.24.0")
    refused = cli("perf", "import", mine, copy, *about)
    assert refused.exit_code == 2 and "already with other contents" in refused.stderr
    assert cli("perf", "import", mine, copy, *about, "--replace").exit_code == 0
    said = cli("perf", "diff", held.path, copy)
    assert said.exit_code == 1 and "0 added, 5 removed, 1 changed" in said.output
    found = json.loads(cli("perf", "diff", held.path, copy, "--json").output)
    (file,) = found["files"]
    assert file["points"]["changed"] == 1 and not found["same"] and file["n_rows"] == [7, 2]


def test_register_makes_partitions(cli: Cli, held: PerfRoot, root: Path) -> None:
    said = cli("perf", "register", "--perf-root", held.path)
    assert said.exit_code == 0 and "h200_sxm|sglang|0.5.14\nh200_sxm|vllm|0.24.0\n2 partition(s)" in said.output
    known = json.loads((root / "performance" / "roots.json").read_text())
    assert known == {key: str(held.path) for key in ("h200_sxm|sglang|0.5.14", "h200_sxm|vllm|0.24.0")}


def test_sql_reads_what_was_examined(cli: Cli, root: Path, held: PerfRoot) -> None:
    ask = ("sql", "SELECT kind, count(*) AS n FROM perf_anomalies GROUP BY kind ORDER BY kind", "--format", "csv")
    write_run(open_store(root), "r1")
    assert cli(*ask).output.splitlines() == ["kind,n"]
    materialize(root, held)
    assert cli(*ask).output.splitlines() == ["kind,n", "host_bound,1", "non_monotone,2", "spike,1"]
    said = cli("sql", "SELECT file, n_host_bound FROM perf_tables", "--format", "csv")
    assert said.output.splitlines()[1:] == [f"systems/data/{VLLM},1"]


def test_without_the_extra_the_embedded_tables_are_listed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", None)
    said = cli("perf", "list", "--system", "h200_sxm", "--tp", "2")
    assert said.exit_code == 0 and "Qwen/Qwen3-32B" in said.output and "ship with tracemill" in said.output
    rows = [json.loads(line) for line in cli("perf", "list", "--json").output.splitlines()]
    assert len(rows) == 10
    refused = cli("perf", "quality")
    assert refused.exit_code == 2 and "pip install 'tracemill[perfdata]'" in refused.stderr
