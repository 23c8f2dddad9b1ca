"""Images with tags or labels as tensors: what the networks train on and are validated on."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import Dataset

from tagmask.config import AffinitySettings
from tagmask.data.catalog import Catalog
from tagmask.data.images import Picture, check_same_size, read_mask
from tagmask.data.tokens import TokenStore
from tagmask.errors import ImageError, TagmaskError
from tagmask.labels import MAX_CLASSES, UNSURE, Mask
from tagmask.models.affinity_net import STRIDE
from tagmask.models.compat import v2
from tagmask.pipeline.layout import label_file

_TRIES = 100  # images tried in place of an unusable one before giving up


class _RandomSamples(Dataset[dict[str, Tensor]]):
    """Training samples, indexed by (position, image index); randomness depends on ``seed`` and the position alone.

    An image that cannot be used is replaced by the next usable one and reported in ``broken``: its index, or −1.
    """

    stream = 1  # keeps the random numbers apart from others of the same seed

    def __init__(self, catalog: Catalog, seed: int) -> None:
        self.catalog, self.seed = catalog, seed

    def __len__(self) -> int:
        return len(self.catalog)

    def __getitem__(self, draw: Any) -> dict[str, Tensor]:
        position, index = draw
        image, target, used = self._first_usable(index)
        seed = int(np.random.SeedSequence([self.seed, position, self.stream]).generate_state(1)[0])
        return {
            **self.sample(image, target, seed),
            "broken": torch.tensor(index if used != index else -1),
        }

    def load(self, index: int) -> tuple[Tensor, Tensor]:
        """The image (3, H, W) uint8 and what it teaches; ImageError if it is unusable."""
        raise NotImplementedError

    def sample(self, image: Tensor, target: Tensor, seed: int) -> dict[str, Tensor]:
        """A random sample of what ``load`` returned."""
        raise NotImplementedError

    def _first_usable(self, index: int) -> tuple[Tensor, Tensor, int]:
        first_error: ImageError | None = None
        tries = min(_TRIES, len(self.catalog))
        for offset in range(tries):
            used = (index + offset) % len(self.catalog)
            try:
                return *self.load(used), used
            except ImageError as error:
                first_error = first_error or error
        raise TagmaskError(
            f"{tries} images in a row cannot be used; the first error: {first_error}"
        ) from None


class TagDataset(_RandomSamples):
    """For the classifier: a random square crop, randomly flipped, and its multi-hot tags.

    ``crops`` is the smallest share of the area in a crop, whose proportions change by up to 4/3; or the shortest and
    longest long side of a resized image, which keeps its proportions and is padded with ``fill`` (a colour, 0 … 1).
    """

    def __init__(
        self,
        catalog: Catalog,
        size: int,
        crops: float | tuple[int, int],
        seed: int,
        augment: bool = False,
        fill: Sequence[float] = (0, 0, 0),
    ) -> None:
        super().__init__(catalog, seed)
        if isinstance(crops, tuple):
            colour = [round(255 * part) for part in fill]
            cut = [
                partial(_resize_long_side, *crops),
                v2.RandomCrop(size, pad_if_needed=True, fill=colour),
            ]
        else:
            cut = [
                v2.RandomResizedCrop(size, scale=(crops, 1.0), ratio=(3 / 4, 4 / 3), antialias=True)
            ]
        more = [v2.RandAugment()] if augment else []
        self.transform = v2.Compose(
            [*cut, v2.RandomHorizontalFlip(), *more, v2.ToDtype(torch.float32, scale=True)]
        )

    def load(self, index: int) -> tuple[Tensor, Tensor]:
        return to_tensor(self.catalog.load_image(index)), _tags(self.catalog, index)

    def sample(self, image: Tensor, target: Tensor, seed: int) -> dict[str, Tensor]:
        torch.default_generator.manual_seed(
            seed
        )  # torch.manual_seed would note the call for every kind of device
        return {
            "images": self.transform(image),
            "targets": target,
        }  # (3, size, size) in [0, 1], (C,)


class TokenDataset(_RandomSamples):
    """For a classifier that is trained on fixed views: kept tokens of a photo and its mirror image, and its tags."""

    def __init__(self, catalog: Catalog, store: TokenStore) -> None:
        super().__init__(catalog, 0)
        self.store = store

    def load(self, index: int) -> tuple[Any, Tensor]:
        return self.store.get(self.catalog, index), _tags(self.catalog, index)

    def sample(self, image: Any, target: Tensor, seed: int) -> dict[str, Tensor]:
        del seed  # nothing is random
        return {
            "tokens": image.values,
            "grids": torch.tensor(image.grid),
            "targets": target,
        }  # (2, N, D), (2,), (C,)

    @staticmethod
    def collate(samples: Sequence[dict[str, Tensor]]) -> dict[str, Any]:
        """A batch; photos differ in their number of tokens, so these stay a list."""
        names = [name for name in samples[0] if name != "tokens"]
        stacked = {name: torch.stack([sample[name] for sample in samples]) for name in names}
        return {"tokens": [sample["tokens"] for sample in samples], **stacked}


def _resize_long_side(shortest: int, longest: int, image: Tensor) -> Tensor:
    """An image (3, H, W) resized in its proportions, so that its long side has a random length."""
    length = int(torch.randint(shortest, longest + 1, ()))
    size = [max(1, round(side * length / max(image.shape[-2:]))) for side in image.shape[-2:]]
    resized: Tensor = v2.functional.resize(image, size, antialias=True)
    return resized


class SquareDataset(Dataset[dict[str, Tensor]]):
    """For validation: the whole image squeezed to a square, so that images of any shape share a batch."""

    def __init__(self, catalog: Catalog, size: int) -> None:
        self.catalog, self.size = catalog, size

    def __len__(self) -> int:
        return len(self.catalog)

    def __getitem__(self, index: Any) -> dict[str, Tensor]:
        try:
            image, broken = to_tensor(self.catalog.load_image(int(index))), -1
        except ImageError:
            image, broken = torch.zeros(3, 1, 1, dtype=torch.uint8), int(index)
        square = v2.functional.resize(image, [self.size, self.size], antialias=True)
        return {
            "images": v2.functional.to_dtype(square, torch.float32, scale=True),
            "targets": _tags(self.catalog, int(index)),
            "broken": torch.tensor(broken),
        }


class PseudoDataset(_RandomSamples):
    """For the segmenter: a random square crop of an image at a random scale, randomly flipped, and its pseudo label.

    Beyond the image's border there is ``fill`` (the encoder's mean colour, 0 … 1) with the label 255. Images whose
    label is 255 everywhere cannot be used.
    """

    stream = 3

    def __init__(
        self,
        catalog: Catalog,
        folder: Path,
        crop: int,
        scales: tuple[float, float],
        fill: Sequence[float],
        seed: int,
    ) -> None:
        super().__init__(catalog, seed)
        self.folder, self.crop, self.scales = folder, crop, scales
        self.fill = torch.tensor(fill).view(3, 1, 1)

    def load(self, index: int) -> tuple[Tensor, Tensor]:
        image, label = read_pair(self.catalog, index, self.folder)
        if (label == UNSURE).all():
            raise ImageError(
                f"{label_file(self.folder, self.catalog.name(index))} is unsure (255) all over; make the pseudo labels "
                "with less strict thresholds."
            )
        return to_tensor(image), torch.from_numpy(label)

    def sample(self, image: Tensor, target: Tensor, seed: int) -> dict[str, Tensor]:
        random = torch.rand(4, generator=torch.Generator().manual_seed(seed)).tolist()
        picture, labels = crop_pair(image, target, self.crop, self.scales, self.fill, random)
        return {
            "images": picture,
            "labels": labels,
        }  # (3, crop, crop) in [0, 1], (crop, crop) int64


class RegionDataset(_RandomSamples):
    """For AffinityNet: a random crop, randomly scaled and flipped, and the labels of the pixels its features lie on.

    Beyond the image's border there is ``fill`` (a colour, 0 … 1) with the label 255.
    """

    def __init__(
        self, catalog: Catalog, regions: Path, settings: AffinitySettings, fill: Sequence[float]
    ) -> None:
        super().__init__(catalog, settings.seed)
        self.regions, self.size, self.scales = regions, settings.size, settings.scales
        self.fill = torch.tensor(fill).view(3, 1, 1)
        amount = settings.jitter
        self.jitter = (
            v2.ColorJitter(amount, amount, amount, amount / 3) if amount else v2.Identity()
        )

    def load(self, index: int) -> tuple[Tensor, Tensor]:
        image, regions = read_pair(self.catalog, index, self.regions)
        return to_tensor(image), torch.from_numpy(regions)

    def sample(self, image: Tensor, target: Tensor, seed: int) -> dict[str, Tensor]:
        torch.default_generator.manual_seed(seed)
        size, (low, high) = self.size, self.scales
        image, target = _resize_pair(image, target, low + (high - low) * float(torch.rand(())))
        top, left = (int(torch.randint(max(0, side - size) + 1, ())) for side in target.shape)
        crop = self.jitter(image[:, top : top + size, left : left + size])
        rows, columns = crop.shape[-2:]
        pixels = self.fill.repeat(1, size, size)
        pixels[:, :rows, :columns] = v2.functional.to_dtype(crop, torch.float32, scale=True)
        regions = torch.full((size, size), UNSURE, dtype=torch.uint8)
        regions[:rows, :columns] = target[top : top + size, left : left + size]
        if torch.rand(()) < 0.5:
            pixels, regions = pixels.flip(-1), regions.flip(-1)
        labels = regions[::STRIDE, ::STRIDE].long()  # features lie on every eighth pixel
        return {"images": pixels, "labels": labels}  # (3, size, size) in [0, 1], (size/8, size/8)


def crop_pair(
    image: Tensor,
    label: Tensor,
    crop: int,
    scales: tuple[float, float],
    fill: Tensor,
    random: Sequence[float],
) -> tuple[Tensor, Tensor]:
    """Scale, flip, pad (right and bottom) and crop an image (3, H, W) and its label (H, W), both uint8, to squares.

    ``random`` holds four numbers in [0, 1): for scale, flip, top and left.
    """
    image, label = _resize_pair(image, label, scales[0] + (scales[1] - scales[0]) * random[0])
    picture, labels = image.float() / 255, label.long()  # (3, h, w), (h, w)
    if random[1] < 0.5:
        picture, labels = picture.flip(-1), labels.flip(-1)
    size = labels.shape
    bottom, right = (max(0, crop - side) for side in size)
    picture = F.pad(picture - fill, (0, right, 0, bottom)) + fill if bottom or right else picture
    labels = F.pad(labels, (0, right, 0, bottom), value=UNSURE)
    top, left = (
        int(share * (max(side, crop) - crop + 1))
        for share, side in zip(random[2:], size, strict=True)
    )
    return picture[:, top : top + crop, left : left + crop], labels[
        top : top + crop, left : left + crop
    ]


def _resize_pair(image: Tensor, label: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """An image (3, H, W) and its label (H, W) scaled alike; labels are not mixed."""
    size = [max(1, round(side * scale)) for side in label.shape]
    resize, mode = v2.functional.resize, v2.InterpolationMode
    picture = resize(image, size, interpolation=mode.BILINEAR, antialias=True)
    return picture, resize(label[None], size, interpolation=mode.NEAREST_EXACT)[0]


def to_tensor(image: Picture) -> Tensor:
    """(H, W, 3) uint8 to (3, H, W) uint8."""
    return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))


def _tags(catalog: Catalog, index: int) -> Tensor:
    return torch.from_numpy(catalog.targets([index])[0])  # (C,)


def read_pair(catalog: Catalog, index: int, folder: Path) -> tuple[Picture, Mask]:
    """An image (H, W, 3) and its label (H, W) in ``folder``; ImageError if one is unreadable or their sizes differ."""
    file = label_file(folder, catalog.name(index))
    label = read_mask(file, MAX_CLASSES)
    highest, classes = int(label[label != UNSURE].max(initial=0)), len(catalog.classes)
    if highest > classes:
        raise TagmaskError(
            f"{file} holds the label {highest}, but there are only {classes} classes; it was made for other classes: "
            "make the labels again with `tagmask pseudo`."
        )
    image = catalog.load_image(index)
    check_same_size(image, label, catalog.name(index))
    return image, label
