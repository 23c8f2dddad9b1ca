"""The dense CRF against pydensecrf2, the authors' C++ code in Python's clothes, on one VOC-size image.

    python benchmarks/crf.py [--labels 2 4 21] [--presets seeds segmentation] [--image FILE] [--repeats 4]
        [--device cpu] [--json FILE]

375×500 pixels, 10 iterations; building the lattices counts. The ways:
- pydensecrf2: both kernels as its users write it (extra `oracle`);
- tagmask: `dense_crf`, an image of this size was seen before, so the kernel that depends on the size only is at hand;
- new size: the same for the first image of a size;
- with --device: the iterations by torch on that device, which can be a GPU.
All are checked to give the same labels. Without --image the picture is drawn: a few shaded areas, texture and noise.

One thread. The ways take turns and the fastest turn counts, in processor time, which other programs hardly disturb.
Memory: the largest resident size of one more process per way, beyond what it held with its input (Linux only).
Goal: at most 1.0× the time of pydensecrf2 for 2 and 4 labels.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import importlib
import json
import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from tagmask.masks import crf
from tagmask.masks.crf import PRESETS, CrfSettings, dense_crf

try:
    peer = importlib.import_module("pydensecrf.densecrf")
except ImportError:
    raise SystemExit(
        "pydensecrf2 is not installed: pip install 'tagmask[oracle]' (it needs a compiler)."
    ) from None

HEIGHT, WIDTH = 375, 500
Pixels = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def enlarged(coarse: npt.NDArray[np.float64]) -> Floats:
    """(h, w) to (HEIGHT, WIDTH), smoothly."""
    return np.asarray(
        Image.fromarray(coarse.astype(np.float32)).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
    )


def make_image(file: Path | None) -> Pixels:
    """(HEIGHT, WIDTH, 3)."""
    if file:
        with Image.open(file) as opened:
            return np.array(opened.convert("RGB").resize((WIDTH, HEIGHT)))
    rng = np.random.default_rng(0)
    area = np.stack([enlarged(rng.normal(0, 1, (5, 6))) for _ in range(4)]).argmax(
        axis=0
    )  # (H, W), 0 to 3
    channels = []
    for _ in range(3):
        shade = enlarged(rng.normal(0, 25, (6, 8)))
        texture = enlarged(rng.normal(0, 8, (HEIGHT // 6, WIDTH // 6))) * (area > 1)
        channels.append(
            rng.uniform(40, 210, 4)[area] + shade + texture + rng.normal(0, 1.5, area.shape)
        )
    return np.stack(channels, axis=-1).clip(0, 255).astype(np.uint8)


def make_probabilities(labels: int) -> Floats:
    """(labels, HEIGHT, WIDTH), smooth."""
    rng = np.random.default_rng(1)
    powers = np.empty((labels, HEIGHT, WIDTH), np.float32)
    for row in powers:
        row[:] = np.exp(enlarged(rng.normal(0, 2, (6, 8))))
    powers /= powers.sum(axis=0)
    return powers


def pydensecrf2(image: Pixels, probabilities: Floats, settings: CrfSettings) -> Floats:
    """As its users write it."""
    labels = len(probabilities)
    model = peer.DenseCRF2D(WIDTH, HEIGHT, labels)
    model.setUnaryEnergy(-np.log(probabilities.clip(1e-5, 1)).reshape(labels, -1))
    model.addPairwiseGaussian(sxy=settings.gaussian_sxy, compat=settings.gaussian_weight)
    model.addPairwiseBilateral(
        sxy=settings.bilateral_sxy,
        srgb=settings.bilateral_srgb,
        rgbim=image,
        compat=settings.bilateral_weight,
    )
    return np.array(model.inference(settings.iterations)).reshape(probabilities.shape)


def new_size(image: Pixels, probabilities: Floats, settings: CrfSettings) -> Floats:
    """As if no image of this size had been seen."""
    crf._smoothness.cache_clear()
    return dense_crf(image, probabilities, settings)


WAYS: dict[str, Callable[[Pixels, Floats, CrfSettings], Floats]] = {
    "pydensecrf2": pydensecrf2,
    "new size": new_size,
    "tagmask": dense_crf,  # after `new size`, which leaves its kernel behind
}


def best_seconds(
    image: Pixels, probabilities: Floats, settings: CrfSettings, repeats: int
) -> dict[str, float]:
    """The fastest turn of each way."""
    seconds = dict.fromkeys(WAYS, float("inf"))
    labels = {}
    for _ in range(repeats):
        for way, solve in WAYS.items():
            start = time.process_time()
            refined = solve(image, probabilities, settings)
            seconds[way] = min(seconds[way], time.process_time() - start)
            labels[way] = refined.argmax(axis=0)
    agreement = min(float((labels[way] == labels["pydensecrf2"]).mean()) for way in WAYS)
    if agreement < 0.999:
        raise SystemExit(f"only {agreement:.2%} of the labels agree: nothing to compare.")
    return seconds


def one_peak(way: str, file: Path | None, labels: int, settings: CrfSettings) -> float:
    """In a process of its own: megabytes of one turn."""
    image, probabilities = make_image(file), make_probabilities(labels)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    WAYS[way](image, probabilities, settings)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return (peak - pages * resource.getpagesize()) / 1e6


def megabytes(way: str, file: Path | None, labels: int, settings: CrfSettings) -> float:
    """The peak memory of one turn."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(one_peak, (way, file, labels, settings))


def measure(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One row per preset, number of labels and way."""
    cases = [(preset, labels) for preset in options.presets for labels in options.labels]
    ways = ("pydensecrf2", "new size")  # a process that starts afresh has seen no size
    peaks = {
        (*case, way): megabytes(way, options.image, case[1], PRESETS[case[0]])
        for case in cases
        for way in ways
    }
    image = make_image(options.image)  # only now: a process that starts another hands on its size
    for preset, labels in cases:
        seconds = best_seconds(image, make_probabilities(labels), PRESETS[preset], options.repeats)
        for way in ("pydensecrf2", "tagmask", "new size", *list(WAYS)[3:]):
            peak = peaks.get((preset, labels, way))
            yield {
                "preset": preset,
                "labels": labels,
                "way": way,
                "time_ratio": seconds[way] / seconds["pydensecrf2"],
                "memory_ratio": peak and peak / peaks[preset, labels, "pydensecrf2"],
                "seconds": seconds[way],
                "megabytes": peak,
            }


def main() -> None:
    """Measure, print, and write with --json."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--labels", type=int, nargs="+", default=[2, 4, 21])
    parser.add_argument(
        "--presets", nargs="+", choices=list(PRESETS), default=["seeds", "segmentation"]
    )
    parser.add_argument("--image", type=Path, help="a photo instead of the drawn picture")
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--device", help="add a row by torch on this device, e.g. cpu or cuda")
    parser.add_argument("--json", type=Path, help="write the rows here")
    options = parser.parse_args()
    if options.repeats < 1 or min(options.labels) < 2:
        parser.error("--repeats must be at least 1 and --labels at least 2")
    if options.device:
        WAYS[f"by {options.device}"] = lambda image, maps, how: dense_crf(
            image, maps, replace(how, device=options.device)
        )
    print(
        f"{'preset':<14}{'labels':>6}  {'way':<12}{'time':>7}{'memory':>9}{'ms':>8}{'MB':>7}",
        flush=True,
    )
    rows = []
    for row in measure(options):
        rows.append(row)
        memory = f"{row['memory_ratio']:>8.2f}×" if row["megabytes"] else f"{'':>9}"
        size = f"{row['megabytes']:>7.0f}" if row["megabytes"] else ""
        numbers = f"{row['time_ratio']:>6.2f}×{memory}{1e3 * row['seconds']:>8.1f}{size}"
        print(f"{row['preset']:<14}{row['labels']:>6}  {row['way']:<12}{numbers}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
