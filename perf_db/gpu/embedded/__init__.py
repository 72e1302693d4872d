"""Whole-forward tables of a few deployments that ship with the project, so that a fresh clone prices a real model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perf_db.gpu.errors import PerfDataError

if TYPE_CHECKING:
    import numpy as np

FOLDER = Path(__file__).parent
PROVENANCE = FOLDER / "provenance.json"


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
        PerfDataError: `missing_shape`: the deployment is not embedded; the message lists those that are.
    """
    from perf_db.gpu.forward import compile_forward, read_forward_table

    asked = {"model": model, "system": system, "backend": backend, "tp": tp, "dp": dp}
    known = _provenance()
    fits = [name for name, own in known["tables"].items() if all(own[key] == value for key, value in asked.items())]
    if len(fits) != 1:
        from perf_db.gpu.source import FIELD, INSTALL

        systems = sorted({d["system"] for d in embedded_deployments()})
        written = (system or "").lower().replace("-", "_")
        meant = [each for each in systems if written and each != system and each.startswith(written)]
        hint = f" (did you mean {meant[0]}?)" if len(meant) == 1 else ""
        each = ", ".join(f"{d['model']} on {d['system']} TP {d['tp']}" for d in embedded_deployments())
        raise PerfDataError(
            "missing_shape",
            f"{model} on {system}{hint}, {backend}, TP {tp}, DP {dp} is not among the embedded tables, and the "
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
