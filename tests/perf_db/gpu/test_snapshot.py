"""Tuned snapshots: which factor which pass gets, and the file that keeps them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.forward_jsonl import Observation, RankWork
from perf_db.gpu.snapshot import (
    Corrections,
    Options,
    Snapshot,
    Store,
    kind_of,
    leading_rank,
    load_snapshot,
    tune,
)

SAMPLE = Path(__file__).parent / "corrections.json"


def prefill(tokens: int) -> RankWork:
    return RankWork(1, tokens)


def test_a_scripted_run_gives_every_factor_bit_for_bit() -> None:
    """Two option sets, each after every observation: what the stores answer to eleven queries."""
    said = json.loads(SAMPLE.read_text())
    for run in said["runs"]:
        kept = Corrections(Options(**run["options"]))
        for step in run["steps"]:
            kept.observe(RankWork(*step["observation"]), step["native_ms"], step["observed_ms"])
            assert [kept.factor(RankWork(*q)) for q in said["queries"]] == step["factors"]


@pytest.mark.parametrize(
    ("work", "kind"),
    [
        (RankWork(1, 5, 0, 0, 0), "prefill"),
        (RankWork(1, 0, 5, 2, 9), "decode"),  # cached to the end: only the decodes compute
        (RankWork(0, 0, 0, 2, 9), "decode"),
        (RankWork(1, 5, 0, 2, 9), "mixed"),
        (RankWork(), None),
    ],
)
def test_4_2_the_kind_of_a_pass(work: RankWork, kind: str | None) -> None:
    assert kind_of(work) == kind


def test_4_2_the_rank_with_the_largest_coordinates_decides() -> None:
    small, large = RankWork(1, 900), RankWork(0, 0, 0, 4, 4_000)
    assert leading_rank([small, large]) is large


def test_4_2_a_store_corrects_once_it_has_seen_enough_and_only_where_it_has_looked() -> None:
    kept = Corrections(Options(min_observations=3))
    for tokens, ratio in ((100, 1.2), (110, 1.4), (5_000, 0.9)):
        assert kept.factor(prefill(100)) == 1.0
        assert kept.observe(prefill(tokens), 10.0, 10.0 * ratio)
    assert kept.factor(prefill(511)) == pytest.approx(1.3)  # the same sixteenth of 8,192
    assert kept.factor(prefill(512)) == 1.0
    assert kept.factor(prefill(9_000)) == 1.0
    assert not kept.observe(prefill(8_193), 10.0, 11.0)
    assert kept.observe(prefill(8_192), 10.0, 11.0)  # the upper end belongs to the last bin
    assert kept.factor(RankWork(0, 0, 0, 1, 100)) == 1.0  # every kind for itself


def test_4_2_one_observation_may_not_claim_more_than_its_bounds() -> None:
    kept = Corrections(Options(min_observations=1))
    kept.observe(prefill(1), 1.0, 100.0)
    kept.observe(prefill(8_000), 1.0, 0.01)
    assert (kept.factor(prefill(1)), kept.factor(prefill(8_000))) == (2.0, 0.5)
    free = Corrections(Options(1, 16, None, None))
    free.observe(prefill(1), 1.0, 100.0)
    assert free.factor(prefill(1)) == 100.0


def test_4_2_a_full_store_gives_up_the_oldest_of_its_fullest_bin() -> None:
    store = Store("prefill", Options())
    store.add((8_000,), 1.5)
    for i in range(64):
        store.add((i,), 1.0 + i / 1_000)
    assert len(store.entries) == 64
    assert store.entries[0][1] == 1.5  # the lone one stays, the first of the others went
    assert store.entries[1][1] == 1.001


def test_4_2_factors_as_arrays_are_those_of_single_queries() -> None:
    rng, kept = np.random.default_rng(3), Corrections(Options(min_observations=2))
    for _ in range(60):
        work = RankWork(1, int(rng.integers(1, 8_000)), 0, int(rng.integers(0, 3)), 0)
        work = RankWork(1, work.sum_prefill_tokens, 0, work.num_decode_requests, 90_000 * work.num_decode_requests)
        kept.observe(work, 1.0, float(rng.uniform(0.6, 1.8)))
    arrays = kept.arrays()
    for tokens in (5, 700, 4_000, 8_192):
        at = min(tokens * 16 // 8_192, 15)
        want = kept.factor(prefill(tokens))
        assert want == (1.0 if np.isnan(arrays["factor_prefill"][at]) else arrays["factor_prefill"][at])
    assert arrays["factor_mixed"].shape == (4, 4) and arrays["factor_ranges"].shape == (3, 2)


def snapshot() -> Snapshot:
    kept = Corrections(Options(min_observations=1))
    kept.observe(prefill(100), 10.0, 15.0)
    return Snapshot({"model": "m", "tp": 2, "native": "d"}, kept, {"h_mixL": 0.4}, {"files": {"a": "b"}})


def test_a_snapshot_is_one_file_and_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    snapshot().save(path)
    assert set(json.loads(path.read_text())) == {"format", "identity", "corrections", "host_constants", "provenance"}
    back = load_snapshot(path, {"model": "m", "tp": 2, "native": "d"})
    assert back.corrections.factor(prefill(100)) == 1.5
    assert (back.host_constants, back.provenance) == ({"h_mixL": 0.4}, {"files": {"a": "b"}})
    back.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


def test_a_snapshot_of_another_deployment_is_refused(tmp_path: Path) -> None:
    snapshot().save(tmp_path / "s.json")
    with pytest.raises(PerfDataError, match="tuned for another deployment: tp is 2 there, 4 here"):
        load_snapshot(tmp_path / "s.json", {"model": "m", "tp": 4, "native": "d"})


def corrected(stores: Any, **options: Any) -> dict[str, Any]:
    return {"corrections": {"options": options, "stores": stores}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("{", "is no snapshot: not JSON"),
        ({"identity": None}, "no section identity"),
        ({"format": 9}, "format 9; this version reads 1"),
        ({"corrections": {"options": {"x": 1}, "stores": {}}}, "corrections.options.x is no option"),
        ({"corrections": {"options": {"bucket_count": 5}, "stores": {}}}, "bucket_count=5: a square number"),
        (
            {"corrections": {"options": {}, "stores": {"prefill": [{"bin": 3, "ratio": 1.0, "at": [5]}]}}},
            "is no entry of its bin",
        ),
        ({"host_constants": {"a": None}}, "host_constants.a=None: a finite number is due"),
        ({"host_constants": {"a": "zz"}}, "host_constants.a='zz': a finite number is due"),
        ({"host_constants": {"a": True}}, "host_constants.a=True: a finite number is due"),
        ({"host_constants": {"a": 10**400}}, "host_constants.a=1000"),
        ({"host_constants": {"a": float("nan")}}, "host_constants.a=nan: a finite number is due"),
        (corrected([]), r"corrections.stores=\[\]: an object is due"),
        ({"corrections": {"options": 3, "stores": {}}}, "corrections.options=3: an object is due"),
        ({"corrections": {"stores": {}}}, "corrections.options=None: an object is due"),
        (corrected({}, min_observations="5"), "options.min_observations='5': a whole number is due"),
        (corrected({}, bucket_count=16.0), "options.bucket_count=16.0: a whole number is due"),
        (corrected({}, max_slower_correction_factor="x"), "max_slower_correction_factor='x': a finite number is due"),
        (corrected({"sideways": []}), "corrections.stores.sideways is no store"),
        (corrected({"prefill": {}}), r"corrections.stores.prefill=\{\}: a list is due"),
        (corrected({"prefill": [3]}), r"corrections.stores.prefill\[0\]=3: an object with bin"),
        (corrected({"prefill": [{"ratio": 1.0, "at": [5]}]}), r"prefill\[0\].bin=None: a whole number"),
        (corrected({"prefill": [{"bin": float("inf"), "ratio": 1.0, "at": [5]}]}), r"prefill\[0\].bin=inf"),
        (corrected({"prefill": [{"bin": 0, "ratio": -1.0, "at": [5]}]}), r"prefill\[0\].ratio=-1.0: a number above 0"),
        (corrected({"prefill": [{"bin": 0, "ratio": 1.0, "at": "5"}]}), r"prefill\[0\].at='5': a list of whole"),
        (corrected({"prefill": [{"bin": 0, "ratio": 1.0, "at": [5, 5]}]}), "is no entry of its bin"),
    ],
)
def test_a_file_that_is_no_snapshot_is_named(tmp_path: Path, change: Any, said: str) -> None:
    path = tmp_path / "s.json"
    snapshot().save(path)
    path.write_text(change if isinstance(change, str) else json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(PerfDataError, match=said) as caught:
        load_snapshot(path)
    assert caught.value.reason == "bad_file" and str(path) in str(caught.value)
    with pytest.raises(PerfDataError, match="No such file"):
        load_snapshot(tmp_path / "none.json")


def test_tuning_counts_what_it_used_and_what_it_could_not() -> None:
    kept = Corrections()
    seen = [Observation((prefill(100),), 12.0), Observation((prefill(9_000),), 12.0), Observation((prefill(7),), 1.0)]
    counts = tune(kept, seen, lambda work: float("nan") if work.sum_prefill_tokens == 7 else 10.0)
    assert counts == {"used": 1, "outside": 1, "unpriced": 1}
    assert kept.stores["prefill"].entries[0][1] == 1.2
