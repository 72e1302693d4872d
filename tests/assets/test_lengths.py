"""Lengths from distributions, what conversations make of them, and arrivals by the time of day."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from assets import synthetic
from assets.lengths import draw
from sim.config import ConfigError, load_run_config
from sim.config.lengths import Empirical, LogNormal, Normal, Uniform, UniformRange

N = 40_000
UNIFORM = Uniform(type="uniform", min=10, max=13)
RANGE = UniformRange(type="uniform_range", tokens=1000)
NORMAL = Normal(type="normal", mean=500, std=50, min=400)
LOG_NORMAL = LogNormal(type="log_normal", median=300, sigma=1.2, max=20_000)
EMPIRICAL = Empirical(type="empirical", tokens=[5, 5, 5, 90])
EVERY = [UNIFORM, RANGE, NORMAL, LOG_NORMAL, EMPIRICAL]


@pytest.mark.parametrize("lengths", EVERY, ids=lambda each: each.type)
def test_a_request_does_not_depend_on_how_many_follow(lengths: Any) -> None:
    many = draw(lengths, 1000, 7, "input")
    assert many[:10].tolist() == draw(lengths, 10, 7, "input").tolist()
    assert many.tolist() != draw(lengths, 1000, 8, "input").tolist()
    assert many.tolist() != draw(lengths, 1000, 7, "output").tolist()
    assert many.min() >= 1


def test_their_shapes() -> None:
    uniform, span, normal, log_normal, empirical = (draw(each, N, 1, "input") for each in EVERY)
    counts = np.unique(uniform, return_counts=True)
    assert counts[0].tolist() == [10, 11, 12, 13]
    assert abs(counts[1] / N - 0.25).max() < 0.01
    assert (span.min(), span.max()) == (800, 1000)
    assert abs(span.mean() - 900) < 1
    assert normal.min() == 400
    assert abs(normal.mean() - 500) < 3
    assert abs(np.median(log_normal) - 300) < 8
    assert abs(np.log(log_normal).std() - 1.2) < 0.05
    assert log_normal.max() == 20_000
    assert abs((empirical == 90).mean() - 0.25) < 0.01


def test_a_number_is_itself() -> None:
    assert draw(7, 3, 1, "input").tolist() == [7, 7, 7]


def made(ratio: float, prompts: Any, outputs: Any = 8, block: int = 16) -> synthetic.Columns:
    return synthetic.requests(
        200,
        input_tokens=prompts,
        output_tokens=outputs,
        shared_prefix_ratio=ratio,
        prefix_groups=3 if ratio else 0,
        block_tokens=block,
        seed=5,
    )


def prefixes(columns: synthetic.Columns) -> list[list[int]]:
    assert columns.hash_offsets is not None
    assert columns.hash_ids is not None
    at = columns.hash_offsets.tolist()
    return [columns.hash_ids[a:b].tolist() for a, b in pairwise(at)]


def test_prefixes_are_a_share_of_each_prompt_and_common_to_a_group() -> None:
    columns = made(0.5, LOG_NORMAL)
    blocks = -(-columns.prompt_tokens // 16)
    ids = prefixes(columns)
    assert [len(each) for each in ids] == np.floor(blocks * 0.5 + 0.5).astype(int).tolist()
    group = synthetic.groups(5, 200, 3)
    for a in range(0, 200, 7):
        for b in range(200):
            short = min(len(ids[a]), len(ids[b]))
            same = ids[a][:short] == ids[b][:short]
            assert short == 0 or same == (group[a] == group[b])


def test_nothing_shared_is_known_and_not_unknown() -> None:
    columns = made(0, UNIFORM)
    assert columns.hash_ids is not None
    assert len(columns.hash_ids) == 0


def conversations(new: Any, output: Any, ratio: float) -> synthetic.Columns:
    return synthetic.sessions(
        12,
        turns=3,
        new_tokens=new,
        output_tokens=output,
        inter_turn_delay_ms=5,
        shared_prefix_ratio=ratio,
        prefix_groups=2 if ratio else 0,
        block_tokens=4,
        seed=3,
    )


@pytest.mark.parametrize("ratio", [0.0, 0.6])
def test_a_turn_repeats_the_conversation_so_far(ratio: float) -> None:
    """Rule WL-7, with lengths of their own."""
    columns = conversations(Uniform(type="uniform", min=5, max=40), Uniform(type="uniform", min=1, max=9), ratio)
    prompts, outputs = columns.prompt_tokens.reshape(12, 3), columns.output_tokens.reshape(12, 3)
    assert columns.hashed_tokens is not None
    assert (columns.hashed_tokens == columns.prompt_tokens + columns.output_tokens).all()
    assert (prompts[:, 1:] > (prompts + outputs)[:, :-1]).all()
    ids = prefixes(columns)
    for session in range(12):
        first, second, third = ids[3 * session : 3 * session + 3]
        assert third[: len(second)] == second
        assert second[: len(first)] == first
    group = synthetic.groups(3, 12, 2) if ratio else np.arange(12)
    for a in range(12):
        for b in range(a):
            same = 0
            while same < min(len(ids[3 * a]), len(ids[3 * b])) and ids[3 * a][same] == ids[3 * b][same]:
                same += 1
            allowed = [
                min(int(np.floor(-(-int(prompts[s, 0]) // 4) * ratio + 0.5)), int(prompts[s, 0]) // 4) for s in (a, b)
            ]
            assert same == (min(allowed) if group[a] == group[b] else 0)


def test_drawn_and_plain_lengths_share_alike() -> None:
    """A distribution that has only one value says the same as the number, in blocks of another size."""
    one, other = conversations(Uniform(type="uniform", min=21, max=21), 3, 0.6), conversations(21, 3, 0.6)
    assert one.prompt_tokens.tolist() == other.prompt_tokens.tolist()
    assert one.hashed_tokens is not None
    assert other.hashed_tokens is not None
    assert one.hashed_tokens.tolist() == other.hashed_tokens.tolist()


def config(source: str, load: str = "{type: burst}") -> Any:
    values = {"engine": {"workers": {"aggregated": {"timing": {"type": "polynomial"}}}}}
    return load_run_config(values, overrides=[f"traffic={{source: {source}, load: {load}, stop: {{requests: 4}}}}"])


def test_lengths_in_the_configuration() -> None:
    found = config("{type: synthetic, input_tokens: {type: normal, mean: 100, std: 5}, output_tokens: 0x10}")
    assert found.traffic.source.input_tokens == Normal(type="normal", mean=100, std=5)
    assert found.traffic.source.output_tokens == 16
    assert found.canonical()["traffic"]["source"]["input_tokens"]["mean"] == 100


@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        ("0", "traffic.source.input_tokens=0: must be greater than 0"),
        ("many", "traffic.source.input_tokens='many': write a whole number"),
        ("{type: normal, mean: 5}", "traffic.source.input_tokens.std: required"),
        ("{type: normal, mean: 5, std: 1, sdt: 2}", "sdt=2: unknown field; did you mean std"),
        ("{type: pareto}", "traffic.source.input_tokens.type='pareto': not one of the allowed values"),
        ("{type: uniform, min: 5, max: 4}", "min=5 is above max=4"),
        ("{type: empirical, tokens: []}", "at least 1 item"),
    ],
)
def test_bad_lengths(lengths: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        config(f"{{type: synthetic, input_tokens: {lengths}}}")
    assert said in str(error.value)


def test_diurnal_load_swings_and_keeps_its_mean() -> None:
    times = synthetic.diurnal_arrivals(N, 40.0, 0.8, 100.0, 3) / 1e9
    assert times[0] == 0
    assert (np.diff(times) >= 0).all()
    assert abs(N / times[-1] - 40) < 1
    phase = times[times < 900] % 100
    trough, peak = ((phase < 10) | (phase >= 90)).sum(), ((phase >= 40) & (phase < 60)).sum()
    assert 6 < peak / trough < 11, "mean over the top and bottom fifth: 1.75 against 0.25"
    assert synthetic.diurnal_arrivals(50, 40.0, 0.8, 100.0, 3).tolist() == (times[:50] * 1e9).round().tolist()


def test_diurnal_without_a_swing_is_poisson() -> None:
    flat, poisson = synthetic.diurnal_arrivals(1000, 5.0, 0.0, 60.0, 3), synthetic.poisson_arrivals(1000, 5.0, 3)
    assert abs(flat - poisson).max() < 2_000


def test_diurnal_in_the_configuration() -> None:
    assert config("{type: synthetic}", "{type: diurnal, requests_per_second: 5}").traffic.load.amplitude == 0.5
    with pytest.raises(ConfigError, match="requests_per_second: required for load diurnal"):
        config("{type: synthetic}", "{type: diurnal}")
