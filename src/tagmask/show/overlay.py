"""Maps and masks laid over their image, and the legend that names the colours."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw
from scipy import ndimage

from tagmask.errors import TagmaskError
from tagmask.labels import UNSURE, Mask, voc_palette
from tagmask.show.sheet import INK, MARGIN, WHITE, Picture, check_picture, font_for, shorten

Map = npt.NDArray[np.floating[Any]] | npt.NDArray[np.uint8]  # (H, W) in [0, 1]; uint8 v means v/255

GREY = np.array(
    [0.299, 0.587, 0.114]
)  # weights of red, green and blue in brightness (ITU-R BT.601)
HATCH = 6  # pixels from one stripe of the unsure area to the next
TEXT = 14  # pixels of the names in a legend

# From night blue over magenta and orange to pale yellow in even steps of lightness (CIE L* 4, 15.4 … 95): it reads the
# same in greyscale and to readers who cannot tell red from green.
_HEAT = "090b28 34115f 6c1574 a3246d d04158 ef6a3e fa9b29 fcca3f fbf4a2"
HEAT = np.array([list(bytes.fromhex(colour)) for colour in _HEAT.split()], np.float64)  # (9, 3)


def heat_colours(values: Map) -> Picture:
    """The colour of each value in [0, 1]: (H, W) -> (H, W, 3), straight lines between the nine stops of HEAT."""
    position = check_map(values) * (len(HEAT) - 1)  # (H, W)
    stops = np.arange(len(HEAT))
    channels = [np.interp(position, stops, HEAT[:, channel]) for channel in range(3)]
    return _to_uint8(np.stack(channels, axis=-1))


def heat_overlay(image: Picture, map: Map, strength: float = 0.55) -> Picture:
    """(1 − strength) · the image in grey + strength · the heat colours of the map: (H, W, 3)."""
    picture = check_picture(image)
    check_strength(strength)
    check_same_size(picture, map, "map")
    grey = picture @ GREY  # (H, W); a coloured object would tint the scale
    return _to_uint8((1 - strength) * grey[..., None] + strength * heat_colours(map))


def label_map(mask: Mask) -> Picture:
    """The colours of a mask alone: (H, W) -> (H, W, 3), those of PASCAL VOC; 255 is hatched in two greys."""
    labels = check_mask(mask)
    colours = voc_palette()[labels]  # (H, W, 3)
    y, x = np.indices(labels.shape)
    stripe = np.where((x + y) % HATCH < HATCH // 2, 215, 105).astype(np.uint8)  # (H, W)
    unsure = labels == UNSURE
    colours[unsure] = stripe[unsure, None]
    return colours


def mask_overlay(image: Picture, mask: Mask, strength: float = 0.5) -> Picture:
    """Class colours over the image, which shows through; the background is left as it is.

    image (H, W, 3), mask (H, W) -> (H, W, 3). A region's outermost pixels are white (one pixel wide, wider on
    pictures of 600 pixels and more); 255 is hatched and has no outline.
    """
    picture = check_picture(image)
    check_strength(strength)
    check_same_size(picture, mask, "mask")
    colours = label_map(mask)  # (H, W, 3)
    opacity = np.where(mask > 0, strength, 0.0)  # (H, W)
    edge = outline(mask, width=max(1, round(max(mask.shape) / 400)))
    colours[edge], opacity[edge] = WHITE, 1
    return _to_uint8((1 - opacity)[..., None] * picture + opacity[..., None] * colours)


def outline(mask: Mask, width: int = 1) -> npt.NDArray[np.bool_]:
    """(H, W): class pixels that touch, over a side, another label; the picture's border is no edge."""
    edge, size = np.zeros(mask.shape, np.bool_), 2 * width + 1
    for axis in (0, 1):
        highest = ndimage.maximum_filter1d(mask, size, axis, mode="nearest")
        edge |= highest != ndimage.minimum_filter1d(mask, size, axis, mode="nearest")
    edge &= (mask != 0) & (mask != UNSURE)
    return edge


def legend(names: Mapping[int, str], width: int) -> Picture:
    """A white strip (height, width, 3) of swatches with the names of labels, in as many lines as needed."""
    if not names or width < 8 * TEXT:
        raise TagmaskError(
            f"a legend of {len(names)} names, {width} pixels wide cannot be drawn; give at least one name and a width "
            f"of {8 * TEXT} pixels."
        )
    spots: list[tuple[str, int, int]] = []  # shortened name, left, line
    left, line, indent, line_height = MARGIN, 0, round(1.5 * TEXT), round(1.7 * TEXT)
    for name in names.values():
        text = shorten(name, width - 2 * MARGIN - indent, TEXT)
        needed = round(indent + font_for(text, TEXT).getlength(text))
        if left > MARGIN and left + needed > width - MARGIN:
            left, line = MARGIN, line + 1
        spots.append((text, left, line))
        left += needed + indent
    strip = Image.new("RGB", (width, line_height * (line + 1) + MARGIN // 2), (WHITE, WHITE, WHITE))
    pen = ImageDraw.Draw(strip)
    for label, (text, x, row) in zip(names, spots, strict=True):
        y = line_height * row
        strip.paste(Image.fromarray(label_map(np.full((TEXT, TEXT), label, np.uint8))), (x, y))
        pen.rectangle((x, y, x + TEXT - 1, y + TEXT - 1), outline=INK)
        pen.text((x + indent, y + TEXT / 2), text, fill=INK, font=font_for(text, TEXT), anchor="lm")
    return np.asarray(strip)


def check_map(values: Map, name: str = "map") -> npt.NDArray[np.float64]:
    """The values as float64 in [0, 1]."""
    array: npt.NDArray[Any] = np.asarray(values)
    if array.dtype == np.uint8:
        return array / 255
    if not np.issubdtype(array.dtype, np.floating):
        raise TagmaskError(
            f"the {name} has dtype {array.dtype}; give floats in 0 … 1, or uint8 for 0 … 255."
        )
    if array.size and not (array.min() >= 0 and array.max() <= 1):
        raise TagmaskError(
            f"the {name} runs from {array.min():g} to {array.max():g}; scale it to 0 … 1 first."
        )
    return array.astype(np.float64)


def check_mask(mask: npt.NDArray[Any]) -> Mask:
    """The mask itself, if it is uint8 (H, W)."""
    array: npt.NDArray[Any] = np.asarray(mask)
    if array.ndim != 2 or array.dtype != np.uint8:
        raise TagmaskError(
            f"the mask has shape {array.shape} and dtype {array.dtype}; give uint8 (H, W) labels."
        )
    return array


def check_same_size(image: Picture, values: npt.NDArray[Any], name: str) -> None:
    """Refuse a map or mask of another size than the image: stretching it silently would hide a shift."""
    if np.shape(values) != image.shape[:2]:
        raise TagmaskError(
            f"the {name} has shape {np.shape(values)} and the image {image.shape[:2]} (height, width); "
            f"resize the {name} to the image first."
        )


def check_strength(strength: float) -> None:
    if not 0 <= strength <= 1:
        raise TagmaskError(
            f"strength is {strength}; give 0 (only the image) … 1 (only the colours)."
        )


def _to_uint8(values: npt.NDArray[np.float64]) -> Picture:
    return np.rint(values).astype(np.uint8)
