"""What a report tells, as plain data: gathered by the stage, drawn by the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tagmask.show.sheet import Picture

ORACLE = "oracle"  # the threshold that was tuned on the masks


@dataclass(frozen=True)
class LabelScores:
    """How well the labels of one stage agree with the truth; fractions, None where unknown."""

    stage: str  # as it is shown, e.g. "pseudo labels"
    images: int
    miou_present: float | None
    miou_all: float | None
    fp: float | None
    fn: float | None
    iou: Mapping[str, float | None]
    rule: str = ""  # seeds: how the threshold was chosen
    threshold: float | None = None
    confusion: npt.NDArray[np.int64] | None = None  # (K, K+1) rows = truth, last column = unsure

    @property
    def title(self) -> str:
        return f"{self.stage}, {self.rule.replace('_', ' ')}" if self.rule else self.stage


@dataclass(frozen=True)
class SeedCurve:
    """Scores of one kind of maps over the background threshold, (T,) each."""

    title: str
    thresholds: Sequence[float]
    miou: Sequence[float]
    fp: Sequence[float]
    fn: Sequence[float]
    chosen: Mapping[str, tuple[float, float]]  # rule: (threshold, mIoU)


@dataclass(frozen=True)
class Training:
    """The log of one network; each row holds a step and some values."""

    title: str
    file: str
    rows: Sequence[Mapping[str, float]]


@dataclass(frozen=True)
class ImageFacts:
    """What can be said of one image, with and without truth; fractions, None where unknown."""

    index: int
    name: str
    tags: tuple[str, ...]
    iou: float | None = None  # last stage against truth, mean over the classes of the image
    agreement: float | None = None  # last stage against the one before, likewise
    confidence: float | None = None
    unsure: float | None = None  # share of pixels that the last stage leaves open
    lacking: tuple[str, ...] = ()  # tagged, yet not in the labels
    extra: tuple[str, ...] = ()  # in the labels, yet not tagged


@dataclass(frozen=True)
class Case:
    """A row of the gallery."""

    group: str
    name: str
    told: str
    pictures: Sequence[tuple[str, Picture | None]]  # caption, picture; None where there is none
    labels: frozenset[int] = frozenset()  # that occur in the pictures


@dataclass(frozen=True)
class Provenance:
    """What was run, with which programs, data and weights."""

    facts: Sequence[tuple[str, str]]
    versions: Mapping[str, str]
    weights: Sequence[tuple[str, int, str]]  # file, bytes, sha256
    makers: Mapping[str, Mapping[str, Any]]  # folder: its made_by.json
    settings: Mapping[str, Any]  # config.toml


@dataclass(frozen=True)
class Report:
    """Everything on the page."""

    name: str
    subtitle: str
    classes: tuple[str, ...]  # without background
    provenance: Provenance
    truth: bool  # whether there are masks to compare with
    last: str = ""  # the last stage that has labels, as it is shown
    before: str = ""  # the stage before it
    notes: Sequence[str] = ()
    missing: Mapping[str, str] = field(default_factory=dict)  # part: a sentence on why it is left out
    scores: Sequence[LabelScores] = ()
    curves: Sequence[SeedCurve] = ()
    trainings: Sequence[Training] = ()
    facts: Sequence[ImageFacts] = ()
    surveyed: str = ""  # which images ``facts`` are of
    cases: Sequence[Case] = ()
