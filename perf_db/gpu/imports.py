"""Bringing a person's performance data into a root: everything is read and checked first, then moved into place.

What can be brought in:

- a folder in the layout of a root (`systems/...`, `model_configs/...`);
- files `<table>_perf.parquet`, or a folder of them, with the system, backend and version they were measured on;
- whole-forward tables: pairs `<name>.parquet` and `<name>.metadata.json`;
- forward-pass metrics of a running engine as JSON lines, with the deployment's identity.

Operator tables land where pricing looks for them, whole-forward tables under `forward/<system>/<backend>/<version>/`.
A file that is there already with the same bytes is left alone; with other bytes it is refused unless replaced on
purpose. `imports.jsonl` in the root keeps what was brought in, with digests.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.operator_tables import FILE_SUFFIX
from perf_db.gpu.read_table import read_operator_table
from perf_db.gpu.source import PerfRoot

LOG = "imports.jsonl"
FORWARD = "forward"


@dataclass(frozen=True, slots=True)
class Imported:
    """One file that was looked at. `state`: new, same (left alone) or replaced."""

    target: str  # below the root
    state: str
    rows: int
    digest: str


def import_data(
    source: Path,
    root: Path,
    *,
    identity: Mapping[str, Any] | None = None,
    replace: bool = False,
    dry_run: bool = False,
) -> list[Imported]:
    """Check everything under `source`, then move it into `root` (made when it is not there).

    Args:
        identity: `system`, `backend`, `version` of loose tables; for JSON lines also the deployment's columns of a
            whole-forward table that differ from their defaults (`model_path`, `tp`, ...).
        replace: files that are there already with other bytes are replaced.
        dry_run: only say what would happen.

    Raises:
        PerfDataError: `bad_file` with every fault of every file, or what is missing. The root is as it was then.
    """
    staged_at = Path(tempfile.mkdtemp(prefix="tracemill-import-", dir=_existing(root)))
    try:
        files = dict(_staged(source, staged_at, dict(identity or {})))
        if not files:
            raise PerfDataError("bad_file", f"{source}: nothing to import; {_WHAT}")
        found = [_judged(root, target, path, rows, replace) for target, (path, rows) in sorted(files.items())]
        if not dry_run:
            _move(root, files, found)
        return found
    finally:
        shutil.rmtree(staged_at, ignore_errors=True)


_WHAT = (
    "give a folder with systems/, files <table>_perf.parquet with --system, --backend and --version, whole-forward "
    "pairs <name>.parquet + <name>.metadata.json, or forward-pass metrics <name>.jsonl"
)

# path below the root -> (checked copy, rows)
Staged = Iterator[tuple[str, tuple[Path, int]]]


def _staged(source: Path, aside: Path, identity: dict[str, Any]) -> Staged:
    if not source.exists():
        raise PerfDataError("bad_file", f"{source}: no such file or folder")
    if source.suffix == ".jsonl":
        yield from _from_jsonl(source, aside, identity)
        return
    if source.is_dir() and (source / "systems").is_dir():
        yield from _from_layout(source)
        return
    parquet = [source] if source.is_file() else sorted(source.rglob("*.parquet"))
    faults = []
    for path in parquet:
        try:
            yield (_forward(path) if _is_forward(path) else _loose(path, identity))
        except PerfDataError as error:
            faults.append(str(error))
    _raise(faults)


def _from_layout(source: Path) -> Staged:
    faults = []
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source).as_posix()
        if not path.is_file() or not name.startswith(("systems/", "model_configs/", f"{FORWARD}/")):
            continue
        if path.suffix == ".parquet" and name.startswith("systems/data/"):
            read = read_operator_table(path)
            if read.faults:
                faults.append(f"{name} ({read.n_rows:,} rows): {'; '.join(read.faults)}")
            yield name, (path, read.n_rows)
        elif path.suffix == ".parquet" and name.startswith(f"{FORWARD}/"):
            from perf_db.gpu.forward import read_forward_table

            try:
                yield name, (path, len(read_forward_table(path).columns["latency_ms"]))
            except PerfDataError as error:
                faults.append(str(error))
        elif path.suffix in (".yaml", ".json"):
            if fault := _unreadable(path):
                faults.append(f"{name}: {fault}")
            yield name, (path, 0)
    _raise(faults)


def _unreadable(path: Path) -> str | None:
    try:
        text = path.read_text(encoding="utf-8")
        yaml.safe_load(text) if path.suffix == ".yaml" else json.loads(text)
    except (ValueError, yaml.YAMLError) as error:
        return f"not {path.suffix[1:].upper()}: {error}"
    return None


def _loose(path: Path, identity: Mapping[str, Any]) -> tuple[str, tuple[Path, int]]:
    absent = [f"--{name}" for name in ("system", "backend", "version") if not identity.get(name)]
    read = read_operator_table(path)
    if read.faults:
        raise PerfDataError("bad_file", f"{path} ({read.n_rows:,} rows): {'; '.join(read.faults)}")
    if absent:
        raise PerfDataError("bad_file", f"{path}: what was it measured on? give {', '.join(absent)}")
    assert read.table is not None
    folder = "/".join((identity["system"], read.table.family, identity["backend"], identity["version"]))
    return f"systems/data/{folder}/{path.name}", (path, read.n_rows)


def _is_forward(path: Path) -> bool:
    return path.with_suffix(".metadata.json").is_file() or not path.stem.endswith(FILE_SUFFIX)


def _forward(path: Path) -> tuple[str, tuple[Path, int]]:
    from perf_db.gpu.forward import read_forward_table

    table = read_forward_table(path)
    about = table.sidecar
    folder = f"{FORWARD}/{about['system']}/{about['backend']}/{about['backend_version']}"
    return f"{folder}/{path.name}", (path, len(table.columns["latency_ms"]))


def _from_jsonl(path: Path, aside: Path, identity: dict[str, Any]) -> Staged:
    """Iterations as a whole-forward table, the median of repeats."""
    from perf_db.gpu.forward import read_forward_table, write_forward_table
    from perf_db.gpu.forward_jsonl import read_forward_jsonl, table_rows

    columns = _forward_identity(path, identity)
    found = read_forward_jsonl(path)
    rows = table_rows(found, columns, cell=path.stem)
    if not rows:
        raise PerfDataError(
            "bad_file", f"{path}: {len(found)} iteration(s), none of them of one rank and only prefill or only decode"
        )
    made = aside / f"{path.stem}.parquet"
    write_forward_table(made, rows, measurement_policy="forward-pass metrics of a running engine, median of repeats")
    read_forward_table(made)
    yield _forward(made)


def _forward_identity(path: Path, given: dict[str, Any]) -> dict[str, Any]:
    from perf_db.gpu import forward

    absent = [f"--{n}" for n in ("model", "system", "backend", "version") if not given.get(n)]
    if absent:
        raise PerfDataError("bad_file", f"{path}: whose iterations are these? give {', '.join(absent)}")
    columns: dict[str, Any] = dict.fromkeys(forward.EXECUTION_TEXT, "bfloat16")
    columns |= {"comm_quant_mode": "half", "moe_backend": "", "attention_backend": ""}
    columns |= dict.fromkeys(forward.EXECUTION_WHOLE, 1) | dict.fromkeys(forward.EXECUTION_FLAGS, False)
    named = {"model": "model_path", "version": "backend_version"}
    known = {named.get(name, name): value for name, value in given.items() if value is not None}
    return columns | {"weight_quantization": known.get("gemm_quant_mode", "bfloat16")} | known


def _judged(root: Path, target: str, path: Path, rows: int, replace: bool) -> Imported:
    digest, there = _digest(path), root / target
    if not there.is_file():
        return Imported(target, "new", rows, digest)
    if _digest(there) == digest:
        return Imported(target, "same", rows, digest)
    if not replace:
        raise PerfDataError(
            "bad_file",
            f"{there} is there already with other contents; nothing was imported. Compare them with "
            "`tracemill perf diff`, import into another folder, or say --replace",
        )
    return Imported(target, "replaced", rows, digest)


def _move(root: Path, files: Mapping[str, tuple[Path, int]], found: list[Imported]) -> None:
    """Copies beside their targets first: what can fail (space, rights) has failed before anything is replaced."""
    for folder in ("systems/data", "model_configs"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    fresh = [each for each in found if each.state != "same"]
    asides: list[tuple[Path, Path]] = []
    try:
        for each in fresh:
            path = files[each.target][0]
            pair = [path]
            if each.target.startswith(f"{FORWARD}/") and path.suffix == ".parquet":
                # The metadata go first, so that no reader meets a new table with the old ones.
                pair = [path.with_suffix(".metadata.json"), path]
            for one in pair:
                target = (root / each.target).with_name(one.name)
                target.parent.mkdir(parents=True, exist_ok=True)
                aside = target.with_name(f".{target.name}.importing")
                asides.append((aside, target))
                shutil.copyfile(one, aside)
        for aside, target in asides:
            os.replace(aside, target)
    finally:
        for aside, _ in asides:
            aside.unlink(missing_ok=True)
    with (root / LOG).open("a", encoding="utf-8") as log:
        for each in fresh:
            log.write(json.dumps({"file": each.target, "rows": each.rows, "blake2b": each.digest}) + "\n")


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _existing(path: Path) -> Path:
    """The folder itself or the nearest one above it that is there: temporary files belong on the same disk."""
    path = path.absolute()
    while not path.is_dir():
        path = path.parent
    return path


def _raise(faults: list[str]) -> None:
    if faults:
        more = f"\n... and {len(faults) - 20} more" if len(faults) > 20 else ""
        raise PerfDataError("bad_file", "nothing was imported:\n" + "\n".join(faults[:20]) + more)


def missing_hardware(root: Path) -> list[str]:
    """Systems of a root that have tables but no hardware file: they cannot be priced yet."""
    held = PerfRoot(root, "folder", None)
    return sorted(p.name for p in held.data.glob("*") if p.is_dir() and not (held.systems / f"{p.name}.yaml").is_file())
