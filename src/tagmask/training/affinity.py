"""Training AffinityNet on confident regions (PSA, Ahn & Kwak 2018). The defaults are ACR's and PSA's recipe.

Deviations: PSA also freezes the first layers of its ResNet-38, and averages scores to stride 8 where labels are
taken at the centre of each cell here.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import Dataset

from tagmask.config import AffinitySettings, check
from tagmask.data.catalog import Catalog
from tagmask.data.datasets import to_tensor
from tagmask.data.images import IGNORE, check_same_size, read_mask
from tagmask.errors import ImageError, TagmaskError
from tagmask.masks.pairs import affinity_losses
from tagmask.models.affinity_net import STRIDE, AffinityNet
from tagmask.models.compat import v2
from tagmask.pipeline.layout import label_file
from tagmask.pipeline.record import IMAGES, INPUT, Parts, digest, made_from, places
from tagmask.training.loop import Loop, Trained

_TRIES = 100  # images tried in place of a broken one before giving up


class RegionDataset(Dataset[dict[str, Tensor]]):
    """Training samples: a random crop, randomly scaled and flipped, and the labels of the pixels its features lie on.

    Indexed by (position, image index); the crop depends on the seed and the position alone. An image that cannot be
    used, or whose regions cannot, is replaced by the next and told in ``broken`` (its index; −1 where all is well).
    What of a crop lies outside the image is ``fill`` (a colour) and unsure.
    """

    def __init__(self, catalog: Catalog, regions: Path, settings: AffinitySettings, fill: Sequence[float]) -> None:
        self.catalog, self.regions, self.settings = catalog, regions, settings
        self.fill = torch.tensor(fill).view(3, 1, 1)
        amount = settings.jitter
        self.jitter = v2.ColorJitter(amount, amount, amount, amount / 3) if amount else v2.Identity()

    def __len__(self) -> int:
        return len(self.catalog)

    def __getitem__(self, draw: Any) -> dict[str, Tensor]:
        position, index = draw
        image, labels, used = self._readable(index)
        torch.manual_seed(int(np.random.SeedSequence([self.settings.seed, position, 1]).generate_state(1)[0]))
        pixels, regions = self._crop(to_tensor(image), torch.from_numpy(labels))
        return {
            "images": pixels,  # (3, size, size) in [0, 1]
            "labels": regions[::STRIDE, ::STRIDE].long(),  # (size/8, size/8): features lie on every eighth pixel
            "broken": torch.tensor(index if used != index else -1),
        }

    def _crop(self, image: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Image (3, H, W) and labels (H, W), both uint8, to a square of each; the image in [0, 1]."""
        size, (low, high) = self.settings.size, self.settings.scales
        scale = low + (high - low) * float(torch.rand(()))
        if low != high:
            shape = [max(1, round(side * scale)) for side in labels.shape]
            image = v2.functional.resize(image, shape, antialias=True)
            labels = v2.functional.resize(labels[None], shape, v2.InterpolationMode.NEAREST_EXACT)[0]
        height, width = labels.shape
        top, left = (int(torch.randint(max(0, side - size) + 1, ())) for side in (height, width))
        part = self.jitter(image[:, top : top + size, left : left + size])
        rows, columns = part.shape[-2:]
        pixels = self.fill.repeat(1, size, size)
        pixels[:, :rows, :columns] = v2.functional.to_dtype(part, torch.float32, scale=True)
        regions = torch.full((size, size), IGNORE, dtype=torch.uint8)
        regions[:rows, :columns] = labels[top : top + size, left : left + size]
        if torch.rand(()) < 0.5:
            return pixels.flip(-1), regions.flip(-1)
        return pixels, regions

    def _readable(self, index: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8], int]:
        """Image and regions at ``index``, or the next that can be used, and their index."""
        problem: ImageError | None = None
        for offset in range(min(_TRIES, len(self.catalog))):
            used = (index + offset) % len(self.catalog)
            try:
                return *self._read(used), used
            except ImageError as error:
                problem = problem or error
        raise TagmaskError(f"{_TRIES} images in a row cannot be used, the first because: {problem}") from None

    def _read(self, index: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
        name = self.catalog.name(index)
        image = self.catalog.load_image(index)
        labels = read_mask(label_file(self.regions, name), len(self.catalog.classes))
        check_same_size(image, labels, name)
        return image, labels


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

    name, what, unusable = "affinity", "affinity network", "could not be used"
    new_layers: tuple[str, ...] = ("net.narrow.", "net.join.")
    metric = metric_title = "none"

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


def train_affinity(catalog: Catalog, regions: Path, settings: AffinitySettings, out: Path) -> Trained:
    """Train AffinityNet into the folder ``out``, or resume a training that was stopped.

    ``regions`` holds one PNG of labels per image, named as the image: 0 = surely background, c+1 = surely class c,
    255 = unsure. Images without one are left out.
    """
    check(settings)
    training, sizes = _with_regions(catalog, regions)
    missing = len(catalog) - len(training)
    notes = (f"{missing} of {len(catalog)} images have no confident regions in {regions}.",) if missing else ()
    identity: Parts = {**made_from(settings), **places(settings), IMAGES[0]: training.fingerprint()}
    loop = Loop(AffinityTask(training, regions, settings), settings, out, {**identity, f"{INPUT}regions": sizes})
    return loop.train(training, notes)


def _with_regions(catalog: Catalog, regions: Path) -> tuple[Catalog, str]:
    """The images that have regions, and a hash of the files' sizes that tells one set of regions from another."""
    sizes = {}
    for i in range(len(catalog)):
        with suppress(OSError):
            sizes[i] = label_file(regions, catalog.name(i)).stat().st_size
    if not sizes:
        raise TagmaskError(f"{regions} holds no regions of these images, named <image>.png; make them first.")
    return catalog.subset(list(sizes)), digest(map(str, sizes.values()))
