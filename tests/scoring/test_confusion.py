"""Confusion matrix and IoU: by hand, and against torchmetrics."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tagmask.errors import TagmaskError
from tagmask.scoring import confusion, iou

from torchmetrics.classification import MulticlassJaccardIndex  # isort: skip

TARGET = np.array([[0, 0, 1, 1], [0, 2, 2, 1], [0, 0, 255, 255]], np.uint8)
PREDICTION = np.array([[0, 1, 1, 1], [0, 2, 0, 255], [0, 2, 1, 255]], np.uint8)


def test_matrix_of_a_drawn_grid() -> None:
    """Rows are truth, columns prediction, the last column the pixels left unsure."""
    expected = [
        [3, 1, 1, 0],  # background: three right, one taken for class 1, one for class 2
        [0, 2, 0, 1],  # class 1: two right, one unsure
        [1, 0, 1, 0],  # class 2: one right, one taken for background
    ]
    counts = confusion(PREDICTION, TARGET, 3)
    assert counts.dtype == np.int64
    assert counts.tolist() == expected


def test_scores_of_a_drawn_grid() -> None:
    """TP/(TP+FP+FN) = 3/(3+1+2), 2/(2+1+1), 1/(1+1+1); a miss by being unsure is nobody's false alarm."""
    scores = iou(confusion(PREDICTION, TARGET, 3))
    np.testing.assert_allclose(scores.class_iou, [3 / 6, 2 / 4, 1 / 3])
    assert scores.miou_present == pytest.approx((1 / 2 + 1 / 2 + 1 / 3) / 3)
    assert scores.miou_all == scores.miou_present
    assert scores.fp == pytest.approx((1 / 4 + 1 / 3) / 2)
    assert scores.fn == pytest.approx((1 / 4 + 1 / 3) / 2)
    assert scores.pixel_accuracy == pytest.approx(6 / 10)


def test_absent_class_is_left_out_or_counts_zero() -> None:
    """The two means differ by a class that is nowhere; one that is only predicted is present, at 0."""
    scores = iou(confusion(np.array([[0, 1, 2]]), np.array([[0, 1, 1]]), 4))
    np.testing.assert_allclose(scores.class_iou, [1, 1 / 2, 0, np.nan])
    assert scores.miou_present == pytest.approx(1.5 / 3)
    assert scores.miou_all == pytest.approx(1.5 / 4)
    assert scores.fp == pytest.approx((0 + 1) / 2)
    assert scores.fn == pytest.approx((1 / 2 + 0) / 2)


def test_nothing_to_score_is_nan_not_zero() -> None:
    """All ignored: no mean exists; only background: no foreground rate exists."""
    nothing = iou(confusion(np.zeros((2, 2), int), np.full((2, 2), 255), 3))
    assert np.isnan([nothing.miou_present, nothing.fp, nothing.fn, nothing.pixel_accuracy]).all()
    assert nothing.miou_all == 0
    background = iou(confusion(np.zeros((2, 2), int), np.zeros((2, 2), int), 3))
    assert background.miou_present == 1
    assert np.isnan([background.fp, background.fn]).all()


@pytest.mark.parametrize("classes", [2, 21, 81])
def test_equals_torchmetrics(classes: int) -> None:
    """Per-class IoU on random labels with ignored pixels, over several images of unequal size."""
    rng = np.random.default_rng(classes)
    reference = MulticlassJaccardIndex(classes, ignore_index=255, average="none")
    total = np.zeros((classes, classes + 1), np.int64)
    for height, width in ((31, 47), (64, 20), (1, 300)):
        target = rng.integers(0, classes, (height, width)).astype(np.uint8)
        prediction = np.where(
            rng.random(target.shape) < 0.5, target, rng.integers(0, classes, target.shape)
        )
        target[rng.random(target.shape) < 0.1] = 255
        total += confusion(prediction.astype(np.uint8), target, classes)
        reference.update(
            torch.from_numpy(prediction.astype(np.int64)), torch.from_numpy(target.astype(np.int64))
        )
    np.testing.assert_allclose(iou(total).class_iou, reference.compute().numpy(), atol=1e-6)


def test_no_overflow_at_1e11_pixels() -> None:
    """COCO has 1e10 pixels; int32 counters and their sums would wrap."""
    big = 10**11
    scores = iou(np.array([[8 * big, big], [big, 2 * big]], np.int64))
    np.testing.assert_allclose(scores.class_iou, [8 / 10, 2 / 4])
    assert scores.pixel_accuracy == pytest.approx(10 / 12)


def test_narrow_counters_are_summed_in_64_bit() -> None:
    """An int32 matrix whose row sum passes 2³¹."""
    scores = iou(np.full((2, 2), 2**31 - 1, np.int32))
    np.testing.assert_allclose(scores.class_iou, [1 / 3, 1 / 3])


@pytest.mark.parametrize(
    ("prediction", "target", "classes", "ignore", "words"),
    [
        (np.zeros((2, 3), int), np.zeros((3, 2), int), 2, 255, r"\(2, 3\).*\(3, 2\).*resize"),
        (np.zeros((1, 1)), np.zeros((1, 1), int), 2, 255, "prediction has dtype float64.*integer"),
        (np.zeros((1, 1), int), np.full((1, 1), 21), 21, 255, "target has label 21, outside 0…20"),
        (
            np.full((1, 1), 21),
            np.zeros((1, 1), int),
            21,
            255,
            "prediction has label 21, outside 0…20",
        ),
        (np.full((1, 1), -1), np.zeros((1, 1), int), 21, 255, "prediction has label -1"),
        (np.zeros((1, 1), int), np.zeros((1, 1), int), 0, 255, "num_classes is 0.*at least 1"),
        (np.zeros((1, 1), int), np.zeros((1, 1), int), 21, 20, "ignore is 20.*at least 21"),
    ],
)
def test_refuses(
    prediction: np.ndarray, target: np.ndarray, classes: int, ignore: int, words: str
) -> None:  # numpy arrays of the wrong kind on purpose
    """Each mistake is named with its value and the remedy."""
    with pytest.raises(TagmaskError, match=words):
        confusion(prediction, target, classes, ignore)


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        (np.zeros((2, 4), int), r"\(2, 4\)"),
        (np.zeros((0, 0), int), r"\(0, 0\)"),
        (np.zeros((2, 2)), "float64"),
        (np.array([[1, -5], [0, 1]]), "-5.*int64"),
    ],
)
def test_iou_refuses(matrix: np.ndarray, words: str) -> None:
    """A matrix that cannot be a count of pixels."""
    with pytest.raises(TagmaskError, match=words):
        iou(matrix)


def test_over_activation_as_seam_has_it() -> None:
    """Class 1: 6 hits, 3 false alarms, 2 misses; class 2: none is hit, so it does not count."""
    counts = np.array([[10, 3, 1], [2, 6, 0], [4, 0, 0]])
    scores = iou(counts)
    assert scores.fp_per_hit == pytest.approx(3 / 6)
    assert scores.fn_per_hit == pytest.approx(2 / 6)
    assert scores.fp == pytest.approx((3 / 11 + 1 / 5) / 2)
    assert np.isnan(iou(np.array([[4, 1], [2, 0]])).fp_per_hit)
