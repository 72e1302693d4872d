"""Where performance data comes from: the optional extra's folder, or a folder of the user's in the same layout.

    ROOT/systems/<system>.yaml                                              hardware
    ROOT/systems/data/<system>/<family>/<backend>/<version>/<table>.parquet measured operators
    ROOT/systems/query_versions.yaml                                        which version is current
    ROOT/model_configs/<org>--<name>_config.json                            checkpoint configurations

The extra is a carrier of files: its folder is found through the import machinery, its code is never run.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from perf_db.gpu.errors import PerfDataError

PACKAGE = "aiconfigurator_core"
DISTRIBUTION = "aiconfigurator-core"
INSTALL = "pip install 'tracemill[perfdata]'"
FIELD = "engine.workers.<role>.timing.perf_root"  # how a run names a folder of its own
OPTION = "--perf-root"  # how commands do


@functools.lru_cache(maxsize=8192)
def _digest(path: str, stamp: tuple[int, ...]) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def stamp_of(file: Path) -> tuple[int, ...]:
    """Changes whenever the file does: a copy that keeps size and time of change still has another ctime."""
    stat = file.stat()
    return (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev)


def content_digest(file: Path) -> str:
    """blake2b of a file's bytes, hex, 128 bits; computed once per process and state of the file."""
    return _digest(str(file.resolve()), stamp_of(file))


@dataclass(slots=True)
class PerfRoot:
    """A folder of performance data. Files are hashed when `digest` first asks for them."""

    path: Path
    kind: Literal["extra", "folder"]
    version: str | None  # of the extra's distribution
    _digests: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def systems(self) -> Path:
        return self.path / "systems"

    @property
    def data(self) -> Path:
        return self.systems / "data"

    @property
    def model_configs(self) -> Path:
        return self.path / "model_configs"

    def relative(self, file: Path) -> str:
        """Name of a file inside the root, the same on every machine."""
        return file.relative_to(self.path).as_posix()

    def digest(self, file: Path) -> str:
        """blake2b of a file's bytes, hex, 128 bits; computed once."""
        name = self.relative(file)
        if name not in self._digests:
            self._digests[name] = content_digest(file)
        return self._digests[name]

    def provenance(self, files: list[Path]) -> dict[str, Any]:
        """What an answer rests on, as JSON: kind of root, version of the extra, digests of the files used."""
        return {
            "kind": self.kind,
            "distribution": DISTRIBUTION if self.kind == "extra" else None,
            "version": self.version,
            "files": {self.relative(file): self.digest(file) for file in sorted(set(files))},
        }


def open_root(folder: Path | None = None, *, option: str = FIELD) -> PerfRoot:
    """The user's folder, or the extra's when none is named.

    Args:
        option: what the user could have named a folder with, for the message: a field of configurations, or `OPTION`.

    Raises:
        PerfDataError: `no_source`: no folder was given and the extra is absent, or the folder has another layout.
    """
    if folder is not None:
        return PerfRoot(_checked(folder), "folder", None)
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise PerfDataError(
            "no_source",
            f"no performance data: install the optional tables with `{INSTALL}`, or name a folder that holds "
            f"systems/ and model_configs/ with {option}",
        )
    try:
        installed = version(DISTRIBUTION)
    except PackageNotFoundError:
        installed = None
    return PerfRoot(_checked(Path(next(iter(spec.submodule_search_locations)))), "extra", installed)


def _checked(folder: Path) -> Path:
    absent = [name for name in ("systems", "model_configs") if not (folder / name).is_dir()]
    if absent:
        raise PerfDataError(
            "no_source",
            f"{folder}: no {' and no '.join(f'{name}/' for name in absent)}; a folder of performance data holds "
            "systems/<system>.yaml, systems/data/<system>/<family>/<backend>/<version>/<table>.parquet and "
            "model_configs/<org>--<name>_config.json",
        )
    return folder.resolve()
