"""Measurements that are looked at again and again: where a set's file is, and what it is held against."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path

from assets.accuracy.truth import TruthError

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Watched:
    """One set and its options; paths are absolute.

    Attributes:
        snapshot: where its constants are, or will be written.
    """

    name: str
    truth: str
    snapshot: str
    deployments: str | None = None
    prefixes: str | None = None
    perf_root: str | None = None
    form: str | None = None
    about: dict[str, str] = field(default_factory=dict)
    where: list[str] = field(default_factory=list)
    terms: list[str] = field(default_factory=list)


def remember(store_root: Path, watched: Watched) -> Path:
    """Keep a set's options; writing them again replaces them.

    Raises:
        TruthError: the name cannot be a partition's.
    """
    if not _SAFE.fullmatch(watched.name):
        raise TruthError(
            f"name {watched.name!r}: use letters, digits, '.', '_' and '-', starting with one of the first"
        )
    path = _file(store_root, watched.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(json.dumps(asdict(watched), indent=1, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(aside, path)
    return path


def recall(store_root: Path, name: str) -> Watched:
    """
    Raises:
        TruthError: nobody registered it, or what was kept is damaged.
    """
    path = _file(store_root, name)
    if not path.exists():
        raise TruthError(f"measurements {name!r} are not registered: tracemill accuracy GT --register --snapshot FILE")
    try:
        return Watched(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise TruthError(f"{path} is damaged ({error}); register the measurements again") from error


def _file(store_root: Path, name: str) -> Path:
    return store_root.absolute() / "truths" / f"{name}.json"
