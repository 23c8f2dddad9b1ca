"""Scores of label masks, pseudo labels and predictions: one confusion matrix over all images."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from tagmask.data.catalog import Catalog
from tagmask.data.images import read_mask
from tagmask.errors import ImageError, TagmaskError
from tagmask.scoring.confusion import Scores, confusion, iou
from tagmask.stages.pool import pool

LABEL_FOLDERS = {"pseudo": "4_pseudo", "predictions": "6_predictions"}


@dataclass
class LabelScores:
    """The confusion matrix of a folder of masks."""

    classes: tuple[str, ...]  # without the background
    counts: np.ndarray[Any, np.dtype[np.int64]]  # (K, K+1), rows = truth, last column = unsure
    images: int = 0
    missing: dict[str, str] = field(default_factory=dict)  # name: why it was left out

    @property
    def scores(self) -> Scores:
        return iou(self.counts)

    @property
    def unsure(self) -> float:
        """Share of the scored pixels that are left open."""
        return float(self.counts[:, -1].sum() / max(1, self.counts.sum()))

    def row(self, title: str) -> str:
        """A line of the table of seeds, whose threshold column stays empty."""
        scores = self.scores
        numbers = " ".join(f"{100 * v:6.1f}" for v in (scores.miou_present, scores.fp, scores.fn))
        told = f"{100 * self.unsure:.0f} % unsure" if self.unsure else ""
        return f"{title:26} {told:>22} {numbers}"

    def to_json(self) -> dict[str, Any]:
        """Everything, for scores.json; nan is written as null."""
        scores, names = self.scores, ("background", *self.classes)
        values = {name: _number(getattr(scores, name)) for name in ("miou_present", "miou_all", "fp", "fn")}
        ious = dict(zip(names, map(_number, scores.class_iou), strict=True))
        return {
            "images": self.images,
            **values,
            "unsure": round(self.unsure, 6),
            "iou": ious,
            "class_names": list(names),
            "confusion": self.counts.tolist(),
        }


def _number(value: Any) -> float | None:
    return None if np.isnan(value) else round(float(value), 6)


def score_labels(catalog: Catalog, folder: Path, processes: int) -> LabelScores:
    """Compare every mask of ``folder`` with the truth; what cannot be compared is listed with its reason."""
    size = len(catalog.classes) + 1
    total = LabelScores(catalog.classes, np.zeros((size, size + 1), np.int64))
    pieces = [range(start, min(start + 16, len(catalog))) for start in range(0, len(catalog), 16)]
    with tqdm(total=len(catalog), desc=f"score {folder.name}", unit="image") as bar:
        if processes == 1:
            for piece in pieces:
                _merge(total, count_labels(catalog, folder, piece), bar)
        else:
            with pool(processes) as each:
                for found in each(partial(count_labels, catalog, folder), pieces):
                    _merge(total, found, bar)
    if not total.images:
        why = next(iter(total.missing.values()), "the catalog is empty")
        raise TagmaskError(f"no mask of {folder} could be scored; the first because: {why}")
    return total


def _merge(total: LabelScores, other: LabelScores, bar: Any) -> None:
    total.counts += other.counts
    total.images += other.images
    total.missing |= other.missing
    bar.update(other.images + len(other.missing))


def count_labels(catalog: Catalog, folder: Path, indices: range) -> LabelScores:
    """The counts of some images."""
    size = len(catalog.classes) + 1
    tally = LabelScores(catalog.classes, np.zeros((size, size + 1), np.int64))
    for i in indices:
        name = catalog.name(i)
        try:
            found, truth = read_mask(folder / f"{name}.png", len(catalog.classes)), catalog.load_mask(i)
            if truth is None:
                raise ImageError(f'"{name}" has no mask to compare with.')
            if found.shape != truth.shape:
                raise ImageError(f'the label of "{name}" is {found.shape} and its mask {truth.shape}; make it again.')
            tally.counts += confusion(found, truth, size)
            tally.images += 1
        except TagmaskError as error:
            tally.missing[name] = str(error)
    return tally
