"""One photo: maps by the easy door, and pictures of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image as Pillow

from tagmask.acr.localize import affinity
from tagmask.config import MapSettings, PhotoSettings
from tagmask.data.datasets import to_tensor
from tagmask.data.images import read_image
from tagmask.errors import TagmaskError
from tagmask.models.classifier import Classifier
from tagmask.models.device import on_device
from tagmask.models.kinds import load_classifier
from tagmask.stages.maps import Image, Maps, make_maps, predicted_classes
from tagmask.stages.seeds import match_classes, write_seeds


def localize(
    model: Classifier,
    photo: str | Path | Pillow.Image | Image,
    tags: Sequence[str] | None = None,
    *,
    affinity: bool = True,
    **settings: Any,
) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    """Localisation maps of one photo at its own size, by class name: (H, W), values in [0, 1].

    Args:
        photo: a path, a PIL image, or uint8 (H, W, 3).
        tags: class names to localise; default: those the model itself sees.
        affinity: refined by patch affinity (ACR) or not (ACR*).
        settings: those of ``tagmask.config.MapSettings``, e.g. ``scales=(0.75, 1.0)``.
    """
    image = _pixels(photo)
    chosen = MapSettings(**settings)
    classes = match_classes(tags, model) if tags is not None else predicted_classes(model, image, chosen)
    maps = make_maps(model, [image], [classes], chosen)[0]
    values = maps.refined if affinity else maps.plain
    return {model.classes[c]: one for c, one in zip(classes, values, strict=True)}


def seed_photo(settings: PhotoSettings) -> str:
    """Maps of one photo as the command line asks for; returns what to tell the user."""
    mistakes = settings.mistakes()
    if mistakes:
        raise TagmaskError("\n".join(mistakes))
    model = on_device(load_classifier(settings.model))
    image = read_image(settings.photo)
    names = [tag.strip() for tag in settings.tags.split(",")] if settings.tags is not None else None
    if names is not None and not all(names):
        raise TagmaskError(f"--tags {settings.tags!r} holds an empty tag; write them as dog,sofa.")
    classes = match_classes(names, model) if names is not None else predicted_classes(model, image, settings)
    maps = make_maps(model, [image], [classes], settings)[0]
    told = [f"classes: {', '.join(model.classes[c] for c in classes)}"]
    if names is None:
        told[0] += " (seen by the model; name them with --tags)"
    if settings.out is not None:
        write_seeds(settings.out, maps, "float16")
        told.append(f"maps: {settings.out}")
    if settings.show is not None:
        _show_maps(settings.show, image, maps, model)
        told.append(f"picture: {settings.show}")
    if settings.show_affinity is not None:
        _show_affinity(settings.show_affinity, image, maps, model, settings)
        told.append(f"affinity: {settings.show_affinity}")
    if len(told) == 1:
        told.append("nothing was written; add --show out.png for a picture or --out maps.npz for the maps.")
    return "\n".join(told)


def _show_maps(path: Path, image: Image, maps: Maps, model: Classifier) -> None:
    from tagmask.show.seeds import seed_sheet
    from tagmask.show.sheet import save_picture

    names = [model.classes[c] for c in maps.classes]
    save_picture(path, seed_sheet(image, names, maps.plain, maps.refined))


def _show_affinity(path: Path, image: Image, maps: Maps, model: Classifier, settings: MapSettings) -> None:
    """What chosen source pixels attend to (red crosses), and the whole affinity matrix."""
    from tagmask.show.affinity import affinity_matrix, affinity_of_pixels, default_points
    from tagmask.show.sheet import save_picture, sheet

    patch, blocks = model.patch_size, settings.affinity_blocks
    longest = settings.size or model.crop_size
    factor = longest / max(image.shape[:2])
    size = [max(1, round(side * factor / patch)) * patch for side in image.shape[:2]]
    picture = F.interpolate(to_tensor(image).float()[None] / 255, size, mode="bilinear", antialias=True)
    chosen = range(blocks[0], blocks[1] + 1) if blocks else None
    with torch.no_grad():
        _, attention = model.attend(model.normalize(picture.to(model.mean.device)), chosen)
    matrix = affinity(attention, model.class_tokens)[0].cpu().numpy()  # (n, n)
    sources = affinity_of_pixels(image, matrix, model.grid(*size), default_points(maps.refined))
    save_picture(
        path, sheet([[("affinity of source pixels", sources)], [("affinity matrix", affinity_matrix(matrix))]])
    )


def _pixels(photo: str | Path | Pillow.Image | Image) -> Image:
    if isinstance(photo, (str, Path)):
        return read_image(Path(photo))
    array = np.asarray(photo.convert("RGB")) if isinstance(photo, Pillow.Image) else photo
    if array.ndim != 3 or array.shape[2] != 3 or array.dtype != np.uint8:
        raise TagmaskError(f"the photo is {array.dtype} {array.shape}; give a path, a PIL image, or uint8 (H, W, 3).")
    return array
