"""What the host adds to prices from performance data: `engine.host` as factors of operators and extras of passes.

The constants mean here what they mean where they were fitted (`assets.calibration.host_model`), with one difference:
decode attention inside a pass that also computes prompt tokens has the factors of decode passes, since an operator has
one factor per list. It is a small part of such passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.config import ConfigError

if TYPE_CHECKING:
    from perf_db.gpu.deployment import Deployment
    from perf_db.gpu.oplevel import OpLevel
    from sim.config import RunConfig
    from sim.config.timing import DefaultTiming

LATENT_ATTENTION = ("Kimi", "DeepSeek")  # in names of models, as in the fits


def extras(config: RunConfig, timing: DefaultTiming, layers: int | None) -> dict[str, float]:
    """Header entries of array timing (`sim.timing.tables.EXTRAS`), ms.

    Args:
        layers: of the model; None where the estimator does not know them.

    Raises:
        ConfigError: a constant per layer, or a factor, without layers or operators to act on.
    """
    found = timing.extras()
    host = config.engine.host
    if host is None:
        return found
    asked = host.in_passes
    if layers is None:
        lost = [name for name in asked if name.endswith("_per_layer")] + (["factors"] if host.factors else [])
        if lost:
            raise ConfigError(
                f"engine.host.{lost[0]}: needs prices by operator; use estimation_mode: op_level, or remove it"
            )
    per_layer = {name: asked.get(name, 0.0) * (layers or 0) for name in asked if name.endswith("_per_layer")}
    found["prefill_pass_extra_ms"] += asked.get("prefill_pass_ms", 0.0) + per_layer.get(
        "prefill_pass_ms_per_layer", 0.0
    )
    found["decode_pass_extra_ms"] += (
        asked.get("decode_pass_ms", 0.0) + per_layer.get("decode_pass_us_per_layer", 0.0) * 1e-3
    )
    # Only where they are asked for: what a timing is called by its digest stays as it was.
    for name, extra in (
        ("prefill_token_us", "prefill_token_extra_ms"),
        ("running_request_us", "running_request_extra_ms"),
    ):
        if name in asked:
            found[extra] = asked[name] * 1e-3
    return found


def factors(config: RunConfig, timing: DefaultTiming, deployment: Deployment, model: OpLevel) -> dict[str, float]:
    """What-if factors by operator name: those of the timing, and those that the host's come to.

    Raises:
        ConfigError: a factor that the host model does not have.
    """
    found = dict(timing.factors)
    host = config.engine.host
    if host is None or not host.factors:
        return found
    from assets.accuracy.amounts import CLASS, OTHER  # not before it is needed: amounts load the engine

    weights = _weights(host.factors, deployment, experts=bool(model.model.symbols["E"]))
    for phase in model.phases:
        where = "prefill" if phase == "context" else "decode"
        attention = "context_attention" if phase == "context" else "decode_attention_decode"
        for op in model.operators(phase):
            if op.part == "logits":
                component = f"logits_{where}"
            else:
                component = attention if op.kind == "attention" else f"{CLASS.get(op.kind, OTHER)}_{where}"
            if weights[component] != 1.0:
                found[op.name] = found.get(op.name, 1.0) * weights[component]
    return found


def _weights(factors: Mapping[str, float], deployment: Deployment, *, experts: bool) -> dict[str, float]:
    """What every component of a pass is multiplied by: the host model asked for one unit of each."""
    from assets.accuracy.amounts import COMPONENTS
    from assets.accuracy.labels import BLACKWELL
    from assets.calibration.host_model import HOST_CONSTANTS, LoopRows, predict

    for key in factors:
        constant = HOST_CONSTANTS.get(key.partition("[")[0])
        if constant is None or constant.where != "factor":
            known = ", ".join(name for name, each in HOST_CONSTANTS.items() if each.where == "factor")
            raise ConfigError(f"engine.host.factors.{key}: the host model has no such factor; there are: {known}")
    n = len(COMPONENTS)
    classes = {key.partition("[")[2].rstrip("]") for key in factors} - {""}
    name = deployment.model.lower()
    about: dict[str, Any] = {
        "ttft": np.eye(n),
        "tpot": np.zeros((n, n)),
        "mla": any(each in deployment.model for each in LATENT_ATTENTION),
        "blackwell": deployment.system in BLACKWELL,
        "ranks": deployment.dp > 1,
        # Families of measured models are named after their checkpoints.
        "model": next((each for each in sorted(classes, key=len, reverse=True) if each.lower() in name), ""),
        "system": deployment.system,
        "precision": deployment.moe if experts else deployment.gemm,
        "dense_precision": deployment.gemm,
    }
    columns = {
        field: each if isinstance(each := about.get(field, 0.0), np.ndarray) else np.full(n, each)
        for field in LoopRows.__dataclass_fields__
    }
    told, _ = predict(LoopRows(**columns), factors, client=False)
    return dict(zip(COMPONENTS, told.tolist(), strict=True))


def told(config: RunConfig) -> Mapping[str, object]:
    """What a run's provenance says of it; empty without."""
    host = config.engine.host
    canonical = None if host is None else host.canonical()
    if host is None or canonical is None:
        return {}
    return {"host": {**canonical, "snapshot": host.snapshot} if host.snapshot else canonical}
