"""The mask of one photo with its settings; large photos in tiles, so that memory stays bounded.

Memory grows neither with the size of the photo nor with the classes that the network knows. A photo
that would take more than ``AT_ONCE`` is done in tiles: DeepLabV2 sees each tile with what lies
around it; a head sees the whole photo once, and its scores are brought to the size of the photo
tile by tile. The CRF works on each tile with what lies around it. In a tile only the labels compete
that reach a probability there, the ``MOST`` likeliest at most.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tagmask.config import MaskSettings
from tagmask.data.catalog import give_back
from tagmask.features.photo import Tokens
from tagmask.inference.probabilities import (
    LabelProbabilities,
    head_cells,
    likely_labels,
    predict_labels,
    sharpen,
)
from tagmask.labels import Mask, Picture
from tagmask.masks.crf import crf_memory
from tagmask.masks.tiles import AT_ONCE, Window, windows
from tagmask.models.head import HeadSegmenter
from tagmask.models.kinds import Segmenter

SMALL = 2_000_000  # pixels; a photo with no more is never done in tiles
MOST = 16  # labels that compete in a tile, besides the background
_VALUES = 1 << 24  # probabilities of a tile and what lies around it
_SIDES = {"head": (768, 2048), "network": (768, 1024)}  # of that, in pixels, at least and at most
_VIEW = 1152  # pixels of a side that DeepLabV2 sees at its largest scale; it takes a gigabyte
_HALO = 192  # pixels around a tile that the CRF sees; it reaches three of its deviations
_COPIES = 4  # of the probabilities, while the views are added up
_NETWORK = 900  # bytes of a pixel of a view in DeepLabV2, with ResNet-101
_PIXELS = 40  # bytes of a pixel of the photo: itself, as numbers, resized and mirrored


def photo_probabilities(
    model: Segmenter,
    image: Picture,
    allowed: list[int] | None,
    settings: MaskSettings,
    tokens: Tokens | None = None,
    most: int | None = None,
) -> LabelProbabilities:
    """Return the probabilities of the labels that may occur in a photo, sharpened on request.

    Args:
        model: The segmenter.
        image: The photo, uint8 (H, W, 3).
        allowed: Classes that may occur, by number; None: all.
        settings: How masks are predicted.
        tokens: The photo's features, if they are known; a head reads them.
        most: At most so many labels besides the background; None: all that are noticed.

    Returns:
        The labels, and their probabilities (m, H, W) float32.
    """
    found = predict_labels(
        model,
        image,
        tags=allowed,
        tokens=tokens,
        scales=settings.scales,
        flip=settings.flip,
        tile=settings.tile,
        halo=settings.halo,
        most=most,
    )
    return _sharpened(image, found, settings, settings.crf_size)


def photo_mask(
    model: Segmenter,
    image: Picture,
    allowed: list[int] | None,
    settings: MaskSettings,
    tokens: Tokens | None = None,
) -> Mask:
    """Return the most probable label of each pixel, (H, W) uint8; large photos in tiles.

    Args:
        model: The segmenter.
        image: The photo, uint8 (H, W, 3).
        allowed: Classes that may occur, by number; None: all.
        settings: How masks are predicted.
        tokens: The photo's features, if they are known; a head reads them.
    """
    shape = image.shape[:2]
    if fits_at_once(model, shape, allowed, settings):
        return photo_probabilities(model, image, allowed, settings, tokens).mask()
    labels = min(MOST, _count(model, allowed))
    needed = memory_at_once(model, shape, labels, settings)
    if needed <= AT_ONCE or math.prod(shape) <= SMALL:
        return photo_probabilities(model, image, allowed, settings, tokens, MOST).mask()
    if isinstance(model, HeadSegmenter):
        tiles = _HeadTiles(model, image, allowed, settings, tokens)
        labels = len(tiles.labels)
        halo = _HALO if settings.crf or settings.pamr else 0
        side = _tile(labels, halo, "head")
    else:
        halo = settings.halo
        side = _tile(labels, halo, "network", max(settings.scales))
        side = min(settings.tile or side, side)
    mask = np.zeros(image.shape[:2], np.uint8)
    factor = (settings.crf_size or 1 << 30) / max(image.shape)
    height, width = image.shape[:2]
    for window in windows(height, width, side, halo):
        give_back()  # what reading the photo, and the tile before, have left
        seen = np.ascontiguousarray(image[window.seen])
        if isinstance(model, HeadSegmenter):
            found = tiles.probabilities(window)
        else:
            found = predict_labels(
                model,
                seen,
                tags=allowed,
                scales=settings.scales,
                flip=settings.flip,
                most=MOST,
            )
        give_back()
        size = max(1, round(factor * max(seen.shape))) if factor < 1 else None
        found = _sharpened(seen, found, settings, size)
        mask[window.tile] = found.mask()[window.inner]
    return mask


def fits_at_once(
    model: Segmenter, shape: Sequence[int], allowed: list[int] | None, settings: MaskSettings
) -> bool:
    """Return True if a photo is done as a whole, with all labels that may occur.

    Args:
        model: The segmenter.
        shape: (H, W) of the photo.
        allowed: Classes that may occur, by number; None: all.
        settings: How masks are predicted.
    """
    return memory_at_once(model, shape, _count(model, allowed), settings) <= AT_ONCE


def _count(model: Segmenter, allowed: list[int] | None) -> int:
    """Return how many classes may occur."""
    return len(model.classes) if allowed is None else len(allowed)


def memory_at_once(
    model: Segmenter, shape: Sequence[int], labels: int, settings: MaskSettings
) -> float:
    """Return about how many bytes a photo takes that is not done in tiles, besides the network.

    Args:
        model: The segmenter.
        shape: (H, W) of the photo.
        labels: How many classes occur.
        settings: How masks are predicted.
    """
    pixels = math.prod(shape)
    values = (labels + 1) * 4  # bytes of a pixel
    needed = float(pixels * (_PIXELS + values * _COPIES))
    if settings.crf:
        factor = min(1.0, (settings.crf_size or max(shape)) / max(shape))
        needed += crf_memory(pixels * factor**2, labels + 1)
    if not isinstance(model, HeadSegmenter):
        seen = pixels if settings.tile is None else (settings.tile + 2 * settings.halo) ** 2
        needed += min(seen, pixels) * max(settings.scales) ** 2 * _NETWORK
    return needed


def _tile(labels: int, halo: int, kind: str, scale: float = 1.0) -> int:
    """Return the side of tiles, so that with what lies around them they have ``_VALUES``.

    Args:
        labels: How many compete, besides the background.
        halo: Pixels that are seen around a tile.
        kind: What sees the tiles, "head" or "network".
        scale: The largest at which a network sees them; with large ones tiles are smaller.
    """
    least, most = _SIDES[kind]
    side = math.isqrt(_VALUES // (labels + 1))
    side = max(least, 2 * halo + 256, min(side, most))
    if kind == "network":
        side = max(2 * halo + 64, min(side, int(_VIEW / scale)))
    return (side - 2 * halo) // 64 * 64


def _sharpened(
    image: Picture, found: LabelProbabilities, settings: MaskSettings, crf_size: int | None
) -> LabelProbabilities:
    """Let probabilities follow the edges of the image, if the settings say so."""
    if not settings.crf and not settings.pamr:
        return found
    sharp = sharpen(
        image,
        found.values,
        crf=settings.crf,
        crf_size=crf_size,
        pamr=settings.pamr,
        device=settings.device,
    )
    return LabelProbabilities(found.labels, sharp)


class _HeadTiles:
    """The scores of a head for a photo, which it has seen once, at full size by parts."""

    @torch.inference_mode()
    def __init__(
        self,
        model: HeadSegmenter,
        image: Picture,
        allowed: list[int] | None,
        settings: MaskSettings,
        tokens: Tokens | None,
    ) -> None:
        self.shape = image.shape[:2]
        self.cells = head_cells(model, image, settings.scales, settings.flip, tokens)
        self.labels = likely_labels(model, self.cells, allowed, MOST)

    @torch.inference_mode()
    def probabilities(self, window: Window) -> LabelProbabilities:
        """Return the probabilities (m, h, w) of what is seen around a tile."""
        total = torch.zeros(len(self.labels), *window.shape)
        for cells in self.cells:
            chosen = cells[self.labels].float()  # (m, h, w)
            total += _stretched(chosen, self.shape, window).softmax(0)
        values = total.div_(len(self.cells)).numpy()
        return LabelProbabilities(self.labels.numpy(), values)


def _stretched(cells: Tensor, shape: Sequence[int], window: Window) -> Tensor:
    """Return a part of what cells (m, h, w) are at a larger size, by bilinear interpolation."""
    rows = _weights(cells.shape[1], shape[0], window.rows)  # (H', h)
    columns = _weights(cells.shape[2], shape[1], window.columns)  # (W', w)
    return rows @ (cells @ columns.T)


def _weights(cells: int, pixels: int, part: slice) -> Tensor:
    """Return how much each cell counts for each pixel of a part, (P, cells).

    Centres of cells and pixels are at half numbers; pixels beyond the first and last centre have
    the value there, as in torch.
    """
    centres = torch.arange(part.start, part.stop, dtype=torch.float64) + 0.5
    places = (centres * (cells / pixels) - 0.5).clamp(0, cells - 1)  # (P,)
    below = places.floor().long()
    above = (below + 1).clamp(max=cells - 1)
    share = (places - below).float()
    weights = torch.zeros(len(places), cells)
    weights.scatter_add_(1, below[:, None], 1 - share[:, None])
    weights.scatter_add_(1, above[:, None], share[:, None])
    return weights
