"""Speculative decoding in the configuration: 8.1 and 13 of the rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assets.replay_run import unproven
from sim.config import ConfigError, load_run_config
from sim.spec import Speculation

WORKER = "engine.workers.aggregated"
NGRAM = "engine.speculation={kind: ngram, num_speculative_tokens: 2, acceptance_rates: [0.8, 0.5]}"
TABLE = (
    "{type: table, prefill_isl: [1, 2], prefill_ttft_ms: [1, 2], decode_active_kv_tokens: [1, 2], "
    "decode_context_length: [1, 2], decode_itl: [[1, 2], [1, 2]]}"
)


def config(*overrides: str, base: Path | None = None, **top: Any):  # type: ignore[no-untyped-def]
    values = {"engine": {"workers": {"aggregated": {"timing": {"type": "polynomial"}}}}, **top}
    return load_run_config(values, overrides=overrides, source="c", base=base)


def refused(*overrides: str, base: Path | None = None) -> str:
    with pytest.raises(ConfigError) as error:
        config(*overrides, base=base)
    return str(error.value)


def drafts(text: str) -> str:
    return f"engine.speculation={{kind: ngram, num_speculative_tokens: 2, {text}}}"


def test_nothing_is_drafted_unless_asked_for() -> None:
    for overrides in ((), ("engine.nextn=0",), ("engine.nextn=0", "engine.nextn_accepted=0"), ("engine.nextn=null",)):
        assert config(*overrides).engine_spec() == config().engine_spec()
        assert config(*overrides).canonical() == config().canonical()
    assert config().engine_spec().speculation is None


@pytest.mark.parametrize(
    ("nextn", "accepted", "rates"), [(3, 2.25, (1, 1, 0.25)), (2, 1.5, (1, 0.5)), (1, 0, (0,)), (5, 5, (1,) * 5)]
)
def test_8_1_accepted_drafts_per_round_become_conditional_rates(nextn: int, accepted: float, rates: tuple) -> None:
    spec = config(f"engine.nextn={nextn}", f"engine.nextn_accepted={accepted}").engine_spec()
    assert spec.speculation == Speculation("mtp", nextn, rates)
    assert spec.async_scheduling  # MTP keeps the default
    assert config("engine.nextn=1", "engine.nextn_accepted=1", "seed=7").engine_spec().speculation.seed == 7


def test_8_1_a_drafter_with_its_rates() -> None:
    spec = config(NGRAM).engine_spec()
    assert spec.speculation == Speculation("ngram", 2, (0.8, 0.5))
    more = "acceptance_rates: [1, 0], seed: 18446744073709551615, trigger_rate: 0.5, max_batch_size: 8"
    assert config(drafts(more)).engine_spec().speculation == Speculation("ngram", 2, (1.0, 0.0), 2**64 - 1, 0.5, 8)
    eagle = "engine.speculation={kind: eagle, num_speculative_tokens: 1, acceptance_rates: [0.7]}"
    assert config(eagle, "engine.backend=trtllm").engine_spec().speculation == Speculation("eagle", 1, (0.7,))


def test_two_spellings_of_one_thing_are_one_run() -> None:
    mtp = "engine.speculation={kind: mtp, num_speculative_tokens: 2, acceptance_rates: [1, 0.5]}"
    assert config(mtp).canonical() == config("engine.nextn=2", "engine.nextn_accepted=1.5").canonical()
    assert config(mtp).canonical() != config().canonical()


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("engine.nextn=2",), "engine.nextn_accepted: required with engine.nextn=2"),
        (("engine.nextn_accepted=1.5",), "engine.nextn_accepted=1.5: needs engine.nextn of 1 or more"),
        (("engine.nextn=0", "engine.nextn_accepted=1.5"), "engine.nextn_accepted=1.5: needs engine.nextn"),
        (("engine.nextn=2", "engine.nextn_accepted=2.5"), "engine.nextn_accepted=2.5: cannot exceed engine.nextn=2"),
        (("engine.nextn=2", "engine.nextn_accepted=-1"), "engine.nextn_accepted=-1"),
        (("engine.nextn=2", "engine.nextn_accepted=.nan"), "engine.nextn_accepted=nan"),
        (("engine.nextn=6", "engine.nextn_accepted=1"), "engine.nextn=6"),
        (("engine.nextn=-1", "engine.nextn_accepted=1"), "engine.nextn=-1"),
        (("engine.nextn=true", "engine.nextn_accepted=1"), "engine.nextn=True: write a whole number"),
        (("engine.nextn=1.5", "engine.nextn_accepted=1"), "engine.nextn=1.5"),
        (("engine.nextn=1", "engine.nextn_accepted=1", NGRAM), "engine.nextn=1: cannot be combined with"),
        ((NGRAM, f"{WORKER}.speedups.decode_speedup_ratio=2"), "decode_speedup_ratio=2: must be 1 with speculative"),
        (
            ("engine.nextn=1", "engine.nextn_accepted=1", f"{WORKER}.speedups.decode_speedup_ratio=0"),
            "decode_speedup_ratio=0: must be 1 with speculative",
        ),
        ((NGRAM, "engine.backend=trtllm"), "engine.speculation.kind='ngram': goes with backend: vllm"),
        ((NGRAM, f"{WORKER}.timing={TABLE}"), "timing.type='table': measured without drafts"),
        ((NGRAM, "engine.estimation_mode=fpm_interpolation"), "whole-forward data holds no passes with drafts"),
        (
            ("engine.nextn=1", "engine.nextn_accepted=1", "engine.estimation_mode=fpm_regression"),
            "whole-forward data holds no passes with drafts",
        ),
        ((drafts("acceptance_rates: [1, 1], tree: true"),), "engine.speculation.tree=True: unknown field"),
        (("engine.speculation={kind: medusa, num_speculative_tokens: 1, acceptance_rates: [1]}",), "speculation.kind="),
        (("engine.speculation={num_speculative_tokens: 1, acceptance_rates: [1]}",), "speculation.kind: required"),
        (("engine.speculation={kind: ngram, acceptance_rates: [1]}",), "num_speculative_tokens: required"),
        ((drafts("acceptance_rates: [1]"),), "acceptance_rates has 1 rates; it needs one per draft, 2"),
        ((drafts("trigger_rate: 1"),), "needs either acceptance_rates or measured"),
        ((drafts("acceptance_rates: [1, 1], measured: {per_position: [1, 1]}"),), "needs either acceptance_rates or"),
        (
            ("engine.speculation={kind: mtp, num_speculative_tokens: 1, acceptance_rates: [1], trigger_rate: 0.5}",),
            "trigger_rate is for kind: ngram",
        ),
    ],
)  # fmt: skip
def test_13_what_does_not_go_together_is_named(overrides: tuple[str, ...], said: str) -> None:
    assert said in refused(*overrides)


@pytest.mark.parametrize("count", ["0", "6", "true", "2.5", "-1", "'2'"])
def test_13_how_many_drafts(count: str) -> None:
    text = f"engine.speculation={{kind: ngram, num_speculative_tokens: {count}, acceptance_rates: [1]}}"
    assert "engine.speculation.num_speculative_tokens" in refused(text)


@pytest.mark.parametrize("rate", [".nan", "-0.1", "1.1", "true", ".inf", "'1'"])
def test_13_rates_are_shares(rate: str) -> None:
    assert "engine.speculation.acceptance_rates.1" in refused(drafts(f"acceptance_rates: [1, {rate}]"))


@pytest.mark.parametrize("seed", ["-1", "18446744073709551616", "true", "1.5"])
def test_13_seeds_have_64_bits(seed: str) -> None:
    assert "engine.speculation.seed" in refused(drafts(f"acceptance_rates: [1, 1], seed: {seed}"))


@pytest.mark.parametrize("profile", ["vllm", "parity"])
@pytest.mark.parametrize("timing", ["{type: polynomial}", "{type: fixed, prefill_ms: 1, decode_ms: 1}"])
def test_6_3_ngram_turns_async_scheduling_off_and_rejects_an_explicit_true(profile: str, timing: str) -> None:
    overrides = (NGRAM, f"profile={profile}", f"{WORKER}.timing={timing}")
    for unset in ("", f"{WORKER}.scheduler.async_scheduling=null", f"{WORKER}.scheduler.async_scheduling=false"):
        assert config(*overrides, *filter(None, [unset])).engine_spec().async_scheduling is False
    said = refused(*overrides, f"{WORKER}.scheduler.async_scheduling=true")
    assert "async_scheduling=True: vLLM turns it off with ngram drafts" in said


def test_6_3_an_explicit_true_is_refused_whatever_the_timing() -> None:
    """With a timing that is refused itself, too: nothing hides the rule."""
    said = refused(NGRAM, f"{WORKER}.timing={{type: default}}", f"{WORKER}.scheduler.async_scheduling=true")
    assert "async_scheduling=True: vLLM turns it off" in said


METRICS = """# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 600.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 400.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.7e+09
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 500.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="0"} 300.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 400.0
"""


def test_acceptance_that_was_measured(tmp_path: Path) -> None:
    """Shares and counts are of all rounds; a rate is of those that came so far."""
    shares = config(drafts("measured: {per_position: [0.8, 0.4, 0.1]}")).engine_spec().speculation
    assert shares.rates == (0.8, 0.5)
    counts = config(drafts("measured: {drafts: 1000, accepted_per_position: [800, 400]}")).engine_spec().speculation
    assert counts == shares
    assert config(drafts("measured: {per_position: [0, 0]}")).engine_spec().speculation.rates == (0.0, 0.0)
    (tmp_path / "metrics.txt").write_text(METRICS)
    (tmp_path / "shares.json").write_text(json.dumps({"per_position": [0.8, 0.4]}))
    for name in ("metrics.txt", "shares.json"):
        told = config(drafts(f"measured: {{path: {name}}}"), base=tmp_path)
        assert told.engine_spec().speculation == shares
        assert told.canonical() == config(drafts("acceptance_rates: [0.8, 0.5]")).canonical()


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        ("{per_position: [0.5, 0.6]}", "position 1 has 0.6 after 0.5: accepted drafts cannot become more"),
        ("{drafts: 10, accepted_per_position: [11, 5]}", "position 0 has 11 after 10"),
        ("{per_position: [0.5]}", "measured has 1 positions; 2 drafts need as many"),
        ("{drafts: 10}", "give per_position, or drafts with accepted_per_position, or path"),
        ("{}", "give per_position, or drafts with accepted_per_position, or path"),
        ("{per_position: [1, 1], drafts: 10, accepted_per_position: [1, 1]}", "give per_position, or drafts with"),
        ("{path: nowhere.json}", "nowhere.json: cannot be read: No such file or directory"),
        ("{path: empty.txt}", "empty.txt: neither JSON nor a metrics page with vllm:spec_decode_num_drafts"),
        ("{path: broken.json}", "broken.json: not JSON"),
        ("{path: other.json}", "other.json: rates: unknown field; use per_position"),
        ("{path: idle.txt}", "idle.txt: no round was counted"),
        ("{path: gap.txt}", "gap.txt: positions [0, 2] of accepted tokens are not 0, 1, 2"),
        ("{path: empty.txt, drafts: 3}", "give either path or the figures, not both: drafts"),
    ],
)  # fmt: skip
def test_acceptance_that_cannot_be(tmp_path: Path, measured: str, said: str) -> None:
    (tmp_path / "empty.txt").write_text("# HELP nothing\n")
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "other.json").write_text('{"rates": [1]}')
    (tmp_path / "idle.txt").write_text(METRICS.replace("600.0", "0.0").replace("400.0", "0.0"))
    (tmp_path / "gap.txt").write_text(METRICS.replace('position="1"', 'position="2"'))
    assert said in refused(drafts(f"measured: {measured}"), base=tmp_path)


def test_what_no_recorded_engine_confirms_is_said() -> None:
    more = "acceptance_rates: [1, 0], trigger_rate: 0.5, max_batch_size: 8"
    assert unproven(config(drafts(more)).engine_spec()) == ("ngram_trigger_rate", "drafts_off_above_a_batch")
    assert unproven(config(NGRAM).engine_spec()) == ()
    policy = ("engine.backend=trtllm", f"{WORKER}.scheduler.capacity_policy=max_utilization")
    assert unproven(config(*policy).engine_spec()) == ("max_utilization",)
