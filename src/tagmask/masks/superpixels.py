"""Superpixels: compact pieces of one colour, by k-means (SLIC, Achanta et al. 2012).

Deviations: colours are those of the photo with a luminance axis instead of CIELAB, each pixel
chooses among the nine centres around its grid cell, and pieces may consist of several parts.
"""

from typing import Any

import numpy as np

from tagmask.labels import Picture

Pieces = np.ndarray[Any, np.dtype[np.int64]]  # (H, W)


def superpixels(
    image: Picture, count: int = 400, compactness: float = 10.0, rounds: int = 5, side: int = 320
) -> Pieces:
    """Return the superpixel, from 0, of every pixel.

    Args:
        image: uint8 (H, W, 3).
        count: About how many superpixels there should be.
        compactness: Weight of the place against the colour.
        rounds: Iterations of k-means.
        side: Long side in pixels at which they are found.

    Returns:
        (H, W).
    """
    height, width = image.shape[:2]
    step = max(1, -(-max(height, width) // side))
    small = image[::step, ::step].astype(np.float32) @ _AXES  # (h, w, 3)
    h, w = small.shape[:2]
    cell = max(2.0, np.sqrt(h * w / count))
    rows = max(1, round(h / cell))
    columns = max(1, round(w / cell))
    y, x = np.mgrid[:h, :w].astype(np.float32)
    points = np.dstack([small, y * (compactness / cell), x * (compactness / cell)]).reshape(
        -1, 5
    )  # (h·w, 5)
    home_row = (y * rows / h).astype(int)
    home_column = (x * columns / w).astype(int)
    labels = (home_row * columns + home_column).ravel()  # (h·w,)
    tall = [(home_row + d).clip(0, rows - 1) for d in (-1, 0, 1)]
    wide = [(home_column + d).clip(0, columns - 1) for d in (-1, 0, 1)]
    near = np.stack([(top * columns + left).ravel() for top in tall for left in wide])  # (9, h·w)
    for _ in range(rounds):
        sizes = np.maximum(np.bincount(labels, minlength=rows * columns), 1)
        sums = [np.bincount(labels, points[:, axis], rows * columns) / sizes for axis in range(5)]
        centres = np.stack(sums, axis=1).astype(np.float32)  # (pieces, 5)
        distances = np.stack(
            [((points - centres[choice]) ** 2).sum(1) for choice in near]
        )  # (9, h·w)
        labels = np.take_along_axis(near, distances.argmin(0)[None], 0)[0]
    pieces: Pieces = labels.reshape(h, w)[
        np.arange(height)[:, None] // step, np.arange(width) // step
    ]
    return pieces


# luminance, and two differences of colours, scaled about as in CIELAB
_AXES = np.array(
    [[0.299, 0.5, 0.25], [0.587, -0.5, 0.25], [0.114, 0.0, -0.5]], np.float32
) * np.float32(100 / 255)
