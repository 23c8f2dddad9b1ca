"""From maps to labels: confident regions, and the label of every pixel (docs/method.md §4).

Maps are (k, H, W) in [0, 1], one for each tagged class; ``classes`` (k,) are their numbers from 0. Labels are uint8
(H, W): 0 = background, c + 1 = class c, 255 = unsure.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tagmask.errors import TagmaskError
from tagmask.labels import UNSURE
from tagmask.masks.crf import SEEDS, CrfSettings, dense_crf

ALPHA_LOW, ALPHA_HIGH = 4.0, 32.0
TRUST = 0.7  # probability that a label is right, before the CRF sees the image

Image = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.uint8]
Maps = npt.NDArray[np.floating]


def confident_regions(
    image: Image,
    classes: Sequence[int],
    maps: Maps,
    low: float = ALPHA_LOW,
    high: float = ALPHA_HIGH,
    crf: CrfSettings = SEEDS,
) -> Labels:
    """Labels (H, W) of the pixels that are sure, 255 elsewhere.

    The background's score is (1 − highest map)^α, sharpened by the CRF, once with ``low`` and once with ``high``: a
    pixel that is a class against the stronger background is surely that class, and one that is background against the
    weaker one is surely background.
    """
    if not 0 < low < high:
        raise TagmaskError(
            f"α is {low} (low) and {high} (high); both must be above 0, and the first must be lower."
        )
    check_maps(image, classes, maps)
    gap = 1 - maps.max(axis=0, initial=0)  # (H, W)
    strict, lenient = (
        _winners(image, classes, _with_background(maps, gap**power), crf) for power in (low, high)
    )
    return np.where((strict > 0) == (lenient > 0), strict, np.uint8(UNSURE))


def label_pixels(
    image: Image,
    classes: Sequence[int],
    maps: Maps,
    background: float | Maps,
    crf: CrfSettings | None = None,
) -> Labels:
    """Labels (H, W): the class of the highest map where it exceeds ``background``, then corrected by the CRF if given.

    ``background`` is a number, or a map (H, W) of its own.
    The CRF starts from the labels, each with the same probability: the values of maps are not probabilities, and a CRF
    on them would assign small objects to their surroundings where maps are flat.
    """
    if not 0 <= np.min(background) <= np.max(background) <= 1:
        raise TagmaskError(
            f"the background's score is {background}; give a number from 0 to 1, as the maps have."
        )
    check_maps(image, classes, maps)
    scores = _with_background(
        maps, np.broadcast_to(np.float32(background), image.shape[:2])
    )  # (k + 1, H, W)
    return _winners(
        image, classes, scores if crf is None else _trusted(scores.argmax(axis=0), len(scores)), crf
    )


def agreement(first: Labels, second: Labels) -> Labels:
    """Labels on which two routes agree, 255 elsewhere."""
    if first.shape != second.shape:
        raise TagmaskError(
            f"labels are {first.shape} and {second.shape}; only labels of one image can be compared."
        )
    return np.where(first == second, first, np.uint8(UNSURE))


def check_maps(image: Image, classes: Sequence[int], maps: Maps) -> None:
    """Refuse maps that do not lie on the image or do not belong to the classes."""
    if maps.ndim != 3 or maps.shape[1:] != image.shape[:2]:
        raise TagmaskError(
            f"the maps are {'×'.join(map(str, maps.shape[1:]))} and the image is {image.shape[0]}×{image.shape[1]} "
            "pixels; make the seeds again from this image."
        )
    if len(maps) != len(classes):
        raise TagmaskError(
            f"there are {len(maps)} maps for {len(classes)} classes; give one map per class."
        )


def _with_background(maps: Maps, background: Maps) -> npt.NDArray[np.float32]:
    """(k + 1, H, W), the background first."""
    return np.concatenate([background[None], maps]).astype(np.float32)


def _trusted(winners: npt.NDArray[np.intp], count: int) -> npt.NDArray[np.float32]:
    """Places (H, W) of the winners among ``count`` labels to probabilities (count, H, W)."""
    chances = np.full((count, *winners.shape), (1 - TRUST) / max(1, count - 1), np.float32)
    np.put_along_axis(chances, winners[None], TRUST, axis=0)
    return chances


def _winners(
    image: Image, classes: Sequence[int], scores: npt.NDArray[np.float32], crf: CrfSettings | None
) -> Labels:
    """The label with the highest score (k + 1, H, W) of each pixel, the background winning ties."""
    if crf is not None:
        scores = dense_crf(image, scores, crf)
    labels: Labels = np.array([0, *(number + 1 for number in classes)], np.uint8)[
        scores.argmax(axis=0)
    ]
    return labels
