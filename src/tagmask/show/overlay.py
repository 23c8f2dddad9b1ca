"""Maps and masks laid over their image, and the legend that names the colours."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw
from scipy import ndimage

from tagmask.errors import TagmaskError
from tagmask.labels import UNSURE, Mask, voc_palette
from tagmask.show.sheet import (
    INK,
    MARGIN,
    PAPER,
    WHITE,
    Picture,
    check_picture,
    font_for,
    shorten,
)

Map = npt.NDArray[np.floating[Any]] | npt.NDArray[np.uint8]  # (H, W) in [0, 1]; uint8 v means v/255

# weights of red, green and blue in brightness (ITU-R BT.601)
GREY = np.array([0.299, 0.587, 0.114])
HATCH = 6  # pixels from one stripe of the unsure area to the next
TEXT = 14  # pixels of the names in a legend
_INDENT = round(1.5 * TEXT)  # from a swatch to its name, and from a name to the next swatch
_LINE_HEIGHT = round(1.7 * TEXT)

# From night blue over magenta and orange to pale yellow in even steps of lightness (CIE L* 4, 15.4
# … 95): it reads the same in greyscale and to readers who cannot tell red from green.
_HEAT = "090b28 34115f 6c1574 a3246d d04158 ef6a3e fa9b29 fcca3f fbf4a2"
_STOPS = [list(bytes.fromhex(colour)) for colour in _HEAT.split()]
HEAT = np.array(_STOPS, np.float64)  # (9, 3)


def heat_colours(values: Map) -> Picture:
    """Return the colour of each value in [0, 1]: (H, W) -> (H, W, 3).

    Colours lie on straight lines between the nine stops of HEAT.
    """
    position = check_map(values) * (len(HEAT) - 1)  # (H, W)
    stops = np.arange(len(HEAT))
    channels = [np.interp(position, stops, HEAT[:, channel]) for channel in range(3)]
    return _to_uint8(np.stack(channels, axis=-1))


def heat_overlay(image: Picture, map: Map, strength: float = 0.55) -> Picture:
    """Lay the heat colours of a map over its image in grey.

    Args:
        image: uint8 (H, W, 3).
        map: (H, W) in [0, 1], or uint8 for 0 … 255.
        strength: share of the heat colours, 0 (only the image) … 1 (only the colours).

    Returns:
        The picture, uint8 (H, W, 3).

    Raises:
        TagmaskError: an argument has another form, size or range.
    """
    picture = check_picture(image)
    check_strength(strength)
    check_same_size(picture, map, "map")
    # the image is grey because a coloured object would tint the scale
    grey = (picture @ GREY)[..., None]  # (H, W, 1)
    heat = heat_colours(map)  # (H, W, 3)
    return _to_uint8((1 - strength) * grey + strength * heat)


def label_map(mask: Mask) -> Picture:
    """Return the colours of a mask alone: (H, W) -> (H, W, 3).

    They are those of PASCAL VOC; 255 is hatched in two greys.
    """
    labels = check_mask(mask)
    colours = voc_palette()[labels]  # (H, W, 3)
    y, x = np.indices(labels.shape)
    is_light = (x + y) % HATCH < HATCH // 2
    stripes = np.where(is_light, 215, 105).astype(np.uint8)  # (H, W)
    unsure = labels == UNSURE
    colours[unsure] = stripes[unsure, None]
    return colours


def mask_overlay(image: Picture, mask: Mask, strength: float = 0.5) -> Picture:
    """Lay class colours over an image, which shows through; the background is left as it is.

    A region's outermost pixels are white (one pixel wide, wider on pictures of 600 pixels and
    more); 255 is hatched and has no outline.

    Args:
        image: uint8 (H, W, 3).
        mask: uint8 labels (H, W).
        strength: share of the class colours, 0 (only the image) … 1 (only the colours).

    Returns:
        The picture, uint8 (H, W, 3).

    Raises:
        TagmaskError: an argument has another form, size or range.
    """
    picture = check_picture(image)
    check_strength(strength)
    check_same_size(picture, mask, "mask")
    colours = label_map(mask)  # (H, W, 3)
    opacity = np.where(mask > 0, strength, 0.0)  # (H, W)
    width = max(1, round(max(mask.shape) / 400))
    edge = outline(mask, width)
    colours[edge] = WHITE
    opacity[edge] = 1
    share = opacity[..., None]  # (H, W, 1)
    return _to_uint8((1 - share) * picture + share * colours)


def outline(mask: Mask, width: int = 1) -> npt.NDArray[np.bool_]:
    """Find class pixels near another label; the picture's border is no edge.

    Args:
        mask: uint8 labels (H, W).
        width: pixels, along rows and columns, within which the other label lies.

    Returns:
        True on the outlines, (H, W).
    """
    edge = np.zeros(mask.shape, np.bool_)
    size = 2 * width + 1
    for axis in (0, 1):
        highest = ndimage.maximum_filter1d(mask, size, axis, mode="nearest")
        lowest = ndimage.minimum_filter1d(mask, size, axis, mode="nearest")
        edge |= highest != lowest
    edge &= (mask != 0) & (mask != UNSURE)
    return edge


def legend(names: Mapping[int, str], width: int) -> Picture:
    """Draw swatches with the names of labels, in as many lines as needed.

    Args:
        names: name of each label, at least one.
        width: pixels, at least 112.

    Returns:
        A white strip, uint8 (height, width, 3).

    Raises:
        TagmaskError: there is no name, or the strip is too narrow.
    """
    if not names or width < 8 * TEXT:
        raise TagmaskError(
            f"a legend of {len(names)} names, {width} pixels wide cannot be drawn; give at least "
            f"one name and a width of {8 * TEXT} pixels."
        )
    room = width - 2 * MARGIN - _INDENT
    right = width - MARGIN
    spots: list[tuple[str, int, int]] = []  # shortened name, left, line
    left = MARGIN
    line = 0
    for name in names.values():
        text = shorten(name, room, TEXT)
        text_width = font_for(text, TEXT).getlength(text)
        needed = round(_INDENT + text_width)
        if left > MARGIN and left + needed > right:
            left = MARGIN
            line += 1
        spots.append((text, left, line))
        left += needed + _INDENT
    height = _LINE_HEIGHT * (line + 1) + MARGIN // 2
    strip = Image.new("RGB", (width, height), PAPER)
    for label, (text, x, row) in zip(names, spots, strict=True):
        _draw_entry(strip, label, text, x, _LINE_HEIGHT * row)
    return np.asarray(strip)


def _draw_entry(
    strip: Image.Image,
    label: int,
    text: str,
    x: int,
    y: int,
) -> None:
    """Draw a swatch whose upper left corner is at (x, y), and the name beside it."""
    pen = ImageDraw.Draw(strip)
    labels = np.full((TEXT, TEXT), label, np.uint8)
    swatch = Image.fromarray(label_map(labels))
    strip.paste(swatch, (x, y))
    right = x + TEXT - 1
    bottom = y + TEXT - 1
    pen.rectangle((x, y, right, bottom), outline=INK)
    middle = (x + _INDENT, y + TEXT / 2)
    pen.text(middle, text, fill=INK, font=font_for(text, TEXT), anchor="lm")


def check_map(values: Map, name: str = "map") -> npt.NDArray[np.float64]:
    """Return the values as float64 in [0, 1].

    Args:
        values: floats in [0, 1], or uint8 for 0 … 255, of any shape.
        name: what the error message calls them.

    Raises:
        TagmaskError: they have another type or range.
    """
    array: npt.NDArray[Any] = np.asarray(values)
    if array.dtype == np.uint8:
        return array / 255
    if not np.issubdtype(array.dtype, np.floating):
        raise TagmaskError(
            f"the {name} has dtype {array.dtype}; give floats in 0 … 1, or uint8 for 0 … 255."
        )
    if not array.size:
        return array.astype(np.float64)
    low = array.min()
    high = array.max()
    if not (low >= 0 and high <= 1):
        raise TagmaskError(f"the {name} runs from {low:g} to {high:g}; scale it to 0 … 1 first.")
    return array.astype(np.float64)


def check_mask(mask: npt.NDArray[Any]) -> Mask:
    """Return the mask itself, if it is uint8 (H, W)."""
    array: npt.NDArray[Any] = np.asarray(mask)
    if array.ndim != 2 or array.dtype != np.uint8:
        raise TagmaskError(
            f"the mask has shape {array.shape} and dtype {array.dtype}; give uint8 (H, W) labels."
        )
    return array


def check_same_size(
    image: Picture,
    values: npt.NDArray[Any],
    name: str,
) -> None:
    """Refuse a map or mask of another size than the image: stretching it would hide a shift.

    Args:
        image: (H, W, 3).
        values: the map or mask, (H, W).
        name: what the error message calls it.

    Raises:
        TagmaskError: the sizes differ.
    """
    shape = np.shape(values)
    size = image.shape[:2]
    if shape != size:
        raise TagmaskError(
            f"the {name} has shape {shape} and the image {size} (height, width); "
            f"resize the {name} to the image first."
        )


def check_strength(strength: float) -> None:
    """Refuse a strength outside 0 … 1."""
    if not 0 <= strength <= 1:
        raise TagmaskError(
            f"strength is {strength}; give 0 (only the image) … 1 (only the colours)."
        )


def _to_uint8(values: npt.NDArray[np.float64]) -> Picture:
    return np.rint(values).astype(np.uint8)
