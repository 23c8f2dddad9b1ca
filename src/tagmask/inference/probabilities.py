"""Class probabilities of whole photos of any size: test-time views, tiles for very big ones."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tagmask.config import HALO
from tagmask.data.catalog import give_back
from tagmask.data.datasets import to_tensor
from tagmask.data.images import Picture
from tagmask.errors import TagmaskError
from tagmask.features.photo import Tokens, photo_features
from tagmask.labels import Mask
from tagmask.masks.tiles import Window, windows
from tagmask.models.deeplab import DeepLabV2
from tagmask.models.device import chosen_device
from tagmask.models.head import HeadSegmenter
from tagmask.models.kinds import Segmenter

Probabilities = np.ndarray[Any, np.dtype[np.float32]]  # (K, H, W)
Labels = np.ndarray[Any, np.dtype[np.int64]]
# a label that is less likely than this in every cell is not worth full size
NOTICED = 1e-4
_LARGE = 6e6  # bytes of what a network sees, half a megapixel; it leaves a gigabyte behind
POSSIBLE = 0.01  # the CRF leaves out classes that are less likely than this at every pixel


@dataclass(frozen=True)
class LabelProbabilities:
    """Probabilities of the labels that may occur in a photo; all others have none.

    Memory grows with these labels, not with the classes that the network knows.
    """

    labels: Labels  # (m,) ascending, the background first
    values: Probabilities  # (m, H, W), adding up to 1 at each pixel

    def mask(self) -> Mask:
        """Return the most probable label of each pixel, (H, W) uint8."""
        places = self.values.argmax(0)  # (H, W)
        mask: Mask = self.labels.astype(np.uint8)[places]
        return mask

    def dense(self, count: int) -> Probabilities:
        """Return the probabilities of all labels.

        Args:
            count: Number K of labels, with the background.

        Returns:
            (K, H, W), zero for labels that do not occur.
        """
        whole = np.zeros((count, *self.values.shape[1:]), np.float32)
        whole[self.labels] = self.values
        return whole


def predict_probabilities(model: Segmenter, image: Picture, **seen: Any) -> Probabilities:
    """Return the probabilities of every label, shape (K, H, W), background first.

    Args:
        model: The segmenter.
        image: uint8 (H, W, 3).
        **seen: As in ``predict_labels``, which leaves out what is improbable.

    Returns:
        Probabilities that add up to 1 at each pixel; zero for classes that are ruled out.
    """
    return predict_labels(model, image, least=0, **seen).dense(model.num_classes)


@torch.inference_mode()
def predict_labels(
    model: Segmenter,
    image: Picture,
    *,
    scales: Sequence[float] = (1.0,),
    flip: bool = True,
    tags: Sequence[int] | None = None,
    tile: int | None = None,
    halo: int = HALO,
    tokens: Tokens | None = None,
    least: float = NOTICED,
    most: int | None = None,
) -> LabelProbabilities:
    """Return the softmax, averaged over the test-time views, of the labels that may occur.

    Args:
        model: The segmenter.
        image: uint8 (H, W, 3).
        scales: the image is seen at each of these scales of its size.
        flip: also see it mirrored.
        tags: the model's classes (from 0) that may occur, the others are ruled out; default: all.
        tile: side of the squares in pixels that are computed one after the other; default: the
            image at once.
        halo: pixels seen around each tile. Tiles give the result of the whole image where the halo
            covers what a pixel's logits depend on. DeepLabV2 sees farther than any affordable halo
            (192 pixels by its last layer alone), but pixels that far away have little weight.
            Encoders that pool over the whole image (squeeze-and-excitation) and ``multi_scale``
            models depend on the tile.
        tokens: of a head those of the image, where they are kept.
        least: labels that are less likely than this in every cell of every view are left out, so
            that they take no memory at full size; 0 keeps all.
        most: at most so many labels are kept besides the background, those that are likeliest
            somewhere; default: all that are noticed.

    Returns:
        The labels that may occur, and their probabilities.

    Raises:
        TagmaskError: If image, scales, tags or tiles are out of range.
    """
    _check(image, scales, tile, halo, model.stride)
    if isinstance(model, HeadSegmenter):
        views = _head_views(model, image, scales, flip, tokens)
    else:
        views = _network_views(model, image, scales, flip, tile, halo)
    labels = torch.nonzero(_allowed(model, tags)).flatten()  # (m,)
    if least > 0:
        seen = list(views)
        parts = [part for view in seen for part in view.parts]
        labels = _noticed(parts, labels, least, most)
        views = iter(seen)
    values = _mean_softmax(views, labels, image.shape[:2])
    return LabelProbabilities(labels.numpy(), values)


@dataclass(frozen=True)
class _View:
    """The logits of the cells of one view, in one part or, of tiles, in several."""

    parts: list[Tensor]  # (K, h, w) each
    enlarge: Callable[[list[Tensor]], Tensor]  # logits of cells (m, h, w) to pixels (m, H', W')
    mirrored: bool

    def pixels(self, labels: Tensor) -> Tensor:
        """Return the logits (m, H', W') of the pixels for some labels (m,)."""
        chosen = [part[labels.to(part.device)] for part in self.parts]
        return self.enlarge(chosen)


def _noticed(parts: Sequence[Tensor], labels: Tensor, least: float, most: int | None) -> Tensor:
    """Return those of the labels (m,) that reach a probability in some cell, and the background."""
    highest = torch.zeros(len(labels))
    for part in parts:
        logits = part[labels.to(part.device)].float()  # (m, h, w)
        highest = torch.maximum(highest, logits.softmax(0).amax((1, 2)).cpu())
    highest[labels == 0] = torch.inf
    is_noticed = highest >= least
    if most is not None and int(is_noticed.sum()) > most + 1:
        chosen = highest.argsort(descending=True, stable=True)[: most + 1]
        return labels[chosen.sort().values]
    return labels[is_noticed]


def _head_views(
    model: HeadSegmenter, image: Picture, scales: Sequence[float], flip: bool, tokens: Tokens | None
) -> Iterator[_View]:
    """Yield the views of a photo by a head."""

    def enlarge(parts: list[Tensor]) -> Tensor:
        shape = image.shape[:2]
        return F.interpolate(parts[0][None], shape, mode="bilinear", align_corners=False)[0]

    for cells, mirrored in _head_logits(model, image, scales, flip, tokens):
        yield _View([cells], enlarge, mirrored)


def _head_logits(
    model: HeadSegmenter, image: Picture, scales: Sequence[float], flip: bool, tokens: Tokens | None
) -> Iterator[tuple[Tensor, bool]]:
    """Yield the logits (K, h, w) of each view of a photo, and True if it is mirrored."""
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
            yield cells, mirrored


def head_cells(
    model: HeadSegmenter, image: Picture, scales: Sequence[float], flip: bool, tokens: Tokens | None
) -> list[Tensor]:
    """Return the logits (K, h, w) of the cells of each view of a photo, none of them mirrored.

    Args:
        model: The head.
        image: uint8 (H, W, 3).
        scales: As in ``predict_labels``.
        flip: As in ``predict_labels``.
        tokens: Those of the image, where they are kept.
    """
    _check(image, scales, None, HALO, model.stride)
    views = []
    for cells, mirrored in _head_logits(model, image, scales, flip, tokens):
        views.append(cells.flip(-1) if mirrored else cells)
    return views


def likely_labels(
    model: Segmenter, views: Sequence[Tensor], tags: Sequence[int] | None, most: int
) -> Tensor:
    """Return the labels (m,) that reach a probability in some cell, and the background.

    Args:
        model: The segmenter.
        views: Logits (K, h, w) of cells.
        tags: Classes that may occur; None: all.
        most: At most so many labels besides the background.
    """
    labels = torch.nonzero(_allowed(model, tags)).flatten()
    return _noticed(views, labels, NOTICED, most)


def _network_views(
    model: DeepLabV2,
    image: Picture,
    scales: Sequence[float],
    flip: bool,
    tile: int | None,
    halo: int,
) -> Iterator[_View]:
    """Yield the views of a photo by a network that sees pixels."""
    picture = to_tensor(image).float()[None].to(model.mean.device) / 255  # (1, 3, H, W)
    for view, mirrored in _views(picture, scales, flip):
        height, width = view.shape[-2:]
        # multiples of the stride: the cells lie as in the whole
        tiles = list(windows(height, width, tile, halo))
        parts = []
        for window in tiles:
            pixels = model.normalize(view[..., window.rows, window.columns])
            parts.append(model(pixels)[0])
            if pixels.nbytes > _LARGE:
                give_back()
        enlarge = partial(_put_together, model, tiles, (height, width))
        yield _View(parts, enlarge, mirrored)


def _put_together(
    model: DeepLabV2, tiles: Sequence[Window], size: tuple[int, int], parts: list[Tensor]
) -> Tensor:
    """Return the logits (m, H, W) of the pixels of a view from those of the cells of its tiles."""
    whole = torch.empty(len(parts[0]), *size)
    for window, part in zip(tiles, parts, strict=True):
        logits = model.upsample(part[None], window.shape)[0].float().cpu()  # (m, h, w)
        whole[:, *window.tile] = logits[:, *window.inner]
    return whole


def _mean_softmax(views: Iterable[_View], labels: Tensor, size: Sequence[int]) -> Probabilities:
    """Return the probabilities (m, H, W) of the labels (m,), averaged over views."""
    total = torch.zeros(len(labels), *size)
    count = 0
    for view in views:
        probabilities = view.pixels(labels).softmax(0)
        if view.mirrored:
            probabilities = probabilities.flip(-1)
        if probabilities.shape[1:] != torch.Size(size):
            probabilities = F.interpolate(
                probabilities[None], size, mode="bilinear", align_corners=False
            )[0]
        total += probabilities
        count += 1
    return total.div_(count).numpy()


def sharpen(
    image: Picture,
    probabilities: Probabilities,
    *,
    crf: bool = True,
    crf_size: int | None = None,
    pamr: bool = False,
    device: Literal["cpu", "gpu"] | None = None,
) -> Probabilities:
    """Let probabilities follow the edges of the image, over the classes that are possible in it.

    Args:
        image: uint8 (H, W, 3).
        probabilities: (K, H, W), adding up to 1 at each pixel.
        crf: Use the dense CRF.
        crf_size: Long side in pixels at which the CRF works; None means that of the image.
        pamr: Use PAMR, before the CRF if both are used.
        device: Where to compute; None means scipy on the CPU.

    Returns:
        (K, H, W); a class that is not possible has 0.
    """
    from tagmask.masks.crf import SEGMENTATION, dense_crf
    from tagmask.masks.pamr import pamr as refine

    labels = np.flatnonzero(probabilities.max(axis=(1, 2)) >= POSSIBLE)
    possible = probabilities[labels]
    where = chosen_device(device)
    if pamr:
        possible = refine(image, possible, device=where)
    if crf:
        shape = image.shape[:2]
        small, fewer = resized(image, possible, crf_size)
        settings = SEGMENTATION.at_scale(max(small.shape) / max(shape))
        possible = dense_crf(small, fewer, replace(settings, device=where))
        if possible.shape[1:] != shape:
            enlarged = F.interpolate(torch.from_numpy(possible)[None], shape, mode="bilinear")
            possible = enlarged[0].numpy()
    if len(labels) == len(probabilities):
        return possible
    sharpened = np.zeros_like(probabilities)
    sharpened[labels] = possible
    return sharpened


def resized(image: Picture, maps: Probabilities, size: int | None) -> tuple[Picture, Probabilities]:
    """Return an image and its maps with a long side of at most ``size`` pixels.

    Args:
        image: uint8 (H, W, 3).
        maps: (K, H, W).
        size: Pixels; None leaves both as they are.
    """
    long_side = max(image.shape[:2])
    if size is None or size >= long_side:
        return image, maps
    factor = size / long_side
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
            f"tile is {tile} and halo {halo} pixels; "
            f"both must be multiples of the network's stride {stride}, at least {stride}, for "
            f"example 1024 and {HALO}."
        )


def _allowed(model: Segmenter, tags: Sequence[int] | None) -> Tensor:
    """Return which labels may occur, shape (K,); the background always may."""
    tags = range(len(model.classes)) if tags is None else tags
    wrong = [tag for tag in tags if not 0 <= tag < len(model.classes)]
    if wrong:
        raise TagmaskError(
            f"the tag {wrong[0]} is no class of the model; "
            f"it has classes 0 to {len(model.classes) - 1}."
        )
    allowed = torch.zeros(model.num_classes, dtype=torch.bool)
    allowed[[0, *(tag + 1 for tag in tags)]] = True
    return allowed


def _views(picture: Tensor, scales: Sequence[float], flip: bool) -> Iterator[tuple[Tensor, bool]]:
    """Yield the picture at each scale, and True if it is mirrored."""
    for scale in scales:
        height, width = picture.shape[-2:]
        size = (max(1, round(height * scale)), max(1, round(width * scale)))
        view = picture
        if size != tuple(picture.shape[-2:]):
            view = F.interpolate(
                picture, size, mode="bilinear", align_corners=False, antialias=True
            )
        yield view, False
        if flip:
            yield view.flip(-1), True
