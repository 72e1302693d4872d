"""Suites are checked whole before anything runs, and name their scenarios for good."""

from __future__ import annotations

from pathlib import Path

import pytest

from assets.desk.matrix.suite import find_suite, load_suite, suite_names
from sim.config import ConfigError
from tests.assets.desk.matrix.conftest import NAMES, Place

SHIPPED = Path(__file__).parents[4] / "examples" / "scenarios"


def test_the_product_of_the_axes(place: Place) -> None:
    suite = load_suite(place.suite)
    assert [s.name for s in suite.scenarios] == NAMES
    first = suite.scenarios[0]
    assert first.places == {"traces": "few", "timing": "fast"} and first.place("engines") is None
    assert first.config.engine.workers.aggregated.timing.canonical()["decode_ms"] == 2
    assert (suite.keep, suite.about) == ("failed", "tiny")


def test_another_place_renames_nothing(place: Place) -> None:
    place.edit("tiny.yaml", "  fast:", "  none: {engine.workers.aggregated.timing: {type: polynomial}}\n  fast:")
    assert set(NAMES) < {s.name for s in load_suite(place.suite).scenarios}


def test_what_is_left_out(place: Place) -> None:
    with place.suite.open("a") as file:
        file.write("leave_out: [{traces: few, timing: slow}, {timing: fast}]\n")
    assert [s.name for s in load_suite(place.suite).scenarios] == ["tiny.more.slow"]


def test_some_of_them(place: Place) -> None:
    suite = load_suite(place.suite)
    assert [s.name for s in suite.chosen(["few.*"])] == NAMES[:2]
    assert [s.name for s in suite.chosen(["tiny.*.slow", "few.slow"])] == [NAMES[1], NAMES[3]]
    with pytest.raises(ConfigError, match=r"no scenario fits 'x\*'; there are: tiny.few.fast, "):
        suite.chosen(["x*"])


def test_every_fault_in_one_message(place: Place) -> None:
    place.suite.write_text(
        "kep: all\nkeep: some\ncommon: {name: x}\ntraces: {A b: {}, ok: 3}\ntiming: {}\n"
        "leave_out: [{loads: x}, {traces: nowhere}]\n"
    )
    with pytest.raises(ConfigError) as error:
        load_suite(place.suite)
    assert str(error.value).splitlines() == [
        f"{place.suite}: 8 problem(s)",
        "  kep='all': unknown field; did you mean keep?",
        "  keep='some': not one of the allowed values; use all, failed, none",
        "  common.name: remove it; scenarios are named after their places",
        "  traces.A b: use small letters, digits, dashes and underscores",
        "  traces.ok=3: expected a part of a run configuration, such as {seed: 7}",
        "  timing: expected names, each with a part of a run configuration",
        "  leave_out[0].loads: no such axis; there are traces, timing",
        "  leave_out[1].traces='nowhere': no such place; there are A b, ok",
    ]


def test_faults_of_a_configuration_carry_the_name_of_the_scenario(place: Place) -> None:
    place.edit("tiny.yaml", "decode_ms: 2}", "decode_ms: -2}")
    with pytest.raises(ConfigError) as error:
        load_suite(place.suite)
    first, *rest = str(error.value).splitlines()
    assert first == f"{place.suite}: 2 problem(s)"
    assert rest[0].startswith("  tiny.few.fast: engine.workers.aggregated.timing.decode_ms=-2: ")
    assert rest[1].startswith("  tiny.more.fast: ")


def test_two_axes_must_not_contradict_each_other(place: Place) -> None:
    place.edit("tiny.yaml", "  slow: {", "  slow: {seed: 1, ")
    place.edit("tiny.yaml", "  few:\n", "  few:\n    seed: 2\n")
    with pytest.raises(ConfigError, match=r"tiny.few.slow: seed: set by traces.few to 2 and by timing.slow to 1"):
        load_suite(place.suite)


def test_an_axis_wins_over_what_is_common(place: Place) -> None:
    place.edit("tiny.yaml", "common:\n", "common:\n  engine.workers.aggregated.timing: {type: polynomial}\n")
    assert load_suite(place.suite).scenarios[0].config.engine.workers.aggregated.timing.type == "fixed"


@pytest.mark.parametrize("text", ["[1]", "a: [", "keep: all\nkeep: none\n", "about: x\n"])
def test_what_is_no_suite(place: Place, text: str) -> None:
    place.suite.write_text(text)
    with pytest.raises(ConfigError, match=r"tiny\.yaml"):
        load_suite(place.suite)


def test_a_name_that_becomes_too_long(place: Place) -> None:
    place.edit("tiny.yaml", "  fast:", f"  {'f' * 95}:")
    with pytest.raises(ConfigError, match="use shorter places"):
        load_suite(place.suite)


def test_the_suites_that_ship_load() -> None:
    assert "default" in suite_names(SHIPPED)
    for name in suite_names(SHIPPED):
        assert load_suite(find_suite(name, SHIPPED)).scenarios
    with pytest.raises(ConfigError, match="there is: "):
        find_suite("nobody", SHIPPED)
    with pytest.raises(ConfigError, match="no such file"):
        find_suite("nobody.yaml", SHIPPED)
