"""What every export format starts from: named masks, and the regions in them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from tagmask.data.catalog import Catalog
from tagmask.data.images import UNSURE, read_mask
from tagmask.errors import ImageError, TagmaskError

Mask = npt.NDArray[np.uint8]  # (H, W): 0 background, c+1 for class c, 255 unsure
Region = npt.NDArray[np.bool_]  # (H, W)


@dataclass(frozen=True)
class Labelled:
    """One image with its mask; ``name`` is a relative path without suffix."""

    name: str
    mask: Mask
    image: Path | None = None
    picture: Callable[[], npt.NDArray[np.uint8]] | None = None  # (H, W, 3); needed for overlays only

    @property
    def file(self) -> str:
        """The image's file name, with folders, as other tools list it."""
        return self.name + (self.image.suffix if self.image is not None else ".jpg")


@dataclass
class Exported:
    """What was written."""

    path: Path
    images: int = 0
    unsure: int = 0  # images with unsure pixels that the format cannot hold
    notes: list[str] = field(default_factory=list)

    def summary(self) -> str:
        lines = [*self.notes]
        if self.unsure:
            lines.append(f"{self.unsure} images have unsure pixels (255); the format has none, so they are background.")
        return "\n".join([*lines, f"{self.images} masks in {self.path}"])


def from_folder(catalog: Catalog, folder: Path, damaged: dict[str, str] | None = None) -> Iterator[Labelled]:
    """The images of a catalog that have a mask, ``folder/NAME.png``, in order.

    Masks that cannot be read or named are left out and told in ``damaged`` (name: why); without it they raise.
    """
    found = 0
    for i in range(len(catalog)):
        item = catalog.item(i)
        file = folder / f"{item.name}.png"
        if file.is_file():
            try:
                _check_name(item.name)
                mask = read_mask(file, len(catalog.classes))
            except ImageError as error:
                if damaged is None:
                    raise
                damaged[item.name] = str(error)
                continue
            found += 1
            yield Labelled(item.name, mask, item.image, lambda number=i: catalog.load_image(number))  # type: ignore[misc]
    if not found:
        raise TagmaskError(f"{folder} holds no mask of these images; make some with `tagmask predict` first.")


def _check_name(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ImageError("its file name is not UTF-8, as other tools need it; rename the image and its mask.") from None


def checked(items: Iterable[Labelled], classes: Sequence[str]) -> Iterator[Labelled]:
    """The items themselves; a sentence for a mask that is none, or that has labels without a class."""
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
        yield item


def regions(mask: Mask, split: bool) -> Iterator[tuple[int, Region]]:
    """Label and area of each class in a mask, or of each connected piece (over sides) where ``split`` is asked for."""
    for label in np.unique(mask).tolist():
        if label in (0, UNSURE):
            continue
        whole = mask == label  # (H, W)
        if not split:
            yield label, whole
            continue
        pieces, count = ndimage.label(whole)
        yield from ((label, pieces == number) for number in range(1, count + 1))


def has_unsure(mask: Mask) -> bool:
    return bool((mask == UNSURE).any())
