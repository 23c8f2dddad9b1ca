"""Thresholds chosen without ground truth: by independent maximisation and on a drawn map."""

from __future__ import annotations

import pickle

import numpy as np
import numpy.typing as npt
import pytest

from tagmask.errors import TagmaskError
from tagmask.scoring import Chooser, choosers, minimum_cross_entropy, otsu, sweep


def picture(
    level: float, height: int = 60, width: int = 90
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint8]]:
    """A map that falls from 1 in the centre of an ellipse to `level` on its rim, and the mask of the ellipse."""
    rows, columns = np.mgrid[:height, :width]
    radius = np.hypot(
        (rows - height * 0.45) / (height * 0.3), (columns - width * 0.55) / (width * 0.25)
    )
    values = np.clip(1 - (1 - level) * radius, 0, 1)
    return values[None].astype(np.float32), (radius < 1).astype(np.uint8)


def samples_of(histogram: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """One number per counted pixel: the middle of its bin."""
    size = len(histogram) - 1
    middles = [0.0, *((np.arange(1, size + 1) - 0.5) / size)]
    return np.repeat(middles, histogram)


HISTOGRAMS = [
    np.random.default_rng(seed).integers(0, 1 + 40 // (1 + seed), 21) for seed in range(4)
] + [
    np.array([0, 9, 30, 12, 4, 1, 0, 0, 2, 8, 3]),
    np.array([50, 20, 9, 5, 3, 2, 2, 1, 1, 1, 1]),
]


@pytest.mark.parametrize("histogram", HISTOGRAMS, ids=range(len(HISTOGRAMS)))
def test_otsu_minimises_the_variance_within(histogram: npt.NDArray[np.int64]) -> None:
    """Brute force on the samples themselves, in the other form of the criterion."""
    values, steps = samples_of(histogram), np.arange(len(histogram) - 1) / (len(histogram) - 1)

    def within(t: float) -> float:
        low, high = values[values <= t], values[values > t]
        return float(((low - low.mean()) ** 2).sum() + ((high - high.mean()) ** 2).sum())

    loss = {t: within(t) for t in steps if (values <= t).any() and (values > t).any()}
    assert loss[otsu(histogram)] == pytest.approx(min(loss.values()))


@pytest.mark.parametrize("histogram", HISTOGRAMS, ids=range(len(HISTOGRAMS)))
def test_cross_entropy_is_minimal(histogram: npt.NDArray[np.int64]) -> None:
    """Brute force of Σ v·log(v/mean of its side) over the samples."""
    values, steps = samples_of(histogram), np.arange(len(histogram) - 1) / (len(histogram) - 1)

    def lost(side: npt.NDArray[np.float64]) -> float:
        positive = side[side > 0]
        return float((positive * np.log(positive / side.mean())).sum()) if positive.size else 0.0

    loss = {
        t: lost(values[values <= t]) + lost(values[values > t])
        for t in steps
        if (values <= t).any() and (values > t).any()
    }
    assert loss[minimum_cross_entropy(histogram)] == pytest.approx(min(loss.values()))


def test_otsu_between_two_modes_takes_the_middle() -> None:
    """Modes in bins 10 and 60: every threshold from 0.10 to 0.59 parts them alike."""
    histogram = np.zeros(101, np.int64)
    histogram[[10, 60]] = 500, 300
    assert otsu(histogram) == 0.35
    assert minimum_cross_entropy(histogram) == 0.35


def test_otsu_at_1e11_pixels() -> None:
    """Scaling the counts changes nothing."""
    histogram = np.random.default_rng(1).integers(1, 50, 101)
    assert otsu(histogram * 10**11 // 50) == otsu(histogram * 10**4 // 50)


@pytest.mark.parametrize("name", list(choosers()))
def test_merged_parts_equal_one_pass(name: str) -> None:
    """Exactly, in any order, also after pickling; an image without maps changes nothing."""
    pictures = [picture(0.3, 40 + more, 50)[0] for more in range(4)]
    whole, left, right = (choosers()[name] for _ in range(3))
    for index, maps in enumerate(pictures):
        whole.add(maps)
        (left if index % 2 else right).add(maps)
    left.add(np.zeros((0, 40, 50), np.float32))
    left.merge(pickle.loads(pickle.dumps(right)))
    for field, value in vars(whole).items():
        np.testing.assert_array_equal(value, vars(left)[field], err_msg=field)
    assert whole.result() == left.result()


def test_every_result_is_on_the_curve() -> None:
    """So that the scores at a chosen threshold can be read off the sweep."""
    maps, target = picture(0.4)
    curve = sweep([([0], maps, target)], 2)
    for chooser in choosers().values():
        chooser.add(maps)
        assert 0.5 < curve.at(chooser.result()).miou_present <= curve.best.miou_present


def test_unlike_choosers_do_not_merge() -> None:
    """Other rules, or 100 steps against 50."""
    for other in (choosers()["cross_entropy"], Chooser(otsu, 50)):
        with pytest.raises(TagmaskError, match="cannot be merged; build both alike"):
            choosers()["otsu"].merge(other)


def test_refuses() -> None:
    """Nothing seen, a constant map."""
    for rule in (otsu, minimum_cross_entropy):
        with pytest.raises(TagmaskError, match="0 filled bins"):
            Chooser(rule).result()
    constant = Chooser(otsu)
    constant.add(np.full((1, 2, 2), 0.5))
    with pytest.raises(TagmaskError, match="1 filled bins"):
        constant.result()
