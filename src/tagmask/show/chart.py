"""Charts as SVG text, coloured by the page's style sheet so that they follow light and dark mode."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tagmask.errors import TagmaskError
from tagmask.show.html import escape

WIDTH, HEIGHT = 400, 240
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 12, 40
MOST_POINTS = 400  # per line; longer ones are averaged in bins, so that the page stays small
COLOURS = 6  # --c0 … --c5 of the style sheet
DASHES = ("", "7 4", "2 4", "10 4 2 4", "5 2", "1 3")


@dataclass(frozen=True)
class Mark:
    """A point on a line; hollow for a choice made without ground truth."""

    x: float
    y: float
    text: str
    hollow: bool = False


@dataclass(frozen=True)
class Line:
    """A named line through points."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    marks: Sequence[Mark] = field(default_factory=tuple)


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
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = math.log10(low), math.log10(high), math.log10(value)
        return round(self.start + (self.end - self.start) * (at - low) / (high - low), 1)


def line_chart(title: str, lines: Sequence[Line], x_name: str, y_name: str, zero: bool = False) -> str:
    """A figure of lines with a legend. ``zero``: the vertical axis begins at 0.

    Values that are not finite are left out; positive values that span more than a factor of 50 get a logarithmic axis.
    """
    kept = [line for line in map(_drawable, lines) if len(line.x)]
    if not kept:
        raise TagmaskError(f'the chart "{title}" has no point to draw; give finite values.')
    xs = np.concatenate([line.x for line in kept])
    ys = np.concatenate([line.y for line in kept])
    across = linear_axis(float(xs.min()), float(xs.max()), LEFT, WIDTH - RIGHT, tight=True)
    up = _vertical(ys, zero)
    drawn = [_grid(across, up, x_name, y_name), *(_line(line, i, across, up) for i, line in enumerate(kept))]
    return _figure(title, "".join(drawn), _legend(kept))


def histogram(title: str, values: Sequence[float], x_name: str, bins: int = 10) -> str:
    """A figure that counts fractions (0 … 1) in equal bins."""
    counts, edges = np.histogram(np.asarray(values, np.float64), bins, (0, 1))
    across = linear_axis(0, 1, LEFT, WIDTH - RIGHT, tight=True)
    up = linear_axis(0, max(1, int(counts.max())), HEIGHT - BOTTOM, TOP)
    bars = []
    for count, low, high in zip(counts.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        x, y = across.place(low) + 1, up.place(count)
        told = f"{count} images from {100 * low:.0f} to {100 * high:.0f}"
        bars.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{across.place(high) - x - 1:.1f}" '
            f'height="{HEIGHT - BOTTOM - y:.1f}" rx="2" style="fill:var(--c0)"><title>{told}</title></rect>'
        )
    return _figure(title, _grid(across, up, x_name, "images", percent=True) + "".join(bars), "")


def linear_axis(low: float, high: float, start: float, end: float, tight: bool = False) -> Axis:
    """An axis with about five round ticks; ``tight`` keeps to the range of the values."""
    if high <= low:
        low, high = low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1)
    step = _round_step((high - low) / 5)
    if not tight:
        low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return Axis(low, high, start, end, tuple(k * step for k in range(first, last + 1)))


def log_axis(low: float, high: float, start: float, end: float) -> Axis:
    """A logarithmic axis over whole decades."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    last = max(last, first + 1)
    step = max(1, math.ceil((last - first) / 6))
    return Axis(10.0**first, 10.0**last, start, end, tuple(10.0**k for k in range(first, last + 1, step)), log=True)


def thinned(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> tuple[list[float], list[float]]:
    """At most MOST_POINTS points: the means of equal bins, where there are more."""
    if len(x) <= MOST_POINTS:
        return x.tolist(), y.tolist()
    pieces = np.array_split(np.arange(len(x)), MOST_POINTS)
    return [float(x[piece].mean()) for piece in pieces], [float(y[piece].mean()) for piece in pieces]


def _drawable(line: Line) -> Line:
    x, y = np.asarray(line.x, np.float64), np.asarray(line.y, np.float64)
    fine = np.isfinite(x) & np.isfinite(y)
    return Line(line.name, *thinned(x[fine], y[fine]), line.marks)


def _vertical(ys: npt.NDArray[np.float64], zero: bool) -> Axis:
    low, high = float(ys.min()), float(ys.max())
    if not zero and low > 0 and high / low > 50:
        return log_axis(low, high, HEIGHT - BOTTOM, TOP)
    return linear_axis(min(low, 0.0) if zero else low, high, HEIGHT - BOTTOM, TOP)


def _round_step(rough: float) -> float:
    """The next of 1, 2, 2.5, 5 × a power of ten."""
    power: float = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * (1 - 1e-9))


def _grid(across: Axis, up: Axis, x_name: str, y_name: str, percent: bool = False) -> str:
    base = HEIGHT - BOTTOM
    parts = []
    for tick in up.ticks:
        y = up.place(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_tick(tick)}</text>')
    for tick in across.ticks:
        shown = f"{100 * tick:.0f}" if percent else _tick(tick)
        parts.append(f'<text x="{across.place(tick)}" y="{base + 16}" text-anchor="middle">{shown}</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 4}" text-anchor="end">{escape(x_name)}</text>')
    parts.append(f'<text x="4" y="{HEIGHT - 4}">↑ {escape(y_name)}</text>')
    return "".join(parts)


def _tick(value: float) -> str:
    if value and (abs(value) < 1e-3 or abs(value) >= 1e6):
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:.6g}"


def _line(line: Line, number: int, across: Axis, up: Axis) -> str:
    colour, dash = f"var(--c{number % COLOURS})", DASHES[number % len(DASHES)]
    points = [f"{across.place(x)},{up.place(y)}" for x, y in zip(line.x, line.y, strict=True)]
    dashed = f" stroke-dasharray='{dash}'" if dash else ""
    drawn = f'<polyline class="line" style="stroke:{colour}"{dashed} points="{" ".join(points)}"/>'
    if len(points) == 1:
        x, y = points[0].split(",")
        drawn = f'<circle cx="{x}" cy="{y}" r="3.5" style="fill:{colour}"/>'
    for mark in line.marks:
        fill = "var(--card)" if mark.hollow else colour
        drawn += (
            f'<circle cx="{across.place(mark.x)}" cy="{up.place(mark.y)}" r="5" '
            f'style="fill:{fill};stroke:{colour};stroke-width:2"><title>{escape(mark.text)}</title></circle>'
        )
    return drawn


def _legend(lines: Sequence[Line]) -> str:
    entries = []
    for number, line in enumerate(lines):
        dash = DASHES[number % len(DASHES)]
        dashed = f" stroke-dasharray='{dash}'" if dash else ""
        entries.append(
            f'<span><svg viewBox="0 0 26 12" aria-hidden="true"><line class="line" x1="1" x2="25" y1="6" y2="6" '
            f'style="stroke:var(--c{number % COLOURS})"{dashed}/></svg>{escape(line.name)}</span>'
        )
    return f'<div class="legend">{"".join(entries)}</div>'


def _figure(title: str, drawing: str, legend: str) -> str:
    return (
        f"<figure><h3>{escape(title)}</h3>{legend}"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{drawing}</svg></figure>'
    )
