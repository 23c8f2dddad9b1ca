"""Training of AffinityNet on confident regions (PSA, Ahn & Kwak 2018).

Deviations: PSA trains a ResNet-38 with frozen first layers at a learning rate of 0.1 for 8 epochs;
the defaults here are a ResNet-50, 0.01 and 5 epochs, the last two from MCTformer's copy. PSA
averages the scores to stride 8; here labels are read at the centre of each cell.
docs/reference/paper-settings.md lists all settings.
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
    """Loss of a batch, for the training loop."""

    def __init__(self, net: AffinityNet, radius: float) -> None:
        super().__init__()
        self.net = net
        self.radius = radius

    def forward(self, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return the total loss and its parts.

        Args:
            images: Images (B, 3, H, W) in [0, 1].
            labels: Labels of the cells (B, H/8, W/8), 255 = unsure.

        Returns:
            The ``loss`` and the losses of each kind of pair.
        """
        features = self.net(self.net.normalize(images))  # (B, C, H/8, W/8)
        losses = affinity_losses(features, labels, self.radius)
        return {"loss": losses.total, **losses._asdict()}


class AffinityTask(Task):
    """Network and data of AffinityNet, for the training loop.

    There are no true affinities to validate with.
    """

    name = "affinity"
    what = "affinity network"
    unusable = "could not be used"
    new_layers = ("net.narrow.", "net.join.")

    def __init__(self, catalog: Catalog, regions: Path, settings: AffinitySettings) -> None:
        net = build_net(settings)
        self.network = net
        self.module = PairLoss(net, settings.radius)
        self.dataset = RegionDataset(catalog, regions, settings, net.mean.flatten().tolist())


def build_net(settings: AffinitySettings) -> AffinityNet:
    """Build the network that a training starts from."""
    torch.manual_seed(settings.seed)
    freeze_norm = settings.freeze_norm
    if freeze_norm is None:
        # statistics of random weights are worth nothing, those of trained ones are
        freeze_norm = settings.pretrained or settings.weights is not None
    return AffinityNet(
        settings.backbone,
        pretrained=settings.pretrained,
        weights=settings.weights,
        caffe=settings.caffe,
        freeze_norm=freeze_norm,
    )
