"""Geometry of the charts on a page; the template draws them as SVG in its style sheet's colours."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tagmask.errors import TagmaskError

# pixels between which values are drawn, of 400 × 240
LEFT = 46
RIGHT = 386
TOP = 12
BOTTOM = 200
# points per line; longer lines are averaged in bins to keep the page small
MAX_POINTS = 400
# a confusion matrix of more classes has small squares without numbers
MAX_NUMBERED = 26
# mistakes in the list beside it
MAX_WORST = 10


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
        """Return the pixel of a value, with one digit after the point."""
        low = self.low
        high = self.high
        if self.log:
            low = math.log10(low)
            high = math.log10(high)
            value = math.log10(value)
        length = self.end - self.start
        return round(self.start + length * (value - low) / (high - low), 1)

    def labels(self) -> list[tuple[float, str]]:
        """Return pixel and text of each tick."""
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
        """Return the line in pixels, (N, 2)."""
        xs = [self.x.place(x) for x in line.x]
        ys = [self.y.place(y) for y in line.y]
        return list(zip(xs, ys, strict=True))


@dataclass(frozen=True)
class Matrix:
    """A confusion matrix as squares; the last column is "unsure" if any pixel is."""

    title: str
    names: Sequence[str]  # of the rows, the truth
    columns: Sequence[str]
    numbered: bool  # True if the squares are large enough for numbers
    squares: Sequence[tuple[int, int, float]]  # row, column, share of the row
    # the most frequent mistakes: truth, label, share of the truth
    worst: Sequence[tuple[str, str, float]]


def line_chart(
    title: str, lines: Sequence[Line], x_name: str, y_name: str, zero: bool = False
) -> Chart:
    """Return a chart of lines.

    Values that are not finite are left out; positive values that span more than a factor of 50 get
    a logarithmic axis.

    Args:
        title: Title of the chart.
        lines: The lines; those without a finite value are left out.
        x_name: Name of the horizontal axis.
        y_name: Name of the vertical axis.
        zero: True if the vertical axis begins at 0 or below, and is linear.

    Raises:
        TagmaskError: No line has a finite value.
    """
    drawn = [line for line in map(_drawable, lines) if len(line.x)]
    if not drawn:
        raise TagmaskError(f'the chart "{title}" has no point to draw; give finite values.')
    xs = np.concatenate([line.x for line in drawn])
    ys = np.concatenate([line.y for line in drawn])
    left = float(xs.min())
    right = float(xs.max())
    x = linear_axis(left, right, LEFT, RIGHT, tight=True)
    low = float(ys.min())
    high = float(ys.max())
    if zero:
        y = linear_axis(min(low, 0.0), high, BOTTOM, TOP)
    elif low > 0 and high / low > 50:
        y = log_axis(low, high, BOTTOM, TOP)
    else:
        y = linear_axis(low, high, BOTTOM, TOP)
    return Chart(
        title=title,
        x=x,
        y=y,
        x_name=x_name,
        y_name=y_name,
        lines=drawn,
    )


def histogram(title: str, values: Sequence[float], x_name: str) -> Chart:
    """Return a chart that counts percentages in ten bins.

    Args:
        title: Title of the chart.
        values: Percentages, 0 to 100, one for each image.
        x_name: Name of the horizontal axis.
    """
    counts, edges = np.histogram(values, 10, (0, 100))
    x = linear_axis(0, 100, LEFT, RIGHT, tight=True)
    highest = max(1, int(counts.max()))
    y = linear_axis(0, highest, BOTTOM, TOP)
    starts = edges[:-1].tolist()
    ends = edges[1:].tolist()
    bars = list(zip(starts, ends, counts.tolist(), strict=True))
    return Chart(
        title=title,
        x=x,
        y=y,
        x_name=x_name,
        y_name="images",
        bars=bars,
    )


def confusion_chart(title: str, confusion: npt.NDArray[np.int64], names: Sequence[str]) -> Matrix:
    """Return a confusion matrix as squares, with a list of the most frequent mistakes.

    Args:
        title: Title of the matrix.
        confusion: Pixels (K, K + 1); rows are the truth, the last column is unsure.
        names: Names of the K classes, the background included.
    """
    shares = row_shares(confusion)  # (K, K + 1)
    columns = list(names)
    if confusion[:, -1].any():
        columns.append("unsure")
    numbered = len(names) <= MAX_NUMBERED
    faint = 0.005 if numbered else 0.01
    squares = []
    for row, column in np.argwhere(shares >= faint).tolist():
        share = float(shares[row, column])
        squares.append((row, column, share))
    mistakes = shares.copy()
    np.fill_diagonal(mistakes, 0)
    order = np.argsort(-mistakes, axis=None, kind="stable")[:MAX_WORST]
    worst = []
    for index in order.tolist():
        row, column = divmod(index, shares.shape[1])
        share = float(mistakes[row, column])
        if share > 0:
            worst.append((names[row], columns[column], share))
    return Matrix(
        title=title,
        names=names,
        columns=columns,
        numbered=numbered,
        squares=squares,
        worst=worst,
    )


def row_shares(confusion: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Divide each row by its sum; a class without a pixel stays 0."""
    counts = confusion.astype(np.float64)
    totals = counts.sum(axis=1, keepdims=True)
    shares: npt.NDArray[np.float64] = counts / np.maximum(totals, 1)
    return shares


def linear_axis(low: float, high: float, start: float, end: float, tight: bool = False) -> Axis:
    """Return an axis with about five round ticks.

    Args:
        low: Smallest value.
        high: Largest value.
        start: Pixel of the lower end.
        end: Pixel of the upper end.
        tight: True if the axis keeps to the range of the values instead of ending at ticks.
    """
    if high <= low:
        low = low - 0.5 * (abs(low) or 1)
        high = high + 0.5 * (abs(high) or 1)
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    steps = [factor * power for factor in (1, 2, 2.5, 5, 10)]
    step = next(step for step in steps if step >= rough * (1 - 1e-9))
    if not tight:
        low = math.floor(low / step + 1e-9) * step
        high = math.ceil(high / step - 1e-9) * step
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    ticks = [k * step for k in range(first, last + 1)]
    return Axis(low, high, start, end, tuple(ticks))


def log_axis(low: float, high: float, start: float, end: float) -> Axis:
    """Return a logarithmic axis over whole decades.

    Args:
        low: Smallest value, above 0.
        high: Largest value.
        start: Pixel of the lower end.
        end: Pixel of the upper end.
    """
    first = math.floor(math.log10(low))
    last = max(math.ceil(math.log10(high)), first + 1)
    step = max(1, math.ceil((last - first) / 6))
    ticks = [10.0**k for k in range(first, last + 1, step)]
    return Axis(
        low=10.0**first,
        high=10.0**last,
        start=start,
        end=end,
        ticks=tuple(ticks),
        log=True,
    )


def thinned(
    x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]
) -> tuple[list[float], list[float]]:
    """Return at most ``MAX_POINTS`` points; a longer line becomes the means of equal bins.

    Args:
        x: Where the points are, (N,).
        y: Their values, (N,).
    """
    if len(x) <= MAX_POINTS:
        return x.tolist(), y.tolist()
    pieces = np.array_split(np.arange(len(x)), MAX_POINTS)
    mean_x = [float(x[piece].mean()) for piece in pieces]
    mean_y = [float(y[piece].mean()) for piece in pieces]
    return mean_x, mean_y


def _drawable(line: Line) -> Line:
    """Return the line without values that are not finite, thinned."""
    x = np.asarray(line.x, np.float64)
    y = np.asarray(line.y, np.float64)
    finite = np.isfinite(x) & np.isfinite(y)
    few_x, few_y = thinned(x[finite], y[finite])
    return Line(line.name, few_x, few_y, line.marks)


def _tick_text(value: float) -> str:
    if value and (abs(value) < 1e-3 or abs(value) >= 1e6):
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:.6g}"
