"""TIFF files that hold more than a picture: many bands, 16 bits and more, floating point, places.

They are read by rasterio (GDAL), an extra. Three bands are shown: those that the file itself calls
red, green and blue, else the first three, else the first as grey. All of them are stretched alike,
so that colours stay: the 2nd percentile of a photo's values becomes 0, the 98th 255. Values that
the file marks as missing are left out of this and black.
"""

import importlib
import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from tagmask.errors import ImageError
from tagmask.files import is_regular

LOW, HIGH = 2, 98  # percentiles
TIFF = (".tif", ".tiff")
_PLAIN = ("LA", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB")  # Pillow's colours
_BITS = 258  # TIFF's entry of the bits of each band
_BANDS = 277
_SAMPLE = 339  # and of the numbers in it
_UNSIGNED, _UNDEFINED = 1, 4
# Pillow would print that it cannot decode a file of many bands, which nobody asks of it
logging.getLogger("PIL").addHandler(logging.NullHandler())
# of an ordinary and of a large file, in either order of bytes
_HEADS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def is_deep(path: Path) -> bool:
    """Return True if a file is a TIFF of more than 8 bits, or of bands that are no plain colours.

    Args:
        path: a file; only its head is read.
    """
    return _kind(path) in ("grey", "bands")


def has_bands(path: Path) -> bool:
    """Return True if a file is a TIFF that only rasterio can read as it should be.

    Args:
        path: a file; only its head is read.
    """
    return _kind(path) == "bands"


def _kind(path: Path) -> str:
    """Return what a file is: "plain", "grey" of 9 to 16 bits, or else "bands" for rasterio."""
    if path.suffix.lower() not in TIFF or not is_regular(path):
        return "plain"
    try:
        with Image.open(path, formats=("TIFF",)) as image:
            tags = image.tag_v2  # type: ignore[attr-defined]
            bits = max(tags.get(_BITS, (1,)))
            bands = tags.get(_BANDS, 1)
            if bands == 1:
                is_unsigned = max(tags.get(_SAMPLE, (1,))) in (_UNSIGNED, _UNDEFINED)
                if bits > 16 or not is_unsigned:
                    return "bands"
                return "grey" if bits > 8 else "plain"
            return "bands" if bits > 8 or bands > 4 or image.mode not in _PLAIN else "plain"
    except UnidentifiedImageError:
        with path.open("rb") as file:
            return "bands" if file.read(4) in _HEADS else "plain"
    except Exception:  # a damaged file; whoever reads it says what is wrong
        return "plain"


def stretch(values: npt.NDArray[Any], valid: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    """Return numbers as 0 … 255, from their 2nd to their 98th percentile.

    Args:
        values: numbers of any shape and type.
        valid: of the same shape; False for values that are missing, which become 0.
    """
    usable = valid & np.isfinite(values)
    if not usable.any():
        return np.zeros(values.shape, np.uint8)
    known = values[usable].astype(np.float64)
    low, high = np.percentile(known, (LOW, HIGH))
    if high <= low:  # nearly all values are the same
        low = float(values[usable].min())
        high = float(values[usable].max())
    width = high - low or 1.0
    known = np.where(usable, values, low).astype(np.float64)
    shown = np.clip((known - low) / width, 0, 1)
    return np.where(usable, np.rint(255 * shown), 0).astype(np.uint8)


def read_deep(path: Path) -> npt.NDArray[np.uint8]:
    """Read a TIFF as RGB, shape (H, W, 3), 0 … 255.

    Raises:
        ImageError: if rasterio is missing or cannot read the file, or it is too large.
    """
    rasterio = package(path)
    limit = 2 * (Image.MAX_IMAGE_PIXELS or 1 << 28)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a photo has no place
            with rasterio.open(path, driver="GTiff") as file:
                if file.width * file.height > limit:
                    raise ImageError(
                        f"{path} has {file.width}×{file.height} pixels, more than "
                        f"{limit // 1_000_000} million; cut it into tiles."
                    )
                bands = chosen_bands(file)
                values = file.read(bands)  # (b, H, W)
                valid = file.read_masks(bands) > 0  # (b, H, W)
    except rasterio.errors.RasterioError as error:
        raise ImageError(
            f"{path} is damaged or of a kind that cannot be read ({error}); save it again."
        ) from None
    except MemoryError:
        raise ImageError(f"{path} is too large for the memory; cut it into tiles.") from None
    if values.dtype.kind not in "iuf":
        raise ImageError(f"{path} holds {values.dtype} numbers; save it with ordinary ones.")
    shown = np.moveaxis(stretch(values, valid), 0, -1)  # (H, W, b)
    return np.ascontiguousarray(np.broadcast_to(shown, (*shown.shape[:2], 3)))


def chosen_bands(file: Any) -> list[int]:
    """Return the numbers of the bands that are shown, counted from 1: three, or one for grey.

    Args:
        file: an open data set of rasterio.
    """
    names = [band.name for band in file.colorinterp]
    if {"red", "green", "blue"} <= set(names):
        return [names.index(colour) + 1 for colour in ("red", "green", "blue")]
    return [1, 2, 3] if file.count >= 3 else [1]


def package(path: Path) -> Any:
    """Return the package rasterio; ImageError, which names the file, if it is not installed."""
    try:
        module = importlib.import_module("rasterio")
        importlib.import_module("rasterio.errors")
    except ImportError:
        raise ImageError(
            f"{path} has several bands, or numbers that are no plain colours; to read it, "
            "install rasterio: "
            "pip install 'tagmask[geo]', or save it as an 8-bit RGB file."
        ) from None
    return module
