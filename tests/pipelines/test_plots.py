"""Pictures are well-formed and small, whatever they are asked to show."""

from __future__ import annotations

import base64
from xml.etree import ElementTree

import pytest

from assets.metadata import MAX_PICTURE_BYTES, picture
from assets.plots import INLINE, Panel, markdown, spark, svg, ticks
from assets.plots_compare import Line, Lines, Waterfall


@pytest.mark.parametrize(
    ("x", "y"),
    [([], []), ([0.0], [0.0]), ([1.0, 2.0], [0.0, 0.0]), ([0.0, 1e9, 2e9], [1e-9, 5e12, 3.0])],
    ids=["nothing", "one point", "all zero", "huge"],
)
def test_every_series_gives_a_picture(x: list[float], y: list[float]) -> None:
    root = ElementTree.fromstring(svg([Panel("time < & >", x, y, "s", marks=[(0.0, "p50")] if x else [])]))
    assert root.tag.endswith("svg")
    ElementTree.fromstring(_decoded(spark(y, "alt")))


def test_a_thousand_points_fit_where_the_ui_shows_them() -> None:
    values = [float(i * 7919 % 1000) for i in range(5000)]
    assert len(spark(values, "share of the KV pool in use over virtual time")) < INLINE
    panels = [Panel("a", list(map(float, range(240))), values[:240], "s")] * 3
    assert len(picture(panels, "three").md_str or "") < MAX_PICTURE_BYTES


def test_a_picture_that_is_too_large_is_refused() -> None:
    xs = list(map(float, range(20_000)))
    with pytest.raises(ValueError, match="fewer points"):
        picture([Panel("a", xs, xs, "s")], "large")


@pytest.mark.parametrize(
    ("top", "expected"),
    [(0, [0]), (7, [0, 2, 4, 6]), (100, [0, 25, 50, 75, 100]), (0.013, [0, 0.005, 0.01])],
)
def test_ticks_are_round(top: float, expected: list[float]) -> None:
    assert ticks(top) == pytest.approx(expected)


def test_markdown_carries_the_picture() -> None:
    assert _decoded(markdown("<svg/>", "x")) == "<svg/>"


def _decoded(text: str) -> str:
    return base64.b64decode(text.split("base64,")[1].rstrip(")")).decode()


@pytest.mark.parametrize(
    "drawn",
    [
        Lines("nothing", [], "s"),
        Lines("a point", [Line("a & b", [1.0], [3.0])], "s"),
        Lines("flat", [Line("a", [0.0, 1.0], [0.0, 0.0]), Line("b", [0.0, 2.0], [0.0, 0.0])], "s"),
        Lines("from 90", [Line(str(i), [1.0, 2.0], [100.0, 90.0 + i]) for i in range(12)], "execution", low=80),
        Waterfall("no change", 5.0, [], 5.0, "ms"),
        Waterfall("from nothing", 0.0, [("<queueing>", 3.0), ("prefill", -1.0)], 2.0, "ms"),
    ],
    ids=lambda drawn: drawn.title,
)
def test_comparisons_are_pictures_too(drawn: Lines | Waterfall) -> None:
    root = ElementTree.fromstring(svg([drawn, Panel("below", [0.0], [1.0], "s")]))
    assert int(root.attrib["height"]) == drawn.height + Panel("below", [0.0], [1.0], "s").height
    xs = [float(e.attrib["x"]) for e in root.iter() if "x" in e.attrib]
    assert min(xs) >= 0 and max(xs) <= int(root.attrib["width"])
