"""The report of a run: gather what the run folder holds and write one HTML file, report.html.

A stage that has not run is left out with a sentence, and without masks the stages are compared with
each other instead of with the truth.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tagmask import layout
from tagmask.config import PseudoSettings, ReportSettings
from tagmask.errors import TagmaskError, typed
from tagmask.files import write_text
from tagmask.inference.selfcheck import read_verdicts
from tagmask.inference.tagcheck import read_findings, suspects_of
from tagmask.notes import INPUT, Parts
from tagmask.report import records
from tagmask.report.cover import MOST_PHOTOS, Cover, about_of, cover_of, summarise
from tagmask.report.doubt import look_first
from tagmask.report.images import TITLES, RunLabels, survey
from tagmask.report.page import Report, report_page
from tagmask.report.records import Provenance, StageScores
from tagmask.runs import record
from tagmask.runs.record import check_classes
from tagmask.runs.run import Run
from tagmask.stages.score import score_labels
from tagmask.version import __version__

# classes that the title names
MOST_NAMED = 4
Stages = dict[str, list[int]]  # stage: the images that it has a file for


@dataclass(frozen=True)
class Written:
    """Hold where the page is, and what to look at first."""

    file: Path
    look_first: str = ""  # a sentence that names the images most in doubt; empty if there are none

    def summary(self) -> str:
        """Return the sentences that end the stage."""
        lines = [self.look_first] if self.look_first else []
        return "\n".join([*lines, f"report: {self.file}"])


def write_report(run: Run, settings: ReportSettings) -> Written:
    """Gather what the run folder holds and write its page.

    Args:
        run: The run.
        settings: Those of the stage.
    """
    if not run.out.is_dir():
        raise TagmaskError(f"{run.out} does not exist; give the folder of a run with --out.")
    file = run.out / layout.REPORT
    report = gather(run, settings)
    write_text(file, report_page(report))
    run.look_first = look_first(report.doubts())
    return Written(file, run.look_first)


def gather(run: Run, settings: ReportSettings) -> Report:
    """Return everything on the page.

    Args:
        run: The run.
        settings: Those of the stage.
    """
    out = run.out
    catalog = run.catalog
    rule = run.settings.of(PseudoSettings).rule
    labels = RunLabels(out, catalog)
    scored, curves = records.read_scores(out, rule)
    stages = {stage: indices for stage in records.FOLDERS if (indices := labels.images_of(stage))}
    trainings, missing_logs = records.read_trainings(out)
    if not stages and not trainings:
        raise TagmaskError(
            f"{out} contains no training, maps or masks of these images; "
            f"check --out and the data, or run `tagmask train --out {typed(out)}` first."
        )
    for stage in stages:  # labels are numbers; those of other classes would get wrong names
        check_classes(out / records.FOLDERS[stage], catalog.classes, TITLES[stage])
    facts = _facts(run, _set_threshold(labels, scored, stages, rule))
    provenance = records.read_provenance(out, facts)
    scores = _all_scores(labels, scored, stages)
    images = survey(labels, stages, settings.rows)
    cover = _cover(run, settings, labels, stages)
    now = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M")
    return Report(
        title=_title(catalog.classes, len(catalog)),
        subtitle=(
            f"{Path(os.path.realpath(out)).name} · {len(catalog)} images, "
            f"{len(catalog.classes)} classes · written {now} by tagmask {__version__} · "
            f"look inside and correct: `tagmask explore {typed(out)}`"
        ),
        run_folder=typed(out),
        suspects=suspects_of(read_findings(out / layout.CLASSIFIER / layout.TAGS)),
        classes=catalog.classes,
        provenance=provenance,
        survey=images,
        notes=_notes(provenance, labels, scored),
        verdicts=sorted(read_verdicts(out / layout.CHECK), key=lambda row: row["trust"]),
        missing={
            **_missing(out, images.truth, stages, scores),
            "training": missing_logs,
            "cover": _missing_cover(stages),
        },
        scores=scores,
        curves=curves,
        trainings=trainings,
        cover=cover,
    )


def _title(classes: Sequence[str], images: int) -> str:
    """Say what the run is about: its first classes, and in how many images they are."""
    named = ", ".join(classes[:MOST_NAMED])
    more = len(classes) - MOST_NAMED
    if more > 0:
        named += f" and {more} more"
    return f"{named} in {images} images"


def made_from(run: Run, settings: ReportSettings) -> Parts:
    """Return what the page is made from: its settings, and the table about the photos.

    Args:
        run: The run.
        settings: Those of the stage.
    """
    parts = record.made_from(settings)
    if not settings.by:
        # pages of runs that knew no such setting are the same
        del parts["by"]
    known = about_of(settings, run.settings)
    if known.about is not None:
        parts[f"{INPUT}file of about"] = record.file_digest(known.about)
    return parts


def _cover(run: Run, settings: ReportSettings, labels: RunLabels, stages: Stages) -> Cover | None:
    """Return how much each class covers; None without predictions, or with too many."""
    known = about_of(settings, run.settings)
    indices = stages.get("predictions", [])
    if not indices or len(indices) > MOST_PHOTOS:
        return None
    return cover_of(summarise(labels, indices, known, run.settings.images))


def _missing_cover(stages: Stages) -> str:
    """Return a sentence if there are more masks than are counted for a page."""
    count = len(stages.get("predictions", []))
    if count <= MOST_PHOTOS:
        return ""
    return f"The {count:,} masks are counted by `tagmask export --format table`."


def _set_threshold(labels: RunLabels, scored: list[StageScores], stages: Stages, rule: str) -> str:
    """Choose the threshold of the seeds without masks; returns a sentence about it."""
    if "seeds" not in stages:
        return ""
    refined = [row for row in scored if row.stage == records.MAPS["refined"]]
    chosen = [row.threshold for row in refined if row.rule == rule]
    if chosen and chosen[0] is not None:
        labels.threshold = chosen[0]
        return f"{labels.threshold:.2f} by {rule}, from {layout.SCORES}"
    try:
        labels.threshold = labels.choose_threshold(stages["seeds"], rule)
    except TagmaskError as error:
        return f"{labels.threshold:.2f}, because no threshold could be chosen: {error}"
    return f"{labels.threshold:.2f} by {rule}, chosen for this page"


def _facts(run: Run, threshold: str) -> list[tuple[str, str]]:
    catalog = run.catalog
    facts = [
        ("run folder", os.path.realpath(run.out)),
        ("data", run.settings.data),
        ("images", str(len(catalog))),
        ("classes", ", ".join(catalog.classes)),
        ("fingerprint of names and tags", catalog.fingerprint()),
    ]
    if threshold:
        facts.append(("threshold of the seeds on this page", threshold))
    return facts


def _all_scores(labels: RunLabels, scored: list[StageScores], stages: Stages) -> list[StageScores]:
    """Return the scores from scores.json, and those of stages that it does not include."""
    rows = list(scored)
    titles = {row.stage for row in scored}
    for stage, title in records.LABELS.items():
        if stage not in stages or title in titles or not labels.catalog.has_masks:
            continue
        images = labels.catalog.subset(stages[stage])
        counted = score_labels(images, labels.run / records.FOLDERS[stage])
        labels.problems |= counted.missing
        rows.append(records.stage_scores(title, counted.to_json()))
    order = [*records.MAPS.values(), *records.LABELS.values()]
    return sorted(rows, key=lambda row: order.index(row.stage))


def _notes(provenance: Provenance, labels: RunLabels, scored: list[StageScores]) -> list[str]:
    """Return what a reader should know before trusting the page."""
    notes = []
    for folder, values in provenance.makers.items():
        for name in records.NETWORKS:
            if name in values and provenance.weights_file(values[name]) is None:
                notes.append(
                    f"{folder} was made by weights ({values[name]}) that are not in this run "
                    "folder: they were given with --model, or the network has been trained again "
                    "since."
                )
    again = f"run `tagmask score --out {typed(labels.run)}` again."
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
    """Return a sentence for each part of the page that is left out."""
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
            "These data have no masks, so there are no scores, "
            "threshold curves and confusion matrices."
        )
        return missing
    if not any(row.threshold is not None for row in scores):
        state, command = ("scored", "score") if "seeds" in stages else ("made", "seeds")
        missing["threshold"] = (
            f"The seeds have not been {state}; run `tagmask {command} --out {typed(run)}`."
        )
    if absent:
        missing["scores"] = f"Not in the run yet, so without scores: {absent}."
    if not any(row.confusion is not None for row in scores):
        missing["confusion"] = "There are no pseudo labels or predictions to count confusions of."
    return missing
