"""The paper's two open ends, followed from the maps to the masks.

The paper names over-activation (appendix H: connected and co-occurring objects light up together,
and PSA is easily misled by it) and the missing competition between classes, and leaves both for the
future. Each row here is one way from a training to labels:

    none            trained without consistency, ACR's maps
    both            trained with consistency, ACR's maps: the paper's chain
    regions         both, AffinityNet learns from maps with affinity, as the paper advises against
    unsure          both, pixels stay open where maps with and without affinity disagree
    objects-none    trained without consistency, maps of objects (where and which)
    objects         trained with consistency, maps of objects
    objects-unsure  the same, pixels stay open where evidence and objects disagree
    objects-fitted  nothing trained but the head, maps of objects

All rows are of the same photos, budget and random seeds, so gains are paired: over ``none`` and
over ``both``. ``--pseudo.method walk`` and ``crf`` are the two routes to labels.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tagmask import layout
from tagmask.config import PseudoSettings, SeedSettings, TrainSettings
from tagmask.data.catalog import Catalog
from tagmask.data.images import read_mask
from tagmask.errors import TagmaskError
from tagmask.reproduction.bench import Bench, Changes, Training
from tagmask.reproduction.gains import (
    INTERVAL_NOTE,
    class_numbers,
    gain_cell,
    paired_gain,
    score_note,
)
from tagmask.reproduction.measures import mean_of
from tagmask.reproduction.paired import photo_counts
from tagmask.reproduction.seed_tables import ABLATION
from tagmask.reproduction.table import Cell, Column, Table, TableRow
from tagmask.scoring.confusion import confusion
from tagmask.stages.score import check_masks

FITTED = "fitted"
NEVER = 1_000_000_000  # photos from which on the fitted training would train


@dataclass(frozen=True)
class Way:
    """One way from a training to labels."""

    title: str
    training: str = "both"
    seeds: Changes = field(default_factory=dict)
    pseudo: Changes = field(default_factory=dict)


_OBJECTS: Changes = {"objects": True}
WAYS: Mapping[str, Way] = {
    "none": Way("none: no consistency", "none"),
    "both": Way("ACR, the paper's chain"),
    "regions": Way("ACR, regions from maps with affinity", pseudo={"regions": "refined"}),
    "unsure": Way("ACR, unsure pixels left open", pseudo={"unsure": True}),
    "objects-none": Way("no consistency, where and which", "none", _OBJECTS),
    "objects": Way("ACR, where and which", "both", _OBJECTS),
    "objects-unsure": Way("ACR, where and which, unsure", "both", _OBJECTS, {"unsure": True}),
    "objects-fitted": Way("nothing trained, where and which", FITTED, _OBJECTS),
}
BASES = ("none", "both")
OVER = {"none": "over none", "both": "over ACR"}


@dataclass(frozen=True)
class _Stage:
    """The scores of one stage of a way: for each random seed mIoU, and the counts of its photos."""

    miou: Cell
    photos: list[Any]


@dataclass(frozen=True)
class _Followed:
    """What came of one way."""

    seeds: _Stage
    labels: _Stage
    over: Cell  # FP of the labels
    under: Cell  # FN of the labels
    told: _Stage
    not_told: _Stage


def open_ends(bench: Bench) -> Table:
    """Follow every way from its training to the masks, beside the paper's chain."""
    check_masks(bench.training_images)
    ways = _ways(bench)
    runs = bench.trained(_trainings(bench, ways))
    followed = {name: _follow(bench, way, runs[way.training]) for name, way in ways.items()}
    rows = []
    for name, way in ways.items():
        rows.append(TableRow(way.title, tuple(_cells(bench, followed, name))))
    method = bench.settings.of(PseudoSettings).method
    notes = (
        score_note(bench),
        f"seeds and labels: {len(bench.training_images)} images, all of them trained on; labels "
        f"by {method}; thresholds by {bench.rules[1]}, chosen without masks. FP and FN: "
        "over-activation and under-activation of the labels as shares of the union, over the "
        "same classes without the background; pixels that are left open count as missed.",
        INTERVAL_NOTE,
    )
    return Table(
        name="open-ends",
        title=f"Over-activation and competition, labels by {method}",
        head="way",
        columns=tuple(_columns(followed)),
        rows=tuple(rows),
        notes=notes,
    )


def _ways(bench: Bench) -> dict[str, Way]:
    """Return the ways that are asked for and possible; by default all that are possible."""
    possible = dict(WAYS)
    if bench.settings.of(PseudoSettings).method != "walk":
        del possible["regions"]
    if not bench.settings.of(TrainSettings).fixed_views:
        # a head can only be fitted to tokens that are kept
        del possible["objects-fitted"]
    ways = bench.rows(possible)
    if "both" not in ways:
        raise TagmaskError("open-ends compares with the paper's chain; add both to --rows.")
    return ways


def _trainings(bench: Bench, ways: Mapping[str, Way]) -> dict[str, Changes]:
    """Return the trainings that the ways start from, each with an object finder."""
    fitted = {**ABLATION["none"], "head_first": True, "train_from": NEVER}
    changes = {**ABLATION, FITTED: fitted}
    names = {way.training for way in ways.values()}
    return {name: {**changes[name], "objects": True} for name in changes if name in names}


def _follow(bench: Bench, way: Way, runs: Sequence[Training]) -> _Followed:
    """Make maps, labels and masks of every random seed, and return their scores."""
    catalog = bench.training_images
    rule = bench.rules[1]
    seeds = []
    labels = []
    told = []
    not_told = []
    activation = []
    for trained in runs:
        run = _changed(trained, way)
        scores = bench.label_scores(run, catalog)
        at_rule = scores["seeds"]["refined"]["thresholds"].get(rule, {})
        folder = bench.labelled(run)
        photos = photo_counts(folder / layout.SEEDS, catalog, scores["seeds"], [rule])
        seeds.append((at_rule, photos["refined"].get(rule)))
        labels.append((scores["pseudo"], scores["photos"]))
        activation.append(_activation(bench, folder / layout.PSEUDO, catalog))
        told.append(_with_photos(bench.predicted(run, told=True)[1]))
        not_told.append(_with_photos(bench.predicted(run, told=False)[1]))
    return _Followed(
        seeds=_stage(bench, seeds),
        labels=_stage(bench, labels),
        over=Cell(tuple(over for over, _ in activation)),
        under=Cell(tuple(under for _, under in activation)),
        told=_stage(bench, told),
        not_told=_stage(bench, not_told),
    )


def _with_photos(scores: Mapping[str, Any]) -> tuple[Any, Any]:
    return scores, scores["photos"]


def _changed(trained: Training, way: Way) -> Training:
    """Return a training whose maps and labels are made in another way."""
    seeds = trained.settings.of(SeedSettings)
    pseudo = trained.settings.of(PseudoSettings)
    settings = trained.settings.with_stages(
        # without a word the maps would be those of objects, which every training has learned
        dataclasses.replace(seeds, **{"objects": False, **way.seeds}),
        dataclasses.replace(pseudo, **way.pseudo),
    )
    return dataclasses.replace(trained, settings=settings)


def _stage(bench: Bench, scores: Sequence[tuple[Any, Any]]) -> _Stage:
    """Return mIoU over the background and --only, or over all classes, of each random seed."""
    means = []
    for seed, _ in scores:
        ious = seed.get("iou", {})
        # the first name is the background
        classes = bench.settings.only or tuple(ious)[1:]
        means.append(mean_of(ious, classes))
    return _Stage(Cell(tuple(means)), [photos for _, photos in scores])


def _activation(bench: Bench, folder: Path, catalog: Catalog) -> tuple[float, float]:
    """Return FP and FN of labels in per cent of the union, mean over the classes scored."""
    labels = len(catalog.classes) + 1
    counts = np.zeros((labels, labels + 1), np.int64)
    for i in range(len(catalog)):
        file = layout.label_file(folder, catalog.name(i))
        truth = catalog.load_mask(i)
        if truth is not None and file.is_file():
            counts += confusion(read_mask(file, labels - 1), truth, labels)
    hit = counts.diagonal()  # (K,)
    missed = counts.sum(1) - hit  # (K,) open pixels included
    wrong = counts[:, :labels].sum(0) - hit  # (K,)
    union = hit + missed + wrong  # (K,)
    chosen = class_numbers(bench) or range(labels)
    present = [number for number in chosen if number and union[number]]
    over = 100 * float(np.mean(wrong[present] / union[present]))
    under = 100 * float(np.mean(missed[present] / union[present]))
    return over, under


def _columns(followed: Mapping[str, _Followed]) -> list[Column]:
    """Return the columns: of each stage the score, and the gain over each base that was made."""
    bases = [OVER[base] for base in BASES if base in followed]
    columns = []
    for title in ("seeds", "labels", "masks, with tags", "masks, without tags"):
        columns.append(Column(title))
        columns += [Column(f"{title}, {base}", gain=True, panel=title) for base in bases]
        if title == "labels":
            columns += [Column("FP"), Column("FN")]
    return columns


def _cells(bench: Bench, followed: Mapping[str, _Followed], name: str) -> list[Cell]:
    """Return the cells of one way, in the order of the columns."""
    way = followed[name]
    cells = []
    for stage in ("seeds", "labels", "told", "not_told"):
        ours: _Stage = getattr(way, stage)
        cells.append(ours.miou)
        for base in BASES:
            if base in followed:
                theirs: _Stage = getattr(followed[base], stage)
                cells.append(_gain(bench, ours, theirs, is_same=base == name))
        if stage == "labels":
            cells += [way.over, way.under]
    return cells


def _gain(bench: Bench, ours: _Stage, theirs: _Stage, *, is_same: bool) -> Cell:
    """Return the gain of one way over another; empty for a way over itself."""
    if is_same:
        return Cell()
    return gain_cell(paired_gain(ours.photos, theirs.photos, class_numbers(bench)))
