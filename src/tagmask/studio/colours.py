"""Colours of classes on the page: bright, so that they show on dark and on light photos."""

import colorsys
from typing import Any

import numpy as np

# a part of the circle after which hues come back as late as possible
_GOLDEN = 0.618034
_FIRST = 0.02  # red
# as light as seen by the eye (ITU-R BT.709), so that blue does not look black on a photo
_LEAST = 0.45
_EYE = np.array([0.2126, 0.7152, 0.0722])


def bright_colours(count: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return a colour for each label, (count, 3); label 0 is black and is not drawn.

    Args:
        count: Number of labels, with the background.
    """
    colours = np.zeros((count, 3), np.uint8)
    for label in range(1, count):
        hue = (_FIRST + (label - 1) * _GOLDEN) % 1
        # every fourth is paler: neighbours on the circle differ in more than the hue
        saturation = 0.6 if label % 4 == 0 else 0.95
        colour = np.array(colorsys.hsv_to_rgb(hue, saturation, 1.0))
        seen = float(_EYE @ colour)
        if seen < _LEAST:
            white = (_LEAST - seen) / (1 - seen)
            colour = colour * (1 - white) + white
        colours[label] = np.rint(255 * colour)
    return colours
