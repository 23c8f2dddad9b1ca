"""The affinity between patches as pictures: what chosen pixels attend to, and the whole matrix.

An affinity is (n, n), n = h·w patches row by row; row = the patch that attends, column = the one
attended to.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from tagmask.errors import TagmaskError
from tagmask.scoring.sweep import StoredMaps
from tagmask.show.overlay import check_map, heat_colours, heat_overlay
from tagmask.show.seeds import resize_map
from tagmask.show.sheet import Picture, check_picture, in_rows, resize, sheet, shown_size

Affinity = npt.NDArray[np.floating[Any]]  # (n, n), not negative
Point = tuple[int, int]  # (x, y) in pixels of the image
Grid = tuple[int, int]  # (h, w), patches along the sides of the image
_Floats = npt.NDArray[np.float64]

RED = (235, 0, 30)
PER_ROW = 5

# quantile with the brightest colour: a patch's affinity to itself may be far above the rest
TOP = 0.98

# ratio of the largest to the smallest value shown, so that noise does not look like structure
MIN_RANGE = 8.0


def affinity_of_pixels(
    image: Picture,
    affinity: Affinity,
    grid: Grid,
    points: Sequence[Point],
) -> Picture:
    """Draw a sheet: the image with a cross at each pixel, then the heat map of its affinity row.

    Each row of the affinity has its own scale: from its smallest value to its 98 % quantile.

    Args:
        image: uint8 (H, W, 3).
        affinity: (n, n), without the class token.
        grid: (h, w) with h·w = n, spread over the whole image.
        points: at least one (x, y) in pixels of the image.

    Returns:
        The sheet, uint8 (H', W', 3).

    Raises:
        TagmaskError: an argument has another form, or a point lies outside the image.
    """
    height, width, _ = check_picture(image).shape
    _check_points(points, height, width)
    cells = [("image", marked(image, points))]
    for x, y in points:
        heat = affinity_of_pixel(image, affinity, grid, (x, y))
        cells.append((f"from ({x}, {y})", heat))
    return sheet(in_rows(cells, PER_ROW))


def affinity_of_pixel(
    image: Picture,
    affinity: Affinity,
    grid: Grid,
    point: Point,
) -> Picture:
    """Draw the heat map of one pixel's affinity row over the image, and a cross at the pixel.

    The row has its own scale: from its smallest value to its 98 % quantile.

    Args:
        image: uint8 (H, W, 3).
        affinity: (n, n), without the class token.
        grid: (h, w) with h·w = n, spread over the whole image.
        point: (x, y) in pixels of the image.

    Returns:
        The picture, uint8, at the size at which the image is shown.

    Raises:
        TagmaskError: an argument has another form, or the point lies outside the image.
    """
    height, width, _ = check_picture(image).shape
    _check_points([point], height, width)
    x, y = point
    values = check_affinity(affinity, grid)  # (n, n)
    index = patch_at(x, y, grid, (height, width))
    row = values[index].reshape(grid)  # (h, w)
    size = shown_size(height, width)
    row_map = resize_map(_scale_row(row), size)
    heat = heat_overlay(resize(image, size), row_map)
    return marked(image, [point], heat)


def marked(
    image: Picture,
    points: Sequence[Point],
    shown: Picture | None = None,
) -> Picture:
    """Draw a red cross at pixels of an image.

    Args:
        image: uint8 (H, W, 3).
        points: (x, y) in pixels of ``image``.
        shown: a picture of the image at any size, to be drawn on. By default the image at the size
            at which it is shown.

    Returns:
        The picture with the crosses, uint8, of the size of ``shown``.
    """
    height, width, _ = image.shape
    picture = shown
    if picture is None:
        picture = resize(image, shown_size(height, width))
    shown_height, shown_width, _ = picture.shape
    for x, y in points:
        # the cross is at the pixel's middle
        shown_x = (x + 0.5) * shown_width / width - 0.5
        shown_y = (y + 0.5) * shown_height / height - 0.5
        picture = draw_cross(picture, shown_x, shown_y)
    return picture


def affinity_matrix(affinity: Affinity, side: int = 256) -> Picture:
    """Draw the matrix: row by row what each patch attends to, in logarithmic heat colours.

    It is averaged over areas, then coloured from the 1 % to the 99.5 % quantile, or over a factor
    of 8 if they are closer. Bright columns: every patch attends to the same few. Bands beside the
    diagonal: to its neighbours. Even colour: to all alike.

    Args:
        affinity: (n, n).
        side: height and width of the picture, 8 … 4096 pixels.

    Returns:
        The picture, uint8 (side, side, 3).

    Raises:
        TagmaskError: an argument has another form or range.
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
    shown_range = high - low
    missing = max(0.0, np.log(MIN_RANGE) - shown_range)
    low -= missing / 2
    high += missing / 2
    scaled = (exponents - low) / (high - low)
    return heat_colours(np.clip(scaled, 0, 1))


def area_average(matrix: Affinity, side: int) -> _Floats:
    """Average a matrix over side × side equal areas, cutting entries where needed.

    Args:
        matrix: (n, n).
        side: areas along each side.

    Returns:
        The means, (side, side).
    """
    n = len(matrix)
    borders = np.arange(side + 1) * (n / side)  # (side + 1,) in entries
    start = borders[:-1, None]
    end = borders[1:, None]
    entries = np.arange(n)
    first = np.maximum(start, entries)  # (side, n)
    last = np.minimum(end, entries + 1)  # (side, n)
    overlap = np.clip(last - first, 0, None)
    weights = overlap / overlap.sum(axis=1, keepdims=True)
    mean: _Floats = weights @ matrix.astype(np.float64) @ weights.T
    return mean


def default_points(maps: StoredMaps) -> list[Point]:
    """Choose a point in the strongest region of each class, then one in the background.

    maps: (k, H, W) in [0, 1]. Of the pixels with at least 0.7 of a map's maximum, the one with the
    strongest neighbourhood is chosen, so that neither a single bright pixel nor the picture's
    border attracts it. The point in the background is far from classes and borders.
    """
    values = check_map(maps, "maps")
    if values.ndim != 3 or 0 in values.shape[1:]:
        raise TagmaskError(f"the maps have shape {values.shape}; give (k, H, W), no side empty.")
    reach = max(1, min(values.shape[1:]) // 12)
    points = []
    for map in values:
        around = ndimage.uniform_filter(map, 2 * reach + 1, mode="constant")  # (H, W), 0 outside
        is_strong = map >= 0.7 * map.max()
        points.append(_best_point(np.where(is_strong, around, -1.0)))
    occupied = values.max(axis=0, initial=0.0)  # (H, W)
    nearness = np.zeros_like(occupied)
    for step in (1, 2, 4):
        side = 2 * reach * step + 1
        nearness += ndimage.uniform_filter(occupied, side, mode="constant", cval=1)  # 1 outside
    points.append(_best_point(-nearness))
    return points


def draw_cross(image: Picture, x: float, y: float) -> Picture:
    """Return a copy with a red × edged in white.

    Args:
        image: uint8 (H, W, 3).
        x: column of the middle, in pixels; the nearest pixel is taken.
        y: row of the middle, in pixels.
    """
    height, width, _ = image.shape
    rows, columns = np.indices((height, width))
    # distances from the middle, and from the nearer diagonal, all (H, W)
    right = np.abs(columns - np.floor(x + 0.5))
    down = np.abs(rows - np.floor(y + 0.5))
    reach = np.maximum(right, down)
    off = np.abs(right - down)
    arm = max(2, round(min(height, width) / 30))
    thick = arm // 4
    picture = image.copy()
    is_edge = (reach <= arm + 1) & (off <= thick + 2)
    is_cross = (reach <= arm) & (off <= thick)
    picture[is_edge] = 255
    picture[is_cross] = RED
    return picture


def patch_at(x: int, y: int, grid: Grid, size: tuple[int, int]) -> int:
    """Return the number of the patch that covers a pixel.

    Args:
        x: column of the pixel.
        y: row of the pixel.
        grid: (h, w), patches along the image's sides.
        size: (H, W) of the image.
    """
    grid_height, grid_width = grid
    height, width = size
    row = int(y * grid_height // height)
    column = int(x * grid_width // width)
    return row * grid_width + column


def check_affinity(affinity: npt.NDArray[Any], grid: Grid | None = None) -> _Floats:
    """Return the affinity as float64, if it is square, not negative and fits the grid.

    Args:
        affinity: floats (n, n).
        grid: (h, w) with h·w = n; by default not compared.

    Raises:
        TagmaskError: it is something else.
    """
    array: npt.NDArray[Any] = np.asarray(affinity)
    n = len(array) if array.ndim else 0
    is_square = n > 0 and array.shape == (n, n)
    if not is_square or not np.issubdtype(array.dtype, np.floating):
        raise TagmaskError(
            f"the affinity has shape {array.shape} and dtype {array.dtype}; give floats (n, n)."
        )
    if grid is not None:
        _check_grid(grid, n)
    low = array.min()
    high = array.max()
    if not (low >= 0 and np.isfinite(high)):
        raise TagmaskError(
            f"the affinity runs from {low:g} to {high:g}; give finite values from 0 up."
        )
    return array.astype(np.float64)


def _check_grid(grid: Grid, n: int) -> None:
    """Refuse a grid that has not n patches."""
    patches = grid[0] * grid[1]
    if patches == n and min(grid) >= 1:
        return
    if n == patches + 1:
        remedy = "drop the class token, affinity[1:, 1:]"
    else:
        remedy = "give the grid of the same image"
    raise TagmaskError(
        f"the affinity is of {n} patches and the grid {grid} has {patches}; {remedy}."
    )


def _check_points(points: Sequence[Point], height: int, width: int) -> None:
    """Refuse points outside an image of this size, and no points at all."""
    if len(points) == 0:
        raise TagmaskError(
            "there is no source pixel; give at least one (x, y), e.g. from default_points(maps)."
        )
    for x, y in points:
        if not (0 <= x < width and 0 <= y < height):
            raise TagmaskError(
                f"the point ({x}, {y}) lies outside the image of {width} × {height} pixels "
                f"(width × height); give x in 0 … {width - 1} and y in 0 … {height - 1}."
            )


def _scale_row(row: _Floats) -> _Floats:
    """Scale to [0, 1], from the smallest value to the TOP quantile, or the largest if equal."""
    low = row.min()
    top = np.quantile(row, TOP, method="lower")
    if top <= low:
        top = row.max()
    if top <= low:
        return np.zeros_like(row)
    scaled: _Floats = np.clip((row - low) / (top - low), 0, 1)
    return scaled


def _best_point(score: _Floats) -> Point:
    """Return (x, y) of the highest score; of nearly equal ones, the nearest to their middle."""
    y, x = np.nonzero(score >= score.max() - 1e-9)
    distances = (y - y.mean()) ** 2 + (x - x.mean()) ** 2
    nearest = np.argmin(distances)
    return int(x[nearest]), int(y[nearest])
