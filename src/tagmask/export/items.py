"""What every export format starts from: named masks, and the regions in them."""

import io
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image
from scipy import ndimage

from tagmask.data.catalog import Catalog
from tagmask.data.images import Picture, read_image, read_mask, write_png
from tagmask.errors import ImageError, TagmaskError
from tagmask.files import replacing
from tagmask.labels import UNSURE, Mask

_COPIED = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp")
Region = npt.NDArray[np.bool_]  # (H, W)


@dataclass(frozen=True)
class Labelled:
    """One image with its mask; ``name`` is a relative path without suffix."""

    name: str
    mask: Mask
    image: Path | None = None
    picture: Callable[[], Picture] | None = None  # instead of reading ``image``
    tags: tuple[str, ...] = ()
    part: str = "train"  # or val, for formats with a split
    maps: Callable[[], dict[int, Mask]] | None = None  # seeds as 0 … 255, by label

    @property
    def file(self) -> str:
        """The image's file name, with folders, as other tools list it."""
        return self.name + (self.image.suffix if self.image is not None else ".jpg")


@dataclass
class Exported:
    """What was written."""

    path: Path
    holds_unsure: bool = False  # whether the format can hold unsure pixels
    images: int = 0
    unsure: int = 0  # images with unsure pixels
    notes: list[str] = field(default_factory=list)

    def summary(self) -> str:
        lines = [*self.notes]
        if self.unsure and not self.holds_unsure:
            lines.append(
                f"{self.unsure} images have unsure pixels (255); the format cannot hold them, so they are background."
            )
        return "\n".join([*lines, f"{self.images} masks in {self.path}"])

    def checked(self, items: Iterable[Labelled], classes: Sequence[str]) -> Iterator[Labelled]:
        """The items, counted; ImageError for an array that is no mask or has labels without a class."""
        for item in items:
            mask = item.mask
            if mask.ndim != 2 or mask.dtype != np.uint8 or not mask.size:
                raise ImageError(
                    f'the mask of "{item.name}" is {mask.dtype} of shape {mask.shape}; give uint8 labels (H, W).'
                )
            highest = int(mask[mask != UNSURE].max(initial=0))
            if highest > len(classes):
                raise ImageError(
                    f'the mask of "{item.name}" holds the label {highest}, but there are only {len(classes)} classes; '
                    "give the classes it was made for."
                )
            self.images += 1
            self.unsure += bool((mask == UNSURE).any())
            yield item


def unlistable_name(name: str) -> str:
    """Why a list of names, one per line, cannot hold this name; empty if it can."""
    if name.splitlines() != [name] or name.strip() != name or name[0] == "#":
        return "the format's list of names, one per line, cannot hold this one; rename the image."
    return ""


def from_folder(
    catalog: Catalog,
    folder: Path,
    damaged: dict[str, str],
    unusable: Callable[[str], str] = lambda _: "",
) -> Iterator[Labelled]:
    """The images of a catalog that have a mask, ``folder/NAME.png``, in order.

    Masks that cannot be read or named are left out and reported in ``damaged`` (name: why). ``unusable`` says why a
    format cannot hold a name.
    """
    count = 0
    for item in catalog:
        file = folder / f"{item.name}.png"
        if not file.is_file():
            continue
        if fault := unusable(item.name):
            damaged[item.name] = fault
            continue
        try:
            item.name.encode()
            mask = read_mask(file, len(catalog.classes))
        except UnicodeEncodeError:
            damaged[item.name] = (
                "its file name is not UTF-8, as other tools need it; rename the image and its mask."
            )
        except ImageError as error:
            damaged[item.name] = str(error)
        else:
            count += 1
            tags = tuple(catalog.classes[tag] for tag in item.tags)
            yield Labelled(
                item.name, mask, item.image, partial(catalog.load_image, item.index), tags
            )
    if not count:
        raise TagmaskError(
            f"{folder} holds no mask of these images; make some with `tagmask predict` first."
        )


def put_image(item: Labelled, place: Path) -> Path:
    """Copy an image to ``place`` with its suffix; one that has no file, or that few tools can read, becomes a PNG."""
    if item.image is not None and item.image.suffix.lower() in _COPIED:
        path = place.with_name(place.name + item.image.suffix)
        with replacing(path) as temporary:
            shutil.copyfile(item.image, temporary)
        return path
    path = place.with_name(f"{place.name}.png")
    write_png(path, picture_of(item))
    return path


def picture_of(item: Labelled) -> Picture:
    if item.picture is not None:
        return item.picture()
    if item.image is None:
        raise TagmaskError(f'"{item.name}" has no image to go with its mask; give its file.')
    return read_image(item.image)


def regions(mask: Mask, pieces: bool) -> Iterator[tuple[int, Region]]:
    """Label and area of each class in a mask, or with ``pieces`` of each part that is connected over pixel sides."""
    for label in np.unique(mask[(mask != 0) & (mask != UNSURE)]).tolist():
        whole = mask == label  # (H, W)
        numbers, count = ndimage.label(whole) if pieces else (whole, 1)
        yield from ((label, numbers == number) for number in range(1, count + 1))


def png(image: Image.Image) -> bytes:
    """The content of a PNG file."""
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()
