"""Contact sheets: rows of captioned pictures in one array, and writing it as PNG."""

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from tagmask.errors import TagmaskError
from tagmask.files import replacing

Picture = npt.NDArray[np.uint8]  # (H, W, 3)
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

LOWEST, TALLEST = 192, 384  # pixels between which the height of a picture on a sheet lies
WIDEST = 4  # largest ratio of width to height
MARGIN = 16
GAP = 12
WHITE, INK = 255, (34, 34, 40)


def sheet(rows: Sequence[Sequence[tuple[str, Picture]]]) -> Picture:
    """Rows of (caption, picture) as one white sheet (H, W, 3), each caption above its picture; a long one ends in "…".

    All pictures get the height of the tallest, kept within 192 … 384 pixels, in their proportions; one that is more
    than four times as wide as high gets empty space above and below.
    """
    empty = [index + 1 for index, row in enumerate(rows) if len(row) == 0]
    if len(rows) == 0 or empty:
        what = f"row {empty[0]} of {len(rows)}" if empty else "the sheet"
        raise TagmaskError(
            f"{what} has no picture; give every row at least one (caption, picture)."
        )
    for caption, picture in chain(*rows):
        check_picture(picture, f'picture "{caption}"')
    tall = shown_height(max(len(picture) for _, picture in chain(*rows)))
    strips = [
        np.hstack([_cell(caption, picture, tall) for caption, picture in row]) for row in rows
    ]
    width = max(strip.shape[1] for strip in strips)
    inner = np.vstack([_padded(strip, right=width - strip.shape[1]) for strip in strips])
    return _padded(inner, MARGIN, MARGIN - GAP, MARGIN, MARGIN - GAP)


def save_picture(path: str | Path, picture: Picture) -> None:
    """Write a picture (H, W, 3) as PNG; the file appears under its name only when it is complete."""
    path = Path(path)
    if path.suffix.lower() != ".png":
        raise TagmaskError(f"{path} is written as PNG; give it a name that ends in .png.")
    image = Image.fromarray(check_picture(picture))
    with replacing(path) as partial:
        image.save(partial, format="PNG", optimize=True)


def check_picture(picture: npt.NDArray[Any], name: str = "image") -> Picture:
    """The picture itself, if it is uint8 (H, W, 3) and not empty."""
    array: npt.NDArray[Any] = np.asarray(picture)
    if array.ndim != 3 or array.shape[2] != 3 or array.size == 0 or array.dtype != np.uint8:
        raise TagmaskError(
            f"the {name} has shape {array.shape} and dtype {array.dtype}; give uint8 (H, W, 3), no side empty, "
            'e.g. np.asarray(Image.open(path).convert("RGB")).'
        )
    return array


def shown_height(height: int) -> int:
    """The height at which a picture of `height` is shown: whole multiples of small ones, large ones reduced."""
    return min(height * max(1, -(-LOWEST // height)), TALLEST)


def shown_size(height: int, width: int) -> tuple[int, int]:
    """(height, width) at which a picture is shown: thin lines drawn at this size are not resampled by `sheet`."""
    return _fitted(height, width, shown_height(height))


def resize(picture: Picture, size: tuple[int, int]) -> Picture:
    """The picture at `size` = (height, width), smooth when enlarged, averaged when reduced."""
    if picture.shape[:2] == size:
        return picture
    return np.asarray(Image.fromarray(picture).resize(size[::-1], Image.Resampling.BICUBIC))


def font_for(text: str, size: int) -> Font:
    """Pillow's own font; it has ASCII only, so for other text the DejaVu Sans that comes with matplotlib."""
    return _font(text.replace("…", "").isascii(), size)


@cache
def _font(ascii_only: bool, size: int) -> Font:
    package = None if ascii_only else find_spec("matplotlib")  # finds it without importing it
    if package is not None and package.origin is not None:
        file = Path(package.origin).parent / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"
        if file.is_file():
            return ImageFont.truetype(str(file), round(0.92 * size))  # it runs wider than Pillow's
    return ImageFont.load_default(size)


def shorten(text: str, width: float, size: int) -> str:
    """The text on one line; if wider than `width` pixels, as much of its beginning as fits, and "…"."""
    line = " ".join(text.split())
    font = font_for(line, size)
    if font.getlength(line) <= width:
        return line
    fits = [
        end
        for end in range(min(len(line), 400))
        if font.getlength(line[:end].rstrip() + "…") <= width
    ]
    return line[: fits[-1]].rstrip() + "…" if fits else ""


def _cell(caption: str, picture: Picture, tall: int) -> Picture:
    """A caption above a picture, with a gap at the right and below."""
    fitted = resize(picture, _fitted(picture.shape[0], picture.shape[1], tall))
    height, width, _ = fitted.shape
    above = (tall - height) // 2
    room = max(width, tall // 2)  # a very narrow picture still gets a readable caption
    text_size = max(11, round(6 + tall / 24))
    whole = [
        _caption(caption, room, text_size),
        _padded(fitted, above, tall - height - above, right=room - width),
    ]
    return _padded(np.vstack(whole), below=GAP, right=GAP)


def _fitted(height: int, width: int, tall: int) -> tuple[int, int]:
    """(height, width) in the same proportions, `tall` high or, if lower, WIDEST · tall wide."""
    wide = min(round(width * tall / height), WIDEST * tall)
    return (tall if wide < WIDEST * tall else max(1, round(height * wide / width))), max(1, wide)


def _caption(text: str, width: int, size: int) -> Picture:
    """A line of text on white, (1.6 size, width, 3)."""
    strip = Image.new("RGB", (width, round(1.6 * size)), (WHITE, WHITE, WHITE))
    line = shorten(text, width, size)
    ImageDraw.Draw(strip).text(
        (0, strip.height / 2), line, fill=INK, font=font_for(line, size), anchor="lm"
    )
    return np.asarray(strip)


def _padded(
    picture: Picture, above: int = 0, below: int = 0, left: int = 0, right: int = 0
) -> Picture:
    return np.pad(picture, ((above, below), (left, right), (0, 0)), constant_values=WHITE)
