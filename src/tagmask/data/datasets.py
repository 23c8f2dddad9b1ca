"""Images and tags as tensors for training and validation."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from tagmask.data.catalog import Catalog
from tagmask.errors import ImageError, TagmaskError
from tagmask.models.compat import v2

_TRIES = 100  # images tried in place of a broken one before giving up


class TagDataset(Dataset[dict[str, Tensor]]):
    """Training samples: a random square crop, randomly flipped, and its multi-hot tags.

    Indexed by (position, image index); the crop depends on ``seed`` and the position alone. A broken image is
    replaced by the next readable one and told in ``broken`` (its index; −1 where all is well).
    """

    def __init__(self, catalog: Catalog, size: int, crop_scale: float, seed: int) -> None:
        self.catalog, self.seed = catalog, seed
        self.transform = v2.Compose(
            [
                v2.RandomResizedCrop(size, scale=(crop_scale, 1.0), ratio=(3 / 4, 4 / 3), antialias=True),
                v2.RandomHorizontalFlip(),
                v2.ToDtype(torch.float32, scale=True),
            ]
        )

    def __len__(self) -> int:
        return len(self.catalog)

    def __getitem__(self, draw: Any) -> dict[str, Tensor]:
        position, index = draw
        image, used = readable(self.catalog, index)
        torch.manual_seed(int(np.random.SeedSequence([self.seed, position, 1]).generate_state(1)[0]))
        return {
            "images": self.transform(to_tensor(image)),  # (3, size, size) in [0, 1]
            "targets": torch.from_numpy(self.catalog.targets([used])[0]),  # (C,)
            "broken": torch.tensor(index if used != index else -1),
        }


class SquareDataset(Dataset[dict[str, Tensor]]):
    """Validation samples: the whole image squeezed to a square, so that images of any shape share a batch."""

    def __init__(self, catalog: Catalog, size: int) -> None:
        self.catalog, self.size = catalog, size

    def __len__(self) -> int:
        return len(self.catalog)

    def __getitem__(self, index: Any) -> dict[str, Tensor]:
        try:
            pixels, broken = to_tensor(self.catalog.load_image(int(index))), -1
        except ImageError:
            pixels, broken = torch.zeros(3, 1, 1, dtype=torch.uint8), int(index)
        resized = v2.functional.resize(pixels, [self.size, self.size], antialias=True)
        return {
            "images": v2.functional.to_dtype(resized, torch.float32, scale=True),
            "targets": torch.from_numpy(self.catalog.targets([int(index)])[0]),
            "broken": torch.tensor(broken),
        }


def to_tensor(image: np.ndarray[Any, Any]) -> Tensor:
    """(H, W, 3) uint8 to (3, H, W) uint8."""
    return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))


def readable(catalog: Catalog, index: int) -> tuple[np.ndarray[Any, Any], int]:
    """The image at ``index``, or the next one that can be read, and its index."""
    problem: ImageError | None = None
    for offset in range(min(_TRIES, len(catalog))):
        used = (index + offset) % len(catalog)
        try:
            return catalog.load_image(used), used
        except ImageError as error:
            problem = problem or error
    raise TagmaskError(f"{_TRIES} images in a row cannot be read, the first because: {problem}") from None
