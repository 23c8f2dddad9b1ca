"""Every kind of picture file that people have, and every broken one."""

import inspect
import io
import os
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tagmask.data.images import (
    check_same_size,
    read_image,
    read_mask,
    strip_suffix,
    walk,
    write_mask,
)
from tagmask.errors import ImageError
from tagmask.labels import voc_palette

# Left column red over blue, right column green over white: any turn or flip shows.
CORNERS = np.array([[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [255, 255, 255]]], np.uint8)


def test_rgb_pixels_are_kept(tmp_path: Path) -> None:
    Image.fromarray(CORNERS).save(tmp_path / "a.png")
    image = read_image(tmp_path / "a.png")
    assert image.dtype == np.uint8
    assert np.array_equal(image, CORNERS)
    image[0, 0] = 7  # the array is the caller's own


@pytest.mark.parametrize("suffix", ["png", "tif", "webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_undone(tmp_path: Path, orientation: int, suffix: str) -> None:
    tall = np.repeat(CORNERS, 3, axis=0)  # (6, 2, 3)
    stored = {
        1: tall,
        2: tall[:, ::-1],
        3: tall[::-1, ::-1],
        4: tall[::-1],
        5: tall.transpose(1, 0, 2),
        6: np.rot90(tall, 1),  # to be turned clockwise for viewing
        7: np.rot90(tall, 2).transpose(1, 0, 2),
        8: np.rot90(tall, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"a.{suffix}"
    options: dict[str, Any] = {"lossless": True} if suffix == "webp" else {}
    Image.fromarray(np.ascontiguousarray(stored)).save(path, exif=exif, **options)
    assert np.array_equal(read_image(path), tall)


def test_exif_orientation_of_a_jpeg(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    stored = np.zeros((20, 40, 3), np.uint8)
    stored[:, :20] = 200  # left half; turned clockwise it is the upper half
    Image.fromarray(stored).save(tmp_path / "a.jpg", exif=exif)
    image = read_image(tmp_path / "a.jpg").astype(int)
    assert image.shape == (40, 20, 3)
    assert (abs(image[:16] - 200) < 9).all()
    assert (image[24:] < 9).all()


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_garbled_exif_does_not_matter(tmp_path: Path) -> None:
    Image.fromarray(CORNERS).save(tmp_path / "a.png", exif=b"Exif\0\0II*\0\xff\xff\xff\xff garbage")
    assert np.array_equal(read_image(tmp_path / "a.png"), CORNERS)


def test_orientation_beside_garbled_entries_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (40, 20)).save(tmp_path / "a.png", exif=exif)

    def refuse(*_: object) -> bytes:
        raise struct.error("an entry that cannot be written back")

    monkeypatch.setattr(Image.Exif, "tobytes", refuse)
    assert read_image(tmp_path / "a.png").shape == (40, 20, 3)


def test_cmyk_becomes_rgb(tmp_path: Path) -> None:
    Image.new("CMYK", (16, 16), (0, 255, 255, 0)).save(tmp_path / "a.jpg", quality=100)
    image = read_image(tmp_path / "a.jpg")
    assert image.shape == (16, 16, 3)
    assert np.abs(image.astype(int) - [255, 0, 0]).max() <= 3


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits_are_rescaled_not_clipped(tmp_path: Path, suffix: str) -> None:
    values = np.array([[0, 256, 257, 32768], [40000, 65278, 65534, 65535]], np.uint16)
    Image.fromarray(values).save(tmp_path / f"a.{suffix}")
    image = read_image(tmp_path / f"a.{suffix}")
    assert image.shape == (2, 4, 3)
    assert image[..., 0].tolist() == np.rint(values / 257).astype(int).tolist()
    assert (image == image[..., :1]).all()


def test_sixteen_bit_colour(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(_png(1, 1, 16, 2, struct.pack(">HHH", 65535, 0, 32896)))
    assert read_image(tmp_path / "a.png").tolist() == [[[255, 0, 128]]]


@pytest.mark.parametrize("kind", ["int8", "int32", "float32"])
def test_numbers_that_are_no_colours_need_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Pillow would read a negative number of 8 bits as a bright one."""
    Image.fromarray(np.zeros((2, 2), "uint8" if kind == "int8" else kind)).save(
        tmp_path / "a.tif", tiffinfo={339: 2} if kind == "int8" else {}
    )
    monkeypatch.setitem(sys.modules, "rasterio", None)
    with pytest.raises(ImageError, match=r"no plain colours; .* install rasterio"):
        read_image(tmp_path / "a.tif")


def test_one_bit_and_grey(tmp_path: Path) -> None:
    Image.fromarray(np.array([[True, False]])).save(tmp_path / "one.png")
    assert read_image(tmp_path / "one.png").tolist() == [[[255] * 3, [0] * 3]]
    Image.fromarray(np.array([[3, 200]], np.uint8)).save(tmp_path / "grey.png")
    assert read_image(tmp_path / "grey.png").tolist() == [[[3] * 3, [200] * 3]]


def test_palette(tmp_path: Path) -> None:
    _palette_image().save(tmp_path / "a.png")
    assert read_image(tmp_path / "a.png").tolist() == [[[10, 20, 30], [200, 100, 0]]]


@pytest.mark.parametrize("suffix", ["png", "gif"])
def test_transparent_palette_entries_become_white(tmp_path: Path, suffix: str) -> None:
    _palette_image().save(tmp_path / f"a.{suffix}", transparency=1)
    assert read_image(tmp_path / f"a.{suffix}").tolist() == [[[10, 20, 30], [255, 255, 255]]]


def test_alpha_is_laid_over_white(tmp_path: Path) -> None:
    pixels = np.array([[[100, 0, 0, 255], [100, 0, 0, 0], [100, 0, 0, 51]]], np.uint8)
    Image.fromarray(pixels, "RGBA").save(tmp_path / "rgba.png")
    assert read_image(tmp_path / "rgba.png").tolist() == [[[100, 0, 0], [255] * 3, [224, 204, 204]]]
    Image.fromarray(np.array([[[0, 255], [0, 0]]], np.uint8), "LA").save(tmp_path / "la.png")
    assert read_image(tmp_path / "la.png").tolist() == [[[0] * 3, [255] * 3]]


@pytest.mark.parametrize("suffix", ["gif", "webp", "png", "tif"])
def test_of_an_animation_the_first_frame_is_taken(tmp_path: Path, suffix: str) -> None:
    frames = [
        Image.new("RGB", (4, 3), colour) for colour in ((255, 0, 0), (0, 255, 0), (0, 0, 255))
    ]
    options: dict[str, Any] = {"lossless": True} if suffix == "webp" else {}
    frames[0].save(tmp_path / f"a.{suffix}", save_all=True, append_images=frames[1:], **options)
    with Image.open(tmp_path / f"a.{suffix}") as image:
        assert getattr(image, "n_frames", 1) == 3
    assert (read_image(tmp_path / f"a.{suffix}") == [255, 0, 0]).all()


def _truncated() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)).save(
        buffer, "JPEG"
    )
    return buffer.getvalue()[: len(buffer.getvalue()) // 2]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is empty"),
        (b"hello, this is no picture", "is not a picture that can be read"),
        (_truncated(), "is damaged"),
        (_truncated()[:30], "is damaged|is not a picture"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "is not a picture that can be read"),
    ],
)
def test_broken_files_are_named_with_a_remedy(tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "broken one.jpg"
    path.write_bytes(content)
    with pytest.raises(ImageError, match=text) as caught:
        read_image(path)
    assert str(path) in str(caught.value)
    assert "remove it" in str(caught.value)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"none\.jpg does not exist"):
        read_image(tmp_path / "none.jpg")
    with pytest.raises(ImageError, match="cannot be opened"):
        read_image(tmp_path)


@pytest.mark.skipif(
    os.name != "posix" or os.geteuid() == 0, reason="permissions do not bind this user"
)
def test_forbidden_files(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.fromarray(CORNERS).save(path)
    path.chmod(0)
    with pytest.raises(ImageError, match="Permission denied"):
        read_image(path)


def test_a_decompression_bomb_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(_png(50_000, 50_000, 8, 2, b""))
    with pytest.raises(ImageError, match=r"too many pixels \(the limit is 178 million\)"):
        read_image(tmp_path / "a.png")


def test_palette_is_that_of_voc() -> None:
    colours = voc_palette()
    assert colours.shape == (256, 3)
    expected = {
        0: (0, 0, 0),
        1: (128, 0, 0),
        2: (0, 128, 0),
        3: (128, 128, 0),
        12: (64, 0, 128),
        15: (192, 128, 128),
    }
    expected |= {20: (0, 64, 128), 255: (224, 224, 192)}
    assert {label: tuple(colours[label].tolist()) for label in expected} == expected
    assert len(np.unique(colours, axis=0)) == 256


@given(label=st.integers(0, 255))
def test_palette_follows_the_bit_formula(label: int) -> None:
    red = green = blue = 0
    rest = label
    for shift in range(7, -1, -1):
        red |= (rest & 1) << shift
        green |= (rest >> 1 & 1) << shift
        blue |= (rest >> 2 & 1) << shift
        rest >>= 3
    assert voc_palette()[label].tolist() == [red, green, blue]


@given(data=st.data())
def test_masks_round_trip(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    height, width = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 7))
    labels = data.draw(
        st.lists(
            st.sampled_from([0, 1, 5, 20, 255]), min_size=height * width, max_size=height * width
        )
    )
    mask = np.array(labels, np.uint8).reshape(height, width)
    path = tmp_path_factory.mktemp("mask") / "sub" / "a.png"
    write_mask(path, mask)
    assert np.array_equal(read_mask(path, 20), mask)
    assert [file.name for file in path.parent.iterdir()] == ["a.png"]
    assert np.array_equal(read_image(path), voc_palette()[mask])


@pytest.mark.parametrize(
    "mask", [np.zeros((2, 2)), np.zeros((2, 2, 3), np.uint8), np.zeros((0, 2), np.uint8)]
)
def test_write_mask_refuses_other_arrays(tmp_path: Path, mask: npt.NDArray[np.uint8]) -> None:
    with pytest.raises(ValueError, match="uint8 array"):
        write_mask(tmp_path / "a.png", mask)
    assert not list(tmp_path.iterdir())


def test_greyscale_and_one_bit_masks_keep_their_numbers(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 3, 255]], np.uint8)).save(tmp_path / "grey.png")
    assert read_mask(tmp_path / "grey.png", 3).tolist() == [[0, 3, 255]]
    Image.fromarray(np.array([[0, 3, 255]], np.uint16)).save(tmp_path / "deep.png")
    assert read_mask(tmp_path / "deep.png", 3).tolist() == [[0, 3, 255]]
    Image.fromarray(np.array([[False, True]])).save(tmp_path / "one.png")
    assert read_mask(tmp_path / "one.png", 3).tolist() == [[0, 1]]


def test_masks_of_colours_are_refused(tmp_path: Path) -> None:
    Image.fromarray(CORNERS).save(tmp_path / "a.png")
    with pytest.raises(ImageError, match=r"a\.png stores its labels as colours \(RGB\)"):
        read_mask(tmp_path / "a.png", 3)


def test_labels_outside_the_classes_are_listed(tmp_path: Path) -> None:
    write_mask(tmp_path / "a.png", np.array([[0, 3, 4, 254, 255]], np.uint8))
    with pytest.raises(
        ImageError, match=r"holds the labels 4, 254; with 3 classes they must be 0 to 3, or 255"
    ):
        read_mask(tmp_path / "a.png", 3)
    Image.fromarray(np.array([[300]], np.uint16)).save(tmp_path / "deep.png")
    with pytest.raises(ImageError, match="labels 300"):
        read_mask(tmp_path / "deep.png", 3)


def test_masks_in_a_lossy_format_are_refused(tmp_path: Path) -> None:
    Image.new("L", (8, 8)).save(tmp_path / "a.jpg")
    with pytest.raises(ImageError, match="save it as a palette or greyscale PNG"):
        read_mask(tmp_path / "a.jpg", 3)


def test_sizes_are_compared() -> None:
    image = np.zeros((4, 6, 3), np.uint8)
    check_same_size(image.shape, np.zeros((4, 6), np.uint8), "a")
    with pytest.raises(ImageError, match='"a" is 4×6 pixels but its image is 6×4'):
        check_same_size(image.shape, np.zeros((6, 4), np.uint8), "a")


@pytest.mark.parametrize(
    ("path", "name"),
    [("a/b.JPG", "a/b"), ("img.v2", "img.v2"), ("img.v2.png", "img.v2"), ("x.tar.jpeg", "x.tar")],
)
def test_only_picture_suffixes_are_stripped(path: str, name: str) -> None:
    assert strip_suffix(path) == name


def _palette_image() -> Image.Image:
    image = Image.fromarray(np.array([[0, 1]], np.uint8))
    image.putpalette([10, 20, 30, 200, 100, 0])
    return image


def _png(width: int, height: int, depth: int, colour_type: int, row: bytes) -> bytes:
    """A PNG by hand, of one row, for what Pillow cannot write."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" + row)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.slow
def test_folders_may_be_nested_deeper_than_python_recurses(tmp_path: Path) -> None:
    depth, limit = 300, sys.getrecursionlimit()
    (tmp_path / ("d/" * depth)).mkdir(parents=True)
    (tmp_path / ("d/" * depth) / "x.jpg").touch()
    try:
        sys.setrecursionlimit(len(inspect.stack()) + depth // 2)
        found = list(walk(tmp_path))
    finally:
        sys.setrecursionlimit(limit)
    assert found == ["d/" * depth + "x.jpg"]
