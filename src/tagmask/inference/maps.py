"""Maps of whole photos: any size, several test-time views, values in [0, 1] at every pixel.

An image keeps its aspect ratio: it is resized by one factor and padded at the right and at the
bottom to whole patches; the maps are cut back before they are enlarged, so nothing is shifted.
Deviation: the authors' code squeezes images to a square (``shape="square"``).
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

# training crops cover 60–100 % of an image's area, so its sides are about this much longer
SIZE_PER_CROP = 1.25


@dataclass(frozen=True)
class TestView:
    """Hold an image as the network sees it."""

    images: Tensor  # (B, 3, H', W'), normalised, padded to whole patches
    inner: tuple[int, int]  # size of the part that is image
    mirrored: bool


@dataclass
class PhotoMaps:
    """Hold the maps of one image at its own size, each class stretched to [0, 1]."""

    classes: tuple[int, ...]
    plain: np.ndarray[Any, np.dtype[np.float32]]  # (k, H, W), without affinity (ACR*)
    refined: np.ndarray[Any, np.dtype[np.float32]]  # (k, H, W), with affinity (ACR)


def make_maps(
    model: Classifier,
    images: Sequence[Picture],
    classes: Sequence[Sequence[int]],
    settings: MapSettings,
) -> list[PhotoMaps]:
    """Return the maps of images of equal shape.

    They are added up over the test-time views, then min–max normalised per class.

    Args:
        model: The classifier.
        images: uint8 (H, W, 3) each, all of one shape.
        classes: For each image the classes to localise.
        settings: How maps are made.

    Returns:
        For each image its maps.
    """
    height, width = images[0].shape[:2]
    pictures = torch.stack([to_tensor(image) for image in images]).float() / 255  # (B, 3, H, W)
    pictures = pictures.to(model.mean.device)
    options = _options(model, settings)
    options["affinity_blocks"] = block_range(settings.affinity_blocks)
    plain = [torch.zeros(len(numbers), height, width) for numbers in classes]
    refined = [torch.zeros(len(numbers), height, width) for numbers in classes]
    for view in views(model, pictures, settings):
        both = localize_both(model, view.images, classes, **options)
        for totals, kind in zip((plain, refined), both, strict=True):
            for total, maps in zip(totals, kind, strict=True):
                if len(total):
                    total += _to_pixels(maps, view, (height, width)).cpu()
    result = []
    for numbers, without, affine in zip(classes, plain, refined, strict=True):
        result.append(PhotoMaps(tuple(numbers), stretch(without).numpy(), stretch(affine).numpy()))
    return result


def photo_maps(
    model: Classifier, image: Picture, classes: Sequence[int], settings: MapSettings
) -> PhotoMaps:
    """Return the maps of one image, as the stage makes them.

    Args:
        model: The classifier.
        image: uint8 (H, W, 3).
        classes: The classes to localise.
        settings: How maps are made.
    """
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


def object_maps(model: Classifier, tokens: Tokens, classes: Sequence[int]) -> PhotoMaps:
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
    return PhotoMaps(tuple(classes), *kinds)


def takes_tokens(model: Classifier, settings: MapSettings) -> bool:
    """Return True if maps can be made from cached features.

    That is so for a classifier that was trained on them, if photos are to be seen in the same way.

    Args:
        model: The classifier.
        settings: How maps are made.
    """
    if model.fixed_views is None or settings.scales != (1.0,) or settings.shape is not None:
        return False
    size, first = model.fixed_views
    if settings.size not in (None, size):
        return False
    return settings.affinity_blocks is None or settings.affinity_blocks[0] >= first


def token_maps(
    model: Classifier, tokens: Tokens, classes: Sequence[int], settings: MapSettings
) -> PhotoMaps:
    """Return the maps of one photo from its cached features.

    Args:
        model: A classifier that was trained on cached features.
        tokens: Output of the frozen blocks for the photo and its mirror image.
        classes: The classes to localise.
        settings: How maps are made; without ``affinity_blocks`` the affinity is that of the trained
            blocks.
    """
    assert model.fixed_views is not None
    first = model.fixed_views[1]
    blocks = block_range(settings.affinity_blocks) or range(first, len(model.blocks))
    options = _options(model, settings)
    options["affinity_blocks"] = range(blocks.start - first, blocks.stop - first)
    rest = tail(model, first, tokens.grid)
    count = 2 if settings.flip else 1
    kinds = []
    for maps in localize_both(rest, tokens.values[:count], [classes] * count, **options):
        total = maps[0]  # (k, h, w)
        if settings.flip:
            total = total + maps[1].flip(-1)
        if not len(classes):
            kinds.append(np.zeros((0, *tokens.shape), np.float32))
            continue
        # (1, k, H, W)
        pixels = F.interpolate(total[None], tokens.shape, mode="bilinear", align_corners=False)
        kinds.append(stretch(pixels[0]).cpu().numpy())
    return PhotoMaps(tuple(classes), *kinds)


def _options(model: Classifier, settings: MapSettings) -> dict[str, Any]:
    """Return what ``localize_both`` is asked for, apart from the blocks of the affinity."""
    options: dict[str, Any] = {
        "method": method_for(model, settings.method).maps,
        "transpose": settings.transpose,
        "affinity_steps": settings.affinity_steps,
    }
    # only some methods have these options, so they are handed on where they were set
    if settings.layers:
        options["layers"] = settings.layers
    if settings.centre:
        options["centre"] = settings.centre
    return options


def block_range(blocks: tuple[int, int] | None) -> range | None:
    """Return first and last block, as settings name them, as a range; None if nothing is named."""
    return range(blocks[0], blocks[1] + 1) if blocks else None


def views(model: Classifier, pictures: Tensor, settings: MapSettings) -> Iterator[TestView]:
    """Yield the test-time views of pictures, starting with the unmirrored view at the first scale.

    Args:
        model: The classifier, which knows its patch size and normalisation.
        pictures: (B, 3, H, W) in [0, 1].
        settings: Size, shape, scales and mirroring.

    Yields:
        Each view, padded to whole patches.
    """
    patch = model.patch_size
    if model.fixed_views:
        usual = model.fixed_views[0]
    else:
        usual = round(SIZE_PER_CROP * model.crop_size / patch) * patch
    height, width = pictures.shape[-2:]
    long_side = settings.size or usual
    if settings.shape == "own":
        long_side = max(height, width)
    if settings.shape == "square":
        height = width = max(height, width)
    factor = long_side / max(height, width)
    for scale in settings.scales:
        inner_height = max(1, round(height * factor * scale))
        inner_width = max(1, round(width * factor * scale))
        inner = (inner_height, inner_width)
        small = pictures
        if inner != tuple(pictures.shape[-2:]):
            small = F.interpolate(
                pictures, inner, mode="bilinear", align_corners=False, antialias=True
            )
        padding = (0, -inner[1] % patch, 0, -inner[0] % patch)  # right and bottom
        yield TestView(F.pad(model.normalize(small), padding), inner, mirrored=False)
        if settings.flip:
            mirror_image = model.normalize(small.flip(-1))
            yield TestView(F.pad(mirror_image, padding), inner, mirrored=True)


def _to_pixels(maps: Tensor, view: TestView, size: tuple[int, int]) -> Tensor:
    """Bring maps (k, h, w) on the token grid of a view to the image, (k, H, W)."""
    pixels = F.interpolate(maps[None], view.images.shape[-2:], mode="bilinear", align_corners=False)
    pixels = pixels[..., : view.inner[0], : view.inner[1]]  # without the padding
    if view.mirrored:
        pixels = pixels.flip(-1)
    if view.inner != size:
        pixels = F.interpolate(pixels, size, mode="bilinear", align_corners=False)
    return pixels[0]


def stretch(maps: Tensor) -> Tensor:
    """Stretch each map (k, H, W) from 0 to 1; a constant map becomes zero."""
    low = maps.amin((-2, -1), keepdim=True)
    high = maps.amax((-2, -1), keepdim=True)
    return (maps - low) / (high - low).clamp(min=torch.finfo(maps.dtype).tiny)


@torch.inference_mode()
def predicted_classes(
    model: Classifier, image: Picture, settings: MapSettings, above: float = 0.5
) -> list[int]:
    """Return the classes that the model itself sees in an image.

    Args:
        model: The classifier.
        image: uint8 (H, W, 3).
        settings: How the image is seen.
        above: Classes above this probability are returned.

    Returns:
        Class numbers; the likeliest one if none is above the probability.
    """
    if model.finder is not None:  # the head was fitted to photos seen in this way
        seen = whole_patches(model, model.finder.size, image)[0]
    elif model.fixed_views is not None and settings.size is None:
        seen = whole_patches(model, model.fixed_views[0], image)[0]
    else:
        picture = to_tensor(image).float()[None].to(model.mean.device) / 255
        seen = next(views(model, picture, settings)).images
    probabilities = torch.sigmoid(model(seen))[0]  # (C,)
    likely: list[int] = torch.nonzero(probabilities > above).flatten().tolist()
    return likely or [int(probabilities.argmax())]
