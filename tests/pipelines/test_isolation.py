"""A replay loads what it needs and writes where it was told to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_after_a_replay_dagster_was_never_imported(tiny: Path, root: Path) -> None:
    code = (
        "import sys, json\n"
        "from pipelines.cli import main\n"
        f"main(['replay', {str(tiny)!r}, '-o', {str(root)!r}], standalone_mode=False)\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    loaded = {name.split(".")[0] for name in json.loads(out.splitlines()[-1])}
    assert not loaded & {"dagster", "polars", "pandas", "tqdm"}


def test_nothing_is_written_outside_the_warehouse(tiny: Path, root: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    environment = os.environ | {"HOME": str(home), "TRACEMILL_WAREHOUSE": str(root)}
    subprocess.run(
        [sys.executable, "-m", "pipelines", "replay", str(tiny)],
        env=environment | {"PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    after = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert [path for path in after - before if root not in path.parents] == []


@pytest.mark.parametrize(("given", "kept"), [(None, "0"), ("1", "1")])
def test_numpy_is_loaded_without_huge_pages_unless_they_are_asked_for(given: str | None, kept: str) -> None:
    name = "NUMPY_MADVISE_HUGEPAGE"
    environment = {key: value for key, value in os.environ.items() if key != name}
    code = f"import pipelines, os, sys; print(os.environ[{name!r}], 'numpy' in sys.modules)"
    out = subprocess.run(
        [sys.executable, "-c", code],
        env=environment | ({} if given is None else {name: given}),
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout
    assert out.split() == [kept, "False"]
