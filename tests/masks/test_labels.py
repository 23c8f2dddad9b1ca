"""Labels of maps by hand, and confident regions against their definition."""

from typing import Any

import numpy as np
import pytest

from tagmask.data.scenes.catalog import draw_scene
from tagmask.errors import TagmaskError
from tagmask.labels import Picture
from tagmask.masks import labels as module
from tagmask.masks.crf import LABELS, SEEDS, CrfSettings, dense_crf
from tagmask.masks.labels import agreement, confident_regions, label_pixels

GREY = np.full((2, 3, 3), 128, np.uint8)
MAPS = np.array(
    [[[0.9, 0.4, 0.1], [0.3, 0.0, 0.2]], [[0.1, 0.5, 0.1], [0.7, 0.3, 0.3]]]
)  # (2, 2, 3)


def test_labels_by_hand() -> None:
    assert label_pixels(GREY, [4, 0], MAPS, 0.3).tolist() == [
        [5, 1, 0],
        [1, 0, 0],
    ]  # the background wins ties
    assert label_pixels(GREY, [4, 0], MAPS, 1.0).max() == 0


def test_an_image_without_classes_is_background() -> None:
    assert label_pixels(GREY, [], np.zeros((0, 2, 3)), 0.3, SEEDS).tolist() == [
        [0, 0, 0],
        [0, 0, 0],
    ]
    assert confident_regions(GREY, [], np.zeros((0, 2, 3))).tolist() == [[0, 0, 0], [0, 0, 0]]


def test_the_crf_moves_a_border_to_the_edge_of_the_image() -> None:
    image = np.zeros((20, 30, 3), np.uint8)
    image[:, 12:] = 255
    maps = np.full((1, 20, 30), 0.1)
    maps[:, :, 15:] = 0.9  # three columns short of the edge
    assert (label_pixels(image, [0], maps, 0.5)[:, 12:15] == 0).all()
    assert (
        label_pixels(image, [0], maps, 0.5, SEEDS) == np.repeat([[0] * 12 + [1] * 18], 20, axis=0)
    ).all()


def test_the_crf_starts_from_labels_trusted_alike() -> None:
    rng = np.random.default_rng(0)
    image, maps = rng.integers(0, 256, (9, 11, 3), dtype=np.uint8), rng.random((2, 9, 11))
    first = label_pixels(image, [0, 1], maps, 0.4)
    chances = np.where(first[None] == np.arange(3)[:, None, None], 0.7, 0.15)
    expected = dense_crf(image, chances, LABELS).argmax(axis=0)
    assert (label_pixels(image, [0, 1], maps, 0.4, LABELS) == expected).all()
    assert (first != expected).any()


def test_confident_regions_follow_their_definition() -> None:
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (12, 17, 3), dtype=np.uint8)
    maps = rng.random((2, 12, 17))
    winners = {}
    for power in (2.0, 8.0):
        background = (1 - maps.max(axis=0)) ** power
        winners[power] = dense_crf(image, np.concatenate([background[None], maps]), SEEDS).argmax(
            axis=0
        )
    regions = confident_regions(image, [3, 5], maps, 2.0, 8.0)
    for place in np.ndindex(regions.shape):
        strict, lenient = winners[2.0][place], winners[8.0][place]
        if strict and lenient:
            assert regions[place] == (4, 6)[strict - 1]
        else:
            assert regions[place] == (0 if strict == lenient == 0 else 255)
    assert len(np.unique(regions)) > 1


def test_greyscale_and_thin_images() -> None:
    for rows in (1, 2):
        coloured = label_pixels(GREY[:rows], [0, 1], MAPS[:, :rows], 0.3, SEEDS)
        assert (
            label_pixels(GREY[:rows, :, 0], [0, 1], MAPS[:, :rows], 0.3, SEEDS).tolist()
            == coloured.tolist()
        )
    assert label_pixels(GREY[:1, :, 0], [0, 1], MAPS[:, :1], 0.3).tolist() == [[1, 2, 0]]


def test_agreement() -> None:
    first, second = np.array([[0, 1, 2]], np.uint8), np.array([[0, 2, 2]], np.uint8)
    assert agreement(first, second).tolist() == [[0, 255, 2]]
    with pytest.raises(TagmaskError, match="only labels of one image"):
        agreement(first, second.T)


def test_bad_input() -> None:
    with pytest.raises(TagmaskError, match="the maps are 2×3 and the image is 3×3 pixels"):
        label_pixels(np.zeros((3, 3, 3), np.uint8), [0, 1], MAPS, 0.3)
    with pytest.raises(TagmaskError, match="2 maps for 1 classes"):
        label_pixels(GREY, [0], MAPS, 0.3)
    with pytest.raises(TagmaskError, match=r"score is 1\.5"):
        label_pixels(GREY, [0, 1], MAPS, 1.5)
    with pytest.raises(TagmaskError, match="the first must be lower"):
        confident_regions(GREY, [0, 1], MAPS, 8, 4)


def test_tiles_of_a_large_photo_have_no_seams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles with what the CRF sees around them give the labels of the whole photo."""
    image = np.kron(draw_scene(0).image, np.ones((3, 4, 1), np.uint8))
    ramp = np.linspace(0, 1, image.shape[1], dtype=np.float32)
    maps = np.stack([np.broadcast_to(ramp, image.shape[:2]), image[..., 0] / np.float32(255)])
    near = CrfSettings(bilateral_sxy=15, gaussian_sxy=2)
    labels = label_pixels(image, [0, 1], maps, 0.6, near)
    regions = confident_regions(image, [0, 1], maps, crf=near)
    assert len(np.unique(labels)) == 3
    monkeypatch.setattr(module, "AT_ONCE", 0.0)
    monkeypatch.setattr(module, "TILE", 64)
    sizes = []

    def crf(part: Picture, *others: Any) -> Any:
        sizes.append(part.shape)
        return dense_crf(part, *others)

    monkeypatch.setattr(module, "dense_crf", crf)
    assert (label_pixels(image, [0, 1], maps, 0.6, near) == labels).mean() > 0.99
    assert max(map(max, sizes)) <= 64 + 2 * 45
    assert (confident_regions(image, [0, 1], maps, crf=near) == regions).mean() > 0.99
    # without a CRF there is nothing to tile
    plain = label_pixels(image, [0, 1], maps, 0.6)
    assert (plain == np.where(maps.max(0) > np.float32(0.6), 1 + maps.argmax(0), 0)).all()
