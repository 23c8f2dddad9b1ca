"""The page of a report: charts at the right places, tables, pictures within the budget, and nothing from outside."""

import base64
import io
import math
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tagmask.errors import TagmaskError
from tagmask.show import report_gallery
from tagmask.show.chart import MOST_POINTS, Axis, Line, Mark, histogram, line_chart, linear_axis, log_axis, thinned
from tagmask.show.html import data_uri, escape, page, percent_cell, table, text_cell
from tagmask.show.report import doubt, report_page, training_charts
from tagmask.show.report_data import Case, ImageFacts, LabelScores, Provenance, Report, SeedCurve, Training
from tagmask.show.report_gallery import fitted, gallery, pick
from tagmask.show.report_matrix import matrix_chart, row_shares, worst_confusions

VOID = {"meta", "img"}


class Checker(HTMLParser):
    """Notes every link and source, and refuses tags that are not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "action")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check_page(text: str) -> Checker:
    """A page that is whole and asks for nothing but itself."""
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert all(link.startswith(("data:", "#")) for link in checker.links)
    assert not re.search(r"url\(|@import|https?://", text)
    for link in checker.links:
        assert not link.startswith("#") or f'id="{link[1:]}"' in text
    return checker


def made(**changes: Any) -> Report:
    provenance = Provenance(
        [("data", "scenes")],
        {"tagmask": "1.2.3"},
        [("1_classifier/model.safetensors", 2_500_000, "ab" * 32)],
        {"2_seeds": {"model": "ab" * 8, "flip": True}, "4_pseudo": {"network": "cd" * 8}},
        {"train": {"seed": 7, "lr": 0.01}, "note": "mine"},
    )
    values: dict[str, Any] = {"name": "Run x", "subtitle": "", "classes": ("cat", "dog"), "truth": True}
    return Report(**{**values, "provenance": provenance, **changes})


def test_axis_has_round_ticks_that_cover_the_values() -> None:
    axis = linear_axis(0.13, 0.92, 200, 0)
    assert axis.ticks == pytest.approx((0, 0.2, 0.4, 0.6, 0.8, 1.0))
    assert (axis.place(0), axis.place(1), axis.place(0.25)) == (200, 0, 150)
    tight = linear_axis(20, 650, 0, 630, tight=True)
    assert tight.ticks == (200, 400, 600)
    assert (tight.place(20), tight.place(650)) == (0, 630)
    assert linear_axis(3, 3, 0, 100).place(3) == 50


def test_log_axis_spans_whole_decades() -> None:
    axis = log_axis(0.002, 0.9, 300, 0)
    assert axis.ticks == pytest.approx((0.001, 0.01, 0.1, 1))
    assert axis.place(0.01) == pytest.approx(200)
    assert len(log_axis(1e-12, 1, 0, 1).ticks) <= 8


def test_a_line_runs_through_its_points() -> None:
    drawn = line_chart("t", [Line("a & b", [0, 5, 10], [0, 50, 100], [Mark(5, 50, "oracle: 50")])], "x", "y", zero=True)
    found = re.search(r'points="([^"]+)"', drawn)
    assert found is not None
    points = [tuple(map(float, point.split(","))) for point in found[1].split()]
    (x0, y0), (x1, y1), (x2, y2) = points
    assert (x1, y1) == pytest.approx(((x0 + x2) / 2, (y0 + y2) / 2), abs=0.1)
    assert x0 < x2
    assert y0 > y2  # upwards is smaller in SVG
    assert f'cx="{x1}" cy="{y1}"' in drawn
    assert "a &amp; b" in drawn


def test_charts_leave_out_what_is_not_a_number() -> None:
    drawn = line_chart("t", [Line("a", [1, 2, 3], [math.nan, 1, 2]), Line("b", [1], [math.inf])], "x", "y")
    assert "nan" not in drawn
    assert "inf" not in drawn
    assert ">b<" not in drawn
    with pytest.raises(TagmaskError, match='"t" has no point'):
        line_chart("t", [Line("a", [], [])], "x", "y")
    assert "<circle" in line_chart("t", [Line("a", [1], [2])], "x", "y")  # one point is a dot


def test_long_lines_are_averaged() -> None:
    x, y = thinned(np.arange(8 * MOST_POINTS, dtype=float), np.ones(8 * MOST_POINTS))
    assert len(x) == MOST_POINTS
    assert x[0] == 3.5
    assert set(y) == {1.0}


def test_histogram_counts_by_hand() -> None:
    titles = re.findall(r"<title>(\d+) images from (\d+) to (\d+)", histogram("t", [0.05, 0.95, 0.99, 1.0], "IoU %"))
    assert titles[0] == ("1", "0", "10")
    assert titles[-1] == ("3", "90", "100")
    assert sum(int(count) for count, _, _ in titles) == 4


def test_text_cannot_become_markup() -> None:
    assert escape("<b>\udcff") == "&lt;b&gt;?"
    drawn = table(["<i>"], [[text_cell('"><script>alert(1)</script>')]])
    assert "<script>" not in drawn
    assert "<i>" not in drawn
    check_page(page("</title><script>", drawn))


def test_cells_sort_by_their_value() -> None:
    drawn = table(["IoU"], [[percent_cell(0.1234)], [percent_cell(None)], [percent_cell(math.nan)]])
    assert 'data-key="0.1234">12.3</td>' in drawn
    assert drawn.count("–") == 2
    assert drawn.count("data-key") == 1  # without a key it sorts last


def test_picture_is_embedded_small() -> None:
    picture = np.zeros((100, 400, 3), np.uint8)
    picture[:, 200:] = (250, 0, 0)
    uri = data_uri(picture, 200, 85)
    assert uri.startswith("data:image/jpeg;base64,")
    read = np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1]))))
    assert read.shape == (50, 200, 3)
    np.testing.assert_allclose(read[25, 150], (250, 0, 0), atol=4)


@pytest.mark.parametrize(
    ("count", "rows", "expected"),
    [
        (10, 3, ([0], [4], [9])),
        (9, 3, ([0], [4], [8])),
        (10, 5, ([0, 1], [4, 5], [9])),
        (4, 12, ([0, 1], [2], [3])),
        (1, 12, ([0], [], [])),
        (0, 12, ([], [], [])),
        (9, 0, ([], [], [])),
    ],
)
def test_picked_are_first_middle_and_last(count: int, rows: int, expected: tuple[list[int], ...]) -> None:
    assert tuple(map(list, pick(count, rows))) == expected


def test_pictures_are_reduced_or_enlarged_whole() -> None:
    assert fitted(576, 288) == (288, 144)
    assert fitted(96, 64) == (288, 192)
    assert fitted(200, 150) == (200, 150)
    assert fitted(1, 5000) == (1, 288)


def test_gallery_keeps_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (288, 288, 3), dtype=np.uint8)
    case = Case("best", "a/b", "IoU 3", [("image", noise), ("no truth", None)], frozenset({0, 2, 255}))
    full = len(gallery([case], {"best": "Best"}, ["cat", "dog"]))
    monkeypatch.setattr(report_gallery, "BUDGET", full // 3)
    drawn = gallery([case], {"best": "Best"}, ["cat", "dog"])
    assert len(drawn) < full // 3 + 1500
    assert "dog</span>" in drawn
    assert "unsure</span>" in drawn
    assert "cat</span>" not in drawn
    assert "no truth" in drawn


def test_confusions_are_shares_of_the_truth() -> None:
    counts = np.array([[8, 0, 0, 0], [1, 2, 0, 1], [0, 0, 0, 0]], np.int64)
    np.testing.assert_allclose(row_shares(counts)[1], [0.25, 0.5, 0, 0.25])
    assert row_shares(counts)[2].tolist() == [0, 0, 0, 0]
    drawn = matrix_chart(counts, ["background", "cat", "dog"])
    assert "cat labelled background: 25.0 %" in drawn
    assert "cat labelled unsure: 25.0 %" in drawn
    assert drawn.count("<rect") == 4
    assert "unsure" not in matrix_chart(counts[:, [0, 1, 2, 2]], ["background", "cat", "dog"])
    assert worst_confusions(counts, ["background", "cat", "dog"]).count(">25.0<") == 2


def test_many_classes_stay_small() -> None:
    counts = np.random.default_rng(0).integers(0, 100, (91, 92))
    drawn = matrix_chart(counts + 9000 * np.eye(91, 92, dtype=np.int64), [f"class {i}" for i in range(91)])
    assert "<text class=" not in drawn  # no numbers in small cells
    assert len(drawn) < 400_000


def test_trainings_are_drawn_by_what_was_logged() -> None:
    rows = [{"step": s, "loss": 1 / s, "classes": 1 / s, "activation": 1e-4, "lr": 0.1} for s in (1, 2, 3)]
    charts = training_charts(Training("Classifier", "log", [*rows, {"step": 3.0, "map": 0.5, "val_loss": 0.4}]))
    heads = [re.search("<h3>(.*?)</h3>", chart) for chart in charts]
    assert [head[1] for head in heads if head] == ["Loss", "Parts of the loss", "Validation"]
    assert "lr" not in "".join(charts)
    assert training_charts(Training("x", "log", [{"step": 1.0}])) == []


def test_oracle_is_told_from_thresholds_without_masks() -> None:
    iou = {"background": 0.9, "cat": 0.5, "dog": None}
    scores = [
        LabelScores("seeds", 5, 0.7, 0.4667, 0.1, 0.2, iou, "oracle", 0.3),
        LabelScores("seeds", 5, 0.6, 0.4, 0.1, 0.2, iou, "cross_entropy", 0.4),
    ]
    curve = SeedCurve("seeds", [0, 0.5], [0.6, 0.7], [0.1, 0.1], [0.2, 0.2], {"oracle": (0.5, 0.7), "otsu": (0, 0.6)})
    text = report_page(made(scores=scores, curves=[curve]))
    check_page(text)
    assert "oracle: with masks" in text
    assert "cross entropy: without masks" in text
    assert "<b>60.0</b>" in text  # the headline is not the oracle
    assert "threshold 0.40 by cross entropy; oracle 70.0" in text
    assert "seeds, oracle 46.7; seeds, cross entropy 40.0" in text
    assert "<title>oracle: 70.0 at 0.50</title>" in text


def test_what_was_run_is_told() -> None:
    text = report_page(made(missing={"scores": "Nothing is scored."}, notes=["Mind the gap."]))
    check_page(text)
    assert "ab" * 32 in text
    assert f"weights {'ab' * 8} (1_classifier/model.safetensors); flip = yes" in text
    assert f"weights {'cd' * 8} (not in this run folder)" in text
    assert "config.toml [train]" in text
    assert "Nothing is scored." in text
    assert "Mind the gap." in text
    assert 'id="gallery"' not in text


def test_most_in_doubt_come_first() -> None:
    facts = [
        ImageFacts(0, "sure", ("cat",), agreement=0.9, confidence=0.9),
        ImageFacts(1, "odd", ("cat",), agreement=0.2, confidence=0.9, lacking=("cat",), extra=("dog",)),
        ImageFacts(2, "faint", ("cat",), agreement=0.9, confidence=0.1),
    ]
    assert [f.name for f in sorted(facts, key=doubt)] == ["odd", "faint", "sure"]
    text = report_page(made(truth=False, facts=facts, last="predictions", before="pseudo labels", surveyed="3 images"))
    check_page(text)
    body = text[text.index('id="check"') :]
    assert body.index(">odd<") < body.index(">faint<") < body.index(">sure<")
    assert "mIoU of predictions with pseudo labels" in text


def test_axis_place_is_linear() -> None:
    assert Axis(0, 10, 100, 0, ()).place(2.5) == 75
