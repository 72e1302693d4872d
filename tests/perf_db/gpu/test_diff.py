"""Two states of performance data side by side."""

from __future__ import annotations

import polars as pl
import pytest
import yaml

from perf_db.gpu.diff import diff, side_of
from perf_db.gpu.effects import parse_deployment
from perf_db.gpu.errors import PerfDataError
from tests.perf_db.gpu.measured import gemm, rows_of, write_root

FILE = "h200_sxm/gemm/vllm/0.24.0/gemm_perf.parquet"
NAME = f"systems/data/{FILE}"


def sides(tmp_path, before, after):
    for name, files in (("a", before), ("b", after)):
        write_root(tmp_path / name, files)
    return [side_of(str(tmp_path / name), None) for name in ("a", "b")]


def test_the_same_is_the_same(tmp_path):
    found = diff(*sides(tmp_path, {FILE: gemm({1: 0.1})}, {FILE: gemm({1: 0.1})}))
    assert found.is_empty and found.same == [NAME]


def test_points_added_removed_and_changed(tmp_path):
    before = gemm({1: 0.1, 2: 0.2, 4: 0.4})
    after = gemm({1: 0.1, 2: 0.25, 8: 0.8}).vstack(gemm({1: 0.01}, gemm_dtype="fp8"))
    found = diff(*sides(tmp_path, {FILE: before}, {FILE: after}))
    (file,) = found.files
    assert file["state"] == "changed" and file["n_rows"] == [3, 4]
    assert file["precisions"] == ["gemm_dtype=bfloat16", "gemm_dtype=bfloat16, gemm_dtype=fp8"]
    assert file["axes"][0].startswith("m 1..4 (3)") and file["axes"][1].startswith("m 1..8 (3)")
    ratio = {name: pytest.approx(1.25) for name in ("min", "median", "max")}
    assert file["points"] == {"added": 2, "removed": 1, "changed": 1, "ratio": ratio}
    points = found.points[NAME].select("state", "row_before", "row_after", "before", "after").rows()
    assert sorted(points, key=str) == sorted(
        [("changed", 1, 1, 0.2, 0.25), ("removed", 2, None, 0.4, None), ("added", None, 2, None, 0.8),
         ("added", None, 3, None, 0.01)], key=str,
    )  # fmt: skip


def test_files_added_and_removed(tmp_path):
    moe = "h200_sxm/moe/vllm/0.24.0/moe_perf.parquet"
    rows = rows_of("moe", [{"num_tokens": 1, "latency": 0.1}])
    found = diff(*sides(tmp_path, {FILE: gemm({1: 0.1})}, {moe: rows}))
    assert [(f["file"], f["state"]) for f in found.files] == [(NAME, "removed"), (f"systems/data/{moe}", "added")]


def test_a_broken_file_is_said_to_be_broken(tmp_path):
    broken = gemm({1: 0.1}).with_columns(latency=pl.lit(-1.0))
    (file,) = diff(*sides(tmp_path, {FILE: gemm({1: 0.1})}, {FILE: broken})).files
    assert file["valid"] == [True, False] and "not above 0" in file["faults"][1] and "points" not in file


def test_a_changed_hardware_field_is_named(tmp_path):
    a, b = sides(tmp_path, {FILE: gemm({1: 0.1})}, {FILE: gemm({1: 0.1})})
    path = b.root.systems / "h200_sxm.yaml"
    values = yaml.safe_load(path.read_text())
    values["gpu"]["mem_bw"] = 5e12
    path.write_text(yaml.safe_dump(values))
    found = diff(a, b)
    assert found.facts == {"systems/h200_sxm.yaml": {"gpu.mem_bw": (4.8e12, 5e12)}} and not found.is_empty


def test_versions_and_loose_files_are_matched_by_table(tmp_path):
    other = FILE.replace("0.24.0", "0.22.0")
    write_root(tmp_path / "a", {FILE: gemm({1: 0.1}), other: gemm({1: 0.2})})
    sides_ = [side_of(f"h200_sxm|vllm|{v}", tmp_path / "a") for v in ("0.22.0", "0.24.0")]
    (file,) = diff(*sides_).files
    assert file["file"] == "gemm/gemm_perf.parquet" and file["points"]["changed"] == 1
    gemm({1: 0.3}).write_parquet(tmp_path / "mine.parquet")
    with pytest.raises(PerfDataError, match="is no folder of performance data"):
        side_of("h200_sxm|vllm|0.25.0", tmp_path / "a")
    path = tmp_path / "b" / "gemm_perf.parquet"
    path.parent.mkdir()
    gemm({1: 0.3}).write_parquet(path)
    (file,) = diff(side_of(str(tmp_path / "a/systems/data" / FILE), None), side_of(str(path), None)).files
    assert file["points"]["ratio"]["median"] == pytest.approx(3.0)


def test_deployments_are_named_in_one_line():
    assert parse_deployment("Qwen/Qwen3-32B@h200_sxm/vllm:tp=2,gemm=fp8") == {
        "model": "Qwen/Qwen3-32B", "system": "h200_sxm", "backend": "vllm", "tp": 2, "gemm": "fp8",
    }  # fmt: skip
    assert parse_deployment("m@s/b/1.0")["version"] == "1.0"
    for wrong in ("m", "m@s", "m@s/b:tp=x", "m@s/b:colour=red"):
        with pytest.raises(PerfDataError, match="write MODEL@SYSTEM/BACKEND"):
            parse_deployment(wrong)
