"""Cells and pixels: linear functions survive, nothing is shifted, and torch agrees."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tagmask.masks.grid import stretch, to_cells, to_pixels


@pytest.mark.parametrize("centred", [False, True])
def test_a_slope_comes_back_as_it_was(centred: bool) -> None:
    slope = 3.0 * np.arange(40)[:, None] - 2.0 * np.arange(56) + np.zeros((1, 40, 56))
    back = to_pixels(to_cells(slope, 8, centred), (40, 56), 8, centred)
    inner = np.s_[:, 8:25, 8:41]  # the last cell also takes the pixels beyond it
    shift = (
        0 if centred else (3 - 2) * -0.5
    )  # the mean of pixels 4…11 lies half a pixel before their cell's pixel 8
    np.testing.assert_allclose(back[inner], slope[inner] + shift, atol=1e-3)


def test_patches_are_torchs_pooling_and_interpolation() -> None:
    maps = torch.rand(2, 3, 24, 32)[0]
    cells = F.avg_pool2d(maps, 8)
    np.testing.assert_allclose(to_cells(maps.numpy(), 8, centred=True), cells.numpy(), atol=1e-6)
    pixels = F.interpolate(cells[None], (24, 32), mode="bilinear", align_corners=False)[0]
    np.testing.assert_allclose(
        to_pixels(cells.numpy(), (24, 32), 8, centred=True), pixels.numpy(), atol=1e-6
    )


def test_a_bright_cell_is_brightest_on_its_pixel() -> None:
    cells = np.zeros((1, 4, 5), np.float32)
    cells[0, 2, 3] = 1
    pixels = to_pixels(cells, (29, 37), 8)
    assert pixels.argmax() == 16 * 37 + 24
    assert to_cells(pixels, 8).argmax() == 13  # row 2 of 5 columns, column 3


@pytest.mark.parametrize("size", [(1, 17), (9, 1), (8, 8), (7, 30)])
def test_any_size(size: tuple[int, int]) -> None:
    for centred in (False, True):
        cells = to_cells(np.ones((2, *size), np.float32), 8, centred)
        assert cells.shape == (2, -(-size[0] // 8), -(-size[1] // 8))
        np.testing.assert_allclose(
            to_pixels(cells, size, 8, centred), np.ones((2, *size)), atol=1e-6
        )


def test_stretch() -> None:
    maps = np.array([[[1.0, 3.0], [2.0, 1.0]], [[5.0, 5.0], [5.0, 5.0]]])
    assert stretch(maps).tolist() == [[[0, 1], [0.5, 0]], [[0, 0], [0, 0]]]
