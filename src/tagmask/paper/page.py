"""The files of a table or figure: one HTML page each, pictures, Markdown and CSV."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tagmask.files import write_text
from tagmask.paper.table import BLIND, Chart, Table, to_csv, to_markdown, to_text, wrapped
from tagmask.report.charts import Chart as LineChart
from tagmask.report.charts import Line, line_chart
from tagmask.report.page import data_uri, render
from tagmask.show.curve import COLOURS, DASHES, SYMBOLS, save_figure, tidy
from tagmask.show.sheet import Picture, save_picture

LONGEST, QUALITY = 2400, 88  # of pictures on the page


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
        return "\n".join(
            [
                self.text,
                *([""] if self.files else []),
                *(f"{file.suffix[1:]}: {file}" for file in self.files),
            ]
        )


def write(made: Table | Figure, out: Path, how: str) -> Written:
    """Write the files of a table or figure into ``out``; ``how`` says what was run."""

    def named(kind: str) -> Path:
        return out / f"{made.name}.{kind}"

    if isinstance(made, Figure):
        save_picture(named("png"), made.picture)
        uri = data_uri(made.picture, LONGEST, QUALITY)
        write_text(
            named("html"),
            render("paper.html", title=made.title, subtitle=how, made=made, uri=uri, charts=[]),
        )
        return Written("\n".join([made.title, *wrapped(made.notes)]), (named("png"), named("html")))
    texts = {"md": to_markdown(made), "csv": to_csv(made), "html": table_page(made, how)}
    for kind, text in texts.items():
        write_text(named(kind), text)
    is_drawn = made.charts or any(column.gain for column in made.columns)
    if is_drawn:
        (save_plot if made.charts else save_gains)(named("png"), made)
    return Written(
        to_text(made), tuple(named(kind) for kind in (*texts, *(["png"] if is_drawn else [])))
    )


def table_page(made: Table, how: str) -> str:
    """The table, sortable, and its charts."""
    charts = [_chart(made, chart) for chart in made.charts]
    return render("paper.html", title=made.title, subtitle=how, made=made, uri="", charts=charts)


def _chart(made: Table, chart: Chart) -> LineChart:
    x = [float(row.title) for row in made.rows]
    lines = [
        Line(made.columns[i].title, x, [row.cells[i].mean for row in made.rows])
        for i in chart.columns
    ]
    return line_chart(chart.title, lines, chart.x_name, chart.y_name, zero=True)


def save_plot(path: Path, table: Table) -> None:
    """Write every chart of ``table`` side by side (PNG), with the standard deviation of the random seeds as bars."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.4 * len(table.charts), 3.8), dpi=130, layout="constrained")
    x = [float(row.title) for row in table.rows]
    for axes, chart in zip(
        figure.subplots(1, len(table.charts), squeeze=False)[0], table.charts, strict=True
    ):
        for number, place in enumerate(chart.columns):
            cells = [row.cells[place] for row in table.rows]
            means, deviations = [cell.mean for cell in cells], [cell.std for cell in cells]
            style = {
                "color": COLOURS[number % len(COLOURS)],
                "ls": DASHES[number % len(DASHES)],
                "marker": "o",
            }
            axes.errorbar(
                x, means, deviations, ms=4, capsize=3, label=table.columns[place].title, **style
            )
        axes.set_title(chart.title, fontsize=10)
        tidy(axes, xlabel=chart.x_name, ylabel=chart.y_name, xticks=x, ylim=(0, None))
        axes.legend(frameon=False, fontsize=9)
    save_figure(path, figure)


def save_gains(path: Path, table: Table) -> None:
    """Write the gains of ``table`` as points with intervals, and those of each random seed (×), as PNG."""
    from matplotlib.figure import Figure

    gains = {
        place: column.title.endswith(BLIND)
        for place, column in enumerate(table.columns)
        if column.gain
    }
    titles = {False: "threshold tuned on the masks", True: "threshold chosen without masks"}
    panels = [
        (title, [place for place in gains if gains[place] is blind])
        for blind, title in titles.items()
    ]
    if not any(gains.values()):  # all by one kind of threshold
        panels = [(table.title, list(gains))]
    figure = Figure(
        figsize=(2.4 + 3.6 * len(panels), 1.4 + 0.36 * len(table.rows)),
        dpi=130,
        layout="constrained",
    )
    subplots = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (title, places) in zip(subplots, panels, strict=True):
        for number, place in enumerate(places):
            offset = 0.22 * (number - (len(places) - 1) / 2)
            y = [len(table.rows) - line - offset for line in range(len(table.rows))]
            cells = [row.cells[place] for row in table.rows]
            x = [cell.mean for cell in cells]
            ends = np.array(
                [cell.interval or (cell.mean, cell.mean) for cell in cells]
            )  # (rows, 2)
            label = table.columns[place].title.removesuffix(BLIND)
            style = {
                "fmt": SYMBOLS[number],
                "ms": 4.5,
                "capsize": 2.5,
                "color": COLOURS[number],
                "label": label,
            }
            axes.errorbar(x, y, xerr=abs(ends.T - x), **style)
            for cell, height in zip(cells, y, strict=True):
                axes.plot(
                    cell.ours,
                    [height] * len(cell.ours),
                    "x",
                    ms=4,
                    color=COLOURS[number],
                    alpha=0.5,
                )
        axes.axvline(0, color="0.4", lw=1)
        axes.set_title(title, fontsize=10)
        axes.set_yticks(range(len(table.rows), 0, -1), [row.title for row in table.rows])
        tidy(axes, "x", xlabel="gain over the baseline, points of mIoU")
    figure.legend(
        *axes.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=3,
        frameon=False,
        fontsize=9,
    )
    save_figure(path, figure)
