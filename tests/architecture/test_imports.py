"""pipelines -> assets -> {sim, perf_db}. Nothing points back, and the light commands stay light."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORBIDDEN = {
    "sim": {"dagster", "duckdb", "polars", "pandas", "perf_db", "assets", "pipelines"},
    "perf_db": {"dagster", "sim", "assets", "pipelines"},
    "assets": {"pipelines"},
}
# The few files that speak Dagster; whatever else is in assets/ must work without it.
DAGSTER_FILES = {
    "assets/accuracy_graph.py",
    "assets/anomalies.py",
    "assets/inbox_trace.py",
    "assets/metadata.py",
    "assets/perf_data.py",
    "assets/performance.py",
    "assets/regression.py",
    "assets/replay.py",
    "assets/scenarios.py",
    "assets/settings.py",
    "assets/trace_page.py",
    "assets/traces.py",
    "pipelines/alerts.py",
    "pipelines/definitions.py",
    "pipelines/inbox.py",
    "pipelines/jobs.py",
    "pipelines/materialize.py",
    "pipelines/partitions.py",
    "pipelines/perf_partitions.py",
    "pipelines/resources.py",
    "pipelines/schedules.py",
    "pipelines/suites.py",
    "pipelines/truths.py",
}


def imports(path: Path, *, top_level_only: bool = False) -> list[tuple[int, str]]:
    """(line, module) of every import statement of a file."""
    tree = ast.parse(path.read_text())
    found = []
    for node in tree.body if top_level_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.append((node.lineno, node.module))
    return found


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("package", sorted(FORBIDDEN))
def test_package_imports_only_downwards(package: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in sources(package)
        for line, module in imports(path)
        if module.split(".")[0] in FORBIDDEN[package]
    ]
    assert not wrong, "\n".join(wrong)


def test_dagster_is_imported_where_it_is_expected() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for package in ("assets", "pipelines")
        for path in sources(package)
        for line, module in imports(path, top_level_only=True)
        if module.split(".")[0] == "dagster" and path.relative_to(ROOT).as_posix() not in DAGSTER_FILES
    ]
    assert not wrong, "dagster at the top of:\n" + "\n".join(wrong)


def modules_after(statement: str) -> set[str]:
    """Top-level modules that a fresh process holds after `statement`."""
    code = f"{statement}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return {name.split(".")[0] for name in json.loads(out.splitlines()[-1])}


def test_help_needs_nothing_heavy() -> None:
    loaded = modules_after("import pipelines.cli")
    assert not loaded & {"numba", "numpy", "polars", "pyarrow", "duckdb", "dagster", "pydantic", "tqdm"}


@pytest.mark.parametrize("module", ["spec", "inputs", "result", "errors", "config", "metrics"])
def test_the_contract_of_sim_needs_no_compiler(module: str) -> None:
    loaded = modules_after(f"import sim.{module}")
    assert not loaded & {"numba", "polars", "duckdb", "dagster"}
