"""Gaussian filtering in a few dimensions: the permutohedral lattice as sparse matrices.

Adams, Baek and Davis, "Fast High-Dimensional Filtering Using the Permutohedral Lattice",
Eurographics 2010. Points of d features are lifted onto the plane Σx = 0 of d+1 dimensions, which
the lattice divides into simplices. A value is splatted onto the d+1 corners of its simplex, blurred
with ½-1-½ along d+1 directions and sliced back: each step is a sparse matrix, and one that depends
on the features alone, so it is made once and applied to all labels.

A corner is the pair (remainder r, cells q): its coordinates are q·(d+1) + r. Both are packed into
one integer, so that corners are found by sorting integers, and a step along an axis is the same
difference for all corners of a remainder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from tagmask.errors import TagmaskError

Floats = npt.NDArray[np.float32]
Whole = npt.NDArray[np.int64]

ROW_BY_ROW = 3  # up to so many labels, one product of a matrix and a vector for each is the fastest
AT_ONCE = 10  # beyond, so many labels share a product: more gain little time and take memory


@dataclass(frozen=True)
class Kernel:
    """Hold a Gaussian kernel, normalised and weighted, as a product of sparse matrices."""

    matrices: tuple[Any, ...]  # splat (M, N), the blurs (M, M), slice (N, M): in the order of use
    total: Floats  # (N,) the answer to ones

    def apply(self, values: Floats) -> Floats:
        """Return for each point the sum over all points, itself included, of kernel · value.

        ``values`` are (N,) or (N, k), and so is the result.
        """
        for matrix in self.matrices:
            values = matrix @ values
        return values


def filter_labels(kernels: list[Kernel], values: Floats) -> Floats:
    """Return the sum of all kernels' answers.

    Args:
        kernels: One or more kernels between N points.
        values: (k, N).

    Returns:
        (k, N).
    """
    answers = np.empty_like(values)
    for start in range(0, len(values), AT_ONCE):
        part, answer = values[start : start + AT_ONCE], answers[start : start + AT_ONCE]
        if len(part) > ROW_BY_ROW:
            upright = np.ascontiguousarray(part.T)  # (N, k)
            answer[:] = _sum(kernels, upright).T
        else:
            for label, row in enumerate(part):
                answer[label] = _sum(kernels, row)
    return answers


def _sum(kernels: list[Kernel], values: Floats) -> Floats:
    total = kernels[0].apply(values)
    for kernel in kernels[1:]:
        total += kernel.apply(values)
    return total


def gaussian_kernel(features: Floats, weight: float) -> Kernel:
    """Return weight · exp(−½|f_i − f_j|²) for all pairs of points, normalised symmetrically.

    Normalised: entry (i, j) is divided by the root of row sum i · row sum j, so that crowded points
    do not outweigh others.

    Args:
        features: (d, N), in deviations.
        weight: Weight of the kernel.

    Returns:
        The kernel, as sparse matrices.

    Raises:
        TagmaskError: If the features span more cells than can be counted.
    """
    size, count = features.shape
    cells, rank, rest = _simplices(features)  # (d+1, N) each
    strides = _strides(cells)  # (d+2,)
    shares, axes = _shares(rank, rest)  # (N, d+1), (d+1, N)
    corner, vertices = _numbered(_keys(cells, axes, strides), shares.shape)  # (N, d+1) into (M,)
    del cells, rank, rest, axes
    blurs = [_blur(vertices, strides, axis) for axis in range(size + 1)]
    starts = np.arange(0, corner.size + 1, size + 1, dtype=np.int32)  # (N+1,)
    slicing = sparse.csr_array(
        (shares.reshape(-1), corner.reshape(-1), starts), shape=(count, len(vertices))
    )  # (N, M)
    ones = np.ones(count, np.float32)
    plain = Kernel(
        (slicing.T, *blurs, slicing), ones
    )  # a transposed view: splat shares the memory of slice
    slicing.data *= np.repeat(np.sqrt(np.float32(weight) / plain.apply(ones)), size + 1)
    return Kernel(plain.matrices, plain.apply(ones))


def _simplices(features: Floats) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int8], Floats]:
    """Return where each point lies: cells, rank and rest, (d+1, N) each.

    The corner of remainder 0 is at cells · (d+1), the point at cells · (d+1) + rest, and the
    largest rest has rank 0. The ranks tell which of the simplices around the corner it is.
    """
    size = len(features)
    lifted = _lift(features)  # (d+1, N)
    nearest = np.rint(lifted * np.float32(1 / (size + 1)))  # (d+1, N)
    rest = lifted - nearest * np.float32(size + 1)  # (d+1, N)
    rank = np.zeros(rest.shape, np.int8)  # (d+1, N)
    for first in range(size):
        for second in range(first + 1, size + 1):
            less = rest[first] < rest[second]  # (N,)
            rank[first] += less
            rank[second] += ~less
    # Rounding may leave the plane Σx = 0: as many of the coordinates as it is off, those rounded
    # furthest, go back.
    rank += nearest.sum(axis=0).astype(np.int8)
    back = (rank < 0).astype(np.int8) - (rank > size)  # (d+1, N)
    rank += back * np.int8(size + 1)
    rest -= back * np.float32(size + 1)
    return nearest.astype(np.int32) + back, rank, rest


def _lift(features: Floats) -> Floats:
    """Lift (d, N) to (d+1, N) on the plane Σx = 0.

    The scale is such that the blur has the deviation 1 of the features.
    """
    size, count = features.shape
    lifted = np.empty((size + 1, count), np.float32)
    total = np.zeros(count, np.float32)
    for axis in range(size, 0, -1):
        scaled = features[axis - 1] * np.float32(
            np.sqrt(2 / 3) * (size + 1) / np.sqrt(axis * (axis + 1))
        )  # (N,)
        lifted[axis] = total - np.float32(axis) * scaled
        total += scaled
    lifted[0] = total
    return lifted


def _strides(cells: npt.NDArray[np.int32]) -> list[int]:
    """Return what a cell along each of the d+1 axes adds to a key, then what a remainder adds.

    The last coordinate follows from the others and adds nothing. Each axis has one place more than
    is used, so that a step over its end meets an empty place.
    """
    places = [
        int(place) for place in np.ptp(cells, axis=1)[:-1] + 3
    ]  # corners are up to one cell lower
    strides = [1]
    for place in places:
        strides.append(strides[-1] * place)
    period = strides.pop()
    if period * len(cells) > np.iinfo(np.int64).max:
        raise TagmaskError(
            f"the kernel's features span {' × '.join(map(str, places))} cells, more than can be "
            "counted; give larger deviations (sxy, srgb)."
        )
    return [*strides, 0, period]


def _shares(rank: npt.NDArray[np.int8], rest: Floats) -> tuple[Floats, npt.NDArray[np.int8]]:
    """Return the share (N, d+1) of each corner in its point, and the axis (d+1, N) of each rank.

    The corner of remainder 0 comes first.
    """
    size, count = len(rank) - 1, rank.shape[1]
    falling, axes = np.empty_like(rest), np.empty_like(rank)  # (d+1, N) each, by rank
    points = np.arange(count)
    for axis in range(size + 1):
        place = rank[axis] * np.int64(count) + points  # (N,)
        falling.reshape(-1)[place] = rest[axis]
        axes.reshape(-1)[place] = axis
    falling *= np.float32(1 / (size + 1))
    shares = np.empty((count, size + 1), np.float32)
    shares[:, 0] = falling[size] + (1 - falling[0])
    for remainder in range(1, size + 1):
        np.subtract(
            falling[size - remainder], falling[size - remainder + 1], out=shares[:, remainder]
        )
    return shares, axes


def _keys(
    cells: npt.NDArray[np.int32], axes: npt.NDArray[np.int8], strides: list[int]
) -> Iterator[Whole]:
    """Yield for one remainder after the other the keys (N,) of that corner.

    From a remainder to the next, all coordinates rise by 1 but for the one of the last rank left,
    which drops by d: to the next remainder one cell down.
    """
    size = len(cells) - 1
    key = np.zeros(cells.shape[1], np.int64)  # (N,)
    for axis in range(size):
        key += (cells[axis] - (cells[axis].min() - 1)) * np.int64(strides[axis])
    yield key
    steps = strides[-1] - np.array(strides[:-1])  # (d+1,)
    for last in range(size, 0, -1):
        key = key + steps[axes[last]]
        yield key


def _numbered(rows: Iterable[Whole], shape: tuple[int, ...]) -> tuple[npt.NDArray[np.int32], Whole]:
    """Return the number of each key among the distinct ones, (N, d+1), and those, (M,), rising.

    No key occurs in two rows, and all of a row are less than those of the next.
    """
    numbers = np.empty(shape, np.int32)
    vertices: list[Whole] = []
    known = 0
    for remainder, keys in enumerate(rows):
        number, distinct = _ranked(keys)
        numbers[:, remainder] = number + np.int32(known)
        known += len(distinct)
        vertices.append(distinct)
    return numbers, np.concatenate(vertices)


def _ranked(keys: Whole) -> tuple[npt.NDArray[np.integer], Whole]:
    """Return what np.unique returns with its inverse, several times faster."""
    lowest, bits = keys.min(), len(keys).bit_length()
    if int(keys.max() - lowest).bit_length() + bits > 63:
        distinct, number = np.unique(keys, return_inverse=True)
        return number, distinct
    # A plain sort of (key, place) pairs in one integer is several times faster than an argsort.
    pairs = (keys - lowest << bits) + np.arange(len(keys))
    pairs.sort()
    place = pairs & ((1 << bits) - 1)
    pairs >>= bits
    fresh = np.empty(len(keys), np.bool_)
    fresh[0] = False
    np.not_equal(pairs[1:], pairs[:-1], out=fresh[1:])
    number = np.empty(len(keys), np.int32)
    number[place] = np.cumsum(fresh, dtype=np.int32)
    fresh[0] = True
    return number, pairs[fresh] + lowest


def _blur(vertices: Whole, strides: list[int], axis: int) -> sparse.csr_array[np.float32]:
    """Return (M, M) that adds half of its two neighbours along one axis to each vertex.

    Absent neighbours count 0. The neighbour is d steps up along the axis and one down along all
    others: a cell and a remainder.
    """
    *strides, period = strides
    size, count = len(strides) - 1, len(vertices)
    wanted = vertices + (strides[axis] - period)  # (M,)
    edge = np.searchsorted(
        vertices, period
    )  # before it the remainder is 0, and one less is d of a lower cell
    wanted[:edge] = vertices[:edge] + (size * period + strides[axis] - sum(strides))
    nearest = np.minimum(np.searchsorted(vertices, wanted), count - 1)  # (M,)
    lower = np.flatnonzero(vertices[nearest] == wanted)
    upper = nearest[lower]
    # Three entries in every row, absent neighbours as 0 times itself: uneven rows make slower
    # products.
    starts = np.arange(0, 3 * count + 1, 3, dtype=np.int32)  # (M+1,)
    columns = np.repeat(np.arange(count, dtype=np.int32), 3)  # (3·M,)
    columns[3 * lower + 1] = upper
    columns[3 * upper + 2] = lower
    data = np.tile(np.array([1, 0, 0], np.float32), count)  # (3·M,)
    data[3 * lower + 1] = 0.5
    data[3 * upper + 2] = 0.5
    return sparse.csr_array((data, columns, starts), shape=(count, count))
