"""What the consistency brings over the baseline, with intervals.

``gains`` answers by every kind of map, ``chain`` through all stages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tagmask.errors import TagmaskError
from tagmask.reproduction.bench import ORACLE, Bench, Training
from tagmask.reproduction.measures import KINDS, at, mean_of, only_at, unlike_acr
from tagmask.reproduction.paired import DRAWS, Gain, difference, mean_gain
from tagmask.reproduction.seed_tables import (
    ABLATION,
    ABLATION_TITLES,
    MAP_TITLES,
    own_methods,
)
from tagmask.reproduction.table import BLIND, NONE, Cell, Column, Table, TableRow
from tagmask.stages.score import check_masks

# map method, steps of affinity
GAIN_MAPS = (
    ("acr", 1),
    ("acr", 2),
    ("weighted", 1),
    ("weighted", 2),
    ("generic", 1),
    ("generic", 2),
)
INTERVAL_NOTE = (
    f"gains over the baseline in points; [ ] holds 95 % of {DRAWS} draws of the photos "
    "(paired bootstrap of the mean over the random seeds, thresholds as they are)."
)


@dataclass(frozen=True)
class _MapGains:
    """A kind of map: the baseline's score by each rule, and the gains over it."""

    title: str
    baseline: list[Cell]
    gains: list[Gain | None]

    def row(self) -> TableRow:
        gains = [gain_cell(gain) for gain in self.gains]
        return TableRow(self.title, (*self.baseline, *gains))


def gains(bench: Bench) -> Table:
    """Compare each consistency with the baseline by every kind of map, with intervals.

    Map methods that somebody has added to the registry stand below the mean, which stays that of
    the same nine kinds of maps.
    """
    variants = bench.rows(ABLATION)
    if len(variants) < 2 or "none" not in variants:
        raise TagmaskError(
            "gains compares with the baseline; give --rows none and at least one other row."
        )
    runs = bench.trained(variants)
    maps = []
    for method, steps in GAIN_MAPS:
        maps += _map_gains(bench, runs, method, steps)
    mean = _mean_of_maps(maps)
    own = []
    for method in own_methods():
        for steps in (1, 2):
            own += _map_gains(bench, runs, method, steps)
    rows = [kind.row() for kind in (*maps, mean, *own)]
    columns = _gain_columns(bench, variants)
    by_column = []
    for column, cell in zip(columns, mean.row().cells, strict=True):
        if column.gain:
            of_seeds = ", ".join(f"{gain:+.1f}" for gain in cell.ours)
            by_column.append(f"{column.title} {of_seeds or NONE}")
    notes = [
        score_note(bench),
        *unlike_acr(bench),
        INTERVAL_NOTE,
        f"threshold tuned on the masks (oracle); blind: by {bench.rules[1]}, chosen without masks.",
        f"mean of the maps for each seed: {'; '.join(by_column)}.",
    ]
    if own:
        notes.append(f"below the mean and not in it: {', '.join(own_methods())}.")
    return Table(
        name="gains",
        title="Gain of the consistency",
        head="maps",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=tuple(notes),
    )


def _gain_columns(bench: Bench, variants: Mapping[str, Any]) -> list[Column]:
    """Return the columns of the baseline, then those of the gains; one for each rule."""
    columns = []
    for rule in bench.rules:
        columns.append(Column(_title_at(rule, ABLATION_TITLES["none"])))
    for name in variants:
        if name == "none":
            continue
        for rule in bench.rules:
            columns.append(Column(_title_at(rule, ABLATION_TITLES[name]), gain=True))
    return columns


def chain(bench: Bench) -> Table:
    """Follow baseline and ACR through every stage: does the gain survive to the masks?"""
    check_masks(bench.training_images)
    runs = bench.trained({name: ABLATION[name] for name in ("none", "both")})
    blind = bench.rules[1]
    seeds = bench.scored(runs, is_chain=True)
    labels = {}
    for name, variant in runs.items():
        labels[name] = [bench.label_scores(run, bench.training_images) for run in variant]
    rows = []
    for kind, title in KINDS.items():
        at_threshold = {}
        for name, scores in seeds.items():
            at_threshold[name] = [_scores_and_photos(seed, kind, blind) for seed in scores]
        rows.append(_chain_row(bench, f"seeds, {title}", at_threshold))
    of_labels = {}
    for name, scores in labels.items():
        of_labels[name] = [(seed["pseudo"], seed["photos"]) for seed in scores]
    rows.append(_chain_row(bench, "pseudo labels of the images trained on", of_labels))
    for title, with_tags in (("masks, told the tags", True), ("masks, not told the tags", False)):
        of_masks = {}
        for name, variant in runs.items():
            scores = [bench.predicted(run, told=with_tags)[1] for run in variant]
            of_masks[name] = [(seed, seed["photos"]) for seed in scores]
        rows.append(_chain_row(bench, title, of_masks))
    columns = [Column(ABLATION_TITLES[name]) for name in runs]
    columns.append(Column("gain", gain=True))
    notes = (
        score_note(bench),
        *unlike_acr(bench),
        f"thresholds of seeds by {blind}, chosen without masks.",
        INTERVAL_NOTE,
    )
    return Table(
        name="chain",
        title="From seeds to masks, without and with consistency",
        head="stage",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=notes,
    )


def _scores_and_photos(seed: Mapping[str, Any], kind: str, rule: str) -> tuple[Any, Any]:
    """Return the scores of seeds at the threshold of a rule, and the counts of their photos."""
    scores = seed[kind]["thresholds"].get(rule, {})
    return scores, seed["photos"][kind].get(rule)


def _photos(scores: Sequence[Mapping[str, Any]], kind: str, rule: str) -> list[Any]:
    """Return the counts of photos for each random seed; None where the rule chose no threshold."""
    by_rule = [seed["photos"][kind] for seed in scores]
    return [photos.get(rule) for photos in by_rule]


def _chain_row(
    bench: Bench, title: str, scores: Mapping[str, Sequence[tuple[Any, Any]]]
) -> TableRow:
    """Return a row of baseline, ACR and gain; ``scores`` has scores and photos of each seed."""
    only = bench.settings.only
    cells = []
    photos = []
    for variant in scores.values():
        means = []
        for seed, _ in variant:
            ious = seed.get("iou", {})
            # without --only the mean is over all classes; the first name is the background
            classes = only or tuple(ious)[1:]
            means.append(mean_of(ious, classes))
        cells.append(Cell(tuple(means)))
        photos.append([counts for _, counts in variant])
    baseline, acr = photos
    gain = paired_gain(acr, baseline, class_numbers(bench))
    return TableRow(title, (*cells, gain_cell(gain)))


def paired_gain(
    ours: Sequence[Any], theirs: Sequence[Any], classes: Sequence[int] | None
) -> Gain | None:
    """Return the gain from counts of photos; None if a rule chose no threshold for one of them."""
    if None in (*ours, *theirs):
        return None
    return difference(ours, theirs, classes)


def gain_cell(gain: Gain | None) -> Cell:
    """Return the cell of a gain with its interval; empty if there is none."""
    if gain is None:
        return Cell()
    return Cell(tuple(gain.of_seeds.tolist()), interval=gain.interval)


def class_numbers(bench: Bench) -> list[int] | None:
    """Return the labels of the background and of ``--only``; None for all classes."""
    only = bench.settings.only
    if not only:
        return None
    names = ("background", *bench.scored_images.classes)
    return [names.index(name) for name in ("background", *only)]


def score_note(bench: Bench) -> str:
    """Say over which classes and images the mean is taken."""
    only = bench.settings.only
    seeds = bench.settings.random_seeds
    over = f"background, {', '.join(only)}" if only else "the classes present"
    spread = f"; ±: deviation over {seeds} seeds" if seeds > 1 else ""
    return f"mIoU in per cent over {over}; scored: {bench.scored_on()}{spread}."


def _title_at(rule: str, title: str) -> str:
    return title if rule == ORACLE else title + BLIND


def _map_gains(
    bench: Bench, runs: Mapping[str, Sequence[Training]], method: str, steps: int
) -> list[_MapGains]:
    """Score maps of a method after so many affinity steps; with one step also those of none."""
    scores = bench.scored(runs, method, {"affinity_steps": steps})
    only = bench.settings.only
    classes = class_numbers(bench)
    found = []
    for kind in KINDS if steps == 1 else ("refined",):
        baseline = []
        for rule in bench.rules:
            if only:
                baseline.append(only_at(scores["none"], kind, rule, only))
            else:
                baseline.append(at(scores["none"], kind, rule))
        gains: list[Gain | None] = []
        for name in scores:
            if name == "none":
                continue
            for rule in bench.rules:
                ours = _photos(scores[name], kind, rule)
                theirs = _photos(scores["none"], kind, rule)
                gains.append(paired_gain(ours, theirs, classes))
        title = "without affinity"
        if kind == "refined":
            title = f"affinity, {steps} step{'s' if steps > 1 else ''}"
        full_title = f"{MAP_TITLES.get(method, method)}, {title}"
        found.append(_MapGains(full_title, baseline, gains))
    return found


def _mean_of_maps(maps: Sequence[_MapGains]) -> _MapGains:
    """Return the mean over the kinds of map, seed by seed and draw by draw.

    A gain that one kind of map does not have, has no mean.
    """
    baseline = []
    for cells in zip(*(kind.baseline for kind in maps), strict=True):
        means = np.mean([cell.ours for cell in cells], axis=0)  # (S,)
        baseline.append(Cell(tuple(means.tolist())))
    gains: list[Gain | None] = []
    for column in zip(*(kind.gains for kind in maps), strict=True):
        known = [gain for gain in column if gain is not None]
        is_complete = len(known) == len(column)
        gains.append(mean_gain(known) if is_complete else None)
    return _MapGains("mean of the maps", baseline, gains)
