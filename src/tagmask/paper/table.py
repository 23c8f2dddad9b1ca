"""A table of the paper: ours as mean ± standard deviation over random seeds, the paper's number beside it."""

import csv
import io
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

NONE = "–"
BLIND = ", blind"  # ends the title of a column whose threshold was chosen without masks
WIDTH = 118  # of notes in the terminal


@dataclass(frozen=True)
class Cell:
    """A number of ours for each random seed, and the paper's; a gain has an interval of its mean."""

    ours: tuple[float, ...] = ()
    paper: float | None = None
    interval: tuple[float, float] | None = None

    @property
    def mean(self) -> float:
        return float(np.mean(self.ours)) if self.ours else math.nan

    @property
    def std(self) -> float:
        """Standard deviation of the seeds as a sample of many (n − 1); nan for fewer than two."""
        return float(np.std(self.ours, ddof=1)) if len(self.ours) > 1 else math.nan

    def shown(self, digits: int = 1) -> str:
        """As a reader sees it."""
        if math.isnan(self.mean):
            return NONE
        if self.interval is not None:
            low, high = self.interval
            return f"{self.mean:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"
        spread = "" if math.isnan(self.std) else f" ± {self.std:.{digits}f}"
        return f"{self.mean:.{digits}f}{spread}"

    def shown_paper(self, digits: int = 1) -> str:
        return "" if self.paper is None else f"{self.paper:.{digits}f}"


@dataclass(frozen=True)
class Column:
    """What a column holds; ``digits`` after the point."""

    title: str
    digits: int = 1
    theirs: bool = False  # only numbers that the paper prints
    gain: bool = False  # differences with intervals


@dataclass(frozen=True)
class Row:
    """A labelled line of cells, one per column."""

    title: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Chart:
    """Columns over the numbers in the first one, as lines."""

    title: str
    columns: tuple[int, ...]  # places in the table
    x_name: str
    y_name: str


@dataclass(frozen=True)
class Table:
    """A whole table, ready to be written in any form."""

    name: str
    title: str
    head: str  # of the first column
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()

    def has_paper(self, place: int) -> bool:
        """Whether the paper has a number in this column."""
        return any(row.cells[place].paper is not None for row in self.rows)

    def heads(self) -> list[str]:
        """Titles of all columns, the paper's after ours."""
        titles = [self.head]
        for place, column in enumerate(self.columns):
            titles += (
                [column.title, "paper"]
                if self.has_paper(place) and not column.theirs
                else [column.title]
            )
        return titles

    def lines(self) -> list[list[str]]:
        """The rows as text, one string for each of ``heads``."""
        lines = []
        for row in self.rows:
            line = [row.title]
            for place, (column, cell) in enumerate(zip(self.columns, row.cells, strict=True)):
                line += [] if column.theirs else [cell.shown(column.digits)]
                line += (
                    [cell.shown_paper(column.digits)]
                    if column.theirs or self.has_paper(place)
                    else []
                )
            lines.append(line)
        return lines


def to_text(table: Table) -> str:
    """For the terminal: columns side by side, numbers to the right."""
    heads, lines = table.heads(), table.lines()
    widths = [max(len(line[i]) for line in [heads, *lines]) for i in range(len(heads))]

    def joined(line: Sequence[str]) -> str:
        words = [word.rjust(width) for word, width in zip(line[1:], widths[1:], strict=True)]
        return "  ".join([line[0].ljust(widths[0]), *words]).rstrip()

    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    return "\n".join(
        [table.title, "", joined(heads), rule, *map(joined, lines), "", *wrapped(table.notes)]
    )


def wrapped(notes: Sequence[str]) -> list[str]:
    return [line for note in notes for line in textwrap.wrap(note, WIDTH)]


def to_markdown(table: Table) -> str:
    """As GitHub and most editors show it."""
    heads = table.heads()
    rule = ["---", *["---:"] * (len(heads) - 1)]
    escaped = [
        [word.replace("|", "\\|") for word in line] for line in [heads, rule, *table.lines()]
    ]
    rows = [f"| {' | '.join(line)} |" for line in escaped]
    return (
        "\n".join([f"## {table.title}", "", *rows, "", *(f"- {note}" for note in table.notes)])
        + "\n"
    )


def to_csv(table: Table) -> str:
    """With all digits: for each column the mean, the standard deviation, the number of seeds and the paper's number.

    Of gains also the ends of the interval, and those of each seed.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    heads = [
        f"{column.title} {part}" for column in table.columns for part in _numbers(column, Cell())
    ]
    writer.writerow([table.head, *heads])
    for row in table.rows:
        cells = zip(table.columns, row.cells, strict=True)
        writer.writerow(
            [
                row.title,
                *(value for column, cell in cells for value in _numbers(column, cell).values()),
            ]
        )
    return file.getvalue()


def _numbers(column: Column, cell: Cell) -> dict[str, float | str | None]:
    """Of a column of the paper's numbers only these; None where there is no number."""
    ours = {} if column.theirs else {"mean": cell.mean, "std": cell.std, "seeds": len(cell.ours)}
    ends = (
        dict(zip(("low", "high"), cell.interval or (None, None), strict=True))
        if column.gain
        else {}
    )
    values = ours | {"paper": cell.paper} | ends
    each = {"each": " ".join(map(str, cell.ours))} if column.gain else {}
    return {
        part: None if value is None or math.isnan(value) else value
        for part, value in values.items()
    } | each
