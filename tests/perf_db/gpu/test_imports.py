"""Importing: checked as a whole, moved into place as a whole, refused as a whole."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

from perf_db.gpu.catalog import whole_passes
from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.imports import LOG, import_data, missing_hardware
from perf_db.gpu.operator_tables import OPERATOR_TABLES
from perf_db.gpu.source import open_root
from tests.perf_db.gpu.measured import extra_root, gemm, rows_of, write_root

FILE = "h200_sxm/gemm/vllm/0.24.0/gemm_perf.parquet"
PLACE = {"system": "h200_sxm", "backend": "vllm", "version": "0.24.0"}


def everything(root: Path) -> dict[str, bytes]:
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def test_a_loose_table_lands_where_pricing_looks(tmp_path):
    source = tmp_path / "gemm_perf.parquet"
    gemm({1: 0.1, 2: 0.2}).write_parquet(source)
    (found,) = import_data(source, tmp_path / "root", identity=PLACE)
    assert (found.target, found.state, found.rows) == (f"systems/data/{FILE}", "new", 2)
    assert (tmp_path / "root" / found.target).read_bytes() == source.read_bytes()
    told = json.loads((tmp_path / "root" / LOG).read_text())
    assert told == {"file": found.target, "rows": 2, "blake2b": found.digest}
    assert open_root(tmp_path / "root").data.is_dir()
    assert missing_hardware(tmp_path / "root") == ["h200_sxm"]


def test_where_it_was_measured_must_be_said(tmp_path):
    gemm({1: 0.1}).write_parquet(tmp_path / "gemm_perf.parquet")
    with pytest.raises(PerfDataError, match="what was it measured on\\? give --backend, --version"):
        import_data(tmp_path / "gemm_perf.parquet", tmp_path / "root", identity={"system": "h200_sxm"})
    assert not (tmp_path / "root").exists()


def test_one_bad_file_keeps_all_out(tmp_path):
    folder = tmp_path / "given"
    folder.mkdir()
    gemm({1: 0.1}).write_parquet(folder / "gemm_perf.parquet")
    rows_of("moe", [{"num_tokens": 1, "latency": float("nan")}]).write_parquet(folder / "moe_perf.parquet")
    root = write_root(tmp_path / "root", {FILE: gemm({1: 0.3})}).path
    before = everything(root)
    with pytest.raises(PerfDataError) as caught:
        import_data(folder, root, identity=PLACE, replace=True)
    assert "moe_perf.parquet (1 rows): column 'latency' is null, NaN" in str(caught.value)
    assert caught.value.reason == "bad_file" and everything(root) == before


def test_a_whole_folder_and_again(tmp_path):
    source = write_root(tmp_path / "given", {FILE: gemm({1: 0.1})}).path
    first = import_data(source, tmp_path / "root")
    assert {f.target for f in first} == {f"systems/data/{FILE}", "systems/h200_sxm.yaml"}
    again = import_data(source, tmp_path / "root")
    assert {f.state for f in again} == {"same"}


def test_other_contents_are_replaced_on_purpose_only(tmp_path):
    source = write_root(tmp_path / "given", {FILE: gemm({1: 0.1})}).path
    root = write_root(tmp_path / "root", {FILE: gemm({1: 0.3})}).path
    before = everything(root)
    with pytest.raises(PerfDataError, match="is there already with other contents"):
        import_data(source, root)
    assert everything(root) == before
    assert {f.state for f in import_data(source, root, replace=True, dry_run=True)} == {"same", "replaced"}
    assert everything(root) == before
    import_data(source, root, replace=True)
    assert pl.read_parquet(root / "systems" / "data" / FILE)["latency"].to_list() == [0.1]


def test_a_disk_that_fills_up_leaves_nothing_behind(tmp_path, monkeypatch):
    source = write_root(tmp_path / "given", {FILE: gemm({1: 0.1})}).path
    root = write_root(tmp_path / "root", {FILE: gemm({1: 0.3})}).path
    before = everything(root)
    copied = []

    def full(a, b):
        copied.append(b)
        Path(b).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(OSError, match="No space"):
        import_data(source, root, replace=True)
    assert copied and everything(root) == before


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda p: None, "no such file or folder"),
        (lambda p: p.mkdir(), "nothing to import"),
    ],
)
def test_what_is_no_data(tmp_path, make, said):
    make(tmp_path / "given")
    with pytest.raises(PerfDataError, match=said):
        import_data(tmp_path / "given", tmp_path / "root", identity=PLACE)


def test_every_table_knows_its_folder():
    assert {table.family for table in OPERATOR_TABLES.values()} == {
        "attention", "encoder_attention", "gemm", "quantize", "moe", "mlp", "mla", "mla_bmm", "sparse_attention", "msa",
        "linear_attention", "kda", "mhc", "comm",
    }  # fmt: skip


def test_the_extra_keeps_its_tables_in_the_same_folders():
    root = extra_root()
    for path in root.data.rglob("*_perf.parquet"):
        assert OPERATOR_TABLES[path.stem.removesuffix("_perf")].family == path.parts[-4]


ITERATIONS = [
    {"scheduled_requests": {"num_prefill_requests": 1, "sum_prefill_tokens": 512}, "wall_time": 0.020},
    {"scheduled_requests": {"num_prefill_requests": 1, "sum_prefill_tokens": 512}, "wall_time": 0.024},
    {"scheduled_requests": {"num_decode_requests": 4, "sum_decode_kv_tokens": 4000}, "wall_time": 0.008},
    {"scheduled_requests": {"num_prefill_requests": 1, "sum_prefill_tokens": 9, "num_decode_requests": 1,
                            "sum_decode_kv_tokens": 10}, "wall_time": 0.009},
]  # fmt: skip


def test_iterations_of_an_engine_become_a_whole_forward_table(tmp_path):
    source = tmp_path / "night.jsonl"
    source.write_text("".join(json.dumps(each) + "\n" for each in ITERATIONS))
    with pytest.raises(PerfDataError, match="whose iterations are these\\? give --model"):
        import_data(source, tmp_path / "root", identity=PLACE)
    about = PLACE | {"model": "Qwen/Qwen3-32B", "tp": 2}
    (found,) = import_data(source, tmp_path / "root", identity=about)
    assert (found.target, found.rows) == ("forward/h200_sxm/vllm/0.24.0/night.parquet", 2)
    (cell,) = whole_passes(open_root(tmp_path / "root"))
    assert (cell.model, cell.tp, cell.rows, cell.cell) == ("Qwen/Qwen3-32B", 2, 2, "night")
    ms = pl.read_parquet(tmp_path / "root" / found.target).sort("workload_kind")["latency_ms"].to_list()
    assert ms == [pytest.approx(8.0), pytest.approx(22.0)]
    # The pair is brought in again like any other table; half of it is not.
    pair = tmp_path / "root" / "forward"
    assert import_data(pair, tmp_path / "other")[0].state == "new"
    (tmp_path / "root" / found.target).with_suffix(".metadata.json").unlink()
    with pytest.raises(PerfDataError, match=r"night\.metadata\.json: missing"):
        import_data(pair, tmp_path / "third")


def test_a_broken_line_is_named(tmp_path):
    (tmp_path / "night.jsonl").write_text(json.dumps(ITERATIONS[0]) + "\nno json\n")
    with pytest.raises(PerfDataError, match=r"night\.jsonl:2: not JSON"):
        import_data(tmp_path / "night.jsonl", tmp_path / "root", identity=PLACE | {"model": "m"})
    assert not (tmp_path / "root").exists()
