"""The score over the background threshold as a plot (docs/method.md §3)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tagmask.errors import TagmaskError
from tagmask.files import replacing
from tagmask.scoring.sweep import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")
# Okabe and Ito's colours, made for all kinds of colour vision; the lines differ in their dashes as well.
COLOURS = ("#0072B2", "#D55E00", "#007A5A", "#A0457D", "#E69F00", "#56B4E9")
DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 2)),
    (0, (1.2, 1.4)),
    (0, (7, 2, 1.5, 2)),
    (0, (3, 1, 1, 1, 1, 1)),
    (0, (12, 3)),
)
SYMBOLS = ("o", "s", "D", "^", "v", "P")


def curve_plot(
    path: str | Path, curves: Mapping[str, Curve], chosen: Mapping[str, float | Mapping[str, float]] = {}
) -> None:
    """Plot mIoU (classes present, in per cent) over the threshold, and write it as PNG or SVG by the path's suffix.

    curves: by name. chosen: thresholds chosen without ground truth, {way: threshold} for all curves, or
    {curve name: {way: threshold}}. The oracle threshold of each curve is a filled star, the others are hollow symbols.
    The file appears under its name only when it is complete.
    """
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise TagmaskError(f"{path} ends in neither {' nor '.join(FORMATS)}; give the plot one of these endings.")
    figure = draw_curves(curves, chosen)
    kind = path.suffix.lower()[1:]
    with replacing(path) as partial:
        # Without a date the same curve gives the same SVG text.
        figure.savefig(partial, format=kind, metadata={"Date": None} if kind == "svg" else None)


def draw_curves(curves: Mapping[str, Curve], chosen: Mapping[str, float | Mapping[str, float]] = {}) -> Figure:
    """The figure of `curve_plot`, not yet written."""
    from matplotlib.figure import Figure

    if not curves:
        raise TagmaskError("there is no curve to plot; give at least one, {name: curve}.")
    ways = {name: _ways_of(name, curves, chosen) for name in curves}
    entries = sum(2 + len(found) for found in ways.values())
    figure = Figure(figsize=(8.4, max(4.2, 1 + 0.23 * entries)), dpi=130, layout="constrained")
    axes = figure.add_subplot()
    symbols = list(dict.fromkeys(way for found in ways.values() for way in found))
    for index, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[index % len(COLOURS)]
        axes.plot(curve.thresholds, 100 * curve.miou_present, color=colour, ls=DASHES[index % len(DASHES)], label=name)
        _mark(axes, curve, "oracle", curve.best_threshold, ls="", marker="*", ms=15, color=colour, mec="black", mew=0.6)
        for way, threshold in ways[name].items():
            shape = SYMBOLS[symbols.index(way) % len(SYMBOLS)]
            _mark(axes, curve, way, threshold, ls="", marker=shape, ms=9.5, mfc="none", color=colour, mew=1.8)
    _finish(figure, axes, hollow=bool(symbols))
    return figure


def _ways_of(
    name: str, curves: Mapping[str, Curve], chosen: Mapping[str, float | Mapping[str, float]]
) -> dict[str, float]:
    """The chosen thresholds of one curve, each of which must be one of its thresholds."""
    ways: dict[str, float] = {}
    for key, value in chosen.items():
        if not isinstance(value, Mapping):
            ways[key] = float(value)
        elif key == name:
            ways.update(value)
        elif key not in curves:
            raise TagmaskError(
                f'thresholds are given for "{key}", the curves are {", ".join(curves)}; name one of these.'
            )
    for threshold in ways.values():
        curves[name].at(threshold)
    return ways


def _mark(axes: Axes, curve: Curve, what: str, threshold: float, **style: Any) -> None:
    score = 100 * curve.at(threshold).miou_present
    axes.plot(
        [threshold],
        [score],
        label=f"{what.replace('_', ' ')}: {score:.1f} at {threshold:g}",
        zorder=3,
        clip_on=False,
        **style,
    )


def _finish(figure: Figure, axes: Axes, hollow: bool) -> None:
    axes.set_xlabel("background threshold")
    axes.set_ylabel("mIoU [%]")
    axes.set_xlim(0, 1)
    axes.set_ylim(bottom=0)
    axes.grid(color="0.88", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    note = "star: chosen with ground truth" + ("\nhollow: chosen without" if hollow else "")
    legend = figure.legend(loc="outside right upper", frameon=False, title=note, title_fontsize=9, alignment="left")
    legend.get_title().set_color("0.35")
