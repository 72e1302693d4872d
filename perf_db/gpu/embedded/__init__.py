"""Whole-forward tables of a few deployments that ship with the project, so that a fresh clone prices a real model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.names import nearest

if TYPE_CHECKING:
    import numpy as np

FOLDER = Path(__file__).parent
PROVENANCE = FOLDER / "provenance.json"
# Systems that the optional tables or ours know, so that a name nobody knows is told from one that is not embedded.
SYSTEMS = (
    *("a100_pcie", "a100_sxm", "a30", "b200_sxm", "b300_sxm", "b60", "gb200", "gb300"),
    *("h100_pcie", "h100_sxm", "h200_sxm", "l4", "l40s", "rtx_pro_6000_server"),
)


def table_name(model: str, system: str, tp: int) -> str:
    """Name of a deployment's pair of files, without their endings."""
    return f"{model.rpartition('/')[2].lower()}-{system}-tp{tp}"


def embedded_deployments() -> list[dict[str, Any]]:
    """What the tables price: fields of `Deployment`, in order of names."""
    tables = _provenance()["tables"]
    return [tables[name] for name in sorted(tables)]


def embedded_timing(
    *, model: str | None, system: str | None, backend: str, tp: int, dp: int = 1
) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, Any]]:
    """Whole-forward header and arrays of an embedded deployment, and what they rest on.

    Raises:
        PerfDataError: `unknown_system`: nobody knows the system; `missing_shape`: the deployment is not embedded. The
            message lists those that are.
    """
    from perf_db.gpu.forward import compile_forward, read_forward_table

    asked = {"model": model, "system": system, "backend": backend, "tp": tp, "dp": dp}
    known = _provenance()
    fits = [name for name, own in known["tables"].items() if all(own[key] == value for key, value in asked.items())]
    if len(fits) != 1:
        from perf_db.gpu.source import FIELD, INSTALL

        each = ", ".join(f"{d['model']} on {d['system']} TP {d['tp']}" for d in embedded_deployments())
        if system is not None and system not in SYSTEMS:
            written = system.lower().replace("-", "_")
            # h200 is nearer to gb200 by its letters, and is meant for h200_sxm.
            close = nearest(written, [each for each in SYSTEMS if each.startswith(written)] or SYSTEMS, 1)
            hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(SYSTEMS)}."
            raise PerfDataError(
                "unknown_system",
                f"unknown system {system!r}; {hint} Its tables may need {INSTALL} or a folder of your own ({FIELD}). "
                f"Embedded ({backend}): {each}",
            )
        raise PerfDataError(
            "missing_shape",
            f"{model} on {system}, {backend}, TP {tp}, DP {dp} is not among the embedded tables, and the "
            f"optional ones are not installed: {INSTALL}, or name your own folder as {FIELD}. "
            f"Embedded ({backend}): {each}",
        )
    (name,) = fits
    table = read_forward_table(FOLDER / f"{name}.parquet")
    header, arrays = compile_forward(table, name)
    about = {
        "deployment": known["tables"][name],
        "cell": name,
        "sha256": table.digest,
        "measurement_policy": table.sidecar["measurement_policy"],
        "source": {key: known["source"][key] for key in ("distribution", "version")},
    }
    return header, arrays, about


def _provenance() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(PROVENANCE.read_text(encoding="utf-8"))
    return found
