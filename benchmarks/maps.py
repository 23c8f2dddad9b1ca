"""Localisation maps of one image against a plain forward pass, and against one backward pass per class.

    python benchmarks/maps.py [--classes 1 3 8] [--repeats 24] [--json FILE]

DeiT-S at 224 pixels, one image, one thread. The ways:
- forward: timm's model with fused attention as it is, no gradient, no maps;
- per class: one forward pass with the attention of every block kept, then for each class a backward pass into all
  parameters, as the authors' released code does (it is slow and takes part in every sixth turn);
- tagmask: ``localize_both``, gradients of the last two blocks, affinity of all. Checked: the maps of `per class`;
- tagmask*: ``localize`` without affinity, so that no block needs its attention written down;
- generic, grad_cam, cam, ts_cam, rollout: the methods that ACR is compared with, with affinity.
Weights are random: they do not matter. Goals: tagmask at most 1.2× the time of forward at 3 classes and 1.3× at 8, and
7× faster than per class at 3; generic at most 3× forward at 3 classes, and at most 2× the memory of tagmask.

Time: the ways take turns, each in its own process, and the fastest turn counts, in processor time, which other programs
hardly disturb. Memory: the largest resident size of one more process per way, as in train_step.py.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tagmask.acr.localize import localize, localize_both
from tagmask.methods import METHODS
from tagmask.models.classifier import Classifier
from train_step import GIVE_BACK, peak_megabytes

BACKBONE, SIZE, CLASSES = "deit_small_patch16_224", 224, 20
SLOW = 6  # one turn of `per class` and `generic` for so many of the others


def forward(model: Classifier, images: Tensor, classes: list[int]) -> Tensor:
    """Logits only, (1, C)."""
    with torch.no_grad():
        logits: Tensor = model.vit(images)
    return logits


def per_class(model: Classifier, images: Tensor, classes: list[int]) -> Tensor:
    """Maps (k, n) by one full backward pass per class."""
    matrices: list[Tensor] = []  # (1, heads, n+1, n+1) of every block

    def keep(_module: Any, _inputs: Any, matrix: Tensor) -> None:
        matrix.retain_grad()
        matrices.append(matrix)

    hooks = [block.attn.attn_drop.register_forward_hook(keep) for block in model.blocks]
    for block in model.blocks:
        block.attn.fused_attn = False
    logits = model.vit(images)
    stars = []
    for label in classes:
        model.zero_grad()
        for matrix in matrices:
            matrix.grad = None
        logits[0, label].backward(retain_graph=True)
        gradients = [matrix.grad for matrix in matrices[-2:] if matrix.grad is not None]
        stars.append(
            torch.stack([gradient[0, :, 0, 1:].relu().mean(0) for gradient in gradients]).sum(0)
        )
    for hook in hooks:
        hook.remove()
    affinity = torch.stack([matrix.detach().mean(1)[0, 1:, 1:] for matrix in matrices]).sum(
        0
    )  # (n, n)
    return torch.stack(stars) @ affinity.T


def tagmask(model: Classifier, images: Tensor, classes: list[int]) -> Tensor:
    """Maps (k, n) as ``tagmask seeds`` makes them, with and without affinity."""
    _, refined = localize_both(model, images, [classes])
    return refined[0].flatten(1)


def tagmask_star(model: Classifier, images: Tensor, classes: list[int]) -> Tensor:
    """Maps (k, n) without affinity."""
    return localize(model, images, [classes], affinity=False)[0].flatten(1)


def compared(name: str, model: Classifier, images: Tensor, classes: list[int]) -> Tensor:
    """Maps (k, n) of another method, with affinity."""
    return localize_both(model, images, [classes], METHODS[name].maps)[1][0].flatten(1)


WAYS: dict[str, Callable[[Classifier, Tensor, list[int]], Tensor]] = {
    "forward": forward,
    "per class": per_class,
    "tagmask": tagmask,
    "tagmask*": tagmask_star,
    **{
        name: partial(compared, name)
        for name in ("generic", "grad_cam", "cam", "ts_cam", "rollout")
    },
}


def work(pipe: Connection, way: str) -> None:
    """A process of one way: for every number of classes one turn; answers seconds, maps, megabytes beyond the start."""
    torch.set_num_threads(1)
    before = peak_megabytes()
    torch.manual_seed(0)
    model = Classifier(BACKBONE, CLASSES).eval()
    images = torch.rand(1, 3, SIZE, SIZE)
    while count := pipe.recv():
        start = time.process_time()
        maps = WAYS[way](model, images, list(range(count)))
        seconds = time.process_time() - start
        pipe.send((seconds, maps.flatten().tolist(), peak_megabytes() - before))


class Worker:
    """A way at work in its own process."""

    def __init__(self, way: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=work, args=(other, way), daemon=True)
        self.process.start()
        other.close()

    def turn(self, count: int) -> tuple[float, list[float], float]:
        self.pipe.send(count)
        seconds, maps, peak = self.pipe.recv()
        return seconds, maps, peak

    def stop(self) -> None:
        self.pipe.send(0)
        self.process.join()


def best_seconds(workers: dict[str, Worker], count: int, repeats: int) -> dict[str, float]:
    """The fastest turn of each way."""
    seconds: dict[str, list[float]] = {way: [] for way in workers}
    maps: dict[str, list[float]] = {}
    for turn in range(repeats):
        for way, worker in workers.items():
            if way not in ("per class", "generic") or turn % SLOW == 0:
                spent, maps[way], _ = worker.turn(count)
                seconds[way].append(spent)
    pairs = zip(maps["per class"], maps["tagmask"], strict=True)
    apart = max(abs(slow - fast) for slow, fast in pairs) / max(maps["per class"])
    if apart > 1e-3:
        raise SystemExit(
            f"the maps of per class and tagmask differ by {apart:.1e}: nothing to compare."
        )
    return {way: min(spent) for way, spent in seconds.items()}


def megabytes(way: str, count: int) -> float:
    """The peak memory of one turn."""
    os.environ[GIVE_BACK[0]] = GIVE_BACK[1]  # the process inherits it
    worker = Worker(way)
    del os.environ[GIVE_BACK[0]]
    _, _, peak = worker.turn(count)
    worker.stop()
    return peak


def measure(counts: list[int], repeats: int) -> Iterator[dict[str, Any]]:
    """One row per number of classes and way."""
    plain = megabytes("forward", 1)  # whatever the number of classes
    workers = {way: Worker(way) for way in WAYS}
    for count in counts:
        seconds = best_seconds(workers, count, repeats)
        for way in WAYS:
            peak = plain if way == "forward" else megabytes(way, count)
            yield {
                "classes": count,
                "way": way,
                "time_ratio": seconds[way] / seconds["forward"],
                "tagmask_is_faster_by": seconds[way] / seconds["tagmask"],
                "memory_ratio": peak / plain,
                "seconds": seconds[way],
                "megabytes": peak,
            }
    for worker in workers.values():
        worker.stop()


def main() -> None:
    """Measure, print, and write with --json."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--classes", type=int, nargs="+", default=[1, 3, 8], help=f"1 to {CLASSES} each"
    )
    parser.add_argument("--repeats", type=int, default=24)
    parser.add_argument("--json", type=Path, help="write the rows here")
    options = parser.parse_args()
    if options.repeats < 1 or not all(1 <= count <= CLASSES for count in options.classes):
        parser.error(f"--repeats must be at least 1 and --classes 1 to {CLASSES}")
    print(
        f"{'classes':>7}  {'way':<10}{'time':>7}{'/tagmask':>10}{'memory':>9}{'ms':>8}{'MB':>7}",
        flush=True,
    )
    rows = []
    for row in measure(options.classes, options.repeats):
        rows.append(row)
        ratios = f"{row['time_ratio']:>6.2f}×{row['tagmask_is_faster_by']:>9.2f}×{row['memory_ratio']:>8.2f}×"
        numbers = f"{1e3 * row['seconds']:>8.1f}{row['megabytes']:>7.0f}"
        print(f"{row['classes']:>7}  {row['way']:<10}{ratios}{numbers}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
