"""Between pixels and the cells of a network's grid, both ways, without a shift.

A cell is named by the pixel its centre lies on: cell i of a convolution network at stride s lies on pixel s·i
(``centred`` false), a patch i of a vision transformer in the middle of its pixels (``centred`` true).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Maps = npt.NDArray[np.floating[Any]]


def to_cells(maps: Maps, stride: int, centred: bool = False) -> Maps:
    """Maps (k, H, W) to (k, ⌈H/stride⌉, ⌈W/stride⌉): the mean of the pixels nearest to each cell."""
    rows, columns = (_means(size, stride, centred) for size in maps.shape[1:])
    return rows @ maps @ columns.T


def to_pixels(maps: Maps, size: tuple[int, int], stride: int, centred: bool = False) -> Maps:
    """Maps (k, h, w) on cells to (k, H, W) by linear interpolation, constant beyond the outermost cells."""
    rows, columns = (
        _lines(pixels, cells, stride, centred)
        for pixels, cells in zip(size, maps.shape[1:], strict=True)
    )
    return rows @ maps @ columns.T


def stretch(maps: Maps) -> Maps:
    """Each map (k, H, W) from 0 to 1; a constant map becomes zero."""
    low, high = maps.min((-2, -1), keepdims=True), maps.max((-2, -1), keepdims=True)
    stretched: Maps = (maps - low) / np.maximum(high - low, np.finfo(maps.dtype).tiny)
    return stretched


def _means(pixels: int, stride: int, centred: bool) -> npt.NDArray[np.float32]:
    """(cells, pixels): averages each pixel into the nearest cell; a pixel between two goes to the later one."""
    cells = -(-pixels // stride)
    offset = 0 if centred else stride // 2
    nearest = np.minimum((np.arange(pixels) + offset) // stride, cells - 1)  # (pixels,)
    belongs = (np.arange(cells)[:, None] == nearest).astype(np.float32)
    shares: npt.NDArray[np.float32] = belongs / belongs.sum(axis=1, keepdims=True)
    return shares


def _lines(pixels: int, cells: int, stride: int, centred: bool) -> npt.NDArray[np.float32]:
    """(pixels, cells): linear interpolation between the centres of the cells."""
    centres = stride * np.arange(cells, dtype=np.float64) + (
        (stride - 1) / 2 if centred else 0
    )  # in pixels
    weights = [np.interp(np.arange(pixels), centres, unit) for unit in np.eye(cells)]
    return np.stack(weights, axis=1).astype(np.float32)
