"""The examination as an asset of the graph."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from assets import anomalies
from assets.desk import baselines
from assets.desk.anomalies import claims
from assets.views import open_store
from pipelines.instance import open_instance
from pipelines.materialize import Materialized, materialize
from tests.assets.desk.tamper import tamper
from tests.pipelines.conftest import root, tiny  # noqa: F401  (fixtures)


def test_a_fault_fails_the_asset_and_only_its_check(tiny: Path, root: Path) -> None:  # noqa: F811
    made = materialize(root, tiny)
    assert made.passed
    assert {name for _, name, _ in made.checks} >= set(claims())
    tamper(root, made.run_id, "UPDATE passes SET n_admitted = 0 WHERE pass_no = 0")
    with open_instance(root) as instance:
        again = dg.materialize(
            [anomalies.anomalies],
            instance=instance,
            partition_key=made.partition,
            resources={"store": open_store(root)},
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
            raise_on_error=False,
        )
    checks = again.get_asset_check_evaluations()
    assert not again.success  # an error blocks what comes after
    assert {c.check_name for c in checks if not c.passed} == {"passes_count_their_requests"}


def test_the_diff_of_a_trace_with_what_came_before(
    tiny: Path,  # noqa: F811
    root: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tiny.parent)
    dearer = "engine.workers.aggregated.timing.decode_ms=4"
    first = materialize(root, tiny)
    assert checks_of(first) == {"is_explained": True, "is_as_accepted": True}
    baselines.accept(open_store(root), first.run_id, folder=Path("baselines"), reason="first", author="me")
    assert checks_of(materialize(root, tiny, [dearer])) == {"is_explained": True, "is_as_accepted": False}
    with open_instance(root) as instance:
        event = instance.get_latest_materialization_event(dg.AssetKey("diff"))
    assert event is not None and event.asset_materialization is not None
    told = event.asset_materialization.metadata
    assert told["mechanism"].value.startswith("price: ") and "data:image/svg" in str(told["pictures"].value)


def checks_of(made: Materialized) -> dict[str, bool]:
    return {check: passed for asset, check, passed in made.checks if asset == "diff"}
