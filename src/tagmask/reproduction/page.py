"""The files of a table or figure: one HTML page each, pictures, Markdown and CSV."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tagmask.files import write_text
from tagmask.report.charts import Chart as LineChart
from tagmask.report.charts import Line, line_chart
from tagmask.report.page import data_uri, render
from tagmask.reproduction.overview import Overview
from tagmask.reproduction.table import (
    BLIND,
    Cell,
    Chart,
    Table,
    to_csv,
    to_markdown,
    to_text,
    wrapped,
)
from tagmask.show.curve import COLOURS, DASHES, SYMBOLS, save_figure, tidy
from tagmask.show.sheet import Picture, save_picture

# longer side in pixels and JPEG quality of pictures on the page
LONGEST = 2400
QUALITY = 88


@dataclass(frozen=True)
class Figure:
    """A figure of the paper as one picture."""

    name: str
    title: str
    picture: Picture
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Written:
    """A table or figure as text, and its files."""

    text: str
    files: tuple[Path, ...] = ()

    def summary(self) -> str:
        """Return the text, and below it a line for each file."""
        lines = [self.text]
        if self.files:
            lines.append("")
        lines += [f"{file.suffix[1:]}: {file}" for file in self.files]
        return "\n".join(lines)


def write(made: Table | Figure | Overview, out: Path, how: str) -> Written:
    """Write the files of a table or figure, or of all of them.

    Args:
        made: The table or figure; its name is that of the files.
        out: Folder of the files.
        how: A sentence on what was run.
    """
    if isinstance(made, Figure):
        return _write_figure(made, out, how)
    if isinstance(made, Overview):
        page = made.page(how)
        made = made.table()
    else:
        page = table_page(made, how)
    texts = {"md": to_markdown(made), "csv": to_csv(made), "html": page}
    files = []
    for kind, text in texts.items():
        file = out / f"{made.name}.{kind}"
        write_text(file, text)
        files.append(file)
    plot = out / f"{made.name}.png"
    if made.charts:
        save_plot(plot, made)
        files.append(plot)
    elif any(column.gain for column in made.columns):
        save_gains(plot, made)
        files.append(plot)
    return Written(to_text(made), tuple(files))


def _write_figure(made: Figure, out: Path, how: str) -> Written:
    picture = out / f"{made.name}.png"
    save_picture(picture, made.picture)
    uri = data_uri(made.picture, LONGEST, QUALITY)
    text = render("paper.html", title=made.title, subtitle=how, made=made, uri=uri, charts=[])
    page = out / f"{made.name}.html"
    write_text(page, text)
    lines = [made.title, *wrapped(made.notes)]
    return Written("\n".join(lines), (picture, page))


def table_page(made: Table, how: str) -> str:
    """Return the page of a table: the table, sortable, and its charts.

    Args:
        made: The table.
        how: A sentence on what was run.
    """
    charts = [_chart(made, chart) for chart in made.charts]
    return render("paper.html", title=made.title, subtitle=how, made=made, uri="", charts=charts)


def _chart(made: Table, chart: Chart) -> LineChart:
    x = [float(row.title) for row in made.rows]
    lines = []
    for index in chart.columns:
        means = [row.cells[index].mean for row in made.rows]
        title = made.columns[index].title
        lines.append(Line(title, x, means))
    return line_chart(chart.title, lines, chart.x_name, chart.y_name, zero=True)


def save_plot(path: Path, table: Table) -> None:
    """Write all charts of a table side by side, with the deviation of the random seeds as bars.

    Args:
        path: The PNG file to write.
        table: A table with charts; the titles of its rows are numbers.
    """
    from matplotlib.figure import Figure

    count = len(table.charts)
    figure = Figure(figsize=(5.4 * count, 3.8), dpi=130, layout="constrained")
    subplots = figure.subplots(1, count, squeeze=False)[0]
    x = [float(row.title) for row in table.rows]
    for axes, chart in zip(subplots, table.charts, strict=True):
        for number, index in enumerate(chart.columns):
            cells = [row.cells[index] for row in table.rows]
            means = [cell.mean for cell in cells]
            deviations = [cell.std for cell in cells]
            axes.errorbar(
                x,
                means,
                deviations,
                ms=4,
                capsize=3,
                label=table.columns[index].title,
                color=COLOURS[number % len(COLOURS)],
                ls=DASHES[number % len(DASHES)],
                marker="o",
            )
        axes.set_title(chart.title, fontsize=10)
        tidy(axes, xlabel=chart.x_name, ylabel=chart.y_name, xticks=x, ylim=(0, None))
        axes.legend(frameon=False, fontsize=9)
    save_figure(path, figure)


def save_gains(path: Path, table: Table) -> None:
    """Write the gains of a table as points with intervals, and those of each random seed as ×.

    Args:
        path: The PNG file to write.
        table: A table with columns of gains.
    """
    from matplotlib.figure import Figure

    panels = _gain_panels(table)
    rows = len(table.rows)
    titles = [row.title for row in table.rows]
    figure = Figure(
        figsize=(2.4 + 3.6 * len(panels), 1.4 + 0.36 * rows), dpi=130, layout="constrained"
    )
    subplots = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (title, columns) in zip(subplots, panels, strict=True):
        for number, index in enumerate(columns):
            # the columns of a panel are drawn a little above each other in every row
            offset = 0.22 * (number - (len(columns) - 1) / 2)
            heights = [rows - line - offset for line in range(rows)]
            cells = [row.cells[index] for row in table.rows]
            column = table.columns[index]
            label = column.title.removesuffix(BLIND).removeprefix(f"{column.panel}, ")
            _draw_gains(axes, cells, heights, number, label)
        axes.axvline(0, color="0.4", lw=1)
        axes.set_title(title, fontsize=10)
        axes.set_yticks(range(rows, 0, -1), titles)
        over = "" if table.columns[columns[0]].panel else " over the baseline"
        tidy(axes, "x", xlabel=f"gain{over}, points of mIoU")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    save_figure(path, figure)


def _gain_panels(table: Table) -> list[tuple[str, list[int]]]:
    """Return the title of each panel and the indices of its columns.

    Without panels of their own, columns are parted by kind of threshold.
    """
    named: dict[str, list[int]] = {}
    for index, column in enumerate(table.columns):
        if column.gain and column.panel:
            named.setdefault(column.panel, []).append(index)
    if named:
        return list(named.items())
    oracle = []
    mask_free = []
    for index, column in enumerate(table.columns):
        if column.gain and column.title.endswith(BLIND):
            mask_free.append(index)
        elif column.gain:
            oracle.append(index)
    if not mask_free:
        return [(table.title, oracle)]
    return [
        ("threshold tuned on the masks", oracle),
        ("threshold chosen without masks", mask_free),
    ]


def _draw_gains(
    axes: Any, cells: Sequence[Cell], heights: Sequence[float], number: int, label: str
) -> None:
    """Draw one column of gains: a point with its interval in each row, and a × for each seed."""
    means = [cell.mean for cell in cells]
    # without an interval both ends are the mean itself
    intervals = [cell.interval or (cell.mean, cell.mean) for cell in cells]
    ends = np.array(intervals)  # (rows, 2)
    colour = COLOURS[number]
    axes.errorbar(
        means,
        heights,
        xerr=abs(ends.T - means),
        fmt=SYMBOLS[number],
        ms=4.5,
        capsize=2.5,
        color=colour,
        label=label,
    )
    for cell, height in zip(cells, heights, strict=True):
        level = [height] * len(cell.ours)
        axes.plot(cell.ours, level, "x", ms=4, color=colour, alpha=0.5)
