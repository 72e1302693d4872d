"""Evidence packs: pairs of runs and what is to be said about them, in one folder that proves itself.

`raw/` is a store of its own with the tables of all runs, beside the measurements of host performance and the answers to
recorded cases if there are any; `evidence.json` and `evidence.md` follow from it and from nothing else, so that anyone
can make them again and compare.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from assets.desk.anomalies import Anomaly, claims, examine
from assets.desk.diff import Diff, diff_runs
from assets.desk.evidence_page import page_of
from assets.desk.figures import Figure, figures
from assets.desk.golden_summary import summarise_golden
from assets.desk.host_summary import summarise
from assets.desk.pair import Recorded, open_pair, same_rows
from assets.views import open_store
from perf_db.commit import Commit, write_commit
from perf_db.layout import FACE_NAME, Layout, StoreError
from perf_db.rows import copy_rows
from perf_db.store import Store

FORMAT = 2
RAW, DATA, PAGE, PACK = "raw", "evidence.json", "evidence.md", "pack.json"
HOST, GOLDEN = "host.json", "golden.json"  # under RAW
# What the store derives while it is asked; it holds paths of this machine.
_DERIVED = ("notes", "staging", "spill", FACE_NAME, ".lock")
_FACTS = (
    "run_id", "replay_id", "name", "profile", "backend", "model", "hardware", "seed", "config_digest", "trace_digest",
    "performance_digest", "engine_digest", "schema_digest", "result_digest", "tracemill_version", "python_version",
    "numpy_version", "numba_version", "started_at", "engine_ms", "total_ms", "mixed_pass", "unproven",
)  # fmt: skip


class EvidenceError(StoreError):
    """The pack cannot be made or read as asked."""


@dataclass(frozen=True)
class Scenario:
    """Two runs to be compared under a name."""

    name: str
    base: Recorded
    head: Recorded


@dataclass(frozen=True)
class Compared:
    """What is to be said about a scenario.

    Attributes:
        diff: None where rows of one side were not kept; then there are figures only.
        found: side -> anomalies; of a side whose rows were not kept, None.
    """

    scenario: Scenario
    diff: Diff | None
    moved: list[Figure]
    found: dict[str, list[Anomaly] | None]


def build(
    scenarios: Sequence[Scenario],
    folder: Path,
    *,
    command: str,
    missing: Mapping[str, str] | None = None,
    host: Mapping[str, Any] | None = None,
    golden: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write the pack; returns what stands in `evidence.json`.

    Args:
        folder: must not exist yet, or be empty.
        command: how it was asked for, as a person would type it.
        missing: scenarios that could not be compared -> why.
        host: measurements of `assets.desk.host.measure`.
        golden: answers of `assets.desk.golden_summary.collect`.

    Raises:
        EvidenceError: something is in the way. Nothing has been written then.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise EvidenceError(f"{folder} is there already; remove it or choose another folder")
    if not scenarios:
        raise EvidenceError("nothing to compare: " + "; ".join(f"{n}: {w}" for n, w in (missing or {}).items()))
    raw = Layout(folder / RAW)
    raw.create()
    for scenario in scenarios:
        for side in (scenario.base, scenario.head):
            _copy(side, raw)
    pack = {
        "format": FORMAT,
        "command": command,
        "scenarios": [{"name": s.name, "base": s.base.run["run_id"], "head": s.head.run["run_id"]} for s in scenarios],
        "missing": dict(missing or {}),
    }
    for name, content in ((PACK, pack), (f"{RAW}/{HOST}", host), (f"{RAW}/{GOLDEN}", golden)):
        if content is not None:
            (folder / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    data, page = _compose(folder)
    (folder / DATA).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    (folder / PAGE).write_text(page, encoding="utf-8")
    return data


def rebuild(folder: Path) -> list[str]:
    """Make everything again from the raw tables; returns the cells that differ, in words. The pack is left as it is.

    Raises:
        EvidenceError: the folder is no pack.
    """
    try:
        kept = json.loads((folder / DATA).read_text(encoding="utf-8"))
        page = (folder / PAGE).read_text(encoding="utf-8")
        found = json.loads((folder / PACK).read_text(encoding="utf-8"))["format"]
    except (OSError, ValueError, KeyError) as error:
        raise EvidenceError(f"{folder} is no evidence pack: {error}") from error
    if found != FORMAT:
        raise EvidenceError(f"{folder} has format {found}, this release reads {FORMAT}; use the release that wrote it")
    again, page_again = _compose(folder)
    cells, cells_again = dict(_cells(kept, "")), dict(_cells(json.loads(json.dumps(again)), ""))
    faults = [
        f"{DATA}: {name}: {cells.get(name, 'missing')!r}, from the tables {cells_again.get(name, 'missing')!r}"
        for name in sorted(cells.keys() | cells_again.keys())
        if cells.get(name, _MISSING) != cells_again.get(name, _MISSING)
    ]
    return faults + ([f"{PAGE}: is not what follows from the tables"] if page != page_again else [])


_MISSING = object()


def _copy(side: Recorded, raw: Layout) -> None:
    """The run's files and its commit, as a store keeps them."""
    run_id, replay_id = side.run["run_id"], side.run["replay_id"]
    if raw.commit_file(run_id).exists():
        return  # it is in another pair, or on both sides of this one
    folder = raw.run_folder(run_id) / f"replay_id={replay_id}"
    folder.mkdir(parents=True)
    tables = []
    for stored in side.commit.tables:
        if stored.path is None:
            tables.append(stored)
            continue
        target = folder / f"{stored.table}.parquet"
        copy_rows(side.root, stored, run_id, target)
        tables.append(replace(stored, path=target.relative_to(raw.root).as_posix()))
    write_commit(raw, Commit(side.run, tuple(tables)))


def _compose(folder: Path) -> tuple[dict[str, Any], str]:
    pack = json.loads((folder / PACK).read_text(encoding="utf-8"))
    store = open_store(folder / RAW)
    try:
        compared = [_compare(store, each) for each in pack["scenarios"]]
    finally:
        for name in _DERIVED:
            path = store.root / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    data: dict[str, Any] = {
        "format": FORMAT,
        "command": pack["command"],
        "scenarios": [_scenario_json(c) for c in compared],
        "missing": pack["missing"],
    }
    if (host := _read(folder, HOST)) is not None:
        data["host"] = summarise(host)
    if (golden := _read(folder, GOLDEN)) is not None:
        data["golden"] = summarise_golden(golden)
    plain = json.loads(json.dumps(data, default=str))
    return plain, page_of(plain, {c.scenario.name: c.diff for c in compared})


def _read(folder: Path, name: str) -> Any:
    path = folder / RAW / name
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _compare(store: Store, pair: Mapping[str, str]) -> Compared:
    base, head = (Recorded.of_store(store, pair[side]) for side in ("base", "head"))
    scenario = Scenario(pair["name"], base, head)
    found = {name: None if side.lost() else examine(store, side.run["run_id"])
             for name, side in (("base", base), ("head", head))}  # fmt: skip
    if same_rows(base, head) or not (base.lost() or head.lost()):
        diff = diff_runs(base, head)
        return Compared(scenario, diff, [f for f in diff.figures if f.base != f.head], found)
    with open_pair(base.only_metrics(), head.only_metrics()) as both:
        return Compared(scenario, None, [f for f in figures(both) if f.base != f.head], found)


def _scenario_json(compared: Compared) -> dict[str, Any]:
    scenario = compared.scenario
    diff: dict[str, Any]
    if compared.diff is not None:
        diff = compared.diff.as_json()
    else:
        moved = [asdict(f) | {"change": f.change, "relative": f.relative} for f in compared.moved]
        diff = {"same": False, "explained": False, "rows_kept": False, "metrics": moved}
    anomalies = {side: None if found is None else [asdict(a) for a in found] for side, found in compared.found.items()}
    return {
        "name": scenario.name,
        "base": _facts(scenario.base),
        "head": _facts(scenario.head),
        "diff": diff,
        "checks": len(claims()),
        "anomalies": anomalies,
    }


def _facts(side: Recorded) -> dict[str, Any]:
    tables = {t.table: {"rows": t.n_rows, "digest": t.digest} for t in side.commit.tables}
    return {name: side.run[name] for name in _FACTS} | {
        "config": json.loads(side.run["config_json"]),
        "provenance": json.loads(side.run["provenance_json"]),
        "tables": tables,
    }


def _cells(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _cells(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _cells(inner, f"{name}[{i}]")
    else:
        yield name, value
