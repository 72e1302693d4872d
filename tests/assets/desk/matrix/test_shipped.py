"""The suite that ships gives what its baselines say."""

from __future__ import annotations

from pathlib import Path

import pytest

from assets.desk import baselines
from assets.desk.matrix.run import run_matrix
from assets.desk.matrix.suite import load_suite
from assets.views import open_store

ROOT = Path(__file__).parents[4]


@pytest.mark.slow
def test_the_shipped_suite_is_the_same_as_its_baselines(tmp_path: Path) -> None:
    suite = load_suite(ROOT / "examples" / "scenarios" / "default.yaml")
    assert baselines.names(ROOT / "baselines") == [s.name for s in suite.scenarios]
    outcome = run_matrix(suite, open_store(tmp_path / "w"), ROOT / "baselines", workers=2)
    differing = {row["scenario"]: row["explanation"] for row in outcome.rows if row["status"] != "same"}
    assert not differing
