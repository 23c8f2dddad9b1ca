"""The random walk by sparse steps against squaring the dense transition matrix, on a VOC-size grid.

    python benchmarks/walk.py [--height 63] [--width 47] [--channels 448] [--maps 4] [--repeats 5]
        [--device cpu] [--json FILE]

Both start from the same features at stride 8 (radius 5, β = 36) and walk 2^6 steps, in float32; building the matrix
counts, in time and in memory. The dense peer fills an (n, n) matrix, squares it six times between two buffers, and
multiplies with the maps once. Both results are checked to agree. One thread, best repeat; peak memory is all that is
held beyond the features and maps. Goal: ≥ 20× faster, ≥ 20× less memory.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tagmask.masks.walk import edge_affinities, half_offsets, overlap, random_walk, transition

SQUARINGS = 6
BETA = 36
Array = npt.NDArray[np.float32]


def make_input(height: int, width: int, channels: int, count: int) -> tuple[Array, Array]:
    """Features (C, h, w) with a few plain areas and a little noise; maps (K, h, w)."""
    rng = np.random.default_rng(0)
    area = (np.arange(height)[:, None] * 3 // height) * 3 + np.arange(
        width
    ) * 3 // width  # (h, w), 0 to 8
    features = rng.normal(0, 0.3, (channels, 9))[:, area] + rng.normal(
        0, 0.03, (channels, height, width)
    )
    return features.astype(np.float32), rng.random((count, height, width), dtype=np.float32)


def sparse_steps(features: Array, maps: Array) -> Array:
    """As the library does it."""
    return random_walk(maps, transition(features, beta=BETA), 2**SQUARINGS).astype(
        np.float32, copy=False
    )


def dense_matrix(features: Array) -> Array:
    """(n, n), filled from the same affinities."""
    _, height, width = features.shape
    nodes = np.arange(height * width).reshape(height, width)
    matrix = np.eye(nodes.size, dtype=np.float32)
    for edge, (dy, dx) in zip(edge_affinities(features), half_offsets(), strict=True):
        (rows, other_rows), (columns, other_columns) = overlap(height, dy), overlap(width, dx)
        node, neighbour = nodes[rows, columns], nodes[other_rows, other_columns]
        matrix[node, neighbour] = matrix[neighbour, node] = edge[rows, columns] ** BETA
    matrix /= matrix.sum(axis=1, keepdims=True)
    return matrix


def dense_squaring(features: Array, maps: Array) -> Array:
    """T^(2^6) by six squarings, then one product with the maps."""
    matrix = dense_matrix(features)
    other = np.empty_like(matrix)
    for _ in range(SQUARINGS):
        np.matmul(matrix, matrix, out=other)
        matrix, other = other, matrix
    walked: Array = (matrix @ maps.reshape(len(maps), -1).T).T.reshape(maps.shape)
    return walked


def best_seconds(works: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The fastest of several, the ways taking turns so that other load on the machine meets all of them."""
    best = dict.fromkeys(works, float("inf"))
    for _ in range(repeats):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def peak_megabytes(work: Callable[[], object]) -> float:
    """The most memory held at once beyond the input."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def measure(features: Array, maps: Array, repeats: int, device: str | None) -> list[dict[str, Any]]:
    """One row per way."""
    difference = np.abs(sparse_steps(features, maps) - dense_squaring(features, maps)).max()
    if difference > 1e-4:
        raise SystemExit(f"the two ways differ by {difference:.1e}: nothing to compare.")
    print(f"largest difference of the two results: {difference:.1e}")
    matrix = transition(features, beta=BETA)
    works: dict[str, Callable[[], object]] = {
        "sparse steps": lambda: sparse_steps(features, maps),
        "  building only": lambda: transition(features, beta=BETA),
        "  64 steps only": lambda: random_walk(maps, matrix, 2**SQUARINGS),
    }
    if device:
        works[f"  by torch, {device}"] = lambda: random_walk(maps, matrix, 2**SQUARINGS, device)
    works["dense squaring"] = lambda: dense_squaring(features, maps)
    best = best_seconds(works, repeats)
    return [
        {"way": name, "ms": 1e3 * best[name], "peak_mb": peak_megabytes(work)}
        for name, work in works.items()
    ]


def show(
    rows: list[dict[str, Any]], grid: tuple[int, int], channels: int, maps: int
) -> dict[str, float]:
    """Print the table; return how much faster and smaller the sparse way is."""
    print(f"{grid[0]}×{grid[1]} grid, {channels} channels, {maps} maps, {2**SQUARINGS} steps")
    print(f"{'way':<18}{'ms':>10}{'peak MB':>10}{'time':>9}{'memory':>9}")
    first, last = rows[0], rows[-1]
    for line in rows:
        print(
            f"{line['way']:<18}{line['ms']:>10.1f}{line['peak_mb']:>10.2f}"
            f"{line['ms'] / first['ms']:>8.2f}×{line['peak_mb'] / first['peak_mb']:>8.2f}×"
        )
    return {
        "time, dense squaring / sparse steps": last["ms"] / first["ms"],
        "memory, dense squaring / sparse steps": last["peak_mb"] / first["peak_mb"],
    }


def main() -> None:
    """Measure, print, and write with --json."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--height", type=int, default=63)
    parser.add_argument("--width", type=int, default=47)
    parser.add_argument("--channels", type=int, default=448)
    parser.add_argument("--maps", type=int, default=4, help="background and three classes")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--device", help="also take the steps by torch on this device, e.g. cpu or cuda"
    )
    parser.add_argument("--json", type=Path, help="write rows and ratios here")
    options = parser.parse_args()
    if min(options.height, options.width, options.channels, options.maps, options.repeats) < 1:
        parser.error("all numbers must be at least 1")
    features, maps = make_input(options.height, options.width, options.channels, options.maps)
    rows = measure(features, maps, options.repeats, options.device)
    ratios = show(rows, (options.height, options.width), options.channels, options.maps)
    if options.json:
        options.json.write_text(json.dumps({"ratios": ratios, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
