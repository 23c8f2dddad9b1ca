"""Tables as text, Markdown and CSV, read again."""

import csv
import io
import math
import re
import statistics

import pytest

from tagmask.reproduction.page import table_page
from tagmask.reproduction.table import (
    Cell,
    Chart,
    Column,
    Table,
    TableRow,
    to_csv,
    to_markdown,
    to_text,
)

TABLE = Table(
    "toy",
    "A toy",
    "way",
    (Column("mIoU"), Column("speed", 2)),
    (
        TableRow("a | b", (Cell((50.0, 53.0, 51.5), 67.3), Cell((1.239,)))),
        TableRow("none", (Cell((math.nan,)), Cell((), None))),
    ),
    ("a note",),
)


def test_mean_and_deviation() -> None:
    values = (50.0, 53.0, 51.5)
    assert Cell(values).mean == pytest.approx(statistics.mean(values))
    assert Cell(values).std == pytest.approx(statistics.stdev(values))
    assert Cell(values).shown() == "51.5 ± 1.5"
    assert Cell((51.46,)).shown() == "51.5"  # one seed has no deviation
    assert math.isnan(Cell((51.46,)).std)
    assert Cell(()).shown() == Cell((math.nan, 1.0)).shown() == "–"


def test_markdown_read_again() -> None:
    lines = [line for line in to_markdown(TABLE).splitlines() if line.startswith("|")]
    cells = [
        [word.strip().replace("\\|", "|") for word in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in lines
    ]
    assert cells[0] == TABLE.heads() == ["way", "mIoU", "paper", "speed"]
    assert (
        cells[2:]
        == TABLE.lines()
        == [["a | b", "51.5 ± 1.5", "67.3", "1.24"], ["none", "–", "", "–"]]
    )


def test_csv_read_again_has_all_digits() -> None:
    first, second = csv.DictReader(io.StringIO(to_csv(TABLE)))
    cell = TABLE.rows[0].cells[0]
    assert first["way"] == "a | b"
    assert (float(first["mIoU mean"]), float(first["mIoU std"])) == (cell.mean, cell.std)
    assert (first["mIoU seeds"], first["mIoU paper"], first["speed mean"]) == ("3", "67.3", "1.239")
    assert (second["mIoU mean"], second["speed mean"], second["speed seeds"]) == ("", "", "0")


def test_text_is_aligned() -> None:
    lines = to_text(TABLE).splitlines()
    assert lines[2] == "way          mIoU  paper  speed"
    assert lines[4] == "a | b  51.5 ± 1.5   67.3   1.24"
    assert lines[-1] == "a note"


def test_the_page_is_whole_and_draws_the_charts() -> None:
    rows = tuple(TableRow(str(i), (Cell((float(i),)), Cell((1.0,)))) for i in range(3))
    made = Table(
        "toy",
        "A <toy>",
        "block",
        TABLE.columns,
        rows,
        charts=(Chart("plot", (0,), "block", "per cent"),),
    )
    page = table_page(made, "how `it` was made")
    assert "A &lt;toy&gt;" in page
    assert page.count("<polyline") == 1
    assert "<code>it</code>" in page


def test_columns_of_the_paper_alone() -> None:
    rows = (
        TableRow("dog", (Cell((50.0,), 67.3), Cell((), 61.0))),
        TableRow("cat", (Cell((40.0,)), Cell((), 59.5))),
    )
    table = Table("toy", "A toy", "class", (Column("IoU"), Column("RIB", theirs=True)), rows)
    assert table.heads() == ["class", "IoU", "paper", "RIB"]
    assert table.lines() == [["dog", "50.0", "67.3", "61.0"], ["cat", "40.0", "", "59.5"]]
    first = next(csv.DictReader(io.StringIO(to_csv(table))))
    assert list(first) == ["class", "IoU mean", "IoU std", "IoU seeds", "IoU paper", "RIB paper"]
    assert first["RIB paper"] == "61.0"
    page = table_page(table, "")
    assert [
        re.findall(r"<td[^>]*>(.*?)</td>", row) for row in page.split("<tr>")[2:]
    ] == table.lines()
