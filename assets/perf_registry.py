"""Which folder a version of performance data comes from, so that it can be examined by its name alone."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.quality import PerfVersion, perf_versions
from perf_db.gpu.source import OPTION, PerfRoot, open_root
from perf_db.performance import performance_folder


def remember_root(store_root: Path, root: PerfRoot, versions: Sequence[PerfVersion]) -> None:
    """Keep where these versions are: a folder, or the extra wherever it is installed."""
    known = _read(store_root) | {v.key: None if root.kind == "extra" else str(root.path) for v in versions}
    path = _file(store_root)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ".partial")
    aside.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(aside, path)


def recall_root(store_root: Path, version: PerfVersion) -> PerfRoot:
    """The root of a registered version.

    Raises:
        PerfDataError: nobody registered it, or its folder does not hold it any more.
    """
    known = _read(store_root)
    if version.key not in known:
        raise PerfDataError(
            "unknown_version", f"performance data {version.key!r} are not registered: tracemill perf register"
        )
    folder = known[version.key]
    root = open_root(None if folder is None else Path(folder), option=OPTION)
    if version not in perf_versions(root):
        raise PerfDataError(
            "unknown_version",
            f"{root.path} holds no {version.key} any more; register the folder that does: tracemill perf register",
        )
    return root


def _read(store_root: Path) -> dict[str, str | None]:
    path = _file(store_root)
    found: dict[str, str | None] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def _file(store_root: Path) -> Path:
    return performance_folder(store_root.absolute()) / "roots.json"
