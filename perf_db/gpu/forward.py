"""Whole-forward tables: measured iterations of one engine as parquet, and the arrays a timing model reads from them.

A table is a pair of files, `<name>.parquet` and `<name>.metadata.json`; either without the other, or one that
contradicts the other, is an error. A deployment is answered by the cell whose identity is exactly its own: nothing is
borrowed between models, versions or precisions. Coordinates are totals of one rank and one iteration.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perf_db.gpu.errors import PerfDataError

if TYPE_CHECKING:
    import pyarrow as pa

    from perf_db.gpu.whole_roofline import WholeRoofline

SCHEMA_NAME = "aic_fpm_forward_perf"
SCHEMA_VERSION = 1
COORDINATES = "iteration_totals_balanced_v1"
PARTITION = "balanced_v1"
SIDECAR = (
    "schema_name", "schema_version", "coordinate_system", "measurement_policy", "system", "backend",
    "backend_version", "row_count", "parquet_sha256",
)  # fmt: skip

FILE_IDENTITY = ("system", "backend", "backend_version")
EXECUTION_TEXT = (
    "weight_quantization", "gemm_quant_mode", "moe_quant_mode", "fmha_quant_mode", "comm_quant_mode",
    "kv_cache_dtype", "moe_backend", "attention_backend",
)  # fmt: skip
EXECUTION_WHOLE = ("tp", "pp", "dp", "moe_tp", "moe_ep", "cp")
EXECUTION_FLAGS = ("enable_wideep", "enable_eplb")
IDENTITY = ("model_path", *EXECUTION_TEXT, *EXECUTION_WHOLE, *EXECUTION_FLAGS)
WHOLE = ("batch_size", "total_prefill_tokens", "total_kv_read_tokens")
COLUMNS = (
    "cell_id", *FILE_IDENTITY, *IDENTITY, "workload_kind", "partition_policy", *WHOLE, "latency_ms",
)  # fmt: skip

# Above the largest prefill batch the data must show that the batch does not matter.
FLAT_CHANGE, FLAT_OVERLAPS = 0.05, 3
NO_PAST = 1e-9  # stands for 0 past tokens in log2: a site without past is near no other


@dataclass(frozen=True, slots=True)
class ForwardTable:
    """A checked pair.

    Attributes:
        columns: every column of `COLUMNS`, row by row.
        sidecar: the metadata as read.
        digest: SHA-256 of the parquet file.
    """

    path: str
    columns: dict[str, list[Any]]
    sidecar: Mapping[str, Any]
    digest: str

    @property
    def cells(self) -> dict[str, dict[str, Any]]:
        """Identity of each cell."""
        found: dict[str, dict[str, Any]] = {}
        for i, name in enumerate(self.columns["cell_id"]):
            found.setdefault(name, {column: self.columns[column][i] for column in (*FILE_IDENTITY, *IDENTITY)})
        return found


def sidecar_of(parquet: Path) -> Path:
    """The other half of the pair."""
    return parquet.with_suffix(".metadata.json")


def read_forward_table(parquet: Path) -> ForwardTable:
    """Read and check a pair.

    Raises:
        PerfDataError: `bad_file`, naming the file, the column or field, how many rows, and what to do.
    """
    sidecar = _read_sidecar(parquet)
    if not parquet.is_file():
        raise PerfDataError("bad_file", f"{parquet}: no such file, though its metadata are there; restore the pair")
    digest = _sha256(parquet)
    if sidecar["parquet_sha256"] != digest:
        raise _contradiction(parquet, "parquet_sha256", sidecar["parquet_sha256"], digest)
    columns = _read_columns(parquet)
    rows = len(columns["latency_ms"])
    if sidecar["row_count"] != rows:
        raise _contradiction(parquet, "row_count", sidecar["row_count"], rows)
    for name in FILE_IDENTITY:
        others = sorted({str(v) for v in columns[name] if v != sidecar[name]})
        if others:
            raise _contradiction(parquet, name, sidecar[name], ", ".join(others[:3]))
    _check_rows(parquet, columns)
    return ForwardTable(str(parquet), columns, sidecar, digest)


def table_of_rows(
    rows: Sequence[Mapping[str, Any]], *, path: str, digest: str, measurement_policy: str
) -> ForwardTable:
    """A table that was never a file, under the same checks.

    Args:
        path, digest: of the file that the rows were made from.

    Raises:
        PerfDataError: `bad_file`: a row is no measurement, or two measure the same.
    """
    if not rows:
        raise PerfDataError("bad_file", f"{path}: not one pass that only prefills or only decodes; record some")
    columns = {name: [row[name] for row in rows] for name in COLUMNS}
    _check_rows(Path(path), columns)
    about = {name: rows[0][name] for name in FILE_IDENTITY} | {"measurement_policy": measurement_policy}
    return ForwardTable(path, columns, about, digest)


def write_forward_table(parquet: Path, rows: Sequence[Mapping[str, Any]], *, measurement_policy: str) -> None:
    """Write a pair, the metadata last: a reader never finds a pair that does not belong together.

    Args:
        rows: mappings with the names of `COLUMNS`; all of one system, backend and version.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not rows:
        raise PerfDataError("bad_file", f"{parquet}: no iteration to write; a table holds at least one")
    table = pa.Table.from_pylist([{name: row[name] for name in COLUMNS} for row in rows])
    whole = parquet.with_suffix(".parquet.part")
    parquet.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, whole, compression="zstd")
    about = {
        "schema_name": SCHEMA_NAME,
        "schema_version": SCHEMA_VERSION,
        "coordinate_system": COORDINATES,
        "measurement_policy": measurement_policy,
        **{name: rows[0][name] for name in FILE_IDENTITY},
        "row_count": len(rows),
        "parquet_sha256": _sha256(whole),
    }
    part = parquet.with_suffix(".metadata.json.part")
    part.write_text(json.dumps(about, indent=2, sort_keys=True) + "\n")
    os.replace(whole, parquet)
    os.replace(part, sidecar_of(parquet))


def match(table: ForwardTable, identity: Mapping[str, Any], *, cell: str | None = None) -> str:
    """The cell that is exactly the deployment asked for.

    Args:
        identity: some or all of `FILE_IDENTITY` and `IDENTITY`; what the caller cannot know is left out.
        cell: name of the cell, where several differ only in what was left out.

    Raises:
        PerfDataError: no cell matches, or several do.
    """
    cells = table.cells
    if cell is not None and cell not in cells:
        raise PerfDataError("missing_shape", f"{table.path}: no cell {cell!r}; it holds {', '.join(sorted(cells))}")
    fits = [
        name
        for name, own in cells.items()
        if (cell is None or name == cell) and all(own[key] == value for key, value in identity.items())
    ]
    if len(fits) == 1:
        return fits[0]
    if not fits:
        nearest = min(cells, key=lambda name: sum(cells[name][key] != value for key, value in identity.items()))
        apart = ", ".join(
            f"{key} is {cells[nearest][key]!r}, asked for {value!r}"
            for key, value in identity.items()
            if cells[nearest][key] != value
        )
        raise PerfDataError(
            "missing_shape",
            f"{table.path}: no cell is exactly this deployment, and nothing is borrowed from another. Nearest is "
            f"{nearest!r}: {apart}. Measure the deployment, or ask for one of the {len(cells)} cell(s) it holds",
        )
    differ = sorted({key for key in IDENTITY for name in fits if cells[name][key] != cells[fits[0]][key]})
    raise PerfDataError(
        "missing_shape",
        f"{table.path}: {len(fits)} cells fit ({', '.join(fits)}) and differ in {', '.join(differ)}; name one of them "
        "as timing.fpm_cell",
    )


@dataclass(slots=True)
class _Curves:
    """(batch, past KV) -> points, and batch -> points."""

    prefill: dict[tuple[int, int], dict[int, float]] = field(default_factory=dict)
    decode: dict[int, dict[int, float]] = field(default_factory=dict)


def compile_forward(
    table: ForwardTable, cell: str, roofline: WholeRoofline | None = None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a whole-forward timing model.

    Args:
        roofline: of the cell's deployment. With it prefills off the collected sites (batch, past KV) are answered by
            the sites around them (`prefill_method` of the header: `roofline`), without it only between the curves of
            one batch (`direct`).

    Raises:
        PerfDataError: the cell has no prefill or no decode rows.
    """
    curves, columns = _Curves(), table.columns
    for i, name in enumerate(columns["cell_id"]):
        if name != cell:
            continue
        batch, tokens, kv = (int(columns[key][i]) for key in WHOLE)
        ms = float(columns["latency_ms"][i])
        if columns["workload_kind"][i] == "prefill":
            curves.prefill.setdefault((batch, kv), {})[tokens] = ms
        else:
            curves.decode.setdefault(batch, {})[kv] = ms
    for kind, found in (("prefill", curves.prefill), ("decode", curves.decode)):
        if not found:
            raise PerfDataError("missing_shape", f"{table.path}: cell {cell!r} has no {kind} rows; measure some")
    header = {
        "flat_batch": _batch_is_flat(curves.prefill),
        "prefill_method": "direct" if roofline is None else "roofline",
    }
    arrays = {**_prefill_arrays(curves.prefill), **_decode_arrays(curves.decode)}
    if roofline is not None:
        arrays |= roofline.arrays(int(arrays["prefill_box"][3]))
        place = [[np.log2(b), np.log2(max(kv, NO_PAST)), b] for b, kv in sorted(curves.prefill)]
        arrays["prefill_place"] = np.array(place, np.float64)
    return header, arrays


def _prefill_arrays(curves: Mapping[tuple[int, int], Mapping[int, float]]) -> dict[str, np.ndarray]:
    most = max(batch for batch, _ in curves)
    sites, past, points, tokens, values = [0], [], [0], [], []
    for batch in range(most + 1):
        for _, kv in sorted(key for key in curves if key[0] == batch):
            curve = sorted(curves[batch, kv].items())
            past.append(kv)
            tokens += [t for t, _ in curve]
            values += [ms for _, ms in curve]
            points.append(len(tokens))
        sites.append(len(past))
    box = [min(b for b, _ in curves), most, min(tokens), max(tokens), min(past), max(past)]
    return {
        "prefill_sites": np.array(sites, np.int64),
        "prefill_past": np.array(past, np.float64),
        "prefill_points": np.array(points, np.int64),
        "prefill_tokens": np.array(tokens, np.float64),
        "prefill_ms": np.array(values, np.float64),
        "prefill_box": np.array(box, np.float64),
    }


def _batch_is_flat(curves: Mapping[tuple[int, int], Mapping[int, float]]) -> bool:
    """Whether neighbouring batches cost the same at equal totals: median change <= 5 %, three overlaps at least."""
    totals: dict[tuple[int, int], dict[int, float]] = {}
    for (batch, kv), curve in curves.items():
        for tokens, ms in curve.items():
            totals.setdefault((tokens, kv), {})[batch] = ms
    batches = sorted({batch for batch, _ in curves})
    changes = [
        abs(by_batch[above] / by_batch[below] - 1.0)
        for by_batch in totals.values()
        for below, above in pairwise(batches)
        if below in by_batch and above in by_batch
    ]
    return len(changes) >= FLAT_OVERLAPS and float(np.median(changes)) <= FLAT_CHANGE


def answering_rows(batches: Sequence[int]) -> list[tuple[int, int, float]]:
    """Per batch 0..max: the two collected batches that answer it, and the share of the second.

    A collected batch answers for itself. A batch b is a rung where b and b + 1 are both collected: engines pad decode
    batches to the captured graph sizes, and the cost steps there. Batches between two rungs all run the graph of the
    upper one, so the rows just above the lower rung and at the upper one answer. Where there are no rungs on both
    sides, the collected neighbours answer.
    """
    known = sorted(batches)
    rungs = [b for b in known if b + 1 in set(known)]
    found = [(-1, -1, 0.0)]
    for b in range(1, known[-1] + 1):
        if b in known:
            found.append((b, b, 0.0))
            continue
        lower, upper = [r for r in rungs if r < b], [r for r in rungs if r >= b]
        if lower and upper:
            low, high = lower[-1] + 1, upper[0]
        else:
            low = max((k for k in known if k < b), default=-1)
            high = min(k for k in known if k > b)
        found.append((low, high, (b - low) / (high - low)) if low >= 0 else (-1, -1, 0.0))
    return found


def _decode_arrays(curves: Mapping[int, Mapping[int, float]]) -> dict[str, np.ndarray]:
    known = sorted(curves)
    place = {batch: i for i, batch in enumerate(known)} | {-1: -1}
    points, kv, values = [0], [], []
    for batch in known:
        curve = sorted(curves[batch].items())
        kv += [k for k, _ in curve]
        values += [ms for _, ms in curve]
        points.append(len(kv))
    answering = answering_rows(known)
    baseline = [float("nan")]
    for b, (low, high, share) in enumerate(answering[1:], 1):
        baseline.append(_baseline(curves, b, low, high, share))
    return {
        "decode_rows": np.array([(place[low], place[high]) for low, high, _ in answering], np.int64),
        "decode_weight": np.array([share for _, _, share in answering], np.float64),
        "decode_points": np.array(points, np.int64),
        "decode_kv": np.array(kv, np.float64),
        "decode_ms": np.array(values, np.float64),
        "decode_box": np.array([known[0], known[-1], min(kv), max(kv)], np.float64),
        "decode_baseline": np.array(baseline, np.float64),
    }


def _baseline(curves: Mapping[int, Mapping[int, float]], b: int, low: int, high: int, share: float) -> float:
    """A decode pass of b requests with almost no KV: the smallest KV collected for the rows that answer, at least b."""
    if low < 0:
        return float("nan")
    least = max(b, min(min(curves[row]) for row in {low, high}))
    found = [(row, _on_curve(curves[row], least)) for row in dict.fromkeys((low, high))]
    covered = [ms for _, ms in found if ms is not None]
    if len(covered) == 2:
        return covered[0] + (covered[1] - covered[0]) * share
    return covered[0] if covered else float("nan")


def _on_curve(curve: Mapping[int, float], x: float) -> float | None:
    knots = sorted(curve)
    if not knots[0] <= x <= knots[-1]:
        return None
    return float(np.interp(x, knots, [curve[k] for k in knots]))


# ---------------------------------------------------------------- reading
def _read_sidecar(parquet: Path) -> dict[str, Any]:
    path = sidecar_of(parquet)
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        raise PerfDataError(
            "bad_file", f"{path}: missing; {parquet.name} counts only with its metadata, restore the pair"
        ) from None
    except (ValueError, OSError) as error:
        raise PerfDataError("bad_file", f"{path}: not readable as JSON ({error}); restore the pair") from None
    absent = [name for name in SIDECAR if not isinstance(found, dict) or name not in found]
    if absent:
        raise PerfDataError("bad_file", f"{path}: no {', '.join(absent)}; metadata have {', '.join(SIDECAR)}")
    expected = {
        "schema_name": SCHEMA_NAME, "schema_version": SCHEMA_VERSION, "coordinate_system": COORDINATES,
    }  # fmt: skip
    for name, value in expected.items():
        if found[name] != value:
            raise PerfDataError("bad_file", f"{path}: {name} is {found[name]!r}; this version reads {value!r} only")
    return found


def _read_columns(parquet: Path) -> dict[str, list[Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(parquet)
    except (pa.ArrowInvalid, OSError) as error:
        raise PerfDataError("bad_file", f"{parquet}: not readable as parquet ({error})") from None
    absent = [name for name in COLUMNS if name not in table.column_names]
    if absent:
        raise PerfDataError("bad_file", f"{parquet}: no column {', '.join(absent)}; a table has {', '.join(COLUMNS)}")
    wanted = _types(pa)
    for name in COLUMNS:
        kind = table.schema.field(name).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if not wanted[name](kind):
            raise PerfDataError("bad_file", f"{parquet}: column {name} is {kind}; see docs/performance-data.md")
        if table[name].null_count:
            raise PerfDataError("bad_file", f"{parquet}: column {name} has {table[name].null_count} null(s); fill them")
    return {name: table[name].to_pylist() for name in COLUMNS}


def _types(pa: Any) -> dict[str, Any]:
    def text(kind: pa.DataType) -> bool:
        return pa.types.is_string(kind) or pa.types.is_large_string(kind)

    found: dict[str, Any] = dict.fromkeys(COLUMNS, text)
    found |= dict.fromkeys((*EXECUTION_WHOLE, *WHOLE), pa.types.is_integer)
    found |= dict.fromkeys(EXECUTION_FLAGS, pa.types.is_boolean)
    found["latency_ms"] = pa.types.is_floating
    return found


def _check_rows(parquet: Path, columns: Mapping[str, list[Any]]) -> None:
    latency = np.array(columns["latency_ms"], np.float64)
    batch, tokens, kv = (np.array(columns[name], np.int64) for name in WHOLE)
    kind = np.array(columns["workload_kind"], object)
    prefill = kind == "prefill"
    faults = {
        "workload_kind must be prefill or decode": ~(prefill | (kind == "decode")),
        f"partition_policy must be {PARTITION}": np.array(columns["partition_policy"], object) != PARTITION,
        "batch_size must be at least 1": batch < 1,
        "total_prefill_tokens must be at least 1 for prefill": prefill & (tokens < 1),
        "total_prefill_tokens must be 0 for decode": ~prefill & (tokens != 0),
        "total_kv_read_tokens must not be negative": kv < 0,
        "latency_ms must be finite and above 0": ~(np.isfinite(latency) & (latency > 0)),
    }
    for what, bad in faults.items():
        if bad.any():
            raise PerfDataError(
                "bad_file", f"{parquet}: row {int(bad.argmax())}: {what} ({int(bad.sum())} such row(s)); measure again"
            )
    seen: dict[tuple[Any, ...], int] = {}
    own: dict[str, tuple[Any, ...]] = {}
    for i, cell in enumerate(columns["cell_id"]):
        identity = tuple(columns[name][i] for name in IDENTITY)
        if own.setdefault(cell, identity) != identity:
            raise PerfDataError("bad_file", f"{parquet}: row {i}: cell {cell!r} has two identities; name them apart")
        key = (*identity, columns["workload_kind"][i], *(columns[name][i] for name in WHOLE))
        if key in seen:
            raise PerfDataError(
                "bad_file",
                f"{parquet}: rows {seen[key]} and {i} of cell {cell!r} measure the same coordinates; keep one of them",
            )
        seen[key] = i


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _contradiction(parquet: Path, name: str, said: Any, found: Any) -> PerfDataError:
    return PerfDataError(
        "bad_file",
        f"{sidecar_of(parquet)}: {name} is {said!r}, the parquet file says {found!r}; "
        "the pair does not belong together",
    )
