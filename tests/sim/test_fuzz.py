"""The command for many worlds: what it prints, and that it would find something."""

from __future__ import annotations

import dataclasses
import re

import pytest

import sim.engine
import sim.reference
from sim import spec
from sim.result import Outcome
from tests.sim import fuzz, worlds
from tests.sim.answers import ask
from tests.sim.shrink import shrink
from tests.sim.worlds import World, world


@pytest.mark.parametrize("family", ["mixed", "chorus"])
def test_it_closes_with_its_counts(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz.main(["--count", "30", "--seed", "7", "--family", family]) == 0
    assert capsys.readouterr().out == "30 passed, 0 failed, 0 skipped\n"


def test_a_difference_is_found_shrunk_and_printed_as_python(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An engine that forgets a nanosecond whenever somebody was preempted."""
    right = sim.engine.replay

    def wrong(spec, load, sink) -> Outcome:
        outcome = right(spec, load, sink)
        if not len(sink.table("pressure")["request"]):
            return outcome
        return dataclasses.replace(outcome, end_ns=outcome.end_ns + 1)

    monkeypatch.setattr(sim.engine, "replay", wrong)
    assert fuzz.main(["--count", "8", "--seed", "1", "--family", "squeezed"]) == 1
    said = capsys.readouterr().out
    assert re.search(r"squeezed \d: outcome: wanted {'end_ns': ", said)
    assert re.search(r"World\(\n    EngineSpec\(profile='.*, block_tokens=", said)
    assert re.search(r"\d passed, [1-8] failed, 0 skipped\n$", said)


def test_a_world_shrinks_to_what_matters() -> None:
    def preempts(asked: World) -> bool:
        answer = ask(sim.reference.replay, asked)
        return not answer.error and len(answer.tables["pressure"]["request"]) > 0

    crowd = next(w for w in (world(seed, "squeezed") for seed in range(100)) if len(w.load) > 10 and preempts(w))
    least = shrink(crowd, preempts)
    assert preempts(least)
    assert len(least.load) == 2
    assert least.spec.timing.kind == "flat"


def test_a_printed_world_is_python_for_the_same_world() -> None:
    for seed in range(40):
        asked = world(seed)
        again = eval(repr(asked), vars(worlds) | vars(spec))
        assert ask(sim.engine.replay, again).digest() == ask(sim.engine.replay, asked).digest()
