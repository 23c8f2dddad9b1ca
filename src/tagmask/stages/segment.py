"""Train the segmentation network on pseudo labels."""

import hashlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from tagmask import layout
from tagmask.config import DeepLabSettings, HeadSettings, SegmentSettings
from tagmask.data.catalog import Catalog
from tagmask.errors import TagmaskError, first_of
from tagmask.features.cache import TokenStore
from tagmask.models.device import on_device
from tagmask.models.head import HeadSegmenter
from tagmask.models.kinds import load_classifier
from tagmask.notes import CONTENTS, INPUT, Parts
from tagmask.runs import record
from tagmask.runs.images import list_skipped
from tagmask.runs.record import IMAGES, check_classes, places
from tagmask.runs.run import Run
from tagmask.runs.timing import Probe, time_step, timed
from tagmask.runs.tokens import keep_together
from tagmask.training.head import gather_cells, memory_of_cells, train_head
from tagmask.training.loop import Loop, Trained, total_steps
from tagmask.training.segmenter import PixelLoss, SegmenterTask, build_segmenter


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


def made_from(run: Run, settings: SegmentSettings) -> Parts:
    """Return what the segmenter is made from, besides the pseudo labels.

    Args:
        run: The run.
        settings: Those of the stage.
    """
    if isinstance(settings, HeadSettings):
        classifier = settings.model or run.out / layout.CLASSIFIER
        return record.made_from(settings, {"classifier": classifier})
    return record.made_from(settings, unused=["net"])


def check_start(run: Run, settings: SegmentSettings) -> None:
    """Refuse weights that do not fit the backbone.

    Args:
        run: The run.
        settings: Those of the stage.

    Raises:
        TagmaskError: They do not fit, or cannot be read.
    """
    if isinstance(settings, DeepLabSettings) and settings.weights is not None:
        build_segmenter(settings, run.catalog.classes)


def train_segmenter(run: Run, settings: SegmentSettings) -> Trained | HeadTrained:
    """Train a segmenter, or resume a training that was stopped.

    Args:
        run: The run.
        settings: Settings of the stage: those of DeepLabV2, or of a head on the classifier's
            features.

    Returns:
        What the training left behind, with a summary for the terminal.

    Raises:
        TagmaskError: If none of the images has a pseudo label, or the classes do not fit.
    """
    labels = settings.pseudo or run.out / layout.PSEUDO
    whole = run.catalog
    check_classes(labels, whole.classes, "pseudo labels")
    labelled, label_notes, files = labelled_part(whole, labels)
    notes = (*whole.notes, *label_notes)
    if isinstance(settings, HeadSettings):
        return _train_head(run, settings, labelled, labels, notes)

    assert isinstance(settings, DeepLabSettings)
    training, val = labelled.split(settings.val_fraction, settings.seed)
    identity: Parts = {
        **run.made_from("segment", settings),
        **places(settings, run.settings),
        IMAGES[0]: training.fingerprint(),
    }
    task = SegmenterTask(training, val, labels, settings)
    sizes = str([file.stat().st_size for file in files])
    identity[f"{INPUT}labels"] = hashlib.sha256(sizes.encode()).hexdigest()[:16]
    identity[f"{CONTENTS}labels"] = record.contents_of(files)
    loop = Loop(task, settings, run.out / layout.SEGMENTER, identity)
    if loop.is_main:
        run.keep(settings)
    return loop.train(training, (*notes, *task.network.notes))


def _train_head(
    run: Run, settings: HeadSettings, catalog: Catalog, labels: Path, notes: tuple[str, ...]
) -> HeadTrained:
    """Train a head on tokens; it takes seconds, so that one that was stopped starts over.

    The processes of a launch compute the tokens together, and the first one trains the head.
    """
    folder = run.out / layout.SEGMENTER
    torch.manual_seed(settings.seed)
    classifier = on_device(load_classifier(settings.model or run.out / layout.CLASSIFIER))
    model = HeadSegmenter(classifier, settings.head_blocks, settings.size)
    if catalog.classes != model.classes:
        raise TagmaskError(
            "the classifier has other classes than the images; train it on these images first."
        )
    store = TokenStore.features_of(
        on_device(model).classifier, model.blocks, model.size, run.out, run.settings.tokens_limit
    )
    keep_together(run.team, store, catalog)
    if not run.team.is_first:
        return HeadTrained(folder, {}, (), {})
    run.keep(settings)
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

    A step of a head counts with its share of the time that the tokens of all photos take.
    """
    settings = probe.run.of(SegmentSettings)
    if isinstance(settings, HeadSettings):
        images = len(probe.catalog)
        tokens = 0.0 if probe.keeps_features_before else timed(probe.see) * images
        head = probe.head
        features = torch.rand(settings.cells, len(head.shift), device=head.shift.device)
        step = timed(lambda: head.logits_of(features).logsumexp(-1).sum().backward())
        steps, _ = amount(settings, images)
        return step + tokens / steps
    assert isinstance(settings, DeepLabSettings)
    part = settings.batch // settings.accumulate
    size = settings.size
    batch = {
        "images": torch.rand(part, 3, size, size),
        "labels": torch.zeros(part, size, size, dtype=torch.long),
    }
    module = PixelLoss(probe.segmenter)
    probe.unseen.append(probe.shared["segmenter"])
    return time_step(module, batch, probe.unseen) * settings.accumulate


def amount(settings: SegmentSettings, photos: int) -> tuple[int, str]:
    """Return how much there is to do, and in which unit.

    Args:
        settings: Those of the stage.
        photos: How many there are.
    """
    if isinstance(settings, HeadSettings):
        return (settings.steps or 1) * (settings.rounds + 1), "steps"
    assert isinstance(settings, DeepLabSettings)
    return total_steps(settings, round(photos * (1 - settings.val_fraction))), "steps"


def memory(probe: Probe, one: float) -> float:
    """Return the bytes of the stage.

    Args:
        probe: Settings and an image.
        one: Bytes of a process that does a step.
    """
    if not isinstance(probe.run.of(SegmentSettings), HeadSettings):
        return one
    cells = probe.head_tokens.values[0]  # (n, F)
    return one + memory_of_cells(len(cells), probe.head, len(probe.catalog))


def disk(probe: Probe) -> float:
    """Return the bytes that the feature cache takes."""
    is_head = isinstance(probe.run.of(SegmentSettings), HeadSettings)
    if not is_head or probe.keeps_features_before:
        return 0.0
    # two bytes for each value
    return float(probe.head_tokens.values.numel() * 2 * len(probe.catalog))
