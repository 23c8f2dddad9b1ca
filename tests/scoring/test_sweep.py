"""The one-pass sweep against one argmax per threshold, exactly."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tagmask.errors import TagmaskError
from tagmask.scoring import Sweep, confusion, iou, sweep
from tagmask.scoring.sweep import Sample, top_bins

CLASSES = 5  # with background


def brute_force(
    samples: list[Sample], num_classes: int, thresholds: int = 100
) -> npt.NDArray[np.int64]:
    """(T, K, K): for every threshold an argmax over [t, maps…] in float64 and a confusion matrix."""
    result = np.zeros((thresholds, num_classes, num_classes), np.int64)
    for index in range(thresholds):
        for classes, maps, target in samples:
            values = maps.astype(np.float64) / (255 if maps.dtype == np.uint8 else 1)
            background = np.full((1, *target.shape), index / thresholds)
            labels = np.array([0, *(np.asarray(classes, int) + 1)])
            prediction = labels[np.concatenate([background, values]).argmax(axis=0)]
            result[index] += confusion(prediction, target, num_classes)[:, :-1]
    return result


def values_of(kind: str) -> st.SearchStrategy[Any]:
    """Map values of one type, often exactly on a threshold or a rounding step beside it."""
    if kind == "uint8":
        return st.one_of(st.integers(0, 255), st.sampled_from([0, 51, 102, 153, 204, 255]))
    width = {"float16": 16, "float32": 32, "float64": 64}[kind]
    number = np.dtype(kind).type
    steps = [number(i / 100) for i in range(101)]
    beside = [np.nextafter(step, number(side)) for step in steps for side in (0, 1)]
    levels = [number(v) for v in np.arange(256).astype(kind) / number(255)]
    return st.one_of(
        st.floats(0, 1, width=width),  # type: ignore[arg-type]
        st.sampled_from([float(v) for v in [*steps, *beside, *levels]]),
    )


@st.composite
def samples(draw: st.DrawFn) -> list[Sample]:
    """Up to three images of any shape with 0 to 4 tagged classes in any order."""
    drawn: list[Sample] = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["float16", "float32", "float64", "uint8"]))
        height, width = draw(st.integers(1, 6)), draw(st.integers(1, 6))
        classes = draw(st.lists(st.integers(0, CLASSES - 2), unique=True, max_size=4))
        maps = draw(hnp.arrays(kind, (len(classes), height, width), elements=values_of(kind)))
        label = st.sampled_from([*range(CLASSES), 255])
        target = draw(hnp.arrays(np.uint8, (height, width), elements=label))
        target[0, 0] = 0
        drawn.append((classes, maps, target))
    return drawn


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(samples())
def test_equals_100_argmax_passes(drawn: list[Sample]) -> None:
    """Every count at every threshold."""
    np.testing.assert_array_equal(sweep(drawn, CLASSES).confusions, brute_force(drawn, CLASSES))


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "uint8"])
@pytest.mark.parametrize("thresholds", [1, 7, 100, 1000])
def test_bins_of_all_values(kind: str, thresholds: int) -> None:
    """The bin is the number of thresholds below the value, in float64, for values dense around the steps."""
    steps = np.arange(thresholds + 1) / thresholds
    if kind == "uint8":
        maps = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    else:
        number = np.dtype(kind).type
        near = steps.astype(kind)
        near = np.concatenate([near, np.nextafter(near, number(0)), np.nextafter(near, number(1))])
        maps = np.concatenate([near, np.arange(4097).astype(kind) / number(4096)]).reshape(1, 1, -1)
    values = maps[0].astype(np.float64) / (255 if kind == "uint8" else 1)
    expected = (values[..., None] > steps[:-1]).sum(axis=-1)
    np.testing.assert_array_equal(top_bins(maps, thresholds)[1], expected)


def test_every_float16() -> None:
    """All 15,361 half floats in [0, 1]."""
    maps = np.arange(0x3C01, dtype=np.uint16).view(np.float16).reshape(1, 1, -1)
    expected = (maps[0, 0].astype(np.float64)[:, None] > np.arange(100) / 100).sum(axis=1)
    np.testing.assert_array_equal(top_bins(maps, 100)[1][0], expected)


@pytest.mark.parametrize(
    ("value", "last"),  # the last threshold, in hundredths, at which the pixel is foreground
    [
        (np.float64(0.29), 28),  # a tie, which the background wins
        (np.float32(0.29), 28),  # rounds to less than 0.29
        (np.float32(0.3), 30),  # rounds to more than 0.3
        (np.float16(0.5), 49),  # exact, a tie
        (np.uint8(51), 19),  # 51/255 = 0.2, a tie
    ],
)
def test_a_value_on_the_threshold_is_background(value: Any, last: int) -> None:
    """What float64 says of the value as stored."""
    curve = sweep([([0], np.full((1, 1, 1), value), np.ones((1, 1), np.uint8))], 2)
    assert np.flatnonzero(curve.confusions[:, 1, 1]).tolist() == list(range(last + 1))


def test_first_class_wins_a_tie() -> None:
    """As np.argmax does: the order of `classes` decides."""
    target, maps = np.zeros((1, 1), np.uint8), np.full((3, 1, 1), 0.5)
    assert sweep([([2, 0, 1], maps, target)], 4).confusions[0].tolist()[0] == [0, 0, 0, 1]


def test_by_hand_on_a_3x4_grid() -> None:
    """Two classes and one ignored pixel at t = 0.5."""
    first = np.array([[0.9, 0.8, 0.1, 0.0], [0.9, 0.6, 0.2, 0.1], [0.3, 0.2, 0.1, 0.0]], np.float32)
    second = np.array(
        [[0.0, 0.1, 0.2, 0.3], [0.1, 0.7, 0.6, 0.7], [0.2, 0.3, 0.2, 0.1]], np.float32
    )
    target = np.array([[1, 1, 0, 0], [1, 1, 2, 2], [1, 0, 0, 255]], np.uint8)
    curve = sweep([([0, 1], np.stack([first, second]), target)], 3)
    scores = curve.at(0.5)
    # One: 3 of 5 found. Two: both, and a pixel of class one. Background: all 4, and one too many.
    assert curve.confusions[50].tolist() == [[4, 0, 0], [1, 3, 1], [0, 0, 2]]
    np.testing.assert_allclose(scores.class_iou, [4 / 5, 3 / 5, 2 / 3])
    assert scores.fp == pytest.approx((0 + 1 / 3) / 2)
    assert scores.fn == pytest.approx((2 / 5 + 0) / 2)
    assert curve.class_iou.shape == (100, 3)


def test_best_is_the_oracle_threshold() -> None:
    """Object above 0.4, everything else below 0.3: any t in [0.3, 0.4) is perfect, the first is named."""
    target = np.zeros((6, 9), np.uint8)
    target[2:4, 3:8] = 1
    maps = np.where(target == 1, 0.4, 0.3)[None]
    curve = sweep([([0], maps, target)], 3)
    assert (curve.best_index, curve.best_threshold) == (30, 0.3)
    assert curve.best.miou_present == 1
    assert curve.best.miou_all == pytest.approx(2 / 3)
    assert curve.miou_present[29] == pytest.approx((0 + 10 / 54) / 2)
    assert curve.fp[29] == pytest.approx(44 / 54)
    assert curve.fn[40] == 1


def test_image_without_tags_is_all_background() -> None:
    """k = 0: every foreground pixel is missed at every threshold."""
    target = np.array([[0, 0, 3], [3, 255, 0]], np.uint8)
    curve = sweep([([], np.zeros((0, 2, 3), np.float16), target)], 4)
    assert all(
        matrix.tolist() == [[3, 0, 0, 0], [0] * 4, [0] * 4, [2, 0, 0, 0]]
        for matrix in curve.confusions
    )
    np.testing.assert_array_equal(
        curve.confusions, brute_force([([], np.zeros((0, 2, 3)), target)], 4)
    )


def test_merged_parts_equal_one_pass() -> None:
    """Also after pickling, as between processes."""
    rng = np.random.default_rng(0)
    images: list[Sample] = []
    for count in (1, 3, 0, 2):
        maps = rng.random((count, 13, 29)).astype(np.float16)
        images.append(
            (rng.permutation(20)[:count], maps, rng.integers(0, 21, (13, 29)).astype(np.uint8))
        )
    parts = [Sweep(21), Sweep(21)]
    for index, image in enumerate(images):
        parts[index % 2].add(*image)
    parts[0].merge(pickle.loads(pickle.dumps(parts[1])))
    np.testing.assert_array_equal(parts[0].result().confusions, sweep(images, 21).confusions)


def test_no_overflow_at_1e11_pixels() -> None:
    """A thousand COCOs in the counters."""
    counter = Sweep(2)
    counter.add([0], np.array([[[0.2, 0.8]]]), np.array([[0, 1]], np.uint8))
    counter.counts *= 10**11
    curve = counter.result()
    assert curve.confusions[50].tolist() == [[10**11, 0], [0, 10**11]]
    assert (
        curve.at(0.1).miou_present == iou(np.array([[0, 10**11], [0, 10**11]])).miou_present == 0.25
    )


def test_negative_zero_in_float16_is_zero() -> None:
    """Its bits are those of a large number."""
    maps = np.array([[[-0.0, 0.5]]], np.float16)
    assert top_bins(maps, 100)[1].tolist() == [[0, 50]]


GOOD = ([0], np.zeros((1, 2, 3), np.float32), np.zeros((2, 3), np.uint8))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({0: [20]}, r"\[20\] leave 0…19.*0-based"),
        ({0: [-1]}, r"\[-1\] leave"),
        ({0: [0.5]}, "float64.*integer"),
        ({0: [0, 0], 1: np.zeros((2, 2, 3))}, "twice"),
        ({0: [0, 1]}, r"\(1, 2, 3\).*2 classes"),
        ({1: np.zeros((1, 3, 2))}, r"\(1, 3, 2\).*\(2, 3\)"),
        ({1: np.full((1, 2, 3), 1.5)}, "1.5.*0…1"),
        ({1: np.full((1, 2, 3), -0.5, np.float16)}, "-0.5.*0…1"),
        ({1: np.full((1, 2, 3), np.nan, np.float16)}, "nan.*0…1"),
        ({1: np.full((1, 2, 3), np.nan, np.float32)}, "nan.*0…1"),
        ({1: np.zeros((1, 2, 3), np.int64)}, "int64.*uint8"),
        ({2: np.zeros((2, 3), np.int64)}, "uint8"),
        ({2: np.full((2, 3), 21, np.uint8)}, "label 21, outside 0…20.*palette"),
        ({1: np.zeros((1, 0, 3)), 2: np.zeros((0, 3), np.uint8)}, r"\(1, 0, 3\)"),
    ],
)
def test_refuses(change: dict[int, Any], words: str) -> None:
    """A wrong image is named and leaves the counters untouched."""
    counter = Sweep(21)
    image: list[Any] = [change.get(index, good) for index, good in enumerate(GOOD)]
    with pytest.raises(TagmaskError, match=words):
        counter.add(*image)
    assert not counter.counts.any()


def test_refuses_wrong_settings() -> None:
    """Class and threshold numbers, unlike sweeps, a threshold off the curve, nothing scored."""
    for classes, thresholds, words in (
        (1, 100, "num_classes is 1"),
        (300, 100, "300"),
        (2, 0, "thresholds is 0"),
    ):
        with pytest.raises(TagmaskError, match=words):
            Sweep(classes, thresholds)
    with pytest.raises(TagmaskError, match=r"\(3, 100\).*\(2, 100\)"):
        Sweep(2).merge(Sweep(3))
    with pytest.raises(TagmaskError, match="no pixel"):
        Sweep(2).result()
    curve = sweep([([0], np.ones((1, 1, 1)), np.ones((1, 1), np.uint8))], 2)
    with pytest.raises(TagmaskError, match=r"0\.123.*0\.12"):
        curve.at(0.123)
    with pytest.raises(TagmaskError, match="nan"):
        curve.at(float("nan"))
