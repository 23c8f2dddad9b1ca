"""The page of a report: tables, pictures within the budget, every value escaped, and nothing from outside."""

import base64
import dataclasses
import io
import math
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tagmask.inference.tagcheck import Suspect
from tagmask.report import page
from tagmask.report.cover import Cover, CoverRow
from tagmask.report.doubt import images_in_doubt, look_first
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


def test_a_chart_of_one_point_is_left_out() -> None:
    """A line of one point is a dot beside a line of two; alone it shows no course."""
    rows = [{"step": 0.0, "map": 0.9}]
    assert training_charts(Training("Classifier", rows)) == []
    text = report_page(report(trainings=[Training("Classifier", rows)]))
    check_page(text)
    assert "Classifier" not in text
    assert 'id="training"' not in text
    assert "<b>90.0</b>" in text  # the number itself is shown
    rows = [{"step": 0.0, "loss": 2.0, "val_loss": 2.0}, {"step": 1.0, "loss": 1.0}]
    text = report_page(report(trainings=[Training("Classifier", rows)]))
    assert text.count('<circle class="dot"') == 1


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
    best = {"step": 4.0, "map": 0.75}
    charts = training_charts(
        Training("Classifier", [*rows, {"step": 3.0, "map": 0.5, "val_loss": 0.4}, best])
    )
    drawn = {chart.title: [line.name for line in chart.lines] for chart in charts}
    assert drawn == {
        "Loss": ["training", "validation"],
        "Parts of the loss": ["activation", "classes"],
        "Validation": ["mAP"],
    }
    assert charts[2].lines[0].y == [50.0, 75.0]
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


def rows_of(text: str, part: str) -> list[list[str]]:
    """Return the cells of the first table in a part of the page."""
    body = text[text.index(f'<section id="{part}">') :]
    table = body[body.index("<tbody>") : body.index("</tbody>")]
    rows = []
    for row in table.split("<tr>")[1:]:
        cells = re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)
        rows.append([re.sub("<[^>]*>", "", cell) for cell in cells])
    return rows


def certain(count: int) -> list[ImageFacts]:
    """Return images that nothing speaks against, each a little more certain than the last."""
    return [ImageFacts(i, f"photo {i}", (), agreement=0.8 + i / 1000) for i in range(count)]


@pytest.mark.parametrize(
    ("count", "lowest"), [(0, 0), (2, 2), (20, 3), (31, 4), (150, 15), (400, 20)]
)
def test_the_lowest_tenth_is_in_doubt(count: int, lowest: int) -> None:
    """At least three and at most twenty, the lowest first."""
    doubts = images_in_doubt(certain(count)[::-1], {})
    assert [doubt.facts.index for doubt in doubts] == list(range(lowest))


def test_a_reason_of_its_own_comes_before_the_lowest() -> None:
    """Of 20 images the lowest three, one of low confidence, and one whose tags look wrong."""
    facts = certain(20)
    facts[9] = dataclasses.replace(facts[9], confidence=0.39)
    facts[1] = dataclasses.replace(facts[1], confidence=0.51)
    facts[15] = dataclasses.replace(facts[15], extra=("dog",))
    doubts = images_in_doubt(facts, {"photo 2": "looks like horse, not sheep"})
    assert [(doubt.facts.index, doubt.why) for doubt in doubts] == [
        (2, "looks like horse, not sheep"),
        (9, "confidence 39.0 %"),
        (15, "dog found, not tagged"),
        (0, "agreement 80.0 %, among the lowest"),
        (1, "agreement 80.1 %, among the lowest"),
    ]
    assert look_first(doubts) == (
        "look at these photos first: photo 2 (looks like horse, not sheep), "
        "photo 9 (confidence 39.0 %), photo 15 (dog found, not tagged) and 2 more in the report"
    )
    assert look_first([]) == ""
    assert images_in_doubt([ImageFacts(0, "unknown", ())], {}) == []


def test_card_list_and_self_check_count_the_same_images() -> None:
    """25 images without their tag: all are counted, the first 20 listed, the first 3 named."""
    facts = [dataclasses.replace(one, missing=("cat",)) for one in certain(25)] + certain(75)
    verdict = {"tag": "cat", "level": "good", "trust": 0.9, "reason": "", "remedy": ""}
    survey = {"facts": facts, "last": "predictions", "coverage": "100 images"}
    text = report_page(report(truth=False, survey=survey, verdicts=[verdict]))
    check_page(text)
    assert "<b>25</b><span>images to check</span>" in text
    assert "25 of 100 images are in doubt; the 20 most in doubt are listed." in text
    assert len(rows_of(text, "check")) == 20
    first = text[text.index('id="selfcheck"') : text.index('id="check"')]
    assert "first: photo 0 (cat not found), photo 1 (cat not found), photo 2" in first
    assert "and 22 more below" in first
    assert rows_of(text, "selfcheck") == [["cat", "good", "0.90"]]
    assert "what to do" not in text
    doubtful = {**verdict, "level": "doubtful", "reason": "why so", "remedy": "do this"}
    text = report_page(report(verdicts=[doubtful]))
    assert rows_of(text, "selfcheck") == [["cat", "doubtful", "0.90", "why so", "do this"]]


def test_tags_that_look_wrong_are_on_the_page() -> None:
    suspect = Suspect("photo 7", missing=("<horse>",), wrong=("sheep",), strength=0.931)
    text = report_page(report(suspects=[suspect]))
    check_page(text)
    assert rows_of(text, "tags") == [["photo 7", "looks like &lt;horse&gt;, not sheep", "93.1"]]
    assert 'id="tags"' not in report_page(report())


def test_parts_without_truth_begin_with_what_is_to_be_looked_at() -> None:
    """The sentence on missing scores stands at the end, without a card of its own."""
    case = Case(certain(1)[0], [("image", np.zeros((8, 8, 3), np.uint8))])
    survey = {"facts": certain(20), "cases": {"worst": [case], "median": [], "best": []}}
    verdict = {"tag": "cat", "level": "good", "trust": 0.9, "reason": "", "remedy": ""}
    shown = report(
        truth=False,
        survey={**survey, "last": "predictions", "coverage": "20 images"},
        verdicts=[verdict],
        suspects=[Suspect("photo 3", wrong=("cat",), strength=0.95)],
        cover=Cover([CoverRow("cat", 20, 10, 0.49, 0.245, 0.25, None)], [], has_scale=False),
        missing={"scores": "These data have no masks."},
        run_folder="my run",
    )
    text = report_page(shown)
    check_page(text)
    parts = re.findall(r'<section id="(\w+)">', text)
    assert parts == ["selfcheck", "check", "tags", "gallery", "cover", "run", "words"]
    assert parts == re.findall(r'<a href="#(\w+)">', text)
    assert text.index("These data have no masks.") > text.index('id="run"')
    assert "1 of 20 images are shown; <code>tagmask explore my run</code>" in text
    assert rows_of(text, "cover") == [["cat", "10", "20", "49.0", "24.5", "25.0"]]
    for word in ("pseudo labels", "mAP", "otsu"):
        assert word in text[text.index('id="words"') :]
    scored = report_page(report(scores=[stage()], verdicts=[verdict]))
    assert re.findall(r'<section id="(\w+)">', scored)[:2] == ["selfcheck", "scores"]


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
    assert "3 of 3 images are in doubt." in text
    assert rows_of(text, "check") == [
        ["odd", "agreement 20.0 %; cat not found; dog found, not tagged", "20.0", "90.0"],
        ["faint", "confidence 10.0 %", "90.0", "10.0"],
        ["sure", "agreement 90.0 %, among the lowest", "90.0", "90.0"],
    ]
    tiles = re.findall(r'class="tile"><b>(.*?)</b><span>(.*?)</span><small>(.*?)</small>', text)
    assert tiles == [
        ("66.7", "agreement", "mIoU of predictions with pseudo labels"),
        ("63.3", "confidence", "mean over the images"),
        ("3", "images to check", "of 3 images: see To check first"),
    ]
