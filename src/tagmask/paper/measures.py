"""Numbers out of scores, and the columns that seed tables have in common."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tagmask.paper.bench import ORACLE, Bench
from tagmask.paper.numbers import ABOUT, Pair
from tagmask.paper.table import Cell, Column, Row

KINDS = {"plain": "without affinity", "refined": "with affinity"}
SCORES = {"miou_present": "mIoU", "fp": "FP", "fn": "FN"}
Scores = Sequence[Mapping[str, Any]]  # scores.json of each random seed, or a part of it


def percent(share: float | None) -> float:
    return math.nan if share is None else 100 * float(share)


def mean_of(ious: Mapping[str, float | None], only: Sequence[str]) -> float:
    """Mean IoU in per cent over the background and ``only``, of those that occur; nan if none does."""
    present = [iou for name in ("background", *only) if (iou := ious.get(name)) is not None]
    return 100 * float(np.mean(present)) if present else math.nan


def at(
    scores: Scores, kind: str, rule: str, name: str = "miou_present", paper: float | None = None
) -> Cell:
    """A score of maps of this ``kind`` at the threshold that ``rule`` chose; nan where it chose none."""
    return Cell(
        tuple(percent(seed[kind]["thresholds"].get(rule, {}).get(name)) for seed in scores), paper
    )


def only_at(scores: Scores, kind: str, rule: str, only: Sequence[str]) -> Cell:
    """Mean IoU of the background and the classes ``only``, at the same threshold."""
    return Cell(
        tuple(
            mean_of(seed[kind]["thresholds"].get(rule, {}).get("iou", {}), only) for seed in scores
        )
    )


def seed_columns(bench: Bench) -> tuple[Column, ...]:
    """Per kind of maps: at the best threshold, at one chosen without masks, and each of them over --only."""
    titles = []
    for kind in KINDS.values():
        short = kind.split()[0]  # without, with
        titles += [kind, f"{short}, blind"]
        titles += [f"{short}, only", f"{short}, blind, only"] if bench.settings.only else []
    return tuple(map(Column, titles))


def seed_row(bench: Bench, title: str, scores: Scores, paper: Pair = (None, None)) -> Row:
    """The cells of ``seed_columns``."""
    only, rules, cells = bench.settings.only, bench.rules, list[Cell]()
    for kind, number in zip(KINDS, paper, strict=True):
        cells += [
            at(scores, kind, rule, paper=number if rule == ORACLE else None) for rule in rules
        ]
        cells += [only_at(scores, kind, rule, only) for rule in rules if only]
    return Row(title, tuple(cells))


def seed_notes(bench: Bench, scores: Scores) -> tuple[str, ...]:
    """How to read a seed table."""
    settings = bench.settings
    notes = [
        f"ours: mIoU of seeds in per cent over the classes present, {scores[0]['images']} images; threshold tuned on "
        f"the masks (oracle), as in the paper; blind: threshold by {settings.pseudo.rule}, chosen without masks.",
    ]
    if settings.random_seeds > 1:
        notes.append(f"± is the standard deviation over {settings.random_seeds} random seeds.")
    if settings.only:
        notes.append(
            f"only: mean over background, {', '.join(settings.only)}, at the same threshold."
        )
    return (*notes, ABOUT)
