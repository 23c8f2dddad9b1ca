"""One training step with consistency losses against one without, and against keeping every attention matrix.

    python benchmarks/train_step.py [--backbones NAME …] [--batches 2 4] [--repeats 3] [--threads 1] [--json FILE]

A step is the forward pass of both views in one batch, the loss and the backward pass; no optimiser. Three ways:
- plain: the class loss only, timm's model with fused attention as it is;
- kept: also both consistency losses, the straightforward way: (B, heads, N, N) of every block is kept;
- tagmask: the same losses by ``TwoViews``, which keeps head means only. Checked to give the loss of `kept`.
Each way runs in a process of its own; the ways take turns, step by step, and the fastest step counts. Memory is the
process's largest resident size beyond that before the model was made: weights, gradients, activations, work space.
Goal: tagmask at most 1.1× the time and 1.1× the memory of plain. Weights are random: the cost does not depend on them.
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
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # torch is loaded by the workers only: a process inherits the peak memory of its parent
    from torch import Tensor

    from tagmask.models.classifier import Classifier

SIZES = {"deit_small_patch16_224": 224, "vit_base_r50_s16_384": 384}
CLASSES, WEIGHT = 20, 100.0  # VOC; α and β


def plain_loss(classifier: Classifier, images: Tensor, targets: Tensor) -> Tensor:
    """Both views in one batch, class loss only."""
    import torch
    import torch.nn.functional as F

    logits = classifier.vit(classifier.normalize(torch.cat([images, images.flip(-1)])))
    one, other = logits.chunk(2)
    return F.multilabel_soft_margin_loss(one, targets) + F.multilabel_soft_margin_loss(other, targets)


def kept_loss(classifier: Classifier, images: Tensor, targets: Tensor) -> Tensor:
    """The attention of every block from a hook, stacked, restored by index and compared."""
    import torch
    import torch.nn.functional as F

    matrices: list[Tensor] = []
    hooks = []
    for block in classifier.blocks:
        block.attn.fused_attn = False
        hooks.append(block.attn.attn_drop.register_forward_hook(lambda _module, _inputs, out: matrices.append(out)))
    loss = plain_loss(classifier, images, targets)
    for hook in hooks:
        hook.remove()
    one, other = torch.stack([matrix.mean(dim=1) for matrix in matrices], dim=1).chunk(2)  # (B, L, n+1, n+1) each
    height, width = classifier.grid(*images.shape[-2:])
    flipped = torch.arange(height * width).view(height, width).flip(-1).flatten() + 1
    index = torch.cat([torch.zeros(1, dtype=torch.long), flipped])  # (n+1,)
    restored = other[..., index, :][..., index]
    activation = F.l1_loss(one[..., 0, 1:], restored[..., 0, 1:])
    affinity = F.l1_loss(one[..., 1:, 1:], restored[..., 1:, 1:])
    return loss + WEIGHT * activation + WEIGHT * affinity


def tagmask_loss(classifier: Classifier, images: Tensor, targets: Tensor) -> Tensor:
    """What ``tagmask train`` computes."""
    from tagmask.acr.views import HorizontalFlip
    from tagmask.config import TrainSettings
    from tagmask.training.classifier import TwoViews

    settings = TrainSettings(out=Path(), alpha=WEIGHT, beta=WEIGHT, alpha_absolute=True)
    losses: dict[str, Tensor] = TwoViews(classifier, HorizontalFlip(), settings)(images, targets)
    return losses["loss"]


WAYS: dict[str, Callable[[Classifier, Tensor, Tensor], Tensor]] = {
    "plain": plain_loss,
    "kept": kept_loss,
    "tagmask": tagmask_loss,
}


def peak_megabytes() -> float:
    """The largest resident size of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def work(pipe: Connection, way: str, backbone: str, batch: int, threads: int) -> None:
    """A process of one way: for every message one step; answers seconds, loss, and megabytes beyond the start."""
    import torch

    from tagmask.models.classifier import Classifier
    from tagmask.training.classifier import TwoViews  # noqa: F401  every way starts from the same imports

    torch.set_num_threads(threads)
    before = peak_megabytes()
    torch.manual_seed(0)
    classifier = Classifier(backbone, CLASSES).train()
    images = torch.rand(batch, 3, SIZES[backbone], SIZES[backbone])
    targets = (torch.rand(batch, CLASSES) < 0.1).float()
    while pipe.recv():
        classifier.zero_grad()
        start = time.perf_counter()
        loss = WAYS[way](classifier, images, targets)
        loss.backward()  # type: ignore[no-untyped-call]
        seconds = time.perf_counter() - start
        pipe.send((seconds, loss.item(), peak_megabytes() - before))
        del loss


@dataclass
class Worker:
    """A way at work in its own process, and what it has measured so far."""

    way: str
    backbone: str
    batch: int
    threads: int
    seconds: list[float] = field(default_factory=list)
    loss: float = math.nan
    megabytes: float = math.nan

    def __post_init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(
            target=work, args=(other, self.way, self.backbone, self.batch, self.threads), daemon=True
        )
        self.process.start()
        other.close()

    def step(self) -> None:
        self.pipe.send(True)
        seconds, self.loss, self.megabytes = self.pipe.recv()
        self.seconds.append(seconds)

    def stop(self) -> None:
        self.pipe.send(False)
        self.process.join()


def measure(backbone: str, batch: int, repeats: int, threads: int) -> list[dict[str, Any]]:
    """One row per way, with ratios against the first."""
    workers = [Worker(way, backbone, batch, threads) for way in WAYS]
    for _ in range(repeats):
        for worker in workers:
            worker.step()
    for worker in workers:
        worker.stop()
    plain, kept, ours = workers
    if not math.isclose(kept.loss, ours.loss, rel_tol=1e-3):
        raise SystemExit(f"{kept.way} gives the loss {kept.loss}, {ours.way} {ours.loss}: nothing to compare.")
    return [
        {
            "backbone": backbone,
            "batch": batch,
            "way": worker.way,
            "seconds": min(worker.seconds),
            "megabytes": worker.megabytes,
            "time_ratio": min(worker.seconds) / min(plain.seconds),
            "memory_ratio": worker.megabytes / plain.megabytes,
        }
        for worker in workers
    ]


def main() -> None:
    """Measure, print, and write with --json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbones", nargs="+", choices=SIZES, default=list(SIZES), metavar="NAME")
    parser.add_argument("--batches", type=int, nargs="+", default=[2, 4], help="images per step, each in two views")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the rows here")
    options = parser.parse_args()
    if min(*options.batches, options.repeats, options.threads) < 1:
        parser.error("--batches, --repeats and --threads must be at least 1")
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    rows = []
    print(f"{'backbone':<24}{'batch':>6}  {'way':<9}{'time':>7}{'memory':>9}{'seconds':>10}{'MB':>8}", flush=True)
    for backbone in options.backbones:
        for batch in options.batches:
            for row in measure(backbone, batch, options.repeats, options.threads):
                rows.append(row)
                print(
                    f"{backbone:<24}{batch:>6}  {row['way']:<9}{row['time_ratio']:>6.2f}×{row['memory_ratio']:>8.2f}×"
                    f"{row['seconds']:>10.2f}{row['megabytes']:>8.0f}",
                    flush=True,
                )
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
