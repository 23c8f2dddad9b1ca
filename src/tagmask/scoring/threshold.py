"""Background thresholds chosen without ground truth.

The best threshold of a sweep is an oracle: it has seen the masks. The rules here see only what a
user without masks has, the maps. They are deterministic, read each map once, keep memory flat and
can be merged over processes; several can share one pass:

    running = choosers()
    for maps in …:
        for chooser in running.values():
            chooser.add(maps)
    chosen = {name: chooser.result() for name, chooser in running.items()}

All work on the bins of `sweep.top_bins`, so a result is always one of the thresholds of the curve.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tagmask.errors import TagmaskError
from tagmask.scoring.sweep import StoredMaps, threshold_values, top_bins

Histogram = npt.NDArray[
    np.int64
]  # (T+1,) pixels by bin; threshold index i separates bins 0…i from i+1…T


def otsu(histogram: Histogram) -> float:
    """Return the threshold that splits the top scores into the two tightest groups.

    It maximises the variance between the groups, hence minimises the variance within them.
    Reason: where a map separates object from background its scores have two modes, and the
    threshold belongs between them.
    Otsu, "A Threshold Selection Method from Gray-Level Histograms", IEEE Trans. SMC 9(1), 1979.
    """
    low, high, low_sum, high_sum = _split(histogram)  # (T,) each
    gain = low * high * (low_sum / low - high_sum / high) ** 2  # (T,) nan where a side is empty
    return _middle_of_best(gain) / len(gain)


def minimum_cross_entropy(histogram: Histogram) -> float:
    """Return the threshold whose two-valued picture loses least information about the top scores.

    It minimises Σ v·log(v/mean of v's group). Reason: scores are positive and skewed, objects
    cover less than the background and spread wider; this criterion expects a spread that grows
    with the mean (it is the likelihood of two Poisson groups), where Otsu's expects two of one
    width and tends to land too high.
    Li and Lee, "Minimum Cross Entropy Thresholding", Pattern Recognition 26(4), 1993.
    """
    low, high, low_sum, high_sum = _split(histogram)  # (T,) each
    with np.errstate(divide="ignore", invalid="ignore"):
        low_term = np.where(low_sum > 0, low_sum * np.log(low_sum / low), 0.0)  # 0·log 0 = 0
        gain = low_term + high_sum * np.log(
            high_sum / high
        )  # (T,) the part that depends on the threshold
    return _middle_of_best(np.where(np.isnan(low), np.nan, gain)) / len(gain)


class Chooser:
    """Apply a rule, e.g. `otsu`, to the histogram of top scores of one image after the other."""

    def __init__(self, rule: Callable[[Histogram], float], thresholds: int = 100) -> None:
        self.rule = rule
        self.counts = np.zeros(len(threshold_values(thresholds)) + 1, np.int64)  # (T+1,)

    def add(self, maps: StoredMaps) -> None:
        """Count the top scores of one image's maps (k, H, W) in [0, 1]; k may be 0."""
        self.counts += top_histogram(maps, len(self.counts) - 1)

    def merge(self, other: "Chooser") -> None:
        """Add the counts of the same rule in another process."""
        if other.rule is not self.rule or len(other.counts) != len(self.counts):
            raise TagmaskError(
                "choosers of other rules or other thresholds cannot be merged; build both alike."
            )
        self.counts += other.counts

    def result(self) -> float:
        """Return the threshold, one of 0, 1/T … (T−1)/T."""
        return self.rule(self.counts)


def top_histogram(maps: StoredMaps, thresholds: int = 100) -> Histogram:
    """Return the number of pixels by the bin of their top score; several choosers can share it.

    Args:
        maps: (k, H, W) of one image, in [0, 1]; k may be 0.
        thresholds: T.

    Returns:
        (T+1,).
    """
    if not len(maps):
        return np.zeros(thresholds + 1, np.int64)
    return np.bincount(top_bins(maps, thresholds)[1].ravel(), minlength=thresholds + 1)


def choosers(thresholds: int = 100) -> dict[str, Chooser]:
    """Return one fresh chooser of every rule, by name."""
    return {
        "otsu": Chooser(otsu, thresholds),
        "cross_entropy": Chooser(minimum_cross_entropy, thresholds),
    }


def _split(histogram: Histogram) -> tuple[npt.NDArray[np.float64], ...]:
    """Return pixels below and above each threshold, then their score sums, (T,) each.

    Pixels are nan where either side has none.
    """
    counts = np.asarray(histogram)
    if counts.ndim != 1 or np.count_nonzero(counts) < 2:
        raise TagmaskError(
            f"the histogram of top scores has {np.count_nonzero(counts)} filled bins; "
            "a threshold needs 2: add images with tagged classes whose maps are not constant."
        )
    middles = np.maximum(
        2 * np.arange(len(counts)) - 1, 0
    )  # (T+1,) in half steps; bin 0 holds exact zeros
    low, low_sum = (
        np.cumsum(counts).astype(np.float64),
        np.cumsum(counts * middles).astype(np.float64),
    )
    high = low[-1] - low
    high_sum = low_sum[-1] - low_sum
    empty = (low == 0) | (high == 0)
    low[empty] = high[empty] = np.nan
    return low[:-1], high[:-1], low_sum[:-1], high_sum[:-1]


def _middle_of_best(score: npt.NDArray[np.float64]) -> int:
    """Return the index of the highest score.

    Of equal neighbours, as between two modes far apart, it is the middle one.
    """
    first = int(np.nanargmax(score))
    run = score[first:] == score[first]
    return first + (int(np.argmin(run)) if not run.all() else len(run)) // 2
