"""Between measured points and beyond them: every rule on numbers small enough to check by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perf_db.gpu.interpolate.curve import Curve
from perf_db.gpu.interpolate.grid import EXTRAPOLATED, INTERPOLATED, MEASURED, Grid
from perf_db.gpu.interpolate.nearest import Nearest
from perf_db.gpu.interpolate.sites import Sites


def area(at):
    """Roofline of a grid: the product of the last two axes."""
    return at[:, -1] * at[:, -2]


def grid(points, *, sqrt_axis=None, roofline=area):
    """(outer, inner) -> latency, as a grid whose labels are 100, 101, ... in the order given."""
    coords = np.array(list(points), np.int64)
    return Grid(
        coords, np.array(list(points.values())), np.arange(100, 100 + len(points)), roofline, sqrt_axis=sqrt_axis
    )


def at(*query):
    return np.array([query], np.float64)


STAIRCASE = {(1, 1): 1.0, (1, 2): 2.0, (1, 4): 4.0, (2, 1): 3.0, (2, 2): 5.0, (4, 1): 7.0}


@pytest.mark.parametrize(
    ("query", "value", "kind"),
    [
        ((1, 2), 2.0, MEASURED),
        ((1, 3), 3.0, INTERPOLATED),  # between 2 and 4
        ((3, 1), 5.0, INTERPOLATED),  # between the rows 2 and 4
        ((1.5, 1.5), (1.5 + 4.0) / 2, INTERPOLATED),
        # Row 2 ends at 2, so row 1 alone answers 4.0 at inner 4, and is moved by the roofline: 1.5 * 4 / (1 * 4).
        ((1.5, 4), 4.0 * 1.5, EXTRAPOLATED),
        ((3, 2), 5.0 * 3 / 2, EXTRAPOLATED),
    ],
)
def test_nested_brackets_on_a_staircase(query, value, kind):
    answer = grid(STAIRCASE)(at(*query))
    assert answer.value[0] == pytest.approx(value, rel=1e-15) and answer.kind[0] == kind


def test_cost_that_goes_with_the_square_is_blended_in_the_root():
    found = grid({(10, 1): 4.0, (20, 1): 16.0}, sqrt_axis=0)(at(15, 1)).value[0]
    assert found == pytest.approx(((2 + 4) / 2) ** 2)
    # The inner axis stays linear.
    assert grid({(10, 1): 4.0, (10, 3): 16.0}, sqrt_axis=0)(at(10, 2)).value[0] == pytest.approx(10.0)


def test_outside_the_knots_four_neighbours_lend_their_utilisation():
    points = {(1, 1): 2.0, (1, 2): 3.0, (1, 4): 5.0, (1, 8): 9.0, (1, 16): 17.0}
    # Asked at (1, 32): distances 1, 2, 3, 4 octaves, and the fifth lies 5 away.
    distance = np.array([1.0, 2.0, 3.0, 4.0])
    utilisation = np.array([16 / 17, 8 / 9, 4 / 5, 2 / 3])
    weight = ((5 - distance) / (5 * distance)) ** 2
    expected = 32 / ((weight * utilisation).sum() / weight.sum())
    answer = grid(points)(at(1, 32))
    assert answer.value[0] == pytest.approx(expected, rel=1e-14) and answer.kind[0] == EXTRAPOLATED
    assert grid(points).distance(at(1, 32))[0] == pytest.approx(1.0)


def test_equally_far_neighbours_count_the_same():
    # All five lie one octave from (2, 2): every weight is zero, and then they are equal.
    coords = np.array([(1, 2), (2, 1), (2, 4), (4, 2), (2, 4)], np.float64)
    near = Nearest(coords, np.array([1.0, 2.0, 4.0, 8.0, 16.0]), area)
    assert near.weights(at(2, 2))[1].tolist() == [[0.25] * 4]


def test_no_cached_prefix_is_far_from_any_prefix():
    near = Nearest(np.array([(0, 64), (1, 64), (2, 64)], np.float64), np.ones(3), lambda q: q[:, 1])
    index, weight, _ = near.weights(at(0, 128))
    assert index[0, 0] == 0 and weight[0, 0] > 0.99


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=30, unique=True),
    st.tuples(st.integers(1, 80), st.integers(1, 80)),
)
def test_every_query_has_a_positive_answer_and_shares_that_sum_to_one(points, query):
    built = grid({p: 1.0 + p[0] * p[1] for p in points})
    answer = built(at(*query))
    shares = built.explain(np.array(query, np.float64))
    assert np.isfinite(answer.value[0]) and answer.value[0] > 0
    assert sum(share for _, share in shares) == pytest.approx(1.0) and all(share > 0 for _, share in shares)
    assert {label for label, _ in shares} <= set(range(100, 100 + len(points)))
    if query in points:
        assert answer.value[0] == 1.0 + query[0] * query[1] and answer.kind[0] == MEASURED
        assert shares == [(100 + points.index(query), 1.0)]


def test_many_queries_at_once_answer_as_one_by_one():
    built = grid(STAIRCASE, sqrt_axis=0)
    queries = np.array([(a, b) for a in (1, 1.5, 2, 3, 4, 9) for b in (1, 1.5, 2, 3, 4, 9)], np.float64)
    together = built(queries)
    assert together.value.tolist() == [built(q[None, :]).value[0] for q in queries]
    assert together.kind.tolist() == [built(q[None, :]).kind[0] for q in queries]


def curve(points, *, tail=1, roofline=lambda x: x):
    x = np.array(list(points), np.int64)
    return Curve(x, np.array(list(points.values())), np.arange(len(points)), roofline, tail=tail)


def test_a_curve_is_linear_and_holds_the_utilisation_of_its_ends():
    built = curve({4: 8.0, 8: 10.0, 16: 40.0})
    x = np.array([2.0, 4.0, 6.0, 12.0, 16.0, 32.0])
    # Below: 8 * 2 / 4. Beyond: utilisation 16 / 40 held.
    assert built(x).tolist() == [4.0, 8.0, 9.0, 25.0, 40.0, 80.0]
    assert built.explain(12.0) == [(1, 10 / 50), (2, 40 / 50)] and built.explain(2.0) == [(0, 1.0)]


def test_past_the_end_the_median_of_the_last_points_may_be_held():
    # Utilisations 0.5, 0.8, 0.4: the median is 0.5.
    built = curve({4: 8.0, 8: 10.0, 16: 40.0}, tail=3)
    assert built(np.array([32.0]))[0] == 64.0
    assert built.explain(32.0) == [(0, 1 / 3), (1, 1 / 3), (2, 1 / 3)]


def site_curve(n, k, ms, *, ends=(1, 64)):
    """Twice the roofline n k m / 1000 at utilisation `1 / ms`."""
    x = np.array(ends, np.int64)
    limit = lambda m: m * n * k / 1000.0  # noqa: E731
    return Curve(x, limit(x.astype(float)) * ms, np.array([n * 1000 + k, n * 1000 + k + 1]), limit)


def test_a_measured_site_uses_its_own_curve():
    sites = Sites((8, 8), {(8, 8): site_curve(8, 8, 2.0), (16, 8): site_curve(16, 8, 9.0)}, lambda m: m * 0.064)
    assert sites(np.array([32.0]))[0] == pytest.approx(2.0 * 32 * 0.064)


def test_another_site_blends_the_utilisation_of_its_neighbours():
    curves = {(4, 8): site_curve(4, 8, 2.0), (32, 8): site_curve(32, 8, 4.0)}
    # (8, 8) is one octave from the first, two from the second.
    utilisation = (0.5 / 1 + 0.25 / 4) / (1 / 1 + 1 / 4)
    sites = Sites((8, 8), curves, lambda m: m * 0.064)
    assert sites(np.array([10.0]))[0] == pytest.approx(0.64 / utilisation, rel=1e-14)
    assert sum(share for _, share in sites.explain(10.0)) == pytest.approx(1.0)


def test_a_site_too_far_away_says_nothing_unless_one_axis_alone_is_exceeded():
    far = {(4, 64): site_curve(4, 64, 2.0)}
    assert not Sites((64, 32), far, lambda m: m).answers  # beyond in n, below in k
    assert Sites((64, 64), far, lambda m: m).answers  # a large vocabulary
    assert not Sites((64, 256), far, lambda m: m).answers


def test_only_curves_that_cover_the_point_count_as_long_as_one_does():
    curves = {(4, 8): site_curve(4, 8, 2.0, ends=(1, 16)), (16, 8): site_curve(16, 8, 4.0, ends=(1, 64))}
    sites = Sites((8, 8), curves, lambda m: m * 0.064)
    within, partly, beyond = sites(np.array([8.0, 32.0, 128.0])) / (np.array([8.0, 32.0, 128.0]) * 0.064)
    assert within == pytest.approx(1 / ((0.5 + 0.25) / 2))
    assert partly == pytest.approx(4.0)
    assert beyond == pytest.approx(within)  # nobody covers it: all hold their ends
