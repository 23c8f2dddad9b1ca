"""Numbers out of scores, and the columns that seed tables have in common."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tagmask.paper.bench import Bench
from tagmask.paper.numbers import ABOUT, Pair
from tagmask.paper.table import Cell, Column, Row

KINDS = {"plain": "without affinity", "refined": "with affinity"}
ORACLE = "oracle"
SCORES = {"miou_present": "mIoU", "fp": "FP", "fn": "FN"}


def value(scores: Mapping[str, Any], kind: str, rule: str, name: str = "miou_present") -> float:
    """A score of seeds in per cent: of maps of this ``kind``, at the threshold that ``rule`` chose; nan if none."""
    found = scores[kind]["thresholds"].get(rule, {}).get(name)
    return math.nan if found is None else 100 * float(found)


def value_of(scores: Mapping[str, Any], kind: str, rule: str, only: Sequence[str]) -> float:
    """Mean IoU of the background and the classes ``only`` in per cent, of those that occur."""
    return mean_of(scores[kind]["thresholds"].get(rule, {}).get("iou", {}), only)


def mean_of(ious: Mapping[str, float | None], only: Sequence[str]) -> float:
    """Mean IoU in per cent over the background and ``only``, of those that occur; nan if none does."""
    found = [one for name in ("background", *only) if (one := ious.get(name)) is not None]
    return 100 * float(np.mean(found)) if found else math.nan


def seed_columns(bench: Bench) -> tuple[Column, ...]:
    """Per kind of maps: at the best threshold, at one chosen without masks, and both over --only."""
    titles = []
    for kind in KINDS.values():
        short = kind.split()[0]  # without, with
        titles += [kind, f"{short}, blind"]
        titles += [f"{short}, only", f"{short}, blind, only"] if bench.settings.only else []
    return tuple(Column(title) for title in titles)


def seed_cells(bench: Bench, scores: Sequence[Mapping[str, Any]], paper: Pair = (None, None)) -> tuple[Cell, ...]:
    """The cells of ``seed_columns`` from the scores of each random seed."""
    only, cells = bench.settings.only, []
    for kind, number in zip(KINDS, paper, strict=True):
        for rule, theirs in ((ORACLE, number), (bench.settings.pseudo.rule, None)):
            cells.append(Cell(tuple(value(one, kind, rule) for one in scores), theirs))
        if only:
            cells += [
                Cell(tuple(value_of(one, kind, rule, only) for one in scores))
                for rule in (ORACLE, bench.settings.pseudo.rule)
            ]
    return tuple(cells)


def seed_row(bench: Bench, title: str, scores: Sequence[Mapping[str, Any]], paper: Pair = (None, None)) -> Row:
    return Row(title, seed_cells(bench, scores, paper))


def seed_notes(bench: Bench, scores: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """How to read a seed table."""
    settings = bench.settings
    notes = [
        f"ours: mIoU of seeds in per cent over the classes present, {scores[0]['images']} images; threshold tuned on "
        f"the masks (oracle), as in the paper; blind: threshold by {settings.pseudo.rule}, chosen without masks.",
    ]
    if settings.random_seeds > 1:
        notes.append(f"± is the standard deviation over {settings.random_seeds} random seeds.")
    if settings.only:
        notes.append(f"only: mean over background, {', '.join(settings.only)}, at the same threshold.")
    return (*notes, ABOUT)
