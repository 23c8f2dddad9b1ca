"""The interval of an IoU from few photos covers that of all photos often enough."""

import numpy as np
import pytest

from tagmask.scoring.interval import LEAST, ratio_interval


def test_the_value_is_the_ratio_of_sums_and_lies_inside() -> None:
    found = ratio_interval([8, 0, 3, 10, 5, 0], [10, 4, 6, 10, 9, 0])
    assert found is not None
    assert found.value == pytest.approx(26 / 39)
    assert found.photos == 5
    assert 0 < found.low < found.value < found.high < 1


def test_few_photos_say_nothing_and_a_perfect_sample_is_no_proof() -> None:
    assert ratio_interval([1.0] * (LEAST - 1), [1.0] * (LEAST - 1)) is None
    perfect = ratio_interval([7.0] * 10, [7.0] * 10)
    assert perfect is not None
    assert perfect.high == pytest.approx(1, abs=0.02)
    assert perfect.low < 0.95


@pytest.mark.parametrize("photos", [8, 20, 50])
@pytest.mark.parametrize("mean", [0.4, 0.7, 0.9])
def test_simulated_sessions(photos: int, mean: float) -> None:
    """Objects of very different sizes, masks that are good or fail: drawn again and again."""
    random = np.random.default_rng([photos, round(10 * mean)])
    wholes = random.lognormal(8, 1, 2000)
    quality = np.where(
        random.random(2000) < 0.12,
        random.beta(1, 6, 2000),
        random.beta(9 * mean, 9 - 9 * mean, 2000),
    )
    parts = wholes * quality
    truth = parts.sum() / wholes.sum()
    covered = 0
    for _ in range(500):
        drawn = random.choice(2000, photos, replace=False)
        found = ratio_interval(parts[drawn].tolist(), wholes[drawn].tolist())
        assert found is not None
        covered += found.low <= truth <= found.high
    assert covered / 500 >= 0.9
