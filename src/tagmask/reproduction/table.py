"""A table of the paper: ours as mean ± standard deviation over random seeds, theirs beside it."""

import csv
import io
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

NONE = "–"
# ends the title of a column whose threshold was chosen without masks
BLIND = ", blind"
# columns of notes in the terminal
WIDTH = 118


@dataclass(frozen=True)
class Cell:
    """Our number for each random seed, and the paper's; a gain has an interval of its mean."""

    ours: tuple[float, ...] = ()
    paper: float | None = None
    interval: tuple[float, float] | None = None

    @property
    def mean(self) -> float:
        """Return the mean over the seeds; nan without any."""
        return float(np.mean(self.ours)) if self.ours else math.nan

    @property
    def std(self) -> float:
        """Return the standard deviation of the seeds (n − 1); nan for fewer than two."""
        if len(self.ours) < 2:
            return math.nan
        return float(np.std(self.ours, ddof=1))

    def shown(self, digits: int = 1, signed: bool = False) -> str:
        """Return our number as a reader sees it, with its sign also where it is a plus.

        Args:
            digits: How many after the point.
            signed: Show its sign also where it is a plus.
        """
        if math.isnan(self.mean):
            return NONE
        if self.interval is not None:
            low, high = (f"{end:+.{digits}f}" for end in self.interval)
            return f"{self.mean:+.{digits}f} [{low}, {high}]"
        mean = f"{self.mean:+.{digits}f}" if signed else f"{self.mean:.{digits}f}"
        if math.isnan(self.std):
            return mean
        return f"{mean} ± {self.std:.{digits}f}"

    def shown_paper(self, digits: int = 1) -> str:
        """Return the paper's number as a reader sees it; empty if there is none."""
        return "" if self.paper is None else f"{self.paper:.{digits}f}"


@dataclass(frozen=True)
class Column:
    """What a column holds."""

    title: str
    digits: int = 1  # after the point
    theirs: bool = False  # only numbers that the paper prints
    gain: bool = False  # differences with intervals
    signed: bool = False  # differences without
    panel: str = ""  # part of the figure in which its gains are drawn; begins the title


@dataclass(frozen=True)
class TableRow:
    """A labelled line of cells, one per column."""

    title: str
    cells: tuple[Cell, ...]
    digits: int | None = None  # after the point; default: as the columns say


@dataclass(frozen=True)
class Chart:
    """Columns over the numbers in the first one, as lines."""

    title: str
    columns: tuple[int, ...]  # indices of the table's columns
    x_name: str
    y_name: str


@dataclass(frozen=True)
class Table:
    """A whole table, ready to be written in any form."""

    name: str
    title: str
    head: str  # of the first column
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()

    def has_paper(self, place: int) -> bool:
        """Return True if the paper has a number in the column with this index."""
        return any(row.cells[place].paper is not None for row in self.rows)

    def heads(self) -> list[str]:
        """Return the titles of all columns, the paper's after ours."""
        titles = [self.head]
        for index, column in enumerate(self.columns):
            titles.append(column.title)
            if self.has_paper(index) and not column.theirs:
                titles.append("paper")
        return titles

    def lines(self) -> list[list[str]]:
        """Return the rows as text, with a string for each of ``heads``."""
        lines = []
        for row in self.rows:
            line = [row.title]
            pairs = zip(self.columns, row.cells, strict=True)
            for index, (column, cell) in enumerate(pairs):
                digits = column.digits if row.digits is None else row.digits
                if not column.theirs:
                    line.append(cell.shown(digits, column.signed))
                if column.theirs or self.has_paper(index):
                    line.append(cell.shown_paper(digits))
            lines.append(line)
        return lines


def to_text(table: Table) -> str:
    """Return the table for the terminal: columns side by side, numbers to the right."""
    heads = table.heads()
    lines = table.lines()
    widths = []
    for words in zip(heads, *lines, strict=True):
        widths.append(max(map(len, words)))
    gaps = 2 * (len(widths) - 1)
    rule = "-" * (sum(widths) + gaps)
    rows = [_aligned(line, widths) for line in lines]
    above = [table.title, "", _aligned(heads, widths), rule]
    return "\n".join([*above, *rows, "", *wrapped(table.notes)])


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    """Join the words of a line, the first aligned to the left, the others to the right."""
    words = [line[0].ljust(widths[0])]
    for word, width in zip(line[1:], widths[1:], strict=True):
        words.append(word.rjust(width))
    return "  ".join(words).rstrip()


def wrapped(notes: Sequence[str]) -> list[str]:
    """Return the lines of notes, wrapped for the terminal."""
    lines = []
    for note in notes:
        lines += textwrap.wrap(note, WIDTH)
    return lines


def to_markdown(table: Table) -> str:
    """Return the table as GitHub and most editors show it."""
    heads = table.heads()
    rule = ["---", *["---:"] * (len(heads) - 1)]
    text = [f"## {table.title}", ""]
    for line in (heads, rule, *table.lines()):
        words = [word.replace("|", "\\|") for word in line]
        text.append(f"| {' | '.join(words)} |")
    text.append("")
    text += [f"- {note}" for note in table.notes]
    return "\n".join(text) + "\n"


def to_csv(table: Table) -> str:
    """Return the table with all digits.

    Each column has mean, standard deviation, number of seeds and the paper's number; a gain also
    the ends of its interval, and the gain of each seed.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    heads = [table.head]
    for column in table.columns:
        heads += [f"{column.title} {part}" for part in _numbers(column, Cell())]
    writer.writerow(heads)
    for row in table.rows:
        line: list[float | str | None] = [row.title]
        for column, cell in zip(table.columns, row.cells, strict=True):
            line += _numbers(column, cell).values()
        writer.writerow(line)
    return file.getvalue()


def _numbers(column: Column, cell: Cell) -> dict[str, float | str | None]:
    """Return what the CSV has of a cell, by name; None where there is no number.

    A column of the paper's numbers has only these.
    """
    numbers: dict[str, float | None] = {}
    if not column.theirs:
        numbers |= {"mean": cell.mean, "std": cell.std, "seeds": len(cell.ours)}
    numbers["paper"] = cell.paper
    if column.gain:
        numbers["low"], numbers["high"] = cell.interval or (None, None)
    values: dict[str, float | str | None] = {}
    for name, number in numbers.items():
        is_known = number is not None and not math.isnan(number)
        values[name] = number if is_known else None
    if column.gain:
        values["each"] = " ".join(map(str, cell.ours))
    return values
