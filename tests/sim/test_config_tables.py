"""Timing tables: inline or in a file, one identity, and named faults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sim.config import ConfigError, load_run_config
from sim.spec import TableTiming

ARRAYS: dict[str, Any] = {
    "prefill_isl": [0, 100, 200.5],
    "prefill_ttft_ms": [10.0, 11.0, 14.5],
    "decode_active_kv_tokens": [0.0, 1000.0],
    "decode_context_length": [1.0, 50.0, 100.0],
    "decode_itl": [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]],
}


def config(base: Path | None = None, **timing: Any):  # type: ignore[no-untyped-def]
    return load_run_config({"engine": {"workers": {"aggregated": {"timing": {"type": "table", **timing}}}}}, base=base)


def write(folder: Path, kind: str, arrays: dict[str, Any]) -> str:
    path = folder / f"table.{kind}"
    if kind == "json":
        path.write_text(json.dumps(arrays))
    elif kind == "npz":
        np.savez(path, **{name: np.asarray(values) for name, values in arrays.items()})
    else:
        pq.write_table(pa.Table.from_pylist([arrays]), path)
    return path.name


def test_arrays_reach_the_engine_under_its_names() -> None:
    timing = config(**ARRAYS).engine_spec().timing
    assert isinstance(timing, TableTiming)
    np.testing.assert_array_equal(timing.prefill_tokens, [0, 100, 200.5])
    np.testing.assert_array_equal(timing.decode_ms, ARRAYS["decode_itl"])
    assert timing.decode_ms.shape == (len(timing.decode_kv_tokens), len(timing.decode_context))


@pytest.mark.parametrize("kind", ["json", "npz", "parquet"])
def test_a_file_is_the_same_table_as_its_numbers(tmp_path: Path, kind: str) -> None:
    arrays = {name: np.asarray(values, float).tolist() for name, values in ARRAYS.items()}
    found = config(tmp_path, path=write(tmp_path, kind, arrays))
    assert found.canonical() == config(**ARRAYS).canonical()


def test_paths_start_from_the_configuration(tmp_path: Path) -> None:
    write(tmp_path, "json", ARRAYS)
    file = tmp_path / "run.yaml"
    file.write_text("engine: {workers: {aggregated: {timing: {type: table, path: table.json}}}}\n")
    assert isinstance(load_run_config(file).engine_spec().timing, TableTiming)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"prefill_isl": [0, 0, 1]}, "prefill_isl needs at least two values, each larger than the one before"),
        ({"decode_context_length": [1.0]}, "decode_context_length needs at least two values"),
        ({"prefill_ttft_ms": [1.0, 2.0]}, "one value per prefill_isl"),
        ({"decode_itl": [[1.0, 2.0, 3.0]]}, "decode_itl needs 2 rows"),
        ({"decode_itl": [[1.0, 2.0, 3.0], [4.0]]}, "decode_itl needs 2 rows"),
        ({"decode_itl": [[1.0, 2.0, 3.0], [4.0, -5.0, 6.0]]}, "decode_itl holds a negative duration"),
        ({"prefill_ttft_ms": [1.0, float("nan"), 2.0]}, "prefill_ttft_ms.1=nan: write a finite number"),
        ({"prefill_ttft_ms": [1.0, "2", 2.0]}, "prefill_ttft_ms.1='2': write a number"),
        ({"path": "x.json"}, "either path or the arrays"),
        ({"prefill": [1]}, "timing.prefill: unknown field; did you mean prefill_isl?"),
    ],
)
def test_tables_that_cannot_be(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        config(**{**ARRAYS, **change})
    assert said in str(error.value)


def test_files_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"table .*absent\.json does not exist"):
        config(tmp_path, path="absent.json")
    (tmp_path / "table.txt").write_text("1")
    with pytest.raises(ConfigError, match=r"is not \.parquet, \.json or \.npz"):
        config(tmp_path, path="table.txt")
    (tmp_path / "table.json").write_text("{")
    with pytest.raises(ConfigError, match="cannot be read"):
        config(tmp_path, path="table.json")
    short = {name: values for name, values in ARRAYS.items() if name != "decode_itl"}
    with pytest.raises(ConfigError, match="lacks decode_itl"):
        config(tmp_path, path=write(tmp_path, "json", short))
