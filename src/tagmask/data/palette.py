"""The PASCAL VOC colour map, by which every mask of this project is coloured."""

from functools import cache

import numpy as np
import numpy.typing as npt


@cache
def voc_palette() -> npt.NDArray[np.uint8]:
    """Colours of the labels 0 … 255, shape (256, 3), read-only.

    Bit k of a label lands in channel k mod 3, the lowest bits of the label in the highest bits of the
    colour: neighbouring labels get colours far apart, 0 is black and 255 (ignore) is off-white.
    """
    labels = np.arange(256)  # (256,)
    colours = np.zeros((256, 3), dtype=np.uint8)  # (256, 3)
    for bit in range(8):
        colours[:, bit % 3] |= ((labels >> bit & 1) << (7 - bit // 3)).astype(np.uint8)
    colours.flags.writeable = False
    return colours
