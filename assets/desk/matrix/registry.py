"""Suites that a warehouse knows by name: their files, and the baselines they are held against."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from assets.desk.matrix.suite import Suite, load_suite
from sim.config import ConfigError


@dataclass(frozen=True, slots=True)
class Registered:
    """Absolute paths of a suite's file and of its baselines' folder."""

    path: Path
    baselines: Path

    def load(self) -> Suite:
        """The checked suite; raises ConfigError."""
        return load_suite(self.path)


def remember_suite(root: Path, path: Path, baselines: Path) -> str:
    """Keep where a suite lies; returns its name, which is its file's. Another file of that name replaces it."""
    found = Registered(path.absolute(), baselines.absolute())
    target = _file(root, path.stem)
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(target.name + ".partial")
    aside.write_text(json.dumps({"path": str(found.path), "baselines": str(found.baselines)}, indent=1) + "\n")
    os.replace(aside, target)
    return path.stem


def recall_suite(root: Path, name: str) -> Registered:
    """Where the suite lies; ConfigError when nobody registered it."""
    try:
        values = json.loads(_file(root, name).read_text())
    except FileNotFoundError:
        raise ConfigError(
            f"suite {name!r}: not registered under {root}; do it with: tracemill matrix register FILE"
        ) from None
    return Registered(Path(values["path"]), Path(values["baselines"]))


def _file(root: Path, name: str) -> Path:
    return root / "partitions" / "suites" / f"{name}.json"
