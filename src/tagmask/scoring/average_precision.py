"""Average precision of multi-label scores: how well a classifier ranks the images of each class.

AP = Σ (R_n − R_{n−1})·P_n over the distinct scores, from high to low, without interpolation:
samples with equal scores enter together, so their order cannot matter (scikit-learn's definition).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from tagmask.errors import TagmaskError


def average_precision(
    scores: npt.NDArray[Any], targets: npt.NDArray[Any]
) -> npt.NDArray[np.float64]:
    """Return the average precision of each class.

    Args:
        scores: Real numbers (N, C), e.g. logits; only their order matters.
        targets: (N, C) of 0/1 or bool.

    Returns:
        (C,) in [0, 1], nan for a class without a positive.

    Raises:
        TagmaskError: If shapes differ, scores are not finite, or targets are not 0 or 1.
    """
    values, positive = _checked(scores, targets)  # (N, C) each
    return np.array(
        [_one_class(values[:, c], positive[:, c]) for c in range(values.shape[1])], np.float64
    )


def mean_average_precision(scores: npt.NDArray[Any], targets: npt.NDArray[Any]) -> float:
    """Return the mean AP over the classes that have a positive; nan if none has.

    Args:
        scores: Real numbers (N, C).
        targets: (N, C) of 0/1 or bool.
    """
    per_class = average_precision(scores, targets)  # (C,)
    known = per_class[~np.isnan(per_class)]
    return float(known.mean()) if known.size else float("nan")


def _one_class(scores: npt.NDArray[np.float64], positive: npt.NDArray[np.bool_]) -> float:
    """Return the AP of (N,) scores against (N,) truths."""
    if not positive.any():
        return float("nan")
    order = np.argsort(-scores)  # (N,)
    ranked = scores[order]
    last_of_tie = np.flatnonzero(
        np.append(ranked[1:] != ranked[:-1], True)
    )  # (G,) one per distinct score
    hits = np.cumsum(positive[order])[last_of_tie]  # (G,)
    precision = hits / (last_of_tie + 1)
    recall_gain = np.diff(hits, prepend=0) / hits[-1]
    return float(precision @ recall_gain)


def _checked(
    scores: npt.NDArray[Any], targets: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    values, truth = np.asarray(scores, dtype=np.float64), np.asarray(targets)
    if values.ndim != 2 or values.shape != truth.shape:
        raise TagmaskError(
            f"scores have shape {values.shape} and targets {truth.shape}; give (N, C) for both."
        )
    if not np.isfinite(values).all():
        raise TagmaskError(
            f"scores hold {int((~np.isfinite(values)).sum())} values that are not finite; "
            "the training has diverged or a logit overflowed: "
            "lower the learning rate or use float32."
        )
    if not np.isin(truth, (0, 1)).all():
        odd = truth[~np.isin(truth, (0, 1))].flat[0]
        raise TagmaskError(f"targets hold {odd}; give 0 or 1 (or bool) per image and class.")
    return values, truth.astype(bool)
