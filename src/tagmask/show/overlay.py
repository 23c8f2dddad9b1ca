"""Maps and masks laid over their image, and the legend that names the colours."""

import math
from collections.abc import Mapping, Sequence
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
    can_write,
    check_picture,
    font_for,
    shorten,
    text_width,
)

Map = npt.NDArray[np.floating[Any]] | npt.NDArray[np.uint8]  # (H, W) in [0, 1]; uint8 v means v/255

# weights of red, green and blue in brightness (ITU-R BT.601)
GREY = np.array([0.299, 0.587, 0.114])
HATCH = 6  # pixels from one stripe of the unsure area to the next
TEXT = 14  # pixels of the names in a legend
# a picture whose long side is more than this many times the text gets larger text
_PER_LETTER = 64
_WIDEST_LEGEND = 280  # pixels to which a narrow picture is widened, where its legend needs them
MOST_NAMES = 24  # in the legend of a picture

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


def overlay_with_legend(
    image: Picture, mask: Mask, classes: Sequence[str], strength: float = 0.5
) -> Picture:
    """Lay class colours over an image, and name those that are there in a strip below it.

    The strip covers nothing. A picture that is too narrow for the names gets white to its right.

    Args:
        image: uint8 (H, W, 3).
        mask: uint8 labels (H, W).
        classes: names of the labels 1, 2, …
        strength: share of the class colours, 0 (only the image) … 1 (only the colours).

    Returns:
        The picture, uint8 (height, width, 3); its first H rows and W columns are ``mask_overlay``.

    Raises:
        TagmaskError: an argument has another form, size or range, or a label has no class.
    """
    return add_legend(mask_overlay(image, mask, strength), names_in(mask, classes))


def names_in(mask: Mask, classes: Sequence[str]) -> dict[int, str]:
    """Return the names of the labels in a mask, in their order; the background has none.

    Args:
        mask: uint8 labels (H, W).
        classes: names of the labels 1, 2, …

    Raises:
        TagmaskError: a label has no class.
    """
    names = {}
    for label in np.unique(mask[mask > 0]).tolist():
        if label == UNSURE:
            names[label] = "unsure"
        elif label <= len(classes):
            names[label] = classes[label - 1]
        else:
            raise TagmaskError(
                f"the mask has the label {label}, but there are {len(classes)} classes; "
                "give a name for each."
            )
    return names


def add_legend(picture: Picture, names: Mapping[int, str]) -> Picture:
    """Return a picture with the names of colours in a strip below it.

    Args:
        picture: uint8 (H, W, 3).
        names: name of each label; without any the picture is returned as it is.
    """
    if not names:
        return picture
    shown = dict(list(names.items())[:MOST_NAMES])
    height, width, _ = picture.shape
    text = max(TEXT, round(max(height, width) / _PER_LETTER))
    text = max(TEXT, min(text, width // 8))
    margin = text // 2
    needed = [2 * _indent(text) + text_width(_written(*name), text) for name in shown.items()]
    # wide enough for the longest name, and for all names in about two lines
    narrow = min(_WIDEST_LEGEND, math.ceil(max(*needed, sum(needed) / 2)) + 2 * margin)
    strip = _strip(shown, max(width, narrow, 8 * text), text, margin)
    if len(names) > len(shown):
        more = f"and {len(names) - len(shown)} more"
        strip = np.vstack([strip, _line(more, strip.shape[1], text, margin)])
    # a white edge keeps the names apart from the picture
    edge = np.full((margin, strip.shape[1], 3), WHITE, np.uint8)
    right = strip.shape[1] - width
    widened = np.pad(picture, ((0, 0), (0, right), (0, 0)), constant_values=WHITE)
    return np.vstack([widened, edge, strip])


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
    return _strip(names, width, TEXT, MARGIN)


def _strip(names: Mapping[int, str], width: int, text: int, margin: int) -> Picture:
    """Draw swatches with names.

    Args:
        names: name of each label.
        width: pixels of the strip.
        text: height of the letters in pixels.
        margin: pixels that are left free at both sides.
    """
    indent = _indent(text)
    line_height = round(1.7 * text)
    room = width - 2 * margin - indent
    right = width - margin
    spots: list[tuple[str, int, int]] = []  # shortened name, left, line
    left = margin
    line = 0
    for label, name in names.items():
        written = shorten(_written(label, name), room, text)
        needed = round(indent + text_width(written, text))
        if left > margin and left + needed > right:
            left = margin
            line += 1
        spots.append((written, left, line))
        left += needed + indent
    height = line_height * (line + 1) + round(margin / 2)
    strip = Image.new("RGB", (width, height), PAPER)
    for label, (written, x, row) in zip(names, spots, strict=True):
        _draw_entry(strip, label, written, x, line_height * row, text)
    return np.asarray(strip)


def _written(label: int, name: str) -> str:
    """Return a name as the legend writes it; its number where no font has the letters."""
    return name if can_write(name) else f"label {label}"


def _indent(text: int) -> int:
    """Return the pixels from a swatch to its name, and from a name to the next swatch."""
    return round(1.5 * text)


def _line(words: str, width: int, text: int, margin: int) -> Picture:
    """Draw a line of text on white."""
    strip = Image.new("RGB", (width, round(1.7 * text)), PAPER)
    line = shorten(words, width - 2 * margin, text)
    ImageDraw.Draw(strip).text((margin, 0), line, fill=INK, font=font_for(line, text))
    return np.asarray(strip)


def _draw_entry(
    strip: Image.Image,
    label: int,
    name: str,
    x: int,
    y: int,
    text: int,
) -> None:
    """Draw a swatch whose upper left corner is at (x, y), and the name beside it."""
    pen = ImageDraw.Draw(strip)
    labels = np.full((text, text), label, np.uint8)
    swatch = Image.fromarray(label_map(labels))
    strip.paste(swatch, (x, y))
    right = x + text - 1
    bottom = y + text - 1
    pen.rectangle((x, y, right, bottom), outline=INK)
    middle = (x + _indent(text), y + text / 2)
    pen.text(middle, name, fill=INK, font=font_for(name, text), anchor="lm")


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
