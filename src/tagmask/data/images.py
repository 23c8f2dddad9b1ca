"""Pictures and masks: from any common file to plain arrays, and back.

What a picture file may hold, and what becomes of it:

- orientation by EXIF is applied, so that the picture is upright;
- of animations and multi-page files the first frame is taken;
- 16-bit grey is divided by 257, so that the full range stays visible;
- transparency is laid over white, as a browser shows it;
- CMYK, 1-bit, palette and YCbCr become RGB; colour profiles are not applied.
"""

from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from tagmask.data.palette import voc_palette
from tagmask.errors import ImageError
from tagmask.files import replacing

IGNORE = 255
# Only formats that Pillow decodes itself: EPS, for one, would start another program on the user's file.
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "JPEG2000", "AVIF")
_ORIENTATION = 0x0112  # EXIF tag
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def read_image(path: Path) -> npt.NDArray[np.uint8]:
    """The picture as RGB, shape (H, W, 3), 0 … 255, upright."""
    image = _decode(path, _FORMATS, "JPEG or PNG")
    turn = _UPRIGHT.get(_orientation(image))
    if turn is not None:
        image = image.transpose(turn)
    try:
        return np.array(_to_rgb(image, path), dtype=np.uint8)  # (H, W, 3)
    except ValueError:
        raise ImageError(f"{path} has pixels of kind {image.mode}; save it as an 8-bit RGB JPEG or PNG.") from None


def read_mask(path: Path, num_classes: int) -> npt.NDArray[np.uint8]:
    """The labels of a palette or greyscale PNG, shape (H, W): 0 … num_classes, and 255 for ignore."""
    image = _decode(path, ("PNG",), "a palette or greyscale PNG")
    if image.mode not in ("P", "L", "1", "I", "I;16"):
        raise ImageError(
            f"{path} codes its labels as colours ({image.mode}); save the label numbers themselves, "
            "as a palette or greyscale PNG."
        )
    labels = np.array(image)  # (H, W)
    wrong = np.unique(labels[(labels > num_classes) & (labels != IGNORE)]).tolist()
    if wrong:
        shown = ", ".join(str(value) for value in wrong[:5]) + (", …" if len(wrong) > 5 else "")
        raise ImageError(
            f"{path} holds the labels {shown}; with {num_classes} classes they must be 0 to {num_classes}, "
            f"or {IGNORE} for ignore."
        )
    return labels.astype(np.uint8)


def write_mask(path: Path, mask: npt.NDArray[np.uint8]) -> None:
    """Write labels, shape (H, W), as a PNG with the VOC palette."""
    if mask.ndim != 2 or mask.dtype != np.uint8 or not mask.size:
        raise ValueError(f"a mask is a non-empty uint8 array (H, W), not {mask.dtype} {mask.shape}.")
    image = Image.fromarray(mask)  # mode L
    image.putpalette(voc_palette().tobytes())
    with replacing(path) as partial:
        image.save(partial, format="PNG")


def check_same_size(image: npt.NDArray[np.uint8], mask: npt.NDArray[np.uint8], name: str) -> None:
    """Refuse a mask, shape (H, W), whose size is not that of its image, shape (H, W, 3)."""
    if image.shape[:2] != mask.shape[:2]:
        (height, width), (mask_height, mask_width) = image.shape[:2], mask.shape[:2]
        raise ImageError(
            f'the mask of "{name}" is {mask_width}×{mask_height} pixels but its image is {width}×{height}; '
            "make the mask anew at the size of the (upright) image."
        )


def _decode(path: Path, formats: tuple[str, ...], wanted: str) -> Image.Image:
    """Open and decode the first frame; whatever goes wrong becomes one sentence."""
    try:
        with Image.open(path, formats=_usable(formats)) as image:
            image.load()
            return image
    except FileNotFoundError:
        raise ImageError(f"{path} does not exist; check the path or take it off the list.") from None
    except UnidentifiedImageError:
        fault = "is empty" if path.stat().st_size == 0 else "is not a picture that can be read"
        raise ImageError(f"{path} {fault}; save it as {wanted}, or remove it.") from None
    except (Image.DecompressionBombError, MemoryError):
        limit = 2 * (Image.MAX_IMAGE_PIXELS or 0) // 1_000_000
        raise ImageError(f"{path} has too many pixels (the limit is {limit} million); make it smaller.") from None
    except Exception as error:  # Pillow's decoders raise OSError, SyntaxError, struct.error, … on broken files
        if isinstance(error, OSError) and error.strerror:
            raise ImageError(f"{path} cannot be opened ({error.strerror}); check path and permissions.") from None
        raise ImageError(f"{path} is damaged ({error}); copy or download it again, or remove it.") from error


@cache
def _usable(formats: tuple[str, ...]) -> tuple[str, ...]:
    """Those formats that this build of Pillow knows; AVIF may be absent."""
    Image.init()
    return tuple(name for name in formats if name in Image.OPEN)


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # a garbled EXIF block says nothing about the orientation; the pixels are sound
        return 1


def _to_rgb(image: Image.Image, path: Path) -> Image.Image:
    if image.mode in ("I", "I;16", "I;16B", "I;16L", "I;16N"):
        return _sixteen_bit(image, path)
    if image.mode == "F":
        raise ImageError(f"{path} holds floating-point numbers, whose range is unknown; save it with 8 or 16 bits.")
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        white = Image.new("RGBA", layer.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, layer).convert("RGB")
    return image.convert("RGB")


def _sixteen_bit(image: Image.Image, path: Path) -> Image.Image:
    grey = np.array(image).astype(np.int64)  # (H, W)
    if grey.min() < 0 or grey.max() > 65535:
        raise ImageError(f"{path} holds {grey.min()} to {grey.max()}, more than 16 bits; save it with 8 or 16 bits.")
    return Image.fromarray(((grey + 128) // 257).astype(np.uint8)).convert("RGB")  # 65535 = 255 · 257
