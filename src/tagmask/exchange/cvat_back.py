"""CVAT's "CVAT for images 1.1": the regions that people drew, the higher z-order on top.

Masks, polygons, boxes and ellipses are read; lines, points, skeletons and cuboids are counted as
left out.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np

from tagmask.data.tools import cvat_images
from tagmask.exchange.drawn import Drawn, checked_shape, ellipse, polygon, rectangle
from tagmask.exchange.items import Region

Shape = tuple[int, int]  # (H, W)
_NO_REGIONS = ("tag",)


def drawn_in_cvat(source: Path) -> Iterator[Drawn]:
    """Yield what was drawn on each image of a file.

    Args:
        source: the XML file, or the zip that CVAT exports.

    Raises:
        TagmaskError: the file cannot be read.
        ValueError: a region cannot be drawn.
    """
    for image in cvat_images(source):
        file = image.get("name")
        if file:
            yield _drawn(file, image)


def _drawn(file: str, image: Element) -> Drawn:
    """Return the regions of an image."""
    shape = checked_shape(int(image.get("height", "0")), int(image.get("width", "0")))
    left_out: Counter[str] = Counter()
    regions = []
    for entry in sorted(image, key=lambda entry: int(entry.get("z_order", "0"))):
        read = _READERS.get(entry.tag)
        if read is not None:
            regions.append((entry.get("label", ""), read(entry, shape)))
        elif entry.tag not in _NO_REGIONS:
            left_out[f'"{entry.tag}"'] += 1
    return Drawn(file, regions, left_out)


def _polygon(entry: Element, shape: Shape) -> Region:
    pairs = [point.split(",") for point in entry.get("points", "").split(";")]
    return polygon(np.array(pairs, float), shape)


def _box(entry: Element, shape: Shape) -> Region:
    """Return the pixels of a box, which CVAT turns about its centre."""
    left, top, right, bottom = (
        float(entry.get(key, "nan")) for key in ("xtl", "ytl", "xbr", "ybr")
    )
    angle = float(entry.get("rotation", "0"))
    half = np.array([right - left, bottom - top]) / 2
    centre = np.array([left + right, top + bottom]) / 2
    cosine = np.cos(np.radians(angle))
    sine = np.sin(np.radians(angle))
    # where the upper left corner is after the turn
    offset = np.array([half[0] * cosine - half[1] * sine, half[0] * sine + half[1] * cosine])
    return rectangle((centre - offset).tolist(), (2 * half).tolist(), angle, shape)


def _ellipse(entry: Element, shape: Shape) -> Region:
    x, y, across, along = (float(entry.get(key, "nan")) for key in ("cx", "cy", "rx", "ry"))
    return ellipse((x, y), (across, along), float(entry.get("rotation", "0")), shape)


def _mask(entry: Element, shape: Shape) -> Region:
    """Return the pixels of a mask: run lengths in a box, the first run outside."""
    left, top, width, height = (
        int(entry.get(key, "-1")) for key in ("left", "top", "width", "height")
    )
    runs = [int(run) for run in entry.get("rle", "").split(",")]
    fits = min(left, top, width, height) >= 0
    fits = fits and left + width <= shape[1] and top + height <= shape[0]
    # added as Python's whole numbers, which do not overflow
    if not fits or min(runs) < 0 or sum(runs) != width * height:
        raise ValueError("the run lengths of a mask do not fit its box, or the box the image")
    is_inside = np.arange(len(runs)) % 2 == 1  # (runs,)
    box = np.repeat(is_inside, runs).reshape(height, width)
    region = np.zeros(shape, bool)
    region[top : top + height, left : left + width] = box
    return region


_READERS: dict[str, Callable[[Element, Shape], Region]] = {
    "mask": _mask,
    "polygon": _polygon,
    "box": _box,
    "ellipse": _ellipse,
}
