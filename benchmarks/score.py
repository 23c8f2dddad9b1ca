"""The 100-threshold curve in one pass against one pass per threshold, on VOC-size maps.

    python benchmarks/score.py [--images 300] [--slow-images 6] [--repeats 3] [--json FILE]

Both peers are exact, and checked to give the same curve:
- argmax: per threshold an argmax over [t, maps…] and a confusion matrix, as evaluation scripts do;
- compare: the top class and its value are kept, so that a pass is one comparison and a confusion matrix.
They are slow, so they see the first --slow-images images only and their time for all is scaled up (marked ~).
Ratios compare the same images. One thread; each image counts with its best repeat. Goal: argmax ≥ 40×.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tagmask.scoring import Sweep
from tagmask.scoring.sweep import Sample

HEIGHT, WIDTH, CLASSES, THRESHOLDS = 375, 500, 21, 100
GRID = (24, 32)  # patches
KINDS = ("float32", "float16", "uint8")  # of the maps; the peers get float32


def upsample(grid: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """(h, w) to (HEIGHT, WIDTH), bilinear."""
    rows, columns = (
        np.linspace(0, size - 1, full)
        for size, full in zip(grid.shape, (HEIGHT, WIDTH), strict=True)
    )
    tall = np.stack(
        [np.interp(rows, np.arange(len(line)), line) for line in grid.T], axis=1
    )  # (HEIGHT, w)
    return np.stack(
        [np.interp(columns, np.arange(len(line)), line) for line in tall]
    )  # (HEIGHT, WIDTH)


def make_images(total: int) -> Iterator[Sample]:
    """Images with 1–3 tags: smooth maps from a patch grid, masks from a disturbed copy of them."""
    rng = np.random.default_rng(0)
    for index in range(total):
        classes = rng.permutation(CLASSES - 1)[: 1 + index % 3]  # (k,)
        maps = np.stack([upsample(rng.random(GRID) ** 3) for _ in classes])  # (k, H, W)
        maps -= maps.min(axis=(1, 2), keepdims=True)
        maps /= maps.max(axis=(1, 2), keepdims=True)
        noisy = maps + upsample(rng.normal(0, 0.1, GRID))  # (k, H, W)
        target = np.where(noisy.max(axis=0) > 0.3, classes[noisy.argmax(axis=0)] + 1, 0).astype(
            np.uint8
        )
        target[rng.random(target.shape) < 0.05] = 255
        yield classes, maps.astype(np.float32), target


def stored_as(sample: Sample, kind: str) -> Sample:
    """The sample with its maps as they lie on disk."""
    classes, maps, target = sample
    return (
        classes,
        np.rint(maps * 255).astype(np.uint8) if kind == "uint8" else maps.astype(kind),
        target,
    )


def rounded_down_thresholds() -> npt.NDArray[np.float32]:
    """(T,) so rounded that a float32 exceeds them exactly where it exceeds i/100."""
    exact = np.arange(THRESHOLDS) / THRESHOLDS
    near = exact.astype(np.float32)
    return np.where(near > exact, np.nextafter(near, np.float32(-1)), near)


def count(prediction: npt.NDArray[Any], target: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """The usual (K, K) confusion matrix."""
    scored = target < CLASSES  # (H, W)
    key = target[scored].astype(np.intp) * CLASSES + prediction[scored]
    return np.bincount(key, minlength=CLASSES**2).reshape(CLASSES, CLASSES)


def argmax_passes(sample: Sample) -> npt.NDArray[np.int64]:
    """(T, K, K) by T × (argmax, confusion matrix)."""
    classes, maps, target = sample
    labels = np.array([0, *(np.asarray(classes) + 1)])  # (1+k,)
    stack = np.concatenate([np.zeros((1, HEIGHT, WIDTH), np.float32), maps])  # (1+k, H, W)
    confusions = []
    for threshold in rounded_down_thresholds():
        stack[0] = threshold
        confusions.append(count(labels[stack.argmax(axis=0)], target))
    return np.stack(confusions)


def compare_passes(sample: Sample) -> npt.NDArray[np.int64]:
    """(T, K, K) by one argmax and T × (comparison, confusion matrix)."""
    classes, maps, target = sample
    label, value = (np.asarray(classes) + 1)[maps.argmax(axis=0)], maps.max(axis=0)  # (H, W) each
    return np.stack(
        [count(label * (value > threshold), target) for threshold in rounded_down_thresholds()]
    )


def check(sample: Sample) -> None:
    """All ways must tell the same."""
    counter = Sweep(CLASSES, THRESHOLDS)
    counter.add(*sample)
    for peer in (argmax_passes, compare_passes):
        if not np.array_equal(peer(sample), counter.result().confusions):
            raise SystemExit(f"{peer.__name__} and the one pass differ: nothing to compare.")


def best_seconds(work: Callable[[], object], repeats: int) -> float:
    """The fastest of several."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def peak_megabytes(work: Callable[[], object]) -> float:
    """The most memory held at once beyond the image itself."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def measure(total: int, slow: int, repeats: int) -> list[dict[str, Any]]:
    """One row per way: seconds per image, peak memory."""
    counter = Sweep(CLASSES, THRESHOLDS)
    spent: dict[str, list[float]] = {}
    peak: dict[str, float] = {}
    for index, sample in enumerate(make_images(total)):
        works: dict[str, Callable[[], object]] = {}
        for kind in KINDS:
            works[f"one pass, {kind}"] = partial(counter.add, *stored_as(sample, kind))
        if index < slow:
            check(sample)
            works["100 compare passes"] = partial(compare_passes, sample)
            works["100 argmax passes"] = partial(argmax_passes, sample)
        for name, work in works.items():
            spent.setdefault(name, []).append(best_seconds(work, repeats))
            if index < slow:
                peak[name] = max(peak.get(name, 0.0), peak_megabytes(work))
    drawing = best_seconds(counter.result, repeats)  # once per data set, not per image
    return [row(name, times, total, slow, drawing, peak[name]) for name, times in spent.items()]


def row(
    name: str, times: list[float], total: int, slow: int, drawing: float, peak: float
) -> dict[str, Any]:
    """One line of the table; `drawing` is the time of Sweep.result."""
    once = drawing if name.startswith("one pass") else 0.0
    return {
        "way": name,
        "images": len(times),
        "ms_per_image": 1e3 * (float(np.mean(times[:slow])) + once / total),
        "seconds_all": float(np.mean(times)) * total + once,
        "peak_mb": peak,
    }


def show(rows: list[dict[str, Any]], total: int, slow: int) -> dict[str, float]:
    """Print the table; return how much faster each kind of one pass is than each peer."""
    fastest = rows[0]["ms_per_image"]
    print(
        f"{HEIGHT}×{WIDTH}, 1–3 tags, {THRESHOLDS} thresholds; ms/image: first {slow} of {total} images"
    )
    print(
        f"{'way':<20}{'images':>8}{'ms/image':>10}{f'{total} images':>14}{'peak MB':>10}{'ratio':>9}"
    )
    for line in rows:
        mark = "" if line["images"] == total else "~"
        print(
            f"{line['way']:<20}{line['images']:>8}{line['ms_per_image']:>10.2f}"
            f"{mark + format(line['seconds_all'], '.2f') + ' s':>14}{line['peak_mb']:>10.1f}"
            f"{line['ms_per_image'] / fastest:>8.2f}×"
        )
    ours, peers = rows[: len(KINDS)], rows[len(KINDS) :]
    return {
        f"{peer['way']} / {mine['way']}": peer["ms_per_image"] / mine["ms_per_image"]
        for peer in peers
        for mine in ours
    }


def main() -> None:
    """Measure, print, and write with --json."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--slow-images", type=int, default=6, help="images that the peers see")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write rows and ratios here")
    options = parser.parse_args()
    if min(options.images, options.slow_images, options.repeats) < 1:
        parser.error("--images, --slow-images and --repeats must be at least 1")
    slow = min(options.slow_images, options.images)
    rows = measure(options.images, slow, options.repeats)
    ratios = show(rows, options.images, slow)
    if options.json:
        options.json.write_text(json.dumps({"ratios": ratios, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
