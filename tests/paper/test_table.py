"""Tables as text, Markdown and CSV, read again."""

import csv
import io
import math
import re
import statistics
from pathlib import Path

import pytest

from tagmask.paper.page import table_page
from tagmask.paper.table import Cell, Chart, Column, Row, Table, to_csv, to_markdown, to_text

TABLE = Table(
    "toy",
    "A toy",
    "way",
    (Column("mIoU"), Column("speed", 2)),
    (
        Row("a | b", (Cell((50.0, 53.0, 51.5), 67.3), Cell((1.239,)))),
        Row("none", (Cell((math.nan,)), Cell((), None))),
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
    cells = [[word.strip().replace("\\|", "|") for word in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    assert cells[0] == TABLE.heads() == ["way", "mIoU", "paper", "speed"]
    assert cells[2:] == TABLE.lines() == [["a | b", "51.5 ± 1.5", "67.3", "1.24"], ["none", "–", "", "–"]]


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
    rows = tuple(Row(str(i), (Cell((float(i),)), Cell((1.0,)))) for i in range(3))
    made = Table("toy", "A <toy>", "block", TABLE.columns, rows, charts=(Chart("plot", (0,), "block", "per cent"),))
    page = table_page(made, "how `it` was made")
    assert "A &lt;toy&gt;" in page
    assert page.count("<polyline") == 1
    assert "<code>it</code>" in page


def test_the_papers_numbers_are_those_written_down() -> None:
    from tagmask.paper import numbers

    text = " ".join((Path(__file__).parents[2] / "docs/method.md").read_text(encoding="utf-8").split())
    told = [f"{name} {plain}/{refined}" for name, (plain, refined) in numbers.ABLATION.items()]
    told += [
        f"{title} {numbers.METHODS[name][0]}"
        for name, title in {"cam": "CAM on patch tokens", "ts_cam": "TS-CAM", "grad_cam": "Grad-CAM"}.items()
    ]
    told += [
        f"Generic + affinity {numbers.METHODS['generic'][1]}",
        f"Generic attention {numbers.METHODS['generic'][0]}",
    ]
    told += [f"{numbers.BACKBONES[name][0]}/{numbers.BACKBONES[name][1]}" for name in ("mct", "mct+acr", "acr")]
    views = {
        "horizontal flip": "hflip",
        "hflip + patch hiding": "hflip+hide",
        "hflip + grey scale": "hflip+gray",
        "hflip + vflip": "hflip+vflip",
        "hflip + resize": "hflip+resize0.5",
        "rotation (90/180/270)": "rotate",
        "· resize": "resize0.5",
        "none": "none",
    }
    told += [f"{title} {numbers.VIEWS[view]}" for title, view in views.items()]
    told += [f"l1 (best, {numbers.DISTANCES['l1']})", f"smooth_l1 ({numbers.DISTANCES['l2']} each)"]
    told += [f"seeds {numbers.SEEDS} → pseudo labels {numbers.PSEUDO}"]
    told += [f"VOC val {numbers.SEGMENTATION['VOC val']}, test {numbers.SEGMENTATION['VOC test']}"]
    memory, speed = numbers.TRAINING_MEGABYTES.values(), numbers.MAPS_PER_SECOND.values()
    told += ["training memory {:,.0f} MB DeiT-S/224, {:,.0f} MB hybrid-B/384".format(*memory)]
    told += ["maps {} and {} images/s, MCTformer {:.2f}".format(*speed, numbers.MCT_MAPS_PER_SECOND)]
    assert [one for one in told if one not in text] == []
