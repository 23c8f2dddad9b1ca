"""All tables by one command: numbers of the paper, ours, differences, and what could not be made."""

import csv
import re
from pathlib import Path

import pytest

from tagmask.errors import TagmaskError
from tagmask.reproduction import command, everything
from tagmask.reproduction.command import run_paper
from tagmask.reproduction.names import NAMES
from tagmask.reproduction.numbers import about, about_all
from tagmask.reproduction.overview import MADE, REFUSED, Overview, Part, numbers_of
from tagmask.reproduction.table import Cell, Column, Table, TableRow
from tests.reproduction.small import small


def toy() -> Table:
    columns = (Column("mIoU"), Column("FP"), Column("others", theirs=True))
    rows = (
        TableRow("ours and theirs", (Cell((50.0, 52.0), 67.3), Cell((3.0,)), Cell((), 60.0))),
        TableRow("only theirs", (Cell((), 59.4), Cell(), Cell((), 61.0))),
    )
    return Table("ablation", "t", "row", columns, rows)


def test_each_number_of_the_paper_has_a_row_with_the_difference() -> None:
    (number,) = numbers_of(toy())
    assert number.title == "Table 4, ablation: ours and theirs, mIoU"
    assert (number.cell.mean, number.cell.paper) == (51.0, 67.3)
    assert number.difference.mean == pytest.approx(51.0 - 67.3)


def test_a_comparison_gives_the_papers_acr_beside_our_rows() -> None:
    columns = (Column("val"), Column("test"))
    rows = (
        TableRow("SEAM (CVPR2020)", (Cell((), 64.5), Cell((), 65.7))),
        TableRow("ACR", (Cell((), 71.2), Cell((), 70.9))),
        TableRow("tagmask, on 5 images", (Cell((60.0,)), Cell())),
    )
    val, test = numbers_of(Table("compare-voc", "t", "method", columns, rows))
    assert val.title == "Table 3, compare-voc: tagmask, on 5 images, val"
    assert val.cell.paper == 71.2
    assert val.difference.mean == pytest.approx(-11.2)
    # only the server has the masks of test: the paper's number is shown, and none of ours
    assert (test.cell.paper, test.cell.shown(), test.difference.shown(1, signed=True)) == (
        *(70.9, "–"),
        "–",
    )
    page = Overview((Part("compare-voc", MADE, "so.", numbers=(val, test)),)).page("how")
    assert "nan" not in page
    seeds = (
        TableRow("ACR*", (Cell((), 59.4), Cell())),
        TableRow("ACR", (Cell((), 67.3), Cell((), 70.8))),
        TableRow("tagmask, without affinity", (Cell((50.0,)), Cell())),
        TableRow("tagmask", (Cell((51.0,)), Cell((52.0,)))),
    )
    numbers = numbers_of(Table("compare-seeds", "t", "method", columns, seeds))
    assert [(number.cell.mean, number.cell.paper) for number in numbers] == [
        *((50, 59.4), (51, 67.3)),
        (52, 70.8),
    ]


def test_numbers_have_the_digits_of_their_tables() -> None:
    speed = (Column("memory", 0), Column("images/s", 2))
    cells = (Cell((56.64,), 1580.0), Cell((4.0,), 7.1))
    made = Table("computation", "t", "way", speed, (TableRow("MCTformer", cells),))
    lines = Overview((Part("computation", MADE, numbers=numbers_of(made)),)).table().lines()
    assert [line[1:] for line in lines] == [["57", "1580", "-1523"], ["4.00", "7.10", "-3.10"]]
    blocks = Table("layers", "t", "first block", speed[:1], (TableRow("10", cells[:1]),))
    assert numbers_of(blocks)[0].row == "first block 10"


def test_the_page_says_on_what_the_papers_numbers_were_measured() -> None:
    assert about_all("scenes") == about("voc")
    assert "COCO" not in about_all("voc")
    coco = about_all("coco")
    assert "Tables 1 and 11 were measured on MS COCO 2014, all others on PASCAL VOC 2012" in coco


def test_the_page_has_numbers_figures_and_how_they_were_made() -> None:
    parts = (
        Part(
            "ablation", MADE, "by `hand`.", ("seen",), ("ablation.html", "a.csv"), numbers_of(toy())
        ),
        Part("pseudo", REFUSED, "no <masks>."),
        Part("layers"),
        Part("maps", MADE, "so.", (), ("maps.png", "maps.html"), uri="data:image/jpeg;base64,AA"),
    )
    overview = Overview(parts, ("a note",))
    told = "2 of 4 tables and figures are made, 1 cannot be made of these data, 1 still to do."
    assert overview.progress() == told
    page = overview.page("how")
    row = re.search(r"<tr><td[^>]*>Table 4</td>(.*?)</tr>", page, re.DOTALL)
    assert row is not None
    cells = re.findall(r"<td[^>]*>(.*?)</td>", row.group(1), re.DOTALL)
    assert [re.sub("<[^>]*>", "", cell).strip() for cell in cells] == [
        *("ablation", "ours and theirs", "mIoU"),
        *("67.3", "51.0 ± 1.4", "-16.3 ± 1.4"),
    ]
    assert '<a href="ablation.html">ablation</a>' in page
    assert page.count("<img") == 1
    assert "no &lt;masks&gt;." in page
    assert "<code>hand</code>" in page
    assert "seen" in page
    assert "layers: to do." in overview.table().notes


def test_tables_of_other_data_are_left_out() -> None:
    assert "compare-coco" in everything.wanted("coco")
    assert "compare-voc" not in everything.wanted("coco")
    assert "compare-coco" not in everything.wanted("voc")
    assert {*everything.wanted("coco"), *everything.wanted("voc"), "all"} == set(NAMES)


def test_one_page_and_the_rest_is_named(
    shared_out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table that cannot be made is named with its reason; the others are made and gathered."""
    names = ["ablation", "methods", "patch-order", "layers"]
    monkeypatch.setattr(everything, "wanted", lambda _: names)
    real = command.make

    def some(bench: object) -> object:
        if bench.settings.table == "methods":  # type: ignore[attr-defined]
            raise TagmaskError("there are no masks.")
        return real(bench)  # type: ignore[arg-type]

    monkeypatch.setattr(everything, "make", some)
    written = run_paper(small(shared_out, "all"))
    assert {file.name for file in written.files} == {"all.md", "all.csv", "all.html"}
    assert (shared_out / "patch-order.png").is_file()
    page = (shared_out / "all.html").read_text()
    assert "3 of 4 tables and figures are made, 1 cannot be made of these data." in page
    assert page.count("<img") == 2  # the figure, and Fig. 8 of the paper, which is a plot
    assert "methods: not made: there are no masks." in written.text
    # a later note of a table, and one that all have
    assert "which of the two the paper plots is not stated" in " ".join(page.split())
    assert page.count("on other data or budgets not to be compared number by number") == 1
    assert "2 of 4: methods (Table 5)" in capsys.readouterr().out
    with (shared_out / "all.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert (
        len(rows) == 8 + 2
    )  # four rows of the ablation and one of layers, without and with affinity
    for row in rows:
        difference = float(row["ours mean"]) - float(row["ours paper"])
        assert float(row["ours − paper mean"]) == pytest.approx(difference)
    with (shared_out / "ablation.csv").open() as file:
        last = list(csv.DictReader(file))[-1]
    assert rows[7]["ours mean"] == last["with affinity mean"]
