"""Training AffinityNet on confident regions (PSA, Ahn & Kwak 2018).

Deviations: PSA trains a ResNet-38 with frozen first layers at a learning rate of 0.1 for 8 epochs; the defaults here
are a ResNet-50, 0.01 and 5 epochs, the last two from MCTformer's copy. PSA averages the scores to stride 8;
here labels are read at the centre of each cell. docs/paper-settings.md lists all settings.
"""

import hashlib
from pathlib import Path

import torch
from torch import Tensor, nn

from tagmask.config import AffinitySettings, check
from tagmask.data.catalog import Catalog
from tagmask.data.datasets import RegionDataset
from tagmask.errors import TagmaskError
from tagmask.files import file_size
from tagmask.layout import label_file
from tagmask.masks.pairs import affinity_losses
from tagmask.models.affinity_net import AffinityNet
from tagmask.pipeline.record import IMAGES, INPUT, Parts, made_from, places
from tagmask.training.loop import Loop, Task, Trained


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


def train_affinity(
    catalog: Catalog, regions: Path, settings: AffinitySettings, out: Path
) -> Trained:
    """Train AffinityNet into the folder ``out``, or resume a training that was stopped.

    ``regions`` holds one PNG of labels per image, named as the image: 0 = surely background, c+1 = surely class c,
    255 = unsure. Images without one are left out.
    """
    check(settings)
    training, sizes = _with_regions(catalog, regions)
    missing = len(catalog) - len(training)
    notes = (
        (f"{missing} of {len(catalog)} images have no confident regions in {regions}.",)
        if missing
        else ()
    )
    identity: Parts = {**made_from(settings), **places(settings), IMAGES[0]: training.fingerprint()}
    loop = Loop(
        AffinityTask(training, regions, settings),
        settings,
        out,
        {**identity, f"{INPUT}regions": sizes},
    )
    return loop.train(training, notes)


def _with_regions(catalog: Catalog, regions: Path) -> tuple[Catalog, str]:
    """The images that have regions, and a hash of the files' sizes that tells one set of regions from another."""
    every = {i: file_size(label_file(regions, catalog.name(i))) for i in range(len(catalog))}
    sizes = {i: size for i, size in every.items() if size >= 0}
    if not sizes:
        raise TagmaskError(
            f"{regions} holds no regions of these images, named <image>.png; make them first."
        )
    joined = b"".join(size.to_bytes(8, "little") for size in sizes.values())
    return catalog.subset(list(sizes)), hashlib.sha256(joined).hexdigest()[:32]
