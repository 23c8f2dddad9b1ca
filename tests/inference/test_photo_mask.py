"""Masks of large photos: tiles give what the whole photo gives, and memory stays bounded."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tagmask.config import MaskSettings
from tagmask.data.scenes.catalog import draw_scene
from tagmask.inference import photo_mask as module
from tagmask.inference.photo_mask import memory_at_once, photo_mask, photo_probabilities
from tagmask.masks.tiles import AT_ONCE, windows
from tagmask.models.head import HeadSegmenter
from tests.inference.test_probabilities import many_classes
from tests.stages.test_predict import near_sighted

PHOTO = np.kron(draw_scene(0).image, np.ones((3, 4, 1), np.uint8))
PLAIN = MaskSettings(scales=(1.0,), flip=True, crf=False)


@pytest.fixture
def tiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Photos of any size count as large, and tiles are small."""
    monkeypatch.setattr(module, "AT_ONCE", 0.0)
    monkeypatch.setattr(module, "SMALL", 0)
    monkeypatch.setattr(module, "_tile", lambda *_: 128)


def test_windows_cover_every_pixel_once() -> None:
    covered = np.zeros((50, 70), int)
    picture = np.arange(50 * 70).reshape(50, 70)
    for window in windows(50, 70, 16, 8):
        covered[window.tile] += 1
        np.testing.assert_array_equal(picture[window.seen][window.inner], picture[window.tile])
        assert max(window.shape) <= 32
    assert (covered == 1).all()


def test_a_part_is_interpolated_as_the_whole() -> None:
    cells = torch.randn(3, 5, 7)
    whole = F.interpolate(cells[None], (43, 61), mode="bilinear", align_corners=False)[0]
    for window in windows(43, 61, 16, 4):
        part = module._stretched(cells, (43, 61), window)
        torch.testing.assert_close(part, whole[:, *window.seen], rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("tiled")
def test_tiles_of_a_head_are_the_whole() -> None:
    model = many_classes(20)
    expected = photo_probabilities(model, PHOTO, None, PLAIN).mask()
    assert len(np.unique(expected)) == 3
    assert (photo_mask(model, PHOTO, None, PLAIN) == expected).mean() > 0.9999
    assert {*np.unique(photo_mask(model, PHOTO, [4], PLAIN))} <= {0, 5}


@pytest.mark.usefixtures("tiled")
@pytest.mark.parametrize("size", [None, 100])
def test_tiles_with_a_crf_have_no_seams(size: int | None) -> None:
    model = many_classes(20)
    settings = replace(PLAIN, crf=True, crf_size=size)
    expected = photo_probabilities(model, PHOTO, None, settings).mask()
    assert (photo_mask(model, PHOTO, None, settings) == expected).mean() > 0.98


@pytest.mark.usefixtures("tiled")
def test_tiles_of_a_network_are_the_whole() -> None:
    model = near_sighted()
    # cells of a mirrored tile lie elsewhere than those of the mirrored photo
    settings = replace(PLAIN, halo=64, flip=False)
    expected = photo_probabilities(model, PHOTO, None, settings).mask()
    assert (photo_mask(model, PHOTO, None, settings) == expected).mean() > 0.999


@pytest.mark.parametrize("scale", [1.0, 1.5, 2.0])
def test_what_a_network_sees_of_a_tile_is_bounded_at_its_largest_scale(scale: float) -> None:
    halo = 256
    tile = module._tile(16, halo, "network", scale)
    assert tile % 64 == 0
    assert tile > 0
    assert (tile + 2 * halo) * scale <= 1152


def test_large_photos_need_tiles_and_small_ones_do_not() -> None:
    head: HeadSegmenter = many_classes(60)
    phone = replace(PLAIN, crf=True, crf_size=256)
    assert memory_at_once(head, (3000, 4000), 3, phone) < AT_ONCE
    assert memory_at_once(head, (4000, 6000), 3, phone) > AT_ONCE
    assert memory_at_once(head, (3000, 4000), 3, replace(PLAIN, crf=True)) > AT_ONCE


def test_many_likely_classes_of_a_small_photo_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    model = many_classes(40)
    with torch.no_grad():
        model.linear.bias.zero_()
    whole = photo_probabilities(model, PHOTO, None, PLAIN)
    assert len(np.unique(whole.mask())) > 6
    monkeypatch.setattr(module, "MOST", 5)
    assert (photo_mask(model, PHOTO, None, PLAIN) == whole.mask()).all()
    monkeypatch.setattr(module, "AT_ONCE", 0.0)
    assert len(np.unique(photo_mask(model, PHOTO, None, PLAIN))) <= 6
