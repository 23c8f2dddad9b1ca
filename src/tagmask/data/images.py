"""Picture files: finding them in a folder, reading them into plain arrays, and writing masks.

- EXIF orientation is applied, so the picture is upright;
- animations and multi-page files give their first frame;
- 16-bit grey is divided by 257, so that its full range stays visible; if it fills less than half of
  its range, as that of cameras with 12 bits does, it is stretched as ``tiff`` says;
- TIFF with many bands, or with numbers that are no plain colours, is read by ``tiff``;
- HEIC, the photos of phones, is read if pi-heif is installed;
- transparency is laid over white, as in a browser;
- CMYK, 1-bit, palette and YCbCr become RGB; colour profiles are not applied.
"""

import hashlib
import importlib
import io
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError
from PIL.PngImagePlugin import PngInfo

from tagmask.data.tiff import has_bands, read_deep, stretch
from tagmask.errors import ImageError, TagmaskError, first_of
from tagmask.files import is_regular, replacing
from tagmask.labels import UNSURE, Mask, voc_palette
from tagmask.labels import Picture as Picture

# Only formats that Pillow decodes itself: EPS, for example, would start another program on the
# user's file.
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "JPEG2000", "AVIF", "HEIF")
_HEIC = (".heic", ".heif", ".hif")
HEIC_REMEDY = "to read it, install pi-heif: pip install 'tagmask[heic]', or save it as JPEG"
# photos that people have, but that cannot be read here
UNREAD = (".dng", ".cr2", ".cr3", ".nef", ".arw", ".psd", ".svg")
# suffixes of pictures, in small letters
SUFFIXES = frozenset(
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
        *_HEIC,
    )
)


def strip_suffix(path: str) -> str:
    """Return a path without the suffix of a picture; other dots belong to the name."""
    # as os.path.splitext, which takes several times longer for a million paths
    dot = path.rfind(".")
    if dot < 1 or path[dot:].lower() not in SUFFIXES:
        return path
    stem = path[:dot]
    is_named = stem.rpartition("/")[2].strip(".")
    return stem if is_named else path


def walk(root: Path, odd: list[str] | None = None) -> Iterator[str]:
    """Yield the relative paths, with "/", of all files below a folder except hidden ones.

    Args:
        root: the folder; links to folders in it are followed once.
        odd: a list that gets the pipes, sockets, devices and broken links, which are left out.
    """
    seen: set[str] = set()
    waiting = [""]  # no recursion: folders may be nested thousands deep
    while waiting:
        folder = waiting.pop()  # "", or a relative path that ends with "/"
        full_path = os.path.join(root, folder)
        real_path = os.path.realpath(full_path)
        if real_path in seen:
            continue
        seen.add(real_path)
        folders = []
        for entry in _entries(full_path):
            path = folder + entry.name
            if _is(entry.is_dir):
                folders.append(f"{path}/")
            elif _is(entry.is_file):
                yield path
            elif odd is not None:
                odd.append(path)
        waiting += sorted(folders, reverse=True)


def _entries(folder: str) -> list["os.DirEntry[str]"]:
    """Return what a folder holds, hidden entries apart; nothing if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except OSError:
        return []


def _is(test: Callable[[], bool]) -> bool:
    """Return the answer of a test on an entry; False if it cannot be answered."""
    try:
        return test()
    except OSError:  # a link to itself
        return False


def list_files(root: Path, odd: list[str]) -> list[str]:
    """Return what ``walk`` finds in the folder of the images, sorted.

    Args:
        root: the folder.
        odd: a list that gets the pipes, sockets, devices and broken links.

    Raises:
        TagmaskError: if there is no such folder.
    """
    if not root.is_dir():
        raise TagmaskError(f"{root} is not a folder; check the path of the images.")
    return sorted(walk(root, odd))


def lacks_reader(file: str) -> bool:
    """Return True if a photo is in HEIC, and the package that reads it is not installed.

    Args:
        file: its name.
    """
    return file.lower().endswith(_HEIC) and "HEIF" not in _usable(_FORMATS)


def read_image(path: Path, content: bytes | None = None) -> Picture:
    """Read a picture as RGB, shape (H, W, 3), 0 … 255, upright.

    Args:
        path: the file, or what errors call the picture if its content is given.
        content: of the file, if it is not on a disk; a TIFF of many bands must be on one.

    Raises:
        ImageError: if it cannot be read.
    """
    if content is None and has_bands(path):
        return _upright(read_deep(path), path)
    image = _decode(path, _FORMATS, "JPEG or PNG", content)
    # a garbled EXIF block says nothing about the orientation; the pixels are sound
    with suppress(Exception):
        ImageOps.exif_transpose(image, in_place=True)
    try:
        return np.array(_to_rgb(image, path), dtype=np.uint8)  # (H, W, 3)
    except MemoryError:
        raise ImageError(
            f"{path} has {image.width}×{image.height} pixels, too many for the memory; "
            "make it smaller."
        ) from None
    except ImageError:
        raise
    # ValueError for a kind of pixels, others for example for a palette that is missing
    except Exception as error:
        raise ImageError(
            f"{path} has pixels of kind {image.mode} that cannot be converted ({error}); "
            "save it as an 8-bit RGB JPEG or PNG."
        ) from None


def _upright(picture: Picture, path: Path) -> Picture:
    """Turn what another reader than Pillow has read as the head of its file says.

    Args:
        picture: (H, W, 3), as it is stored.
        path: the file; one whose head Pillow cannot read says nothing.
    """
    with suppress(ImageError), opened(path) as head:
        stored = Image.fromarray(picture)
        stored.getexif()[ExifTags.Base.Orientation] = orientation(head)
        return np.array(ImageOps.exif_transpose(stored))
    return picture


@contextmanager
def opened(path: Path) -> Iterator[Image.Image]:
    """Open a picture of which only the head is read; ImageError if that cannot be."""
    try:
        with Image.open(path, formats=_usable(_FORMATS)) as image:
            yield image
    except Exception as error:  # as in _decode
        raise ImageError(f"{path} cannot be read ({error}); copy it again, or remove it.") from None


def is_plain(path: Path) -> bool:
    """Return True if every tool reads the same pixels from a picture as ``read_image`` does.

    That is so for 8-bit colour or grey, upright, without transparency and further frames.
    """
    try:
        with opened(path) as image:
            if has_bands(path):
                return False
            if image.mode not in ("RGB", "L") or getattr(image, "n_frames", 1) > 1:
                return False
            return "transparency" not in image.info and orientation(image) == 1
    except ImageError:
        return False


def is_turned(path: Path) -> bool:
    """Return True if EXIF says that a picture is to be turned or mirrored."""
    try:
        with opened(path) as image:
            return orientation(image) != 1
    except ImageError:
        return False


def is_heic(path: Path) -> bool:
    """Return True if a file is called as a photo in HEIC, which few tools read."""
    return path.suffix.lower() in _HEIC


def orientation(image: Image.Image) -> int:
    """Return how EXIF says a picture is turned, 1 … 8; 1 is upright."""
    # a garbled EXIF block says nothing about the orientation
    with suppress(Exception):
        value = image.getexif().get(ExifTags.Base.Orientation, 1)
        return value if value in range(1, 9) else 1
    return 1


def read_mask(path: Path, num_classes: int, content: bytes | None = None) -> Mask:
    """Read the labels of a palette or greyscale PNG or TIFF, shape (H, W).

    Args:
        path: the file, or what errors call the mask if its content is given.
        num_classes: the largest label that is allowed, besides 255 for ignore.
        content: of the file, if it is not on a disk.

    Raises:
        ImageError: if the file cannot be used.
    """
    image = _decode(path, ("PNG", "TIFF"), "a palette or greyscale PNG", content)
    if image.mode not in ("P", "L", "1", "I", "I;16"):
        raise ImageError(
            f"{path} stores its labels as colours ({image.mode}); save the label numbers "
            "themselves, as a palette or greyscale PNG."
        )
    labels = np.array(image)  # (H, W)
    is_wrong = (labels > num_classes) & (labels != UNSURE)  # (H, W)
    if is_wrong.any():
        wrong = [str(label) for label in np.unique(labels[is_wrong]).tolist()]
        raise ImageError(
            f"{path} holds the labels {first_of(wrong)}; with {num_classes} classes they must "
            f"be 0 to {num_classes}, or {UNSURE} for ignore."
        )
    return labels.astype(np.uint8)


def write_mask(path: Path, mask: Mask, **notes: str) -> None:
    """Write labels as a PNG with the VOC palette and with notes in it.

    Args:
        path: the file; its folder is made if it is missing.
        mask: (H, W) uint8.
        **notes: texts by their keys in the PNG; empty ones are left out.

    Raises:
        ValueError: if ``mask`` is no such array.
    """
    _check_mask(mask)
    texts = PngInfo()
    for key, value in notes.items():
        if value:
            texts.add_text(key, value)
    with replacing(path) as partial:
        palette_image(mask).save(partial, format="PNG", pnginfo=texts)


def write_awaited_mask(path: Path, mask: Mask) -> None:
    """Write labels that a person waits for, so that they are on the disk, name included.

    Only runs of equal labels are looked for, which takes a third of the time.

    Args:
        path: the file; its folder is made if it is missing.
        mask: (H, W) uint8.

    Raises:
        ValueError: if ``mask`` is no such array.
    """
    _check_mask(mask)
    with replacing(path, lasting=True) as partial:
        palette_image(mask).save(partial, format="PNG", compress_type=zlib.Z_RLE)


def _check_mask(mask: Mask) -> None:
    """Refuse what is no mask."""
    if mask.ndim != 2 or mask.dtype != np.uint8 or not mask.size:
        raise ValueError(
            f"a mask is a non-empty uint8 array (H, W), not {mask.dtype} {mask.shape}."
        )


def write_kept_mask(path: Path, mask: Mask) -> None:
    """Write labels that a later start is to find again, with a hash of them in the file.

    Args:
        path: the file; its folder is made if it is missing.
        mask: (H, W) uint8.
    """
    write_mask(path, mask, content=_digest(mask))


def is_whole_mask(path: Path) -> bool:
    """Return True if a file holds the labels that ``write_kept_mask`` gave it.

    A file without a hash is believed if it can be read.
    """
    try:
        labels = read_mask(path, UNSURE)
        with Image.open(path, formats=("PNG",)) as image:
            noted = str(image.info.get("content", ""))
    except (ImageError, OSError, ValueError, SyntaxError):
        return False
    return noted in ("", _digest(labels))


def _digest(mask: Mask) -> str:
    """Return a short hash of labels (H, W)."""
    height, width = mask.shape
    content = f"{height} {width} ".encode() + mask.tobytes()
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def write_png(path: Path, values: Mask | Picture) -> None:
    """Write a grey PNG without a palette, or one in colour.

    Args:
        path: the file; its folder is made if it is missing.
        values: numbers (H, W), or a picture (H, W, 3).
    """
    with replacing(path) as partial:
        Image.fromarray(values).save(partial, format="PNG")


def palette_image(mask: Mask) -> Image.Image:
    """Return a mask, shape (H, W), as a Pillow image with the VOC palette."""
    image = Image.fromarray(mask)  # mode L
    image.putpalette(voc_palette().tobytes())
    return image


def check_same_size(shape: tuple[int, ...], mask: Mask, name: str) -> None:
    """Refuse a mask whose size is not that of its image.

    Args:
        shape: that of the image; it begins with (H, W).
        mask: (H, W).
        name: what an error calls the image.

    Raises:
        ImageError: if the sizes differ.
    """
    height, width = shape[:2]
    mask_height, mask_width = mask.shape[:2]
    if (mask_height, mask_width) != (height, width):
        raise ImageError(
            f'the mask of "{name}" is {mask_width}×{mask_height} pixels but its image is '
            f"{width}×{height}; make the mask again at the size of the upright image."
        )


def _decode(
    path: Path, formats: tuple[str, ...], wanted: str, content: bytes | None = None
) -> Image.Image:
    """Open and decode the first frame; any failure becomes an ImageError.

    Args:
        path: the file.
        formats: those that are allowed, as Pillow calls them.
        wanted: what an error suggests to save instead.
        content: of the file, if it is not on a disk.
    """
    if content is None and os.path.exists(path) and not is_regular(path):
        raise ImageError(
            f"{path} cannot be opened (a folder, pipe or device, no ordinary file); remove it."
        )
    try:
        # not by its path: Pillow would map a TIFF without compression into memory, and garble it
        # if it lies on its side
        with (
            path.open("rb") if content is None else io.BytesIO(content) as source,
            Image.open(source, formats=_usable(formats)) as image,
        ):
            image.load()
            return image
    except FileNotFoundError:
        raise ImageError(
            f"{path} does not exist; check the path or remove it from the list."
        ) from None
    except UnidentifiedImageError:
        if is_heic(path) and "HEIF" not in _usable(formats):
            raise ImageError(f"{path} is a photo in HEIC; {HEIC_REMEDY}.") from None
        is_empty = path.stat().st_size == 0 if content is None else not content
        fault = "is empty" if is_empty else "is not a picture that can be read"
        raise ImageError(f"{path} {fault}; save it as {wanted}, or remove it.") from None
    except (Image.DecompressionBombError, MemoryError):
        limit = 2 * (Image.MAX_IMAGE_PIXELS or 0) // 1_000_000
        raise ImageError(
            f"{path} has too many pixels (the limit is {limit} million); make it smaller."
        ) from None
    # Pillow's decoders raise OSError, SyntaxError, struct.error, … on broken files
    except Exception as error:
        if isinstance(error, OSError) and error.strerror:
            raise ImageError(
                f"{path} cannot be opened ({error.strerror}); check path and permissions."
            ) from None
        raise ImageError(
            f"{path} is damaged ({error}); copy or download it again, or remove it."
        ) from error


@cache
def _usable(formats: tuple[str, ...]) -> tuple[str, ...]:
    """Return the formats that this build of Pillow supports; AVIF and HEIF may be missing."""
    Image.init()
    if "HEIF" in formats:
        with suppress(ImportError):
            heif: Any = importlib.import_module("pi_heif")
            heif.register_heif_opener()
    return tuple(name for name in formats if name in Image.OPEN)


def _to_rgb(image: Image.Image, path: Path) -> Image.Image:
    """Convert a picture of any kind to 8-bit RGB, as the head of this file says."""
    if image.mode in ("I", "I;16", "I;16B", "I;16L", "I;16N"):
        grey = np.array(image).astype(np.int64)  # (H, W)
        low = grey.min()
        high = grey.max()
        if low < 0 or high > 65535:
            raise ImageError(
                f"{path} holds {low} to {high}, more than 16 bits; save it with 8 or 16 bits."
            )
        if 255 < high < 1 << 15:
            stretched = stretch(grey, np.ones(grey.shape, bool))  # (H, W)
            return Image.fromarray(stretched).convert("RGB")
        rounded = (grey + 128) // 257  # 65535 = 255 · 257
        return Image.fromarray(rounded.astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise ImageError(
            f"{path} holds floating-point numbers, whose range is unknown; "
            "save it with 8 or 16 bits."
        )
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        white = Image.new("RGBA", layer.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, layer).convert("RGB")
    return image.convert("RGB")
