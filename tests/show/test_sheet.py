"""Pictures stay whole on a sheet, and files appear when complete."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from tagmask.errors import TagmaskError
from tagmask.show.sheet import (
    GAP,
    MARGIN,
    Picture,
    can_write,
    font_for,
    resize,
    save_picture,
    sheet,
    shorten,
    shown_size,
)


def plain(height: int, width: int, colour: tuple[int, int, int]) -> Picture:
    return np.full((height, width, 3), colour, np.uint8)


def box(picture: Picture, colour: tuple[int, int, int]) -> tuple[int, int, int, int]:
    """(top, left, height, width) of the pixels of a colour, which must fill their box."""
    y, x = np.nonzero((picture == colour).all(axis=2))
    height, width = int(np.ptp(y)) + 1, int(np.ptp(x)) + 1
    assert len(y) == height * width
    return int(y.min()), int(x.min()), height, width


RED, GREEN, BLUE = (200, 0, 0), (0, 200, 0), (0, 0, 200)


def test_pictures_get_one_height_and_keep_their_proportions() -> None:
    rows = [
        [("a", plain(96, 64, RED)), ("b", plain(48, 96, GREEN))],
        [("c", plain(192, 192, BLUE))],
    ]
    result = sheet(rows)
    top, left, height, width = box(result, RED)
    assert (left, height, width) == (MARGIN, 192, 128)
    assert box(result, GREEN) == (top, MARGIN + 128 + GAP, 192, 384)
    below = box(result, BLUE)
    assert below[1:] == (MARGIN, 192, 192)
    assert below[0] > top + 192
    assert result.shape[1] == MARGIN + 128 + GAP + 384 + MARGIN
    assert (result[-MARGIN:] == 255).all()


@pytest.mark.parametrize(
    ("height", "shown"), [(96, 192), (67, 201), (192, 192), (300, 300), (384, 384), (1000, 384)]
)
def test_small_pictures_are_enlarged_by_whole_numbers_and_large_ones_reduced(
    height: int, shown: int
) -> None:
    assert shown_size(height, height) == (shown, shown)
    assert box(sheet([[("", plain(height, height, RED))]]), RED)[2:] == (shown, shown)


def test_extreme_proportions_stay_readable() -> None:
    assert box(sheet([[("panorama", plain(100, 2000, RED))]]), RED)[2:] == (40, 800)
    assert shown_size(100, 2000) == (40, 800)
    result = sheet([[("a column", plain(1000, 10, GREEN)), ("b", plain(100, 100, BLUE))]])
    assert box(result, GREEN)[2:] == (384, 4)
    assert box(result, BLUE)[1] == MARGIN + 384 // 2 + GAP  # the caption keeps half a height


def test_a_picture_at_its_shown_size_is_not_resampled() -> None:
    noise = np.random.default_rng(0).integers(0, 255, (200, 150, 3), dtype=np.uint8)
    result = sheet([[("noise", noise)]])
    top = result.shape[0] - MARGIN - 200
    np.testing.assert_array_equal(result[top : top + 200, MARGIN : MARGIN + 150], noise)


def test_captions_are_drawn_above_their_pictures() -> None:
    picture = plain(96, 96, (255, 255, 255))
    empty, named = sheet([[("", picture)]]), sheet([[("dog", picture)]])
    assert empty.min() == 255
    y, x = np.nonzero(named.min(axis=2) < 128)
    assert y.max() < named.shape[0] - MARGIN - 192
    assert MARGIN <= x.min() <= MARGIN + 3


def test_long_captions_are_shortened_to_the_picture() -> None:
    text = "a very long name of a class that nobody can read at this size"
    short = shorten(text, 120, 14)
    assert short.endswith("…")
    assert text.startswith(short[:-1])
    length = font_for(short, 14).getlength
    assert length(short) <= 120 < length(text[: len(short) + 1] + "…")
    assert shorten("dog", 120, 14) == "dog"
    assert shorten("two\n lines", 120, 14) == "two lines"
    assert shorten("dog", 2, 14) == ""
    result = sheet([[(text, plain(96, 96, RED)), ("", plain(96, 96, GREEN))]])
    assert (result[:, MARGIN + 192 : MARGIN + 192 + GAP] == 255).all()


def test_letters_beyond_ascii_are_not_boxes() -> None:
    def drawn(text: str) -> bytes:
        return bytes(font_for(text, 20).getmask(text))

    assert (
        len({drawn(letter) for letter in "äéñčжλ"}) == 6
    )  # a missing letter is the same box each time


def test_a_font_without_a_letter_is_noticed() -> None:
    assert can_write("dog")
    assert can_write("Schäferhund, человек …")
    assert not can_write("dog \U0010fffe")  # stands for nothing in any script


def letters(picture: Picture) -> int:
    """Height of the writing in the first column of captions, in pixels."""
    return int(np.ptp(dark_rows(picture))) + 1


def dark_rows(picture: Picture) -> npt.NDArray[np.intp]:
    """The rows of a picture with writing."""
    darkest = picture.max(axis=2).min(axis=1)
    return np.flatnonzero(darkest < 128)


@pytest.mark.parametrize("columns", [1, 4, 12])
def test_captions_can_be_read_on_a_page(columns: int) -> None:
    """Shown 880 pixels wide, a capital letter (0.7 of the text) is still 7 pixels high."""
    white = plain(384, 384, (255, 255, 255))
    picture = sheet([[("H", white)] * columns])
    scale = min(1, 880 / picture.shape[1])
    assert letters(picture) * scale >= 7
    assert picture.shape[1] == 2 * MARGIN + columns * 384 + (columns - 1) * GAP


def test_a_caption_takes_two_lines_before_it_is_shortened() -> None:
    white = plain(192, 192, (255, 255, 255))
    one = sheet([[("H", white)]])
    two = sheet([[("Highest mountain of the whole of Europe", white), ("H", white)]])
    more = sheet([[("Highest mountain of the whole of Europe " * 3, white), ("H", white)]])
    further = round(1.2 * 14)
    assert two.shape[0] == more.shape[0] == one.shape[0] + further
    assert letters(two[:, : MARGIN + 192]) == pytest.approx(letters(one) + further, abs=4)
    broken = sheet([[("H\nH", white), ("H", white)]])
    assert broken.shape == two.shape
    assert letters(broken[:, : MARGIN + 192]) == letters(one) + further
    # a short caption stands just above its picture
    right = two[:, MARGIN + 192 + GAP :]
    assert letters(right) == letters(one)
    bottoms = [int(dark_rows(part)[-1]) for part in (right, one)]
    assert bottoms[0] == bottoms[1] + further


def test_enlarging_does_not_shift() -> None:
    picture = plain(4, 6, (0, 0, 0))
    picture[1, 4] = 255
    large = resize(picture, (40, 60))[..., 0].astype(float)
    y, x = np.indices(large.shape)
    assert (large * y).sum() / large.sum() == pytest.approx(
        14.5, abs=0.3
    )  # the middle of rows 10 … 19
    assert (large * x).sum() / large.sum() == pytest.approx(44.5, abs=0.3)


def test_a_saved_picture_reads_back_the_same(tmp_path: Path) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    file = tmp_path / "new" / "picture.png"
    save_picture(file, picture)
    np.testing.assert_array_equal(np.asarray(Image.open(file)), picture)
    assert [entry.name for entry in file.parent.iterdir()] == ["picture.png"]


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "picture.png"
    save_picture(file, plain(2, 2, RED))
    before = file.read_bytes()

    def fails(self: Image.Image, target: Path, **options: object) -> None:
        Path(target).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(Image.Image, "save", fails)
    with pytest.raises(OSError, match="disk full"):
        save_picture(file, plain(3, 3, BLUE))
    assert file.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["picture.png"]


def test_bad_input_is_refused_with_value_and_remedy(tmp_path: Path) -> None:
    good = plain(4, 4, RED)
    with pytest.raises(TagmaskError, match="the sheet has no picture; give every row at least one"):
        sheet([])
    with pytest.raises(TagmaskError, match="row 2 of 3 has no picture"):
        sheet([[("a", good)], [], [("b", good)]])
    with pytest.raises(
        TagmaskError,
        match=r'picture "b" has shape \(4, 4\) and dtype uint8; give uint8 \(H, W, 3\)',
    ):
        sheet([[("a", good), ("b", good[..., 0])]])
    with pytest.raises(
        TagmaskError, match=r"picture\.jpg is written as PNG; give it a name that ends in \.png"
    ):
        save_picture(tmp_path / "picture.jpg", good)
    with pytest.raises(TagmaskError, match="dtype float64"):
        save_picture(tmp_path / "picture.png", good / 255)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
