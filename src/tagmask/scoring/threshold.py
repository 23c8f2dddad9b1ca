"""Background thresholds chosen without ground truth.

The best threshold of a sweep is an oracle: it has seen the masks. Each chooser here sees only what a
user without masks has, images and maps. All are deterministic, read each image once, keep memory flat
and can be merged over processes; several can share one pass:

    running = choosers()
    for image, maps in …:
        for chooser in running.values():
            chooser.add(image, maps)
    chosen = {name: chooser.result() for name, chooser in running.items()}

All work on the bins of `sweep.top_bins`, so a result is always one of the thresholds of the curve.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tagmask.errors import TagmaskError
from tagmask.scoring.sweep import Maps, threshold_values, top_bins

Histogram = npt.NDArray[np.int64]  # (T+1,) pixels by bin; threshold index i parts bins 0…i from i+1…T
Image = npt.NDArray[np.uint8]  # (H, W) or (H, W, channels)


class Chooser(Protocol):
    """Sees images and their maps one by one, then names a background threshold."""

    def add(self, image: Image, maps: Maps) -> None:
        """One image, (H, W, 3), and its maps, (k, H, W) in [0, 1]; without maps it says nothing."""

    def merge(self, other: Chooser) -> None:
        """Take in what a chooser of the same kind saw in another process."""

    def result(self) -> float:
        """The threshold, one of 0, 1/T … (T−1)/T."""


def choosers(thresholds: int = 100) -> dict[str, Chooser]:
    """One fresh chooser of every kind, by name."""
    return {
        "otsu": HistogramChooser(otsu, thresholds),
        "cross_entropy": HistogramChooser(minimum_cross_entropy, thresholds),
        "edges": EdgeAgreement(thresholds),
    }


def otsu(histogram: Histogram) -> float:
    """The threshold that parts the top scores into the two tightest groups.

    Maximises the variance between the groups, hence minimises the variance within them. Reason: where
    a map tells object from background its scores have two modes, and the threshold belongs between.
    Otsu, "A Threshold Selection Method from Gray-Level Histograms", IEEE Trans. SMC 9(1), 1979.
    """
    low, high, low_sum, high_sum = _split(histogram)  # (T,) each
    gain = low * high * (low_sum / low - high_sum / high) ** 2  # (T,) nan where a side is empty
    return _middle_of_best(gain) / len(gain)


def minimum_cross_entropy(histogram: Histogram) -> float:
    """The threshold whose two-valued picture loses least information about the top scores.

    Minimises Σ v·log(v/mean of v's group). Reason: scores are positive and skewed, objects cover less
    than the background and spread wider; this criterion expects a spread that grows with the mean (it is
    the likelihood of two Poisson groups), where Otsu's expects two of one width and tends to land too high.
    Li and Lee, "Minimum Cross Entropy Thresholding", Pattern Recognition 26(4), 1993.
    """
    low, high, low_sum, high_sum = _split(histogram)  # (T,) each
    with np.errstate(divide="ignore", invalid="ignore"):
        low_term = np.where(low_sum > 0, low_sum * np.log(low_sum / low), 0.0)  # 0·log 0 = 0
        gain = low_term + high_sum * np.log(high_sum / high)  # (T,) the part that depends on the threshold
    return _middle_of_best(np.where(np.isnan(low), np.nan, gain)) / len(gain)


class HistogramChooser:
    """A rule on the histogram of top scores, e.g. `otsu`."""

    def __init__(self, rule: Callable[[Histogram], float], thresholds: int = 100) -> None:
        """rule: from the histogram (T+1,) to a threshold."""
        self.rule = rule
        self.counts = np.zeros(len(threshold_values(thresholds)) + 1, np.int64)  # (T+1,)

    def add(self, image: Image, maps: Maps) -> None:
        """Count the top scores; the image itself is not looked at."""
        if len(maps):
            bins = top_bins(maps, len(self.counts) - 1)[1]  # (H, W)
            self.counts += np.bincount(bins.ravel(), minlength=len(self.counts))

    def merge(self, other: Chooser) -> None:
        """Add the other's counts."""
        if not isinstance(other, HistogramChooser) or other._settings() != self._settings():
            raise _cannot_merge(self, other)
        self.counts += other.counts

    def result(self) -> float:
        """The rule's answer."""
        return self.rule(self.counts)

    def _settings(self) -> tuple[object, int]:
        return self.rule, len(self.counts)


class EdgeAgreement:
    """The threshold whose mask outlines follow the edges of the images best.

    Score of a threshold = Σ over the outlines of (image gradient − mean gradient of the image), over all
    images. Reason: an object's outline is where the image changes; an outline inside the object or out
    on the background crosses even surface and earns nothing. The sum, not the mean along the outline:
    the best mean belongs to the few pixels around the most telling spot, not to the object. An outline
    runs between two neighbouring pixels of unlike label, so each neighbour pair is on it for one interval
    of thresholds, and two bincounts per image serve all of them. Gradients are divided by their mean in
    the image (contrast must not count), and smoothed, as maps are coarser than edges.
    After Hertz and Schafer, "Multilevel Thresholding Using Edge Matching", CVGIP 44, 1988.
    """

    def __init__(self, thresholds: int = 100, smoothing: int = 20) -> None:
        """smoothing: passes of the 1-2-1 filter over the image; n passes ≈ a Gaussian of variance n/2."""
        if smoothing < 0:
            raise TagmaskError(f"smoothing is {smoothing}, a number of passes: give 0 or more, e.g. 20.")
        self.smoothing = smoothing
        size = len(threshold_values(thresholds)) + 1
        # Integers, so that the sums do not depend on the order of the images or the number of processes.
        self.length = np.zeros(size, np.int64)  # (T+1,) pairs that join the outline less those that leave
        self.strength = np.zeros(size, np.int64)  # (T+1,) likewise their gradients, image mean = 1024
        self.all_pairs = 0
        self.all_strength = 0

    def add(self, image: Image, maps: Maps) -> None:
        """One image and its maps at the same size; an image of one flat colour says nothing."""
        if len(maps) == 0:
            return
        if image.ndim not in (2, 3) or image.shape[:2] != maps.shape[1:]:
            raise TagmaskError(
                f"image has shape {image.shape} and maps {maps.shape}; give (H, W, 3) and (k, H, W) alike."
            )
        top, bins = top_bins(maps, len(self.length) - 1)  # (H, W) each
        gradient = _gradient(image, self.smoothing)  # (H, W)
        if not gradient.any():
            return
        weight = np.rint(gradient * (512 / gradient.mean())).astype(np.int64)  # (H, W) two pixels make a pair
        for one, two in _NEIGHBOURS:
            self._add_pairs(weight[one] + weight[two], top[one] == top[two], bins[one], bins[two])

    def _add_pairs(
        self,
        weight: npt.NDArray[np.int64],
        alike: npt.NDArray[np.bool_],
        one: npt.NDArray[np.intp],
        two: npt.NDArray[np.intp],
    ) -> None:
        """Enter pairs by weight, whether the top class is the same, and the bins of both pixels."""
        last = np.maximum(one, two)  # from here on both are background
        first = np.minimum(one, two) * alike  # before, both are foreground: an outline only between classes
        on = first < last
        first, last, strength = first[on], last[on], weight[on]
        size = len(self.length)
        self.length += np.bincount(first, minlength=size) - np.bincount(last, minlength=size)
        joined = np.bincount(first, strength, size) - np.bincount(last, strength, size)  # whole, so exact
        self.strength += joined.astype(np.int64)
        self.all_pairs += weight.size
        self.all_strength += int(weight.sum())

    def merge(self, other: Chooser) -> None:
        """Add the other's sums."""
        if not isinstance(other, EdgeAgreement) or other._settings() != self._settings():
            raise _cannot_merge(self, other)
        self.length += other.length
        self.strength += other.strength
        self.all_pairs += other.all_pairs
        self.all_strength += other.all_strength

    def agreement(self) -> npt.NDArray[np.float64]:
        """(T,) the score of each threshold, in mean gradients: 0 = as good as chance; nan without an outline."""
        length = np.cumsum(self.length)[:-1].astype(np.float64)  # (T,) pairs on the outlines
        strength = np.cumsum(self.strength)[:-1]  # (T,)
        mean = self.all_strength / max(1, self.all_pairs)
        score: npt.NDArray[np.float64] = np.where(length > 0, strength / 1024 - length * (mean / 1024), np.nan)
        return score

    def result(self) -> float:
        """The threshold of the best agreement."""
        score = self.agreement()  # (T,)
        return _middle_of_best(score) / len(score)

    def _settings(self) -> tuple[int, int]:
        return self.smoothing, len(self.length)


_ALL, _FIRST, _LAST = slice(None), slice(None, -1), slice(1, None)
_NEIGHBOURS = (((_ALL, _FIRST), (_ALL, _LAST)), ((_FIRST, _ALL), (_LAST, _ALL)))  # left–right, upper–lower


def _gradient(image: Image, smoothing: int) -> npt.NDArray[np.float64]:
    """(H, W) gradient magnitude of the smoothed image over all channels, borders repeated."""
    height, width = image.shape[:2]
    values = image.reshape(height, width, -1).astype(np.float64)  # (H, W, channels)
    for _ in range(smoothing):
        for axis in (0, 1):
            values = values + (_shifted(values, axis, 1) - 2 * values + _shifted(values, axis, -1)) / 4
    slopes = [_shifted(values, axis, 1) - _shifted(values, axis, -1) for axis in (0, 1)]
    magnitude: npt.NDArray[np.float64] = np.sqrt(sum((slope**2).sum(axis=2) for slope in slopes))
    return magnitude


def _shifted(values: npt.NDArray[np.float64], axis: int, step: int) -> npt.NDArray[np.float64]:
    """Each pixel's neighbour along the axis, the pixel itself beyond the border."""
    index = np.clip(np.arange(values.shape[axis]) + step, 0, values.shape[axis] - 1)
    return values.take(index, axis=axis)


def _split(histogram: Histogram) -> tuple[npt.NDArray[np.float64], ...]:
    """(T,) each: pixels below and above each threshold, nan where either is 0, then their score sums."""
    counts = np.asarray(histogram)
    if counts.ndim != 1 or np.count_nonzero(counts) < 2:
        raise TagmaskError(
            f"the histogram of top scores has {np.count_nonzero(counts)} filled bins; a threshold needs 2: "
            "add images with tagged classes whose maps are not constant."
        )
    middles = np.maximum(2 * np.arange(len(counts)) - 1, 0)  # (T+1,) in half steps; bin 0 holds exact zeros
    low, low_sum = np.cumsum(counts).astype(np.float64), np.cumsum(counts * middles).astype(np.float64)
    high, high_sum = low[-1] - low, low_sum[-1] - low_sum
    empty = (low == 0) | (high == 0)
    low[empty] = high[empty] = np.nan
    return low[:-1], high[:-1], low_sum[:-1], high_sum[:-1]


def _middle_of_best(score: npt.NDArray[np.float64]) -> int:
    """Index of the highest score; the middle of the first run of equals, as between two far modes."""
    if np.isnan(score).all():
        raise TagmaskError("no threshold can be told from another; add images with edges and maps that vary.")
    first = int(np.nanargmax(score))
    run = score[first:] == score[first]
    return first + (int(np.argmin(run)) if not run.all() else len(run)) // 2


def _cannot_merge(one: Any, other: Any) -> TagmaskError:
    return TagmaskError(
        f"this {type(other).__name__} cannot be merged into that {type(one).__name__}; "
        "build both with the same settings."
    )
