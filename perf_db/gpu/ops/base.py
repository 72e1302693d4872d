"""What every operator of a pass has in common, and how it reaches its tables."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from perf_db.gpu.deployment import Deployment
from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.hardware import Hardware
from perf_db.gpu.load import load, where_it_would_be
from perf_db.gpu.source import PerfRoot

if TYPE_CHECKING:
    import polars as pl

Phase = Literal["context", "generation"]
Floats = NDArray[np.float64]
Shape = Mapping[str, Any]
Knots = NDArray[np.int64]
Share = tuple[int, float]  # label of a raw row, share of the answer

_ROW_BITS = 40


class Tables:
    """The tables of one deployment, as operators ask for them.

    Labels: every raw row that an operator holds is one integer, file number and row number in one; `place` undoes it.
    """

    def __init__(self, deployment: Deployment, root: PerfRoot, hardware: Hardware, *, clean: bool) -> None:
        self.deployment = deployment
        self.root = root
        self.hardware = hardware
        self.clean = clean
        self.files: list[str] = []
        self.memo: dict[Hashable, Any] = {}  # what operators of this deployment share

    def rows(self, table: str, where: Mapping[str, Any]) -> pl.DataFrame:
        """A slice of a table (see `perf_db.gpu.load.load`), with `label` per row."""
        import polars as pl

        d = self.deployment
        frame = load(self.root, d.system, d.backend, d.version, table, clean=self.clean, where=where)
        names = frame["file"].unique().to_list()
        for name in sorted(names):
            if name not in self.files:
                self.files.append(name)
        number = {name: i << _ROW_BITS for i, name in enumerate(self.files)}
        label = pl.col("file").replace_strict(number, return_dtype=pl.Int64) + pl.col("row").cast(pl.Int64)
        return frame.with_columns(label.alias("label")) if frame.height else frame

    def place(self, label: int) -> tuple[str, int]:
        """File and row of a label."""
        return self.files[label >> _ROW_BITS], label & ((1 << _ROW_BITS) - 1)

    def values(self, table: str, column: str, where: Mapping[str, Any] | None = None) -> list[Any]:
        """What a column of a table holds, for error messages."""
        d = self.deployment
        frame = load(self.root, d.system, d.backend, d.version, table, clean=False, where=where)
        return frame[column].unique().sort().to_list() if frame.height else []

    def missing(self, table: str, precision: Mapping[str, Any], shape: Mapping[str, Any]) -> NoReturn:
        """Raise the error for a slice that is not there: no file, no such precision, or no such shape."""
        d = self.deployment
        file = where_it_would_be(self.root, d.system, d.backend, d.version, table)
        wanted = ", ".join(f"{k}={v}" for k, v in {**precision, **shape}.items())
        matched: dict[str, Any] = {}
        for column, value in precision.items():
            known = self.values(table, column, matched)
            if not known:
                raise PerfDataError(
                    "missing_table",
                    f"no {table} table for {d.backend} {d.version} on {d.system}; it would be {file}; wanted: {wanted}",
                )
            if value not in known:
                given = "".join(f" and {k}={v}" for k, v in matched.items())
                raise PerfDataError(
                    "missing_precision",
                    f"no {table} rows with {column}={value}{given}: {file} would hold them; "
                    f"{column} there: {', '.join(map(str, known))} (wanted: {wanted})",
                )
            matched[column] = value
        raise PerfDataError("missing_shape", f"no {table} rows with {wanted}: {file} would hold them")


class Operator:
    """One operator of a pass; prices are per layer, `scale` is how many layers it stands for.

    Attributes:
        name: `context_qkv_gemm` and the like.
        kind: family, `gemm`, `moe`, ...
        part: what the price depends on. `shared`: tokens; `logits`: rows of logits; `attention`: requests and lengths.
        link: `intra_node` or `inter_node` for operators that communicate, else None.
        source: `silicon` (measured), `empirical` (computed), `mixed`.
    """

    kind = ""
    part: Literal["shared", "logits", "attention"] = "shared"
    link: str | None = None
    source = "silicon"

    def __init__(self, name: str, scale: float) -> None:
        self.name = name
        self.scale = scale
        self.factor = 1.0

    def ms(self, tokens: Floats) -> Floats:
        """Price of one layer at `tokens` tokens, before `scale` and `factor`."""
        raise NotImplementedError(f"{self.kind} is not priced by tokens")

    def total(self, tokens: Floats) -> Floats:
        """Price of all layers, what-if factor included."""
        return self.scale * self.factor * self.ms(tokens)

    def apply(self, factors: Mapping[str, float]) -> set[str]:
        """Take the what-if factors that name this operator, its kind or its link; return the names taken."""
        bare = self.name.partition("_")[2]
        taken = {key for key in (self.name, bare, self.kind, self.link) if key and key in factors}
        for key in taken:
            self.factor *= factors[key]
        return taken

    def explain(self, tokens: float) -> list[Share]:
        """Raw rows that answer, with shares that sum to 1; empty for what is computed."""
        return []


class AttentionOperator(Operator):
    """An operator priced by requests and lengths."""

    kind = "attention"
    part = "attention"
    prefix_axis = False  # the table has an axis of its own for cached tokens
    looks = 1  # KV lengths that a decode price is the mean of

    def context_ms(self, requests: Floats, new: Floats, prefix: Floats) -> Floats:
        """One layer: `requests` requests that compute `new` tokens each after `prefix` cached ones."""
        raise NotImplementedError

    def generation_ms(self, requests: Floats, kv: Floats) -> Floats:
        """One layer: one token per request at KV length `kv`."""
        raise NotImplementedError

    def lookup(self, requests: Floats, length: Floats) -> Floats:
        """One look into the table, one layer."""
        raise NotImplementedError

    def knots(self) -> tuple[Knots, Knots, Knots, Knots]:
        """Batches, lengths, prefixes at this head count, and per batch the longest length measured at prefix 0."""
        raise NotImplementedError

    def reach(self, phase: Phase, requests: Floats, length: Floats, prefix: Floats) -> tuple[NDArray[np.uint8], Floats]:
        """How each query is answered, and the distance to the nearest measured point where that is extrapolated."""
        raise NotImplementedError

    def explain_pass(self, phase: Phase, requests: float, length: float, prefix: float) -> list[Share]:
        """Raw rows that answer for one pass, with shares that sum to 1."""
        raise NotImplementedError
