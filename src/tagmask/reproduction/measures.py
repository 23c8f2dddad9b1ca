"""Numbers out of scores, and the columns that seed tables have in common."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tagmask.config import PseudoSettings, SeedSettings, TrainSettings
from tagmask.reproduction.bench import ORACLE, Bench
from tagmask.reproduction.numbers import Pair, about
from tagmask.reproduction.table import Cell, Column, TableRow

KINDS = {"plain": "without affinity", "refined": "with affinity"}
SCORES = {"miou_present": "mIoU", "fp": "FP", "fn": "FN"}
# the paper follows SEAM, whose text has shares of the pixels found, and whose code has the others
SEAM_SCORES = {**SCORES, "fp_per_hit": "FP/TP", "fn_per_hit": "FN/TP"}
# what each of these shows is made by a method of its own
BY_METHOD = ("methods", "gains", "layers", "maps")
# whose rows called ACR are an ordinary classifier, whatever --train.kind says
ACR_ANYWAY = ("methods", "layers", "backbones", "maps")
# what is made from a run's own seeds and labels
CHAINED = (
    *("chain", "pseudo", "compare-coco", "compare-seeds", "compare-voc"),
    *("per-class", "segmentation", "examples"),
)
# scores.json of each random seed, or a part of it
Scores = Sequence[Mapping[str, Any]]


def percent(share: float | None) -> float:
    """Return a share in per cent; nan if it is unknown."""
    return math.nan if share is None else 100 * float(share)


def mean_of(ious: Mapping[str, float | None], only: Sequence[str]) -> float:
    """Return the mean IoU in per cent over the background and some classes.

    Args:
        ious: IoU from 0 to 1 by name of class; None if the class does not occur.
        only: The classes.

    Returns:
        The mean over those that occur; nan if none does.
    """
    values = [ious.get(name) for name in ("background", *only)]
    present = [iou for iou in values if iou is not None]
    if not present:
        return math.nan
    return 100 * float(np.mean(present))


def at(
    scores: Scores, kind: str, rule: str, name: str = "miou_present", paper: float | None = None
) -> Cell:
    """Return a score of seeds at the threshold that a rule chose, in per cent.

    Args:
        scores: Scores of each random seed.
        kind: "plain" (without affinity) or "refined" (with affinity).
        rule: How the threshold was chosen; nan for seeds where it chose none.
        name: The score, a key of ``SCORES``.
        paper: The paper's number beside it.
    """
    chosen = [_chosen(seed, kind, rule) for seed in scores]
    values = [percent(threshold.get(name)) for threshold in chosen]
    return Cell(tuple(values), paper)


def only_at(scores: Scores, kind: str, rule: str, only: Sequence[str]) -> Cell:
    """Return the mean IoU over the background and some classes, as ``at`` returns that over all.

    Args:
        scores: Scores of each random seed.
        kind: "plain" (without affinity) or "refined" (with affinity).
        rule: How the threshold was chosen.
        only: The classes.
    """
    chosen = [_chosen(seed, kind, rule) for seed in scores]
    values = [mean_of(threshold.get("iou", {}), only) for threshold in chosen]
    return Cell(tuple(values))


def _chosen(seed: Mapping[str, Any], kind: str, rule: str) -> Mapping[str, Any]:
    """Return the scores of one seed at the threshold of a rule; empty if it chose none."""
    thresholds: Mapping[str, Mapping[str, Any]] = seed[kind].get("thresholds", {})
    return thresholds.get(rule, {})


def seed_columns(bench: Bench) -> tuple[Column, ...]:
    """Return the columns of a seed table.

    Per kind of maps: at the oracle threshold, at the mask-free one, and each of them over --only.
    """
    titles = []
    for kind in KINDS.values():
        short = kind.split()[0]  # without, with
        titles += [kind, f"{short}, blind"]
        if bench.settings.only:
            titles += [f"{short}, only", f"{short}, blind, only"]
    return tuple(map(Column, titles))


def seed_row(bench: Bench, title: str, scores: Scores, paper: Pair = (None, None)) -> TableRow:
    """Return a row with a cell for each of ``seed_columns``.

    Args:
        bench: Gives the rules and --only.
        title: What the row is about.
        scores: Scores of each random seed.
        paper: The paper's mIoU without and with affinity, beside ours at the oracle threshold.
    """
    only = bench.settings.only
    cells = []
    for kind, number in zip(KINDS, paper, strict=True):
        for rule in bench.rules:
            beside = number if rule == ORACLE else None
            cells.append(at(scores, kind, rule, paper=beside))
        if only:
            cells += [only_at(scores, kind, rule, only) for rule in bench.rules]
    return TableRow(title, tuple(cells))


def budget(train: TrainSettings) -> str:
    """Say how long a training is, e.g. "15 epochs of 4 images"."""
    length = f"{train.epochs:g} epochs"
    if train.steps:
        length = f"{train.steps} step{'s' if train.steps > 1 else ''}"
    return f"{length} of {train.batch} images"


def missing_losses(train: TrainSettings) -> tuple[str, ...]:
    """Return a note if one of ACR's consistency losses, or both, have no weight."""
    if train.alpha and train.beta:
        return ()
    instead = "the baseline"
    zero = "α and β are"
    if train.alpha:
        instead = "SEAM*, activation consistency alone"
        zero = "β is"
    elif train.beta:
        instead = "affinity consistency alone"
        zero = "α is"
    return (f"ours: {zero} 0, so what is called ACR here is {instead}.",)


def unlike_acr(bench: Bench) -> tuple[str, ...]:
    """Return notes that say in what the settings of a table are not ACR's, whatever it is called.

    Args:
        bench: Gives the settings, with the table's name.
    """
    settings = bench.settings
    table = settings.table
    train = settings.of(TrainSettings)
    seeds = settings.of(SeedSettings)
    if settings.scores is not None:
        return ()
    notes = [*missing_losses(train)]
    if train.kind == "mct" and table not in ACR_ANYWAY:
        notes.append(
            "ours: the classifier of every row is an MCTformer (--train.kind mct), also where it "
            "is called ACR; the paper's is not."
        )
    if train.earn:
        notes.append(
            "ours: a training that does not help is discarded, and the fitted head stays "
            "(--train.no-earn keeps all)."
        )
    if train.objects and seeds.objects is not False and table in CHAINED:
        notes.append("ours: seeds are maps of objects (--train.objects), not ACR's.")
    elif seeds.method != "acr" and table not in (*BY_METHOD, "multi-class"):
        notes.append(f"ours: seeds are made by --seeds.method {seeds.method}, not ACR's.")
    return tuple(notes)


def seed_notes(bench: Bench) -> tuple[str, ...]:
    """Return notes that say how to read a seed table.

    Args:
        bench: Gives the settings and the images.
    """
    settings = bench.settings
    notes = [
        "ours: mIoU of seeds in per cent over the classes present, "
        f"{bench.scored_on()}; threshold tuned on the masks (oracle), as in the paper; "
        f"blind: threshold by {settings.of(PseudoSettings).rule}, chosen without masks.",
    ]
    if settings.random_seeds > 1:
        notes.append(f"± is the standard deviation over {settings.random_seeds} random seeds.")
    if settings.only:
        classes = ", ".join(settings.only)
        notes.append(f"only: mean over background, {classes}, at the same threshold.")
    return (*notes, *unlike_acr(bench), about())
