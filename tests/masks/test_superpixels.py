"""Superpixels: they follow edges that are sharp, and cover the image."""

import numpy as np

from tagmask.masks.superpixels import superpixels


def test_pieces_do_not_cross_a_sharp_edge() -> None:
    image = np.zeros((61, 90, 3), np.uint8)
    image[:, 37:] = (250, 40, 40)
    pieces = superpixels(image, count=60)
    assert pieces.shape == (61, 90)
    assert not set(np.unique(pieces[:, :37])) & set(np.unique(pieces[:, 37:]))
    assert 40 <= len(np.unique(pieces)) <= 80


def test_without_edges_pieces_are_the_cells_of_a_grid() -> None:
    """The independent answer: of a constant image the nearest centres are those of equal squares."""
    pieces = superpixels(np.full((60, 60, 3), 128, np.uint8), count=9)
    expected = np.arange(60)[:, None] // 20 * 3 + np.arange(60) // 20
    assert (pieces == expected).mean() > 0.99


def test_large_and_tiny_images() -> None:
    assert superpixels(np.zeros((1, 1, 3), np.uint8)).tolist() == [[0]]
    large = superpixels(np.random.default_rng(0).integers(0, 255, (700, 1000, 3), dtype=np.uint8))
    assert large.shape == (700, 1000)
    assert (large[0, :3] == large[0, 0]).all()  # found at a third of the size, and enlarged
