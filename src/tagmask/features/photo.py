"""A photo as a frozen network sees it: one geometry for training, maps, objectness and heads.

A photo is resized to a long side and to whole patches; nothing is padded or cut off. What the
network makes of it is rounded to half precision, so that it is the same whether it was kept or is
computed again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tagmask.data.images import Picture
from tagmask.errors import TagmaskError
from tagmask.models.classifier import Classifier
from tagmask.models.tail import enter


@dataclass(frozen=True)
class Tokens:
    """Tokens of one photo."""

    values: Tensor  # (views, N, D) float32, rounded to half precision
    grid: tuple[int, int]  # (h, w)
    shape: tuple[int, int]  # (H, W) of the photo in pixels
    class_token: Tensor | None = None  # (D,), of features alone


def photo_tokens(model: Classifier, first: int, size: int, image: Picture) -> Tokens:
    """Return the tokens (2, N, D) of a photo and its mirror image that enter a block.

    Args:
        model: the network; blocks before ``first`` are frozen.
        first: the block, counted from 0.
        size: long side in pixels at which the photo is seen.
        image: (H, W, 3) uint8.
    """
    picture, grid = whole_patches(model, size, image)
    views = torch.cat([picture, picture.flip(-1)])
    return Tokens(round_to_half(enter(model, views, first)), grid, _shape(image))


def photo_features(model: Classifier, blocks: Sequence[int], size: int, image: Picture) -> Tokens:
    """Return the patch tokens (1, n, F) and the class token (F,) that leave some blocks.

    Args:
        model: the network.
        blocks: counted from 0; their tokens are put side by side, each after the final norm.
        size: long side in pixels at which the photo is seen.
        image: (H, W, 3) uint8.
    """
    picture, grid = whole_patches(model, size, image)
    patches, class_tokens = model.block_tokens(picture, blocks)
    return Tokens(round_to_half(patches), grid, _shape(image), round_to_half(class_tokens)[0])


def whole_patches(model: Classifier, size: int, image: Picture) -> tuple[Tensor, tuple[int, int]]:
    """Resize a photo to a long side and to whole patches, and normalise its colours.

    Args:
        model: knows the patch size and the colours.
        size: long side in pixels.
        image: (H, W, 3) uint8.

    Returns:
        The picture (1, 3, H', W') and its token grid.
    """
    patch = model.patch_size
    height, width = image.shape[:2]
    factor = size / max(height, width)
    rows = max(1, round(height * factor / patch))
    columns = max(1, round(width * factor / patch))
    sides = [rows * patch, columns * patch]
    pixels = torch.from_numpy(image.copy()).permute(2, 0, 1)  # (3, H, W)
    picture = pixels[None].to(model.mean.device).float() / 255  # (1, 3, H, W)
    if sides != [height, width]:
        picture = F.interpolate(
            picture, sides, mode="bilinear", align_corners=False, antialias=True
        )
    return model.normalize(picture), (rows, columns)


def round_to_half(values: Tensor) -> Tensor:
    """Return single-precision numbers rounded to half precision.

    Raises:
        TagmaskError: if they are too large for it.
    """
    half = values.half()
    if not half.isfinite().all():
        raise TagmaskError(
            "the tokens of this backbone exceed half precision; train without --fixed-views."
        )
    return half.float()


def _shape(image: Picture) -> tuple[int, int]:
    height, width = image.shape[:2]
    return height, width
