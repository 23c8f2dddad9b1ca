"""What training costs in memory, and how fast maps are made: ours, one backward pass per class, MCTformer.

Memory: a training step on one image with its optimiser, in a process of its own; on the CPU the growth of the largest
resident size, on a GPU the largest allocation. Speed: one image at the training size. The ways take turns in one
process on one thread, and the fastest turn counts; on the CPU in processor time, which other programs hardly affect.
Weights are random, since they do not matter. PSA is not measured: its row holds the paper's numbers only.
"""

import dataclasses
import math
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_collate

from tagmask.acr.attention import attend_per_head, record_attention
from tagmask.acr.localize import localize_both
from tagmask.config import TrainSettings
from tagmask.data.catalog import Catalog
from tagmask.methods.mctformer import mct
from tagmask.models.classifier import Classifier
from tagmask.models.device import gpu
from tagmask.paper.bench import Bench
from tagmask.paper.numbers import MACHINE, NUMBERS
from tagmask.paper.table import Cell, Column, Row, Table
from tagmask.pipeline.record import key, once
from tagmask.stages.pool import pool
from tagmask.training.classifier import ClassifierTask, build_classifier
from tagmask.training.optim import build_optimizer

TURNS = 12
SLOW = 4  # the slowest way takes every fourth turn
DEIT, HYBRID = "deit_small_patch16_224", "vit_base_r50_s16_384"
OURS, PER_CLASS, MCT = "ACR", "ACR, one backward per class", "MCTformer"


def computation(bench: Bench) -> Table:
    """Training memory and maps per second; measured once for each random seed."""
    train = bench.settings.run(Path()).for_stage("train")
    settings = dataclasses.replace(
        train, pretrained=False, weights=None, kind="acr", batch=1, accumulate=1
    )
    measured = [_measured(bench, settings, place) for place in range(bench.settings.random_seeds)]
    theirs = NUMBERS["computation"]
    backbone = HYBRID if settings.backbone == HYBRID else DEIT
    unmeasured = DEIT if backbone == HYBRID else HYBRID
    memory, speed = theirs[backbone][2:]
    paper = {OURS: (memory, None), PER_CLASS: (None, speed), MCT: tuple(theirs["mct"][2:])}
    rows = [Row(way, _cells(measured, way, *numbers)) for way, numbers in paper.items()]
    for title, name in ((f"ACR on {unmeasured}", unmeasured), ("PSA on ResNet-38", "psa")):
        rows.append(Row(title, (*(Cell((), number) for number in theirs[name][2:]), Cell())))
    columns = (
        Column("training memory [MB]", 0),
        Column("maps [images/s]", 2),
        Column("relative to ACR", 2),
    )
    return Table(
        "computation",
        "Computation",
        "way",
        columns,
        tuple(rows),
        _notes(measured[0], settings, backbone),
    )


def _cells(
    measured: list[Any], way: str, memory: float | None, speed: float | None
) -> tuple[Cell, ...]:
    megabytes = tuple(seed["megabytes"][way] for seed in measured if way in seed["megabytes"])
    speeds = [seed["images_per_second"] for seed in measured]
    relative = Cell(tuple(seed[way] / seed[OURS] for seed in speeds))
    return Cell(megabytes, memory), Cell(tuple(seed[way] for seed in speeds), speed), relative


def _notes(measured: Mapping[str, Any], settings: TrainSettings, backbone: str) -> tuple[str, ...]:
    device, size, classes = measured["device"], measured["size"], measured["classes"]
    pixels = {name: row[1] for name, row in NUMBERS["computation"].items()}
    return (
        f"ours: {settings.backbone} at {size} pixels, batch 1, {classes} class(es) per image, {device}; memory of one "
        "training step with its optimiser, beyond what the process had before it.",
        f"paper: {MACHINE}; ACR on {backbone} at {pixels[backbone]} pixels, MCTformer on DeiT-S at {pixels['mct']}, "
        f"PSA at {pixels['psa']}. Its code takes one backward pass per class, so its speed is in that row.",
    )


def _measured(bench: Bench, settings: TrainSettings, place: int) -> Any:
    """The measurement, kept in the cache as a training is."""
    catalog = bench.training_images
    classes = mean_classes(catalog)
    parts = {name: getattr(settings, name) for name in ("backbone", "size", "freeze", "optimizer")}
    parts |= {"classes": classes, "of": len(catalog.classes), "place": place}
    parts["losses"] = [settings.alpha, settings.beta, settings.view, settings.checkpoint_attention]
    file = bench.settings.out / "runs" / f"computation-{key(parts)}" / "measured.json"
    tagged = next((i for i in range(len(catalog)) if catalog.tags(i)), 0)
    return once(file, parts, lambda: measure(settings, catalog.subset([tagged]), classes))


def measure(settings: TrainSettings, catalog: Catalog, classes: int) -> dict[str, Any]:
    """Megabytes of a training step and images per second of each way; ``catalog`` holds one image."""
    kinds = {OURS: settings, MCT: dataclasses.replace(settings, kind="mct")}
    work = partial(training_megabytes, catalog)
    with (
        ExitStack() as stack
    ):  # a process of its own for each, whose memory nothing else has touched
        answers = {way: stack.enter_context(pool(1, work))([kind]) for way, kind in kinds.items()}
        memory = {way: next(answer) for way, answer in answers.items()}
    return {"megabytes": memory, **map_speeds(settings, catalog, classes), "classes": classes}


def training_megabytes(catalog: Catalog, settings: TrainSettings) -> float:
    """The memory of one training step: network, attention, gradients and the state of the optimiser."""
    torch.set_num_threads(1)
    before = _peak_megabytes()
    task = ClassifierTask(catalog, catalog.subset([]), settings)
    module = task.module.to(_device()).train()
    optimizer = build_optimizer(module, settings, task.new_layers)
    batch = default_collate([task.dataset[(0, 0)]])
    batch.pop("broken")
    module(**{name: value.to(_device()) for name, value in batch.items()})["loss"].backward()
    optimizer.step()
    return _peak_megabytes() - before


def map_speeds(settings: TrainSettings, catalog: Catalog, classes: int) -> dict[str, Any]:
    """Images per second of each way, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    free = dataclasses.replace(
        settings, freeze=0
    )  # the authors' code computes the gradients of all parameters
    model = build_classifier(free, catalog).eval().to(_device())
    multi_class = (
        build_classifier(dataclasses.replace(free, kind="mct"), catalog).eval().to(_device())
    )
    size = settings.size or model.native_size
    images = torch.rand(1, 3, size, size, device=_device())
    chosen = list(range(min(classes, model.num_classes)))
    ways: dict[str, Callable[[], Any]] = {
        OURS: lambda: localize_both(model, images, [chosen]),
        PER_CLASS: lambda: per_class(model, images, chosen),
        MCT: lambda: localize_both(multi_class, images, [chosen], mct),
    }
    best = dict.fromkeys(ways, math.inf)
    for turn in range(TURNS):
        for way, work in ways.items():
            if way != PER_CLASS or turn % SLOW == 0:
                best[way] = min(best[way], _seconds(work))
    torch.set_num_threads(threads)
    device = str(_device()) if _device().type != "cpu" else "one CPU thread"
    return {
        "images_per_second": {way: 1 / spent for way, spent in best.items()},
        "device": device,
        "size": size,
    }


def per_class(model: Classifier, images: Tensor, classes: list[int]) -> Tensor:
    """Maps (k, n) of one image by a full backward pass for each class, as the authors' released code makes them."""
    with torch.enable_grad(), record_attention(model.blocks, attend_per_head) as heads:
        logits = model.vit(images)  # (1, C)
    for attention in heads:  # (1, heads, N, N)
        attention.retain_grad()
    maps = []
    for number in classes:
        model.zero_grad()
        for attention in heads:
            attention.grad = None
        logits[0, number].backward(retain_graph=True)
        last = [
            attention.grad for attention in heads[-2:] if attention.grad is not None
        ]  # (1, heads, N, N)
        maps.append(
            torch.stack(
                [gradient[0, :, 0, model.prefix :].relu().mean(0) for gradient in last]
            ).sum(0)
        )
    model.zero_grad()
    affinity = torch.stack([attention.detach().mean(1)[0] for attention in heads]).sum(0)  # (N, N)
    return torch.stack(maps) @ affinity[model.prefix :, model.prefix :].T


def mean_classes(catalog: Catalog) -> int:
    """How many classes an image has, about, at least one."""
    return max(1, round(float(catalog.class_counts().sum()) / max(1, len(catalog))))


def _device() -> torch.device:
    return gpu() or torch.device("cpu")


def _seconds(work: Callable[[], Any]) -> float:
    if _device().type == "cpu":
        began = time.process_time()
        work()
        return time.process_time() - began
    torch.accelerator.synchronize()
    began = time.perf_counter()
    work()
    torch.accelerator.synchronize()
    return time.perf_counter() - began


def _peak_megabytes() -> float:
    """The most memory that this process has had; nan where the system does not report it (Windows)."""
    if _device().type == "cuda":
        return torch.cuda.max_memory_allocated() / 1e6
    try:
        import resource
    except ImportError:
        return math.nan
    return (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        * (1 if sys.platform == "darwin" else 1024)
        / 1e6
    )
