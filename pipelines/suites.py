"""Suites in Dagster: registering one as a partition, and the sensor that notices when its scenarios are out of date."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from assets.desk.matrix.plan import FAILED, plan
from assets.desk.matrix.registry import recall_suite, remember_suite
from assets.errors import INPUT_ERRORS
from assets.scenarios import SUITES
from assets.views import open_store
from pipelines.jobs import matrix_job
from pipelines.options import warehouse_root


def register_suite(instance: dg.DagsterInstance, root: Path, path: Path, baselines: Path) -> str:
    """Make a suite a partition, and remember its file and its baselines.

    Returns:
        The partition's key: the suite's name.
    """
    key = remember_suite(root, path, baselines)
    assert SUITES.name is not None
    instance.add_dynamic_partitions(SUITES.name, [key])
    return key


@dg.sensor(
    job=matrix_job,
    minimum_interval_seconds=300,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Reruns the scenarios whose trace, performance data, configuration, engine or baseline has changed.",
)
def changed_scenarios(context: dg.SensorEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
    """One run per suite with something to do; it runs what changed and nothing else.

    A scenario that failed is asked for again when an input of it changes, and not every five minutes.
    """
    root = warehouse_root(None)
    assert SUITES.name is not None
    nothing = True
    for key in context.instance.get_dynamic_partitions(SUITES.name):
        try:
            known = recall_suite(root, key)
            planned = plan(known.load(), open_store(root), known.baselines)
        except INPUT_ERRORS as error:
            context.log.error(f"suite {key}: {error}")
            continue
        changed = [p for p in planned if set(p.reasons) - {FAILED}]
        if not changed:
            continue
        nothing = False
        state = hashlib.blake2b(digest_size=8)
        for p in changed:
            # The last execution belongs to it: an input that changes back must be run again.
            last = p.last["matrix_id"] if p.last else ""
            state.update(repr((p.scenario.name, p.parts, last)).encode())
        why = sorted({reason for p in changed for reason in p.reasons})
        yield dg.RunRequest(
            run_key=f"{key}/{state.hexdigest()}",
            partition_key=key,
            tags={"tracemill/scenarios": str(len(changed)), "tracemill/because": ", ".join(why)[:250]},
        )
    if nothing:
        yield dg.SkipReason("every scenario's result stands")
