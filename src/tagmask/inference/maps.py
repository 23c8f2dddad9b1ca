"""Maps of whole photos: any size, several test-time views, values in [0, 1] at every pixel.

An image keeps its aspect ratio: it is resized by one factor and padded at the right and at the bottom to whole
patches; the maps are cut back before they are enlarged, so nothing is shifted. Deviation: the authors' code squeezes
images to a square (``shape="square"``).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tagmask.acr.localize import localize_both
from tagmask.config import MapSettings
from tagmask.data.datasets import to_tensor
from tagmask.data.images import Picture
from tagmask.errors import TagmaskError
from tagmask.features.photo import Tokens, photo_features, photo_tokens, whole_patches
from tagmask.inference.evidence import Which, shares_of_objects
from tagmask.inference.objectness import Where
from tagmask.methods import method_for
from tagmask.models.classifier import Classifier
from tagmask.models.tail import tail

SIZE_PER_CROP = 1.25  # training crops cover 60–100 % of an image's area, so its sides are about this much longer


@dataclass(frozen=True)
class TestView:
    """An image as the network sees it."""

    images: Tensor  # (B, 3, H', W'), normalised, padded to whole patches
    inner: tuple[int, int]  # size of the part that is image
    mirrored: bool


@dataclass
class Maps:
    """Maps of one image at its own size, each class stretched to [0, 1]."""

    classes: tuple[int, ...]
    plain: np.ndarray[Any, np.dtype[np.float32]]  # (k, H, W), without affinity (ACR*)
    refined: np.ndarray[Any, np.dtype[np.float32]]  # (k, H, W), with affinity (ACR)


def make_maps(
    model: Classifier,
    images: Sequence[Picture],
    classes: Sequence[Sequence[int]],
    settings: MapSettings,
) -> list[Maps]:
    """Maps of images of equal shape, added up over the test-time views, then min–max normalised per class."""
    height, width = images[0].shape[:2]
    pictures = torch.stack([to_tensor(image) for image in images]).float() / 255  # (B, 3, H, W)
    pictures = pictures.to(model.mean.device)
    options = {
        **_options(model, settings),
        "affinity_blocks": block_range(settings.affinity_blocks),
    }
    sums = [[torch.zeros(len(numbers), height, width) for numbers in classes] for _ in range(2)]
    for view in views(model, pictures, settings):
        for totals, kind in zip(
            sums, localize_both(model, view.images, classes, **options), strict=True
        ):
            for total, maps in zip(totals, kind, strict=True):
                if len(total):
                    total += _to_pixels(maps, view, (height, width)).cpu()
    plain, refined = ([stretch(total).numpy() for total in totals] for totals in sums)
    return [Maps(tuple(c), p, r) for c, p, r in zip(classes, plain, refined, strict=True)]


def photo_maps(
    model: Classifier, image: Picture, classes: Sequence[int], settings: MapSettings
) -> Maps:
    """Maps of one image, as the stage makes them."""
    if shows_objects(model, settings):
        assert model.finder is not None
        tokens = photo_features(model, model.finder.blocks, model.finder.size, image)
        return object_maps(model, tokens, classes)
    if takes_tokens(model, settings) and model.fixed_views is not None:
        size, first = model.fixed_views
        return token_maps(model, photo_tokens(model, first, size, image), classes, settings)
    return make_maps(model, [image], [classes], settings)[0]


def shows_objects(model: Classifier, settings: MapSettings) -> bool:
    """Return True if maps are those of objects: of a classifier that has learned where they are.

    Args:
        model: the classifier.
        settings: how maps are made.

    Raises:
        TagmaskError: if they are asked for and the classifier has not learned it.
    """
    if settings.objects and model.finder is None:
        raise TagmaskError(
            "this classifier has not learned where objects are; train it with --objects, or leave "
            "out --objects."
        )
    return model.finder is not None and settings.objects is not False


def object_maps(model: Classifier, tokens: Tokens, classes: Sequence[int]) -> Maps:
    """Return the maps of objects of one photo: values in [0, 1] at every pixel.

    Without affinity stands for the evidence of the tag alone, with affinity for that of an object.

    Args:
        model: a classifier with an object finder.
        tokens: what the finder reads of the photo.
        classes: the classes to show.
    """
    finder = model.finder
    assert finder is not None
    where = Where(finder.where_weight, float(finder.where_bias), finder.kinds, finder.kind_scores)
    which = Which(finder.which_weight, finder.which_bias, finder.stuff)
    cells = finder.standardise(tokens.values[0])  # (n, F)
    evidence = torch.sigmoid(which.logits(cells))[:, list(classes)].T  # (k, n)
    found = shares_of_objects(where, which, cells, classes)  # (k, n)
    kinds = []
    for values in (evidence, found):
        if not len(classes):
            kinds.append(np.zeros((0, *tokens.shape), np.float32))
            continue
        grid = values.unflatten(-1, tokens.grid)[None]  # (1, k, h, w)
        pixels = F.interpolate(grid, tokens.shape, mode="bilinear", align_corners=False)[0]
        kinds.append(pixels.cpu().numpy())
    return Maps(tuple(classes), *kinds)


def takes_tokens(model: Classifier, settings: MapSettings) -> bool:
    """Whether maps can be made from kept tokens: of a classifier that was trained on them, seen in the same way."""
    if model.fixed_views is None or settings.scales != (1.0,) or settings.shape is not None:
        return False
    size, first = model.fixed_views
    return settings.size in (None, size) and (
        settings.affinity_blocks is None or settings.affinity_blocks[0] >= first
    )


def token_maps(
    model: Classifier, tokens: Tokens, classes: Sequence[int], settings: MapSettings
) -> Maps:
    """Maps of one photo from its kept tokens; by default the affinity is that of the trained blocks."""
    assert model.fixed_views is not None
    first, depth = model.fixed_views[1], len(model.blocks)
    blocks = block_range(settings.affinity_blocks) or range(first, depth)
    options = {
        **_options(model, settings),
        "affinity_blocks": range(blocks.start - first, blocks.stop - first),
    }
    rest, count = tail(model, first, tokens.grid), 2 if settings.flip else 1
    kinds = []
    for maps in localize_both(rest, tokens.values[:count], [classes] * count, **options):
        total = maps[0] + maps[1].flip(-1) if settings.flip else maps[0]  # (k, h, w)
        if not len(classes):
            kinds.append(np.zeros((0, *tokens.shape), np.float32))
            continue
        pixels = F.interpolate(total[None], tokens.shape, mode="bilinear", align_corners=False)[
            0
        ]  # (k, H, W)
        kinds.append(stretch(pixels).cpu().numpy())
    return Maps(tuple(classes), *kinds)


def _options(model: Classifier, settings: MapSettings) -> dict[str, Any]:
    """What ``localize_both`` is asked for, apart from the blocks of the affinity."""
    names = ("transpose", "affinity_steps", "compete", "propagation")
    options: dict[str, Any] = {"method": method_for(model, settings.method).maps}
    options |= {name: getattr(settings, name) for name in names}
    return options | {
        name: getattr(settings, name) for name in ("layers", "centre") if getattr(settings, name)
    }


def block_range(blocks: tuple[int, int] | None) -> range | None:
    """First and last block, as settings name them, to a range."""
    return range(blocks[0], blocks[1] + 1) if blocks else None


def views(model: Classifier, pictures: Tensor, settings: MapSettings) -> Iterator[TestView]:
    """The test-time views of pictures (B, 3, H, W) in [0, 1], starting with the unmirrored view at the first scale."""
    patch = model.patch_size
    whole = (
        model.fixed_views[0]
        if model.fixed_views
        else round(SIZE_PER_CROP * model.crop_size / patch) * patch
    )
    long_side = settings.size or whole
    factor = long_side / max(pictures.shape[-2:])
    for scale in settings.scales:
        sides = (long_side / factor,) * 2 if settings.shape == "square" else pictures.shape[-2:]
        inner = tuple(max(1, round(side * factor * scale)) for side in sides)
        small = pictures
        if inner != tuple(pictures.shape[-2:]):
            small = F.interpolate(
                pictures, inner, mode="bilinear", align_corners=False, antialias=True
            )
        for mirrored in (False, True) if settings.flip else (False,):
            view = model.normalize(small.flip(-1) if mirrored else small)
            padding = [-side % patch for side in inner]
            yield TestView(
                F.pad(view, (0, padding[1], 0, padding[0])), (inner[0], inner[1]), mirrored
            )


def _to_pixels(maps: Tensor, view: TestView, size: tuple[int, int]) -> Tensor:
    """Maps (k, h, w) on the token grid of a view to (k, H, W) on the image."""
    pixels = F.interpolate(maps[None], view.images.shape[-2:], mode="bilinear", align_corners=False)
    pixels = pixels[..., : view.inner[0], : view.inner[1]]  # without the padding
    if view.mirrored:
        pixels = pixels.flip(-1)
    if view.inner != size:
        pixels = F.interpolate(pixels, size, mode="bilinear", align_corners=False)
    return pixels[0]


def stretch(maps: Tensor) -> Tensor:
    """Min–max normalisation of each map (k, H, W); a constant map becomes zero."""
    low, high = maps.amin((-2, -1), keepdim=True), maps.amax((-2, -1), keepdim=True)
    return (maps - low) / (high - low).clamp(min=torch.finfo(maps.dtype).tiny)


@torch.inference_mode()
def predicted_classes(
    model: Classifier, image: Picture, settings: MapSettings, above: float = 0.5
) -> list[int]:
    """The classes that the model itself sees in an image: all above a probability, or the likeliest."""
    if model.finder is not None:  # the head was fitted to photos seen in this way
        seen = whole_patches(model, model.finder.size, image)[0]
    elif model.fixed_views is not None and settings.size is None:
        seen = whole_patches(model, model.fixed_views[0], image)[0]
    else:
        picture = to_tensor(image).float()[None].to(model.mean.device) / 255
        seen = next(views(model, picture, settings)).images
    probabilities = torch.sigmoid(model(seen))[0]  # (C,)
    return torch.nonzero(probabilities > above).flatten().tolist() or [int(probabilities.argmax())]
