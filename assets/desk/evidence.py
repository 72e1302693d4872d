"""Evidence packs: two runs and what is to be said about them, in one folder that proves itself.

`raw/` is a store of its own with the tables of both runs; `evidence.json` and `evidence.md` follow from it and from
nothing else, so that anyone can make them again and compare.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from assets.desk.anomalies import Anomaly, claims, examine
from assets.desk.diff import Diff, diff_runs
from assets.desk.pair import Recorded
from assets.desk.text import diff_text
from assets.views import open_store
from perf_db.commit import Commit, write_commit
from perf_db.layout import FACE_NAME, Layout, StoreError
from perf_db.rows import copy_rows

FORMAT = 1
RAW, DATA, PAGE, PAIR = "raw", "evidence.json", "evidence.md", "pair.json"
# What the store derives while it is asked; it holds paths of this machine.
_DERIVED = ("notes", "staging", "spill", FACE_NAME, ".lock")
_FACTS = (
    "run_id", "replay_id", "name", "profile", "backend", "model", "hardware", "seed", "config_digest", "trace_digest",
    "performance_digest", "engine_digest", "schema_digest", "result_digest", "tracemill_version", "python_version",
    "numpy_version", "numba_version", "started_at", "engine_ms", "total_ms", "mixed_pass", "unproven",
)  # fmt: skip


class EvidenceError(StoreError):
    """The pack cannot be made or read as asked."""


def build(base: Recorded, head: Recorded, folder: Path, *, command: str) -> dict[str, Any]:
    """Write the pack; returns what stands in `evidence.json`.

    Args:
        folder: must not exist yet, or be empty.
        command: how it was asked for, as a person would type it.

    Raises:
        EvidenceError: something is in the way. Nothing has been written then.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise EvidenceError(f"{folder} is there already; remove it or choose another folder")
    raw = Layout(folder / RAW)
    raw.create()
    for side in (base, head):
        _copy(side, raw)
    pair = {"base": base.run["run_id"], "head": head.run["run_id"], "command": command}
    (folder / PAIR).write_text(json.dumps(pair, indent=1) + "\n", encoding="utf-8")
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
        json.loads((folder / PAIR).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EvidenceError(f"{folder} is no evidence pack: {error}") from error
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
        return  # both sides are the same run
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
    pair = json.loads((folder / PAIR).read_text(encoding="utf-8"))
    store = open_store(folder / RAW)
    try:
        sides = {side: Recorded.of_store(store, pair[side]) for side in ("base", "head")}
        found = {side: examine(store, pair[side]) for side in ("base", "head")}
        diff = diff_runs(sides["base"], sides["head"])
    finally:
        for name in _DERIVED:
            path = store.root / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    data = {
        "format": FORMAT,
        "command": pair["command"],
        "scenarios": [
            {
                "name": sides["head"].run["name"],
                "base": _facts(sides["base"]),
                "head": _facts(sides["head"]),
                "diff": diff.as_json(),
                "checks": len(claims()),
                "anomalies": {side: [asdict(a) for a in found[side]] for side in found},
            }
        ],
    }
    return json.loads(json.dumps(data, default=str)), _page(pair["command"], sides, diff, found)


def _facts(side: Recorded) -> dict[str, Any]:
    tables = {t.table: {"rows": t.n_rows, "digest": t.digest} for t in side.commit.tables}
    return {name: side.run[name] for name in _FACTS} | {
        "config": json.loads(side.run["config_json"]),
        "provenance": json.loads(side.run["provenance_json"]),
        "tables": tables,
    }


def _page(command: str, sides: dict[str, Recorded], diff: Diff, found: dict[str, list[Anomaly]]) -> str:
    lines = [f"# Evidence: {sides['base'].run['name']} → {sides['head'].run['name']}", "", _verdict(diff), ""]
    lines += ["| | base | head |", "|---|---|---|"]
    facts = ("run_id", "replay_id", "engine_digest", "trace_digest", "result_digest", "tracemill_version")
    lines += [f"| {n} | `{sides['base'].run[n]}` | `{sides['head'].run[n]}` |" for n in facts]
    lines += ["", "## Diff", "", "```text", diff_text(diff), "```", "", "## Anomalies", ""]
    for side, anomalies in found.items():
        lines += [f"- {side}: {a.severity} `{a.check_name}`, {a.row_key}: {a.explanation}" for a in anomalies]
        if not anomalies:
            lines.append(f"- {side}: {len(claims())} checks, all fine")
    lines += ["", "## Made by", "", f"    {command}", "", "Check it against the raw tables beside this page:", ""]
    return "\n".join([*lines, "    tracemill evidence --check DIR", ""])


def _verdict(diff: Diff) -> str:
    if diff.same:
        return "**The same rows.**"
    if not diff.explained:
        return "**Different, and not explained.**"
    why = f" Mechanism: {diff.mechanism.name} ({diff.mechanism.detail})." if diff.mechanism else ""
    return f"**Different.** Input change: {', '.join(diff.input_change)}.{why}"


def _cells(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _cells(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _cells(inner, f"{name}[{i}]")
    else:
        yield name, value
