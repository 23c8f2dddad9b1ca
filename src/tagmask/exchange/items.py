"""The parts that every export format starts from: named masks, and the regions in them."""

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
from tagmask.data.images import Picture, is_plain, read_image, read_mask, write_png
from tagmask.errors import ImageError, TagmaskError
from tagmask.files import replacing, write_json
from tagmask.labels import UNSURE, Mask

_COPIED = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp")
Probabilities = npt.NDArray[np.float16]
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
    probabilities: Callable[[], Probabilities | None] | None = None  # (K, H, W), background first
    corrected: bool = False  # by a person

    @property
    def file(self) -> str:
        """Return the image's file name, with folders, as other tools list it."""
        suffix = ".jpg" if self.image is None else self.image.suffix
        return self.name + suffix


@dataclass
class Exported:
    """Counts and notes about what was written."""

    path: Path
    holds_unsure: bool = False  # True if the format can hold unsure pixels
    images: int = 0
    unsure: int = 0  # images with unsure pixels
    notes: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """Return the notes and the number of masks, one sentence per line."""
        lines = [*self.notes]
        if self.unsure and not self.holds_unsure:
            lines.append(
                f"{self.unsure} images have unsure pixels (255); the format cannot hold them, "
                "so they are background."
            )
        lines.append(f"{self.images} masks in {self.path}")
        return "\n".join(lines)

    def checked(self, items: Iterable[Labelled], classes: Sequence[str]) -> Iterator[Labelled]:
        """Yield the items and count them.

        Args:
            items: images with their masks.
            classes: names of the labels 1, 2, …

        Raises:
            ImageError: a mask is no uint8 (H, W) or has a label without a class.
        """
        for item in items:
            mask = item.mask
            if mask.ndim != 2 or mask.dtype != np.uint8 or not mask.size:
                raise ImageError(
                    f'the mask of "{item.name}" is {mask.dtype} of shape {mask.shape}; '
                    "give uint8 labels (H, W)."
                )
            is_unsure = mask == UNSURE  # (H, W)
            highest = int(mask[~is_unsure].max(initial=0))
            if highest > len(classes):
                raise ImageError(
                    f'the mask of "{item.name}" holds the label {highest}, but there are only '
                    f"{len(classes)} classes; give the classes it was made for."
                )
            self.images += 1
            if is_unsure.any():
                self.unsure += 1
            yield item


def unlistable_name(name: str) -> str:
    """Say why a list of names, one per line, cannot hold this name; empty if it can."""
    is_one_line = name.splitlines() == [name]
    if not is_one_line or name.strip() != name or name[0] == "#":
        return "the format's list of names, one per line, cannot hold this one; rename the image."
    return ""


def unsafe_name(name: str) -> str:
    """Say why Datumaro, which looks for ways out of a folder, refuses a name; empty if it does not.

    One such name would make it refuse all images.
    """
    is_drive = name[1:2] == ":" and name[0].isalpha()
    parts = name.replace("\\", "/").split("/")
    if is_drive or any(not part.strip(" .") for part in parts):
        return "Datumaro takes this name for a path out of the folder; rename the image."
    return ""


def unlistable_or_unsafe_name(name: str) -> str:
    """Say why a list of names that Datumaro reads cannot hold a name; empty if it can."""
    return unlistable_name(name) or unsafe_name(name)


def from_folder(
    catalog: Catalog,
    folder: Path,
    damaged: dict[str, str],
    unusable: Callable[[str], str] = lambda _: "",
) -> Iterator[Labelled]:
    """Yield the images of a catalog that have a mask, in order.

    Args:
        catalog: the images with their tags.
        folder: masks, ``folder/NAME.png``.
        damaged: gets a sentence, by name, for each mask that cannot be read or named; these are
            left out.
        unusable: says why a format cannot hold a name, empty if it can. By default every name can
            be held.

    Raises:
        TagmaskError: no mask can be used.
    """
    count = 0
    for item in catalog:
        file = folder / f"{item.name}.png"
        if not file.is_file():
            continue
        fault = unusable(item.name)
        if fault:
            damaged[item.name] = fault
            continue
        try:
            item.name.encode()
            mask = read_mask(file, len(catalog.classes))
        except UnicodeEncodeError:
            damaged[item.name] = (
                "its file name is not UTF-8, as other tools need it; rename the image and its mask."
            )
            continue
        except ImageError as error:
            damaged[item.name] = str(error)
            continue
        count += 1
        yield Labelled(
            item.name,
            mask,
            image=item.image,
            picture=partial(catalog.load_image, item.index),
            tags=tuple(catalog.classes[tag] for tag in item.tags),
            corrected=bool(catalog.correction_digest(item.index)),
        )
    if not count:
        raise TagmaskError(
            f"{folder} holds no mask of these images; make some with `tagmask predict` first."
        )


def put_image(item: Labelled, place: Path) -> Path:
    """Copy an image; one that has no file, or that few tools can read as it is, becomes a PNG.

    A photo that is turned by its EXIF entry becomes one too, upright as its mask is, since not
    every tool heeds the entry.

    Args:
        item: the image.
        place: where to put it, without the suffix.

    Returns:
        The path of the copy, with its suffix.
    """
    if item.image is not None and item.image.suffix.lower() in _COPIED and is_plain(item.image):
        path = place.with_name(place.name + item.image.suffix)
        with replacing(path) as temporary:
            shutil.copyfile(item.image, temporary)
        return path
    path = place.with_name(f"{place.name}.png")
    write_png(path, picture_of(item))
    return path


class FlatNames:
    """Gives images names without folders, for tools that list a single folder.

    "day 1/a" becomes "day 1_a". Names that differ in case alone, or that others have already, get a
    number, because some disks would take them for the same.
    """

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self.changed: dict[str, str] = {}  # new name: name of the image

    def __call__(self, name: str) -> str:
        """Return the new name of an image."""
        wanted = name.replace("/", "_")
        flat = wanted
        number = 1
        while flat.casefold() in self._taken:
            number += 1
            flat = f"{wanted}_{number}"
        self._taken.add(flat.casefold())
        if flat != name:
            self.changed[flat] = name
        return flat

    def write(self, file: Path, done: Exported) -> None:
        """Write the names that were changed, if there are any, and note it.

        Args:
            file: the JSON file.
            done: gets the note.
        """
        if self.changed:
            write_json(file, self.changed)
            done.notes.append(
                f"{len(self.changed)} images have new names, without folders; "
                f"{file.name} has the old."
            )


def picture_of(item: Labelled) -> Picture:
    """Return the pixels of an image, uint8 (H, W, 3); TagmaskError if it has none."""
    if item.picture is not None:
        return item.picture()
    if item.image is None:
        raise TagmaskError(f'"{item.name}" has no image to go with its mask; give its file.')
    return read_image(item.image)


def regions(mask: Mask, pieces: bool) -> Iterator[tuple[int, Region]]:
    """Yield label and area of each class in a mask, without background and unsure pixels.

    Args:
        mask: uint8 labels (H, W).
        pieces: yield each part of a class that is connected over pixel sides by itself.
    """
    is_class = (mask != 0) & (mask != UNSURE)  # (H, W)
    labels = np.unique(mask[is_class]).tolist()
    for label in labels:
        whole = mask == label  # (H, W)
        if not pieces:
            yield label, whole
            continue
        numbers, count = ndimage.label(whole)  # (H, W), 0 outside
        for number in range(1, count + 1):
            yield label, numbers == number


def png(image: Image.Image) -> bytes:
    """Return the content of a PNG file."""
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()
