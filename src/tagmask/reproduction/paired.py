"""Is one row better than another? A paired bootstrap over the scored photos.

Both rows are scored on the same photos. These are drawn again with replacement, the same draw for
both rows and for every random seed, and the mIoU of each draw comes from the summed pixel counts,
as that of all photos does. The interval says how far the difference depends on which photos
happened to be there; thresholds stay as they are.
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
from tagmask.layout import label_file, seed_file
from tagmask.scoring.confusion import confusion
from tagmask.scoring.sweep import top_bins
from tagmask.stages.score import KINDS
from tagmask.stages.seeds import read_seeds

Floats = npt.NDArray[np.float64]
# for each class that occurs: number (0 = background), pixels hit, pixels in truth or prediction
Photo = list[list[int]]
# for each random seed the counts of each photo by name
Seeds = Sequence[Mapping[str, Photo]]
DRAWS = 2000
PERCENT = (2.5, 97.5)
# thresholds are multiples of 1/100
STEPS = 100


def photo_counts(
    folder: Path, catalog: Catalog, scores: Mapping[str, Any], rules: Sequence[str]
) -> dict[str, Any]:
    """Count the pixels of every photo whose maps are in a folder, at the thresholds chosen.

    Args:
        folder: Folder of maps.
        catalog: The photos and their masks.
        scores: Scores of the maps, with the threshold that each rule chose.
        rules: The rules whose thresholds are used; one that chose none is left out.

    Returns:
        A ``Photo`` for each name of a photo, by kind of maps and rule.
    """
    thresholds: dict[str, dict[str, float]] = {}
    counts: dict[str, Any] = {}
    for kind in KINDS:
        thresholds[kind] = {}
        counts[kind] = {}
        chosen = scores[kind]["thresholds"]
        for rule in rules:
            if rule in chosen:
                thresholds[kind][rule] = chosen[rule]["threshold"]
                counts[kind][rule] = {}
    labels = len(catalog.classes) + 1
    for i in range(len(catalog)):
        name = catalog.name(i)
        file = seed_file(folder, name)
        truth = catalog.load_mask(i)
        if truth is None or not file.is_file():
            continue
        seeds = read_seeds(file)
        classes = seeds["classes"]
        for kind, by_rule in thresholds.items():
            if len(classes):
                top, bins = top_bins(seeds[kind], STEPS)  # (H, W) each
            for rule, threshold in by_rule.items():
                found = np.zeros(truth.shape, np.intp)
                if len(classes):
                    is_object = bins > round(threshold * STEPS)  # (H, W)
                    found = np.where(is_object, classes[top] + 1, 0)
                counts[kind][rule][name] = _photo(found, truth, labels)
    return counts


def mask_counts(folder: Path, catalog: Catalog) -> dict[str, Photo]:
    """Count the pixels of every photo whose predicted mask is in a folder.

    Args:
        folder: Folder of masks.
        catalog: The photos and their true masks.

    Returns:
        A ``Photo`` for each name of a photo that has both masks.
    """
    counts: dict[str, Photo] = {}
    classes = len(catalog.classes)
    for i in range(len(catalog)):
        name = catalog.name(i)
        file = label_file(folder, name)
        truth = catalog.load_mask(i)
        if truth is not None and file.is_file():
            found = read_mask(file, classes)
            counts[name] = _photo(found, truth, classes + 1)
    return counts


def _photo(found: npt.NDArray[Any], truth: npt.NDArray[Any], classes: int) -> Photo:
    """Count the pixels of one photo (H, W), class by class; ``classes`` includes the background."""
    matrix = confusion(found, truth, classes)  # (K, K + 1), unsure pixels last
    hit = matrix.diagonal()  # (K,)
    in_prediction = matrix[:, :classes].sum(0)  # (K,)
    in_truth = matrix.sum(1)  # (K,)
    union = in_prediction + in_truth - hit  # (K,)
    occurring = np.flatnonzero(union)
    columns = [occurring, hit[occurring], union[occurring]]
    counts: Photo = np.stack(columns, axis=1).tolist()
    return counts


@dataclass(frozen=True)
class Gain:
    """What one row has more than another, in points of mIoU."""

    of_seeds: Floats  # (S,) for each random seed
    draws: Floats  # (R,) mean over the seeds for each draw of the photos

    @property
    def interval(self) -> tuple[float, float]:
        """Return the ends between which 95 % of the draws lie."""
        low, high = np.percentile(self.draws, PERCENT)
        return float(low), float(high)


def mean_gain(gains: Sequence[Gain]) -> Gain:
    """Return the mean of gains on the same photos, seed by seed and draw by draw."""
    of_seeds = np.mean([gain.of_seeds for gain in gains], axis=0)
    draws = np.mean([gain.draws for gain in gains], axis=0)
    return Gain(of_seeds, draws)


def difference(ours: Seeds, theirs: Seeds, classes: Sequence[int] | None = None) -> Gain:
    """Return the mIoU of one row less that of another, on the photos that both have.

    Args:
        ours: Counts of each random seed of the first row.
        theirs: Counts of each random seed of the second row.
        classes: The mean is over these (0 = background), those in truth or prediction;
            default: over all.

    Raises:
        TagmaskError: The rows have no photo in common.
    """
    seeds = [*ours, *theirs]
    names = sorted(set.intersection(*map(set, seeds)))
    if not names:
        raise TagmaskError("the two rows have no photo in common; score them on the same photos.")
    counts = np.stack([_dense(seed, names) for seed in seeds])  # (S, 2, P, 256)
    if classes is None:
        counts = counts[..., counts.any((0, 1, 2))]  # (S, 2, P, K)
    else:
        counts = counts[..., list(classes)]  # (S, 2, P, K)
    photos = len(names)
    # how often each photo is drawn when as many are drawn as there are
    uniform = np.full(photos, 1 / photos)
    drawn = np.random.default_rng(0).multinomial(photos, uniform, DRAWS)  # (R, P)
    # the first row of weights stands for the photos as they are
    weights = np.concatenate([np.ones((1, photos)), drawn])  # (1 + R, P)
    scores = _miou(weights, counts)  # (1 + R, S)
    our_scores = scores[:, : len(ours)]
    their_scores = scores[:, len(ours) :]
    gains = our_scores.mean(1) - their_scores.mean(1)  # (1 + R,)
    of_seeds = gains[:1]
    if len(ours) == len(theirs):
        of_seeds = our_scores[0] - their_scores[0]
    return Gain(of_seeds, gains[1:])


def _dense(photos: Mapping[str, Photo], names: Sequence[str]) -> Floats:
    """Return pixels hit, and pixels in truth or prediction, of photos and classes (2, P, 256)."""
    counts = np.zeros((2, len(names), UNSURE + 1))
    for index, name in enumerate(names):
        for number, hit, union in photos[name]:
            counts[:, index, number] = hit, union
    return counts


def _miou(weights: Floats, counts: Floats) -> Floats:
    """Return mIoU in per cent (R, S); classes that do not occur are left out.

    Args:
        weights: How often each photo counts, (R, P).
        counts: Pixels hit and pixels in truth or prediction, (S, 2, P, K).
    """
    # sums over the photos
    over_photos = ((1,), (1,))
    hit = np.tensordot(weights, counts[:, 0], over_photos)  # (R, S, K)
    union = np.tensordot(weights, counts[:, 1], over_photos)  # (R, S, K)
    present = union > 0
    # a class that does not occur has no hits either: its share is 0
    shares = hit / np.where(present, union, 1)  # (R, S, K)
    means: Floats = 100 * shares.sum(-1) / present.sum(-1)
    return means
