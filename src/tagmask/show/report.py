"""The report of a run as one HTML page: what was found, in numbers and pictures, and how it was made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tagmask.show.chart import Line, Mark, histogram, line_chart
from tagmask.show.html import (
    Cell,
    details,
    escape,
    number_cell,
    page,
    paragraph,
    percent,
    percent_cell,
    section,
    table,
    text_cell,
)
from tagmask.show.report_data import ORACLE, ImageFacts, LabelScores, Report, Training
from tagmask.show.report_gallery import gallery
from tagmask.show.report_matrix import matrix_chart, worst_confusions
from tagmask.show.report_run import run_section

TO_CHECK = 20  # images in the table of those to check first
RATES = ("map", "miou", "pixel_accuracy", "accuracy")  # logged values that are fractions, more is better
SHOWN = {"map": "mAP", "miou": "mIoU", "val_loss": "validation", "loss": "training", "pixel_accuracy": "pixel accuracy"}
_PARTS = {
    "scores": "Scores",
    "check": "To check first",
    "gallery": "Gallery",
    "threshold": "Background threshold",
    "confusion": "Confusion",
    "training": "Training",
    "run": "What was run",
}


def report_page(report: Report) -> str:
    """The whole page as text; a part that cannot be shown is left out with a sentence."""
    parts = {
        "scores": _scores(report),
        "check": [] if report.truth else _check(report),
        "gallery": _gallery(report),
        "threshold": _threshold(report),
        "confusion": _confusion(report),
        "training": _training(report),
    }
    sections, shown = [], []
    for name, content in parts.items():
        told = report.missing.get(name)
        content = content + ([paragraph(told, "muted")] if told else [])
        if content:
            sections.append(section(name, _PARTS[name], *content))
            shown.append(name)
    links = "".join(f'<a href="#{name}">{_PARTS[name]}</a>' for name in [*shown, "run"])
    head = [
        f"<h1>{escape(report.name)}</h1>",
        paragraph(report.subtitle, "under"),
        f"<nav>{links}</nav>",
        _tiles(report),
        *(paragraph(note, "note") for note in report.notes),
    ]
    return page(report.name, "\n".join([*head, *sections, run_section(report.provenance, _PARTS["run"])]))


def _tiles(report: Report) -> str:
    """The few numbers one looks for first."""
    tiles = [(percent(s.miou_present), f"mIoU of {s.stage}", _how(report, s)) for s in _headline(report)]
    for training in report.trainings:
        rates = [row["map"] for row in training.rows if "map" in row]
        if rates:
            tiles.append((percent(rates[-1]), "mAP of the tags", "classifier, held-out images"))
    if not report.truth:
        tiles += _blind_tiles(report)
    drawn = [
        f'<div class="tile"><b>{n}</b><span>{escape(what)}</span><small>{escape(how)}</small></div>'
        for n, what, how in tiles
    ]
    return f'<div class="tiles">{"".join(drawn)}</div>' if drawn else ""


def _headline(report: Report) -> list[LabelScores]:
    """One row per stage, the last stage first; of the seeds one whose threshold saw no mask, if there is any."""
    best: dict[str, LabelScores] = {}
    for scores in report.scores:
        if scores.stage not in best or best[scores.stage].rule == ORACLE:
            best[scores.stage] = scores
    return list(reversed(best.values()))


def _how(report: Report, scores: LabelScores) -> str:
    if scores.threshold is None:
        return f"{scores.images} images"
    tuned = [other for other in report.scores if other.stage == scores.stage and other.rule == ORACLE]
    told = f"threshold {scores.threshold:.2f} by {scores.rule.replace('_', ' ')}"
    return told + "".join(f"; oracle {percent(other.miou_present)}" for other in tuned if other is not scores)


def _blind_tiles(report: Report) -> list[tuple[str, str, str]]:
    tiles = []
    agreement = [f.agreement for f in report.facts if f.agreement is not None]
    confidence = [f.confidence for f in report.facts if f.confidence is not None]
    if agreement:
        tiles.append((percent(float(np.mean(agreement))), "agreement", f"mIoU of {report.last} with {report.before}"))
    if confidence:
        tiles.append((percent(float(np.mean(confidence))), "confidence", "mean over the images"))
    if report.facts:
        odd = sum(bool(f.lacking or f.extra) for f in report.facts)
        tiles.append((str(odd), "images to check", f"{report.last} and tags name different classes"))
    return tiles


def _gallery(report: Report) -> list[str]:
    if not report.cases:
        return []
    if report.truth:
        told = f"Ranked by the IoU of {report.last} with the truth, averaged over the classes of the image"
        groups = {"best": "Best", "median": "Median", "worst": "Worst"}
    else:
        by = f"the agreement of {report.last} with {report.before}" if report.before else "confidence"
        told = f"There is no truth to compare with; ranked by {by}"
        groups = {"worst": "Check first", "median": "In the middle", "best": "Least in doubt"}
    return [paragraph(f"{told} ({report.surveyed})."), gallery(report.cases, groups, report.classes)]


def _check(report: Report) -> list[str]:
    """Without truth: what speaks against the labels of each image."""
    if not report.facts:
        return []
    ranked = sorted(report.facts, key=doubt)[:TO_CHECK]
    rows = [
        [
            text_cell(f.name, "name"),
            percent_cell(f.agreement, bar=True),
            percent_cell(f.confidence, bar=True),
            percent_cell(f.unsure),
            text_cell(", ".join(f.lacking) or "–"),
            text_cell(", ".join(f.extra) or "–"),
        ]
        for f in ranked
    ]
    heads = ["image", "agreement %", "confidence %", "unsure %", "tagged, not found", "found, not tagged"]
    before = f"Agreement: mIoU of {report.last} with {report.before}. " if report.before else ""
    told = (
        f"The {len(rows)} images most in doubt ({report.surveyed}). {before}Confidence: mean probability of the chosen "
        "class where probabilities were stored, else how far the maps lie from the threshold."
    )
    return [paragraph(told), table(heads, rows, kind="full")]


def doubt(facts: ImageFacts) -> tuple[float, float, str]:
    """Sorts the images most in doubt first: by agreement, where there are two stages, then by confidence."""
    return (
        facts.agreement if facts.agreement is not None else 1.0,
        facts.confidence if facts.confidence is not None else 1.0,
        facts.name,
    )


def _scores(report: Report) -> list[str]:
    if not report.scores:
        return []
    rows = [
        [
            text_cell(s.stage),
            percent_cell(s.miou_present, bar=True),
            Cell(_badge(s), s.title),
            number_cell(s.threshold, 2),
            percent_cell(s.fp),
            percent_cell(s.fn),
            number_cell(s.images),
        ]
        for s in report.scores
    ]
    heads = ["labels", "mIoU %", "threshold chosen", "at", "FP %", "FN %", "images"]
    parts = [
        paragraph(
            "mIoU: mean over the classes that occur, with the background. FP, FN: too much and too little, mean over "
            "the classes without background. An oracle threshold was tuned on the masks and cannot be had in "
            "earnest; the others were chosen without masks."
        ),
        table(heads, rows, kind="full"),
        *_absent(report.scores),
        "<h3>IoU of each class, in per cent</h3>",
        _per_class(report.scores),
    ]
    images = [f.iou for f in report.facts if f.iou is not None]
    if len(images) > 1:
        parts.append(histogram(f"Images by the IoU of {report.last}", images, "IoU %"))
    return parts


def _badge(scores: LabelScores) -> str:
    if not scores.rule:
        return '<span class="muted">–</span>'
    if scores.rule == ORACLE:
        return '<span class="badge oracle">oracle: with masks</span>'
    return f'<span class="badge">{escape(scores.rule.replace("_", " "))}: without masks</span>'


def _absent(scores: Sequence[LabelScores]) -> list[str]:
    """The other mean, where classes that never occur make a difference."""
    told = [
        f"{s.title} {percent(s.miou_all)}"
        for s in scores
        if s.miou_all is not None and s.miou_present is not None and abs(s.miou_all - s.miou_present) > 5e-4
    ]
    return [paragraph(f"With absent classes counted as 0, mIoU is: {'; '.join(told)}.")] if told else []


def _per_class(scores: Sequence[LabelScores]) -> str:
    names = list(dict.fromkeys(name for s in scores for name in s.iou))
    # Of each kind of maps the oracle and the first threshold without masks are enough here.
    columns, seen = [], set()
    for one in scores:
        key = (one.stage, one.rule == ORACLE)
        if key not in seen:
            seen.add(key)
            columns.append(one)
    rows = [[text_cell(name), *(percent_cell(s.iou.get(name), bar=True) for s in columns)] for name in names]
    return table(["class", *(s.title for s in columns)], rows, kind="classes full")


def _threshold(report: Report) -> list[str]:
    if not report.curves:
        return []
    lines = []
    for curve in report.curves:
        marks = [
            Mark(t, 100 * miou, f"{rule.replace('_', ' ')}: {100 * miou:.1f} at {t:.2f}", hollow=rule != ORACLE)
            for rule, (t, miou) in curve.chosen.items()
        ]
        lines.append(Line(curve.title, curve.thresholds, [100 * v for v in curve.miou], marks))
    last = report.curves[-1]
    balance = [
        Line("FP: too much", last.thresholds, [100 * v for v in last.fp]),
        Line("FN: too little", last.thresholds, [100 * v for v in last.fn]),
    ]
    charts = [
        line_chart("mIoU of the maps", lines, "background threshold", "mIoU %", zero=True),
        line_chart(f"Mistakes of the {last.title}", balance, "background threshold", "% of the union", zero=True),
    ]
    told = (
        "A pixel is background where no map exceeds the threshold. Filled circle: oracle, the best threshold by the "
        "masks. Hollow circles: chosen without masks."
    )
    return [paragraph(told), f'<div class="charts">{"".join(charts)}</div>']


def _confusion(report: Report) -> list[str]:
    parts: list[str] = []
    for scores in reversed(report.scores):
        if scores.confusion is not None:
            names = list(scores.iou)
            content = [matrix_chart(scores.confusion, names), worst_confusions(scores.confusion, names)]
            parts.append(details(f"{scores.stage}: rows are the truth", *content, opened=not parts))
    if parts:
        parts.insert(0, paragraph("Per cent of each true class's pixels; blue: right, orange: taken for another."))
    return parts


def _training(report: Report) -> list[str]:
    parts = []
    for training in report.trainings:
        charts = "".join(training_charts(training))
        parts.append(f'<h3>{escape(training.title)}</h3><div class="charts">{charts}</div>')
    return parts


def training_charts(training: Training) -> list[str]:
    """Loss, its parts, and what validation measured; each only if it was logged."""
    names = {name for row in training.rows for name in row} - {"step", "seconds", "lr"}
    losses = [name for name in ("loss", "val_loss") if name in names]
    rates = [name for name in RATES if name in names]
    rest = sorted(names - {*losses, *rates})
    charts = []
    if losses:
        charts.append(line_chart("Loss", _lines(training, losses), "step", "loss"))
    if len(rest) > 1:
        charts.append(line_chart("Parts of the loss", _lines(training, rest), "step", "loss"))
    if rates:
        charts.append(line_chart("Validation", _lines(training, rates, 100), "step", "%", zero=True))
    return charts


def _lines(training: Training, names: Sequence[str], factor: float = 1) -> list[Line]:
    lines = []
    for name in names:
        rows: list[Mapping[str, float]] = [row for row in training.rows if name in row]
        values = [factor * row[name] for row in rows]
        lines.append(Line(SHOWN.get(name, name.replace("_", " ")), [row["step"] for row in rows], values))
    return lines
