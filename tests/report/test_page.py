"""The page of a report: tables, pictures within the budget, every value escaped, and nothing from outside."""

import base64
import io
import math
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tagmask.report import page
from tagmask.report.images import Case, ImageFacts, Survey
from tagmask.report.page import Report, data_uri, report_page, training_charts
from tagmask.report.records import Provenance, StageScores, Training

VOID = {"meta", "img"}


class Checker(HTMLParser):
    """Notes every link and source, and refuses tags that are not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [
            value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "action")
        ]
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


def report(truth: bool = True, survey: dict[str, Any] | None = None, **changes: Any) -> Report:
    provenance = Provenance(
        [("data", "scenes")],
        {"tagmask": "1.2.3"},
        [("1_classifier/model.safetensors", 2_500_000, "ab" * 32)],
        {
            "2_seeds": {"input classifier": "ab" * 8, "flip": True},
            "4_pseudo": {"input network": "cd" * 8},
        },
        {"train": {"seed": 7, "lr": 0.01}, "note": "mine"},
    )
    return Report(
        "Run x", "", ("cat", "dog"), provenance, Survey(truth, **(survey or {})), **changes
    )


def stage(name: str = "predictions", **changes: Any) -> StageScores:
    values = {"images": 5, "miou_present": 0.7, "miou_all": 0.7, "fp": 0.1, "fn": 0.2}
    return StageScores(
        **{"stage": name, **values, "iou": {"background": 0.9, "cat": 0.5, "dog": None}, **changes}
    )


def test_text_cannot_become_markup() -> None:
    attack = '"><script>alert(1)</script>'
    facts = ImageFacts(0, f"{attack}\udcff", (attack,), iou=0.5)
    cases = {"best": [Case(facts, [(attack, None)])], "median": [], "worst": []}
    survey = {"facts": [facts], "cases": cases, "coverage": "1 image"}
    text = report_page(
        report(
            survey=survey, scores=[stage(attack, rule=attack, iou={attack: 0.5})], notes=[attack]
        )
    )
    check_page(text)
    assert attack not in text
    assert "&lt;/script&gt;?</b>" in text  # a file name that is not UTF-8 shows a question mark


def test_cells_sort_by_their_value() -> None:
    iou = {"a": 0.12345678, "b": None, "c": math.nan}
    text = report_page(report(scores=[stage(iou=iou)]))
    rows = re.findall(r'<td data-key="(\w)">\w</td>\s*<td class="number"(.*?)</td>', text)
    assert rows[0] == (
        "a",
        ' data-key="0.123457"><span class="bar" style="--part:12.3%">12.3</span>',
    )
    assert rows[1:] == [("b", ">–"), ("c", ">–")]  # without a key they sort last
    heads = re.findall(r'<button type="button">(.*?)</button>', text)
    assert heads == [
        "labels",
        "mIoU %",
        "threshold chosen",
        "at",
        "FP %",
        "FN %",
        "images",
        "class",
        "predictions",
    ]


def test_picture_is_embedded_small() -> None:
    picture = np.zeros((100, 400, 3), np.uint8)
    picture[:, 200:] = (250, 0, 0)
    uri = data_uri(picture, 200, 85)
    assert uri.startswith("data:image/jpeg;base64,")
    read = np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1]))))
    assert read.shape == (50, 200, 3)
    np.testing.assert_allclose(read[25, 150], (250, 0, 0), atol=4)


def test_gallery_keeps_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (288, 288, 3), dtype=np.uint8)
    facts = ImageFacts(0, "a/b", ("dog",), iou=0.034)
    case = Case(facts, [("image", noise), ("no truth", None)], frozenset({0, 2, 255}))
    shown = report(
        survey={"cases": {"best": [case], "median": [], "worst": []}, "coverage": "1 image"}
    )
    full = data_uri(noise, *page.JPEG_OPTIONS[0])
    assert full in report_page(shown)
    monkeypatch.setattr(page, "BUDGET", len(full) - 1)
    text = report_page(shown)
    assert data_uri(noise, *page.JPEG_OPTIONS[1]) in text
    assert full not in text
    check_page(text)
    assert text.count("<img") == 1
    assert '<i class="swatch" style="background:#008000"></i>dog' in text
    assert '<i class="swatch hatched"></i>unsure' in text
    assert "</i>cat" not in text
    assert "IoU 3.4 · tags: dog" in text
    assert "–<figcaption>no truth" in text


def test_charts_are_drawn_at_their_pixels() -> None:
    curve = {"miou_present": [60.0, 80.0], "fp": [10.0, 5.0], "fn": [20.0, 40.0]}
    seeds = [
        stage("seeds", rule="oracle", threshold=0.5, miou_present=0.8),
        stage("seeds", rule="otsu", threshold=0.0),
    ]
    text = report_page(report(scores=seeds, curves={"seeds": curve}))
    check_page(text)
    assert (
        'points="46.0,59.0 386.0,12.0 "' in text
    )  # 60 and 80 on an axis from 0 (at 200) to 80 (at 12)
    assert (
        '<circle class="mark" cx="386.0" cy="12.0" r="5">\n<title>oracle: 80.0 at 0.50</title>'
        in text
    )
    assert (
        '<circle class="mark hollow" cx="46.0" cy="35.5" r="5">\n<title>otsu: 70.0 at 0.00</title>'
        in text
    )
    once = report_page(report(trainings=[Training("x", [{"step": 1.0, "loss": 2.0}])]))
    assert (
        '<circle class="dot" cx="216.0" cy="106.0" r="3.5"/>' in once
    )  # one point is a dot in the middle


def test_confusion_matrix_is_drawn() -> None:
    counts = np.array([[8, 0, 0, 0], [1, 2, 0, 1], [0, 0, 0, 0]], np.int64)
    text = report_page(report(scores=[stage(confusion=counts)]))
    check_page(text)
    matrix = text[text.index('id="confusion"') :]
    assert "cat labelled background: 25.0 %" in matrix
    assert "cat labelled unsure: 25.0 %" in matrix
    assert matrix.count("<rect") == 4
    assert re.findall(r'<rect class="(\w+)" x="([\d.]+)" y="([\d.]+)"', matrix)[1] == (
        "bad",
        "96.5",
        "130.5",
    )
    assert re.findall(r'class="middle (\w+)"[^>]*>(\d+)<', matrix) == [
        ("strong", "100"),
        ("dark", "25"),
        ("dark", "50"),
        ("dark", "25"),
    ]


def test_many_classes_stay_small() -> None:
    counts = np.random.default_rng(0).integers(0, 100, (91, 92)) + 9000 * np.eye(
        91, 92, dtype=np.int64
    )
    iou = {f"class {i}": 0.5 for i in range(91)}
    text = report_page(report(scores=[stage(iou=iou, confusion=counts)]))
    assert not re.search(r"<text class=.middle (strong|dark)", text)  # no numbers in small squares
    assert len(text) < 400_000


def test_trainings_are_drawn_by_what_was_logged() -> None:
    rows = [
        {"step": s, "loss": 1 / s, "classes": 1 / s, "activation": 1e-4, "lr": 0.1}
        for s in (1, 2, 3)
    ]
    charts = training_charts(
        Training("Classifier", [*rows, {"step": 3.0, "map": 0.5, "val_loss": 0.4}])
    )
    drawn = {chart.title: [line.name for line in chart.lines] for chart in charts}
    assert drawn == {
        "Loss": ["training", "validation"],
        "Parts of the loss": ["activation", "classes"],
        "Validation": ["mAP"],
    }
    assert charts[2].lines[0].y == [50.0]
    assert training_charts(Training("x", [{"step": 1.0}])) == []


def test_oracle_and_thresholds_without_masks_are_marked_apart() -> None:
    scores = [
        stage("seeds", miou_all=0.4667, rule="oracle", threshold=0.3),
        stage("seeds", miou_present=0.6, miou_all=0.4, rule="cross_entropy", threshold=0.4),
    ]
    text = report_page(report(scores=scores))
    check_page(text)
    assert '<span class="badge oracle">oracle: with masks</span>' in text
    assert '<span class="badge">cross entropy: without masks</span>' in text
    assert "<b>60.0</b>" in text  # the headline is not the oracle
    assert "threshold 0.40 by cross entropy; oracle 70.0" in text
    assert "seeds, oracle 46.7; seeds, cross entropy 40.0" in text


def test_what_was_run_is_on_the_page() -> None:
    text = report_page(report(missing={"scores": "Run `tagmask score`."}, notes=["Mind the gap."]))
    check_page(text)
    assert "<code>" + "ab" * 32 + "</code>" in text
    assert "2.5 MB" in text
    assert f"weights {'ab' * 8} (1_classifier/model.safetensors); flip = yes" in text
    assert f"weights {'cd' * 8} (not in this run folder)" in text
    assert "config.toml [train]" in text
    assert "Run <code>tagmask score</code>." in text
    assert '<p class="note">Mind the gap.</p>' in text
    assert 'id="gallery"' not in text


def test_most_in_doubt_come_first() -> None:
    facts = [
        ImageFacts(0, "sure", ("cat",), agreement=0.9, confidence=0.9),
        ImageFacts(
            1, "odd", ("cat",), agreement=0.2, confidence=0.9, missing=("cat",), extra=("dog",)
        ),
        ImageFacts(2, "faint", ("cat",), agreement=0.9, confidence=0.1),
    ]
    assert [f.name for f in sorted(facts, key=ImageFacts.rank)] == ["odd", "faint", "sure"]
    survey = {
        "facts": facts,
        "last": "predictions",
        "before": "pseudo labels",
        "coverage": "3 images",
    }
    text = report_page(report(truth=False, survey=survey))
    check_page(text)
    body = text[text.index('id="check"') :]
    assert body.index(">odd<") < body.index(">faint<") < body.index(">sure<")
    tiles = re.findall(r'class="tile"><b>(.*?)</b><span>(.*?)</span><small>(.*?)</small>', text)
    assert tiles == [
        ("66.7", "agreement", "mIoU of predictions with pseudo labels"),
        ("63.3", "confidence", "mean over the images"),
        ("1", "images to check", "predictions and tags name different classes"),
    ]
