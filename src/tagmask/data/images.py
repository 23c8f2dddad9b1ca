"""Picture files: finding them in a folder, reading them into plain arrays, and writing masks.

- EXIF orientation is applied, so the picture is upright;
- animations and multi-page files give their first frame;
- 16-bit grey is divided by 257, so that its full range stays visible;
- transparency is laid over white, as in a browser;
- CMYK, 1-bit, palette and YCbCr become RGB; colour profiles are not applied.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL.PngImagePlugin import PngInfo

from tagmask.errors import ImageError, TagmaskError, first_of
from tagmask.files import is_regular, replacing
from tagmask.labels import UNSURE, Mask, voc_palette

Picture = npt.NDArray[np.uint8]  # (H, W, 3) RGB

# Only formats that Pillow decodes itself: EPS, for example, would start another program on the user's file.
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "JPEG2000", "AVIF")
_SUFFIXES = frozenset(
    (
        ".jpg",
        ".jpeg",
        ".jfif",
        ".png",
        ".gif",
        ".bmp",
        ".tif",
        ".tiff",
        ".webp",
        ".avif",
        ".jp2",
        ".ppm",
        ".pgm",
    )
)


def strip_suffix(path: str) -> str:
    """The path without the suffix of a picture; other dots belong to the name."""
    stem, suffix = os.path.splitext(path)
    return stem if suffix.lower() in _SUFFIXES else path


def walk(root: Path, odd: list[str] | None = None) -> Iterator[str]:
    """Relative paths, with "/", of all files below ``root`` except hidden ones; links to folders are followed once.

    Pipes, sockets, devices and broken links are left out, and added to ``odd``.
    """
    seen: set[str] = set()
    waiting = [""]  # no recursion: folders may be nested thousands deep
    while waiting:
        place = waiting.pop()
        here = os.path.join(root, place)
        if (real := os.path.realpath(here)) in seen:
            continue
        seen.add(real)
        folders = []
        for entry in _entries(here):
            if _is(entry.is_dir):
                folders.append(f"{place}{entry.name}/")
            elif _is(entry.is_file):
                yield place + entry.name
            elif odd is not None:
                odd.append(place + entry.name)
        waiting += sorted(folders, reverse=True)


def _entries(folder: str) -> list["os.DirEntry[str]"]:
    """What a folder holds, hidden entries apart; nothing if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except OSError:
        return []


def _is(test: Callable[[], bool]) -> bool:
    try:
        return test()
    except OSError:  # a link to itself
        return False


def list_files(root: Path, odd: list[str]) -> list[str]:
    """What ``walk`` finds in the folder of the images, sorted."""
    if not root.is_dir():
        raise TagmaskError(f"{root} is not a folder; check the path of the images.")
    return sorted(walk(root, odd))


def read_image(path: Path) -> Picture:
    """The picture as RGB, shape (H, W, 3), 0 … 255, upright."""
    image = _decode(path, _FORMATS, "JPEG or PNG")
    with suppress(
        Exception
    ):  # a garbled EXIF block says nothing about the orientation; the pixels are sound
        ImageOps.exif_transpose(image, in_place=True)
    try:
        return np.array(_to_rgb(image, path), dtype=np.uint8)  # (H, W, 3)
    except MemoryError:
        raise ImageError(
            f"{path} has {image.width}×{image.height} pixels, too many for the memory; make it smaller."
        ) from None
    except ValueError:
        raise ImageError(
            f"{path} has pixels of kind {image.mode}; save it as an 8-bit RGB JPEG or PNG."
        ) from None


@contextmanager
def opened(path: Path) -> Iterator[Image.Image]:
    """A picture of which only the head is read; ImageError if that cannot be."""
    try:
        with Image.open(path, formats=_usable(_FORMATS)) as image:
            yield image
    except Exception as error:  # as in _decode
        raise ImageError(f"{path} cannot be read ({error}); copy it again, or remove it.") from None


def read_mask(path: Path, num_classes: int) -> Mask:
    """The labels of a palette or greyscale PNG, shape (H, W): 0 … num_classes, and 255 for ignore."""
    image = _decode(path, ("PNG",), "a palette or greyscale PNG")
    if image.mode not in ("P", "L", "1", "I", "I;16"):
        raise ImageError(
            f"{path} stores its labels as colours ({image.mode}); save the label numbers themselves, "
            "as a palette or greyscale PNG."
        )
    labels = np.array(image)  # (H, W)
    if wrong := np.unique(labels[(labels > num_classes) & (labels != UNSURE)]).tolist():
        raise ImageError(
            f"{path} holds the labels {first_of([*map(str, wrong)])}; with {num_classes} classes they must be 0 to "
            f"{num_classes}, or {UNSURE} for ignore."
        )
    return labels.astype(np.uint8)


def write_mask(path: Path, mask: Mask, **notes: str) -> None:
    """Write labels, shape (H, W), as a PNG with the VOC palette and with notes in it; empty notes are left out."""
    if mask.ndim != 2 or mask.dtype != np.uint8 or not mask.size:
        raise ValueError(
            f"a mask is a non-empty uint8 array (H, W), not {mask.dtype} {mask.shape}."
        )
    texts = PngInfo()
    for key, value in notes.items():
        if value:
            texts.add_text(key, value)
    with replacing(path) as partial:
        palette_image(mask).save(partial, format="PNG", pnginfo=texts)


def write_png(path: Path, values: Mask | Picture) -> None:
    """Write numbers, shape (H, W), as a grey PNG without a palette, or a picture, shape (H, W, 3)."""
    with replacing(path) as partial:
        Image.fromarray(values).save(partial, format="PNG")


def palette_image(mask: Mask) -> Image.Image:
    """A mask, shape (H, W), as a Pillow image with the VOC palette."""
    image = Image.fromarray(mask)  # mode L
    image.putpalette(voc_palette().tobytes())
    return image


def check_same_size(image: Picture, mask: Mask, name: str) -> None:
    """Refuse a mask, shape (H, W), whose size is not that of its image, shape (H, W, 3)."""
    if image.shape[:2] != mask.shape[:2]:
        (height, width), (mask_height, mask_width) = image.shape[:2], mask.shape[:2]
        raise ImageError(
            f'the mask of "{name}" is {mask_width}×{mask_height} pixels but its image is {width}×{height}; '
            "make the mask again at the size of the upright image."
        )


def _decode(path: Path, formats: tuple[str, ...], wanted: str) -> Image.Image:
    """Open and decode the first frame; any failure becomes an ImageError."""
    if os.path.exists(path) and not is_regular(path):
        raise ImageError(
            f"{path} cannot be opened (a folder, pipe or device, no ordinary file); remove it."
        )
    try:
        with Image.open(path, formats=_usable(formats)) as image:
            image.load()
            return image
    except FileNotFoundError:
        raise ImageError(
            f"{path} does not exist; check the path or remove it from the list."
        ) from None
    except UnidentifiedImageError:
        fault = "is empty" if path.stat().st_size == 0 else "is not a picture that can be read"
        raise ImageError(f"{path} {fault}; save it as {wanted}, or remove it.") from None
    except (Image.DecompressionBombError, MemoryError):
        limit = 2 * (Image.MAX_IMAGE_PIXELS or 0) // 1_000_000
        raise ImageError(
            f"{path} has too many pixels (the limit is {limit} million); make it smaller."
        ) from None
    except (
        Exception
    ) as error:  # Pillow's decoders raise OSError, SyntaxError, struct.error, … on broken files
        if isinstance(error, OSError) and error.strerror:
            raise ImageError(
                f"{path} cannot be opened ({error.strerror}); check path and permissions."
            ) from None
        raise ImageError(
            f"{path} is damaged ({error}); copy or download it again, or remove it."
        ) from error


@cache
def _usable(formats: tuple[str, ...]) -> tuple[str, ...]:
    """The formats that this build of Pillow supports; AVIF may be missing."""
    Image.init()
    return tuple(name for name in formats if name in Image.OPEN)


def _to_rgb(image: Image.Image, path: Path) -> Image.Image:
    if image.mode in ("I", "I;16", "I;16B", "I;16L", "I;16N"):
        grey = np.array(image).astype(np.int64)  # (H, W)
        if grey.min() < 0 or grey.max() > 65535:
            span = f"{grey.min()} to {grey.max()}"
            raise ImageError(f"{path} holds {span}, more than 16 bits; save it with 8 or 16 bits.")
        return Image.fromarray(((grey + 128) // 257).astype(np.uint8)).convert(
            "RGB"
        )  # 65535 = 255 · 257
    if image.mode == "F":
        raise ImageError(
            f"{path} holds floating-point numbers, whose range is unknown; save it with 8 or 16 bits."
        )
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        white = Image.new("RGBA", layer.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, layer).convert("RGB")
    return image.convert("RGB")
