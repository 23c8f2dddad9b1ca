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
