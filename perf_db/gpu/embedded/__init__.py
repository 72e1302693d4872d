"""Whole-forward tables of a few deployments that ship with the project, so that a fresh clone prices a real model."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
PROVENANCE = FOLDER / "provenance.json"


def table_name(model: str, system: str, tp: int) -> str:
    """Name of a deployment's pair of files, without their endings."""
    return f"{model.rpartition('/')[2].lower()}-{system}-tp{tp}"


def embedded_tables() -> list[Path]:
    """The parquet halves of all pairs, in order of names."""
    return sorted(FOLDER.glob("*.parquet"))
