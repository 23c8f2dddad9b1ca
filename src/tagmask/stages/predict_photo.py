"""The mask of one photo, and a picture of it."""

from pathlib import Path

import numpy as np

from tagmask.config import PredictPhotoSettings, check
from tagmask.data.images import read_image, write_mask
from tagmask.errors import TagmaskError
from tagmask.labels import Mask
from tagmask.models.deeplab import DeepLabV2
from tagmask.models.device import on_device
from tagmask.stages.predict import views_of
from tagmask.stages.probabilities import Image, predict_probabilities, sharpen
from tagmask.stages.seeds import match_classes


def predict_photo(settings: PredictPhotoSettings) -> str:
    """Predict a mask as the command line asks for; returns what to tell the user."""
    check(settings)
    model = on_device(DeepLabV2.load(settings.model))
    image = read_image(settings.photo)
    names = [tag.strip() for tag in settings.tags.split(",")] if settings.tags is not None else None
    if names is not None and not all(names):
        raise TagmaskError(f"--tags {settings.tags!r} holds an empty tag; write them as dog,sofa.")
    allowed = match_classes(names, model) if names is not None else None
    chances = predict_probabilities(model, image, tags=allowed, **views_of(settings))  # (K, H, W)
    if settings.crf:
        chances = sharpen(image, chances)
    mask = chances.argmax(0).astype(np.uint8)
    told = [describe(mask, model)]
    if settings.mask is not None:
        write_mask(settings.mask, mask)
        told.append(f"mask: {settings.mask}")
    if settings.show is not None:
        _show(settings.show, image, mask, model)
        told.append(f"picture: {settings.show}")
    if len(told) == 1:
        told.append("nothing was written; add --show out.png for a picture or --mask mask.png for the mask.")
    return "\n".join(told)


def describe(mask: Mask, model: DeepLabV2) -> str:
    """Which classes were found, the largest first, and their share of the photo."""
    labels, counts = np.unique(mask[mask > 0], return_counts=True)
    if not len(labels):
        return "nothing but background was found."
    order = np.argsort(-counts, kind="stable")
    shares = [f"{model.classes[labels[i] - 1]} {100 * counts[i] / mask.size:.1f} %" for i in order]
    return f"found: {', '.join(shares)} of the photo"


def _show(path: Path, image: Image, mask: Mask, model: DeepLabV2) -> None:
    """The photo and, beside it, the mask over it, captioned with its classes."""
    from tagmask.show.overlay import mask_overlay
    from tagmask.show.sheet import save_picture, sheet

    names = [model.classes[label - 1] for label in np.unique(mask) if label]
    save_picture(path, sheet([[("photo", image), (", ".join(names) or "background", mask_overlay(image, mask))]]))
