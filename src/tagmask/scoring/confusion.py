"""Confusion matrix of label maps, and the scores from it (docs/explanation/method.md §3).

Labels: 0 = background, 1 … K−1 = classes, 255 = not labelled (target) or unsure (prediction).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tagmask.errors import TagmaskError
from tagmask.labels import UNSURE

Integers = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Scores:
    """Hold what a confusion matrix says. All values are fractions in [0, 1], not per cent."""

    class_iou: npt.NDArray[np.float64]  # (K,) TP/(TP+FP+FN); nan: in neither truth nor prediction
    miou_present: float  # mean over the classes in truth or prediction; nan if no pixel was scored
    miou_all: float  # mean over all K classes, an absent one counts 0 (the paper's released script)
    # over-activation: mean FP/(TP+FP+FN) over the foreground classes present; nan if none is
    fp: float
    fn: float  # under-activation: mean FN/(TP+FP+FN) over the same classes
    # over-activation as SEAM has it: mean FP/TP over the foreground classes hit; nan if none is
    fp_per_hit: float
    fn_per_hit: float  # under-activation as SEAM has it: mean FN/TP over the same classes
    pixel_accuracy: float  # nan if no pixel was scored


def confusion(
    prediction: Integers, target: Integers, num_classes: int, ignore: int = UNSURE
) -> npt.NDArray[np.int64]:
    """Count pixels by (truth, prediction); add the matrices of many images to score a data set.

    Args:
        prediction: Integer labels of any shape, e.g. (H, W), in 0 … K−1 or ``ignore``.
        target: Integer labels of the same shape and range.
        num_classes: K, background included.
        ignore: Label of pixels without truth (target) or left unsure (prediction).

    Returns:
        int64 (K, K+1), rows = truth, columns = prediction; the last column counts the pixels that
        the prediction leaves unsure. They are misses of the true class and false alarms of none.
        Pixels whose target is ``ignore`` are not counted at all.

    Raises:
        TagmaskError: If shapes differ, or if a label is out of range.
    """
    prediction, target = np.asarray(prediction), np.asarray(target)
    _check_labels(prediction, target, num_classes, ignore)
    scored = target != ignore  # (H, W)
    truth = target[scored].astype(np.intp)  # (P,)
    guess = prediction[scored].astype(np.intp)  # (P,)
    unsure = guess == ignore  # (P,)
    _check_range("target", truth, num_classes, ignore)
    _check_range("prediction", guess[~unsure], num_classes, ignore)
    guess[unsure] = num_classes
    key = truth * (num_classes + 1) + guess  # (P,)
    counts = np.bincount(key, minlength=num_classes * (num_classes + 1))
    return counts.astype(np.int64).reshape(num_classes, num_classes + 1)


def iou(confusion: Integers) -> Scores:
    """Return the scores of a confusion matrix (K, K).

    A column more, (K, K+1), counts unsure pixels.
    """
    counts = _checked_matrix(confusion)  # (K, K) or (K, K+1)
    classes = len(counts)
    hit = np.diagonal(counts)  # (K,)
    missed = counts.sum(axis=1) - hit  # (K,) unsure pixels included
    wrong = counts[:, :classes].sum(axis=0) - hit  # (K,)
    union = hit + missed + wrong  # (K,)
    present = union > 0  # (K,)
    foreground = present & (np.arange(classes) > 0)  # (K,)
    safe = np.where(present, union, 1)  # (K,)
    class_iou = np.where(present, hit / safe, np.nan)  # (K,)
    found = foreground & (hit > 0)  # (K,)
    return Scores(
        class_iou=class_iou,
        miou_present=_mean(class_iou[present]),
        miou_all=float(np.where(present, class_iou, 0.0).mean()),
        fp=_mean((wrong / safe)[foreground]),
        fn=_mean((missed / safe)[foreground]),
        fp_per_hit=_mean(wrong[found] / hit[found]),
        fn_per_hit=_mean(missed[found] / hit[found]),
        pixel_accuracy=float(hit.sum() / counts.sum()) if present.any() else float("nan"),
    )


def _mean(values: npt.NDArray[np.float64]) -> float:
    return float(values.mean()) if values.size else float("nan")


def _check_labels(
    prediction: npt.NDArray[Any], target: npt.NDArray[Any], num_classes: int, ignore: int
) -> None:
    if num_classes < 1:
        raise TagmaskError(
            f"num_classes is {num_classes}; it counts the background too: give at least 1."
        )
    if 0 <= ignore < num_classes:
        raise TagmaskError(
            f"ignore is {ignore}, which is also a class of 0…{num_classes - 1}; "
            f"give an ignore label of at least {num_classes}."
        )
    if prediction.shape != target.shape:
        raise TagmaskError(
            f"prediction has shape {prediction.shape} and target {target.shape}; "
            "resize the prediction to the size of the target."
        )
    for name, labels in (("prediction", prediction), ("target", target)):
        if not np.issubdtype(labels.dtype, np.integer):
            raise TagmaskError(f"{name} has dtype {labels.dtype}; give integer class labels.")


def _check_range(name: str, labels: npt.NDArray[np.intp], num_classes: int, ignore: int) -> None:
    if labels.size == 0:
        return
    suspect = labels.min() if labels.min() < 0 else labels.max()
    if not 0 <= suspect < num_classes:
        raise TagmaskError(
            f"{name} has label {suspect}, outside 0…{num_classes - 1} and not {ignore} (ignore); "
            "check num_classes (it counts the background too) and the mask's palette."
        )


def _checked_matrix(confusion: Integers) -> npt.NDArray[np.int64]:
    counts = np.asarray(confusion)
    if counts.ndim != 2 or counts.size == 0 or counts.shape[1] - counts.shape[0] not in (0, 1):
        raise TagmaskError(
            f"confusion has shape {counts.shape}; give (K, K) or (K, K+1) as confusion() returns."
        )
    if not np.issubdtype(counts.dtype, np.integer):
        raise TagmaskError(f"confusion has dtype {counts.dtype}; give integer pixel counts.")
    if counts.min() < 0:
        raise TagmaskError(
            f"confusion has the count {counts.min()}, less than 0; "
            "a counter has overflowed: add matrices up in int64."
        )
    return counts.astype(np.int64)
