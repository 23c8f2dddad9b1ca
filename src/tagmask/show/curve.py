"""The score over the background threshold as a plot (docs/explanation/method.md §3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tagmask.errors import TagmaskError
from tagmask.files import replacing
from tagmask.scoring.sweep import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, made for all kinds of colour vision; the lines differ in their dashes as
# well.
COLOURS = ("#0072B2", "#D55E00", "#007A5A", "#A0457D", "#E69F00", "#56B4E9")
DASHES: Sequence[Any] = (
    "-",
    (0, (5, 2)),
    (0, (1.2, 1.4)),
    (0, (7, 2, 1.5, 2)),
    (0, (3, 1, 1, 1, 1, 1)),
    (0, (12, 3)),
)
SYMBOLS = ("o", "s", "D", "^", "v", "P")
Chosen = Mapping[str, Mapping[str, float]]  # curve name: {rule: threshold}


def curve_plot(path: Path, curves: Mapping[str, Curve], chosen: Chosen) -> None:
    """Plot mIoU (classes present, in per cent) over the threshold as PNG.

    The oracle threshold of each curve is a filled star, the others are hollow symbols.

    Args:
        path: the PNG file; it appears only when it is complete.
        curves: scores over the threshold, by name.
        chosen: for some of these names, thresholds chosen without ground truth, by rule; each is a
            threshold of its curve.

    Raises:
        TagmaskError: there is no curve, or ``chosen`` names another one.
    """
    save_figure(path, draw_curves(curves, chosen))


def draw_curves(curves: Mapping[str, Curve], chosen: Chosen) -> Figure:
    """Return the figure of `curve_plot`, not yet written.

    Args:
        curves: scores over the threshold, by name.
        chosen: for some of these names, thresholds chosen without ground truth, by rule.

    Raises:
        TagmaskError: there is no curve, or ``chosen`` names another one.
    """
    from matplotlib.figure import Figure

    if not curves:
        raise TagmaskError("there is no curve to plot; give at least one, {name: curve}.")
    unknown = [name for name in chosen if name not in curves]
    if unknown:
        raise TagmaskError(
            f'thresholds are given for "{unknown[0]}", the curves are {", ".join(curves)}; '
            "name one of these."
        )
    rules: list[str] = []
    entries = 2 * len(curves)  # of the legend
    for thresholds in chosen.values():
        entries += len(thresholds)
        rules += [rule for rule in thresholds if rule not in rules]
    height = max(4.2, 1 + 0.23 * entries)
    figure = Figure(figsize=(8.4, height), dpi=130, layout="constrained")
    axes = figure.add_subplot()
    for index, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[index % len(COLOURS)]
        dashes = DASHES[index % len(DASHES)]
        scores = 100 * curve.miou_present
        axes.plot(curve.thresholds, scores, color=colour, ls=dashes, label=name)
        _mark_thresholds(axes, curve, colour, chosen.get(name, {}), rules)
    tidy(
        axes,
        xlabel="background threshold",
        ylabel="mIoU [%]",
        xlim=(0, 1),
        ylim=(0, None),
        axisbelow=True,
    )
    note = "star: chosen with ground truth"
    if rules:
        note += "\nhollow: chosen without"
    legend = figure.legend(
        loc="outside right upper",
        frameon=False,
        title=note,
        title_fontsize=9,
        alignment="left",
    )
    legend.get_title().set_color("0.35")
    return figure


def _mark_thresholds(
    axes: Axes,
    curve: Curve,
    colour: str,
    thresholds: Mapping[str, float],
    rules: Sequence[str],
) -> None:
    """Mark the oracle threshold with a star and the others with the symbols of their rules."""
    _mark(
        axes,
        curve,
        "oracle",
        curve.best_threshold,
        marker="*",
        ms=15,
        color=colour,
        mec="black",
        mew=0.6,
    )
    for rule, threshold in thresholds.items():
        symbol = SYMBOLS[rules.index(rule) % len(SYMBOLS)]
        _mark(
            axes,
            curve,
            rule,
            threshold,
            marker=symbol,
            ms=9.5,
            mfc="none",
            color=colour,
            mew=1.8,
        )


def _mark(axes: Axes, curve: Curve, rule: str, threshold: float, **style: Any) -> None:
    score = 100 * curve.at(threshold).miou_present
    label = f"{rule.replace('_', ' ')}: {score:.1f} at {threshold:g}"
    axes.plot([threshold], [score], label=label, ls="", zorder=3, clip_on=False, **style)


def tidy(axes: Axes, grid: Literal["both", "x"] = "both", **values: Any) -> None:
    """Set labels, limits and ticks; a pale grid, and no frame above and at the right.

    Args:
        axes: the axes to change.
        grid: draw grid lines across both axes or across x only.
        **values: what ``Axes.set`` takes.
    """
    axes.set(**values)
    axes.grid(axis=grid, color="0.88", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)


def save_figure(path: Path, figure: Figure) -> None:
    """Write a figure as PNG; the file appears only when it is complete.

    Args:
        path: the PNG file.
        figure: the figure.
    """
    with replacing(path) as partial:
        figure.savefig(partial, format="png")
