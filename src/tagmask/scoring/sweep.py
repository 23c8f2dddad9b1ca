"""The score of seeds at every threshold, in one pass (docs/explanation/method.md §3).

At threshold t a pixel gets argmax [t, maps…], the first winning on ties: it is foreground exactly
if its top value exceeds t, and then of its top class. So a pixel is described for all thresholds by
its truth, its top class and the number of thresholds below its top value ("bin"); a histogram of
these three is enough. The result equals one argmax per threshold to the last pixel, with t = i/T
and the comparison in float64.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tagmask.errors import TagmaskError
from tagmask.labels import UNSURE
from tagmask.scoring.confusion import Scores, iou

# (k, H, W) in [0, 1]; uint8 v means v/255
StoredMaps = npt.NDArray[np.floating[Any]] | npt.NDArray[np.uint8]
Classes = Sequence[int] | npt.NDArray[np.integer[Any]]  # (k,) 0-based
Sample = tuple[Classes, StoredMaps, npt.NDArray[np.uint8]]  # classes, maps, target

# the bits of float16 1.0; the bits of floats in [0, 1] are ordered like the floats
_HALF_ONE = 0x3C00


@dataclass(frozen=True, eq=False)
class Curve:
    """Hold the scores of the same maps at T thresholds."""

    thresholds: npt.NDArray[np.float64]  # (T,)
    confusions: npt.NDArray[np.int64]  # (T, K, K) rows = truth, columns = prediction
    scores: tuple[Scores, ...]  # T of them

    @property
    def miou_present(self) -> npt.NDArray[np.float64]:
        """Return the mean IoU over the classes present, (T,)."""
        return np.array([score.miou_present for score in self.scores])

    @property
    def miou_all(self) -> npt.NDArray[np.float64]:
        """Return the mean IoU over all classes, absent ones counting 0, (T,)."""
        return np.array([score.miou_all for score in self.scores])

    @property
    def fp(self) -> npt.NDArray[np.float64]:
        """Return the over-activation, (T,)."""
        return np.array([score.fp for score in self.scores])

    @property
    def fn(self) -> npt.NDArray[np.float64]:
        """Return the under-activation, (T,)."""
        return np.array([score.fn for score in self.scores])

    @property
    def class_iou(self) -> npt.NDArray[np.float64]:
        """Return the IoU per class, nan where absent, (T, K)."""
        return np.stack([score.class_iou for score in self.scores])

    @property
    def best_index(self) -> int:
        """Return the index of the oracle threshold: the lowest of the highest miou_present.

        An oracle sees the truth.
        """
        return int(np.argmax(self.miou_present))

    @property
    def best_threshold(self) -> float:
        """Return the oracle threshold."""
        return float(self.thresholds[self.best_index])

    @property
    def best(self) -> Scores:
        """Return the scores at the oracle threshold."""
        return self.scores[self.best_index]

    def at(self, threshold: float) -> Scores:
        """Return the scores at one of the curve's thresholds, e.g. one chosen without ground truth.

        Raises:
            TagmaskError: If the threshold is not on the curve.
        """
        index = int(np.argmin(np.abs(self.thresholds - threshold)))
        if not abs(self.thresholds[index] - threshold) < 1e-9:
            raise TagmaskError(
                f"threshold {threshold} is not on the curve of steps 1/{len(self.thresholds)} "
                f"from 0; the nearest is {self.thresholds[index]:g}."
            )
        return self.scores[index]


class Sweep:
    """Count (truth, top class, bin) over images; memory does not grow with their number."""

    def __init__(self, num_classes: int, thresholds: int = 100) -> None:
        """Start to count.

        Args:
            num_classes: K, background included.
            thresholds: T, giving t = 0, 1/T … (T−1)/T.

        Raises:
            TagmaskError: If 8-bit masks cannot hold so many classes.
        """
        if not 2 <= num_classes <= UNSURE:
            raise TagmaskError(
                f"num_classes is {num_classes}; with the background, 8-bit masks allow 2…{UNSURE}."
            )
        self.num_classes = num_classes
        self.thresholds = threshold_values(thresholds)  # (T,)
        self.counts = np.zeros(
            (num_classes, num_classes - 1, thresholds + 1), np.int64
        )  # (K, K−1, T+1)

    def add(self, classes: Classes, maps: StoredMaps, target: npt.NDArray[np.uint8]) -> None:
        """Count one image.

        Args:
            classes: The k tagged classes, 0-based (label − 1), without repetition; may be empty.
            maps: (k, H, W) in [0, 1], float or uint8 (v means v/255), at the size of the target.
            target: uint8 (H, W), 0 = background, c + 1 = class c, 255 = not scored.

        Raises:
            TagmaskError: If shapes, classes, values or labels are out of range.
        """
        chosen = self._checked_classes(classes)  # (k,)
        if (
            np.shape(maps) != (len(chosen), *np.shape(target))
            or target.ndim != 2
            or target.dtype != np.uint8
        ):
            raise TagmaskError(
                f"maps have shape {np.shape(maps)} and target {np.shape(target)} for "
                f"{len(chosen)} classes; give ({len(chosen)}, H, W) maps and "
                "a uint8 (H, W) target."
            )
        if len(chosen) == 0:
            # Without a map a pixel is background at every threshold: bin 0, of whichever class.
            chosen = np.zeros(1, np.intp)
            maps = np.zeros((1, *target.shape), np.uint8)
        self.counts[:, chosen] += self._image_counts(maps, target)

    def merge(self, other: Sweep) -> None:
        """Add the counts of another process; the order does not matter."""
        if self.counts.shape != other.counts.shape:
            raise TagmaskError(
                f"a sweep of (classes, steps) {(other.num_classes, len(other.thresholds))} cannot "
                f"be merged into one of {(self.num_classes, len(self.thresholds))}; "
                "build both alike."
            )
        self.counts += other.counts

    def result(self) -> Curve:
        """Return the curve of all images added so far.

        Raises:
            TagmaskError: If no pixel was scored.
        """
        if not self.counts.any():
            raise TagmaskError(
                "no pixel was scored; add images whose target is not 255 everywhere."
            )
        above = self.counts[:, :, ::-1].cumsum(axis=2)[
            :, :, ::-1
        ]  # (K, K−1, T+1) in this bin or higher
        foreground = np.moveaxis(above[:, :, 1:], 2, 0)  # (T, K, K−1)
        total = self.counts.sum(axis=(1, 2))  # (K,)
        background = total - foreground.sum(axis=2)  # (T, K)
        confusions = np.concatenate([background[:, :, None], foreground], axis=2)  # (T, K, K)
        return Curve(
            self.thresholds.copy(), confusions, tuple(iou(matrix) for matrix in confusions)
        )

    def _image_counts(
        self, maps: StoredMaps, target: npt.NDArray[np.uint8]
    ) -> npt.NDArray[np.intp]:
        """Return the histogram (K, k, T+1) of one image with k ≥ 1 maps."""
        bins_per_map = len(self.thresholds) + 1
        bins_per_truth = len(maps) * bins_per_map
        # Two more rows of truth: the ignored pixels, and those whose label is a mistake.
        rows = np.full(256, self.num_classes + 1, np.intp)
        rows[: self.num_classes] = np.arange(self.num_classes)
        rows[UNSURE] = self.num_classes
        top, bins = top_bins(maps, len(self.thresholds))  # (H, W) each
        key = (rows * bins_per_truth).take(target)  # (H, W)
        key += bins
        if len(maps) > 1:
            key += (np.arange(len(maps)) * bins_per_map).take(top)
        counts = np.bincount(key.ravel(), minlength=(self.num_classes + 2) * bins_per_truth)
        table = counts.reshape(self.num_classes + 2, len(maps), bins_per_map)
        if table[-1].any():
            wrong = target[(target >= self.num_classes) & (target != UNSURE)].max()
            raise TagmaskError(
                f"target has label {wrong}, outside 0…{self.num_classes - 1} and not {UNSURE} "
                "(ignore); check num_classes (it counts the background too) and "
                "the mask's palette."
            )
        return table[: self.num_classes]

    def _checked_classes(self, classes: Classes) -> npt.NDArray[np.intp]:
        chosen = np.asarray(classes).reshape(-1)
        if len(chosen) and not np.issubdtype(chosen.dtype, np.integer):
            raise TagmaskError(
                f"classes {chosen.tolist()} are {chosen.dtype}; give integer class ids."
            )
        if len(np.unique(chosen)) < len(chosen):
            raise TagmaskError(
                f"classes {chosen.tolist()} name a class twice; give one map per class."
            )
        if len(chosen) and not 0 <= chosen.min() <= chosen.max() <= self.num_classes - 2:
            raise TagmaskError(
                f"classes {chosen.tolist()} leave 0…{self.num_classes - 2}; class ids are 0-based, "
                "the background is none of them."
            )
        return chosen.astype(np.intp)


def sweep(samples: Iterable[Sample], num_classes: int, thresholds: int = 100) -> Curve:
    """Return the curve of samples, which are read once.

    Args:
        samples: (classes, maps, target) of each image; see ``Sweep.add`` for their shapes.
        num_classes: K, background included.
        thresholds: T, giving t = 0, 1/T … (T−1)/T.
    """
    counter = Sweep(num_classes, thresholds)
    for classes, maps, target in samples:
        counter.add(classes, maps, target)
    return counter.result()


def threshold_values(thresholds: int) -> npt.NDArray[np.float64]:
    """Return the thresholds 0, 1/T … (T−1)/T, (T,).

    Raises:
        TagmaskError: If T is out of range.
    """
    if not 1 <= thresholds <= 10_000:
        raise TagmaskError(
            f"thresholds is {thresholds}, a number of steps: give 1…10000, e.g. 100."
        )
    return np.arange(thresholds) / thresholds


def top_bins(
    maps: StoredMaps, thresholds: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.intp]]:
    """Return per pixel which map is highest, and how many thresholds lie below its value.

    Args:
        maps: (k, H, W) with k ≥ 1, in [0, 1].
        thresholds: T.

    Returns:
        The map (H, W) in 0 … k−1, the first on ties, and the bin (H, W) in 0 … T: at threshold
        index i a pixel is foreground exactly if its bin exceeds i.

    Raises:
        TagmaskError: If shape, type or range of the maps are others.
    """
    values = _checked_maps(maps)  # (k, H, W)
    top, highest = _top(
        values.view(np.uint16) if values.dtype == np.float16 else values
    )  # (H, W) each
    if highest.dtype in (np.uint8, np.uint16):
        return top, _code_bins(highest.dtype.name, thresholds).take(highest)
    # Rounding is monotonic: below ≥ i wherever value > i/T, and value > (below − 1)/T; one step
    # settles it.
    below = (highest * thresholds).astype(np.intp)  # (H, W)
    below += highest > np.append(threshold_values(thresholds), np.inf).take(below)
    return top, below


def _top(maps: npt.NDArray[Any]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[Any]]:
    """Return argmax and maximum over the maps, much faster than np.argmax for few maps."""
    highest = maps[0].copy()  # (H, W)
    top = np.zeros(highest.shape, np.uint8)  # (H, W)
    for index in range(1, len(maps)):
        better = maps[index] > highest
        np.maximum(top, better * np.uint8(index), out=top)  # a later winner has the higher index
        np.maximum(highest, maps[index], out=highest)
    return top, highest


@lru_cache(maxsize=8)
def _code_bins(kind: str, thresholds: int) -> npt.NDArray[np.intp]:
    """Return the bin of every uint8 level, or of every float16 in [0, 1] by its bits."""
    if kind == "uint8":
        values = np.arange(256) / 255
    else:
        values = np.arange(_HALF_ONE + 1, dtype=np.uint16).view(np.float16).astype(np.float64)
    return np.searchsorted(threshold_values(thresholds), values, side="left")


def _checked_maps(maps: StoredMaps) -> npt.NDArray[Any]:
    """Return the maps, all in [0, 1].

    Negative zeros in float16 become float32, where they do no harm.
    """
    values: npt.NDArray[Any] = np.asarray(maps)
    if values.ndim != 3 or values.size == 0 or len(values) > UNSURE:
        raise TagmaskError(
            f"maps have shape {values.shape}; give (k, H, W) with 1…{UNSURE} maps, no side empty."
        )
    if values.dtype not in (np.uint8, np.float16, np.float32, np.float64):
        raise TagmaskError(
            f"maps have dtype {values.dtype}; give float16, float32, float64 or uint8."
        )
    if values.dtype == np.uint8 or (
        values.dtype == np.float16 and values.view(np.uint16).max() <= _HALF_ONE
    ):
        return values
    if values.dtype == np.float16:
        values = values.astype(np.float32)
    low, high = values.min(), values.max()
    if not (low >= 0 and high <= 1):
        raise TagmaskError(
            f"maps run from {low:g} to {high:g}; scale them to 0…1 (min–max per class) first."
        )
    return values
