"""What training costs in memory, and how fast maps are made: ours, per class, MCTformer, and PSA.

Memory: a training step on one image with its optimiser, in a process of its own; on the CPU the
growth of the largest resident size, on a GPU the largest allocation. Speed: one image at the
training size. The ways take turns in one process on one thread, and the fastest turn counts; on the
CPU in processor time, which other programs hardly affect. Weights are random, since they do not
matter. MCTformer is trained on one view without consistency, and with ``mct_recipe`` by its own
recipe (AdamW, tokens read before the norm). Of the paper's two backbones both are measured if one
of them is trained, each at its own size. PSA is AffinityNet as the settings of pseudo labels have
it, since timm has no ResNet-38: its training step, and its walk on one image.
"""

import dataclasses
import math
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from tagmask.acr.attention import attend_per_head, record_attention
from tagmask.acr.localize import localize_both
from tagmask.config import AffinitySettings, PseudoSettings, TrainSettings
from tagmask.config.presets import MCT_ALONE
from tagmask.config.run import Place
from tagmask.data.catalog import Catalog
from tagmask.masks.walk import BETA, STEPS
from tagmask.methods.mctformer import mct
from tagmask.models.affinity_net import STRIDE
from tagmask.models.classifier import Classifier
from tagmask.models.device import gpu
from tagmask.reproduction.bench import Bench, Changes
from tagmask.reproduction.measures import missing_losses
from tagmask.reproduction.numbers import MACHINE, NUMBERS
from tagmask.reproduction.seed_tables import mct_recipe
from tagmask.reproduction.table import Cell, Column, Table, TableRow
from tagmask.runs.processes import pool
from tagmask.runs.record import key, once
from tagmask.stages.pseudo import net_walk
from tagmask.training.affinity import AffinityTask, PairLoss, build_net
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
PSA = "PSA"
# of what is measured: another number where that has changed, so that earlier ones are not reused
_VERSION = 2


def computation(bench: Bench) -> Table:
    """Measure training memory and maps per second, once for each random seed."""
    train = bench.settings.run(Path()).of(TrainSettings)
    settings = dataclasses.replace(
        train, pretrained=False, weights=None, kind="acr", batch=1, accumulate=1
    )
    measured = _each_seed(bench, settings)
    backbone = HYBRID if settings.backbone == HYBRID else DEIT
    # of each way backbone and pixels, then memory and speed
    theirs = NUMBERS["computation"]
    memory, speed = theirs[backbone][2:]
    # the paper has MCTformer on DeiT-S alone
    of_mct = theirs["mct"][2:]
    of_this_mct = (None, None) if backbone == HYBRID else of_mct
    rows = [
        TableRow(OURS, _cells(measured, OURS, memory, None)),
        TableRow(PER_CLASS, _cells(measured, PER_CLASS, None, speed)),
        TableRow(MCT, _cells(measured, MCT, *of_this_mct)),
    ]
    rows += _second_rows(bench, settings, backbone, of_mct)
    rows.append(_psa_row(bench, settings, measured))
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
        notes=_notes(bench, measured[0], settings, backbone),
    )


def _second_rows(
    bench: Bench, settings: TrainSettings, backbone: str, of_mct: tuple[float, float]
) -> list[TableRow]:
    """Return the rows of the paper's other backbone: measured if one of the two is trained."""
    second = DEIT if backbone == HYBRID else HYBRID
    memory, speed = NUMBERS["computation"][second][2:]
    if settings.backbone not in (DEIT, HYBRID):
        return [TableRow(f"ACR on {second}", (Cell((), memory), Cell((), speed), Cell()))]
    there = dataclasses.replace(settings, backbone=second, size=None, long_side=None)
    other = _each_seed(bench, there)
    rows = [
        TableRow(f"ACR on {second}", _cells(other, OURS, memory, None)),
        TableRow(f"ACR on {second}, one backward per class", _cells(other, PER_CLASS, None, speed)),
    ]
    if second == DEIT:
        rows.append(TableRow(f"MCTformer on {second}", _cells(other, MCT, *of_mct)))
    return rows


def _psa_row(bench: Bench, settings: TrainSettings, measured: list[Any]) -> TableRow:
    """Return the row of PSA: AffinityNet's training step and walk, relative to ACR's maps."""
    memory, speed = NUMBERS["computation"]["psa"][2:]
    affinity = bench.settings.of(PseudoSettings).affinity
    psa = []
    for number, seed in enumerate(measured):
        own = _psa(bench, psa_size(settings, seed["size"]), seed["classes"], number)
        acr = {OURS: seed["images_per_second"][OURS]}
        psa.append({**own, "images_per_second": {**own["images_per_second"], **acr}})
    return TableRow(f"PSA on {affinity.backbone}", _cells(psa, PSA, memory, speed))


def psa_size(settings: TrainSettings, size: int) -> int:
    """Return the side in pixels at which PSA is measured, a multiple of its stride.

    Args:
        settings: Settings of the classifier's training.
        size: Side of its crops in pixels.

    Returns:
        The paper's where one of its backbones is trained, otherwise the size of the crops.
    """
    side: int = NUMBERS["computation"]["psa"][1] if settings.backbone in (DEIT, HYBRID) else size
    return max(1, side // STRIDE) * STRIDE


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


def _notes(
    bench: Bench, measured: Mapping[str, Any], settings: TrainSettings, backbone: str
) -> tuple[str, ...]:
    device = measured["device"]
    size = measured["size"]
    classes = measured["classes"]
    affinity = bench.settings.of(PseudoSettings).affinity
    pixels = {name: row[1] for name, row in NUMBERS["computation"].items()}
    mct_training = f"ACR's optimiser ({settings.optimizer}), one view and no consistency"
    if own := mct_recipe(bench):
        mct_training = f"its own recipe: {own['optimizer']}, one view, no consistency"
    return (
        f"ours: {settings.backbone} at {size} pixels, batch 1, {classes} class(es) per image, "
        f"{device}; memory of one training step with its optimiser, "
        f"beyond what the process had before it. MCTformer is trained by {mct_training}. Maps: one "
        "pass at this size, without the mirror image and without loading. PSA is AffinityNet on "
        f"{affinity.backbone} at {psa_size(settings, size)} pixels: its training step, and its "
        "features and random walk instead of maps.",
        f"paper: {MACHINE}; ACR on {backbone} at {pixels[backbone]} pixels, "
        f"MCTformer on DeiT-S at {pixels['mct']}, PSA on ResNet-38 at {pixels['psa']}; which of "
        "PSA's steps it timed is not stated. "
        "Whether its speed includes the mirror image or loading is not stated either. "
        "Its code takes one backward pass per class, so its speed is in that row. Its memory was "
        "read on a GPU, and whether it includes the optimiser is not stated; ours does.",
        *missing_losses(settings),
    )


def _measured(bench: Bench, settings: TrainSettings, number: int) -> Any:
    """Measure for the ``number``-th random seed, or return what the cache keeps of it."""
    catalog = bench.training_images
    classes = mean_classes(catalog)
    parts = {name: getattr(settings, name) for name in ("backbone", "size", "freeze", "optimizer")}
    parts |= {"classes": classes, "of": len(catalog.classes), "place": number}
    parts["version"] = _VERSION
    parts["losses"] = [settings.alpha, settings.beta, settings.view, settings.checkpoint_attention]
    own = mct_recipe(bench)
    if own:
        parts["mct"] = dict(own)
    folder = bench.settings.out / "runs" / f"computation-{key(parts)}"
    tagged = (i for i in range(len(catalog)) if catalog.tags(i))
    first = next(tagged, 0)

    def work() -> Any:
        return measure(settings, catalog.subset([first]), classes, own)

    return once(folder / "measured.json", parts, work)


def _psa(bench: Bench, size: int, classes: int, number: int) -> Any:
    """Measure AffinityNet for the ``number``-th random seed, or return what the cache keeps."""
    settings = bench.settings.of(PseudoSettings)
    chosen = settings.affinity
    # weights do not matter, but which norms are trained does
    frozen = chosen.freeze_norm
    if frozen is None:
        frozen = chosen.pretrained or chosen.weights is not None
    affinity = dataclasses.replace(
        chosen, pretrained=False, weights=None, freeze_norm=frozen, batch=1, accumulate=1
    )
    walk = PseudoSettings(beta=settings.beta, steps=settings.steps, affinity=affinity)
    parts = {name: getattr(affinity, name) for name in ("backbone", "radius", "optimizer")}
    parts |= {"freeze_norm": frozen, "beta": walk.beta, "steps": walk.steps}
    parts |= {"size": size, "classes": classes, "place": number, "version": _VERSION}
    folder = bench.settings.out / "runs" / f"computation-{key(parts)}"

    def work() -> Any:
        with pool(1, partial(affinity_megabytes, size)) as spread:
            memory = next(iter(spread([affinity])))
        speed = walk_speed(walk, size, classes)
        return {"megabytes": {PSA: memory}, "images_per_second": {PSA: speed}}

    return once(folder / "measured.json", parts, work)


def affinity_megabytes(size: int, settings: AffinitySettings) -> float:
    """Return the memory of one training step of AffinityNet in megabytes.

    Args:
        size: Side of the image in pixels.
        settings: Settings of its training.
    """
    torch.set_num_threads(1)
    _forget_peak()
    before = _peak_megabytes()
    device = _device()
    module = PairLoss(build_net(settings), settings.radius).to(device).train()
    optimizer = build_optimizer(module, settings, AffinityTask.new_layers)
    images = torch.rand(1, 3, size, size, device=device)
    cells = size // STRIDE
    labels = torch.randint(0, 2, (1, cells, cells), device=device)
    module(images, labels)["loss"].backward()
    optimizer.step()
    return _peak_megabytes() - before


def walk_speed(settings: PseudoSettings, size: int, classes: int) -> float:
    """Measure how many images per second PSA's features and random walk take, on one thread.

    Args:
        settings: β, steps and network of the walk.
        size: Side of the image in pixels.
        classes: How many classes have a map.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    net = build_net(settings.affinity).eval().to(_device())
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (size, size, 3), dtype=np.uint8)
    maps = rng.random((classes, size, size), dtype=np.float32)
    walk = partial(
        net_walk,
        image,
        maps,
        net=net,
        radius=settings.affinity.radius,
        beta=settings.beta or BETA,
        steps=settings.steps or STEPS,
    )
    best = min(_seconds(walk) for _ in range(TURNS // SLOW))
    torch.set_num_threads(threads)
    return 1 / best


def measure(
    settings: TrainSettings, catalog: Catalog, classes: int, own: Changes | None = None
) -> dict[str, Any]:
    """Measure megabytes of a training step and images per second of each way.

    Args:
        settings: Settings of an ACR training with batch 1.
        catalog: One image.
        classes: How many classes get a map.
        own: Settings of training of MCTformer's own recipe; default: those of ACR.

    Returns:
        "megabytes" and "images_per_second" by way, "device", "size" in pixels, and "classes".
    """
    work = partial(training_megabytes, catalog)
    memory = {}
    ways = trainings(settings, own)
    # a process of its own for each way, whose memory nothing else has touched
    with ExitStack() as stack:
        answers = {}
        for way, training in ways.items():
            spread = stack.enter_context(pool(1, work))
            answers[way] = spread([training])
        for way, answer in answers.items():
            memory[way] = next(answer)
    speeds = map_speeds(settings, catalog, classes, ways[MCT].mct_read)
    return {"megabytes": memory, **speeds, "classes": classes}


def trainings(settings: TrainSettings, own: Changes | None = None) -> dict[str, TrainSettings]:
    """Return the settings of the trainings whose memory is measured: ACR's and MCTformer's.

    Args:
        settings: Settings of an ACR training with batch 1.
        own: Settings of MCTformer's own recipe, whose batch does not count; default: those of ACR.
    """
    mct: dict[str, Any] = {**(own or {}), **MCT_ALONE, "kind": "mct", "fixed_views": False}
    mct["batch"] = settings.batch
    return {OURS: settings, MCT: dataclasses.replace(settings, **mct)}


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


def map_speeds(
    settings: TrainSettings,
    catalog: Catalog,
    classes: int,
    mct_read: Literal["before_norm"] | None = None,
) -> dict[str, Any]:
    """Measure the images per second of each way to make maps, on one thread.

    Args:
        settings: Settings of an ACR training.
        catalog: Gives the classes of the networks.
        classes: How many classes get a map.
        mct_read: Where MCTformer reads its tokens, as ``TrainSettings`` has it.

    Returns:
        "images_per_second" by way, "device", and "size" in pixels.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    device = _device()
    # the authors' code computes the gradients of all parameters
    free = dataclasses.replace(settings, freeze=0)
    model = build_classifier(free, catalog).eval().to(device)
    mct_settings = dataclasses.replace(free, kind="mct", mct_read=mct_read)
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
