"""How long a pass takes: `engine.workers.aggregated.timing`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, ValidationInfo, model_validator

from sim import spec
from sim.config.base import Milliseconds, Section
from sim.config.snapshots import as_number, read_constants
from sim.config.tables import FIELDS, as_arrays, digest, fault_in, load_table

CHOOSE = (
    "use {type: default} with engine.model and engine.hardware for prices from performance data, or "
    "timing.type fixed|polynomial|table|pass_cost"
)

MOST_FACTOR = 1e6  # of a what-if; beyond it prices leave the range of numbers before anybody has learned anything
EstimationMode = Literal["op_level", "fpm_interpolation", "fpm_regression", "auto"]


class Strict(Section):
    """How far outside the measured data a run may be priced; a limit that is left out limits nothing."""

    max_extrapolated_share: Annotated[float, Field(ge=0, le=1)] | None = None
    max_octaves: Annotated[float, Field(ge=0)] | None = None


class DefaultTiming(Section):
    """The estimator over performance data that `engine.estimation_mode` names.

    Paths start from the configuration's folder. What they hold identifies a run, not where it lies.
    """

    type: Literal["default"]
    forward_model: EstimationMode | None = None  # older spelling of engine.estimation_mode
    perf_root: Annotated[str, Field(min_length=1)] | None = None  # a folder of operator tables; else the extra's
    data_version: Annotated[str, Field(min_length=1)] | None = None  # refuse any other version of the data
    clean: StrictBool = True
    # What-if: operator, kind of operator or link -> factor.
    factors: dict[str, Annotated[float, Field(gt=0, le=MOST_FACTOR)]] = Field(default_factory=dict)
    fpm_parquet_path: Annotated[str, Field(min_length=1)] | None = None
    fpm_jsonl_path: Annotated[str, Field(min_length=1)] | None = None
    fpm_cell: Annotated[str, Field(min_length=1)] | None = None
    mixed_pass_extra_ms: Milliseconds = 0.0
    prefill_pass_extra_ms: Milliseconds = 0.0
    decode_pass_extra_ms: Milliseconds = 0.0
    snapshot: Annotated[str, Field(min_length=1)] | None = None  # corrections of a tuned snapshot
    strict: Strict = Strict()

    def extras(self) -> dict[str, float]:
        """Milliseconds of the host per kind of pass."""
        names = ("mixed_pass_extra_ms", "prefill_pass_extra_ms", "decode_pass_extra_ms")
        return {name: float(getattr(self, name)) for name in names}

    def spec(self) -> spec.Timing:
        raise LookupError("prices of timing.type: default come from performance data; hand them to engine_spec")

    def canonical(self) -> dict[str, Any]:
        # Data are identified by their digest, which every run records beside its configuration.
        return {
            "type": "default",
            "clean": self.clean,
            "factors": dict(sorted(self.factors.items())),
            "fpm_cell": self.fpm_cell,
            **self.extras(),
            "corrected": self.snapshot is not None,
        }


class FixedTiming(Section):
    """A constant per non-empty phase of a pass."""

    type: Literal["fixed"]
    prefill_ms: Milliseconds
    decode_ms: Milliseconds

    def spec(self) -> spec.Timing:
        return spec.FixedTiming(prefill_ms=float(self.prefill_ms), decode_ms=float(self.decode_ms))

    def canonical(self) -> dict[str, Any]:
        return {"type": "fixed", "prefill_ms": float(self.prefill_ms), "decode_ms": float(self.decode_ms)}


class PolynomialTiming(Section):
    """The built-in polynomial of new tokens (prefill) and pool use (decode)."""

    type: Literal["polynomial"]

    def spec(self) -> spec.Timing:
        return spec.PolynomialTiming()

    def canonical(self) -> dict[str, Any]:
        return {"type": "polynomial"}


class TableTiming(Section):
    """Measured tables: inline, or in a parquet, json or npz file that holds the same five names."""

    type: Literal["table"]
    path: str | None = None
    prefill_isl: list[float]
    prefill_ttft_ms: list[float]
    decode_active_kv_tokens: list[float]
    decode_context_length: list[float]
    decode_itl: list[list[float]]

    @model_validator(mode="before")
    @classmethod
    def _read_file(cls, values: Any, info: ValidationInfo) -> Any:
        if not isinstance(values, dict) or not isinstance(values.get("path"), str):
            return values
        doubled = [name for name in FIELDS if name in values]
        if doubled:
            raise ValueError(f"give either path or the arrays, not both: {', '.join(doubled)}")
        return {**values, **load_table((info.context or {}).get("base"), values["path"])}

    @model_validator(mode="after")
    def _shapes_fit(self) -> TableTiming:
        fault = fault_in(self.arrays())
        if fault:
            raise ValueError(fault)
        return self

    def arrays(self) -> dict[str, Any]:
        return as_arrays({name: getattr(self, name) for name in FIELDS})

    def spec(self) -> spec.Timing:
        arrays = self.arrays()
        return spec.TableTiming(
            prefill_tokens=arrays["prefill_isl"],
            prefill_ms=arrays["prefill_ttft_ms"],
            decode_kv_tokens=arrays["decode_active_kv_tokens"],
            decode_context=arrays["decode_context_length"],
            decode_ms=arrays["decode_itl"],
        )

    def canonical(self) -> dict[str, Any]:
        # The numbers identify a table, not the file they came from.
        return {"type": "table", "digest": digest(self.arrays())}


class PassCostTiming(Section):
    """Few constants with a physical meaning each; `tracemill calibrate` fits them to a log."""

    type: Literal["pass_cost"]
    base_ms: Milliseconds = 0.0
    weights_ms: Milliseconds = 0.0
    token_us: Milliseconds = 0.0
    attention_pair_ns: Milliseconds = 0.0
    decode_request_us: Milliseconds = 0.0
    kv_token_ns: Milliseconds = 0.0
    prefill_pass_ms: Milliseconds = 0.0
    snapshot: Annotated[str, Field(min_length=1)] | None = None  # a file of `tracemill calibrate` that holds them

    @model_validator(mode="before")
    @classmethod
    def _read_snapshot(cls, values: Any, info: ValidationInfo) -> Any:
        if not isinstance(values, dict) or not isinstance(values.get("snapshot"), str):
            return values
        names = [name for name in cls.model_fields if name not in ("type", "snapshot")]
        if doubled := [name for name in names if name in values]:
            raise ValueError(f"give either snapshot or the constants, not both: {', '.join(doubled)}")
        file = ((info.context or {}).get("base") or Path()) / values["snapshot"]
        none = "holds no constants of a pass cost"
        found = read_constants(file, "snapshot", none)
        return {**values, **{name: as_number(found, name, f"snapshot {file} {none}") for name in names}}

    def _constants(self) -> dict[str, Any]:
        # The numbers identify a timing, not the file they came from.
        return {name: float(value) for name, value in self if name not in ("type", "snapshot")}

    def spec(self) -> spec.Timing:
        return spec.PassCostTiming(**self._constants())

    def canonical(self) -> dict[str, Any]:
        return {"type": "pass_cost", **self._constants()}


Timing = Annotated[
    DefaultTiming | FixedTiming | PolynomialTiming | TableTiming | PassCostTiming, Field(discriminator="type")
]
