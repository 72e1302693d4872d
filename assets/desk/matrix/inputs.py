"""What a scenario's result depends on, as digests: equal ones mean that running it again gives the same rows.

Planning reads files but no rows of them, so that a nightly job with nothing to do ends in a moment.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from assets.desk import baselines
from assets.desk.matrix.suite import Scenario
from assets.errors import INPUT_ERRORS
from assets.identity import canonical_json, digest, performance_digest, sources_digest
from assets.pricing import price_deployment
from perf_db.tables import schema_digest

# What people call the parts.
WORDS = {
    "config_digest": "configuration",
    "trace_digest": "trace",
    "performance_digest": "performance data",
    "engine_digest": "engine",
    "baseline_digest": "baseline",
}


@dataclass(frozen=True, slots=True)
class Parts:
    """Digests as in table `scenarios`."""

    config_digest: str
    trace_digest: str
    performance_digest: str
    engine_digest: str
    baseline_digest: str

    def as_row(self) -> dict[str, str]:
        return asdict(self)


def parts_of(scenario: Scenario, folder: Path) -> Parts:
    """
    Args:
        folder: of the baselines.

    A trace or performance data that cannot be had have no digest here; running the scenario says what is wrong.
    """
    config = scenario.config
    return Parts(
        config_digest=digest(canonical_json(config.canonical())),
        trace_digest=_trace_digest(scenario),
        performance_digest=_performance_digest(scenario),
        engine_digest=digest(sources_digest("sim"), schema_digest()),
        baseline_digest=baseline_digest(folder, scenario.name),
    )


def baseline_digest(folder: Path, name: str) -> str:
    """Of the rows that a baseline accepts and of its tolerances; '' without one."""
    if name not in baselines.names(folder):
        return ""
    kept = baselines.load(folder, name)
    return digest(kept.recorded.run["result_digest"], json.dumps(kept.tolerances, sort_keys=True))


def _trace_digest(scenario: Scenario) -> str:
    """Of the bytes of every file the traffic names; '' without any."""
    parts: list[str] = []
    for name in sorted(set(_paths(scenario.config.traffic.source.model_dump()))):
        path = scenario.base / name
        for file in sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]:
            try:
                about = file.stat()
                parts += [name, _file_digest(file, about.st_mtime_ns, about.st_size)]
            except OSError as error:
                parts += [name, str(error.errno)]
    return digest(*parts) if parts else ""


def _performance_digest(scenario: Scenario) -> str:
    """Of the prices, and of the KV pool where it follows from the hardware's memory; '' where they cannot be had."""
    try:
        spec = price_deployment(scenario.config, base=scenario.base).spec
    except INPUT_ERRORS:
        return ""
    found = performance_digest(spec)
    if all(side.given_blocks for side in scenario.config.sides):
        return found
    return digest(found, *(str(side.blocks) for side in spec.sides))


def _paths(values: Any, named: bool = False) -> Iterator[str]:
    if isinstance(values, Mapping):
        for name, inner in values.items():
            yield from _paths(inner, name in ("path", "paths"))
    elif isinstance(values, list):
        for inner in values:
            yield from _paths(inner, named)
    elif named and isinstance(values, str):
        yield values


@lru_cache(maxsize=4096)
def _file_digest(path: Path, mtime_ns: int, size: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
