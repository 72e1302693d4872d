"""How long a pass takes: `engine.workers.aggregated.timing`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, model_validator

from sim import spec
from sim.config.base import Milliseconds, Section, only
from sim.config.tables import FIELDS, as_arrays, digest, fault_in, load_table

WITHOUT_DATA = (
    "op_level and whole-forward timing are not available until performance data is supported; "
    "use timing.type fixed|polynomial|table"
)


class DefaultTiming(Section):
    """The stack's own estimator. It needs performance data, so it is refused with a remedy."""

    type: Annotated[Literal["default"], only(because=WITHOUT_DATA)]
    forward_model: Any = None  # older spelling of engine.estimation_mode
    fpm_parquet_path: Any = None

    def spec(self) -> spec.Timing:
        raise NotImplementedError  # a loaded configuration never holds this class

    def canonical(self) -> dict[str, Any]:
        raise NotImplementedError


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

    def _constants(self) -> dict[str, float]:
        return {name: float(value) for name, value in self if name != "type"}

    def spec(self) -> spec.Timing:
        return spec.PassCostTiming(**self._constants())

    def canonical(self) -> dict[str, Any]:
        return {"type": "pass_cost", **self._constants()}


Timing = Annotated[
    DefaultTiming | FixedTiming | PolynomialTiming | TableTiming | PassCostTiming, Field(discriminator="type")
]
