"""Dense CRF: labels that follow the image, by mean field over all pairs of pixels.

Krähenbühl and Koltun, "Efficient Inference in Fully Connected CRFs with Gaussian Edge Potentials",
NeurIPS 2011.

E(x) = Σ_i −log p_i(x_i) + Σ_{i<j} [x_i ≠ x_j] · (smoothness + appearance kernel), both kernels
normalised symmetrically.

As in the authors' code, and unlike the paper's equations, a pixel counts as its own neighbour, and
the kernels are approximated on a permutohedral lattice. Up to rounding, labels agree with that code
(pydensecrf).
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tagmask.errors import TagmaskError
from tagmask.masks.lattice import Floats, Kernel, filter_labels, gaussian_kernel

LEAST = 1e-5  # lower probabilities are raised to this, so that no label is ruled out
PIXELS_AT_ONCE = 1 << 14  # in the softmax, so that they stay in the processor's cache

KEPT = 1 << 19  # pixels; kernels of larger images are not kept for the next image of that size
_LATTICE = 260  # bytes of a pixel in the kernels, while they are built
_COPIES = 6  # of the probabilities, while the mean field is iterated


@dataclass(frozen=True)
class CrfSettings:
    """How far and how strongly pixels influence each other; weight 0 leaves a kernel out."""

    iterations: int = 10
    gaussian_sxy: float = 3.0  # smoothness: deviation in pixels
    gaussian_weight: float = 3.0
    bilateral_sxy: float = 80.0  # appearance: deviation in pixels …
    bilateral_srgb: float = 13.0  # … and in colour, 0–255
    bilateral_weight: float = 10.0
    device: str | None = None  # of torch, for the iterations, e.g. "cuda"; None: scipy on the CPU

    def at_scale(self, factor: float) -> "CrfSettings":
        """Return settings of the same reach on an image that is resized by ``factor``."""
        return replace(
            self, gaussian_sxy=self.gaussian_sxy * factor, bilateral_sxy=self.bilateral_sxy * factor
        )

    def __post_init__(self) -> None:
        wrong = []
        for name in ("gaussian_sxy", "bilateral_sxy", "bilateral_srgb"):
            if not 0 < getattr(self, name) < np.inf:
                wrong.append(
                    f"{name} is {getattr(self, name)}, a deviation: give a number above 0."
                )
        for name in ("gaussian_weight", "bilateral_weight"):
            if not 0 <= getattr(self, name) < np.inf:
                wrong.append(f"{name} is {getattr(self, name)}; give 0 (no such kernel) or more.")
        if self.iterations < 0:
            wrong.append(f"iterations is {self.iterations}; give 0 or more, e.g. 10.")
        if wrong:
            raise TagmaskError("\n".join(wrong))


SEEDS = CrfSettings()
"""For maps that are coarser than objects."""
SEGMENTATION = CrfSettings(bilateral_sxy=67, bilateral_srgb=3, bilateral_weight=4)
"""For a segmenter's scores, as in DeepLabV2: only pixels of nearly the
same colour influence each other."""
FINE = CrfSettings(gaussian_sxy=1, bilateral_sxy=67, bilateral_srgb=3, bilateral_weight=4)
"""SEGMENTATION with a smoothness of one pixel, which keeps thin parts."""
LABELS = CrfSettings(bilateral_weight=4)
"""For labels that are mostly right: SEEDS with less pull by colour,
which would wipe out small objects."""
PRESETS = {"labels": LABELS, "seeds": SEEDS, "segmentation": SEGMENTATION, "fine": FINE}


def dense_crf(
    image: npt.NDArray[np.uint8],
    probabilities: npt.NDArray[np.floating],
    settings: CrfSettings = SEEDS,
) -> Floats:
    """Sharpen probabilities along the edges of the image.

    They need not sum to 1 beforehand; afterwards they do. Time and memory grow with K: give only
    labels that may occur in the image.

    Args:
        image: uint8 (H, W, 3), or (H, W) if grey.
        probabilities: (K, H, W) of K labels, in [0, 1].
        settings: How far and how strongly pixels influence each other.

    Returns:
        Probabilities (K, H, W), summing to 1 at each pixel.

    Raises:
        TagmaskError: If shapes, types or ranges are others.
    """
    _check(image, probabilities)
    clipped = (
        np.clip(probabilities, LEAST, 1).astype(np.float32).reshape(len(probabilities), -1)
    )  # (K, N)
    kernels = _kernels(image, settings) if len(probabilities) > 1 and settings.iterations else []
    refined: Floats
    if not kernels:
        refined = clipped / clipped.sum(axis=0)
    elif settings.device is None:
        refined = _mean_field(clipped, kernels, settings.iterations)
    else:
        from tagmask.masks.by_torch import mean_field

        refined = mean_field(clipped, kernels, settings.iterations, settings.device)
    return refined.reshape(probabilities.shape)


def crf_memory(pixels: float, labels: int) -> float:
    """Return about how many bytes ``dense_crf`` takes, with what it is given.

    Args:
        pixels: Of the image.
        labels: How many of them compete.
    """
    return pixels * (_LATTICE + 4 * labels * _COPIES)


def _check(image: npt.NDArray[np.uint8], probabilities: npt.NDArray[np.floating]) -> None:
    if (
        image.dtype != np.uint8
        or image.ndim not in (2, 3)
        or (image.ndim == 3 and image.shape[2] != 3)
    ):
        raise TagmaskError(
            f"image is {image.dtype} of shape {image.shape}; "
            "give uint8 of shape (H, W, 3), or (H, W) if grey."
        )
    if (
        probabilities.ndim != 3
        or probabilities.size == 0
        or probabilities.shape[1:] != image.shape[:2]
    ):
        raise TagmaskError(
            f"probabilities have shape {probabilities.shape} and the image {image.shape}; "
            "give (labels, H, W) with at least one label and the height and width of the image."
        )
    lowest, highest = probabilities.min(), probabilities.max()
    if not (lowest >= -LEAST and highest <= 1 + 1e-3):  # nan fails too
        raise TagmaskError(
            f"probabilities lie between {lowest} and {highest}; give numbers from 0 to 1, e.g. "
            "after a softmax."
        )


def _kernels(image: npt.NDArray[np.uint8], settings: CrfSettings) -> list[Kernel]:
    """Return the kernels whose weight is not 0."""
    height, width = image.shape[:2]
    kernels = []
    if settings.gaussian_weight:
        smoothness = _smoothness if height * width <= KEPT else _smoothness.__wrapped__
        kernels.append(smoothness(height, width, settings.gaussian_sxy, settings.gaussian_weight))
    if settings.bilateral_weight:
        colours = image.reshape(height * width, -1).T / np.float32(
            settings.bilateral_srgb
        )  # (3, N), or (1, N) if grey
        colours = np.broadcast_to(colours, (3, height * width))
        places = _places(height, width, settings.bilateral_sxy)  # (2, N)
        kernels.append(
            gaussian_kernel(np.concatenate([places, colours]), settings.bilateral_weight)
        )
    return kernels


@lru_cache(maxsize=4)  # photos of a data set share a few sizes; 10 MB each at 375×500
def _smoothness(height: int, width: int, sxy: float, weight: float) -> Kernel:
    """Return the kernel that depends on the image's size only."""
    return gaussian_kernel(_places(height, width, sxy), weight)


def _places(height: int, width: int, sxy: float) -> Floats:
    """Return column and row of each pixel in deviations, (2, N)."""
    rows, columns = np.indices((height, width), np.float32).reshape(2, -1)
    return np.stack([columns, rows]) / np.float32(sxy)


def _mean_field(clipped: Floats, kernels: list[Kernel], iterations: int) -> Floats:
    """Iterate the mean field on probabilities (K, N).

    The messages of all labels add up to the kernels applied to ones, so the last label's message is
    a difference.
    """
    evidence = np.log(clipped)  # (K, N)
    labels: Floats = clipped / clipped.sum(axis=0)  # (K, N)
    total = np.sum([kernel.total for kernel in kernels], axis=0)  # (N,)
    for _ in range(iterations):
        message = filter_labels(kernels, labels[:-1])  # (K−1, N)
        for start in range(0, total.size, PIXELS_AT_ONCE):
            part = np.s_[..., start : start + PIXELS_AT_ONCE]
            labels[:-1][part] = message[part]
            labels[-1][part] = total[part] - message[part].sum(axis=0)
            labels[part] += evidence[part]
            _softmax(labels[part])
    return labels


def _softmax(scores: Floats) -> None:
    """Take the softmax over the labels, in place."""
    scores -= scores.max(axis=0)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=0)
