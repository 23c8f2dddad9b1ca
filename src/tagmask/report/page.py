"""The report as one HTML page, rendered from templates that escape every value."""

import base64
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from PIL import Image

from tagmask.inference.tagcheck import Suspect
from tagmask.labels import UNSURE, voc_palette
from tagmask.report.charts import (
    Chart,
    Line,
    Mark,
    Matrix,
    confusion_chart,
    histogram,
    line_chart,
)
from tagmask.report.cover import Cover
from tagmask.report.doubt import Doubt, images_in_doubt, look_first
from tagmask.report.images import Case, ImageFacts, Survey
from tagmask.report.records import NETWORKS, ORACLE, Curves, Provenance, StageScores, Training
from tagmask.show.sheet import Picture, check_picture, resize

# characters that all pictures of a page may take
BUDGET = 2_200_000
# longer side and JPEG quality, tried until the budget is kept
JPEG_OPTIONS = ((288, 85), (240, 75), (176, 60), (112, 50))
# images in the table of those to check first, and in that of tags that look wrong
MAX_TO_CHECK = 20
# logged values that are fractions, more is better
RATES = ("map", "miou", "pixel_accuracy", "accuracy")
LOGGED = {"map": "mAP", "miou": "mIoU", "val_loss": "validation", "loss": "training"}
PARTS = {
    "selfcheck": "Self-check: can the masks be believed?",
    "scores": "Scores",
    "check": "To check first",
    "tags": "Tags that look wrong",
    "gallery": "Gallery",
    "cover": "How much each class covers",
    "threshold": "Background threshold",
    "confusion": "Confusion",
    "training": "Training",
    "run": "What was run",
    "words": "Words on this page",
}
WORDS = {
    "predictions": "the masks that the run made: the class of every pixel.",
    "map": "how much each place of a photo speaks for a tag, from dark (not) to bright (very "
    "much); also called seeds.",
    "pseudo labels": "the masks that the maps were turned into; the segmentation network learned "
    "from them, not from masks drawn by people.",
    "unsure": "pixels that the pseudo labels leave open.",
    "agreement": "how alike two stages label an image, as mIoU; 100 is the same.",
    "confidence": "how certain the labels of an image are; 100 is most certain.",
    "mIoU": "mean intersection over union: the pixels that two masks share, divided by those that "
    "either has, averaged over the classes.",
    "mAP": "mean average precision: 100 if every photo with a tag is ranked before every photo "
    "without it.",
    "trust": "of the self-check, from 0 to 1: the product of several signs.",
    "threshold": "a pixel whose maps are all below it is background.",
    "otsu, cross entropy": "rules that choose the threshold from the maps alone, without masks.",
    "oracle": "the threshold that is best by the true masks; it cannot be had without them.",
}


@dataclass(frozen=True)
class Report:
    """Everything on the page."""

    title: str
    subtitle: str
    classes: tuple[str, ...]  # without background
    provenance: Provenance
    survey: Survey
    notes: Sequence[str] = ()
    verdicts: Sequence[Mapping[str, Any]] = ()  # of the self-check, one per tag
    suspects: Sequence[Suspect] = ()  # images whose tags look wrong, the most suspicious first
    run_folder: str = "run"  # as commands name it
    # key of PARTS: a sentence on what is left out
    missing: Mapping[str, str] = field(default_factory=dict)
    scores: Sequence[StageScores] = ()
    curves: Curves = field(default_factory=dict)
    trainings: Sequence[Training] = ()
    cover: Cover | None = None

    def doubts(self) -> list[Doubt]:
        """Return the images to check first; none where there are true masks."""
        if self.survey.truth:
            return []
        odd_tags = {suspect.photo: suspect.words() for suspect in self.suspects}
        return images_in_doubt(self.survey.facts, odd_tags)


def report_page(report: Report) -> str:
    """Return the whole page; a part that cannot be shown is left out with a sentence."""
    survey = report.survey
    made = report.provenance
    matrices = _confusion_charts(report)
    drawn = [(training.title, training_charts(training)) for training in report.trainings]
    trainings = [(title, charts) for title, charts in drawn if charts]
    doubts = report.doubts()
    makers = {folder: _maker(values, made) for folder, values in made.makers.items()}
    return render(
        "report.html",
        title=report.title,
        subtitle=report.subtitle,
        report=report,
        survey=survey,
        made=made,
        parts=_parts(report, matrices, trainings, doubts),
        tiles=_tiles(report, doubts),
        columns=_class_columns(report.scores),
        class_names=_class_names(report),
        with_absent=_scores_with_absent(report),
        ious=_iou_histogram(survey),
        doubts=doubts,
        is_all_good=not any(row["reason"] or row["remedy"] for row in report.verdicts),
        most_shown=MAX_TO_CHECK,
        look_first=look_first(doubts),
        shown_cases=len(_all_cases(survey)),
        words=WORDS,
        jpeg=_jpeg_options(survey),
        legend=_legend(report),
        curves=_curve_charts(report),
        matrices=matrices,
        trainings=trainings,
        makers=makers,
        settings=_sections(made.settings),
    )


def render(template: str, **values: Any) -> str:
    """Return a page as text; bytes of file names that are not UTF-8 become question marks.

    Args:
        template: File name of a template of this package.
        **values: What the template shows.
    """
    text = environment().get_template(template).render(values)
    return text.encode("utf-8", "replace").decode("utf-8")


@cache
def environment() -> Environment:
    """Return the templates of this package, with the filters that they use."""
    made = Environment(
        loader=PackageLoader("tagmask.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"code": _code, "plain": _plain, "facts": _facts, "jpeg": data_uri}
    return made


def data_uri(picture: Picture, longest: int, quality: int) -> str:
    """Return a picture as JPEG inside the page.

    Args:
        picture: The picture (H, W, 3).
        longest: Its longer side is at most so many pixels on the page.
        quality: JPEG quality, 1 to 95.
    """
    image = check_picture(picture)
    height, width = image.shape[:2]
    scale = min(1.0, longest / max(height, width))
    shown_height = max(1, round(height * scale))
    shown_width = max(1, round(width * scale))
    image = resize(image, (shown_height, shown_width))
    file = io.BytesIO()
    # full colour resolution, since the outlines of masks are a pixel wide
    Image.fromarray(image).save(file, format="JPEG", quality=quality, subsampling=0)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode("ascii")


def _parts(
    report: Report, matrices: Sequence[Matrix], trainings: Sequence[Any], doubts: Sequence[Doubt]
) -> dict[str, str]:
    """Return name and title of the parts that have content, or a sentence on why they have not.

    Scores have none where there is nothing to score with: their sentence stands at the end.
    """
    content = {
        "selfcheck": report.verdicts,
        "scores": report.scores,
        "check": doubts,
        "tags": report.suspects,
        "gallery": report.survey.cases,
        "cover": report.cover,
        "threshold": report.curves,
        "confusion": matrices,
        "training": trainings,
        "run": report.provenance,
        "words": WORDS,
    }
    parts = {}
    for name, title in PARTS.items():
        has_sentence = report.missing.get(name) and name != "scores"
        if content[name] or has_sentence:
            parts[name] = title
    return parts


def _confusion_charts(report: Report) -> list[Matrix]:
    """Return the confusion matrices of the stages that have one, the last stage first."""
    matrices = []
    for row in reversed(report.scores):
        if row.confusion is not None:
            title = f"{row.stage}: rows are the truth"
            matrices.append(confusion_chart(title, row.confusion, list(row.iou)))
    return matrices


def _class_names(report: Report) -> list[str]:
    """Return the classes of all stages, each once, in the order in which they come."""
    names: dict[str, None] = {}
    for row in report.scores:
        names |= dict.fromkeys(row.iou)
    return list(names)


def _scores_with_absent(report: Report) -> list[str]:
    """Return the mIoU with absent classes counted as 0, of the stages where it differs."""
    lines = []
    for row in report.scores:
        if row.miou_all not in (None, row.miou_present):
            lines.append(f"{row.title} {_percent(row.miou_all)}")
    return lines


def _iou_histogram(survey: Survey) -> Chart | None:
    """Return a chart of the images by their IoU; None with fewer than two."""
    ious = [100 * facts.iou for facts in survey.facts if facts.iou is not None]
    if len(ious) < 2:
        return None
    return histogram(f"Images by the IoU of {survey.last}", ious, "IoU %")


def _tiles(report: Report, doubts: Sequence[Doubt]) -> list[tuple[str, str, str]]:
    """Return the numbers to see first: value, name, explanation."""
    # Per stage the last column counts, which for seeds is a mask-free rule if there is any.
    stages = {row.stage: row for row in _class_columns(report.scores)}
    tiles = []
    for row in reversed(stages.values()):
        value = _percent(row.miou_present)
        tiles.append((value, f"mIoU of {row.stage}", _how(report, row)))
    for training in report.trainings:
        rates = [row["map"] for row in training.rows if "map" in row]
        if rates:
            explanation = "100: held-out images with a tag are all told from those without"
            tiles.append((_percent(rates[-1]), "mAP of the tags", explanation))
    return tiles + _doubt_tiles(report.survey, doubts)


def _doubt_tiles(survey: Survey, doubts: Sequence[Doubt]) -> list[tuple[str, str, str]]:
    """Return what is known of the labels without truth: value, name, explanation."""
    if survey.truth or not survey.facts:
        return []
    explained = {
        "agreement": f"mIoU of {survey.last} with {survey.before}",
        "confidence": "mean over the images",
    }
    tiles = []
    for name, explanation in explained.items():
        values = [getattr(facts, name) for facts in survey.facts]
        known = [value for value in values if value is not None]
        if known:
            mean = float(np.mean(known))
            tiles.append((_percent(mean), name, explanation))
    name = "image to check" if len(doubts) == 1 else "images to check"
    where = f": see {PARTS['check']}" if doubts else ""
    tiles.append((str(len(doubts)), name, f"of {survey.coverage}{where}"))
    return tiles


def _how(report: Report, scores: StageScores) -> str:
    """Say how many images were scored, or how the threshold of seeds was chosen."""
    if scores.threshold is None:
        return f"{scores.images} images"
    text = f"threshold {scores.threshold:.2f} by {scores.rule_name}"
    for row in report.scores:
        if row.stage == scores.stage and row.rule == ORACLE and row is not scores:
            text += f"; oracle {_percent(row.miou_present)}"
    return text


def _class_columns(scores: Iterable[StageScores]) -> list[StageScores]:
    """Return the oracle and the first mask-free rule of each kind of maps, and all other stages."""
    columns: dict[tuple[str, bool], StageScores] = {}
    for row in scores:
        columns.setdefault((row.stage, row.rule == ORACLE), row)
    return list(columns.values())


def _all_cases(survey: Survey) -> list[Case]:
    cases: list[Case] = []
    for group in survey.cases.values():
        cases += group
    return cases


def _jpeg_options(survey: Survey) -> tuple[int, int]:
    """Return longer side and JPEG quality at which all pictures of the gallery fit the budget."""
    pictures = []
    for case in _all_cases(survey):
        pictures += [picture for _, picture in case.pictures if picture is not None]
    for options in JPEG_OPTIONS:
        if sum(len(data_uri(picture, *options)) for picture in pictures) <= BUDGET:
            break
    return options


def _legend(report: Report) -> list[tuple[str, str]]:
    """Return name and colour of each class in the gallery; unsure has no colour, it is hatched."""
    labels: set[int] = set()
    for case in _all_cases(report.survey):
        labels |= case.labels
    palette = voc_palette()
    legend = []
    for label in sorted(labels - {0}):
        if label == UNSURE:
            legend.append(("unsure", ""))
        else:
            colour = "#" + bytes(palette[label]).hex()
            legend.append((report.classes[label - 1], colour))
    return legend


def _curve_charts(report: Report) -> list[Chart]:
    """Return mIoU of every kind of maps with the thresholds chosen, and the errors of the last."""
    if not report.curves:
        return []
    lines = []
    for title, curve in report.curves.items():
        marks = _marks(report, title)
        lines.append(_threshold_line(title, curve["miou_present"], marks))
    last = lines[-1].name
    errors = [
        _threshold_line("FP: too much", report.curves[last]["fp"]),
        _threshold_line("FN: too little", report.curves[last]["fn"]),
    ]
    x_name = "background threshold"
    return [
        line_chart("mIoU of the maps", lines, x_name, "mIoU %", zero=True),
        line_chart(f"Errors of the {last}", errors, x_name, "% of the union", zero=True),
    ]


def _threshold_line(name: str, values: Sequence[float], marks: Sequence[Mark] = ()) -> Line:
    """Return the line of a score over T thresholds i/T."""
    count = len(values)
    thresholds = [i / count for i in range(count)]
    return Line(name, thresholds, values, marks)


def _marks(report: Report, title: str) -> list[Mark]:
    """Return a mark for each threshold that a rule chose for a kind of maps."""
    marks = []
    for row in report.scores:
        if row.stage != title or row.threshold is None or row.miou_present is None:
            continue
        text = f"{row.rule_name}: {_percent(row.miou_present)} at {row.threshold:.2f}"
        hollow = row.rule != ORACLE
        percent = 100 * row.miou_present
        marks.append(Mark(row.threshold, percent, text, hollow=hollow))
    return marks


def training_charts(training: Training) -> list[Chart]:
    """Return charts of the loss, its parts, and what validation measured, of what was logged.

    A chart in which no line has two points shows no course, and is left out.
    """
    names: set[str] = set()
    for row in training.rows:
        names |= row.keys()
    names -= {"step", "seconds", "lr"}
    losses = [name for name in ("loss", "val_loss") if name in names]
    rates = [name for name in RATES if name in names]
    parts = sorted(names - {*losses, *rates})
    charts = []
    if losses:
        charts.append(line_chart("Loss", _log_lines(training, losses), "step", "loss"))
    if len(parts) > 1:
        charts.append(line_chart("Parts of the loss", _log_lines(training, parts), "step", "loss"))
    if rates:
        lines = _log_lines(training, rates)
        charts.append(line_chart("Validation", lines, "step", "%", zero=True))
    return [chart for chart in charts if any(len(line.x) > 1 for line in chart.lines)]


def _log_lines(training: Training, names: Sequence[str]) -> list[Line]:
    """Return a line for each logged value; fractions in per cent."""
    lines = []
    for name in names:
        rows = [row for row in training.rows if name in row]
        factor = 100 if name in RATES else 1
        title = LOGGED.get(name, name.replace("_", " "))
        steps = [row["step"] for row in rows]
        values = [factor * row[name] for row in rows]
        lines.append(Line(title, steps, values))
    return lines


def _maker(values: Mapping[str, Any], made: Provenance) -> str:
    """Return the weights and settings that made a folder, as text."""
    clauses = []
    for name in NETWORKS:
        if name in values:
            digest = values[name]
            file = made.weights_file(digest) or "not in this run folder"
            clauses.append(f"weights {digest} ({file})")
    for name, value in values.items():
        if name not in NETWORKS:
            clauses.append(f"{name} = {_plain(value)}")
    return "; ".join(clauses)


def _sections(settings: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the tables of a TOML file by title; values outside any table come first."""
    outside = {}
    tables = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            tables[f"config.toml [{name}]"] = value
        else:
            outside[name] = value
    if not outside:
        return tables
    return {"config.toml": outside, **tables}


def _code(text: str) -> Markup:
    """Return plain text in which words between backticks are shown as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _percent(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{100 * value:.1f}"


def _plain(value: Any) -> str:
    """Return a setting as text."""
    if isinstance(value, (list, tuple)):
        return " ".join(map(_plain, value))
    if isinstance(value, Mapping):
        clauses = [f"{name} = {_plain(part)}" for name, part in value.items()]
        return ", ".join(clauses) or "nothing"
    if value is None:
        return "default"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _facts(facts: ImageFacts) -> str:
    """Return what is known about an image, in one line."""
    values = {"IoU": facts.iou, "agreement": facts.agreement, "confidence": facts.confidence}
    lists = {"tags": facts.tags, "not found": facts.missing, "not tagged": facts.extra}
    words = []
    for name, value in values.items():
        if value is not None:
            words.append(f"{name} {_percent(value)}")
    for name, names in lists.items():
        if names:
            words.append(f"{name}: {', '.join(names)}")
    return " · ".join(words)
