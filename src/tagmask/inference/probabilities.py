"""Class probabilities of whole photos: any size, several test-time views, tiles for photos too big for memory."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tagmask.config import HALO
from tagmask.data.datasets import to_tensor
from tagmask.data.images import Picture
from tagmask.errors import TagmaskError
from tagmask.features.photo import Tokens, photo_features
from tagmask.models.deeplab import DeepLabV2
from tagmask.models.device import chosen_device
from tagmask.models.head import HeadSegmenter
from tagmask.models.kinds import Segmenter

Probabilities = np.ndarray[Any, np.dtype[np.float32]]  # (K, H, W)
POSSIBLE = 0.01  # the CRF leaves out classes that are less likely than this at every pixel


@torch.inference_mode()
def predict_probabilities(
    model: Segmenter,
    image: Picture,
    *,
    scales: Sequence[float] = (1.0,),
    flip: bool = True,
    tags: Sequence[int] | None = None,
    tile: int | None = None,
    halo: int = HALO,
    tokens: Tokens | None = None,
) -> Probabilities:
    """Softmax averaged over the test-time views, shape (K, H, W): background first, adding up to 1 at each pixel.

    Args:
        image: uint8 (H, W, 3).
        scales: the image is seen at each of these scales of its size.
        flip: also see it mirrored.
        tags: the model's classes (from 0) that may occur, the others are ruled out; default: all.
        tile: side of the squares in pixels that are computed one after the other; default: the image at once.
        halo: pixels seen around each tile. Tiles give the result of the whole image where the halo covers what a
            pixel's logits depend on. DeepLabV2 sees farther than any affordable halo (192 pixels by its last layer
            alone), but pixels that far away have little weight. Encoders that pool over the whole image
            (squeeze-and-excitation) and ``multi_scale`` models depend on the tile.
        tokens: of a head those of the image, where they are kept.
    """
    _check(image, scales, tile, halo, model.stride)
    if isinstance(model, HeadSegmenter):
        logits = _head_logits(model, image, scales, flip, tokens)
    else:
        picture = to_tensor(image).float()[None].to(model.mean.device) / 255  # (1, 3, H, W)
        views = _views(picture, scales, flip)
        logits = (
            (_tiled_logits(model, model.normalize(view), tile, halo), mirrored)
            for view, mirrored in views
        )
    return _mean_softmax(logits, _allowed(model, tags), image.shape[:2])


def _head_logits(
    model: HeadSegmenter, image: Picture, scales: Sequence[float], flip: bool, tokens: Tokens | None
) -> Iterator[tuple[Tensor, bool]]:
    """Logits (K, H, W) of each view, and whether it is mirrored."""
    for scale in scales:
        for mirrored in (False, True) if flip else (False,):
            kept = tokens if scale == 1 and not mirrored else None
            seen = kept or photo_features(
                model.classifier,
                model.blocks,
                round(scale * model.size),
                image[:, ::-1] if mirrored else image,
            )
            cells = model.logits_of(seen.values[0]).T.unflatten(-1, seen.grid).cpu()  # (K, h, w)
            yield (
                F.interpolate(cells[None], image.shape[:2], mode="bilinear", align_corners=False)[
                    0
                ],
                mirrored,
            )


def _mean_softmax(
    logits: Iterable[tuple[Tensor, bool]], allowed: Tensor, size: Sequence[int]
) -> Probabilities:
    """Probabilities (K, H, W) averaged over views; of each the logits (K, h, w), and whether it is mirrored."""
    total, count = torch.zeros(len(allowed), *size), 0
    for values, mirrored in logits:
        chances = (
            values if allowed.all() else values.masked_fill(~allowed[:, None, None], -torch.inf)
        ).softmax(0)
        chances = chances.flip(-1) if mirrored else chances
        if chances.shape[1:] != torch.Size(size):
            chances = F.interpolate(chances[None], size, mode="bilinear", align_corners=False)[0]
        total += chances
        count += 1
    return (total / count).numpy()


def sharpen(
    image: Picture,
    chances: Probabilities,
    *,
    crf: bool = True,
    crf_size: int | None = None,
    pamr: bool = False,
    device: Literal["cpu", "gpu"] | None = None,
) -> Probabilities:
    """Probabilities that follow the edges of the image, refined over the classes that are possible in it."""
    from tagmask.masks.crf import SEGMENTATION, dense_crf
    from tagmask.masks.pamr import pamr as refine

    labels = np.flatnonzero(chances.max(axis=(1, 2)) >= POSSIBLE)
    possible, where = chances[labels], chosen_device(device)
    if pamr:
        possible = refine(image, possible, device=where)
    if crf:
        small, shape = resized(image, possible, crf_size), image.shape[:2]
        scaled = SEGMENTATION.at_scale(max(small[0].shape) / max(shape))
        possible = dense_crf(*small, replace(scaled, device=where))
        if possible.shape[1:] != shape:
            possible = F.interpolate(torch.from_numpy(possible)[None], shape, mode="bilinear")[
                0
            ].numpy()
    sharpened = np.zeros_like(chances)
    sharpened[labels] = possible
    return sharpened


def resized(image: Picture, maps: Probabilities, size: int | None) -> tuple[Picture, Probabilities]:
    """An image (H, W, 3) and maps (K, H, W) with a long side of at most ``size`` pixels."""
    factor = min(1.0, (size or max(image.shape[:2])) / max(image.shape[:2]))
    if factor == 1:
        return image, maps
    shape = [max(1, round(side * factor)) for side in image.shape[:2]]
    small = F.interpolate(to_tensor(image).float()[None], shape, mode="bilinear", antialias=True)[0]
    fewer = F.interpolate(torch.from_numpy(maps)[None], shape, mode="bilinear", antialias=True)[0]
    return small.round().clamp(0, 255).byte().permute(1, 2, 0).numpy(), fewer.numpy()


def _check(
    image: Picture, scales: Sequence[float], tile: int | None, halo: int, stride: int
) -> None:
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or not image.size:
        raise TagmaskError(
            f"the image is {image.dtype} of shape {image.shape}; give uint8 RGB (H, W, 3)."
        )
    if not scales or not all(0 < scale <= 4 for scale in scales):
        raise TagmaskError(f"the scales are {tuple(scales)}; give numbers above 0 and at most 4.")
    if tile is not None and (tile < stride or tile % stride or halo < stride or halo % stride):
        raise TagmaskError(
            f"tile is {tile} and halo {halo} pixels; both must be multiples of the network's stride {stride}, "
            f"at least {stride}, for example 1024 and {HALO}."
        )


def _allowed(model: Segmenter, tags: Sequence[int] | None) -> Tensor:
    """Which labels may occur, shape (K,); the background always may."""
    tags = range(len(model.classes)) if tags is None else tags
    wrong = [tag for tag in tags if not 0 <= tag < len(model.classes)]
    if wrong:
        raise TagmaskError(
            f"the tag {wrong[0]} is no class of the model; it has classes 0 to {len(model.classes) - 1}."
        )
    allowed = torch.zeros(model.num_classes, dtype=torch.bool)
    allowed[[0, *(tag + 1 for tag in tags)]] = True
    return allowed


def _views(picture: Tensor, scales: Sequence[float], flip: bool) -> Iterator[tuple[Tensor, bool]]:
    """The picture at each scale, and whether it is mirrored."""
    for scale in scales:
        size = tuple(max(1, round(side * scale)) for side in picture.shape[-2:])
        view = picture
        if size != tuple(picture.shape[-2:]):
            view = F.interpolate(
                picture, size, mode="bilinear", align_corners=False, antialias=True
            )
        yield view, False
        if flip:
            yield view.flip(-1), True


def _tiled_logits(model: DeepLabV2, view: Tensor, tile: int | None, halo: int) -> Tensor:
    """Logits (K, h, w) of every pixel of a normalised view (1, 3, h, w)."""
    height, width = view.shape[-2:]
    if tile is None or max(height, width) <= tile:
        return _pixel_logits(model, view)
    whole = torch.empty(model.num_classes, height, width)
    for top in range(0, height, tile):
        for left in range(0, width, tile):
            bottom, right = min(top + tile, height), min(left + tile, width)
            y, x = (
                max(0, top - halo),
                max(0, left - halo),
            )  # multiples of the stride: the cells lie as in the whole
            window = view[..., y : bottom + halo, x : right + halo]
            part = _pixel_logits(model, window)
            whole[:, top:bottom, left:right] = part[:, top - y : bottom - y, left - x : right - x]
    return whole


def _pixel_logits(model: DeepLabV2, view: Tensor) -> Tensor:
    size = (int(view.shape[-2]), int(view.shape[-1]))
    return model.upsample(model(view), size)[0].float().cpu()
