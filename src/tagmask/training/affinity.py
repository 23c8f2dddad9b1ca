"""Training AffinityNet on confident regions (PSA, Ahn & Kwak 2018).

Deviations: PSA trains a ResNet-38 with frozen first layers at a learning rate of 0.1 for 8 epochs; the defaults here
are a ResNet-50, 0.01 and 5 epochs, the last two from MCTformer's copy. PSA averages the scores to stride 8;
here labels are read at the centre of each cell. docs/paper-settings.md lists all settings.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from tagmask.config import AffinitySettings
from tagmask.data.catalog import Catalog
from tagmask.data.datasets import RegionDataset
from tagmask.masks.pairs import affinity_losses
from tagmask.models.affinity_net import AffinityNet
from tagmask.training.loop import Task


class PairLoss(nn.Module):
    """The loss of a batch, for the loop."""

    def __init__(self, net: AffinityNet, radius: float) -> None:
        super().__init__()
        self.net, self.radius = net, radius

    def forward(self, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Images (B, 3, H, W) in [0, 1], labels (B, H/8, W/8) to the total loss and its parts."""
        losses = affinity_losses(self.net(self.net.normalize(images)), labels, self.radius)
        return {"loss": losses.total, **losses._asdict()}


class AffinityTask(Task):
    """What the training loop needs to know about AffinityNet; there are no true affinities to validate with."""

    name, what, unusable = "affinity", "affinity network", "could not be used"
    new_layers = ("net.narrow.", "net.join.")

    def __init__(self, catalog: Catalog, regions: Path, settings: AffinitySettings) -> None:
        self.network = net = build_net(settings)
        self.module = PairLoss(net, settings.radius)
        self.dataset = RegionDataset(catalog, regions, settings, net.mean.flatten().tolist())


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
