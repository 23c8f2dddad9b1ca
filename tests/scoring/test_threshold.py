"""Thresholds chosen without ground truth: by independent maximisation and on drawn pictures."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tagmask.errors import TagmaskError
from tagmask.scoring import EdgeAgreement, choosers, minimum_cross_entropy, otsu, sweep
from tagmask.scoring.threshold import Chooser, HistogramChooser, _gradient

Picture = tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32], npt.NDArray[np.uint8]]


def picture(level: float, seed: int = 0, height: int = 60, width: int = 90) -> Picture:
    """A coloured ellipse on a noisy ground, a map that falls from its centre and is `level` on its rim."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:height, :width]
    radius = np.hypot((rows - height * 0.45) / (height * 0.3), (columns - width * 0.55) / (width * 0.25))
    inside = radius < 1
    image = np.where(inside[..., None], (200, 90, 60), (70, 120, 130)) + rng.normal(0, 6, (height, width, 3))
    values = np.clip(1 - (1 - level) * radius, 0, 1)  # 1 in the centre, `level` where the radius is 1
    return image.clip(0, 255).astype(np.uint8), values[None].astype(np.float32), inside.astype(np.uint8)


def samples_of(histogram: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """One number per counted pixel: the middle of its bin."""
    size = len(histogram) - 1
    middles = [0.0, *((np.arange(1, size + 1) - 0.5) / size)]
    return np.repeat(middles, histogram)


HISTOGRAMS = [np.random.default_rng(seed).integers(0, 1 + 40 // (1 + seed), 21) for seed in range(4)] + [
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


def brute_force_agreement(image: Any, maps: Any, smoothing: int) -> npt.NDArray[np.float64]:
    """(100,) by how much the outlines' gradients exceed the mean, in means, from 100 drawn label maps."""
    gradient = _gradient(image, smoothing)
    scores = np.full(100, np.nan)
    for index in range(100):
        labels = np.concatenate([np.full((1, *maps.shape[1:]), index / 100), maps]).argmax(axis=0)
        on = np.concatenate([(labels[:, 1:] != labels[:, :-1]).ravel(), (labels[1:] != labels[:-1]).ravel()])
        across = (gradient[:, 1:] + gradient[:, :-1]).ravel()
        down = (gradient[1:] + gradient[:-1]).ravel()
        strength = np.concatenate([across, down])
        if on.any():
            scores[index] = (strength[on] - strength.mean()).sum() / (2 * gradient.mean())
    return scores


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("smoothing", [0, 3])
def test_agreement_equals_100_drawn_masks(count: int, smoothing: int) -> None:
    """The intervals of thresholds against outlines really drawn, also between classes."""
    rng = np.random.default_rng(count)
    image = rng.integers(0, 256, (17, 23, 3)).astype(np.uint8)
    maps = rng.random((count, 17, 23)).astype(np.float32)
    chooser = EdgeAgreement(smoothing=smoothing)
    chooser.add(image, maps)
    # 1/1024: the gradients are kept in fixed point
    np.testing.assert_allclose(chooser.agreement(), brute_force_agreement(image, maps, smoothing), atol=0.3)


@pytest.mark.parametrize("level", [0.15, 0.4, 0.7])
def test_edges_find_the_rim_of_a_drawn_object(level: float) -> None:
    """The map is `level` on the outline, so that is the threshold, and its mask the object."""
    image, maps, target = picture(level)
    chooser = EdgeAgreement()
    chooser.add(image, maps)
    assert chooser.result() == pytest.approx(level, abs=0.03)
    assert sweep([([0], maps, target)], 2).at(chooser.result()).miou_present > 0.95


def test_contrast_does_not_count() -> None:
    """A faint picture weighs as much as a strong one: two to one for 0.3 against 0.7."""
    chooser = EdgeAgreement()
    for seed in range(2):
        image, maps, _ = picture(0.3, seed)
        chooser.add((image // 4).astype(np.uint8), maps)
    chooser.add(*picture(0.7, 2)[:2])
    assert chooser.result() == pytest.approx(0.3, abs=0.05)


@pytest.mark.parametrize("name", list(choosers()))
def test_merged_parts_equal_one_pass(name: str) -> None:
    """Exactly, in any order, also after pickling; an image without maps changes nothing."""
    pictures = [picture(0.3, seed, 40 + seed, 50)[:2] for seed in range(4)]
    whole, left, right = (choosers()[name] for _ in range(3))
    for index, (image, maps) in enumerate(pictures):
        whole.add(image, maps)
        (left if index % 2 else right).add(image, maps)
    left.add(pictures[0][0], np.zeros((0, 40, 50), np.float32))
    left.merge(pickle.loads(pickle.dumps(right)))
    for field, value in vars(whole).items():
        np.testing.assert_array_equal(value, vars(left)[field], err_msg=field)
    assert whole.result() == left.result()


def test_every_result_is_on_the_curve() -> None:
    """So that the scores at a chosen threshold can be read off the sweep."""
    image, maps, target = picture(0.4)
    curve = sweep([([0], maps, target)], 2)
    for chooser in choosers().values():
        chooser.add(image, maps)
        assert 0.5 < curve.at(chooser.result()).miou_present <= curve.best.miou_present


def test_flat_image_says_nothing() -> None:
    """No gradient anywhere: no vote, and alone no answer."""
    chooser = EdgeAgreement()
    chooser.add(np.full((6, 7, 3), 9, np.uint8), np.random.default_rng(0).random((1, 6, 7)))
    with pytest.raises(TagmaskError, match="edges"):
        chooser.result()


@pytest.mark.parametrize(("one", "other"), [("otsu", "cross_entropy"), ("otsu", "edges"), ("edges", "otsu")])
def test_unlike_choosers_do_not_merge(one: str, other: str) -> None:
    """Their sums mean different things."""
    with pytest.raises(TagmaskError, match="same settings"):
        choosers()[one].merge(choosers()[other])


@pytest.mark.parametrize("chooser", [HistogramChooser(otsu, 50), EdgeAgreement(50)])
def test_unlike_steps_do_not_merge(chooser: Chooser) -> None:
    """100 steps against 50."""
    with pytest.raises(TagmaskError, match="same settings"):
        choosers()["otsu" if isinstance(chooser, HistogramChooser) else "edges"].merge(chooser)


def test_refuses() -> None:
    """Nothing seen, a constant map, sizes that differ, negative smoothing."""
    for rule in (otsu, minimum_cross_entropy):
        with pytest.raises(TagmaskError, match="0 filled bins"):
            HistogramChooser(rule).result()
    constant = HistogramChooser(otsu)
    constant.add(np.zeros((2, 2, 3), np.uint8), np.full((1, 2, 2), 0.5))
    with pytest.raises(TagmaskError, match="1 filled bins"):
        constant.result()
    with pytest.raises(TagmaskError, match=r"\(4, 5, 3\).*\(1, 5, 4\)"):
        EdgeAgreement().add(np.zeros((4, 5, 3), np.uint8), np.zeros((1, 5, 4)))
    with pytest.raises(TagmaskError, match="smoothing is -1"):
        EdgeAgreement(smoothing=-1)
