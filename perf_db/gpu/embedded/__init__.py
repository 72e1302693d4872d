"""Whole-forward tables of a few deployments that ship with the project, so that a fresh clone prices a real model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
PROVENANCE = FOLDER / "provenance.json"


def table_name(model: str, system: str, tp: int) -> str:
    """Name of a deployment's pair of files, without their endings."""
    return f"{model.rpartition('/')[2].lower()}-{system}-tp{tp}"


def embedded_tables() -> list[Path]:
    """The parquet halves of all pairs, in order of names."""
    return sorted(FOLDER.glob("*.parquet"))


def embedded_deployments() -> list[dict[str, Any]]:
    """What the tables price: fields of `Deployment`, in order of names."""
    tables: dict[str, dict[str, Any]] = json.loads(PROVENANCE.read_text(encoding="utf-8"))["tables"]
    return [tables[name] for name in sorted(tables)]
