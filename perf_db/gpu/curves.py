"""Rows of a table read as curves: for every slice the points along one axis, in its order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import polars as pl

    from perf_db.gpu.operator_tables import Axis, OperatorTable


@dataclass(frozen=True, slots=True)
class Curves:
    """All curves of a frame along one axis.

    Attributes:
        order: shape (n,), row numbers, curve after curve, ascending along the axis; rows at one position keep theirs.
        starts: shape (m + 1,), where each curve begins in `order`; ends with n.
        position: shape (n,), each row's place on the axis, by row number.
    """

    order: NDArray[np.int64]
    starts: NDArray[np.int64]
    position: NDArray[np.int64]

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(row, next row) of all neighbours."""
        inside = self._inside()
        return self.order[:-1][inside], self.order[1:][inside]

    def inner(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """(row, row before, row after) of all points with two neighbours."""
        inside = self._inside()
        both = inside[:-1] & inside[1:]
        return self.order[1:-1][both], self.order[:-2][both], self.order[2:][both]

    def falling(self, y: NDArray[np.float64], by: float) -> Iterator[tuple[int, int]]:
        """(start, stop) of the curves that fall by more than `by` somewhere; `y` is in the order of `order`."""
        down = np.flatnonzero((y[1:] < y[:-1] - by) & self._inside())
        for curve in np.unique(np.searchsorted(self.starts, down, side="right") - 1):
            yield int(self.starts[curve]), int(self.starts[curve + 1])

    def plateaus(self, y: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Of every row the positions where the stretch of equal values around it begins and ends, each shape (n,)."""
        along = y[self.order]
        breaks = np.flatnonzero(np.concatenate([[True], (along[1:] != along[:-1]) | ~self._inside(), [True]]))
        places = self.position[self.order]
        lengths = np.diff(breaks)
        first, last = np.empty(len(y), np.int64), np.empty(len(y), np.int64)
        first[self.order] = np.repeat(places[breaks[:-1]], lengths)
        last[self.order] = np.repeat(places[breaks[1:] - 1], lengths)
        return first, last

    def _inside(self) -> NDArray[np.bool_]:
        """Of each neighbouring pair in `order`, whether both are of one curve."""
        inside = np.ones(max(len(self.order) - 1, 0), bool)
        inside[self.starts[1:-1] - 1] = False
        return inside


def axis_values(frame: pl.DataFrame, axis: Axis) -> NDArray[np.int64]:
    """Each row's place on an axis, shape (n,); a column that the frame lacks is the same in every row."""
    at = np.zeros(frame.height, np.int64)
    for column in axis.columns:
        if column in frame.columns:
            at += frame[column].to_numpy()
    return at


def grid_codes(frame: pl.DataFrame, columns: Sequence[str]) -> NDArray[np.int64]:
    """A number per row, equal where all `columns` are equal. Shape (n,)."""
    codes = np.zeros(frame.height, np.int64)
    for name in columns:
        codes = joined(codes, frame[name].rank("dense").fill_null(0).to_numpy().astype(np.int64))
    return codes


def joined(codes: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """A number per row, equal where both are equal."""
    if not len(values) or values.min() == values.max():
        return codes
    _, own = np.unique(codes, return_inverse=True)
    _, other = np.unique(values, return_inverse=True)
    return own.astype(np.int64) * (int(other.max()) + 1) + other


def curves_along(frame: pl.DataFrame, base: NDArray[np.int64], table: OperatorTable, axis: Axis) -> Curves:
    """Curves along `axis`: the slices of `base`, with the table's other growing axes held."""
    codes = base
    for other in table.axes:
        if other.grows and other is not axis:
            codes = joined(codes, axis_values(frame, other))
    return curves(codes, axis_values(frame, axis))


def curves(codes: NDArray[np.int64], position: NDArray[np.int64]) -> Curves:
    """Curves of rows with equal codes, ordered by position."""
    order = np.lexsort((position, codes)).astype(np.int64)
    at = codes[order]
    starts = np.flatnonzero(np.concatenate([[True], at[1:] != at[:-1], [True]])) if len(at) else np.zeros(1, np.int64)
    return Curves(order, starts.astype(np.int64), position)
