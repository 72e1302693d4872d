"""`--set path.to.field=value`: YAML on the right, a known field on the left."""

from __future__ import annotations

import pytest

from sim.config import ConfigError, load_run_config

MINIMAL = {"engine": {"workers": {"aggregated": {"timing": {"type": "polynomial"}}}}}
WORKER = "engine.workers.aggregated"


def test_values_are_yaml_and_later_ones_win() -> None:
    config = load_run_config(
        MINIMAL,
        overrides=[
            "seed=1",
            "seed=2",
            "name=x",
            f"{WORKER}.scheduler.chunked_prefill=false",
            f"{WORKER}.timing={{type: fixed, prefill_ms: 1.5, decode_ms: 2}}",
            f"{WORKER}.parallelism.replicas=3",
        ],
    )
    assert (config.seed, config.name) == (2, "x")
    spec = config.engine_spec()
    assert (spec.chunked_prefill, spec.workers, spec.timing.prefill_ms) == (False, 3, 1.5)  # type: ignore[union-attr]


def test_one_number_of_the_default_traffic_can_be_changed() -> None:
    assert load_run_config(MINIMAL, overrides=["traffic.load.concurrency=5"]).traffic.load.concurrency == 5  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("engine.workrs.aggregated.x=1", "--set engine.workrs.aggregated.x=1: no such field; did you mean workers?"),
        ("engine.workers.aggregated.kv_cache.size=1", "--set engine.workers.aggregated.kv_cache.size=1: no such field"),
        (f"{WORKER}.scheduler.max_sequence=1", "max_sequence=1: no such field; did you mean max_sequences?"),
        ("engine.kv_transfer.bandwith=3", "bandwith=3: no such field; did you mean bandwidth_gb_per_second?"),
        ("engine.router.policy=kv_aware", "no such field; did you mean router.policy (at the top level)?"),
        ("engine.scheduler.max_sequences=4", f"did you mean {WORKER}.scheduler.max_sequences?"),
        ("seed", "--set seed: write path.to.field=value"),
        ("=1", "--set =1: write path.to.field=value"),
        ("engine..model=1", "write path.to.field=value"),
        ("traffic.load.type.x=1", "--set traffic.load.type.x: traffic.load.type is a value, not a section"),
        ("seed=[1", "--set seed='[1': not readable as YAML"),
        ("seed=one", "seed='one': write a whole number"),
        ("seed=", "seed=None: write a whole number"),
    ],
)
def test_overrides_that_cannot_be(override: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_run_config(MINIMAL, overrides=[override])
    assert said in str(error.value)
