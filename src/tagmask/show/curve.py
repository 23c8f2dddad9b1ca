"""The score over the background threshold as a plot (docs/method.md §3)."""

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

# Okabe and Ito's colours, made for all kinds of colour vision; the lines differ in their dashes as well.
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
    """Plot mIoU (classes present, in per cent) over the threshold as PNG; the file appears only when it is complete.

    curves: by name. chosen: thresholds chosen without ground truth, each a threshold of its curve. The oracle
    threshold of each curve is a filled star, the others are hollow symbols.
    """
    save_figure(path, draw_curves(curves, chosen))


def draw_curves(curves: Mapping[str, Curve], chosen: Chosen) -> Figure:
    """The figure of `curve_plot`, not yet written."""
    from matplotlib.figure import Figure

    if not curves:
        raise TagmaskError("there is no curve to plot; give at least one, {name: curve}.")
    unknown = [name for name in chosen if name not in curves]
    if unknown:
        raise TagmaskError(
            f'thresholds are given for "{unknown[0]}", the curves are {", ".join(curves)}; name one of these.'
        )
    rules = list(dict.fromkeys(rule for thresholds in chosen.values() for rule in thresholds))
    entries = 2 * len(curves) + sum(map(len, chosen.values()))
    figure = Figure(figsize=(8.4, max(4.2, 1 + 0.23 * entries)), dpi=130, layout="constrained")
    axes = figure.add_subplot()
    for index, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[index % len(COLOURS)]
        axes.plot(
            curve.thresholds,
            100 * curve.miou_present,
            color=colour,
            ls=DASHES[index % len(DASHES)],
            label=name,
        )
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
        for rule, threshold in chosen.get(name, {}).items():
            shape = SYMBOLS[rules.index(rule) % len(SYMBOLS)]
            _mark(
                axes,
                curve,
                rule,
                threshold,
                marker=shape,
                ms=9.5,
                mfc="none",
                color=colour,
                mew=1.8,
            )
    tidy(
        axes,
        xlabel="background threshold",
        ylabel="mIoU [%]",
        xlim=(0, 1),
        ylim=(0, None),
        axisbelow=True,
    )
    note = "star: chosen with ground truth" + ("\nhollow: chosen without" if rules else "")
    legend = figure.legend(
        loc="outside right upper", frameon=False, title=note, title_fontsize=9, alignment="left"
    )
    legend.get_title().set_color("0.35")
    return figure


def _mark(axes: Axes, curve: Curve, rule: str, threshold: float, **style: Any) -> None:
    score = 100 * curve.at(threshold).miou_present
    label = f"{rule.replace('_', ' ')}: {score:.1f} at {threshold:g}"
    axes.plot([threshold], [score], label=label, ls="", zorder=3, clip_on=False, **style)


def tidy(axes: Axes, grid: Literal["both", "x"] = "both", **values: Any) -> None:
    """Set labels, limits and ticks; a pale grid, and no frame above and at the right."""
    axes.set(**values)
    axes.grid(axis=grid, color="0.88", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)


def save_figure(path: Path, figure: Figure) -> None:
    """Write a figure as PNG; the file appears only when it is complete."""
    with replacing(path) as partial:
        figure.savefig(partial, format="png")
