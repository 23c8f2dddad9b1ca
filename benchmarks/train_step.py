"""A training step with consistency against one without, and against one that keeps every attention matrix.

    python benchmarks/train_step.py [--cases NAME:SIZE:BATCH …] [--repeats 15] [--threads 1] [--json FILE]

A step is the forward pass of both views in one batch, the loss and the backward pass; no optimiser. Three ways:
- plain: the class loss only, timm's model as it is with fused attention;
- kept: also both consistency losses, the straightforward way: a hook keeps (B, heads, N, N) of every block;
- tagmask: the same losses by ``TwoViews``, which keeps head means only. Checked to give the loss of `kept`.
Ratios are against plain; goal: tagmask at most 1.05× the time and 1.05× the memory. Weights are random: no matter here.

Time: the ways take turns, each in its own process, forwards and backwards; a ratio is taken within each turn, and the
table has the median and the quartiles of the ratios. Processor time with one thread, which other programs hardly
disturb, else wall time. Memory: the largest resident size of one more process per way, beyond its size before the model
was made: weights, gradients, activations and work space. There malloc is set to give freed tensors back at once, so
that the number does not depend on how the heap happens to break up.

The default takes about five minutes, `--cases vit_base_r50_s16_384:384:2 --repeats 5` about ten.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tagmask.acr.views import HorizontalFlip
from tagmask.config import TrainSettings
from tagmask.models.classifier import Classifier
from tagmask.training.classifier import TwoViews

DEFAULT = ("deit_small_patch16_224:224:2", "deit_small_patch16_224:384:1")
CLASSES, WEIGHT = 20, 100.0  # as VOC has; α and β
GIVE_BACK = "MALLOC_MMAP_THRESHOLD_"  # glibc: larger blocks go back to the system when freed


def plain_loss(classifier: Classifier, images: Tensor, targets: Tensor) -> Tensor:
    """Both views in one batch, class loss only."""
    logits = classifier.vit(classifier.normalize(torch.cat([images, images.flip(-1)])))
    first, second = logits.chunk(2)
    return F.multilabel_soft_margin_loss(first, targets) + F.multilabel_soft_margin_loss(
        second, targets
    )


def kept_loss(classifier: Classifier, images: Tensor, targets: Tensor) -> Tensor:
    """The attention of every block from a hook, stacked, restored by index and compared."""
    matrices: list[Tensor] = []
    hooks = []
    for block in classifier.blocks:
        block.attn.fused_attn = False
        hooks.append(
            block.attn.attn_drop.register_forward_hook(
                lambda _module, _inputs, out: matrices.append(out)
            )
        )
    loss = plain_loss(classifier, images, targets)
    for hook in hooks:
        hook.remove()
    original, transformed = torch.stack([matrix.mean(dim=1) for matrix in matrices], dim=1).chunk(
        2
    )  # (B, L, n+1, n+1) each
    height, width = classifier.grid(*images.shape[-2:])
    flipped = torch.arange(height * width).view(height, width).flip(-1).flatten() + 1
    index = torch.cat([torch.zeros(1, dtype=torch.long), flipped])  # (n+1,)
    restored = transformed[..., index, :][..., index]
    activation = F.l1_loss(original[..., 0, 1:], restored[..., 0, 1:])
    affinity = F.l1_loss(original[..., 1:, 1:], restored[..., 1:, 1:])
    return loss + WEIGHT * activation + WEIGHT * affinity


def tagmask_loss(classifier: Classifier, images: Tensor, targets: Tensor) -> Tensor:
    """What ``tagmask train`` computes."""
    settings = TrainSettings(alpha=WEIGHT, beta=WEIGHT, alpha_absolute=True)
    losses: dict[str, Tensor] = TwoViews(classifier, HorizontalFlip(), settings)(images, targets)
    return losses["loss"]


Way = Callable[[Classifier, Tensor, Tensor], Tensor]
Case = tuple[
    str, int, int, int
]  # backbone, pixels of a side, images per step (each in two views), threads
WAYS: dict[str, Way] = {"plain": plain_loss, "kept": kept_loss, "tagmask": tagmask_loss}


def peak_megabytes() -> float:
    """The largest resident size of this process so far."""
    return (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        * (1 if sys.platform == "darwin" else 1024)
        / 1e6
    )


def work(pipe: Connection, way: str, backbone: str, size: int, batch: int, threads: int) -> None:
    """A process of one way: for every message one step; answers seconds, loss, and megabytes beyond the start."""
    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    before = peak_megabytes()
    torch.manual_seed(0)
    classifier = Classifier(backbone, CLASSES, img_size=size).train()
    images = torch.rand(batch, 3, size, size)
    targets = (torch.rand(batch, CLASSES) < 0.1).float()
    while pipe.recv():
        classifier.zero_grad()
        start = clock()
        loss = WAYS[way](classifier, images, targets)
        loss.backward()
        seconds = clock() - start
        pipe.send((seconds, loss.item(), peak_megabytes() - before))
        del loss


class Worker:
    """A way at work in its own process, and what it has answered."""

    def __init__(self, way: str, *case: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=work, args=(other, way, *case), daemon=True)
        self.process.start()
        other.close()
        self.seconds: list[float] = []
        self.loss = self.megabytes = math.nan

    def step(self) -> None:
        self.pipe.send(True)
        seconds, self.loss, self.megabytes = self.pipe.recv()
        self.seconds.append(seconds)

    def stop(self) -> None:
        self.pipe.send(False)
        self.process.join()


def all_seconds(case: Case, repeats: int) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    """Seconds of every step of each way, (repeats,); step i of all ways was taken in turn i."""
    workers = {way: Worker(way, *case) for way in WAYS}
    for turn in range(repeats + 1):
        for worker in list(workers.values())[:: 1 if turn % 2 else -1]:
            worker.step()
    for worker in workers.values():
        worker.stop()
    kept, ours = workers["kept"].loss, workers["tagmask"].loss
    if not math.isclose(kept, ours, rel_tol=1e-4):
        raise SystemExit(f"kept gives the loss {kept}, tagmask {ours}: nothing to compare.")
    return {
        way: np.array(worker.seconds[1:]) for way, worker in workers.items()
    }  # the first is not warm


def megabytes(way: str, case: Case) -> float:
    """The peak memory of one step."""
    os.environ[GIVE_BACK] = "65536"  # bytes; the process inherits it
    worker = Worker(way, *case)
    del os.environ[GIVE_BACK]
    worker.step()
    worker.stop()
    return worker.megabytes


def measure(case: Case, repeats: int) -> list[dict[str, Any]]:
    """One row per way."""
    memory = {way: megabytes(way, case) for way in WAYS}
    seconds = all_seconds(case, repeats)
    rows = []
    for way in WAYS:
        low, middle, high = np.quantile(seconds[way] / seconds["plain"], (0.25, 0.5, 0.75)).tolist()
        row = {
            "case": ":".join(map(str, case[:3])),
            "way": way,
            "time_ratio": middle,
            "quartiles": (low, high),
        }
        rows.append(
            row
            | {"memory_ratio": memory[way] / memory["plain"], "megabytes": memory[way]}
            | {"seconds": float(np.median(seconds[way]))}
        )
    return rows


def parse(text: str) -> tuple[str, int, int]:
    """NAME:SIZE:BATCH, for example deit_small_patch16_224:224:2."""
    name, size, batch = text.split(":")
    if min(int(size), int(batch)) < 1:
        raise ValueError(text)
    return name, int(size), int(batch)


def main() -> None:
    """Measure, print, and write with --json."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=parse, nargs="+", default=[parse(text) for text in DEFAULT])
    parser.add_argument("--repeats", type=int, default=15, help="turns of all ways")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the rows here")
    options = parser.parse_args()
    if min(options.repeats, options.threads) < 1:
        parser.error("--repeats and --threads must be at least 1")
    head = f"{'backbone:size:batch':<32}{'way':<9}{'time':>6}{'quartiles':>14}{'memory':>9}{'seconds':>9}{'MB':>7}"
    print(head, flush=True)
    rows = []
    for case in options.cases:
        for row in measure((*case, options.threads), options.repeats):
            rows.append(row)
            time_ratio, (low, high) = row["time_ratio"], row["quartiles"]
            ratios = (
                f"{time_ratio:>5.2f}×{f'{low:.2f}–{high:.2f}×':>14}{row['memory_ratio']:>8.2f}×"
            )
            print(
                f"{row['case']:<32}{row['way']:<9}{ratios}{row['seconds']:>9.2f}{row['megabytes']:>7.0f}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
