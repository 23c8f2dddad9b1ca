"""Contact sheets: rows of captioned pictures in one array, and writing it as PNG."""

import math
from collections.abc import Sequence
from contextlib import suppress
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
# a sheet that is shown as wide as a page of the documentation has captions of this height at least
PAGE = 880
READABLE = 11
MOST_LINES = 2  # of a caption
# fonts of Linux, macOS and Windows with scripts that DejaVu Sans lacks
_OF_SYSTEMS = (
    *(
        "NotoSansCJK-Regular.ttc",
        "NotoSansCJKsc-Regular.otf",
        "wqy-zenhei.ttc",
        "DroidSansFallback.ttf",
    ),
    *("PingFang.ttc", "Hiragino Sans GB.ttc", "AppleSDGothicNeo.ttc", "Arial Unicode.ttf"),
    *("msyh.ttc", "YuGothM.ttc", "malgun.ttf", "Nirmala.ttf", "Nirmala.ttc", "LeelawUI.ttf"),
    *("NotoSans-Regular.ttf", "NotoSansDevanagari-Regular.ttf", "NotoSansThai-Regular.ttf"),
)
_NO_LETTER = "\U0010ffff"  # stands for no letter in any script
WHITE = 255
PAPER = (WHITE, WHITE, WHITE)
INK = (34, 34, 40)


def sheet(rows: Sequence[Sequence[Cell]]) -> Picture:
    """Return rows of (caption, picture) as one white sheet (H, W, 3), captions above pictures.

    Captions can be read on a page 880 pixels wide, however wide the sheet is. One that is too long
    takes two lines, and then ends in "…". All pictures get the height of the tallest, kept within
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
    text_size = _text_size(rows, height)
    strips = []
    for row in rows:
        strips.append(_row(row, height, text_size))
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

    Pillow's own font has ASCII only, so other text gets the DejaVu Sans that comes with matplotlib,
    and scripts that this lacks one of the usual fonts of the system, if it is there.

    Args:
        text: what is to be written.
        size: height of the letters in pixels.
    """
    plain = text.replace("…", "")
    if plain.isascii():
        return ImageFont.load_default(size)
    fonts = _fonts(size)
    for font in fonts:
        if _has_letters(font, plain):
            return font
    return fonts[0]


def can_write(text: str) -> bool:
    """Return True if there is a font with every letter of a text; others would be empty boxes."""
    font = font_for(text, READABLE)
    return text.isascii() or _has_letters(font, text.replace("…", ""))


def text_width(text: str, size: int) -> float:
    """Return the width of a line in pixels.

    Args:
        text: what is to be written.
        size: height of the letters in pixels.
    """
    return font_for(text, size).getlength(text)


@cache
def _fonts(size: int) -> list[Font]:
    """Return fonts beyond ASCII; the first is to be taken if none has all letters."""
    fonts: list[Font] = []
    # find_spec finds matplotlib without importing it
    package = find_spec("matplotlib")
    if package is not None and package.origin is not None:
        file = Path(package.origin).parent / "mpl-data/fonts/ttf/DejaVuSans.ttf"
        if file.is_file():
            # it runs wider than Pillow's
            fonts.append(ImageFont.truetype(str(file), round(0.92 * size)))
    for name in _OF_SYSTEMS:
        # Pillow looks for it where the system keeps its fonts
        with suppress(OSError):
            fonts.append(ImageFont.truetype(name, size))
    return fonts or [ImageFont.load_default(size)]


@cache
def _has_letters(font: Font, text: str) -> bool:
    """Return True if a font has every letter of a text; a missing one is always the same box."""
    box = bytes(font.getmask(_NO_LETTER))
    return all(letter.isspace() or bytes(font.getmask(letter)) != box for letter in text)


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


def _text_size(rows: Sequence[Sequence[Cell]], tall: int) -> int:
    """Return the height of letters that can be read where the sheet is as wide as a page."""
    widest = 0
    for row in rows:
        widest = max(widest, sum(_room(picture, tall) + GAP for _, picture in row))
    on_a_page = math.ceil(READABLE * (widest + 2 * MARGIN) / PAGE)
    return max(READABLE, round(6 + tall / 24), on_a_page)


def _room(picture: Picture, tall: int) -> int:
    """Return the width of a cell; a very narrow picture still gets a readable caption."""
    height, width, _ = picture.shape
    return max(_fit(height, width, tall)[1], tall // 2)


def _row(cells: Sequence[Cell], tall: int, text_size: int) -> Picture:
    """Return captions above pictures, with a gap at the right and below each."""
    captions = []
    for caption, picture in cells:
        captions.append(_wrapped(caption, _room(picture, tall), text_size))
    # pictures of a row begin at the same height
    lines = max(1, *(len(caption) for caption in captions))
    strips = []
    for wrapped, (_, picture) in zip(captions, cells, strict=True):
        room = _room(picture, tall)
        original_height, original_width, _ = picture.shape
        height, width = _fit(original_height, original_width, tall)
        above = (tall - height) // 2
        below = tall - height - above
        framed = _pad(resize(picture, (height, width)), above, below, right=room - width)
        title = _caption(wrapped, lines, room, text_size)
        strips.append(_pad(np.vstack([title, framed]), below=GAP, right=GAP))
    return np.hstack(strips)


def _fit(height: int, width: int, tall: int) -> tuple[int, int]:
    """Return height and width in the same proportions, `tall` high or, if lower, WIDEST as wide."""
    widest = WIDEST * tall
    fitted_width = round(width * tall / height)
    if fitted_width < widest:
        return tall, max(1, fitted_width)
    fitted_height = round(height * widest / width)
    return max(1, fitted_height), max(1, widest)


def _wrapped(text: str, width: int, size: int) -> list[str]:
    """Return the lines of a caption; the last one ends in "…" where there is no more room.

    Args:
        text: what is to be written; where it has a line break, there is one.
        width: pixels of a line.
        size: height of the letters in pixels.
    """
    lines: list[str] = []
    first, _, rest = text.partition("\n")
    if rest:
        return [shorten(first, width, size), shorten(rest, width, size)]
    words = text.split()
    while words and len(lines) < MOST_LINES - 1:
        count = len(words)
        while count > 1 and text_width(" ".join(words[:count]), size) > width:
            count -= 1
        lines.append(shorten(" ".join(words[:count]), width, size))
        words = words[count:]
    if words:
        lines.append(shorten(" ".join(words), width, size))
    return lines


def _caption(lines: Sequence[str], room: int, width: int, size: int) -> Picture:
    """Return lines of text on white, at the bottom of the room for so many lines.

    Args:
        lines: the text.
        room: lines for which there is to be room.
        width: pixels of the strip.
        size: height of the letters in pixels.
    """
    height = round(1.6 * size)
    further = round(1.2 * size)
    strip = Image.new("RGB", (width, height + (room - 1) * further), PAPER)
    pen = ImageDraw.Draw(strip)
    for number, line in enumerate(reversed(lines)):
        middle = (0, strip.height - height / 2 - number * further)
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
