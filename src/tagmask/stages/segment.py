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

# settings that only a head has, and all that a head depends on
_HEAD_ONLY = ("net", "head_blocks", "rounds", "cells")
_OF_A_HEAD = (*_HEAD_ONLY, "size", "lr", "weight_decay", "steps", "seed")


@dataclass
class HeadTrained:
    """Files and numbers that the training of a head left behind."""

    folder: Path
    broken: dict[str, str]  # photo: why it could not be used
    notes: tuple[str, ...]
    metrics: dict[str, float]

    def summary(self) -> str:
        """Return lines for the terminal: notes, skipped photos, the loss and the file."""
        lines = [
            *self.notes,
            *list_skipped(self.broken),
            f"cross entropy {self.metrics['loss']:.3f} per cell",
            f"segmenter: {self.folder / layout.MODEL}",
        ]
        return "\n".join(lines)


def made_from(settings: SegmentSettings) -> Parts:
    """Return what the segmenter is made from, besides the pseudo labels."""
    if settings.net == "deeplab":
        return record.made_from(settings, unused=_HEAD_ONLY)
    classifier = settings.model or settings.out / layout.CLASSIFIER
    parts: Parts = {}
    for name, value in record.made_from(settings, {"classifier": classifier}).items():
        if name in _OF_A_HEAD or name.startswith(INPUT):
            parts[name] = value
    return parts


def train_segmenter(
    settings: SegmentSettings, catalog: Catalog | None = None
) -> Trained | HeadTrained:
    """Train a segmenter, or resume a training that was stopped.

    Args:
        settings: Settings of the stage; ``settings.net`` chooses a whole network or a head on the
            classifier's features.
        catalog: Images; None opens those that the settings name.

    Returns:
        What the training left behind, with a summary for the terminal.

    Raises:
        TagmaskError: If none of the images has a pseudo label, or the classes do not fit.
    """
    check(settings)
    labels = settings.pseudo or settings.out / layout.PSEUDO
    whole = open_catalog(settings) if catalog is None else catalog
    check_classes(labels, whole.classes, "pseudo labels")
    labelled, label_notes, files = labelled_part(whole, labels)
    notes = (*whole.notes, *label_notes)
    if settings.net == "head":
        return _train_head(settings, labelled, labels, notes)

    training, val = labelled.split(settings.val_fraction, settings.seed)
    identity: Parts = {
        **made_from(settings),
        **places(settings),
        IMAGES[0]: training.fingerprint(),
    }
    task = SegmenterTask(training, val, labels, settings)
    sizes = str([file.stat().st_size for file in files])
    identity[f"{INPUT}labels"] = hashlib.sha256(sizes.encode()).hexdigest()[:16]
    identity[f"{CONTENTS}labels"] = record.contents_of(files)
    loop = Loop(task, settings, settings.out / layout.SEGMENTER, identity)
    if loop.is_main:
        write_section(settings.out / layout.CONFIG, "segment", settings)
    return loop.train(training, (*notes, *task.network.notes))


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
    tokens_of = partial(store.get, catalog)
    cells, broken = gather_cells(tokens_of, catalog, labels, model, settings.seed)
    metrics = train_head(model, cells, settings, folder)
    model.eval().save(folder)
    return HeadTrained(folder, broken, (*notes, *store.notes), metrics)


def labelled_part(catalog: Catalog, folder: Path) -> tuple[Catalog, tuple[str, ...], list[Path]]:
    """Return the images that have a pseudo label.

    Args:
        catalog: Images to look for.
        folder: Folder of the pseudo labels, named as the images.

    Returns:
        The labelled images, a sentence about the others (none if there are no others), and the
        label files.

    Raises:
        TagmaskError: If no image has a label.
    """
    files: dict[int, Path] = {}
    missing: list[str] = []
    for i in range(len(catalog)):
        name = catalog.name(i)
        file = layout.label_file(folder, name)
        if file.is_file():
            files[i] = file
        else:
            missing.append(name)
    if not files:
        raise TagmaskError(
            f"{folder} contains no pseudo labels of these images; "
            "make them with `tagmask pseudo` first."
        )
    notes: tuple[str, ...] = ()
    if missing:
        counts = f"{len(missing)} of {len(catalog)} images"
        which = first_of(missing)
        notes = (f"{counts} have no pseudo label in {folder} and are left out: {which}",)
    return catalog.subset(list(files)), notes, list(files.values())


def estimate(probe: Probe) -> float:
    """Return seconds per training step.

    A step of a head counts with its rounds, and with its share of the time that the tokens of all
    photos take.
    """
    settings: SegmentSettings = probe.run.for_stage("segment")
    if settings.net == "head":
        images = len(probe.catalog)
        tokens = 0.0 if probe.keeps_features_before else timed(probe.see) * images
        head = probe.head
        features = torch.rand(settings.cells, len(head.shift), device=head.shift.device)
        step = timed(lambda: head.logits_of(features).logsumexp(-1).sum().backward())
        return step * (settings.rounds + 1) + tokens / total_steps(settings, images)
    part = settings.batch // settings.accumulate
    size = settings.size
    batch = {
        "images": torch.rand(part, 3, size, size),
        "labels": torch.zeros(part, size, size, dtype=torch.long),
    }
    module = PixelLoss(build_segmenter(settings, probe.catalog.classes, fresh=True))
    return time_step(module, batch) * settings.accumulate


def disk(probe: Probe) -> float:
    """Return the bytes that the feature cache takes."""
    if probe.run.for_stage("segment").net != "head" or probe.keeps_features_before:
        return 0.0
    # two bytes for each value
    return float(probe.head_tokens.values.numel() * 2 * len(probe.catalog))
