"""One partition per trace, and the configuration that goes with it.

A partition is named slug@digest8: a file that changes becomes another partition, its old results keep their name.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from sim.config import ConfigError, RunConfig, load_run_config


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the requests of a partition are replayed.

    Attributes:
        config_file: absolute path of the run configuration.
        overrides: `key=value` each, applied on top.
    """

    config_file: Path
    overrides: tuple[str, ...] = ()

    @property
    def base(self) -> Path:
        return self.config_file.parent

    @property
    def name(self) -> str:
        return self.config_file.stem

    def load(self) -> RunConfig:
        """The checked configuration; raises ConfigError."""
        return load_run_config(self.config_file, overrides=self.overrides)


def partition_key(path: str | None, digest: str) -> str:
    """`slug@digest8` of a trace file, or of made-up traffic when there is none."""
    stem = Path(path).stem if path else "synthetic"
    slug = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-") or "trace"
    return f"{slug}@{digest[:8]}"


def remember(root: Path, key: str, recipe: Recipe) -> None:
    """Keep the recipe of a partition, so that it can be materialised by name alone."""
    path = _file(root, key)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ".partial")
    values = {"config_file": str(recipe.config_file.absolute()), "overrides": list(recipe.overrides)}
    aside.write_text(json.dumps(values, indent=1) + "\n")
    os.replace(aside, path)


def recall(root: Path, key: str) -> Recipe:
    """The recipe of a partition; ConfigError when nobody registered it."""
    try:
        values = json.loads(_file(root, key).read_text())
    except FileNotFoundError:
        raise ConfigError(
            f"partition {key!r}: no configuration is registered for it under {root}; give config_file in the run "
            "configuration, or register the trace with: tracemill register CONFIG"
        ) from None
    return Recipe(Path(values["config_file"]), tuple(values["overrides"]))


def _file(root: Path, key: str) -> Path:
    return root / "partitions" / f"{key}.json"
