"""docs/configuration.md speaks of every field that does something, and its example loads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from sim.config import RunConfig, load_run_config
from sim.config.base import Section
from sim.config.engine import ConditionalDisaggregation, Engine, KvCache, Parallelism, Scheduler, Speedups, Worker
from sim.config.host import Host, Tokenization
from sim.config.run import Router
from sim.config.speculation import Measured, Speculation
from sim.config.traffic import Stop, Synthetic, SyntheticSession, Trace, TraceTimestamps

TEXT = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
# Accepted for other people's files, or another spelling of a documented field.
UNSAID = {
    *(
        "pipeline",
        "context",
        "preset",
        "prefill_decode_interval",
        "host_offload",
        "g3_offload",
        "state_cache",
        "hardware",
    ),
    *(
        "strict_provenance",
        "decoder_replay",
        "kv_transfer",
        "afd",
        "images",
    ),
    *("paths", "nested_timestamp_basis", "optimization", "optimizer"),
    *("agentic_snapshot", "agentic_warmup", "agentic_profile"),
}


@pytest.mark.parametrize(
    "section",
    [
        RunConfig,
        Router,
        Engine,
        ConditionalDisaggregation,
        Worker,
        Parallelism,
        Scheduler,
        KvCache,
        Speculation,
        Measured,
        Speedups,
        Host,
        Tokenization,
        Stop,
        Synthetic,
        SyntheticSession,
        Trace,
        TraceTimestamps,
    ],
)
def test_every_field_is_described(section: type[Section]) -> None:
    said = set(re.findall(r"[a-z0-9_]+", TEXT))
    assert [name for name in section.model_fields if name not in said | UNSAID] == []


def test_the_example_loads() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    assert load_run_config(yaml.safe_load(example)).engine_spec().blocks == 2048


def test_the_error_shown_is_the_error_given() -> None:
    values = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)[0])
    values["engine"]["backend"] = "sglang"
    values["engine"]["workers"]["aggregated"]["kv_cache"]["block_sise"] = 16
    with pytest.raises(ValueError) as error:
        load_run_config(values, source="run.yaml")
    for line in str(error.value).splitlines():
        assert line.strip() in TEXT
