"""From maps to labels: confident regions, and every pixel's label (docs/explanation/method.md §4).

MapArray are (k, H, W) in [0, 1], one for each tagged class; ``classes`` (k,) are their numbers from
0. Labels are uint8 (H, W): 0 = background, c + 1 = class c, 255 = unsure.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tagmask.errors import TagmaskError
from tagmask.labels import UNSURE, MapArray, Picture
from tagmask.masks.crf import SEEDS, CrfSettings, crf_memory, dense_crf
from tagmask.masks.tiles import AT_ONCE, Window, windows

ALPHA_LOW, ALPHA_HIGH = 4.0, 32.0
TILE = 768  # pixels; side of the parts in which large photos are labelled
TRUST = 0.7  # probability that a label is right, before the CRF sees the image

Labels = npt.NDArray[np.uint8]


def confident_regions(
    image: Picture,
    classes: Sequence[int],
    maps: MapArray,
    low: float = ALPHA_LOW,
    high: float = ALPHA_HIGH,
    crf: CrfSettings = SEEDS,
) -> Labels:
    """Return the labels of the pixels that are sure, 255 elsewhere.

    The background's score is (1 − highest map)^α, sharpened by the CRF, once with ``low`` and once
    with ``high``: a pixel that is a class against the stronger background is surely that class, and
    one that is background against the weaker one is surely background.

    Args:
        image: uint8 (H, W, 3).
        classes: Numbers (k,) of the tagged classes, from 0.
        maps: (k, H, W) in [0, 1].
        low: α of the stronger background, above 0.
        high: α of the weaker background, above ``low``.
        crf: How pixels influence each other.

    Returns:
        Labels (H, W).

    Raises:
        TagmaskError: If α, maps, classes and image do not go together.
    """
    if not 0 < low < high:
        raise TagmaskError(
            f"α is {low} (low) and {high} (high); both must be above 0, "
            "and the first must be lower."
        )
    check_maps(image, classes, maps)
    regions = np.empty(image.shape[:2], np.uint8)
    for window in _parts(image, len(maps) + 1, crf):
        seen = np.ascontiguousarray(image[window.seen])
        own = maps[:, *window.seen]
        gap = 1 - own.max(axis=0, initial=0)  # (H, W)
        strict, lenient = (
            _winners(seen, classes, _with_background(own, gap**power), crf) for power in (low, high)
        )
        part = np.where((strict > 0) == (lenient > 0), strict, np.uint8(UNSURE))
        regions[window.tile] = part[window.inner]
    return regions


def label_pixels(
    image: Picture,
    classes: Sequence[int],
    maps: MapArray,
    background: float | MapArray,
    crf: CrfSettings | None = None,
) -> Labels:
    """Label every pixel with the class of the highest map where it exceeds the background.

    A CRF, if given, corrects the labels. It starts from the labels, each with the same probability:
    the values of maps are not probabilities, and a CRF on them would assign small objects to their
    surroundings where maps are flat.

    Args:
        image: uint8 (H, W, 3).
        classes: Numbers (k,) of the tagged classes, from 0.
        maps: (k, H, W) in [0, 1].
        background: Score of the background in [0, 1], a number or a map (H, W) of its own.
        crf: How pixels influence each other; None for no CRF.

    Returns:
        Labels (H, W).

    Raises:
        TagmaskError: If background, maps, classes and image do not go together.
    """
    if not 0 <= np.min(background) <= np.max(background) <= 1:
        raise TagmaskError(
            f"the background's score is {background}; give a number from 0 to 1, as the maps have."
        )
    check_maps(image, classes, maps)
    rival = np.broadcast_to(np.float32(background), image.shape[:2])  # (H, W)
    labels = np.empty(image.shape[:2], np.uint8)
    for window in _parts(image, len(maps) + 1, crf):
        seen = np.ascontiguousarray(image[window.seen])
        scores = _with_background(maps[:, *window.seen], rival[window.seen])  # (k + 1, h, w)
        if crf is not None:
            scores = _trusted(scores.argmax(axis=0), len(scores))
        labels[window.tile] = _winners(seen, classes, scores, crf)[window.inner]
    return labels


def agreement(first: Labels, second: Labels) -> Labels:
    """Return the labels on which two routes agree, 255 elsewhere.

    Args:
        first: Labels (H, W).
        second: Labels (H, W) of the same image.

    Returns:
        Labels (H, W).

    Raises:
        TagmaskError: If the shapes differ.
    """
    if first.shape != second.shape:
        raise TagmaskError(
            f"labels are {first.shape} and {second.shape}; "
            "only labels of one image can be compared."
        )
    return np.where(first == second, first, np.uint8(UNSURE))


def check_maps(image: Picture, classes: Sequence[int], maps: MapArray) -> None:
    """Refuse maps that do not lie on the image or do not belong to the classes.

    Args:
        image: (H, W, 3).
        classes: Numbers (k,) of the tagged classes.
        maps: Should be (k, H, W).

    Raises:
        TagmaskError: If they do not go together.
    """
    if maps.ndim != 3 or maps.shape[1:] != image.shape[:2]:
        raise TagmaskError(
            f"the maps are {'×'.join(map(str, maps.shape[1:]))} and the image is "
            f"{image.shape[0]}×{image.shape[1]} pixels; make the seeds again from this image."
        )
    if len(maps) != len(classes):
        raise TagmaskError(
            f"there are {len(maps)} maps for {len(classes)} classes; give one map per class."
        )


def _parts(image: Picture, labels: int, crf: CrfSettings | None) -> Iterator[Window]:
    """Yield the tiles in which an image is labelled: the whole image if that takes little memory.

    Around a tile the CRF sees three of its deviations, beyond which pixels have no influence.
    """
    height, width = image.shape[:2]
    if crf is None or crf_memory(height * width, labels) <= AT_ONCE:
        return windows(height, width, None, 0)
    return windows(height, width, TILE, math.ceil(3 * max(crf.bilateral_sxy, crf.gaussian_sxy)))


def _with_background(maps: MapArray, background: MapArray) -> npt.NDArray[np.float32]:
    """Put the background before the maps, (k + 1, H, W)."""
    return np.concatenate([background[None], maps]).astype(np.float32)


def _trusted(winners: npt.NDArray[np.intp], count: int) -> npt.NDArray[np.float32]:
    """Turn the indices (H, W) of the winners into probabilities (count, H, W)."""
    others = (1 - TRUST) / max(1, count - 1)
    probabilities = np.full((count, *winners.shape), others, np.float32)
    np.put_along_axis(probabilities, winners[None], TRUST, axis=0)
    return probabilities


def _winners(
    image: Picture, classes: Sequence[int], scores: npt.NDArray[np.float32], crf: CrfSettings | None
) -> Labels:
    """Return the label with the highest score (k + 1, H, W); the background wins ties."""
    if crf is not None:
        scores = dense_crf(image, scores, crf)
    labels: Labels = np.array([0, *(number + 1 for number in classes)], np.uint8)[
        scores.argmax(axis=0)
    ]
    return labels
