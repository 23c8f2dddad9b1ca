"""Training AffinityNet on confident regions (PSA, Ahn & Kwak 2018). The defaults are ACR's and PSA's recipe.

Deviations: PSA also freezes the first layers of its ResNet-38, and averages scores to stride 8 where labels are
taken at the centre of each cell here.
"""

import dataclasses
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import Dataset

from tagmask.config import AffinitySettings
from tagmask.data.catalog import Catalog
from tagmask.data.datasets import RegionDataset, label_file
from tagmask.errors import TagmaskError
from tagmask.files import write_json
from tagmask.masks.pairs import affinity_losses
from tagmask.models.affinity_net import AffinityNet
from tagmask.training.loop import BROKEN, Loop, Outcome, told_broken

_NOT_IDENTITY = {"workers", "log_every", "save_every", "restart", "tensorboard"}  # may change on resuming


class PairLoss(nn.Module):
    """The loss of a batch, for the loop."""

    def __init__(self, net: AffinityNet, radius: float) -> None:
        super().__init__()
        self.net, self.radius = net, radius

    def forward(self, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Images (B, 3, H, W) in [0, 1], labels (B, H/8, W/8) to the total loss and its parts."""
        losses = affinity_losses(self.net(self.net.normalize(images)), labels, self.radius)
        return {"loss": losses.total, **losses._asdict()}


class AffinityTask:
    """What the training loop needs to know about AffinityNet."""

    name = "affinity"
    new_layers: tuple[str, ...] = ("net.narrow.", "net.join.")
    metric = "none"

    def __init__(self, catalog: Catalog, regions: Path, settings: AffinitySettings) -> None:
        self.net = build_net(settings)
        self.module: nn.Module = PairLoss(self.net, settings.radius)
        self.dataset: Dataset[Any] = RegionDataset(catalog, regions, settings, self.net.mean.flatten().tolist())
        self.images = len(catalog)

    def validate(self, accelerator: Accelerator) -> dict[str, float]:
        """Nothing: there are no true affinities to compare with."""
        del accelerator
        return {}

    def save(self, folder: Path) -> None:
        self.net.save(folder)


def build_net(settings: AffinitySettings) -> AffinityNet:
    """The network to start from."""
    torch.manual_seed(settings.seed)
    from_weights = settings.pretrained or settings.weights is not None
    return AffinityNet(
        settings.backbone,
        pretrained=settings.pretrained,
        weights=settings.weights,
        caffe=settings.caffe,
        freeze_norm=from_weights if settings.freeze_norm is None else settings.freeze_norm,
    )


@dataclass
class TrainedAffinity:
    """What a training left behind."""

    folder: Path
    outcome: Outcome
    broken: list[str]  # names of images that could not be used
    notes: tuple[str, ...]
    is_main: bool  # False in all processes of a launch but one

    def summary(self) -> str:
        """What a user wants to know at the end."""
        lines = [*self.notes, *told_broken(self.folder, self.broken, "could not be used")]
        return "\n".join([*lines, f"affinity network: {self.folder / 'model.safetensors'}"])


def train_affinity(catalog: Catalog, regions: Path, settings: AffinitySettings, out: Path) -> TrainedAffinity:
    """Train AffinityNet into the folder ``out``, or go on with a training that was stopped.

    ``regions`` holds one PNG of labels per image, named as the image: 0 = surely background, c+1 = surely class c,
    255 = unsure. Images without one are left out.
    """
    found = settings.mistakes()
    if found:
        raise TagmaskError("\n".join(found))
    training, digest = _with_regions(catalog, regions)
    missing = len(catalog) - len(training)
    notes = (f"{missing} of {len(catalog)} images have no confident regions in {regions}.",) if missing else ()
    task = AffinityTask(training, regions, settings)
    loop = Loop(task, settings, out, {**_identity(settings), "images": training.fingerprint(), "regions": digest})
    outcome = loop.run()
    broken = [training.name(i) for i in outcome.broken]
    if loop.accelerator.is_main_process and broken:
        write_json(out / BROKEN, broken)
    return TrainedAffinity(out, outcome, broken, notes, loop.accelerator.is_main_process)


def _with_regions(catalog: Catalog, regions: Path) -> tuple[Catalog, str]:
    """The images that have regions, and a hash of the files' sizes that tells one set of regions from another."""
    kept, digest = [], hashlib.sha256()
    for i in range(len(catalog)):
        try:
            digest.update(label_file(regions, catalog.name(i)).stat().st_size.to_bytes(8, "little"))
            kept.append(i)
        except OSError:
            continue
    if not kept:
        raise TagmaskError(f"{regions} holds no regions of these images, named <image>.png; make them first.")
    return catalog.subset(kept), digest.hexdigest()[:32]


def _identity(settings: AffinitySettings) -> dict[str, Any]:
    """The settings that a resumed training must share, as JSON gives them back."""
    values = dataclasses.asdict(settings)
    plain = {k: list(v) if isinstance(v, tuple) else str(v) if isinstance(v, Path) else v for k, v in values.items()}
    return {name: value for name, value in plain.items() if name not in _NOT_IDENTITY}
