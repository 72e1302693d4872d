"""Whole-forward tables: the pair of files, who is answered, and by which curves."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.forward import (
    answering_rows,
    compile_forward,
    match,
    read_forward_table,
    sidecar_of,
    write_forward_table,
)
from perf_db.gpu.whole_roofline import WholeRoofline, deployment_of_cell
from sim.jit import entry
from sim.timing.plain_roofline import roofline_ms
from sim.timing.plain_tables import TablePricer
from sim.timing.tables import ArrayTiming
from sim.timing.tabulated import answer, pack
from tests.perf_db.gpu.forward_rows import IDENTITY, SEVEN_A, rows
from tests.perf_db.gpu.test_whole_roofline import bare_root
from tests.perf_db.gpu.tiny import MODEL


def written(tmp_path: Path, content: list[dict[str, Any]]) -> Path:
    path = tmp_path / "fpm_forward_perf.parquet"
    write_forward_table(path, content, measurement_policy="by hand")
    return path


def pricer(tmp_path: Path, content: list[dict[str, Any]]) -> TablePricer:
    table = read_forward_table(written(tmp_path, content))
    return TablePricer(ArrayTiming("forward", *compile_forward(table, "one")), "composed")


def ms(prices: TablePricer, *work: int) -> tuple[float, float]:
    got = prices.answer(*work)
    return got.prefill_ms, got.decode_ms


def refused(prices: TablePricer, *work: int) -> bool:
    return any(math.isnan(part) for part in ms(prices, *work))


def test_a_pair_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    table = read_forward_table(written(tmp_path, SEVEN_A))
    assert table.columns["latency_ms"] == [10.0, 10.0, 2.0, 4.0]
    assert table.cells == {"one": IDENTITY}
    assert not [p for p in tmp_path.iterdir() if p.suffix == ".part"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (None, "missing; fpm_forward_perf.parquet counts only with its metadata"),
        ("{", "not readable as JSON"),
        ({"row_count": 3}, "row_count is 3, the parquet file says 4; the pair does not belong together"),
        ({"parquet_sha256": "0"}, "parquet_sha256 is '0', the parquet file says"),
        ({"backend_version": "0.25.0"}, "backend_version is '0.25.0', the parquet file says '0.24.0'"),
        ({"schema_name": "other"}, "schema_name is 'other'; this version reads 'aic_fpm_forward_perf' only"),
        ({"coordinate_system": "x"}, "coordinate_system is 'x'"),
        ({"schema_version": None}, "schema_version is None"),
    ],
)
def test_a_missing_or_contradicting_sidecar_is_an_error(tmp_path: Path, change: Any, said: str) -> None:
    path = written(tmp_path, SEVEN_A)
    about = sidecar_of(path)
    if change is None:
        about.unlink()
    elif isinstance(change, str):
        about.write_text(change)
    else:
        about.write_text(json.dumps(json.loads(about.read_text()) | change))
    with pytest.raises(PerfDataError, match=said) as error:
        read_forward_table(path)
    assert error.value.reason == "bad_file"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"latency_ms": 0.0}, "row 0: latency_ms must be finite and above 0 \\(1 such row"),
        ({"latency_ms": math.nan}, "row 0: latency_ms must be finite"),
        ({"batch_size": 0}, "row 0: batch_size must be at least 1"),
        ({"total_prefill_tokens": 0}, "total_prefill_tokens must be at least 1 for prefill"),
        ({"workload_kind": "both"}, "workload_kind must be prefill or decode"),
        ({"partition_policy": "x"}, "partition_policy must be balanced_v1"),
        ({"total_prefill_tokens": 8}, "rows 0 and 1 of cell 'one' measure the same coordinates"),
        ({"tp": 2}, "row 1: cell 'one' has two identities"),
    ],
)
def test_rows_that_are_no_measurements_are_named(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(PerfDataError, match=said):
        read_forward_table(written(tmp_path, [SEVEN_A[0] | change, *SEVEN_A[1:]]))


def test_a_column_of_another_type_or_none_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, SEVEN_A)
    whole = pq.read_table(path)
    for table, said in (
        (whole.drop_columns(["tp"]), "no column tp"),
        (whole.set_column(whole.column_names.index("tp"), "tp", pa.array(["1"] * 4)), "column tp is string"),
        (whole.set_column(whole.column_names.index("tp"), "tp", pa.array([1, 1, 1, None])), "tp has 1 null"),
    ):
        pq.write_table(table, path)
        about = json.loads(sidecar_of(path).read_text())
        from perf_db.gpu.forward import _sha256

        sidecar_of(path).write_text(json.dumps(about | {"parquet_sha256": _sha256(path)}))
        with pytest.raises(PerfDataError, match=said):
            read_forward_table(path)


def test_a_deployment_is_answered_by_its_own_cell_alone(tmp_path: Path) -> None:
    other = rows([(1, 8, 0, 20.0)], [(1, 4, 3.0)], cell_id="two", tp=2)
    table = read_forward_table(written(tmp_path, [*SEVEN_A, *other]))
    assert match(table, {"model_path": "org/model", "tp": 2}) == "two"
    with pytest.raises(PerfDataError, match=r"2 cells fit .* and differ in tp; name one of them"):
        match(table, {"model_path": "org/model"})
    assert match(table, {"model_path": "org/model"}, cell="one") == "one"
    with pytest.raises(PerfDataError, match="Nearest is 'two': gemm_quant_mode is 'bfloat16', asked for 'fp8'"):
        match(table, {"tp": 2, "gemm_quant_mode": "fp8"})
    with pytest.raises(PerfDataError, match="no cell 'three'; it holds one, two"):
        match(table, {}, cell="three")


def test_3_3_prefill_takes_its_own_curve_or_lies_between_two_that_cover_the_tokens(tmp_path: Path) -> None:
    content = rows(
        [(1, 10, 0, 1.0), (1, 20, 0, 2.0), (1, 10, 100, 3.0), (1, 20, 100, 4.0), (1, 40, 200, 9.0), (2, 10, 0, 1.5)],
        [(1, 1, 1.0)],
    )
    prices = pricer(tmp_path, content)
    assert ms(prices, 1, 10, 0, 0, 0)[0] == 1.0
    assert ms(prices, 1, 15, 0, 0, 0)[0] == 1.5
    assert ms(prices, 1, 15, 50, 0, 0)[0] == pytest.approx(2.5)
    # Past KV 200 has a curve, but none that covers 15 tokens: nothing lies above 100, and nothing is extrapolated.
    assert refused(prices, 1, 15, 150, 0, 0)
    assert refused(prices, 2, 10, 50, 0, 0)  # another batch's curves do not count
    for outside in ((1, 41, 0), (1, 9, 0), (1, 10, 201)):
        assert refused(prices, *outside, 0, 0)


@pytest.mark.parametrize(("growth", "answered"), [(1.0, True), (1.04, True), (1.2, False)])
def test_3_3_a_batch_above_the_largest_counts_as_it_where_the_batch_axis_is_flat(
    tmp_path: Path, growth: float, answered: bool
) -> None:
    content = rows([(b, t, 0, t * growth ** (b - 1)) for b in (1, 2) for t in (10, 20, 30)], [(1, 1, 1.0)])
    prices = pricer(tmp_path, content)
    assert refused(prices, 5, 20, 0, 0, 0) != answered
    if answered:
        assert ms(prices, 5, 20, 0, 0, 0)[0] == pytest.approx(20 * growth)
        assert refused(prices, 5, 20, 40, 0, 0)  # past KV of twice the new tokens would need a roofline


# ---------------------------------------------------------------- 3.3, the roofline method
OWN = {"model_path": MODEL}


def limit_of(tmp_path: Path) -> WholeRoofline:
    root = bare_root(tmp_path / "data")
    return WholeRoofline(deployment_of_cell({**IDENTITY, **OWN}, root), root)


def by_roofline(
    tmp_path: Path, prefill: list[tuple[int, int, int, float]]
) -> tuple[WholeRoofline, TablePricer, tuple[Any, Any]]:
    """The roofline, and prices of a table with it: by definition, and packed for the kernel."""
    whole = limit_of(tmp_path)
    table = read_forward_table(written(tmp_path, rows(prefill, [(1, 1, 1.0)], **OWN)))
    header, arrays = compile_forward(table, "one", whole)
    assert header["prefill_method"] == "roofline"
    timing = ArrayTiming("forward", header, arrays)
    return whole, TablePricer(timing, "composed"), pack(timing, "composed")


def test_3_3_where_every_site_reaches_a_quarter_of_the_roofline_so_does_what_lies_between(tmp_path: Path) -> None:
    limit = limit_of(tmp_path)
    sites = [(b, t, q, 4 * float(limit.prefill_ms(b, t, q))) for b in (1, 4) for q in (512, 2048) for t in (64, 256)]
    # Measured points of a curve are joined by lines, so the figure is exact at their tokens.
    _, prices, _ = by_roofline(tmp_path, sites)
    for batch, past in ((2, 1_000), (3, 512), (1, 1_999), (4, 600)):
        for t in (64, 256):
            got = prices.answer(batch, t, past, 0, 0)
            assert got.prefill_ms == pytest.approx(4 * float(limit.prefill_ms(batch, t, past)), rel=1e-9)
            assert got.prefill_source == 2


def test_3_3_the_nearest_sites_count_most(tmp_path: Path) -> None:
    """Site (1, 256) reaches all of its roofline, (1, 1024) half. (1, 512) is one octave from both: 1 / d^2 is 1, so 3/4
    of the roofline; (1, 256 sqrt 2) is 1/2 and 3/2 octaves away: weights 4 and 4/9, the mean 19/20."""
    limit = limit_of(tmp_path)
    one, other = (float(limit.prefill_ms(1, 64, q)) for q in (256, 1024))
    _, prices, _ = by_roofline(tmp_path, [(1, 64, 256, one), (1, 64, 1024, 2 * other)])
    assert ms(prices, 1, 64, 256, 0, 0)[0] == pytest.approx(one)  # its own site
    assert ms(prices, 1, 64, 512, 0, 0)[0] == pytest.approx(float(limit.prefill_ms(1, 64, 512)) / 0.75, rel=1e-9)
    past = 362  # 256 sqrt 2 and 0.04
    wanted = float(limit.prefill_ms(1, 64, past)) / 0.95
    assert ms(prices, 1, 64, past, 0, 0)[0] == pytest.approx(wanted, rel=1e-3)


def test_3_3_four_sites_within_two_octaves_that_cover_the_tokens_answer(tmp_path: Path) -> None:
    limit = limit_of(tmp_path)

    def at(b: int, t: int, q: int, share: float) -> tuple[int, int, int, float]:
        return b, t, q, float(limit.prefill_ms(b, t, q)) / share

    # Octaves from (4, 4096): 1, 1, 1, 1, then 2 (the fifth, not used), then 3 (beyond the gate). (4, 5000) is nearest
    # of all and ends before 64 tokens.
    near = [at(2, 64, 4096, 0.5), at(8, 64, 4096, 0.5), at(4, 64, 2048, 0.3), at(4, 64, 8192, 0.3)]
    rest = [at(1, 64, 4096, 0.9), at(4, 64, 512, 0.9), at(4, 8, 5000, 0.9), at(4, 16, 5000, 0.9)]
    _, prices, _ = by_roofline(tmp_path, [*near, *rest])
    assert ms(prices, 4, 64, 4096, 0, 0)[0] == pytest.approx(float(limit.prefill_ms(4, 64, 4096)) / 0.4, rel=1e-9)
    # Two octaves are near enough, more are not: (1, 1024) from (4, 1024), and from (5, 1024).
    wide = [at(1, 64, 1024, 0.5), at(32, 64, 65536, 0.5)]
    _, prices, _ = by_roofline(tmp_path, wide)
    assert ms(prices, 4, 64, 1024, 0, 0)[0] == pytest.approx(2 * float(limit.prefill_ms(4, 64, 1024)), rel=1e-9)
    assert refused(prices, 5, 64, 1024, 0, 0)
    assert "at most 2 octaves of batch and past KV from one, only" in str(prices.refusal(5, 64, 1024, 0, 0))


def test_3_3_no_past_is_near_no_past_alone_and_far_sites_leave_it_to_the_direct_method(tmp_path: Path) -> None:
    """Past 0 and 4096 of one batch: 100 lies far from both in octaves, and between their curves as before."""
    limit, prices, _ = by_roofline(tmp_path, [(1, 64, 0, 2.0), (1, 64, 4096, 6.0), (4, 64, 0, 3.0)])
    assert ms(prices, 1, 64, 1024, 0, 0)[0] != pytest.approx(3.0)  # two octaves from 4096
    assert ms(prices, 1, 64, 100, 0, 0)[0] == pytest.approx(2.0 + 4.0 * 100 / 4096)
    # Between the batches, without past: 2 is one octave from each.
    shares = [float(limit.prefill_ms(b, 64, 0)) / took for b, took in ((1, 2.0), (4, 3.0))]
    wanted = float(limit.prefill_ms(2, 64, 0)) / (sum(shares) / 2)
    assert ms(prices, 2, 64, 0, 0, 0)[0] == pytest.approx(wanted, rel=1e-9)
    for outside in ((5, 64, 0), (1, 65, 0), (1, 64, 4097)):
        assert refused(prices, *outside, 0, 0)


@pytest.mark.parametrize("flat", [True, False])
def test_3_3_a_batch_above_the_largest_with_a_long_past_is_scaled_by_the_rooflines_and_never_up(
    tmp_path: Path, flat: bool
) -> None:
    """Batches 1 and 2 cost the same. Five requests over the same totals have two fifths of the pairs of two."""
    growth, past = 1.0 if flat else 1.2, 60_000_000
    content = [(b, t, q, t / 100 * growth ** (b - 1)) for b in (1, 2) for t in (1_000, 2_000, 3_000) for q in (0, past)]
    limit, prices, _ = by_roofline(tmp_path, content)
    if not flat:
        assert refused(prices, 5, 2_000, past, 0, 0) and refused(prices, 5, 2_000, 0, 0, 0)
        return
    ratio = float(limit.prefill_ms(5, 2_000, past) / limit.prefill_ms(2, 2_000, past))
    assert ratio == pytest.approx(2 / 5, rel=0.01)
    assert ms(prices, 2, 2_000, past, 0, 0)[0] == 20.0
    assert ms(prices, 5, 2_000, past, 0, 0)[0] == pytest.approx(20.0 * ratio, rel=1e-12)
    assert ms(prices, 5, 2_000, 0, 0, 0)[0] == 20.0  # a short past: as it is
    # Without attention over a past the larger batch has more rows of logits: never up.
    short = [(b, t, q, float(t)) for b in (1, 2) for t in (10, 20, 30) for q in (0, 100)]
    limit, prices, _ = by_roofline(tmp_path, short)
    assert limit.prefill_ms(9, 20, 100) > limit.prefill_ms(2, 20, 100)
    assert ms(prices, 9, 20, 100, 0, 0)[0] == 20.0


def test_the_compiled_roofline_is_the_rule_and_kernel_and_definition_agree(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    limit = limit_of(tmp_path)
    content = [
        (b, t, q, float(limit.prefill_ms(b, t, q) / rng.uniform(0.2, 0.8)))
        for b in (1, 2, 3, 8, 9, 16) for q in (0, 128, 1024, 8192, 100_000) for t in (16, 100, 2048)
        if rng.random() < 0.8
    ]  # fmt: skip
    content += [(1, 16, 0, 0.5), (16, 2048, 100_000, 9.0)]
    whole, prices, packed = by_roofline(tmp_path, list({row[:3]: row for row in content}.values()))
    answers = 0
    for _ in range(1_500):
        n, t = int(rng.integers(1, 24)), int(2.0 ** rng.uniform(4, 11.1))
        q = int(rng.choice([0, 2.0 ** rng.uniform(3, 17)]))
        got = prices.answer(n, t, q, 0, 0)
        np.testing.assert_array_equal(kernel_answer(*packed, n, t, q), (got.prefill_ms, got.prefill_cell))
        assert roofline_ms(prices.model.a, float(n), min(t, 2048), float(q)) == pytest.approx(
            float(whole.prefill_ms(n, min(t, 2048), q)), rel=1e-12
        )
        answers += not math.isnan(got.prefill_ms)
    assert 700 < answers < 1_500


@entry
def kernel_answer(whole, numbers, np_, tp, kvp):
    got = answer(whole, numbers, np_, tp, kvp, 0, 0)
    return got[0], got[2]


def test_3_3_batches_between_two_rungs_run_the_same_padded_graph() -> None:
    """1|2, 4|5 and 8|9 are padding borders: 6 and 7 blend the rows of 5 and 8."""
    found = answering_rows([1, 2, 4, 5, 8, 9])
    assert found[3] == (2, 4, 0.5)
    assert found[6] == (5, 8, pytest.approx(1 / 3))
    assert found[7] == (5, 8, pytest.approx(2 / 3))
    assert found[5] == (5, 5, 0.0)
    # Without borders on both sides the collected neighbours answer; below the smallest batch nobody does.
    assert answering_rows([2, 4, 16])[8] == (4, 16, pytest.approx(1 / 3))
    assert answering_rows([2, 4])[1] == (-1, -1, 0.0)


def test_3_3_each_of_two_rows_answers_on_its_own_curve_and_one_alone_where_the_other_ends(tmp_path: Path) -> None:
    content = rows(
        [(1, 8, 0, 1.0)], [(1, 10, 1.0), (2, 10, 2.0), (2, 30, 4.0), (4, 10, 6.0), (4, 20, 7.0), (5, 10, 9.0)]
    )
    prices = pricer(tmp_path, content)
    assert ms(prices, 0, 0, 0, 3, 20)[1] == pytest.approx((3.0 + 7.0) / 2)
    assert ms(prices, 0, 0, 0, 3, 30)[1] == 4.0
    assert refused(prices, 0, 0, 0, 3, 31) and refused(prices, 0, 0, 0, 6, 10) and refused(prices, 0, 0, 0, 4, 25)


def test_7_a_the_composition_as_arithmetic(tmp_path: Path) -> None:
    """8 new tokens 10 ms; decode at KV 8 by interpolation 3 ms, its baseline 2 ms: 10 + 1 = 11 ms."""
    prices = pricer(tmp_path, SEVEN_A)
    assert ms(prices, 1, 8, 0, 0, 0) == (10.0, 0.0)
    assert ms(prices, 0, 0, 0, 1, 8) == (0.0, 3.0)
    assert ms(prices, 1, 8, 0, 1, 8) == (10.0, 1.0)


def test_3_4_the_baseline_is_the_smallest_kv_of_the_batch_and_at_least_the_batch(tmp_path: Path) -> None:
    content = rows([(1, 8, 0, 1.0)], [(1, 2, 1.0), (1, 20, 3.0), (8, 4, 5.0), (8, 24, 9.0)])
    prices = pricer(tmp_path, content)
    # Eight requests hold at least eight tokens: 5 + (9 - 5) * 4 / 20.
    assert prices.model.a["decode_baseline"][8] == pytest.approx(5.8)
    assert prices.model.a["decode_baseline"][1] == 1.0


def test_a_cell_without_one_of_the_phases_is_an_error(tmp_path: Path) -> None:
    table = read_forward_table(written(tmp_path, rows([(1, 8, 0, 1.0)], [])))
    with pytest.raises(PerfDataError, match="cell 'one' has no decode rows"):
        compile_forward(table, "one")


def test_the_error_of_a_pass_outside_says_what_the_table_holds(tmp_path: Path) -> None:
    prices = pricer(tmp_path, SEVEN_A)
    said = str(prices.refusal(1, 9, 0, 0, 0))
    assert "1 prefill request(s) with 9 new and 0 past tokens" in said
    assert "new tokens 7 to 8" in said and "KV tokens 4 to 12" in said
