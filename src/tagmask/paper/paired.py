"""Is one row better than another? A paired bootstrap over the scored photos.

Both rows are scored on the same photos. These are drawn again with replacement, the same draw for both rows and for
every random seed, and the mIoU of each draw comes from the summed pixel counts, as that of all photos does. The
interval says how far the difference depends on which photos happened to be there; thresholds stay as they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tagmask.data.catalog import Catalog
from tagmask.data.images import read_mask
from tagmask.errors import TagmaskError
from tagmask.labels import UNSURE
from tagmask.pipeline.layout import label_file, seed_file
from tagmask.scoring.confusion import confusion
from tagmask.scoring.sweep import top_bins
from tagmask.stages.score import KINDS
from tagmask.stages.seeds import read_seeds

Floats = npt.NDArray[np.float64]
Photo = list[
    list[int]
]  # of each class that occurs: number (0 = background), pixels hit, pixels in truth or prediction
Seeds = Sequence[Mapping[str, Photo]]  # of each random seed the counts by name
DRAWS, PERCENT = 2000, (2.5, 97.5)
STEPS = 100  # thresholds are multiples of 1/100


def photo_counts(
    folder: Path, catalog: Catalog, scores: Mapping[str, Any], rules: Sequence[str]
) -> dict[str, Any]:
    """Counts of every photo whose maps are in ``folder`` (kind: rule: name: Photo), at the thresholds in ``scores``."""
    chosen = {kind: scores[kind]["thresholds"] for kind in KINDS}
    thresholds = {
        kind: {rule: at[rule]["threshold"] for rule in rules if rule in at}
        for kind, at in chosen.items()
    }
    counts: dict[str, Any] = {kind: {rule: {} for rule in at} for kind, at in thresholds.items()}
    for i in range(len(catalog)):
        file, truth = seed_file(folder, catalog.name(i)), catalog.load_mask(i)
        if truth is None or not file.is_file():
            continue
        seeds = read_seeds(file)
        for kind, at in thresholds.items():
            top, bins = (
                top_bins(seeds[kind], STEPS) if len(seeds["classes"]) else (None, None)
            )  # (H, W) each
            for rule, threshold in at.items():
                found = np.zeros(truth.shape, np.intp)
                if top is not None:
                    found = np.where(bins > round(threshold * STEPS), seeds["classes"][top] + 1, 0)
                counts[kind][rule][catalog.name(i)] = _photo(found, truth, len(catalog.classes) + 1)
    return counts


def mask_counts(folder: Path, catalog: Catalog) -> dict[str, Photo]:
    """Counts of every photo whose mask is in ``folder``, by name."""
    counts: dict[str, Photo] = {}
    for i in range(len(catalog)):
        file, truth = label_file(folder, catalog.name(i)), catalog.load_mask(i)
        if truth is not None and file.is_file():
            found = read_mask(file, len(catalog.classes))
            counts[catalog.name(i)] = _photo(found, truth, len(catalog.classes) + 1)
    return counts


def _photo(found: npt.NDArray[Any], truth: npt.NDArray[Any], classes: int) -> Photo:
    matrix = confusion(found, truth, classes)  # (K, K + 1), unsure pixels last
    hit = matrix.diagonal()
    union = matrix[:, :classes].sum(0) + matrix.sum(1) - hit
    photo: Photo = np.stack(
        [np.flatnonzero(union), hit[union > 0], union[union > 0]], axis=1
    ).tolist()
    return photo


@dataclass(frozen=True)
class Gain:
    """What one row has more than another, in points of mIoU."""

    of_seeds: Floats  # (S,) for each random seed
    draws: Floats  # (R,) mean over the seeds for each draw of the photos

    @property
    def interval(self) -> tuple[float, float]:
        """95 % of the draws."""
        low, high = np.percentile(self.draws, PERCENT)
        return float(low), float(high)


def mean_gain(gains: Sequence[Gain]) -> Gain:
    """The mean of gains on the same photos, seed by seed and draw by draw."""
    of_seeds, draws = zip(*((gain.of_seeds, gain.draws) for gain in gains), strict=True)
    return Gain(np.mean(of_seeds, axis=0), np.mean(draws, axis=0))


def difference(ours: Seeds, theirs: Seeds, classes: Sequence[int] | None = None) -> Gain:
    """mIoU of ``ours`` less that of ``theirs``.

    ``classes``: the mean is over these (0 = background), those in truth or prediction; default: over all.
    """
    names = sorted(set.intersection(*(set(seed) for seed in (*ours, *theirs))))
    if not names:
        raise TagmaskError("the two rows have no photo in common; score them on the same photos.")
    counts = np.stack([_dense(seed, names) for seed in (*ours, *theirs)])  # (S, 2, P, 256)
    chosen = counts[
        ..., counts.any((0, 1, 2)) if classes is None else list(classes)
    ]  # (S, 2, P, K)
    weights = np.random.default_rng(0).multinomial(
        len(names), np.full(len(names), 1 / len(names)), DRAWS
    )  # (R, P)
    scores = _miou(np.concatenate([np.ones((1, len(names))), weights]), chosen)  # (1 + R, S)
    gains = scores[:, : len(ours)].mean(1) - scores[:, len(ours) :].mean(1)  # (1 + R,)
    of_seeds = (
        scores[0, : len(ours)] - scores[0, len(ours) :] if len(ours) == len(theirs) else gains[:1]
    )
    return Gain(of_seeds, gains[1:])


def _dense(photos: Mapping[str, Photo], names: Sequence[str]) -> Floats:
    """(2, P, 256): of each photo and class, pixels hit and pixels in truth or prediction."""
    counts = np.zeros((2, len(names), UNSURE + 1))
    for place, name in enumerate(names):
        for number, hit, union in photos[name]:
            counts[:, place, number] = hit, union
    return counts


def _miou(weights: Floats, counts: Floats) -> Floats:
    """Per cent (R, S) of counts (S, 2, P, K) with photos weighted (R, P); classes that do not occur are left out."""
    hit, union = (
        np.tensordot(weights, counts[:, part], ((1,), (1,))) for part in (0, 1)
    )  # (R, S, K) each
    present = union > 0
    shares: Floats = np.where(present, hit / np.where(present, union, 1), 0)
    means: Floats = 100 * shares.sum(-1) / present.sum(-1)
    return means
