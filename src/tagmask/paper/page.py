"""Tables and figures as one HTML page each, and all their files."""

from dataclasses import dataclass
from pathlib import Path

from tagmask.files import write_text
from tagmask.paper.plot import save_plot
from tagmask.paper.table import Chart, Row, Table, to_csv, to_markdown, to_text, wrapped
from tagmask.show.chart import Line, line_chart
from tagmask.show.html import Cell, data_uri, escape, page, paragraph, section, table
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
    """What was made, and where it is."""

    told: str
    files: tuple[Path, ...]

    def summary(self) -> str:
        return "\n".join([self.told, "", *(f"{file.suffix[1:]}: {file}" for file in self.files)])


def write(made: Table | Figure, out: Path, how: str) -> Written:
    """Write the files of a table or figure into ``out``; ``how`` says what was run."""

    def named(kind: str) -> Path:
        return out / f"{made.name}.{kind}"

    if isinstance(made, Figure):
        save_picture(named("png"), made.picture)
        write_text(named("html"), figure_page(made, how))
        return Written("\n".join([made.title, *wrapped(made.notes)]), (named("png"), named("html")))
    texts = {"md": to_markdown(made), "csv": to_csv(made), "html": table_page(made, how)}
    for kind, text in texts.items():
        write_text(named(kind), text)
    if made.charts:
        save_plot(named("png"), made)
    return Written(to_text(made), tuple(named(kind) for kind in (*texts, *(["png"] if made.charts else []))))


def table_page(made: Table, how: str) -> str:
    """The table, sortable, and its charts."""
    body = table(made.heads(), [_cells(made, row) for row in made.rows])
    notes = [paragraph(note, "muted") for note in made.notes]
    parts = [section(made.name, "Ours beside the paper's", body, *notes)]
    if made.charts:
        drawn = "".join(_chart(made, chart) for chart in made.charts)
        parts.append(section("plot", "Plot", f'<div class="charts">{drawn}</div>'))
    return page(made.title, "\n".join([f"<h1>{escape(made.title)}</h1>", paragraph(how, "under"), *parts]))


def figure_page(made: Figure, how: str) -> str:
    """The picture inside the page."""
    uri = data_uri(made.picture, LONGEST, QUALITY)
    image = f'<img src="{uri}" alt="{escape(made.title)}" style="max-width:100%;height:auto">'
    notes = [paragraph(note, "muted") for note in made.notes]
    body = section(made.name, "Ours", image, *notes)
    return page(made.title, "\n".join([f"<h1>{escape(made.title)}</h1>", paragraph(how, "under"), body]))


def _chart(made: Table, chart: Chart) -> str:
    x = [float(row.title) for row in made.rows]
    lines = [Line(made.columns[i].title, x, [row.cells[i].mean for row in made.rows]) for i in chart.columns]
    return line_chart(chart.title, lines, chart.x_name, chart.y_name, zero=True)


def _cells(made: Table, row: Row) -> list[Cell]:
    found = [Cell(escape(row.title), row.title.lower(), "name")]
    for place, (column, cell) in enumerate(zip(made.columns, row.cells, strict=True)):
        key = None if cell.shown() == "–" else round(cell.mean, 6)
        found.append(Cell(escape(cell.shown(column.digits)), key, "number"))
        if made.has_paper(place):
            found.append(Cell(f"<i>{cell.shown_paper(column.digits)}</i>", cell.paper, "number"))
    return found
