"""Images with their pseudo labels, randomly scaled, cropped and mirrored, as tensors for training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import Dataset

from tagmask.data.catalog import MAX_CLASSES, Catalog
from tagmask.data.datasets import to_tensor
from tagmask.data.images import IGNORE, check_same_size, read_mask
from tagmask.errors import ImageError, TagmaskError
from tagmask.models.compat import v2

_TRIES = 100  # images tried in place of one that teaches nothing before giving up
_BILINEAR, _NEAREST = v2.InterpolationMode.BILINEAR, v2.InterpolationMode.NEAREST_EXACT


class PseudoDataset(Dataset[dict[str, Tensor]]):
    """Training samples: a random square crop of an image at a random scale, and its labels.

    Indexed by (position, image index); scale, crop and mirroring depend on ``seed`` and the position alone. Where
    the image ends, ``fill`` (the encoder's mean colour, 0 … 1) and the label 255 go on. An image that cannot be
    read or is unsure all over is replaced by the next one and told in ``broken`` (its index; −1 where all is well).
    """

    def __init__(
        self,
        catalog: Catalog,
        folder: Path,
        crop: int,
        scales: tuple[float, float],
        fill: Sequence[float],
        seed: int,
    ) -> None:
        self.catalog, self.folder, self.crop, self.scales, self.seed = catalog, folder, crop, scales, seed
        self.fill = torch.tensor(fill).view(3, 1, 1)

    def __len__(self) -> int:
        return len(self.catalog)

    def __getitem__(self, draw: Any) -> dict[str, Tensor]:
        position, index = draw
        image, label, used = teachable(self.catalog, index, self.folder)
        seed = int(np.random.SeedSequence([self.seed, position, 3]).generate_state(1)[0])
        random = torch.rand(4, generator=torch.Generator().manual_seed(seed)).tolist()
        picture, labels = crop_pair(
            to_tensor(image), torch.from_numpy(label), self.crop, self.scales, self.fill, random
        )
        return {
            "images": picture,  # (3, crop, crop) in [0, 1]
            "labels": labels,  # (crop, crop) int64, 255 = unsure
            "broken": torch.tensor(index if used != index else -1),
        }


def crop_pair(
    image: Tensor, label: Tensor, crop: int, scales: tuple[float, float], fill: Tensor, random: Sequence[float]
) -> tuple[Tensor, Tensor]:
    """Scale, mirror, pad at the right and the bottom, and crop alike: (3, H, W) uint8 and (H, W) uint8 to squares.

    ``random`` are four numbers in [0, 1): for scale, mirroring, top and left.
    """
    scale = scales[0] + (scales[1] - scales[0]) * random[0]
    size = [max(1, round(side * scale)) for side in label.shape]
    resize = v2.functional.resize
    picture = resize(image, size, interpolation=_BILINEAR, antialias=True).float() / 255  # (3, h, w)
    labels = resize(label[None], size, interpolation=_NEAREST)[0].long()  # (h, w)
    if random[1] < 0.5:
        picture, labels = picture.flip(-1), labels.flip(-1)
    lacking = [max(0, crop - side) for side in size]
    padding = (0, lacking[1], 0, lacking[0])
    picture = F.pad(picture - fill, padding) + fill if any(lacking) else picture
    labels = F.pad(labels, padding, value=IGNORE)
    top, left = (int(share * (max(side, crop) - crop + 1)) for share, side in zip(random[2:], size, strict=True))
    return picture[:, top : top + crop, left : left + crop], labels[top : top + crop, left : left + crop]


def label_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.png"


def read_label(folder: Path, name: str, classes: int) -> npt.NDArray[np.uint8]:
    """The pseudo label of an image, shape (H, W); labels beyond ``classes`` mean that it was made for other ones."""
    file = label_file(folder, name)
    label = read_mask(file, MAX_CLASSES)
    highest = int(label[label != IGNORE].max(initial=0))
    if highest > classes:
        raise TagmaskError(
            f"{file} holds the label {highest}, but there are only {classes} classes; the pseudo labels were made "
            "for other classes: make them anew with `tagmask pseudo`."
        )
    return label


def read_pair(catalog: Catalog, index: int, folder: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """An image (H, W, 3) and its pseudo label (H, W); ImageError where one cannot be read or their sizes differ."""
    name = catalog.name(index)
    label = read_label(folder, name, len(catalog.classes))
    image = catalog.load_image(index)
    check_same_size(image, label, name)
    return image, label


def teachable(catalog: Catalog, index: int, folder: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8], int]:
    """Image and pseudo label at ``index``, or the next that can be read and is sure somewhere, and its index."""
    problem: ImageError | None = None
    tries = min(_TRIES, len(catalog))
    for offset in range(tries):
        used = (index + offset) % len(catalog)
        try:
            image, label = read_pair(catalog, used, folder)
            if (label == IGNORE).all():
                raise ImageError(
                    f"{label_file(folder, catalog.name(used))} is unsure (255) all over; make the pseudo labels "
                    "with thresholds that are less strict."
                )
            return image, label, used
        except ImageError as error:
            problem = problem or error
    raise TagmaskError(f"{tries} images in a row cannot be learned from, the first because: {problem}") from None
