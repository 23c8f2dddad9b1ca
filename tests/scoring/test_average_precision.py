"""Average precision: by hand, and against scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.metrics import average_precision_score

from tagmask.errors import TagmaskError
from tagmask.scoring import average_precision, mean_average_precision


def test_by_hand() -> None:
    """Positives on ranks 1 and 3: (1/1 + 2/3)/2; both of two tied: 2/4 for the whole group."""
    scores = np.array([[4, 1], [3, 1], [2, 1], [1, 1]], np.float32)
    targets = np.array([[1, 1], [0, 0], [1, 1], [0, 0]])
    np.testing.assert_allclose(average_precision(scores, targets), [(1 + 2 / 3) / 2, 2 / 4])
    assert mean_average_precision(scores, targets) == pytest.approx((5 / 6 + 1 / 2) / 2)


@pytest.mark.parametrize("levels", [2, 5, 10**6])
def test_equals_scikit_learn(levels: int) -> None:
    """With many, some and hardly any ties."""
    rng = np.random.default_rng(levels)
    scores = rng.integers(0, levels, (200, 12)) / levels - 0.5
    targets = rng.random((200, 12)) < np.linspace(0.02, 0.9, 12)
    targets[0] = True
    expected = average_precision_score(targets, scores, average=None)
    np.testing.assert_allclose(average_precision(scores, targets), expected, rtol=1e-12)
    assert mean_average_precision(scores, targets) == pytest.approx(expected.mean())


def test_order_of_the_samples_does_not_matter() -> None:
    """Tied samples have no order."""
    rng = np.random.default_rng(0)
    scores, targets = rng.integers(0, 4, (50, 3)), rng.integers(0, 2, (50, 3))
    shuffled = rng.permutation(50)
    np.testing.assert_array_equal(
        average_precision(scores, targets), average_precision(scores[shuffled], targets[shuffled])
    )


def test_class_without_positive_is_nan_and_left_out() -> None:
    """It cannot be ranked; a mean over no class is nan."""
    scores, targets = np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([[0, 0], [1, 0]])
    np.testing.assert_array_equal(average_precision(scores, targets), [0.5, np.nan])
    assert mean_average_precision(scores, targets) == 0.5
    assert np.isnan(mean_average_precision(scores, np.zeros((2, 2))))


@pytest.mark.parametrize(
    ("scores", "targets", "words"),
    [
        (np.zeros((2, 3)), np.zeros((3, 2)), r"\(2, 3\).*\(3, 2\)"),
        (np.zeros(2), np.zeros(2), r"\(N, C\)"),
        (np.array([[np.nan]]), np.ones((1, 1)), "1 values that are not finite"),
        (np.zeros((1, 1)), np.full((1, 1), 2), "targets hold 2"),
    ],
)
def test_refuses(scores: npt.NDArray[Any], targets: npt.NDArray[Any], words: str) -> None:
    """Each mistake is named."""
    with pytest.raises(TagmaskError, match=words):
        average_precision(scores, targets)
