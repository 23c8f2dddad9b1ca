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
from tagmask.labels import Picture as Picture

Cell = tuple[str, Picture]  # caption and picture
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

# pixels between which the height of a picture on a sheet lies
LOWEST = 192
TALLEST = 384
WIDEST = 4  # largest ratio of width to height
MARGIN = 16
GAP = 12
WHITE = 255
PAPER = (WHITE, WHITE, WHITE)
INK = (34, 34, 40)


def sheet(rows: Sequence[Sequence[Cell]]) -> Picture:
    """Return rows of (caption, picture) as one white sheet (H, W, 3), captions above pictures.

    A caption that is too long ends in "…". All pictures get the height of the tallest, kept within
    192 … 384 pixels, in their proportions; one that is more than four times as wide as high gets
    empty space above and below.
    """
    if len(rows) == 0:
        raise TagmaskError(_no_picture("the sheet"))
    for number, row in enumerate(rows, start=1):
        if len(row) == 0:
            raise TagmaskError(_no_picture(f"row {number} of {len(rows)}"))
    tallest = 0
    for caption, picture in chain(*rows):
        check_picture(picture, f'picture "{caption}"')
        tallest = max(tallest, len(picture))
    height = shown_height(tallest)
    strips = []
    for row in rows:
        cells = [_cell(caption, picture, height) for caption, picture in row]
        strips.append(np.hstack(cells))
    width = max(strip.shape[1] for strip in strips)
    padded = [_pad(strip, right=width - strip.shape[1]) for strip in strips]
    inner = np.vstack(padded)
    # the cells end in a gap at the right and below
    rest = MARGIN - GAP
    return _pad(inner, above=MARGIN, below=rest, left=MARGIN, right=rest)


def _no_picture(place: str) -> str:
    return f"{place} has no picture; give every row at least one (caption, picture)."


def in_rows(cells: Sequence[Cell], per_row: int) -> list[Sequence[Cell]]:
    """Divide pictures into the rows of a sheet.

    Args:
        cells: (caption, picture), from left to right and from top to bottom.
        per_row: pictures in a row; the last row may have fewer.
    """
    rows = []
    for start in range(0, len(cells), per_row):
        rows.append(cells[start : start + per_row])
    return rows


def save_picture(path: str | Path, picture: Picture) -> None:
    """Write a picture as PNG; the file appears under its name only when it is complete.

    Args:
        path: the file, ending in .png.
        picture: uint8 (H, W, 3).

    Raises:
        TagmaskError: the name has another suffix, or the picture another form.
    """
    path = Path(path)
    if path.suffix.lower() != ".png":
        raise TagmaskError(f"{path} is written as PNG; give it a name that ends in .png.")
    image = Image.fromarray(check_picture(picture))
    with replacing(path) as partial:
        image.save(partial, format="PNG", optimize=True)


def check_picture(picture: npt.NDArray[Any], name: str = "image") -> Picture:
    """Return the picture itself, if it is uint8 (H, W, 3) and not empty.

    Args:
        picture: the array to check.
        name: what the error message calls it.

    Raises:
        TagmaskError: it is something else.
    """
    array: npt.NDArray[Any] = np.asarray(picture)
    is_rgb = array.ndim == 3 and array.shape[2] == 3
    if not is_rgb or array.size == 0 or array.dtype != np.uint8:
        raise TagmaskError(
            f"the {name} has shape {array.shape} and dtype {array.dtype}; give uint8 (H, W, 3), "
            'no side empty, e.g. np.asarray(Image.open(path).convert("RGB")).'
        )
    return array


def shown_height(height: int) -> int:
    """Return the height at which a picture of `height` is shown.

    Small pictures are shown at a whole multiple, large ones reduced.
    """
    multiple = max(1, -(-LOWEST // height))
    return min(height * multiple, TALLEST)


def shown_size(height: int, width: int) -> tuple[int, int]:
    """Return the size at which a picture is shown.

    Thin lines drawn at this size are not resampled by `sheet`.

    Args:
        height: pixels of the picture.
        width: pixels of the picture.

    Returns:
        Height and width in pixels.
    """
    return _fit(height, width, shown_height(height))


def resize(picture: Picture, size: tuple[int, int]) -> Picture:
    """Return the picture at another size, smooth when enlarged, averaged when reduced.

    Args:
        picture: uint8 (H, W, 3).
        size: (height, width) of the result.
    """
    if picture.shape[:2] == size:
        return picture
    height, width = size
    resized = Image.fromarray(picture).resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(resized)


def font_for(text: str, size: int) -> Font:
    """Return a font that can write a text.

    Pillow's own font has ASCII only, so other text gets the DejaVu Sans that comes with matplotlib.

    Args:
        text: what is to be written.
        size: height of the letters in pixels.
    """
    is_ascii = text.replace("…", "").isascii()
    return _font(is_ascii, size)


@cache
def _font(is_ascii: bool, size: int) -> Font:
    # find_spec finds matplotlib without importing it
    package = None if is_ascii else find_spec("matplotlib")
    if package is not None and package.origin is not None:
        file = Path(package.origin).parent / "mpl-data/fonts/ttf/DejaVuSans.ttf"
        if file.is_file():
            # it runs wider than Pillow's
            return ImageFont.truetype(str(file), round(0.92 * size))
    return ImageFont.load_default(size)


def shorten(text: str, width: float, size: int) -> str:
    """Return as much of a text's beginning as fits on one line, and "…" if that is not all.

    Args:
        text: what is to be written; white space becomes single spaces.
        width: pixels of the line.
        size: height of the letters in pixels.

    Returns:
        The line; empty if not even "…" fits.
    """
    line = " ".join(text.split())
    font = font_for(line, size)
    if font.getlength(line) <= width:
        return line
    longest = ""
    for end in range(min(len(line), 400)):
        shortened = line[:end].rstrip() + "…"
        if font.getlength(shortened) <= width:
            longest = shortened
    return longest


def _cell(caption: str, picture: Picture, tall: int) -> Picture:
    """Return a caption above a picture, with a gap at the right and below."""
    original_height, original_width, _ = picture.shape
    height, width = _fit(original_height, original_width, tall)
    fitted = resize(picture, (height, width))
    above = (tall - height) // 2
    below = tall - height - above
    # a very narrow picture still gets a readable caption
    room = max(width, tall // 2)
    text_size = max(11, round(6 + tall / 24))
    strip = _caption(caption, room, text_size)
    framed = _pad(fitted, above, below, right=room - width)
    return _pad(np.vstack([strip, framed]), below=GAP, right=GAP)


def _fit(height: int, width: int, tall: int) -> tuple[int, int]:
    """Return height and width in the same proportions, `tall` high or, if lower, WIDEST as wide."""
    widest = WIDEST * tall
    fitted_width = round(width * tall / height)
    if fitted_width < widest:
        return tall, max(1, fitted_width)
    fitted_height = round(height * widest / width)
    return max(1, fitted_height), max(1, widest)


def _caption(text: str, width: int, size: int) -> Picture:
    """Return a line of text on white, (1.6 size, width, 3)."""
    strip = Image.new("RGB", (width, round(1.6 * size)), PAPER)
    line = shorten(text, width, size)
    pen = ImageDraw.Draw(strip)
    middle = (0, strip.height / 2)
    pen.text(middle, line, fill=INK, font=font_for(line, size), anchor="lm")
    return np.asarray(strip)


def _pad(
    picture: Picture,
    above: int = 0,
    below: int = 0,
    left: int = 0,
    right: int = 0,
) -> Picture:
    """Add white pixels around a picture."""
    return np.pad(picture, ((above, below), (left, right), (0, 0)), constant_values=WHITE)
