"""Train the tag classifier."""

import dataclasses

from torch.utils.data import default_collate

from tagmask.config import TrainSettings, check, write_section
from tagmask.data.catalog import Catalog
from tagmask.data.open import open_catalog
from tagmask.errors import TagmaskError
from tagmask.models.device import on_device
from tagmask.pipeline import layout
from tagmask.pipeline.record import IMAGES, Parts, made_from, places
from tagmask.stages.timing import Probe, time_step, timed
from tagmask.training.checkpoint import read_state
from tagmask.training.classifier import ClassifierTask
from tagmask.training.loop import Loop, Trained, total_steps
from tagmask.training.start import fit_heads, read_heads


def train(settings: TrainSettings, catalog: Catalog | None = None) -> Trained:
    """Train a classifier, or resume a training that was stopped."""
    check(settings)
    whole = open_catalog(settings) if catalog is None else catalog
    if settings.val_split is not None:
        training, val = whole, open_catalog(dataclasses.replace(settings, split=settings.val_split))
    else:
        training, val = whole.split(settings.val_fraction, settings.seed)
    if not len(training):
        raise TagmaskError("there is no image to train on; check the data settings.")
    identity: Parts = {**made_from(settings), **places(settings), IMAGES[0]: training.fingerprint()}
    task, folder = ClassifierTask(training, val, settings), settings.out / layout.CLASSIFIER
    if settings.head_first and (settings.restart or read_state(folder) is None):
        fit_heads(on_device(task.classifier), settings.freeze, task.store, training)
    loop = Loop(task, settings, folder, identity)
    if loop.is_main:
        write_section(settings.out / layout.CONFIG, "train", settings)
    return loop.train(training, whole.notes)


def estimate(probe: Probe) -> float:
    """Seconds per training step."""
    settings, task = probe.training, probe.task
    part = settings.batch // settings.accumulate
    samples = [task.dataset[(k, k % len(probe.catalog))] for k in range(part)]
    batch = getattr(task.dataset, "collate", default_collate)(samples)
    batch.pop("broken")
    seconds = time_step(task.module, batch) * settings.accumulate
    if settings.fixed_views:  # the tokens of every photo are computed once
        once = timed(lambda: task.dataset[(0, 0)])
        if settings.head_first:  # and are seen once before the first step
            once += timed(
                lambda: read_heads(task.classifier, settings.freeze, task.store, probe.catalog, [0])
            )
        seconds += once * len(probe.catalog) / total_steps(settings, len(probe.catalog))
    return seconds


def disk(probe: Probe) -> float:
    """Bytes that kept tokens take."""
    if not probe.training.fixed_views:
        return 0.0
    return float(probe.task.dataset[(0, 0)]["tokens"].numel() * 2 * len(probe.catalog))
