"""All tables by one command: numbers of the paper, ours, differences, and what could not be made."""

import csv
import re
from pathlib import Path

import pytest

from tagmask.errors import TagmaskError
from tagmask.reproduction import command, everything
from tagmask.reproduction.command import run_paper
from tagmask.reproduction.names import NAMES
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


def test_the_page_has_numbers_figures_and_how_they_were_made() -> None:
    parts = (
        Part("ablation", MADE, "by `hand`.", "seen", ("ablation.html", "a.csv"), numbers_of(toy())),
        Part("pseudo", REFUSED, "no <masks>."),
        Part("layers"),
        Part("maps", MADE, "so.", "", ("maps.png", "maps.html"), uri="data:image/jpeg;base64,AA"),
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
    names = ["ablation", "methods", "patch-order"]
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
    assert "2 of 3 tables and figures are made, 1 cannot be made of these data." in page
    assert page.count("<img") == 1
    assert "methods: not made: there are no masks." in written.text
    assert "2 of 3: methods (Table 5)" in capsys.readouterr().out
    with (shared_out / "all.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8  # four rows of the ablation, without and with affinity
    for row in rows:
        difference = float(row["ours mean"]) - float(row["ours paper"])
        assert float(row["ours − paper mean"]) == pytest.approx(difference)
    with (shared_out / "ablation.csv").open() as file:
        last = list(csv.DictReader(file))[-1]
    assert rows[-1]["ours mean"] == last["with affinity mean"]
