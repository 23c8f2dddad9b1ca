"""The random walk that spreads maps over positions that look alike.

Ahn & Kwak, "Learning Pixel-level Semantic Affinity with Image-level Supervision for Weakly
Supervised Semantic Segmentation" (PSA, CVPR 2018), Eq. 2, 6 and 7: a_ij = exp(−mean|f_i − f_j|) for
positions nearer than ``radius``, T = row-normalised a^β, maps ← T^t · maps.

Deviations: T is applied step by step as a sparse matrix instead of being squared as a dense one
(same result); every pair inside the grid is connected, also at the borders and corners that PSA's
index table leaves out. ``beta`` is 36, the ACR authors'; PSA's is 8.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from tagmask.errors import TagmaskError

RADIUS = 5
BETA = 36.0
STEPS = 2**6
_BLOCK = 2**16  # numbers handled at once: temporaries stay in the cache

Array = npt.NDArray[np.floating[Any]]


def half_offsets(radius: float = RADIUS) -> list[tuple[int, int]]:
    """Return one of each two opposite offsets (dy, dx) shorter than ``radius``: E of them.

    They are in row-major order.

    Raises:
        TagmaskError: If the radius reaches no neighbour.
    """
    if not radius > 1:
        raise TagmaskError(
            f"the radius is {radius}; neighbours are one apart, so it must be above 1, "
            "for example 5."
        )
    reach = int(np.ceil(radius)) - 1
    span = range(-reach, reach + 1)
    return [
        (dy, dx)
        for dy in range(reach + 1)
        for dx in span
        if (dy or dx > 0) and dy**2 + dx**2 < radius**2
    ]


def overlap(size: int, shift: int) -> tuple[slice, slice]:
    """Return, along one axis, the positions whose partner is inside, and those partners.

    Args:
        size: Number of positions.
        shift: How much further the partner is; may be negative.
    """
    return slice(max(0, -shift), max(0, size - max(0, shift))), slice(
        max(0, shift), max(0, size - max(0, -shift))
    )


def edge_affinities(features: Array, radius: float = RADIUS) -> Array:
    """Return the affinities exp(−mean|f_i − f_j|) of all pairs, 0 where the partner lies outside.

    Args:
        features: (C, h, w).
        radius: Positions nearer than this are pairs.

    Returns:
        (E, h, w): entry (e, y, x) is of (y, x) and (y, x) + offset e.

    Raises:
        TagmaskError: If the features are of another shape or not finite.
    """
    if features.ndim != 3 or not features.size:
        raise TagmaskError(
            f"features are of shape {features.shape}; give (channels, height, width)."
        )
    if not np.isfinite(features).all():
        raise TagmaskError(
            "the features hold NaN or infinity; the affinity network has diverged, train it again."
        )
    values = features.astype(_dtype(features), copy=False)
    channels, height, width = values.shape
    offsets = half_offsets(radius)
    total = np.full((len(offsets), height, width), 0, values.dtype)  # (E, h, w)
    step = max(1, _BLOCK // (height * width))
    for first in range(0, channels, step):
        part = values[first : first + step]  # (≤ step, h, w)
        for edge, (dy, dx) in zip(total, offsets, strict=True):
            (rows, other_rows), (columns, other_columns) = overlap(height, dy), overlap(width, dx)
            difference = part[:, rows, columns] - part[:, other_rows, other_columns]
            edge[rows, columns] += np.abs(difference, out=difference).sum(axis=0)
    affinities: Array = np.exp(total / -channels)
    return affinities * _inside((height, width), offsets).transpose(2, 0, 1)


def from_edges(
    affinities: Array, radius: float = RADIUS, beta: float = BETA
) -> "sparse.csr_array[Any]":
    """Return the row-normalised transition matrix of affinities.

    Both directions of a pair have its affinity, every position stays with weight 1.

    Args:
        affinities: (E, h, w) of the half offsets.
        radius: The radius they were made with.
        beta: Power of the affinities, above 0.

    Returns:
        Sparse (n, n), n = h·w.

    Raises:
        TagmaskError: If the affinities do not belong to the radius, or if beta is not above 0.
    """
    half = half_offsets(radius)
    if affinities.ndim != 3 or len(affinities) != len(half):
        raise TagmaskError(
            f"affinities are of shape {affinities.shape}; "
            f"radius {radius} needs ({len(half)}, height, width)."
        )
    _check_beta(beta)
    edges, (height, width) = len(half), affinities.shape[1:]
    offsets = [(-dy, -dx) for dy, dx in reversed(half)] + [
        (0, 0),
        *half,
    ]  # ascending columns within a row of T
    weights = np.zeros((height, width, len(offsets)), _dtype(affinities))  # (h, w, 2E+1)
    weights[..., edges] = 1
    for e, (dy, dx) in enumerate(half):
        (rows, other_rows), (columns, other_columns) = overlap(height, dy), overlap(width, dx)
        powered = affinities[e, rows, columns] ** beta
        weights[rows, columns, edges + 1 + e] = powered
        weights[other_rows, other_columns, edges - 1 - e] = powered
    weights /= weights.sum(axis=-1, keepdims=True)
    return _to_csr(weights, offsets)


def transition(
    features: Array, radius: float = RADIUS, beta: float = BETA
) -> "sparse.csr_array[Any]":
    """Return the transition matrix of features.

    Args:
        features: (C, h, w).
        radius: Positions nearer than this are pairs.
        beta: Power of the affinities, above 0.

    Returns:
        Sparse (n, n): float64 for float64 features, else float32.
    """
    return from_edges(edge_affinities(features, radius), radius, beta)


def from_attention(attention: Array, beta: float) -> "sparse.csr_array[Any]":
    """Return the transition matrix of a ViT's own affinity between patches.

    No second network is needed. The attention is made symmetric, raised to ``beta`` and
    row-normalised. A row of zeros stays where it is.

    Args:
        attention: (n, n) over the patches only, without class token.
        beta: Power of the affinities, above 0.

    Returns:
        Sparse (n, n).

    Raises:
        TagmaskError: If the attention is not square, finite and ≥ 0, or if beta is not above 0.
    """
    weights = _checked_attention(attention)
    _check_beta(beta)
    top = weights.max(
        axis=1, keepdims=True
    )  # (n, 1); dividing by it keeps the power from underflowing
    alone = np.flatnonzero(top == 0)
    weights[alone, alone] = top[alone] = 1
    weights = (weights / top) ** beta
    weights /= weights.sum(axis=1, keepdims=True)
    return sparse.csr_array(weights)


def random_walk(
    maps: Array, transition: "sparse.csr_array[Any]", steps: int = STEPS, device: str | None = None
) -> Array:
    """Walk: each value becomes the mean of its neighbours by ``transition``, step by step.

    Args:
        maps: (K, h, w).
        transition: Sparse (n, n), n = h·w.
        steps: Number of steps, 0 or more.
        device: Device of torch for the steps, e.g. "cuda"; None means scipy on the CPU.

    Returns:
        (K, h, w).

    Raises:
        TagmaskError: If the maps do not lie on the matrix, or if steps are negative.
    """
    nodes = transition.shape[0]
    if maps.ndim != 3 or maps.shape[1] * maps.shape[2] != nodes:
        raise TagmaskError(
            f"maps of shape {maps.shape} do not lie on the {nodes} positions of the transition "
            "matrix; resize them to the grid of the features."
        )
    if steps < 0:
        raise TagmaskError(f"the walk has {steps} steps; give 0 or more.")
    state = np.ascontiguousarray(maps.reshape(len(maps), nodes).T, dtype=transition.dtype)  # (n, K)
    if device is None:
        for _ in range(steps):
            state = transition @ state
    else:
        from tagmask.masks.by_torch import take_steps

        state = take_steps(transition, state, steps, device)
    walked: Array = np.ascontiguousarray(state.T).reshape(maps.shape)
    return walked


def _dtype(values: Array) -> type[np.floating[Any]]:
    return np.float64 if values.dtype == np.float64 else np.float32


def _check_beta(beta: float) -> None:
    if not beta > 0:
        raise TagmaskError(
            f"beta is {beta}; the power of the affinity must be above 0, for example 36."
        )


def _inside(grid: tuple[int, int], offsets: list[tuple[int, int]]) -> npt.NDArray[np.bool_]:
    """Return (h, w, E), True where the partner of (y, x) at each offset lies on the grid."""
    (height, width), shifts = grid, np.array(offsets)  # shifts (E, 2)
    rows = np.arange(height)[:, None] + shifts[:, 0]  # (h, E)
    columns = np.arange(width)[:, None] + shifts[:, 1]  # (w, E)
    good_rows, good_columns = (rows >= 0) & (rows < height), (columns >= 0) & (columns < width)
    inside: npt.NDArray[np.bool_] = good_rows[:, None] & good_columns[None]
    return inside


def _to_csr(weights: Array, offsets: list[tuple[int, int]]) -> "sparse.csr_array[Any]":
    """Return weights (h, w, E) of the partners at ``offsets`` as a matrix (n, n).

    The offsets are in row-major order.
    """
    height, width, edges = weights.shape
    nodes = height * width
    inside = _inside((height, width), offsets).reshape(nodes, edges)
    starts = np.zeros(nodes + 1, np.int32)
    np.cumsum(inside.sum(axis=1), out=starts[1:])
    steps = np.array([dy * width + dx for dy, dx in offsets], np.int32)
    columns = (np.arange(nodes, dtype=np.int32)[:, None] + steps)[inside]
    data = weights.reshape(nodes, edges)[inside]
    return sparse.csr_array((data, columns, starts), shape=(nodes, nodes))


def _checked_attention(attention: Array) -> Array:
    """Return the symmetric part of an attention, as a new array."""
    if attention.ndim != 2 or attention.shape[0] != attention.shape[1] or not attention.size:
        raise TagmaskError(
            f"the attention is of shape {attention.shape}; give (n, n), patches by patches."
        )
    values = attention.astype(_dtype(attention), copy=False)
    if not np.isfinite(values).all() or values.min() < 0:
        raise TagmaskError(
            "the attention holds negative or undefined numbers; give it after the softmax."
        )
    symmetric: Array = (values + values.T) / 2
    return symmetric
