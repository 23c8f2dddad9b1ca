"""Between pixels and the cells of a network's grid, both ways, without a shift.

A cell is named by the pixel its centre lies on: cell i of a convolution network at stride s lies on
pixel s·i (``centred`` false), a patch i of a vision transformer in the middle of its pixels
(``centred`` true).
"""

import numpy as np
import numpy.typing as npt

from tagmask.labels import MapArray


def to_cells(maps: MapArray, stride: int, centred: bool = False) -> MapArray:
    """Average the pixels nearest to each cell.

    Args:
        maps: (k, H, W).
        stride: Pixels per cell.
        centred: Cells lie in the middle of their pixels, as patches do, not on pixel stride·i.

    Returns:
        (k, ⌈H/stride⌉, ⌈W/stride⌉).
    """
    rows, columns = (_means(size, stride, centred) for size in maps.shape[1:])
    return rows @ maps @ columns.T


def to_pixels(
    maps: MapArray, size: tuple[int, int], stride: int, centred: bool = False
) -> MapArray:
    """Interpolate maps on cells linearly, constant beyond the outermost cells.

    Args:
        maps: (k, h, w) on cells.
        size: Height and width in pixels.
        stride: Pixels per cell.
        centred: Cells lie in the middle of their pixels, as patches do, not on pixel stride·i.

    Returns:
        (k, H, W).
    """
    rows, columns = (
        _lines(pixels, cells, stride, centred)
        for pixels, cells in zip(size, maps.shape[1:], strict=True)
    )
    return rows @ maps @ columns.T


def stretch(maps: MapArray) -> MapArray:
    """Stretch each map (k, H, W) from 0 to 1; a constant map becomes zero."""
    low = maps.min((-2, -1), keepdims=True)
    high = maps.max((-2, -1), keepdims=True)
    width = np.maximum(high - low, np.finfo(maps.dtype).tiny)
    stretched: MapArray = (maps - low) / width
    return stretched


def _means(pixels: int, stride: int, centred: bool) -> npt.NDArray[np.float32]:
    """Return (cells, pixels) that averages each pixel into the nearest cell.

    A pixel between two goes to the later one.
    """
    cells = -(-pixels // stride)
    offset = 0 if centred else stride // 2
    nearest = np.minimum((np.arange(pixels) + offset) // stride, cells - 1)  # (pixels,)
    belongs = (np.arange(cells)[:, None] == nearest).astype(np.float32)
    shares: npt.NDArray[np.float32] = belongs / belongs.sum(axis=1, keepdims=True)
    return shares


def _lines(pixels: int, cells: int, stride: int, centred: bool) -> npt.NDArray[np.float32]:
    """Return (pixels, cells), the linear interpolation between the centres of the cells."""
    centres = stride * np.arange(cells, dtype=np.float64) + (
        (stride - 1) / 2 if centred else 0
    )  # in pixels
    weights = [np.interp(np.arange(pixels), centres, unit) for unit in np.eye(cells)]
    return np.stack(weights, axis=1).astype(np.float32)
