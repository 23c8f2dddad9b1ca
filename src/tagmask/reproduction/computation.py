"""What training costs in memory, and how fast maps are made: ours, per class, and MCTformer.

Memory: a training step on one image with its optimiser, in a process of its own; on the CPU the
growth of the largest resident size, on a GPU the largest allocation. Speed: one image at the
training size. The ways take turns in one process on one thread, and the fastest turn counts; on the
CPU in processor time, which other programs hardly affect. Weights are random, since they do not
matter. Of the paper's two backbones both are measured if one of them is trained, each at its own
size. PSA is not measured, because timm has no ResNet-38: its row holds the paper's numbers only.
"""

import dataclasses
import math
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_collate

from tagmask.acr.attention import attend_per_head, record_attention
from tagmask.acr.localize import localize_both
from tagmask.config import TrainSettings
from tagmask.config.run import Place
from tagmask.data.catalog import Catalog
from tagmask.methods.mctformer import mct
from tagmask.models.classifier import Classifier
from tagmask.models.device import gpu
from tagmask.reproduction.bench import Bench
from tagmask.reproduction.numbers import MACHINE, NUMBERS
from tagmask.reproduction.table import Cell, Column, Table, TableRow
from tagmask.runs.processes import pool
from tagmask.runs.record import key, once
from tagmask.training.classifier import ClassifierTask, build_classifier
from tagmask.training.optim import build_optimizer

TURNS = 12
# the slowest way takes every fourth turn
SLOW = 4
DEIT = "deit_small_patch16_224"
HYBRID = "vit_base_r50_s16_384"
OURS = "ACR"
PER_CLASS = "ACR, one backward per class"
MCT = "MCTformer"


def computation(bench: Bench) -> Table:
    """Measure training memory and maps per second, once for each random seed."""
    train = bench.settings.run(Path()).of(TrainSettings)
    settings = dataclasses.replace(
        train, pretrained=False, weights=None, kind="acr", batch=1, accumulate=1
    )
    measured = _each_seed(bench, settings)
    backbone = HYBRID if settings.backbone == HYBRID else DEIT
    second = DEIT if backbone == HYBRID else HYBRID
    # of each way backbone and pixels, then memory and speed
    theirs = NUMBERS["computation"]
    memory, speed = theirs[backbone][2:]
    mct_memory, mct_speed = theirs["mct"][2:]
    rows = [
        TableRow(OURS, _cells(measured, OURS, memory, None)),
        TableRow(PER_CLASS, _cells(measured, PER_CLASS, None, speed)),
        TableRow(MCT, _cells(measured, MCT, mct_memory, mct_speed)),
    ]
    other_memory, other_speed = theirs[second][2:]
    if settings.backbone in (DEIT, HYBRID):
        there = dataclasses.replace(settings, backbone=second, size=None, long_side=None)
        other = _each_seed(bench, there)
        rows.append(TableRow(f"ACR on {second}", _cells(other, OURS, other_memory, None)))
        per_class_row = _cells(other, PER_CLASS, None, other_speed)
        rows.append(TableRow(f"ACR on {second}, one backward per class", per_class_row))
    else:
        cells = (Cell((), other_memory), Cell((), other_speed), Cell())
        rows.append(TableRow(f"ACR on {second}", cells))
    psa = [Cell((), number) for number in theirs["psa"][2:]]
    rows.append(TableRow("PSA on ResNet-38", (*psa, Cell())))
    columns = (
        Column("training memory [MB]", 0),
        Column("maps [images/s]", 2),
        Column("relative to ACR", 2),
    )
    return Table(
        name="computation",
        title="Computation",
        head="way",
        columns=columns,
        rows=tuple(rows),
        notes=_notes(measured[0], settings, backbone),
    )


def _each_seed(bench: Bench, settings: TrainSettings) -> list[Any]:
    """Return what was measured, once for each random seed."""
    return [_measured(bench, settings, number) for number in range(bench.settings.random_seeds)]


def _cells(
    measured: list[Any], way: str, memory: float | None, speed: float | None
) -> tuple[Cell, ...]:
    """Return megabytes, images per second and relative speed of a way, beside the paper's."""
    # one backward per class is a way to make maps; its training is ACR's
    memories = [seed["megabytes"] for seed in measured]
    megabytes = [seed[way] for seed in memories if way in seed]
    by_seed = [seed["images_per_second"] for seed in measured]
    speeds = [seed[way] for seed in by_seed]
    relative = [seed[way] / seed[OURS] for seed in by_seed]
    return (
        Cell(tuple(megabytes), memory),
        Cell(tuple(speeds), speed),
        Cell(tuple(relative)),
    )


def _notes(measured: Mapping[str, Any], settings: TrainSettings, backbone: str) -> tuple[str, ...]:
    device = measured["device"]
    size = measured["size"]
    classes = measured["classes"]
    pixels = {name: row[1] for name, row in NUMBERS["computation"].items()}
    return (
        f"ours: {settings.backbone} at {size} pixels, batch 1, {classes} class(es) per image, "
        f"{device}; memory of one training step with its optimiser, "
        "beyond what the process had before it.",
        f"paper: {MACHINE}; ACR on {backbone} at {pixels[backbone]} pixels, "
        f"MCTformer on DeiT-S at {pixels['mct']}, PSA at {pixels['psa']}. "
        "Its code takes one backward pass per class, so its speed is in that row. Its memory was "
        "read on a GPU, and whether it includes the optimiser is not stated; ours does.",
    )


def _measured(bench: Bench, settings: TrainSettings, number: int) -> Any:
    """Measure for the ``number``-th random seed, or return what the cache keeps of it."""
    catalog = bench.training_images
    classes = mean_classes(catalog)
    parts = {name: getattr(settings, name) for name in ("backbone", "size", "freeze", "optimizer")}
    parts |= {"classes": classes, "of": len(catalog.classes), "place": number}
    parts["losses"] = [settings.alpha, settings.beta, settings.view, settings.checkpoint_attention]
    folder = bench.settings.out / "runs" / f"computation-{key(parts)}"
    tagged = (i for i in range(len(catalog)) if catalog.tags(i))
    first = next(tagged, 0)

    def work() -> Any:
        return measure(settings, catalog.subset([first]), classes)

    return once(folder / "measured.json", parts, work)


def measure(settings: TrainSettings, catalog: Catalog, classes: int) -> dict[str, Any]:
    """Measure megabytes of a training step and images per second of each way.

    Args:
        settings: Settings of an ACR training with batch 1.
        catalog: One image.
        classes: How many classes get a map.

    Returns:
        "megabytes" and "images_per_second" by way, "device", "size" in pixels, and "classes".
    """
    kinds = {OURS: settings, MCT: dataclasses.replace(settings, kind="mct")}
    work = partial(training_megabytes, catalog)
    memory = {}
    # a process of its own for each way, whose memory nothing else has touched
    with ExitStack() as stack:
        answers = {}
        for way, kind in kinds.items():
            spread = stack.enter_context(pool(1, work))
            answers[way] = spread([kind])
        for way, answer in answers.items():
            memory[way] = next(answer)
    return {"megabytes": memory, **map_speeds(settings, catalog, classes), "classes": classes}


def training_megabytes(catalog: Catalog, settings: TrainSettings) -> float:
    """Return the memory of one training step in megabytes.

    It holds network, attention, gradients and the state of the optimiser.

    Args:
        catalog: One image.
        settings: Settings of a training.
    """
    torch.set_num_threads(1)
    _forget_peak()
    before = _peak_megabytes()
    place = Place(out=Path(), tokens_limit=0.0)
    task = ClassifierTask(catalog, catalog.subset([]), settings, place)
    device = _device()
    module = task.module.to(device).train()
    optimizer = build_optimizer(module, settings, task.new_layers)
    batch = default_collate([task.dataset[(0, 0)]])
    batch.pop("broken")
    inputs = {name: value.to(device) for name, value in batch.items()}
    module(**inputs)["loss"].backward()
    optimizer.step()
    return _peak_megabytes() - before


def map_speeds(settings: TrainSettings, catalog: Catalog, classes: int) -> dict[str, Any]:
    """Measure the images per second of each way to make maps, on one thread.

    Args:
        settings: Settings of an ACR training.
        catalog: Gives the classes of the networks.
        classes: How many classes get a map.

    Returns:
        "images_per_second" by way, "device", and "size" in pixels.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    device = _device()
    # the authors' code computes the gradients of all parameters
    free = dataclasses.replace(settings, freeze=0)
    model = build_classifier(free, catalog).eval().to(device)
    mct_settings = dataclasses.replace(free, kind="mct")
    mct_model = build_classifier(mct_settings, catalog).eval().to(device)
    size = settings.size or model.native_size
    images = torch.rand(1, 3, size, size, device=device)
    chosen = list(range(min(classes, model.num_classes)))
    ways: dict[str, Callable[[], Any]] = {
        OURS: lambda: localize_both(model, images, [chosen]),
        PER_CLASS: lambda: per_class(model, images, chosen),
        MCT: lambda: localize_both(mct_model, images, [chosen], mct),
    }
    best = dict.fromkeys(ways, math.inf)
    for turn in range(TURNS):
        for way, work in ways.items():
            if way != PER_CLASS or turn % SLOW == 0:
                best[way] = min(best[way], _seconds(work))
    torch.set_num_threads(threads)
    return {
        "images_per_second": {way: 1 / spent for way, spent in best.items()},
        "device": "one CPU thread" if device.type == "cpu" else str(device),
        "size": size,
    }


def per_class(model: Classifier, images: Tensor, classes: list[int]) -> Tensor:
    """Make maps by a full backward pass for each class, as the authors' released code does.

    Args:
        model: The network.
        images: One image (1, 3, H, W).
        classes: Numbers of the k classes that get a map.

    Returns:
        Maps with affinity (k, n) over the n patches.
    """
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
        blocks = []
        for attention in heads[-model.map_layers :]:
            gradient = attention.grad  # (1, heads, N, N)
            if gradient is not None:
                class_row = gradient[0, :, 0, model.prefix :]  # (heads, n)
                blocks.append(class_row.relu().mean(0))
        maps.append(torch.stack(blocks).sum(0))  # (n,)
    model.zero_grad()
    means = [attention.detach().mean(1)[0] for attention in heads]  # (N, N) each
    affinity = torch.stack(means).sum(0)  # (N, N)
    between_patches = affinity[model.prefix :, model.prefix :]  # (n, n)
    return torch.stack(maps) @ between_patches.T  # (k, n)


def mean_classes(catalog: Catalog) -> int:
    """Return about how many classes an image has, at least one."""
    tags = float(catalog.class_counts().sum())
    return max(1, round(tags / max(1, len(catalog))))


def _device() -> torch.device:
    return gpu() or torch.device("cpu")


def _seconds(work: Callable[[], Any]) -> float:
    """Time ``work``: processor time on the CPU, time by the clock on a GPU."""
    if _device().type == "cpu":
        began = time.process_time()
        work()
        return time.process_time() - began
    torch.accelerator.synchronize()
    began = time.perf_counter()
    work()
    torch.accelerator.synchronize()
    return time.perf_counter() - began


def _forget_peak() -> None:
    """Let the largest resident size begin at the present one, where Linux permits it.

    Otherwise what the imports once needed hides a small training.
    """
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak_megabytes() -> float:
    """Return the most megabytes this process has had; nan on Windows, which does not tell."""
    if _device().type == "cuda":
        return torch.cuda.max_memory_allocated() / 1e6
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    try:
        import resource
    except ImportError:
        return math.nan
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS reports bytes, Linux kibibytes
    unit = 1 if sys.platform == "darwin" else 1024
    return peak * unit / 1e6
