"""Arrays that every room knows: photos, maps and masks, what their numbers mean, and colours."""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

Picture = npt.NDArray[np.uint8]  # (H, W, 3): RGB
MapArray = npt.NDArray[np.floating[Any]]  # (k, H, W): one map for each class, in [0, 1]
Mask = npt.NDArray[np.uint8]  # (H, W): 0 = background, c + 1 = class c, 255 = unsure

UNSURE = 255  # in a mask: no label; ignored by losses and scores
MAX_CLASSES = UNSURE - 1  # masks are 8-bit files, and 0 is background


@cache
def voc_palette() -> npt.NDArray[np.uint8]:
    """Return PASCAL VOC's colours of the labels 0 … 255, shape (256, 3), read-only.

    Bit k of a label goes to channel k mod 3, its lowest bits to the highest bits of the colour, so
    that neighbouring labels get very different colours: 0 is black, 255 off-white.
    """
    labels = np.arange(256)  # (256,)
    colours = np.zeros((256, 3), dtype=np.uint8)  # (256, 3)
    for bit in range(8):
        is_set = labels >> bit & 1  # (256,)
        channel = bit % 3
        target_bit = 7 - bit // 3
        colours[:, channel] |= (is_set << target_bit).astype(np.uint8)
    colours.flags.writeable = False
    return colours


def as_percent(share: float) -> str:
    """Return a share of a photo as people read it: 12.3 %, and "under 0.1 %" for a few pixels.

    Args:
        share: between 0 and 1.
    """
    if 0 < share < 0.001:
        return "under 0.1 %"
    return f"{100 * share:.1f} %"


def cover_words(where_found: float | None, over_all: float) -> str:
    """Say how much of a photo a class covers, in the words of every line and table.

    Args:
        where_found: mean share of the photos on which it is found; None if it is on none.
        over_all: mean share of all photos, those without it counted as 0.
    """
    all_photos = f"over all photos: {as_percent(over_all)}"
    if where_found is None:
        return all_photos
    return f"where it is found: {as_percent(where_found)} of the photo; {all_photos}"
