"""What stands around the engine: `engine.tokenization` and `engine.host`. All off unless given."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationInfo

from sim.config.base import Milliseconds, Section
from sim.config.snapshots import as_number, read_constants
from sim.spec import FrontEnd

NS_OF_MS = 1e6
MOST_FACTOR = 1e3
# How the constants of `tracemill calibrate` are written here. Its others (factors) keep their names.
SPELLED = {"request_ms": "request_path_ms"}
IN_PASSES = (
    "prefill_pass_ms", "prefill_pass_ms_per_layer", "decode_pass_ms", "decode_pass_us_per_layer",
    "running_request_us", "prefill_token_us",
)  # fmt: skip
TOKENIZATION = "tokenization_ms_per_1024"
OF_THE_LABORATORY = "laboratory_request_ms"  # belongs to the clients of some measurements, not to the deployment


class Tokenization(Section):
    """What the front end does with a prompt before the engine sees it."""

    ms_per_1024_tokens: Milliseconds = 0.0


class Host(Section):
    """Time that is no kernel's: on the way to the engine, around its passes, and on the way back."""

    request_path_ms: Milliseconds = 0.0  # of every request, to the engine
    client_ms: Milliseconds = 0.0  # on that way, for each request that is open; in a closed loop, for each slot
    output_path_ms: Milliseconds = 0.0  # of every token, to the client
    prefill_pass_ms: Milliseconds = 0.0  # of a pass that computes prompt tokens
    prefill_pass_ms_per_layer: Milliseconds = 0.0
    decode_pass_ms: Milliseconds = 0.0  # of a pass that only decodes
    decode_pass_us_per_layer: Milliseconds = 0.0
    running_request_us: Milliseconds = 0.0  # of any pass, per request in it
    prefill_token_us: Milliseconds = 0.0  # per prompt token computed
    # On times of operators, by the names of the host model; a class of deployments in brackets.
    factors: dict[str, Annotated[float, Field(gt=0, le=MOST_FACTOR)]] = Field(default_factory=dict)
    snapshot: Annotated[str, Field(min_length=1)] | None = None  # a file of `tracemill calibrate` that holds them

    @property
    def in_passes(self) -> dict[str, float]:
        """What passes take, by name; what is nothing is left out."""
        return {name: float(value) for name in IN_PASSES if (value := getattr(self, name))}

    def canonical(self) -> dict[str, Any] | None:
        """Numbers that do something, whatever file they came from; None where none does."""
        values = self.model_dump(exclude={"snapshot", "factors"})
        found = {name: float(value) for name, value in values.items() if value}
        factors = {name: float(value) for name, value in sorted(self.factors.items()) if value != 1}
        return {**found, **({"factors": factors} if factors else {})} or None


def front_end(tokenization: Tokenization | None, host: Host | None) -> FrontEnd | None:
    """The way between clients and engine; None where it takes no time."""
    host = host or Host()
    found = FrontEnd(
        request_ns=round(host.request_path_ms * NS_OF_MS),
        tokenization_ns=round((tokenization.ms_per_1024_tokens if tokenization else 0.0) * NS_OF_MS),
        client_ns=round(host.client_ms * NS_OF_MS),
        reply_ns=round(host.output_path_ms * NS_OF_MS),
    )
    return None if found == FrontEnd() else found


def with_snapshot(engine: Any, info: ValidationInfo) -> Any:
    """The `engine` section with the constants that `host.snapshot` names written out.

    Raises:
        ValueError: the file cannot be read, holds none of this backend, or one that no replay knows.
    """
    host = engine.get("host") if isinstance(engine, dict) else None
    if not isinstance(host, dict) or not isinstance(host.get("snapshot"), str):
        return engine
    given = [f"host.{name}" for name in host if name != "snapshot"]
    if given or engine.get("tokenization") is not None:
        doubled = ", ".join([*given, *(["tokenization"] if engine.get("tokenization") is not None else [])])
        raise ValueError(f"give either host.snapshot or the constants, not both: {doubled}")
    backend = engine.get("backend", "vllm")
    found = _of_backend(((info.context or {}).get("base") or Path()) / host["snapshot"], str(backend))
    tokenization, made, factors = {}, {}, {}
    for name, value in found.items():
        if name == TOKENIZATION:
            tokenization = {"ms_per_1024_tokens": value}
        elif "factor" in name:
            factors[name] = value
        elif SPELLED.get(name, name) in Host.model_fields:
            made[SPELLED.get(name, name)] = value
        elif name != OF_THE_LABORATORY and value != 0:
            raise ValueError(
                f"host.snapshot: {backend}.{name}={value:g} has no counterpart in a replay; calibrate again without "
                "it (tracemill calibrate --term NAME for each of the others)"
            )
    return {**engine, "tokenization": tokenization or None, "host": {**host, **made, "factors": factors}}


def _of_backend(file: Path, backend: str) -> dict[str, float]:
    none = "is no snapshot of tracemill calibrate"
    constants = read_constants(file, "host.snapshot", none)
    told = f"host.snapshot {file} {none}"
    numbers = {name: as_number(constants, name, told) for name in constants if "." in name}
    mine = {name.partition(".")[2]: value for name, value in numbers.items() if name.startswith(f"{backend}.")}
    if not mine:
        known = ", ".join(sorted({name.partition(".")[0] for name in constants if "." in name})) or "no backend"
        raise ValueError(
            f"host.snapshot {file} holds constants of {known}, none of {backend}; a pass cost belongs into "
            "timing: {type: pass_cost, snapshot: FILE}"
        )
    return mine
