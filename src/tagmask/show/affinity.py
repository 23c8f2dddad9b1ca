"""The affinity between patches as pictures: what chosen pixels attend to, and the whole matrix.

An affinity is (n, n), n = h·w patches row by row; row = the patch that attends, column = the one attended to.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from tagmask.errors import TagmaskError
from tagmask.show.overlay import check_map, heat_colours, heat_overlay
from tagmask.show.seeds import Maps, resize_map
from tagmask.show.sheet import Picture, check_picture, resize, sheet, shown_size

Affinity = npt.NDArray[np.floating[Any]]  # (n, n), not negative
Point = tuple[int, int]  # (x, y) in pixels of the image

RED = (235, 0, 30)
PER_ROW = 5
TOP = 0.98  # quantile with the brightest colour: a patch's affinity to itself may be far above the rest
MIN_RANGE = 8.0  # ratio of the largest to the smallest value shown, so that noise does not look like structure


def affinity_of_pixels(
    image: Picture, affinity: Affinity, grid: tuple[int, int], points: Sequence[Point]
) -> Picture:
    """A sheet: the image with a red cross at each source pixel, then per pixel the heat map of its affinity row.

    image: (H, W, 3). affinity: (n, n), without the class token. grid: (h, w) with h·w = n, spread over the whole image.
    points: (x, y) in pixels. Each row has its own scale: from its smallest value to its 98 % quantile.
    """
    _check_points(points, *check_picture(image).shape[:2])
    rows = [
        (f"from ({x}, {y})", affinity_of_pixel(image, affinity, grid, (x, y))) for x, y in points
    ]
    cells = [("image", marked(image, points)), *rows]
    return sheet([cells[start : start + PER_ROW] for start in range(0, len(cells), PER_ROW)])


def affinity_of_pixel(
    image: Picture, affinity: Affinity, grid: tuple[int, int], point: Point
) -> Picture:
    """The heat map of one pixel's affinity row over the image as it is shown, the pixel crossed; on its own scale."""
    height, width = check_picture(image).shape[:2]
    _check_points([point], height, width)
    row = check_affinity(affinity, grid)[patch_at(*point, grid, (height, width))].reshape(
        grid
    )  # (h, w)
    size = shown_size(height, width)
    heat = heat_overlay(resize(image, size), resize_map(_row_scaled(row), size))
    return marked(image, [point], heat)


def marked(image: Picture, points: Sequence[Point], shown: Picture | None = None) -> Picture:
    """The image as it is shown (or ``shown`` in its place), with a red cross at each of its pixels ``points``."""
    height, width, _ = image.shape
    picture = resize(image, shown_size(height, width)) if shown is None else shown
    tall, wide, _ = picture.shape
    for x, y in points:  # the cross is at the pixel's middle
        picture = draw_cross(
            picture, (x + 0.5) * wide / width - 0.5, (y + 0.5) * tall / height - 0.5
        )
    return picture


def affinity_matrix(affinity: Affinity, side: int = 256) -> Picture:
    """The matrix as a picture (side, side, 3): row by row what each patch attends to, in logarithmic heat colours.

    Averaged over areas to `side`, then coloured from the 1 % to the 99.5 % quantile, or over a factor of 8 if they are
    closer. Bright columns: every patch attends to the same few. Bands beside the diagonal: to its neighbours. Even
    colour: to all alike.
    """
    values = check_affinity(affinity)
    if not 8 <= side <= 4096:
        raise TagmaskError(
            f"a matrix picture of {side} pixels cannot be drawn; give a side of 8 … 4096."
        )
    shown = area_average(values, side)  # (side, side)
    largest = float(shown.max())
    if largest == 0:
        return heat_colours(np.zeros_like(shown))
    exponents = np.log(np.maximum(shown, largest * 1e-6))
    low, high = np.quantile(exponents, [0.01, 0.995])
    missing = max(0.0, np.log(MIN_RANGE) - (high - low))
    low, high = low - missing / 2, high + missing / 2
    return heat_colours(np.clip((exponents - low) / (high - low), 0, 1))


def area_average(matrix: Affinity, side: int) -> npt.NDArray[np.float64]:
    """(n, n) -> (side, side): the mean over each of side × side equal areas, cutting entries where needed."""
    n = len(matrix)
    borders = np.arange(side + 1) * (n / side)  # (side + 1,) in entries
    start, end = borders[:-1, None], borders[1:, None]
    entries = np.arange(n)
    overlap = np.clip(
        np.minimum(end, entries + 1) - np.maximum(start, entries), 0, None
    )  # (side, n)
    weights = overlap / overlap.sum(axis=1, keepdims=True)
    mean: npt.NDArray[np.float64] = weights @ matrix.astype(np.float64) @ weights.T
    return mean


def default_points(maps: Maps) -> list[Point]:
    """One (x, y) in the strongest region of each class, then one in the background, far from classes and borders.

    maps: (k, H, W) in [0, 1]. Of the pixels with at least 0.7 of a map's maximum, the one with the strongest
    neighbourhood is chosen, so that neither a single bright pixel nor the picture's border attracts it.
    """
    values = check_map(maps, "maps")
    if values.ndim != 3 or 0 in values.shape[1:]:
        raise TagmaskError(f"the maps have shape {values.shape}; give (k, H, W), no side empty.")
    reach = max(1, min(values.shape[1:]) // 12)
    points = []
    for map in values:
        around = ndimage.uniform_filter(map, 2 * reach + 1, mode="constant")  # (H, W), 0 outside
        points.append(_position(np.where(map >= 0.7 * map.max(), around, -1.0)))
    occupied = values.max(axis=0, initial=0.0)  # (H, W)
    sides = [2 * reach * step + 1 for step in (1, 2, 4)]
    near = sum(
        ndimage.uniform_filter(occupied, side, mode="constant", cval=1) for side in sides
    )  # 1 outside
    return [*points, _position(-np.asarray(near))]


def draw_cross(image: Picture, x: float, y: float) -> Picture:
    """A copy with a red × edged in white whose middle is the pixel nearest to (x, y)."""
    rows, columns = np.indices(image.shape[:2])
    right, down = (
        np.abs(columns - np.floor(x + 0.5)),
        np.abs(rows - np.floor(y + 0.5)),
    )  # (H, W) from the middle
    reach, off = np.maximum(right, down), np.abs(right - down)  # off: from the nearer diagonal
    arm = max(2, round(min(image.shape[:2]) / 30))
    thick = arm // 4
    picture = image.copy()
    picture[(reach <= arm + 1) & (off <= thick + 2)] = 255
    picture[(reach <= arm) & (off <= thick)] = RED
    return picture


def patch_at(x: int, y: int, grid: tuple[int, int], size: tuple[int, int]) -> int:
    """The number of the patch that covers pixel (x, y) of an image of size (H, W)."""
    return int(y * grid[0] // size[0]) * grid[1] + int(x * grid[1] // size[1])


def check_affinity(
    affinity: npt.NDArray[Any], grid: tuple[int, int] | None = None
) -> npt.NDArray[np.float64]:
    """The affinity as float64, if it is square, not negative and fits the grid."""
    array: npt.NDArray[Any] = np.asarray(affinity)
    n = len(array) if array.ndim else 0
    if array.shape != (n, n) or n == 0 or not np.issubdtype(array.dtype, np.floating):
        raise TagmaskError(
            f"the affinity has shape {array.shape} and dtype {array.dtype}; give floats (n, n)."
        )
    if grid is not None and (grid[0] * grid[1] != n or min(grid) < 1):
        tokens = grid[0] * grid[1] + 1
        remedy = (
            "drop the class token, affinity[1:, 1:]"
            if n == tokens
            else "give the grid of the same image"
        )
        raise TagmaskError(
            f"the affinity is of {n} patches and the grid {grid} has {tokens - 1}; {remedy}."
        )
    if not (array.min() >= 0 and np.isfinite(array.max())):
        raise TagmaskError(
            f"the affinity runs from {array.min():g} to {array.max():g}; give finite values from 0 up."
        )
    return array.astype(np.float64)


def _check_points(points: Sequence[Point], height: int, width: int) -> None:
    if len(points) == 0:
        raise TagmaskError(
            "there is no source pixel; give at least one (x, y), e.g. from default_points(maps)."
        )
    for x, y in points:
        if not (0 <= x < width and 0 <= y < height):
            raise TagmaskError(
                f"the point ({x}, {y}) lies outside the image of {width} × {height} pixels (width × height); "
                f"give x in 0 … {width - 1} and y in 0 … {height - 1}."
            )


def _row_scaled(row: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """To [0, 1], from the smallest value to the TOP quantile (to the largest if they are equal)."""
    low, top = row.min(), np.quantile(row, TOP, method="lower")
    top = top if top > low else row.max()
    return np.clip((row - low) / (top - low), 0, 1) if top > low else np.zeros_like(row)


def _position(score: npt.NDArray[np.float64]) -> Point:
    """(x, y) of the highest score; of nearly equal ones, the nearest to their middle."""
    y, x = np.nonzero(score >= score.max() - 1e-9)
    nearest = np.argmin((y - y.mean()) ** 2 + (x - x.mean()) ** 2)
    return int(x[nearest]), int(y[nearest])
