"""Regions that people drew in other tools, as pixels.

Every reader of corrections yields a ``Drawn`` for each photo. A pixel belongs to a region if its
centre does; the pixel in row r and column c has its centre at x = c + 0.5, y = r + 0.5.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from pycocotools import mask as coco_mask

from tagmask.data.coco import MAX_SIDE
from tagmask.exchange.items import Region

MAX_PIXELS = 1 << 28  # of a photo
BACKGROUND = "\0background"  # in place of a class, which has no such name
NOT_TOUCHED = "\0"  # likewise: the label of the program stays


@dataclass(frozen=True)
class Drawn:
    """What a file says about one photo."""

    file: str  # path of the photo as the tool knows it
    regions: list[tuple[str, Region]]  # class and pixels, those on top last
    left_out: Counter[str] = field(default_factory=Counter)  # kinds of regions that are not read
    refused: str = ""  # why the photo cannot be used


def checked_shape(height: Any, width: Any) -> tuple[int, int]:
    """Return the size of a photo.

    Args:
        height: as a file has it, whatever it is.
        width: likewise.

    Raises:
        ValueError: if these are no whole numbers that a photo can have.
    """
    numbers = type(height) is int and type(width) is int
    if not numbers or not (0 < height <= MAX_SIDE and 0 < width <= MAX_SIDE):
        raise ValueError(f"the size {width}×{height} is not within 1 to {MAX_SIDE}")
    if height * width > MAX_PIXELS:
        raise ValueError(f"the size {width}×{height} is too large")
    return height, width


def polygon(points: npt.NDArray[np.float64], shape: tuple[int, int]) -> Region:
    """Return the pixels in a polygon.

    Args:
        points: the corners (n, 2), x and y.
        shape: (H, W) of the photo.

    Raises:
        ValueError: if there are fewer than three corners, or one is far away.
    """
    if points.ndim != 2 or points.shape[1] != 2 or len(points) < 3:
        raise ValueError("a polygon needs three corners near the image")
    if not (np.abs(points) <= 10 * MAX_SIDE).all():
        raise ValueError("a polygon needs three corners near the image")
    runs = coco_mask.frPyObjects([points.ravel().tolist()], *shape)
    inside: Region = np.asarray(coco_mask.decode(runs))[..., 0] > 0
    return inside


def rectangle(
    corner: Iterable[float], size: Iterable[float], angle: float, shape: tuple[int, int]
) -> Region:
    """Return the pixels in a rectangle that is turned about its first corner.

    Args:
        corner: x and y of the upper left corner.
        size: width and height, not negative.
        angle: in degrees, clockwise.
        shape: (H, W) of the photo.

    Raises:
        ValueError: if a side is negative or far too long: nothing, or everything, would be marked.
    """
    across, along = _turned(corner, angle, shape)
    width, height = size
    if not (0 <= width <= 10 * MAX_SIDE and 0 <= height <= 10 * MAX_SIDE):
        raise ValueError("a rectangle needs sides that are not negative, near the image")
    return (across >= 0) & (across < width) & (along >= 0) & (along < height)


def ellipse(
    centre: Iterable[float], radii: Iterable[float], angle: float, shape: tuple[int, int]
) -> Region:
    """Return the pixels in an ellipse that is turned about its centre.

    Args:
        centre: x and y.
        radii: half its width and half its height, above 0.
        angle: in degrees, clockwise.
        shape: (H, W) of the photo.

    Raises:
        ValueError: if a radius is not above 0, or far too long.
    """
    across, along = _turned(centre, angle, shape)
    width, height = radii
    if not (0 < width <= 10 * MAX_SIDE and 0 < height <= 10 * MAX_SIDE):
        raise ValueError("an ellipse needs radii above 0, near the image")
    inside: Region = (across / width) ** 2 + (along / height) ** 2 <= 1
    return inside


def _turned(
    origin: Iterable[float], angle: float, shape: tuple[int, int]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the centres of all pixels in a system of axes that is turned clockwise.

    Returns:
        The coordinates along its first and its second axis, both (H, W).
    """
    left, top = origin
    if not np.isfinite([left, top, angle]).all():
        raise ValueError("a region has coordinates that are no numbers")
    x = np.arange(shape[1]) + 0.5 - left  # (W,)
    y = (np.arange(shape[0]) + 0.5 - top)[:, None]  # (H, 1)
    cosine = np.cos(np.radians(angle))
    sine = np.sin(np.radians(angle))
    return x * cosine + y * sine, y * cosine - x * sine
