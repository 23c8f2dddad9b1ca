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

from tagmask.labels import UNSURE, voc_palette
from tagmask.report.charts import Chart, Line, Mark, confusion_chart, histogram, line_chart
from tagmask.report.images import ImageFacts, Survey
from tagmask.report.records import NETWORKS, ORACLE, Curves, Provenance, StageScores, Training
from tagmask.show.sheet import Picture, check_picture, resize

BUDGET = 2_200_000  # characters that all pictures of a page may take
# Longer side and JPEG quality, tried until the budget is kept.
JPEG_OPTIONS = ((288, 85), (240, 75), (176, 60), (112, 50))
MAX_TO_CHECK = 20  # images in the table of those to check first
RATES = (
    "map",
    "miou",
    "pixel_accuracy",
    "accuracy",
)  # logged values that are fractions, more is better
LOGGED = {"map": "mAP", "miou": "mIoU", "val_loss": "validation", "loss": "training"}
PARTS = {
    "scores": "Scores",
    "check": "To check first",
    "gallery": "Gallery",
    "threshold": "Background threshold",
    "confusion": "Confusion",
    "training": "Training",
    "run": "What was run",
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
    missing: Mapping[str, str] = field(
        default_factory=dict
    )  # key of PARTS: a sentence on what is left out
    scores: Sequence[StageScores] = ()
    curves: Curves = field(default_factory=dict)
    trainings: Sequence[Training] = ()


def report_page(report: Report) -> str:
    """The whole page as text; a part that cannot be shown is left out with a sentence."""
    matrices = [
        confusion_chart(f"{row.stage}: rows are the truth", row.confusion, list(row.iou))
        for row in reversed(report.scores)
        if row.confusion is not None
    ]
    content = {
        "scores": report.scores,
        "check": report.survey.facts if not report.survey.truth else (),
        "gallery": report.survey.cases,
        "threshold": report.curves,
        "confusion": matrices,
        "training": report.trainings,
        "run": report.provenance,
    }
    absent = [
        row for row in report.scores if row.miou_all not in (None, row.miou_present)
    ]  # classes count as 0
    ious = [100 * facts.iou for facts in report.survey.facts if facts.iou is not None]
    return render(
        "report.html",
        title=report.title,
        subtitle=report.subtitle,
        report=report,
        survey=report.survey,
        made=report.provenance,
        parts={
            name: title
            for name, title in PARTS.items()
            if content[name] or report.missing.get(name)
        },
        tiles=_tiles(report),
        columns=_class_columns(report.scores),
        class_names=list(dict.fromkeys(name for row in report.scores for name in row.iou)),
        with_absent=[f"{row.title} {_percent(row.miou_all)}" for row in absent],
        ious=histogram(f"Images by the IoU of {report.survey.last}", ious, "IoU %")
        if len(ious) > 1
        else None,
        doubtful=sorted(report.survey.facts, key=ImageFacts.rank)[:MAX_TO_CHECK],
        jpeg=_jpeg_options(report.survey),
        legend=_legend(report),
        curves=_curve_charts(report),
        matrices=matrices,
        trainings=[(training.title, training_charts(training)) for training in report.trainings],
        makers={
            folder: _maker(values, report.provenance)
            for folder, values in report.provenance.makers.items()
        },
        settings=_sections(report.provenance.settings),
    )


def render(template: str, **values: Any) -> str:
    """A page as text; bytes of file names that are not UTF-8 become question marks."""
    return (
        environment()
        .get_template(template)
        .render(values)
        .encode("utf-8", "replace")
        .decode("utf-8")
    )


@cache
def environment() -> Environment:
    """The templates of this package, with the filters that they use."""
    loader = PackageLoader("tagmask.report")
    made = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"code": _code, "plain": _plain, "facts": _facts, "jpeg": data_uri}
    return made


def data_uri(picture: Picture, longest: int, quality: int) -> str:
    """A picture (H, W, 3) as JPEG inside the page, its longer side at most ``longest`` pixels."""
    image = check_picture(picture)
    scale = min(1.0, longest / max(image.shape[:2]))
    image = resize(
        image, (max(1, round(image.shape[0] * scale)), max(1, round(image.shape[1] * scale)))
    )
    file = io.BytesIO()
    # Full colour resolution, since the outlines of masks are a pixel wide.
    Image.fromarray(image).save(file, format="JPEG", quality=quality, subsampling=0)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode("ascii")


def _tiles(report: Report) -> list[tuple[str, str, str]]:
    """The numbers to see first: value, name, explanation."""
    # Per stage the last column, which for seeds is a rule without masks if there is any; the last stage first.
    stages = {row.stage: row for row in _class_columns(report.scores)}
    tiles = [
        (_percent(s.miou_present), f"mIoU of {s.stage}", _how(report, s))
        for s in reversed(stages.values())
    ]
    for training in report.trainings:
        rates = [row["map"] for row in training.rows if "map" in row]
        tiles += (
            [(_percent(rates[-1]), "mAP of the tags", "classifier, held-out images")]
            if rates
            else []
        )
    survey = report.survey
    if survey.truth or not survey.facts:
        return tiles
    explained = {
        "agreement": f"mIoU of {survey.last} with {survey.before}",
        "confidence": "mean over the images",
    }
    for name, explanation in explained.items():
        values = [value for facts in survey.facts if (value := getattr(facts, name)) is not None]
        tiles += [(_percent(float(np.mean(values))), name, explanation)] if values else []
    odd = sum(bool(facts.missing or facts.extra) for facts in survey.facts)
    return [*tiles, (str(odd), "images to check", f"{survey.last} and tags name different classes")]


def _how(report: Report, scores: StageScores) -> str:
    if scores.threshold is None:
        return f"{scores.images} images"
    oracles = [
        row
        for row in report.scores
        if row.stage == scores.stage and row.rule == ORACLE and row is not scores
    ]
    text = f"threshold {scores.threshold:.2f} by {scores.rule_name}"
    return text + "".join(f"; oracle {_percent(row.miou_present)}" for row in oracles)


def _class_columns(scores: Iterable[StageScores]) -> list[StageScores]:
    """Of each kind of maps the oracle, then the first rule without masks; all other stages."""
    columns: dict[tuple[str, bool], StageScores] = {}
    for row in scores:
        columns.setdefault((row.stage, row.rule == ORACLE), row)
    return list(columns.values())


def _jpeg_options(survey: Survey) -> tuple[int, int]:
    """Longer side and JPEG quality at which all pictures of the gallery fit the budget."""
    pictures = [
        p
        for cases in survey.cases.values()
        for case in cases
        for _, p in case.pictures
        if p is not None
    ]
    for options in JPEG_OPTIONS:
        if sum(len(data_uri(picture, *options)) for picture in pictures) <= BUDGET:
            break
    return options


def _legend(report: Report) -> list[tuple[str, str]]:
    """Name and colour of each class in the gallery; unsure has no colour, it is hatched."""
    labels = sorted(
        {label for cases in report.survey.cases.values() for case in cases for label in case.labels}
        - {0}
    )
    colours = ["#" + bytes(colour).hex() for colour in voc_palette()]
    return [
        ("unsure", "") if label == UNSURE else (report.classes[label - 1], colours[label])
        for label in labels
    ]


def _curve_charts(report: Report) -> list[Chart]:
    """mIoU of every kind of maps with the thresholds chosen, and the two kinds of error of the last."""

    def line(name: str, values: Sequence[float], marks: Sequence[Mark] = ()) -> Line:
        return Line(name, [i / len(values) for i in range(len(values))], values, marks)

    lines, errors = [], []
    for title, curve in report.curves.items():
        marks = []
        for row in report.scores:
            if row.stage == title and row.threshold is not None and row.miou_present is not None:
                text = f"{row.rule_name}: {_percent(row.miou_present)} at {row.threshold:.2f}"
                marks.append(
                    Mark(row.threshold, 100 * row.miou_present, text, hollow=row.rule != ORACLE)
                )
        lines.append(line(title, curve["miou_present"], marks))
        errors = [line("FP: too much", curve["fp"]), line("FN: too little", curve["fn"])]
    if not lines:
        return []
    return [
        line_chart("mIoU of the maps", lines, "background threshold", "mIoU %", zero=True),
        line_chart(
            f"Errors of the {lines[-1].name}",
            errors,
            "background threshold",
            "% of the union",
            zero=True,
        ),
    ]


def training_charts(training: Training) -> list[Chart]:
    """Loss, its parts, and what validation measured; each only if it was logged."""
    names = {name for row in training.rows for name in row} - {"step", "seconds", "lr"}
    losses = [name for name in ("loss", "val_loss") if name in names]
    rates = [name for name in RATES if name in names]
    parts = sorted(names - {*losses, *rates})
    drawn = (
        ("Loss", losses),
        ("Parts of the loss", parts if len(parts) > 1 else []),
        ("Validation", rates),
    )
    charts = []
    for title, kinds in drawn:
        lines, unit = (
            [_log_line(training, name) for name in kinds],
            "loss" if kinds is not rates else "%",
        )
        charts += [line_chart(title, lines, "step", unit, zero=unit == "%")] if lines else []
    return charts


def _log_line(training: Training, name: str) -> Line:
    rows, factor = [row for row in training.rows if name in row], 100 if name in RATES else 1
    title = LOGGED.get(name, name.replace("_", " "))
    return Line(title, [row["step"] for row in rows], [factor * row[name] for row in rows])


def _maker(values: Mapping[str, Any], made: Provenance) -> str:
    """The weights and settings that made a folder."""
    digests = [values[name] for name in NETWORKS if name in values]
    weights = [
        f"weights {digest} ({made.weights_file(digest) or 'not in this run folder'})"
        for digest in digests
    ]
    return "; ".join(
        [*weights, *(f"{name} = {_plain(v)}" for name, v in values.items() if name not in NETWORKS)]
    )


def _sections(settings: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Tables of a TOML file by title; values outside any table come first."""
    loose = {name: value for name, value in settings.items() if not isinstance(value, Mapping)}
    tables = {
        f"config.toml [{name}]": value
        for name, value in settings.items()
        if isinstance(value, Mapping)
    }
    return {**({"config.toml": loose} if loose else {}), **tables}


def _code(text: str) -> Markup:
    """Plain text in which words between backticks are shown as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _percent(value: float | None) -> str:
    return "–" if value is None or math.isnan(value) else f"{100 * value:.1f}"


def _plain(value: Any) -> str:
    """A setting as text."""
    if isinstance(value, (list, tuple)):
        return " ".join(map(_plain, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{name} = {_plain(part)}" for name, part in value.items()) or "nothing"
    if value is None:
        return "default"
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _facts(facts: ImageFacts) -> str:
    """What is known about an image, in one line."""
    values = {"IoU": facts.iou, "agreement": facts.agreement, "confidence": facts.confidence}
    lists = {"tags": facts.tags, "not found": facts.missing, "not tagged": facts.extra}
    words = [f"{name} {_percent(value)}" for name, value in values.items() if value is not None]
    return " · ".join(
        [*words, *(f"{name}: {', '.join(names)}" for name, names in lists.items() if names)]
    )
