"""Probabilities of pixels: mirrored views are mirrored back, and refinement is that of its own module."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from tagmask.data.scenes.catalog import draw_scene
from tagmask.inference.probabilities import (
    predict_labels,
    predict_probabilities,
    resized,
    sharpen,
)
from tagmask.masks.crf import SEGMENTATION, dense_crf
from tagmask.masks.pamr import pamr
from tagmask.models.head import HeadSegmenter
from tests.helpers import tiny_classifier

IMAGE = draw_scene(0).image


def test_a_mirrored_view_of_a_head_is_mirrored_back() -> None:
    model = HeadSegmenter(tiny_classifier(), (1, 3), 48).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2 and parameter.shape[0] == 4:
                parameter.normal_()  # the head itself: background and three classes
    plain = predict_probabilities(model, IMAGE, flip=False)
    mirrored = predict_probabilities(model, np.ascontiguousarray(IMAGE[:, ::-1]), flip=False)[
        :, :, ::-1
    ]
    assert np.abs(plain - mirrored).max() > 0.01
    np.testing.assert_allclose(
        predict_probabilities(model, IMAGE, flip=True), (plain + mirrored) / 2, atol=1e-5
    )


def chances() -> Any:
    random = np.random.default_rng(0).random((3, *IMAGE.shape[:2])).astype(np.float32)
    return random / random.sum(0)


def test_pixel_adaptive_refinement_is_used_where_asked() -> None:
    np.testing.assert_allclose(
        sharpen(IMAGE, chances(), crf=False, pamr=True), pamr(IMAGE, chances()), atol=1e-6
    )
    np.testing.assert_array_equal(sharpen(IMAGE, chances(), crf=False), chances())


def test_a_crf_on_fewer_pixels() -> None:
    image, fewer = resized(IMAGE, chances(), 40)
    assert max(image.shape[:2]) == 40
    scaled = replace(
        SEGMENTATION,
        gaussian_sxy=3.0 * 40 / max(IMAGE.shape[:2]),
        bilateral_sxy=67.0 * 40 / max(IMAGE.shape[:2]),
    )
    assert (SEGMENTATION.gaussian_sxy, SEGMENTATION.bilateral_sxy) == (3.0, 67.0)
    small = torch.from_numpy(dense_crf(image, fewer, scaled))[None]
    expected = F.interpolate(small, IMAGE.shape[:2], mode="bilinear")[0].numpy()
    sharp = sharpen(IMAGE, chances(), crf_size=40)
    np.testing.assert_allclose(sharp, expected, atol=1e-6)
    assert np.abs(sharp - sharpen(IMAGE, chances())).max() > 0.01


def many_classes(count: int) -> HeadSegmenter:
    """Return a head of many classes of which three have a chance."""
    torch.manual_seed(0)
    model = HeadSegmenter(tiny_classifier(count), (1, 3), 48).eval()
    with torch.no_grad():
        model.linear.weight.normal_(std=0.02)
        model.linear.bias.fill_(-40.0)
        model.linear.bias[[0, 5, 9]] = 0.0
    return model


def test_improbable_labels_take_no_memory_and_the_others_are_those_of_all() -> None:
    model = many_classes(20)
    some = predict_labels(model, IMAGE, flip=True)
    assert some.labels.tolist() == [0, 5, 9]
    dense = predict_probabilities(model, IMAGE, flip=True)
    np.testing.assert_allclose(some.dense(21), dense, atol=1e-5)
    assert (some.mask() == dense.argmax(0)).all()
    assert {*np.unique(some.mask())} == {0, 5, 9}


def test_memory_does_not_grow_with_the_number_of_classes() -> None:
    """Tensors at full size are counted: as many with 200 classes as with 20, with tags and without."""
    image = np.zeros((900, 1200, 3), np.uint8)
    enlarged = []

    class Count(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor) and result.shape[-2:] == image.shape[:2]:
                enlarged.append(result.numel() // (900 * 1200))
            return result

    for tags in (None, [4, 8]):
        most = []
        for count in (20, 200):
            enlarged.clear()
            with Count():  # type: ignore[no-untyped-call]
                predict_labels(many_classes(count), image, flip=False, tags=tags)
            most.append(max(enlarged))
        assert most == [3, 3]
