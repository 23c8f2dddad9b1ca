"""A table's charts as one picture, with the standard deviation of the random seeds as bars."""

from pathlib import Path

from tagmask.files import replacing
from tagmask.paper.table import Table
from tagmask.show.curve import COLOURS, DASHES


def save_plot(path: Path, table: Table) -> None:
    """Write every chart of ``table`` side by side (PNG); the file appears only when it is complete."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.4 * len(table.charts), 3.8), dpi=130, layout="constrained")
    x = [float(row.title) for row in table.rows]
    for axes, chart in zip(figure.subplots(1, len(table.charts), squeeze=False)[0], table.charts, strict=True):
        for number, place in enumerate(chart.columns):
            cells = [row.cells[place] for row in table.rows]
            axes.errorbar(
                x,
                [cell.mean for cell in cells],
                [cell.std for cell in cells],
                color=COLOURS[number % len(COLOURS)],
                ls=DASHES[number % len(DASHES)],
                marker="o",
                ms=4,
                capsize=3,
                label=table.columns[place].title,
            )
        axes.set_title(chart.title, fontsize=10)
        axes.set_xlabel(chart.x_name)
        axes.set_ylabel(chart.y_name)
        axes.set_xticks(x)
        axes.set_ylim(bottom=0)
        axes.grid(color="0.88", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9)
    with replacing(path) as partial:
        figure.savefig(partial, format="png")
