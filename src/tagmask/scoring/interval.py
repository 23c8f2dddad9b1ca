"""How sure a score is that was measured on a random sample of photos.

The IoU of a class is a ratio of two sums over photos, R = Σ I / Σ U. Its error is estimated as that
of a ratio estimator (Cochran, Sampling Techniques, §6.4): the deviation of the residuals I − R·U.
The interval is taken on the logit scale, so that it stays within 0 and 1, with Student's quantile
for few photos.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

# photos with a class below which no interval is given
LEAST = 5


@dataclass(frozen=True)
class Interval:
    """A score and the limits between which it probably lies."""

    value: float  # from 0 to 1
    low: float
    high: float
    photos: int  # that have the class in either mask


def ratio_interval(
    parts: Sequence[float], wholes: Sequence[float], level: float = 0.95
) -> Interval | None:
    """Return Σ parts / Σ wholes with an interval.

    Args:
        parts: Of each photo of a random sample the intersection in pixels.
        wholes: Of each photo the union; photos with 0 say nothing and are left out.
        level: Share of samples whose interval is to hold the ratio of all photos.

    Returns:
        None if fewer than ``LEAST`` photos say something.
    """
    chosen = np.asarray(wholes, float) > 0
    part = np.asarray(parts, float)[chosen]
    whole = np.asarray(wholes, float)[chosen]
    count = len(whole)
    if count < LEAST:
        return None
    # a success and a failure more than were seen: a perfect sample proves no perfect whole
    mean = whole.mean()
    ratio = (part.sum() + mean / 2) / (whole.sum() + mean)
    residuals = part - ratio * whole
    # what the added half photos vary by keeps the deviation above zero
    spread = (residuals**2).sum() + mean**2 * ratio * (1 - ratio) / 2
    error = math.sqrt(spread / (count - 1) / count) / mean
    times = float(stdtrit(count - 1, (1 + level) / 2))
    logit = math.log(ratio / (1 - ratio))
    width = times * error / (ratio * (1 - ratio))
    value = float(part.sum() / whole.sum())
    low = 1 / (1 + math.exp(-(logit - width)))
    high = 1 / (1 + math.exp(min(700.0, -(logit + width))))
    return Interval(value, min(low, value), max(high, value), count)
