"""The photos of a studio: those of a folder, or those of a run."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageOps

from tagmask.data.catalog import Catalog
from tagmask.data.images import Picture, opened, strip_suffix, walk
from tagmask.errors import TagmaskError

# longest sides of pictures in pixels
THUMB = 240
SHOWN = 2048


@dataclass(frozen=True)
class Photo:
    """One photo as the page lists it."""

    name: str  # under which files of a run are stored
    path: Path | None  # None: the catalog draws it
    file: str  # relative to the folder of photos, as a table of tags names it


def photos_of_folder(folder: Path) -> list[Photo]:
    """Return all photos below a folder, by name.

    Args:
        folder: The folder; photos with the same name and another suffix are left out.

    Raises:
        TagmaskError: There is no photo.
    """
    photos: dict[str, Photo] = {}
    for path in sorted(walk(folder)):
        name = strip_suffix(path)
        if name != path and name not in photos:
            photos[name] = Photo(name, folder / path, path)
    if not photos:
        raise TagmaskError(f"{folder} contains no photos; name a folder with photos.")
    return list(photos.values())


def photos_of_catalog(catalog: Catalog) -> list[Photo]:
    """Return the photos of a run."""
    photos = []
    for item in catalog:
        file = item.name if item.image is None else item.image.name
        photos.append(Photo(item.name, item.image, file))
    return photos


def picture(photo: Photo, side: int, load: Callable[[], Picture]) -> bytes:
    """Return a photo as JPEG.

    Args:
        photo: The photo; JPEG files are decoded at a fraction of their size where that is enough.
        side: Its longer side has at most so many pixels.
        load: Reads all its pixels, where there is no such short cut.
    """
    small = _draft(photo.path, side)
    if small is None:
        small = Image.fromarray(load())
    small.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=2.0)
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=90 if side > THUMB else 80)
    return buffer.getvalue()


def _draft(path: Path | None, side: int) -> Image.Image | None:
    """Return a JPEG file as a small upright picture; None if it is something else."""
    if path is None or path.suffix.lower() not in (".jpg", ".jpeg"):
        return None
    try:
        with opened(path) as image:
            if image.format != "JPEG" or image.mode not in ("RGB", "L"):
                return None
            image.draft("RGB", (side, side))
            upright = ImageOps.exif_transpose(image)
            return upright.convert("RGB")
    # what is wrong with it is said by the reader of whole pictures
    except Exception:
        return None
