"""The report of a run: numbers from the run folder, pictures from a look at its images, one HTML file.

Nothing is written but report.html. A stage that has not run is left out with a sentence, and without masks the
stages are compared with each other instead of with the truth.
"""

from dataclasses import replace
from datetime import datetime
from pathlib import Path

from tagmask import __version__
from tagmask.config import ReportSettings, check
from tagmask.data.catalog import Catalog
from tagmask.data.open import open_catalog
from tagmask.errors import TagmaskError
from tagmask.files import write_text
from tagmask.show.html import percent
from tagmask.show.report import doubt, report_page
from tagmask.show.report_data import Case, ImageFacts, LabelScores, Report
from tagmask.show.report_gallery import pick
from tagmask.show.report_run import NETWORKS, weights_of
from tagmask.stages.report_files import (
    LABELS,
    RULE,
    Scored,
    label_scores,
    older_than_files,
    read_provenance,
    read_scores,
    read_trainings,
)
from tagmask.stages.report_survey import (
    FOLDERS,
    MOST,
    TITLES,
    Files,
    choose_threshold,
    evenly,
    look_at,
    make_case,
)
from tagmask.stages.score_labels import score_labels

FILE = "report.html"


def write_report(settings: ReportSettings) -> Path:
    """Gather what the run folder holds and write its page."""
    check(settings)
    if not settings.out.is_dir():
        raise TagmaskError(f"{settings.out} does not exist; give the folder of a run with --out.")
    report = gather(settings)
    file = settings.out / FILE
    write_text(file, report_page(report))
    return file


def gather(settings: ReportSettings) -> Report:
    """Everything that the page tells."""
    run, catalog = settings.out, open_catalog(settings)
    files, scored = Files(run, catalog), read_scores(run)
    having = {stage: found for stage in FOLDERS if (found := files.having(stage))}
    trainings, untrained = read_trainings(run)
    if not having and not trainings:
        raise TagmaskError(
            f"{run} holds no training, maps or masks of these images; check --out and the data, or run "
            f"`tagmask train --out {run}` first."
        )
    report = _empty(settings, catalog, _set_threshold(files, scored, having))
    _refuse_other_classes(report)
    scores = _scores(files, scored, having)
    report = _with_images(report, settings, files, having)
    return replace(
        report,
        scores=scores,
        curves=scored.curves,
        trainings=trainings,
        notes=_notes(report, files, scored),
        missing={**_missing(settings, report.truth, having, scores), "training": untrained},
    )


def _empty(settings: ReportSettings, catalog: Catalog, rule: str) -> Report:
    run = settings.out.resolve()
    facts = [
        ("run folder", str(run)),
        ("data", settings.data),
        ("images", str(len(catalog))),
        ("classes", ", ".join(catalog.classes)),
        ("fingerprint of names and tags", catalog.fingerprint()),
    ]
    facts += [("threshold of the seeds on this page", rule)] if rule else []
    now = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M")
    told = f"{len(catalog)} images, {len(catalog.classes)} classes · written {now} by tagmask {__version__}"
    return Report(f"Run {run.name}", told, catalog.classes, read_provenance(settings.out, facts), catalog.has_masks)


def _refuse_other_classes(report: Report) -> None:
    """Labels are numbers; under other classes they would get wrong names."""
    for folder, values in report.provenance.makers.items():
        known = values.get("classes")
        if isinstance(known, list) and known != list(report.classes):
            raise TagmaskError(
                f"{folder} was made for the classes {', '.join(map(str, known[:5]))}{' …' if len(known) > 5 else ''}, "
                f"the data have {', '.join(report.classes[:5])}{' …' if len(report.classes) > 5 else ''}; "
                "give the data that the run was made from."
            )


def _set_threshold(files: Files, scored: Scored, having: dict[str, list[int]]) -> str:
    """Choose where the seeds become labels, without masks; the sentence on it."""
    if "seeds" not in having:
        return ""
    known = scored.threshold()
    if known is not None:
        files.threshold = known
        return f"{known:.2f} by {RULE}, from scores.json"
    try:
        files.threshold = choose_threshold(files, having["seeds"])
    except TagmaskError as error:
        return f"{files.threshold:.2f}, as none could be chosen: {error}"
    return f"{files.threshold:.2f} by {RULE}, chosen for this page"


def _scores(files: Files, scored: Scored, having: dict[str, list[int]]) -> list[LabelScores]:
    """Rows from scores.json; labels that it does not know are counted here."""
    found = list(scored.seeds)
    for stage in LABELS:
        if stage in scored.labels:
            found.append(scored.labels[stage])
        elif stage in having and files.catalog.has_masks:
            counted = score_labels(files.catalog.subset(having[stage]), files.run / FOLDERS[stage], processes=1)
            files.problems |= counted.missing
            found += [label_scores(stage, counted.to_json())] if counted.images else []
    return found


def _with_images(report: Report, settings: ReportSettings, files: Files, having: dict[str, list[int]]) -> Report:
    """The report with facts on its images and the rows of the gallery."""
    if not having:
        return report
    stages = list(having)
    last, before = stages[-1], stages[-2] if len(stages) > 1 else None
    indices = evenly(having[last], MOST)
    truth = report.truth
    facts = look_at(files, indices, last, before, truth)
    if truth and not facts:  # the masks are of other images
        truth, facts = False, look_at(files, indices, last, before, False)
    part = f"{len(facts)} of {len(having[last])} images" if len(facts) < len(having[last]) else f"{len(facts)} images"
    return replace(
        report,
        truth=truth,
        last=TITLES[last],
        before=TITLES[before] if before else "",
        facts=facts,
        surveyed=part,
        cases=_cases(settings, files, sorted(facts, key=_rank), stages, truth),
    )


def _rank(facts: ImageFacts) -> tuple[float, float, str]:
    """Worst first."""
    return doubt(facts) if facts.iou is None else (facts.iou, 0.0, facts.name)


def _cases(
    settings: ReportSettings, files: Files, ranked: list[ImageFacts], stages: list[str], truth: bool
) -> list[Case]:
    worst, median, best = pick(len(ranked), settings.rows)
    chosen = [("best", reversed(best)), ("median", median), ("worst", worst)]
    made = [
        make_case(files, ranked[place], group, stages, truth, _told(ranked[place]))
        for group, places in chosen
        for place in places
    ]
    return [case for case in made if case is not None]


def _told(facts: ImageFacts) -> str:
    values = {"IoU": facts.iou, "agreement": facts.agreement, "confidence": facts.confidence}
    told = [f"{name} {percent(value)}" for name, value in values.items() if value is not None]
    told += [f"tags: {', '.join(facts.tags)}"] if facts.tags else []
    told += [f"not found: {', '.join(facts.lacking)}"] if facts.lacking else []
    told += [f"not tagged: {', '.join(facts.extra)}"] if facts.extra else []
    return " · ".join(told)


def _strangers(report: Report) -> list[str]:
    """A sentence for each folder made by weights that are not, or no longer, in the run."""
    made = report.provenance
    return [
        f"{folder} was made by weights ({values[name]}) that are not in this run folder: they were given by "
        "--model, or have been trained anew since."
        for folder, values in made.makers.items()
        for name in NETWORKS
        if name in values and weights_of(values[name], made.weights) is None
    ]


def _notes(report: Report, files: Files, scored: Scored) -> list[str]:
    """What a reader should know before trusting the page."""
    notes = [*_strangers(report), *older_than_files(files.run, [FOLDERS[stage] for stage in sorted(scored.stages)])]
    if scored.other_classes(report.classes):
        notes.append(f"scores.json is of other classes than these data; run `tagmask score --out {files.run}` again.")
    if files.problems:
        first = next(iter(files.problems.values()))
        notes.append(f"{len(files.problems)} images could not be used in full; the first because: {first}")
    return notes


def _missing(
    settings: ReportSettings, truth: bool, having: dict[str, list[int]], scores: list[LabelScores]
) -> dict[str, str]:
    """A sentence for each part that is left out."""
    run, told = settings.out, {}
    lacking = [TITLES[stage] for stage in FOLDERS if stage not in having]
    if not having:
        told["gallery"] = "There are no maps, pseudo labels or predictions of these images in the run yet."
    elif lacking:
        told["gallery"] = f"Not in the run yet: {', '.join(lacking)}."
    if not truth and not scores:
        told["scores"] = "These data have no masks, so there are no scores, threshold curve and confusion matrix."
        return told
    if not any(s.threshold is not None for s in scores):
        fault = "have not been scored" if "seeds" in having else "have not been made"
        told["threshold"] = f"The seeds {fault}; run `tagmask {'score' if 'seeds' in having else 'seeds'} --out {run}`."
    if lacking:
        told["scores"] = f"Not in the run yet, so without scores: {', '.join(lacking)}."
    if not any(s.confusion is not None for s in scores):
        told["confusion"] = "There are no pseudo labels or predictions to count confusions of."
    return told
