"""Settings that only a number can show: leave one out, and a test here fails."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from tagmask.config import AffinitySettings
from tagmask.data.datasets import RegionDataset
from tagmask.data.folder import read_folder
from tagmask.data.images import write_mask
from tagmask.data.open import open_catalog
from tagmask.models.classifier import Classifier
from tagmask.training.classifier import ClassifierTask
from tagmask.training.loop import make_accelerator
from tagmask.training.optim import build_optimizer
from tests.alone import train
from tests.helpers import tiny_settings


def ramp(folder: Path) -> Any:
    """A photo that grows brighter from left to right, as a catalog."""
    (folder / "photos/dog").mkdir(parents=True)
    columns = np.broadcast_to(np.arange(64, dtype=np.uint8)[None, :, None] * 4, (64, 64, 3))
    Image.fromarray(np.ascontiguousarray(columns)).save(folder / "photos/dog/ramp.png")
    return read_folder(folder / "photos", None)


def tag_samples(catalog: Any, out: Path, **changes: Any) -> torch.Tensor:
    """Training images of the ramp at 32 positions of the stream: (32, 3, 32, 32)."""
    settings = tiny_settings(out, **changes)
    dataset = ClassifierTask(catalog, catalog.subset([]), settings.own, settings.run).dataset
    return torch.stack([dataset[position, 0]["images"] for position in range(32)])


def test_crop_scale_is_the_smallest_share_of_the_area(tmp_path: Path) -> None:
    catalog = ramp(tmp_path)
    spans = {}
    for crop_scale in (0.1, 0.9):
        rows = tag_samples(catalog, tmp_path, crop_scale=crop_scale)[:, 0, 16]  # (32, 32)
        spans[crop_scale] = (rows.amax(1) - rows.amin(1)) / (
            63 * 4 / 255
        )  # share of the width that is seen
    assert spans[0.9].min() > 0.75
    assert spans[0.1].min() < 0.6


def test_half_of_the_training_images_are_mirrored(tmp_path: Path) -> None:
    rows = tag_samples(ramp(tmp_path), tmp_path)[:, 0, 16]
    assert 8 <= int((rows[:, 0] > rows[:, -1]).sum()) <= 24  # of 32


@pytest.mark.parametrize(("jitter", "changes"), [(0.0, False), (0.5, True)])
def test_jitter_changes_colours(tmp_path: Path, jitter: float, changes: bool) -> None:
    catalog = ramp(tmp_path)
    write_mask(tmp_path / "regions/dog/ramp.png", np.zeros((64, 64), np.uint8))
    settings = AffinitySettings(backbone="test_resnet", size=64, jitter=jitter)
    images = [
        RegionDataset(catalog, tmp_path / "regions", settings, [0.0] * 3)[k, 0]["images"]
        for k in range(8)
    ]
    means = torch.stack([image.mean() for image in images])
    assert (means.max() - means.min() > 0.02) == changes


def test_momentum_and_rates_reach_the_optimiser(tmp_path: Path) -> None:
    settings = tiny_settings(
        tmp_path, optimizer="sgd", momentum=0.3, lr=0.5, head_lr=4.0, weight_decay=0.125
    )
    groups = build_optimizer(
        nn.ModuleDict({"head": nn.Linear(2, 2), "body": nn.Linear(2, 2)}), settings, ("head",)
    )
    values = {
        (group["lr"], group["momentum"], group["weight_decay"]) for group in groups.param_groups
    }
    assert values == {(2.0, 0.3, 0.125), (0.5, 0.3, 0.125)}


@pytest.mark.parametrize("absolute", [False, True])
def test_the_loss_is_the_weighted_sum_of_its_parts(tmp_path: Path, absolute: bool) -> None:
    """By default --alpha and --beta hold for 576 patches; an image of 32 pixels has 16."""
    settings = tiny_settings(tmp_path, alpha=3.0, beta=0.5, alpha_absolute=absolute)
    catalog = open_catalog(settings.run)
    module = ClassifierTask(catalog, catalog.subset([]), settings.own, settings.run).module
    torch.manual_seed(0)
    losses = module(torch.rand(2, 3, 32, 32), torch.eye(len(catalog.classes))[:2])
    factor = 1.0 if absolute else 16 / 576
    expected = losses["classes"] + factor * (3.0 * losses["activation"] + 0.5 * losses["affinity"])
    torch.testing.assert_close(losses["loss"], expected)
    assert losses["affinity"] > 1e-4


@pytest.mark.parametrize(
    ("val_every", "steps"), [(0.5, [3, 6]), (0.25, [1, 2, 3, 4, 5, 6]), (5.0, [6])]
)
def test_validation_comes_as_often_as_asked_and_at_the_end(
    tmp_path: Path, val_every: float, steps: list[int]
) -> None:
    trained = train(tiny_settings(tmp_path, val_every=val_every))  # 22 images, 4 in a batch
    rows = [json.loads(line) for line in (trained.folder / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "map" in row] == steps


def test_the_averaged_weights_are_validated_and_saved(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, ema=0.8, lr=0.01, warmup=0)
    trained = train(settings)
    training, val = open_catalog(settings.run).split(settings.val_fraction, settings.seed)
    task = ClassifierTask(training, val, settings.own, settings.run)
    task.classifier.load_state_dict(Classifier.load(trained.folder).state_dict())
    assert task.validate(make_accelerator(settings, tmp_path)) == pytest.approx(trained.metrics)
