"""Every table and figure for a data set, one after the other, and one page of all numbers.

Each is made as its own command makes it, in the same folder, so whatever is done already is found
again: a stopped command goes on with the same command. What cannot be made of these data is left
out with the reason.
"""

import dataclasses
import math

from tqdm import tqdm

from tagmask.errors import TagmaskError
from tagmask.reproduction.bench import Bench, PartDoneError
from tagmask.reproduction.command import make, sentence
from tagmask.reproduction.names import EVERYTHING, FIGURES, NAMES, TABLES
from tagmask.reproduction.page import write
from tagmask.reproduction.table import Cell, Column, Table, TableRow

# compares only with numbers of one data set
_ONLY = {"compare-coco": ("coco",), "compare-voc": ("voc", "folder", "scenes")}


def everything(bench: Bench) -> Table:
    """Make all tables and figures, and gather the numbers that the paper has too.

    Raises:
        PartDoneError: This process has done its share of all trainings.
    """
    names = wanted(bench.settings.data)
    rows: list[TableRow] = []
    made_of: dict[str, str] = {}
    for number, name in enumerate(names, 1):
        tqdm.write(f"{number} of {len(names)}: {name} ({NAMES[name].where})")
        settings = dataclasses.replace(bench.settings, table=name)
        try:
            made = make(Bench(settings, bench.shard))
        except PartDoneError:
            continue
        except TagmaskError as error:
            made_of[name] = f"not made: {error}"
            tqdm.write(f"{name} is not made: {error}")
            continue
        how = sentence(Bench(settings))
        files = write(made, settings.out, how).files
        names_of_files = ", ".join(file.name for file in files)
        made_of[name] = f"{how} Files: {names_of_files}."
        if isinstance(made, Table):
            rows += numbers_of(made)
    if bench.shard[0]:
        raise PartDoneError(f"part {bench.shard[0]} has done its share of all tables.")
    return _page(rows, made_of)


def wanted(data: str) -> list[str]:
    """Return the tables and figures that belong to a kind of data, tables first."""
    names = []
    for name in (*TABLES, *FIGURES):
        if name != EVERYTHING and data in _ONLY.get(name, (data,)):
            names.append(name)
    return names


def numbers_of(table: Table) -> list[TableRow]:
    """Return a row for each number of a table that the paper prints and that was measured here.

    Args:
        table: A table of the paper.

    Returns:
        Rows of two cells: ours beside the paper's, and the difference.
    """
    rows = []
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            if cell.paper is None or column.theirs or math.isnan(cell.mean):
                continue
            where = NAMES[table.name].where
            title = f"{where}, {table.name}: {row.title}, {column.title}"
            difference = tuple(ours - cell.paper for ours in cell.ours)
            rows.append(TableRow(title, (cell, Cell(difference))))
    return rows


def _page(rows: list[TableRow], made_of: dict[str, str]) -> Table:
    """Return the table of all numbers; its notes say how each was made."""
    notes = [f"{name}: {how}" for name, how in made_of.items()]
    return Table(
        name=EVERYTHING,
        title="All numbers of the paper, and ours",
        head="where",
        columns=(Column("ours", digits=2), Column("ours − paper", digits=2)),
        rows=tuple(rows),
        notes=tuple(notes),
    )
