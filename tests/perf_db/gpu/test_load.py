"""Which file answers, which row of it, and what a file must be."""

from __future__ import annotations

import polars as pl
import pytest
import yaml

from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.load import current_version, load, sources, where_it_would_be
from perf_db.gpu.operator_tables import OPERATOR_TABLES
from tests.perf_db.gpu.measured import gemm, rows_of, write_root

OWN, OLD, LATER = (f"h200_sxm/gemm/vllm/{v}/gemm_perf.parquet" for v in ("0.24.0", "0.19.0", "0.26.0"))
OTHER = "h200_sxm/gemm/sglang/0.5.14/gemm_perf.parquet"


def loaded(root, **more):
    return load(root, "h200_sxm", "vllm", "0.24.0", "gemm", **({"clean": False} | more))


def manifest(root, *groups):
    (root.systems / "perf_data_reuse_manifest.yaml").write_text(yaml.safe_dump({"groups": list(groups)}))


def test_own_version_first_then_earlier_ones_never_later_ones(tmp_path):
    root = write_root(tmp_path, {OWN: gemm({1: 1.0}), OLD: gemm({1: 9.0, 2: 2.0}), LATER: gemm({4: 4.0})})
    rows = loaded(root).select("m", "latency", "file").rows()
    assert [(m, ms) for m, ms, _ in rows] == [(1, 1.0), (2, 2.0)]
    assert [file.split("/")[5] for _, _, file in rows] == ["0.24.0", "0.19.0"]


def test_other_backends_lend_the_kernels_the_manifest_allows(tmp_path):
    shared = pl.concat([gemm({8: 1.0}, kernel_source="ours"), gemm({16: 1.0}, kernel_source="theirs")])
    root = write_root(tmp_path, {OWN: gemm({1: 1.0}), OTHER: shared})
    assert loaded(root)["m"].to_list() == [1]
    lent = {"op_file": "gemm_perf.parquet", "kernel_source": "ours", "tier": "shared", "frameworks": ["sglang", "vllm"]}
    absent = lent | {"kernel_source": "theirs", "tier": "absence_load_bearing"}
    manifest(root, lent, absent)
    assert loaded(root)["m"].to_list() == [1, 8]


def test_the_first_row_of_a_key_wins(tmp_path):
    twice = pl.concat([gemm({1: 5.0, 2: 6.0}), gemm({1: 3.0})])
    rows = loaded(write_root(tmp_path, {OWN: twice})).select("m", "latency", "row").rows()
    assert rows == [(1, 5.0, 0), (2, 6.0, 1)]


def test_cleaning_sees_the_duplicates_of_the_source_that_wins_only(tmp_path):
    twice = pl.concat([gemm({1: 5.0}), gemm({1: 6.0})])
    root = write_root(tmp_path, {OWN: twice, OLD: gemm({1: 50.0})})
    assert loaded(root, clean=True)["latency"].to_list() == [5.5]  # the median of the two


def test_a_slice_holds_what_was_asked_for(tmp_path):
    both = pl.concat([gemm({1: 1.0}), gemm({1: 2.0}, gemm_dtype="fp8"), gemm({1: 3.0}, n=64)])
    root = write_root(tmp_path, {OWN: both})
    assert loaded(root, where={"gemm_dtype": "fp8"})["latency"].to_list() == [2.0]
    assert loaded(root, where={"n": [64, 4096], "gemm_dtype": "bfloat16"})["latency"].to_list() == [1.0, 3.0]
    assert loaded(root, where={"n": 5}).is_empty()


def test_a_changed_file_is_read_again(tmp_path):
    root = write_root(tmp_path, {OWN: gemm({1: 1.0})})
    assert loaded(root)["latency"].to_list() == [1.0]
    gemm({1: 2.0, 2: 2.5}).write_parquet(root.data / OWN)
    assert loaded(root)["latency"].to_list() == [2.0, 2.5]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (gemm({1: float("nan"), 2: 1.0}), "column 'latency' is null, NaN, infinite or not above 0 in 1 of 2 rows"),
        (gemm({1: 1.0}).drop("k"), "column 'k' is missing"),
        (gemm({1: 1.0}).with_columns(m=pl.lit("one")), "column 'm' is"),
        (gemm({1: 1.0}).rename({"latency": "latency_us"}), "column 'latency' is missing"),
        (gemm({1: 1000.0, 2: 2000.0, 4: 4000.0}), "the unit is another one"),
    ],
)
def test_a_file_that_is_none_names_itself_its_rows_and_columns(tmp_path, rows, said):
    root = write_root(tmp_path, {OWN: rows})
    for _ in range(2):  # nothing of it was kept
        with pytest.raises(PerfDataError) as caught:
            loaded(root)
        assert caught.value.reason == "bad_file"
        assert f"systems/data/{OWN} ({rows.height} rows)" in str(caught.value) and said in str(caught.value)
    gemm({1: 1.0}).write_parquet(root.data / OWN)
    assert loaded(root)["latency"].to_list() == [1.0]


def test_libraries_answer_in_their_own_version(tmp_path):
    at = "h200_sxm/comm/nccl/{}/nccl_perf.parquet"
    rows = {v: rows_of("nccl", [{"message_size": 8}], latency=ms) for v, ms in (("2.23", 1.0), ("2.27.3", 2.0))}
    rows["2.29.2"] = rows_of("nccl", [{"message_size": 8}, {"message_size": 16}], latency=3.0)
    root = write_root(tmp_path, {at.format(v): frame for v, frame in rows.items()})
    found = [s.version for s in sources(root, "h200_sxm", "vllm", "0.24.0", OPERATOR_TABLES["nccl"])]
    assert found == ["2.27.3", "2.23", "2.29.2"]  # the one of the hardware file, earlier ones, later ones
    got = load(root, "h200_sxm", "vllm", "0.24.0", "nccl", clean=False)
    assert got["latency"].to_list() == [2.0, 3.0]


def test_the_current_version_is_the_listed_one_else_the_newest(tmp_path):
    root = write_root(tmp_path, {OWN: gemm({1: 1.0}), LATER: gemm({1: 1.0})})
    assert current_version(root, "h200_sxm", "vllm") == "0.26.0"
    slots = {"defaults": {"vllm": {"current": "0.24.0"}}, "overrides": {"b60": {"vllm": {"current": "0.26.0"}}}}
    (root.systems / "query_versions.yaml").write_text(yaml.safe_dump(slots))
    assert current_version(root, "h200_sxm", "vllm") == "0.24.0"
    with pytest.raises(PerfDataError, match=r"unknown backend 'vlm'; nearest: vllm; `tracemill perf list"):
        current_version(root, "h200_sxm", "vlm")


def test_where_a_missing_table_would_be(tmp_path):
    root = write_root(tmp_path, {OWN: gemm({1: 1.0}), "b200_sxm/moe/vllm/0.24.0/moe_perf.parquet": gemm({1: 1.0})})
    assert where_it_would_be(root, "h200_sxm", "trtllm", "1.0", "moe") == (
        "systems/data/h200_sxm/moe/trtllm/1.0/moe_perf.parquet"
    )
