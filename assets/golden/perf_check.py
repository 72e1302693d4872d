"""`tracemill perf check DIR`: recorded figures of another estimator against the op-level model, cleaning off.

The folder holds `status.csv` (deployments and how many points each answered), `ops.csv` (operator lists),
`prefill.parquet`, `decode.parquet`, `mixed.parquet`, `fpm.parquet`, `per_op.parquet`, `kv_capacity.csv` and
`correction.json` (answers under corrections); a file that is not there is a skipped check. One check is one deployment
under one file: all its figures must agree.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from assets.golden.perf_correction import FILE as CORRECTIONS
from assets.golden.perf_correction import check_corrections
from perf_db.gpu.deployment import Deployment
from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.memory import capacity
from perf_db.gpu.oplevel import OpLevel, Phase
from perf_db.gpu.ops.base import Operator
from perf_db.gpu.source import PerfRoot

if TYPE_CHECKING:
    import polars as pl

DENSE, EXPERTS = 1e-9, 1e-6  # largest relative difference
IDENTITY = (
    "model", "system", "backend", "version", "quant", "tp", "dp", "moe_tp", "moe_ep", "nextn", "gemm", "moe",
    "kv_cache", "fmha",
)  # fmt: skip
FILES = ("status", "ops", "prefill", "decode", "mixed", "fpm", "per_op", "kv_capacity")
REFUSALS = {"missing_table", "missing_precision", "missing_shape", "outside_data", "unsupported_architecture"}
_PHASES: dict[str, Phase] = {"prefill": "context", "decode": "generation"}
_WORKLOAD = {
    "prefill": ("batch", "isl", "prefix"),
    "decode": ("batch", "context_len"),
    "mixed": ("ctx_tokens", "gen_requests", "isl", "osl", "prefix"),
    "fpm": (
        "num_prefill_requests", "sum_prefill_tokens", "sum_prefill_kv_tokens", "num_decode_requests",
        "sum_decode_kv_tokens",
    ),
}  # fmt: skip
_MIXED_PARTS = ("shared_ms", "context_attention_ms", "decode_attention_ms")
Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Outcome:
    """One deployment under one file."""

    name: str
    kind: str
    status: Literal["passed", "failed", "skipped"]
    figures: int = 0
    worst: float = 0.0  # largest relative difference
    detail: str = ""

    @property
    def line(self) -> str:
        """One line for a terminal."""
        measured = f"{self.figures:>5,} figures, off by {self.worst:.1e} at most" if self.figures else ""
        said = "; ".join(text for text in (measured, self.detail) if text)
        return f"{self.status:<8} {self.kind:<12} {self.name}" + (f": {said}" if said else "")


@dataclass
class PerfReport:
    """All checks of a folder."""

    outcomes: list[Outcome] = field(default_factory=list)

    def count(self, status: str) -> int:
        return sum(outcome.status == status for outcome in self.outcomes)

    @property
    def figures(self) -> int:
        """Single figures compared."""
        return sum(outcome.figures for outcome in self.outcomes)

    @property
    def worst(self) -> dict[str, float]:
        """Largest relative difference by kind of check and of model (`dense prefill`, `experts decode`, ...)."""
        found: dict[str, float] = {}
        for outcome in self.outcomes:
            if outcome.figures:
                found[outcome.kind] = max(found.get(outcome.kind, 0.0), outcome.worst)
        return found

    @property
    def closing(self) -> str:
        return f"{self.count('passed')} passed, {self.count('failed')} failed, {self.count('skipped')} skipped"

    @property
    def exit_code(self) -> int:
        return 1 if self.count("failed") or not self.outcomes else 0


def check_dir(folder: Path, root: PerfRoot, *, echo: Callable[[Outcome], None] | None = None) -> PerfReport:
    """Compare everything a folder of recorded figures holds.

    Args:
        folder: see the module's docstring.
        root: the performance data the figures were made from.
        echo: called with each outcome as it is known.

    Raises:
        PerfDataError: `bad_file`: the folder holds no `status.csv`, or a file lacks a column.
    """
    recorded = _Recorded(folder)
    report = PerfReport()

    def add(outcome: Outcome) -> None:
        report.outcomes.append(outcome)
        if echo is not None:
            echo(outcome)

    for kind in FILES:
        if not recorded.holds(kind):
            add(Outcome(folder.name, kind, "skipped", detail=f"no {recorded.path(kind).name}"))
    add(_check_corrections(folder / CORRECTIONS))
    for row in recorded.deployments():
        for outcome in _check_deployment(row, recorded, root):
            add(outcome)
    return report


def _check_corrections(path: Path) -> Outcome:
    """Answers under the corrections of a tuned snapshot: these are compared bit for bit."""
    if not path.is_file():
        return Outcome(path.parent.name, "correction", "skipped", detail=f"no {path.name}")
    answers = list(check_corrections(path))
    wrong = [(asked, want, got) for asked, want, got in answers if want != got]
    detail = f"{len(wrong)} differ, first {wrong[0][0]}: {wrong[0][1]} recorded, {wrong[0][2]} ours" if wrong else ""
    worst = max((abs(got / want - 1.0) for _, want, got in wrong), default=0.0)
    return Outcome(path.name, "correction", "failed" if wrong else "passed", len(answers), worst, detail)


class _Recorded:
    """The files of a folder, read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[str, Any] = {}
        if not self.holds("status"):
            raise PerfDataError("bad_file", f"{folder}: no status.csv; `perf check` takes a folder of recorded figures")

    def path(self, kind: str) -> Path:
        return self.folder / f"{kind}.{'csv' if kind in ('status', 'ops', 'kv_capacity') else 'parquet'}"

    def holds(self, kind: str) -> bool:
        return self.path(kind).is_file()

    def deployments(self) -> list[dict[str, str]]:
        """Rows of `status.csv` with the precisions that the other files give."""
        wanted = ("model", "system", "backend", "quant", "tp", "dp", "moe_tp", "moe_ep", "nextn")
        precisions: dict[tuple[str, ...], dict[str, str]] = {}
        for kind in ("ops", "kv_capacity"):
            for row in self.csv(kind) if self.holds(kind) else ():
                precisions.setdefault(tuple(row[c] for c in wanted), row)
        listed = []
        for row in self.csv("status"):
            known = precisions.get(tuple(row[c] for c in wanted))
            if known is None:
                raise PerfDataError("bad_file", f"{self.path('status')}: no operator list and no capacity of {row}")
            listed.append({**{c: known[c] for c in IDENTITY}, **row})
        return listed

    def csv(self, kind: str) -> list[dict[str, str]]:
        if kind not in self._read:
            with self.path(kind).open(newline="") as stream:
                self._read[kind] = list(csv.DictReader(stream))
            lacking = [c for c in IDENTITY[:5] if self._read[kind] and c not in self._read[kind][0]]
            if lacking:
                raise PerfDataError("bad_file", f"{self.path(kind)}: no column {', '.join(lacking)}")
        return self._read[kind]

    def of(self, kind: str, row: Mapping[str, str]) -> list[dict[str, str]]:
        """Rows of a CSV file about one deployment."""
        return [r for r in self.csv(kind) if all(r[c] == row[c] for c in IDENTITY)] if self.holds(kind) else []

    def frame(self, kind: str, row: Mapping[str, str]) -> pl.DataFrame | None:
        """Rows of a parquet file about one deployment, None without such a file or rows."""
        import polars as pl

        if not self.holds(kind):
            return None
        if kind not in self._read:
            frame = pl.read_parquet(self.path(kind))
            lacking = [c for c in (*IDENTITY, *_WORKLOAD.get(kind, ())) if c not in frame.columns]
            if lacking:
                raise PerfDataError("bad_file", f"{self.path(kind)}: no column {', '.join(lacking)}")
            self._read[kind] = frame
        frame = self._read[kind]
        mine = frame.filter([pl.col(c).cast(pl.String) == row[c] for c in IDENTITY])
        return mine if mine.height else None


def _check_deployment(row: Mapping[str, str], recorded: _Recorded, root: PerfRoot) -> Iterator[Outcome]:
    deployment = _deployment(row)
    name = f"{row['model']} {row['system']} {row['backend']} {row['quant']} TP{row['tp']} DP{row['dp']}"
    name += f" nextn {row['nextn']}" if row["nextn"] != "0" else ""
    # Models with experts carry longer sums of interpolated terms.
    tolerance = EXPERTS if int(row["moe_ep"]) * int(row["moe_tp"]) > 1 or "A3B" in row["model"] else DENSE
    if capacities := recorded.of("kv_capacity", row):
        yield _check_capacity(name, deployment, capacities, root)
    try:
        model = OpLevel(deployment, root, clean=False)
    except PerfDataError as error:
        yield _check_refusal(name, row, dict.fromkeys(_PHASES, error))
        return
    yield _check_refusal(name, row, {kind: model.refusal(phase) for kind, phase in _PHASES.items()})
    if listed := recorded.of("ops", row):
        yield _check_operators(name, model, listed)
    for kind, price in (("prefill", _prefill), ("decode", _decode), ("mixed", _mixed), ("fpm", _fpm)):
        frame = recorded.frame(kind, row)
        if frame is not None:
            columns = {c: frame[c].to_numpy() for c in frame.columns}
            yield _compare(name, kind, price, model, columns, tolerance)
    frame = recorded.frame("per_op", row)
    if frame is not None:
        yield _check_breakdown(name, model, frame, tolerance)


def _deployment(row: Mapping[str, str]) -> Deployment:
    return Deployment(
        model=row["model"], system=row["system"], backend=row["backend"], version=row["version"],
        tp=int(row["tp"]), dp=int(row["dp"]), moe_tp=int(row["moe_tp"]), moe_ep=int(row["moe_ep"]),
        gemm=row["gemm"], moe=row["moe"], kv_cache=row["kv_cache"], fmha=row["fmha"], nextn=int(row["nextn"]),
    )  # fmt: skip


def _check_refusal(name: str, row: Mapping[str, str], refused: Mapping[str, PerfDataError | None]) -> Outcome:
    """What the other estimator answers we answer; what it has no data for we refuse, for a reason of the data."""
    faults, said = [], []
    for kind, error in refused.items():
        answered = int(row[f"{kind}_ok"]) > 0
        if answered and error is not None:
            faults.append(f"{kind} is answered there, refused here: {error}")
        elif not answered and error is None:
            faults.append(f"{kind} is answered here, but there: {row['error']}")
        elif error is not None and error.reason not in REFUSALS:
            faults.append(f"{kind} is refused as {error.reason}: {error}")
        elif error is not None:
            said.append(f"{kind} refused: {error.reason}")
    return Outcome(name, "status", "failed" if faults else "passed", detail="; ".join(faults or said))


def _check_capacity(name: str, deployment: Deployment, rows: list[dict[str, str]], root: PerfRoot) -> Outcome:
    """Bytes, tokens and blocks, exactly."""
    columns = (
        "gpu_bytes", "kv_bytes", "kv_bytes_per_token", "kv_tokens", "weights_bytes", "activation_bytes",
        "runtime_bytes", "comm_bytes",
    )  # fmt: skip
    faults: list[str] = []
    figures = 0
    for row in rows:
        for size in (16, 32, 64):
            found = capacity(
                deployment, root, max_batched_tokens=int(row["max_num_tokens"]), block_tokens=size,
                fraction=float(row["fraction"]),
            )  # fmt: skip
            pairs = [(f"blocks of {size}", found.blocks, int(row[f"blocks_{size}"]))]
            if size == 16:
                pairs += [(c, getattr(found, c), int(row[c])) for c in columns]
            figures += len(pairs)
            at = f"at {row['max_num_tokens']} tokens"
            faults += [f"{what} {at}: {ours} here, {theirs} there" for what, ours, theirs in pairs if ours != theirs]
    return Outcome(name, "kv_capacity", "failed" if faults else "passed", figures, detail="; ".join(faults[:3]))


def _check_operators(name: str, model: OpLevel, rows: list[dict[str, str]]) -> Outcome:
    """Names, order and layer counts of the operator lists."""
    faults = []
    for phase in model.phases:
        theirs = [
            (row["op"], float(row["scale"]) if row["scale"] else None, json.loads(row["shape"]))
            for row in sorted((r for r in rows if r["phase"] == phase), key=lambda r: int(r["index"]))
        ]
        ours = model.operators(phase)
        names, recorded = [op.name for op in ours], [op for op, _, _ in theirs]
        if names != recorded:
            faults.append(f"{phase}: {', '.join(names)} here, {', '.join(recorded)} there")
            continue
        for op, (_, scale, shape) in zip(ours, theirs, strict=True):
            if scale is not None and op.scale != scale:
                faults.append(f"{op.name}: {op.scale} layers here, {scale} there")
            faults += _shape_faults(op, shape)
    figures = sum(len(model.operators(phase)) for phase in model.phases)
    return Outcome(name, "ops", "failed" if faults else "passed", figures, detail="; ".join(faults[:3]))


def _shape_faults(op: Operator, shape: Mapping[str, Any]) -> list[str]:
    """Dimensions that both sides name the same way."""
    named = {"n": "n", "k": "k", "bytes_per_token": "bytes_per_token", "hidden_size": "hidden", "num_heads": "heads"}
    return [
        f"{op.name}: {theirs}={shape[theirs]} there, {getattr(op, ours)} here"
        for theirs, ours in named.items()
        if theirs in shape and isinstance(getattr(op, ours, None), (int, float)) and getattr(op, ours) != shape[theirs]
    ]


Price = Callable[[OpLevel, Columns], dict[str, NDArray[np.float64]]]


def _prefill(model: OpLevel, at: Columns) -> dict[str, NDArray[np.float64]]:
    return {"latency_ms": model.prefill(at["batch"], at["isl"] - at["prefix"], at["prefix"])}


def _decode(model: OpLevel, at: Columns) -> dict[str, NDArray[np.float64]]:
    return {"latency_ms": model.decode(at["batch"], at["context_len"])}


def _mixed(model: OpLevel, at: Columns) -> dict[str, NDArray[np.float64]]:
    parts = model.planner_mixed(*(at[c] for c in _WORKLOAD["mixed"]))
    return {**dict(zip(_MIXED_PARTS, parts, strict=True)), "total_ms": parts[0] + parts[1] + parts[2]}


def _fpm(model: OpLevel, at: Columns) -> dict[str, NDArray[np.float64]]:
    return {"latency_ms": model.mixed(*(at[c] for c in _WORKLOAD["fpm"]))}


def _compare(name: str, kind: str, price: Price, model: OpLevel, at: Columns, tolerance: float) -> Outcome:
    try:
        found = price(model, at)
    except PerfDataError as error:
        return Outcome(name, kind, "failed", detail=f"refused: {error}")
    worst, figures, detail = 0.0, 0, ""
    for column, ours in found.items():
        difference = relative(ours, at[column])
        figures += len(difference)
        if difference.max() > worst:
            i = int(difference.argmax())
            worst = float(difference[i])
            where = ", ".join(f"{c} {at[c][i]}" for c in _WORKLOAD[kind])
            detail = f"{column} at {where}: {ours[i]:.9g} here, {at[column][i]:.9g} there"
    ok = worst <= tolerance
    return Outcome(name, kind, "passed" if ok else "failed", figures, worst, "" if ok else detail)


def _check_breakdown(name: str, model: OpLevel, frame: pl.DataFrame, tolerance: float) -> Outcome:
    """Every operator of a few passes: price and kind of source."""
    import polars as pl

    worst, faults = 0.0, []
    at = ["phase", "batch", "isl", "prefix"]
    for place in frame.select(at).unique(maintain_order=True).rows():
        phase, batch, isl, prefix = place
        lines = {line.op: line for line in model.breakdown(_PHASES[phase], batch, isl - prefix, prefix)}
        rows = frame.filter([pl.col(column) == value for column, value in zip(at, place)])
        for op, theirs, source in rows.select("op", "latency_ms", "source").iter_rows():
            if op not in lines:
                faults.append(f"no operator {op}")
                continue
            off = float(relative(np.array([lines[op].ms]), np.array([theirs]))[0])
            worst = max(worst, off)
            if off > tolerance:
                faults.append(f"{op} at batch {batch}, {isl} tokens: {lines[op].ms:.9g} here, {theirs:.9g} there")
            if lines[op].source != source:
                faults.append(f"{op} is {lines[op].source} here, {source} there")
    return Outcome(name, "per_op", "failed" if faults else "passed", frame.height, worst, "; ".join(faults[:3]))


def relative(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> NDArray[np.float64]:
    """|ours - theirs| / |theirs|; an exact zero allows only zero; what is no number is infinitely far."""
    off = np.abs(ours - theirs)
    size = np.abs(theirs)
    out = np.divide(off, size, out=np.where(off == 0, 0.0, np.inf), where=size > 0)
    return np.where(np.isfinite(out), out, np.inf)
