"""The report of a run: gather what the run folder holds and write one HTML file, report.html.

A stage that has not run is left out with a sentence, and without masks the stages are compared with each other instead
of with the truth.
"""

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tagmask import layout
from tagmask.config import ReportSettings, check
from tagmask.data.catalog import Catalog
from tagmask.data.open import open_catalog
from tagmask.errors import TagmaskError
from tagmask.files import write_text
from tagmask.inference.selfcheck import read_verdicts
from tagmask.report import records
from tagmask.report.images import TITLES, RunLabels, survey
from tagmask.report.page import Report, report_page
from tagmask.report.records import Provenance, StageScores
from tagmask.runs.record import check_classes, made_from
from tagmask.stages.score import score_labels
from tagmask.version import __version__

__all__ = ["made_from", "write_report"]

Stages = dict[str, list[int]]  # stage: the images that it has a file for


@dataclass(frozen=True)
class Written:
    """Where the page is."""

    file: Path

    def summary(self) -> str:
        return f"report: {self.file}"


def write_report(settings: ReportSettings, catalog: Catalog | None = None) -> Written:
    """Gather what the run folder holds and write its page."""
    check(settings)
    if not settings.out.is_dir():
        raise TagmaskError(f"{settings.out} does not exist; give the folder of a run with --out.")
    file = settings.out / layout.REPORT
    write_text(
        file, report_page(gather(settings, open_catalog(settings) if catalog is None else catalog))
    )
    return Written(file)


def gather(settings: ReportSettings, catalog: Catalog) -> Report:
    """Everything on the page."""
    run = settings.out
    labels, (scored, curves) = RunLabels(run, catalog), records.read_scores(run)
    stages = {stage: indices for stage in records.FOLDERS if (indices := labels.images_of(stage))}
    trainings, missing_logs = records.read_trainings(run)
    if not stages and not trainings:
        raise TagmaskError(
            f"{run} contains no training, maps or masks of these images; check --out and the data, or run "
            f"`tagmask train --out {run}` first."
        )
    for stage in stages:  # labels are numbers; those of other classes would get wrong names
        check_classes(run / records.FOLDERS[stage], catalog.classes, TITLES[stage])
    provenance = records.read_provenance(
        run, _facts(settings, catalog, _set_threshold(labels, scored, stages))
    )
    scores = _all_scores(labels, scored, stages)
    images = survey(labels, stages, settings.rows)
    now = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M")
    return Report(
        title=f"Run {Path(os.path.realpath(run)).name}",
        subtitle=f"{len(catalog)} images, {len(catalog.classes)} classes · written {now} by tagmask {__version__}",
        classes=catalog.classes,
        provenance=provenance,
        survey=images,
        notes=_notes(provenance, labels, scored),
        verdicts=sorted(read_verdicts(run / layout.CHECK), key=lambda row: row["trust"]),
        missing={**_missing(run, images.truth, stages, scores), "training": missing_logs},
        scores=scores,
        curves=curves,
        trainings=trainings,
    )


def _set_threshold(labels: RunLabels, scored: list[StageScores], stages: Stages) -> str:
    """Choose the threshold of the seeds without masks; returns a sentence about it."""
    if "seeds" not in stages:
        return ""
    chosen = [
        row.threshold
        for row in scored
        if row.stage == records.MAPS["refined"] and row.rule == records.RULE
    ]
    if chosen and chosen[0] is not None:
        labels.threshold = chosen[0]
        return f"{labels.threshold:.2f} by {records.RULE}, from {layout.SCORES}"
    try:
        labels.threshold = labels.choose_threshold(stages["seeds"])
    except TagmaskError as error:
        return f"{labels.threshold:.2f}, because no threshold could be chosen: {error}"
    return f"{labels.threshold:.2f} by {records.RULE}, chosen for this page"


def _facts(settings: ReportSettings, catalog: Catalog, threshold: str) -> list[tuple[str, str]]:
    facts = [
        ("run folder", os.path.realpath(settings.out)),
        ("data", settings.data),
        ("images", str(len(catalog))),
        ("classes", ", ".join(catalog.classes)),
        ("fingerprint of names and tags", catalog.fingerprint()),
    ]
    return [*facts, ("threshold of the seeds on this page", threshold)] if threshold else facts


def _all_scores(labels: RunLabels, scored: list[StageScores], stages: Stages) -> list[StageScores]:
    """The scores from scores.json, and those of stages that it does not include."""
    rows = list(scored)
    for stage, title in records.LABELS.items():
        if (
            stage in stages
            and labels.catalog.has_masks
            and all(row.stage != title for row in scored)
        ):
            counted = score_labels(
                labels.catalog.subset(stages[stage]), labels.run / records.FOLDERS[stage]
            )
            labels.problems |= counted.missing
            rows.append(records.stage_scores(title, counted.to_json()))
    order = [*records.MAPS.values(), *records.LABELS.values()]
    return sorted(rows, key=lambda row: order.index(row.stage))


def _notes(provenance: Provenance, labels: RunLabels, scored: list[StageScores]) -> list[str]:
    """What a reader should know before trusting the page."""
    notes = [
        f"{folder} was made by weights ({values[name]}) that are not in this run folder: they were given with "
        "--model, or the network has been trained again since."
        for folder, values in provenance.makers.items()
        for name in records.NETWORKS
        if name in values and provenance.weights_file(values[name]) is None
    ]
    again = f"run `tagmask score --out {labels.run}` again."
    titles = {row.stage for row in scored}
    scored_stages = [
        stage
        for stage in records.FOLDERS
        if records.LABELS.get(stage, records.MAPS["refined"]) in titles
    ]
    outdated = records.outdated_folders(
        labels.run, {stage: records.FOLDERS[stage] for stage in scored_stages}
    )
    if outdated:
        notes.append(f"{layout.SCORES} is older than the files in {', '.join(outdated)}; {again}")
    if any(list(row.iou)[1:] != list(labels.catalog.classes) for row in scored):
        notes.append(f"{layout.SCORES} was made for other classes than those of the data; {again}")
    if labels.problems:
        first = next(iter(labels.problems.values()))
        notes.append(
            f"{len(labels.problems)} images could not be used in full; the first reason: {first}"
        )
    return notes


def _missing(run: Path, truth: bool, stages: Stages, scores: list[StageScores]) -> dict[str, str]:
    """A sentence for each part of the page that is left out."""
    missing = {}
    absent = ", ".join(TITLES[stage] for stage in records.FOLDERS if stage not in stages)
    if not stages:
        missing["gallery"] = (
            "There are no maps, pseudo labels or predictions of these images in the run yet."
        )
    elif absent:
        missing["gallery"] = f"Not in the run yet: {absent}."
    if not truth and not scores:
        missing["scores"] = (
            "These data have no masks, so there are no scores, threshold curves and confusion matrices."
        )
        return missing
    if not any(row.threshold is not None for row in scores):
        state, command = ("scored", "score") if "seeds" in stages else ("made", "seeds")
        missing["threshold"] = (
            f"The seeds have not been {state}; run `tagmask {command} --out {run}`."
        )
    if absent:
        missing["scores"] = f"Not in the run yet, so without scores: {absent}."
    if not any(row.confusion is not None for row in scores):
        missing["confusion"] = "There are no pseudo labels or predictions to count confusions of."
    return missing
