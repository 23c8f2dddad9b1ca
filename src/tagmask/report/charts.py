"""Geometry of the charts on a page; the template draws them as SVG in the colours of its style sheet."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tagmask.errors import TagmaskError

LEFT, RIGHT, TOP, BOTTOM = 46, 386, 12, 200  # pixels between which values are drawn, of 400 × 240
MAX_POINTS = 400  # per line; longer lines are averaged in bins to keep the page small
MAX_NUMBERED = 26  # a confusion matrix of more classes has small squares without numbers
MAX_WORST = 10  # mistakes in the list beside it


@dataclass(frozen=True)
class Mark:
    """A point on a line; hollow if it was chosen without ground truth."""

    x: float
    y: float
    text: str
    hollow: bool = False


@dataclass(frozen=True)
class Line:
    """A named line through points, (N,) each."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    marks: Sequence[Mark] = ()


@dataclass(frozen=True)
class Axis:
    """One direction of a chart: from value to pixel, and its ticks."""

    low: float
    high: float
    start: float  # pixel of low
    end: float  # pixel of high
    ticks: tuple[float, ...]
    log: bool = False

    def place(self, value: float) -> float:
        low, high, at = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return round(self.start + (self.end - self.start) * (at - low) / (high - low), 1)

    def labels(self) -> list[tuple[float, str]]:
        """Pixel and text of each tick."""
        return [(self.place(tick), _tick_text(tick)) for tick in self.ticks]


@dataclass(frozen=True)
class Chart:
    """Lines or bars between two axes."""

    title: str
    x: Axis
    y: Axis
    x_name: str
    y_name: str
    lines: Sequence[Line] = ()
    bars: Sequence[tuple[float, float, int]] = ()  # from, to, height

    def points(self, line: Line) -> list[tuple[float, float]]:
        """The line in pixels, (N, 2)."""
        return [(self.x.place(x), self.y.place(y)) for x, y in zip(line.x, line.y, strict=True)]


@dataclass(frozen=True)
class Matrix:
    """A confusion matrix as squares; the last column is "unsure" if any pixel is."""

    title: str
    names: Sequence[str]  # of the rows, the truth
    columns: Sequence[str]
    numbered: bool  # whether the squares are large enough for numbers
    squares: Sequence[tuple[int, int, float]]  # row, column, share of the row
    worst: Sequence[
        tuple[str, str, float]
    ]  # the most frequent mistakes: truth, label, share of the truth


def line_chart(
    title: str, lines: Sequence[Line], x_name: str, y_name: str, zero: bool = False
) -> Chart:
    """A chart of lines. ``zero``: the vertical axis begins at 0.

    Values that are not finite are left out; positive values that span more than a factor of 50 get a logarithmic axis.
    """
    drawn = [line for line in map(_drawable, lines) if len(line.x)]
    if not drawn:
        raise TagmaskError(f'the chart "{title}" has no point to draw; give finite values.')
    xs = np.concatenate([line.x for line in drawn])
    ys = np.concatenate([line.y for line in drawn])
    x = linear_axis(float(xs.min()), float(xs.max()), LEFT, RIGHT, tight=True)
    low, high = float(ys.min()), float(ys.max())
    if not zero and low > 0 and high / low > 50:
        y = log_axis(low, high, BOTTOM, TOP)
    else:
        y = linear_axis(min(low, 0.0) if zero else low, high, BOTTOM, TOP)
    return Chart(title, x, y, x_name, y_name, lines=drawn)


def histogram(title: str, values: Sequence[float], x_name: str) -> Chart:
    """A chart that counts percentages (0 … 100) in ten bins."""
    counts, edges = np.histogram(values, 10, (0, 100))
    x = linear_axis(0, 100, LEFT, RIGHT, tight=True)
    y = linear_axis(0, max(1, int(counts.max())), BOTTOM, TOP)
    bars = list(zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True))
    return Chart(title, x, y, x_name, "images", bars=bars)


def confusion_chart(title: str, confusion: npt.NDArray[np.int64], names: Sequence[str]) -> Matrix:
    """confusion: (K, K+1), rows = truth, last column = unsure. names: (K,)."""
    shares = row_shares(confusion)  # (K, K+1)
    columns = [*names, "unsure"] if confusion[:, -1].any() else [*names]
    numbered = len(names) <= MAX_NUMBERED
    faint = 0.005 if numbered else 0.01
    squares = [
        (row, column, float(shares[row, column]))
        for row, column in np.argwhere(shares >= faint).tolist()
    ]
    mistakes = shares.copy()
    np.fill_diagonal(mistakes, 0)
    order = np.argsort(-mistakes, axis=None, kind="stable")[:MAX_WORST]
    places = [divmod(place, shares.shape[1]) for place in order.tolist()]
    worst = [(names[i], columns[j], float(mistakes[i, j])) for i, j in places if mistakes[i, j] > 0]
    return Matrix(title, names, columns, numbered, squares, worst)


def row_shares(confusion: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Each row divided by its sum; a class without a pixel stays 0."""
    counts = confusion.astype(np.float64)
    shares: npt.NDArray[np.float64] = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return shares


def linear_axis(low: float, high: float, start: float, end: float, tight: bool = False) -> Axis:
    """An axis with about five round ticks; ``tight`` keeps to the range of the values."""
    if high <= low:
        low, high = low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1)
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(
        factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * (1 - 1e-9)
    )
    if not tight:
        low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return Axis(low, high, start, end, tuple(k * step for k in range(first, last + 1)))


def log_axis(low: float, high: float, start: float, end: float) -> Axis:
    """A logarithmic axis over whole decades."""
    first = math.floor(math.log10(low))
    last = max(math.ceil(math.log10(high)), first + 1)
    step = max(1, math.ceil((last - first) / 6))
    return Axis(
        10.0**first,
        10.0**last,
        start,
        end,
        tuple(10.0**k for k in range(first, last + 1, step)),
        log=True,
    )


def thinned(
    x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]
) -> tuple[list[float], list[float]]:
    """At most MAX_POINTS points; a longer line becomes the means of equal bins."""
    if len(x) <= MAX_POINTS:
        return x.tolist(), y.tolist()
    pieces = np.array_split(np.arange(len(x)), MAX_POINTS)
    return [float(x[piece].mean()) for piece in pieces], [
        float(y[piece].mean()) for piece in pieces
    ]


def _drawable(line: Line) -> Line:
    x, y = np.asarray(line.x, np.float64), np.asarray(line.y, np.float64)
    finite = np.isfinite(x) & np.isfinite(y)
    return Line(line.name, *thinned(x[finite], y[finite]), line.marks)


def _tick_text(value: float) -> str:
    if value and (abs(value) < 1e-3 or abs(value) >= 1e6):
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:.6g}"
