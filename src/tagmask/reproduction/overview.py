"""The page of all tables and figures: the paper's numbers, ours, and how they were made."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tagmask.report.page import render
from tagmask.reproduction.label_tables import COMPARED, OURS, PLAIN
from tagmask.reproduction.names import EVERYTHING, NAMES
from tagmask.reproduction.table import Cell, Column, Table, TableRow

MADE = "made"
REFUSED = "not made"
WAITING = "to do"


@dataclass(frozen=True)
class Number:
    """A number that the paper prints, beside what was measured here."""

    part: str  # name of its table
    row: str
    column: str
    cell: Cell
    digits: int = 1

    @property
    def title(self) -> str:
        """Return where the number stands, in one line."""
        return f"{NAMES[self.part].where}, {self.part}: {self.row}, {self.column}"

    @property
    def difference(self) -> Cell:
        """Return ours minus the paper's, for each random seed."""
        paper = self.cell.paper or 0.0
        return Cell(tuple(ours - paper for ours in self.cell.ours))


@dataclass(frozen=True)
class Part:
    """A table or figure among all: whether it is made, how, and what the page shows of it."""

    name: str
    state: str = WAITING
    how: str = ""
    # what was measured and in what it is not the paper's, in the words of the table's notes
    notes: tuple[str, ...] = ()
    # names of the files beside the page
    files: tuple[str, ...] = ()
    numbers: tuple[Number, ...] = ()
    # the picture of a figure, or the plot of a table, as a data URI
    uri: str = ""

    @property
    def where(self) -> str:
        """Return where the paper has it."""
        return NAMES[self.name].where

    @property
    def title(self) -> str:
        """Return what it is about."""
        return NAMES[self.name].title

    @property
    def page(self) -> str:
        """Return the file name of its own page; empty if there is none."""
        return next((file for file in self.files if file.endswith(".html")), "")

    @property
    def sentence(self) -> str:
        """Return how it was made, or why not, in one line."""
        if self.state != MADE:
            return f"{self.name}: {self.state}" + (f": {self.how}" if self.how else ".")
        return f"{self.name}: {self.how} Files: {', '.join(self.files)}."


@dataclass(frozen=True)
class Overview:
    """All tables and figures of a data set."""

    parts: tuple[Part, ...]
    notes: tuple[str, ...] = ()

    name = EVERYTHING
    title = "The paper's numbers, and ours"

    @property
    def numbers(self) -> list[Number]:
        """Return the numbers of all tables, in the order of the paper."""
        return [number for part in self.parts for number in part.numbers]

    @property
    def figures(self) -> list[Part]:
        """Return the figures and plots that are made."""
        return [part for part in self.parts if part.uri]

    def progress(self) -> str:
        """Say how many are made, cannot be made, and are still to do."""
        count = {
            state: sum(part.state == state for part in self.parts)
            for state in (MADE, REFUSED, WAITING)
        }
        text = f"{count[MADE]} of {len(self.parts)} tables and figures are made"
        if count[REFUSED]:
            text += f", {count[REFUSED]} cannot be made of these data"
        if count[WAITING]:
            text += f", {count[WAITING]} still to do"
        return text + "."

    def table(self) -> Table:
        """Return the numbers as one table; its notes say how each was made."""
        rows = []
        for number in self.numbers:
            cells = (number.cell, number.difference)
            rows.append(TableRow(number.title, cells, number.digits))
        how = [part.sentence for part in self.parts]
        return Table(
            name=self.name,
            title=self.title,
            head="where",
            columns=(Column("ours"), Column("ours − paper", signed=True)),
            rows=tuple(rows),
            notes=(self.progress(), *self.notes, *how),
        )

    def page(self, how: str) -> str:
        """Return the HTML page, which needs no other file; it links to those beside it.

        Args:
            how: A sentence on what was run.
        """
        return render("paper_all.html", title=self.title, subtitle=how, made=self)


def numbers_of(table: Table) -> tuple[Number, ...]:
    """Return each number of a table that the paper prints and that was measured here.

    Of a comparison with other methods these are the paper's numbers of ACR beside our rows, also
    where we have none.

    Args:
        table: A table of the paper.
    """
    numbers: list[Number] = []
    if table.name in COMPARED:
        theirs = {row.title: row for row in table.rows}
        for row in table.rows:
            if row.title.startswith(OURS):
                acr = theirs["ACR*" if row.title.endswith(PLAIN) else "ACR"]
                numbers += _compared(table, row, acr)
        return tuple(numbers)
    for row in table.rows:
        numbers += _numbers_of(table, row)
    return tuple(numbers)


def _compared(table: Table, ours: TableRow, theirs: TableRow) -> Sequence[Number]:
    """Return the numbers of our row of a comparison beside those of the paper's ACR."""
    numbers = []
    for column, cell, other in zip(table.columns, ours.cells, theirs.cells, strict=True):
        if other.paper is not None:
            both = Cell(cell.ours, other.paper)
            numbers.append(Number(table.name, ours.title, column.title, both, column.digits))
    return numbers


def _numbers_of(table: Table, row: TableRow) -> Sequence[Number]:
    # a number alone does not say what it counts
    title = f"{table.head} {row.title}" if row.title.isdigit() else row.title
    numbers = []
    for column, cell in zip(table.columns, row.cells, strict=True):
        if cell.paper is None or column.theirs or math.isnan(cell.mean):
            continue
        numbers.append(Number(table.name, title, column.title, cell, column.digits))
    return numbers
