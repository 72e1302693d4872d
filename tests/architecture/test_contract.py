"""Pieces that must agree although they do not know each other."""

from __future__ import annotations

import re
import subprocess
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import yaml

import sim.result as result
from perf_db.tables import RESULT_TABLES

ROOT = Path(__file__).parents[2]
# What the engine calls a request, and what the store calls it: `perf_db.writer` translates.
STORED_AS = {"request": "request_id", "asker": "asker_id"}
# Columns the store adds: who the request is in its source, and what only the performance data knows.
ADDED = {
    "requests": {"external_id", "source_line", "session_id", "turn"},
    "evidence": {"correction"},
}


@pytest.mark.parametrize("name", sorted(result.TABLES))
def test_the_engine_hands_out_the_columns_that_are_declared(name: str) -> None:
    given = {STORED_AS.get(column, column) for column in result.TABLES[name]}
    declared = set(RESULT_TABLES[name].column_names)
    assert given == declared - ADDED.get(name, set())


@pytest.mark.parametrize(
    ("table", "column", "names"),
    [
        ("requests", "status", result.STATUS_NAMES),
        ("requests", "reason", result.REASON_NAMES),
        ("handoffs", "outcome", result.OUTCOME_NAMES),
        ("admissions", "kind", result.KIND_NAMES),
        ("chunks", "kind", result.KIND_NAMES),
        ("evidence", "role", result.ROLE_NAMES),
        ("evidence", "phase", result.PHASE_NAMES),
        ("evidence", "source", result.SOURCE_NAMES),
    ],
)
def test_codes_mean_the_same_on_both_sides(table: str, column: str, names: tuple[str, ...]) -> None:
    assert RESULT_TABLES[table].column(column).values == names


def test_the_console_script_is_ours() -> None:
    (script,) = entry_points(group="console_scripts", name="tracemill")
    assert script.value == "pipelines.cli:main"


def test_one_workspace_file_and_no_other_dagster_settings() -> None:
    workspace = yaml.safe_load((ROOT / "workspace.yaml").read_text())
    (entry,) = workspace["load_from"]
    assert entry["python_module"]["module_name"] == "pipelines.definitions"
    # Either block would win over workspace.yaml, silently.
    assert not {"dagster", "dg"} & set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"])


def test_ci_runs_the_test_command_of_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert "set -euo pipefail" in script and script.rstrip().endswith("make test")
    assert "make test" in (ROOT / "README.md").read_text()


def tracked() -> list[Path]:
    """Text files of the repository."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git clone")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [p for p in paths if p.is_file() and p.suffix not in {".png", ".parquet", ".gz"}]


def test_the_top_level_is_what_it_is_meant_to_be() -> None:
    allowed = {
        "pyproject.toml", "pipelines", "sim", "assets", "perf_db", "tests", "workspace.yaml", "README.md", "LICENSE",
        "Makefile", ".ci", "baselines", "benchmarks", "docs", "examples", "THIRD_PARTY_NOTICES.md", ".gitignore",
    }  # fmt: skip
    assert {path.relative_to(ROOT).parts[0] for path in tracked()} <= allowed


def test_nothing_points_outside_the_repository() -> None:
    # Folders of somebody's machine, and relative paths that climb out of the clone.
    outside = re.compile(r"(?<![\w./:-])/(?:home|root|Users|mnt|work)/\w|\.\./shared\b")
    wrong = []
    for path in tracked():
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if outside.search(line):
                wrong.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert not wrong, "\n".join(wrong)


def test_links_between_pages_lead_somewhere() -> None:
    wrong = []
    for page in [path for path in tracked() if path.suffix == ".md"]:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            if "://" not in target and not target.startswith("data:") and not (page.parent / target).exists():
                wrong.append(f"{page.relative_to(ROOT)}: {target}")
    assert not wrong, "\n".join(wrong)
