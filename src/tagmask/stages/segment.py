"""Train the segmentation network on pseudo labels."""

import hashlib
from pathlib import Path

import torch

from tagmask.config import SegmentSettings, check, write_section
from tagmask.data.catalog import Catalog
from tagmask.data.open import open_catalog
from tagmask.errors import TagmaskError
from tagmask.pipeline import layout
from tagmask.pipeline.record import IMAGES, INPUT, Parts, check_classes, made_from, places
from tagmask.stages.timing import Probe, time_step
from tagmask.training.loop import Loop, Trained
from tagmask.training.segmenter import PixelLoss, SegmenterTask, build_segmenter

__all__ = ["estimate", "made_from", "train_segmenter"]


def train_segmenter(settings: SegmentSettings, catalog: Catalog | None = None) -> Trained:
    """Train a segmenter, or resume a training that was stopped."""
    check(settings)
    labels = settings.pseudo or settings.out / layout.PSEUDO
    whole = open_catalog(settings) if catalog is None else catalog
    check_classes(labels, whole.classes, "pseudo labels")
    labelled, notes, sizes = labelled_part(whole, labels)
    training, val = labelled.split(settings.val_fraction, settings.seed)
    identity: Parts = {**made_from(settings), **places(settings), IMAGES[0]: training.fingerprint()}
    task = SegmenterTask(training, val, labels, settings)
    loop = Loop(task, settings, settings.out / layout.SEGMENTER, {**identity, f"{INPUT}labels": sizes})
    if loop.is_main:
        write_section(settings.out / layout.CONFIG, "segment", settings)
    return loop.train(training, (*whole.notes, *notes, *task.model.notes))


def labelled_part(catalog: Catalog, folder: Path) -> tuple[Catalog, tuple[str, ...], str]:
    """The images that have a pseudo label, a sentence about the others, and a hash of the label files."""
    sizes = {}
    for i in range(len(catalog)):
        file = layout.label_file(folder, catalog.name(i))
        if file.is_file():
            sizes[i] = file.stat().st_size
    if not sizes:
        raise TagmaskError(
            f"{folder} contains no pseudo labels of these images; make them with `tagmask pseudo` first."
        )
    missing = [catalog.name(i) for i in range(len(catalog)) if i not in sizes]
    shown = ", ".join(missing[:5]) + (" …" if len(missing) > 5 else "")
    note = f"{len(missing)} of {len(catalog)} images have no pseudo label in {folder} and are left out: {shown}"
    fingerprint = hashlib.sha256(str(list(sizes.values())).encode()).hexdigest()[:16]
    return catalog.subset(list(sizes)), (note,) if missing else (), fingerprint


def estimate(probe: Probe) -> float:
    """Seconds per training step."""
    settings: SegmentSettings = probe.run.for_stage("segment")
    part, size = settings.batch // settings.accumulate, settings.size
    batch = {"images": torch.rand(part, 3, size, size), "labels": torch.zeros(part, size, size, dtype=torch.long)}
    module = PixelLoss(build_segmenter(settings, probe.catalog.classes, fresh=True))
    return time_step(module, batch) * settings.accumulate
