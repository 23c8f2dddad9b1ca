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
from tagmask.errors import ImageError, TagmaskError
from tagmask.labels import MAX_CLASSES, UNSURE, Mask
from tagmask.layout import label_file
from tagmask.models.affinity_net import STRIDE
from tagmask.models.compat import v2

_TRIES = 100  # images tried in place of an unusable one before giving up


class RandomSamples(Dataset[dict[str, Tensor]]):
    """Training samples, indexed by (position, image index).

    Randomness depends on ``seed`` and the position alone. An image that cannot be used is replaced
    by the next usable one and reported in ``broken``: its index, or −1.
    """

    stream = 1  # keeps the random numbers apart from others of the same seed

    def __init__(self, catalog: Catalog, seed: int) -> None:
        self.catalog = catalog
        self.seed = seed

    def __len__(self) -> int:
        return len(self.catalog)

    def __getitem__(self, draw: Any) -> dict[str, Tensor]:
        position, index = draw
        image, target, used = self._first_usable(index)
        sequence = np.random.SeedSequence([self.seed, position, self.stream])
        seed = int(sequence.generate_state(1)[0])
        broken = index if used != index else -1
        return {**self.sample(image, target, seed), "broken": torch.tensor(broken)}

    def load(self, index: int) -> tuple[Tensor, Tensor]:
        """Return the image (3, H, W) uint8 and what it teaches; ImageError if it is unusable."""
        raise NotImplementedError

    def sample(self, image: Tensor, target: Tensor, seed: int) -> dict[str, Tensor]:
        """Return a random sample of what ``load`` returned.

        Args:
            image: (3, H, W) uint8.
            target: what the image teaches.
            seed: of the random numbers.
        """
        raise NotImplementedError

    def _first_usable(self, index: int) -> tuple[Tensor, Tensor, int]:
        """Load an image or, if it cannot be used, the next one; return its index too."""
        first_error: ImageError | None = None
        tries = min(_TRIES, len(self.catalog))
        for offset in range(tries):
            used = (index + offset) % len(self.catalog)
            try:
                image, target = self.load(used)
            except ImageError as error:
                first_error = first_error or error
                continue
            return image, target, used
        raise TagmaskError(
            f"{tries} images in a row cannot be used; the first error: {first_error}"
        ) from None


class TagDataset(RandomSamples):
    """For the classifier: a random square crop, randomly flipped, and its multi-hot tags.

    Args:
        catalog: the images and their tags.
        size: the side of a crop, in pixels.
        crops: the smallest share of the area in a crop, whose proportions change by up to 4/3; or
            the shortest and longest long side of a resized image, which keeps its proportions.
        seed: of the random numbers.
        augment: change colours and shapes more, by RandAugment.
        fill: the colour, 0 … 1, around a resized image that is smaller than a crop.
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
            steps = [
                partial(_resize_long_side, *crops),
                v2.RandomCrop(size, pad_if_needed=True, fill=colour),
            ]
        else:
            steps = [
                v2.RandomResizedCrop(size, scale=(crops, 1.0), ratio=(3 / 4, 4 / 3), antialias=True)
            ]
        steps.append(v2.RandomHorizontalFlip())
        if augment:
            steps.append(v2.RandAugment())
        steps.append(v2.ToDtype(torch.float32, scale=True))
        self.transform = v2.Compose(steps)

    def load(self, index: int) -> tuple[Tensor, Tensor]:
        """Return the image (3, H, W) uint8 and its tags (C,)."""
        image = self.catalog.load_image(index)  # (H, W, 3)
        return to_tensor(image), tags_of(self.catalog, index)

    def sample(self, image: Tensor, target: Tensor, seed: int) -> dict[str, Tensor]:
        """Return "images" (3, size, size) in [0, 1] and "targets" (C,).

        Args:
            image: (3, H, W) uint8.
            target: tags (C,).
            seed: of the random numbers.
        """
        # torch.manual_seed would note the call for every kind of device
        torch.default_generator.manual_seed(seed)
        return {"images": self.transform(image), "targets": target}


def _resize_long_side(shortest: int, longest: int, image: Tensor) -> Tensor:
    """Resize an image (3, H, W) in its proportions, its long side to a random length."""
    length = int(torch.randint(shortest, longest + 1, ()))
    sides = image.shape[-2:]
    longest_side = max(sides)
    size = [max(1, round(side * length / longest_side)) for side in sides]
    resized: Tensor = v2.functional.resize(image, size, antialias=True)
    return resized


class SquareDataset(Dataset[dict[str, Tensor]]):
    """For validation: the whole image squeezed to a square.

    So images of any shape share a batch.

    Args:
        catalog: the images and their tags.
        size: the side of the square, in pixels.
    """

    def __init__(self, catalog: Catalog, size: int) -> None:
        self.catalog = catalog
        self.size = size

    def __len__(self) -> int:
        return len(self.catalog)

    def __getitem__(self, index: Any) -> dict[str, Tensor]:
        broken = -1
        try:
            image = to_tensor(self.catalog.load_image(int(index)))  # (3, H, W)
        except ImageError:
            image = torch.zeros(3, 1, 1, dtype=torch.uint8)
            broken = int(index)
        square = v2.functional.resize(image, [self.size, self.size], antialias=True)
        return {
            "images": v2.functional.to_dtype(square, torch.float32, scale=True),
            "targets": tags_of(self.catalog, int(index)),
            "broken": torch.tensor(broken),
        }


class PseudoDataset(RandomSamples):
    """For the segmenter: a random square crop of an image, and its pseudo label.

    The image is randomly scaled and flipped. Images whose label is 255 everywhere cannot be used.

    Args:
        catalog: the images.
        folder: where their labels are.
        crop: the side of a crop, in pixels.
        scales: the smallest and largest scale.
        fill: the encoder's mean colour, 0 … 1, for what lies beyond the image's border; the label
            there is 255.
        seed: of the random numbers.
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
        self.folder = folder
        self.crop = crop
        self.scales = scales
        self.fill = torch.tensor(fill).view(3, 1, 1)

    def load(self, index: int) -> tuple[Tensor, Tensor]:
        """Return the image (3, H, W) and its label (H, W), both uint8."""
        image, label = read_pair(self.catalog, index, self.folder)
        if (label == UNSURE).all():
            file = label_file(self.folder, self.catalog.name(index))
            raise ImageError(
                f"{file} is unsure (255) all over; make the pseudo labels "
                "with less strict thresholds."
            )
        return to_tensor(image), torch.from_numpy(label)

    def sample(self, image: Tensor, target: Tensor, seed: int) -> dict[str, Tensor]:
        """Return "images" (3, crop, crop) in [0, 1] and "labels" (crop, crop) int64.

        Args:
            image: (3, H, W) uint8.
            target: label (H, W) uint8.
            seed: of the random numbers.
        """
        generator = torch.Generator().manual_seed(seed)
        random = torch.rand(4, generator=generator).tolist()
        picture, labels = crop_pair(image, target, self.crop, self.scales, self.fill, random)
        return {"images": picture, "labels": labels}


class RegionDataset(RandomSamples):
    """For AffinityNet: a random crop, and the labels of the pixels its features lie on.

    The image is randomly scaled and flipped.

    Args:
        catalog: the images.
        regions: the folder with their labels.
        settings: size, scales, colour jitter and seed.
        fill: a colour, 0 … 1, for what lies beyond the image's border; the label there is 255.
    """

    def __init__(
        self, catalog: Catalog, regions: Path, settings: AffinitySettings, fill: Sequence[float]
    ) -> None:
        super().__init__(catalog, settings.seed)
        self.regions = regions
        self.size = settings.size
        self.scales = settings.scales
        self.fill = torch.tensor(fill).view(3, 1, 1)
        self.jitter = v2.Identity()
        amount = settings.jitter
        if amount:
            self.jitter = v2.ColorJitter(amount, amount, amount, amount / 3)

    def load(self, index: int) -> tuple[Tensor, Tensor]:
        """Return the image (3, H, W) and its label (H, W), both uint8."""
        image, regions = read_pair(self.catalog, index, self.regions)
        return to_tensor(image), torch.from_numpy(regions)

    def sample(self, image: Tensor, target: Tensor, seed: int) -> dict[str, Tensor]:
        """Return "images" (3, size, size) in [0, 1] and "labels" (size/8, size/8).

        Args:
            image: (3, H, W) uint8.
            target: label (H, W) uint8.
            seed: of the random numbers.
        """
        torch.default_generator.manual_seed(seed)
        size = self.size
        low, high = self.scales
        share = float(torch.rand(()))
        scale = low + (high - low) * share
        image, target = _resize_pair(image, target, scale)
        height, width = target.shape
        last_top = max(0, height - size)
        last_left = max(0, width - size)
        top = int(torch.randint(last_top + 1, ()))
        left = int(torch.randint(last_left + 1, ()))
        rows = slice(top, top + size)
        columns = slice(left, left + size)
        crop = self.jitter(image[:, rows, columns])  # (3, h, w): less than size at a border
        crop = v2.functional.to_dtype(crop, torch.float32, scale=True)
        h, w = crop.shape[-2:]
        pixels = self.fill.repeat(1, size, size)  # (3, size, size)
        pixels[:, :h, :w] = crop
        regions = torch.full((size, size), UNSURE, dtype=torch.uint8)
        regions[:h, :w] = target[rows, columns]
        if torch.rand(()) < 0.5:
            pixels = pixels.flip(-1)
            regions = regions.flip(-1)
        labels = regions[::STRIDE, ::STRIDE].long()  # features lie on every eighth pixel
        return {"images": pixels, "labels": labels}


def crop_pair(
    image: Tensor,
    label: Tensor,
    crop: int,
    scales: tuple[float, float],
    fill: Tensor,
    random: Sequence[float],
) -> tuple[Tensor, Tensor]:
    """Scale, flip, pad (right and bottom) and crop an image and its label to squares.

    Args:
        image: (3, H, W) uint8.
        label: (H, W) uint8.
        crop: the side of the squares, in pixels.
        scales: the smallest and largest scale.
        fill: (3, 1, 1), the colour of what is padded, 0 … 1; the label there is 255.
        random: four numbers in [0, 1): for scale, flip, top and left.

    Returns:
        The image (3, crop, crop) in [0, 1] and its label (crop, crop) int64.
    """
    low, high = scales
    for_scale, for_flip, for_top, for_left = random
    scale = low + (high - low) * for_scale
    image, label = _resize_pair(image, label, scale)
    picture = image.float() / 255  # (3, h, w)
    labels = label.long()  # (h, w)
    if for_flip < 0.5:
        picture = picture.flip(-1)
        labels = labels.flip(-1)
    height, width = labels.shape
    bottom = max(0, crop - height)
    right = max(0, crop - width)
    padding = (0, right, 0, bottom)
    if bottom or right:
        picture = F.pad(picture - fill, padding) + fill
    labels = F.pad(labels, padding, value=UNSURE)
    last_top = max(height, crop) - crop
    last_left = max(width, crop) - crop
    top = int(for_top * (last_top + 1))
    left = int(for_left * (last_left + 1))
    rows = slice(top, top + crop)
    columns = slice(left, left + crop)
    return picture[:, rows, columns], labels[rows, columns]


def _resize_pair(image: Tensor, label: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Scale an image (3, H, W) and its label (H, W) alike; labels are not mixed."""
    size = [max(1, round(side * scale)) for side in label.shape]
    mode = v2.InterpolationMode
    resize = v2.functional.resize
    picture = resize(image, size, interpolation=mode.BILINEAR, antialias=True)  # (3, h, w)
    labels = resize(label[None], size, interpolation=mode.NEAREST_EXACT)  # (1, h, w)
    return picture, labels[0]


def to_tensor(image: Picture) -> Tensor:
    """Return a picture (H, W, 3) uint8 as a tensor (3, H, W) uint8."""
    return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))


def tags_of(catalog: Catalog, index: int) -> Tensor:
    """Return the multi-hot tags (C,) of an item.

    Args:
        catalog: The images.
        index: The item.
    """
    return torch.from_numpy(catalog.targets([index])[0])  # (C,)


def read_pair(catalog: Catalog, index: int, folder: Path) -> tuple[Picture, Mask]:
    """Read an image (H, W, 3) and its label (H, W).

    Args:
        catalog: the images.
        index: the item.
        folder: where the labels are.

    Raises:
        ImageError: if one is unreadable, or their sizes differ.
        TagmaskError: if the label was made for other classes.
    """
    label = read_label(catalog, index, folder)
    image = catalog.load_image(index)
    check_same_size(image.shape, label, catalog.name(index))
    return image, label


def read_label(catalog: Catalog, index: int, folder: Path) -> Mask:
    """Read the label (H, W) of an image, not the image.

    Args:
        catalog: the images.
        index: the item.
        folder: where the labels are.

    Raises:
        ImageError: if it is unreadable.
        TagmaskError: if it was made for other classes.
    """
    file = label_file(folder, catalog.name(index))
    label = read_mask(file, MAX_CLASSES)  # (H, W)
    highest = int(label[label != UNSURE].max(initial=0))
    classes = len(catalog.classes)
    if highest > classes:
        raise TagmaskError(
            f"{file} holds the label {highest}, but there are only {classes} classes; "
            "it was made for other classes: make the labels again with `tagmask pseudo`."
        )
    return label
