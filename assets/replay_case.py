"""A recorded case file through our engine, answered as JSON in the recorder's key names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from assets.golden import compare_peer, peer_case, vllm_case
from assets.golden.run import run
from assets.golden.unsupported import Unsupported
from sim.config import ConfigError
from sim.inputs import Workload
from sim.metrics import Sla, Tap, summary
from sim.spec import Deployment


def answer_case(path: Path, *, summary_only: bool) -> dict[str, Any]:
    """Replay one case of either recorded kind.

    Args:
        summary_only: leave out `per_request`, and with it the memory that single admissions take.

    Returns:
        `summary` with `wall_time_ms` (engine time only); `per_request` unless left out.

    Raises:
        ConfigError: no case, or one that cannot be run; the message says which field asks for what.
        ReplayError: it must be refused, or cannot end.
    """
    spec, workload, sla, gpus = _load(path)
    if summary_only:
        sink = Tap()
        outcome = import_module("sim.engine").replay(spec, workload, sink)
        return {"summary": sink.compute(outcome, spec, sla=sla, gpus_per_worker=gpus).summary()}
    done = run(spec, workload)
    tables = done.tables
    figures = summary(tables["requests"], done.outcome, spec, sla=sla, chunks=tables["chunks"], gpus_per_worker=gpus)
    return {"summary": figures, "per_request": compare_peer.rows(done)}


def _load(path: Path) -> tuple[Deployment, Workload, Sla | None, int | tuple[int, int] | None]:
    try:
        case = json.loads(path.read_bytes())
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON ({error})") from None
    try:
        if isinstance(case, Mapping) and "traffic" in case:
            peer = peer_case.load(case, path.parent)
            return peer.spec, peer.workload, peer.options.sla, peer.options.gpus_per_worker
        if isinstance(case, Mapping) and "requests" in case:
            vllm = vllm_case.load(case)
            return vllm.spec, vllm.workload, None, None
    except Unsupported as missing:
        raise ConfigError(f"{path}: not modelled yet: {missing}") from None
    raise ConfigError(f"{path}: no case file: neither `traffic` nor `requests` is in it")
