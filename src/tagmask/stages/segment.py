"""Train the segmentation network on pseudo labels."""

import hashlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from tagmask import layout
from tagmask.config import SegmentSettings, check, write_section
from tagmask.data.catalog import Catalog
from tagmask.data.open import open_catalog
from tagmask.errors import TagmaskError, first_of
from tagmask.features.cache import TokenStore
from tagmask.models.device import on_device
from tagmask.models.head import HeadSegmenter
from tagmask.models.kinds import load_classifier
from tagmask.notes import CONTENTS, INPUT, Parts
from tagmask.runs import record
from tagmask.runs.images import list_skipped
from tagmask.runs.record import IMAGES, check_classes, places
from tagmask.runs.timing import Probe, time_step, timed
from tagmask.training.head import gather_cells, train_head
from tagmask.training.loop import Loop, Trained, total_steps
from tagmask.training.segmenter import PixelLoss, SegmenterTask, build_segmenter

_HEAD_ONLY = ("net", "head_blocks", "rounds", "cells")  # settings
_OF_A_HEAD = (*_HEAD_ONLY, "size", "lr", "weight_decay", "steps", "seed")


@dataclass
class HeadTrained:
    """What the training of a head left behind."""

    folder: Path
    broken: dict[str, str]  # photo: why it could not be used
    notes: tuple[str, ...]
    metrics: dict[str, float]

    def summary(self) -> str:
        loss = f"cross entropy {self.metrics['loss']:.3f} per cell"
        lines = [
            *self.notes,
            *list_skipped(self.broken),
            loss,
            f"segmenter: {self.folder / layout.MODEL}",
        ]
        return "\n".join(lines)


def made_from(settings: SegmentSettings) -> Parts:
    """What the segmenter is made from, besides the pseudo labels."""
    if settings.net == "deeplab":
        return record.made_from(settings, unused=_HEAD_ONLY)
    parts = record.made_from(
        settings, {"classifier": settings.model or settings.out / layout.CLASSIFIER}
    )
    return {
        name: value for name, value in parts.items() if name in _OF_A_HEAD or name.startswith(INPUT)
    }


def train_segmenter(
    settings: SegmentSettings, catalog: Catalog | None = None
) -> Trained | HeadTrained:
    """Train a segmenter, or resume a training that was stopped."""
    check(settings)
    labels = settings.pseudo or settings.out / layout.PSEUDO
    whole = open_catalog(settings) if catalog is None else catalog
    check_classes(labels, whole.classes, "pseudo labels")
    labelled, notes, files = labelled_part(whole, labels)
    if settings.net == "head":
        return _train_head(settings, labelled, labels, (*whole.notes, *notes))
    training, val = labelled.split(settings.val_fraction, settings.seed)
    identity: Parts = {**made_from(settings), **places(settings), IMAGES[0]: training.fingerprint()}
    task = SegmenterTask(training, val, labels, settings)
    sizes = hashlib.sha256(str([file.stat().st_size for file in files]).encode()).hexdigest()[:16]
    hashes: Parts = {f"{INPUT}labels": sizes, f"{CONTENTS}labels": record.contents_of(files)}
    loop = Loop(task, settings, settings.out / layout.SEGMENTER, {**identity, **hashes})
    if loop.is_main:
        write_section(settings.out / layout.CONFIG, "segment", settings)
    return loop.train(training, (*whole.notes, *notes, *task.network.notes))


def _train_head(
    settings: SegmentSettings, catalog: Catalog, labels: Path, notes: tuple[str, ...]
) -> HeadTrained:
    """Train a head on tokens; it takes seconds, so that one that was stopped starts over."""
    folder = settings.out / layout.SEGMENTER
    torch.manual_seed(settings.seed)
    classifier = on_device(load_classifier(settings.model or settings.out / layout.CLASSIFIER))
    model = HeadSegmenter(classifier, settings.head_blocks, settings.size)
    if catalog.classes != model.classes:
        raise TagmaskError(
            "the classifier has other classes than the images; train it on these images first."
        )
    write_section(settings.out / layout.CONFIG, "segment", settings)
    store = TokenStore.features_of(
        on_device(model).classifier, model.blocks, model.size, settings.out, settings.tokens_limit
    )
    cells, broken = gather_cells(partial(store.get, catalog), catalog, labels, model, settings.seed)
    metrics = train_head(model, cells, settings, folder)
    model.eval().save(folder)
    return HeadTrained(folder, broken, (*notes, *store.notes), metrics)


def labelled_part(catalog: Catalog, folder: Path) -> tuple[Catalog, tuple[str, ...], list[Path]]:
    """The images that have a pseudo label, a sentence about the others, and the label files."""
    files = {i: layout.label_file(folder, catalog.name(i)) for i in range(len(catalog))}
    there = {i: file for i, file in files.items() if file.is_file()}
    if not there:
        raise TagmaskError(
            f"{folder} contains no pseudo labels of these images; make them with `tagmask pseudo` first."
        )
    missing = [catalog.name(i) for i in files if i not in there]
    counts = f"{len(missing)} of {len(catalog)} images"
    note = f"{counts} have no pseudo label in {folder} and are left out: {first_of(missing)}"
    return catalog.subset(list(there)), (note,) if missing else (), list(there.values())


def estimate(probe: Probe) -> float:
    """Seconds per training step; of a head with its rounds, and the tokens of all photos shared out over the steps."""
    settings: SegmentSettings = probe.run.for_stage("segment")
    if settings.net == "head":
        tokens = timed(lambda: probe.see()) * len(probe.catalog)
        features = torch.rand(settings.cells, len(probe.head.shift), device=probe.head.shift.device)
        step = timed(lambda: probe.head.logits_of(features).logsumexp(-1).sum().backward())
        return step * (settings.rounds + 1) + tokens / total_steps(settings, len(probe.catalog))
    part, size = settings.batch // settings.accumulate, settings.size
    batch = {
        "images": torch.rand(part, 3, size, size),
        "labels": torch.zeros(part, size, size, dtype=torch.long),
    }
    module = PixelLoss(build_segmenter(settings, probe.catalog.classes, fresh=True))
    return time_step(module, batch) * settings.accumulate


def disk(probe: Probe) -> float:
    """Bytes that kept tokens take."""
    if probe.run.for_stage("segment").net != "head":
        return 0.0
    return float(probe.head_tokens.values.numel() * 2 * len(probe.catalog))
