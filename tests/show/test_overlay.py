"""Colours where they belong, by numbers."""

import numpy as np
import numpy.typing as npt
import pytest

from tagmask.errors import TagmaskError
from tagmask.show.overlay import (
    HEAT,
    TEXT,
    add_legend,
    heat_colours,
    heat_overlay,
    label_map,
    legend,
    mask_overlay,
    names_in,
    outline,
    overlay_with_legend,
)


def lightness(colours: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """CIE L* of sRGB colours in 0 … 255."""
    part = colours / 255
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    luminance = linear @ [0.2126, 0.7152, 0.0722]
    return np.where(
        luminance > (6 / 29) ** 3, 116 * np.cbrt(luminance) - 16, luminance * (29 / 3) ** 3
    )


def test_heat_grows_lighter_in_even_steps() -> None:
    np.testing.assert_allclose(np.diff(lightness(HEAT)), (95 - 4) / 8, atol=0.3)
    between = heat_colours(np.linspace(0, 1, 200)[None])[0].astype(np.float64)
    assert np.all(np.diff(lightness(between)) > 0)


def test_heat_colours_at_and_between_the_stops() -> None:
    colours = heat_colours(np.array([[0.0, 1.0, 1 / 16]]))
    assert colours[0].tolist() == [
        [9, 11, 40],
        [251, 244, 162],
        [30, 14, 68],
    ]  # 30.5 rounds to the even 30
    assert np.array_equal(
        heat_colours(np.array([[0, 255]], np.uint8)), heat_colours(np.array([[0.0, 1.0]]))
    )


def test_overlay_of_a_zero_map_is_a_known_blend() -> None:
    image = np.array(
        [[[0, 0, 0], [100, 100, 100], [255, 0, 0], [255, 255, 255]]], np.uint8
    )  # grey 0, 100, 76.2, 255
    result = heat_overlay(image, np.zeros((1, 4)), strength=0.5)
    expected = [[0.5 * grey + 0.5 * c for c in (9, 11, 40)] for grey in (0, 100, 76.245, 255)]
    np.testing.assert_array_equal(result[0], np.rint(expected))


@pytest.mark.parametrize("strength", [0.0, 0.55, 0.9])
def test_overlay_of_a_zero_map_keeps_the_order_of_brightness(strength: float) -> None:
    ramp = np.arange(256, dtype=np.uint8)
    image = np.repeat(ramp[None, :, None], 3, axis=2)
    result = heat_overlay(image, np.zeros((1, 256)), strength).astype(int).sum(axis=2)[0]
    assert np.all(np.diff(result) >= 0)
    assert result[-1] - result[0] == pytest.approx(3 * 255 * (1 - strength), abs=3)


def test_a_hot_pixel_is_hot_where_it_is() -> None:
    image = np.full((3, 5, 3), 90, np.uint8)
    map = np.zeros((3, 5), np.float16)
    map[2, 4] = 1
    result = heat_overlay(image, map, strength=1).astype(int)
    assert result[2, 4].tolist() == [251, 244, 162]
    cold = np.delete(result.reshape(-1, 3), 2 * 5 + 4, axis=0)
    assert (cold == (9, 11, 40)).all()


def test_mask_overlay_leaves_background_blends_classes_and_edges_them() -> None:
    image = np.full((6, 7, 3), 100, np.uint8)
    mask = np.zeros((6, 7), np.uint8)
    mask[1:6, 1:6] = 3  # reaches the lower border
    result = mask_overlay(image, mask, strength=0.5)
    assert (result[mask == 0] == 100).all()
    assert (result[2:6, 2:5] == (114, 114, 50)).all()  # half of 100, half of VOC's (128, 128, 0)
    assert (result[1, 1:6] == 255).all()
    assert (result[1:6, 1] == 255).all()


def test_outline_is_inside_the_class_and_not_at_the_border() -> None:
    mask = np.array([[1, 1, 1, 0, 255, 2], [1, 1, 1, 0, 255, 2]], np.uint8)
    expected = [False, False, True, False, False, True]
    assert outline(mask).tolist() == [expected, expected]
    wide = [False, True, True, False, False, True]
    assert outline(mask, width=2).tolist() == [wide, wide]


def test_unsure_is_hatched_in_greys_and_labels_have_the_colours_of_voc() -> None:
    colours = label_map(np.full((12, 12), 255, np.uint8))
    assert set(np.unique(colours)) == {105, 215}
    assert colours[0, :6, 0].tolist() == [215, 215, 215, 105, 105, 105]
    assert colours[1, :6, 0].tolist() == [
        215,
        215,
        105,
        105,
        105,
        215,
    ]  # the stripes run diagonally
    assert (colours == 105).mean() == 0.5
    assert label_map(np.array([[0, 1, 2, 3]], np.uint8))[0].tolist() == [
        [0] * 3,
        [128, 0, 0],
        [0, 128, 0],
        [128, 128, 0],
    ]


def test_legend_shows_every_colour_and_wraps() -> None:
    names = {1: "cat", 2: "a bird with a long name", 255: "unsure"}
    wide, narrow = legend(names, width=600), legend(names, width=200)
    assert wide.shape == (24 + 8, 600, 3)  # one line of text, half a margin
    assert narrow.shape == (3 * 24 + 8, 200, 3)
    for picture in (wide, narrow):
        for colour in [(128, 0, 0), (0, 128, 0)]:
            assert (picture == colour).all(axis=2).sum() == 12 * 12  # the swatch inside its frame
        assert (picture == (105, 105, 105)).all(axis=2).sum() >= 50


COLOURS = {1: (128, 0, 0), 2: (0, 128, 0), 3: (128, 128, 0)}


def swatches(picture: npt.NDArray[np.uint8], label: int) -> int:
    """How many pixels have exactly the colour of a label."""
    return int((picture == COLOURS[label]).all(axis=2).sum())


@pytest.mark.parametrize(("height", "width"), [(60, 80), (80, 60), (300, 400), (9, 300), (300, 9)])
def test_the_legend_of_a_picture_covers_nothing(height: int, width: int) -> None:
    """The picture is whole in its corner; below it is one swatch of 14 pixels for each label."""
    image = np.full((height, width, 3), 100, np.uint8)
    mask = np.zeros((height, width), np.uint8)
    mask[: height // 2] = 1
    mask[height // 2 :, : width // 2] = 3
    picture = overlay_with_legend(image, mask, ("cat", "dog", "sofa"))
    plain = mask_overlay(image, mask)
    np.testing.assert_array_equal(picture[:height, :width], plain)
    below = picture[height:]
    assert (below[: TEXT // 2] == 255).all()  # the names keep a distance
    assert swatches(below, 1) == swatches(below, 3) == 12 * 12
    assert swatches(below, 2) == 0  # there is no dog
    assert (picture[:height, width:] == 255).all()
    assert picture.shape[1] <= max(width, 280)
    assert len(below) <= 80


def test_the_names_of_a_large_picture_grow_with_it() -> None:
    """On a screen 900 pixels wide, a photo of 24 megapixels still has letters of 14 pixels."""
    names = {1: "cat", 3: "sofa"}
    photo = np.full((4000, 6000, 3), 90, np.uint8)
    below = add_legend(photo, names)[4000:]
    side = round(6000 / 64)
    assert side * 900 / 6000 > 14
    assert swatches(below, 1) == (side - 2) ** 2
    assert below.shape == (side // 2 + round(1.7 * side) + round((side // 2) / 2), 6000, 3)
    # but not beyond the width of a tall one
    tall = add_legend(np.full((6000, 400, 3), 90, np.uint8), names)[6000:]
    assert swatches(tall, 1) == (400 // 8 - 2) ** 2


def test_a_mask_without_classes_has_no_legend() -> None:
    image = np.full((20, 30, 3), 100, np.uint8)
    assert names_in(np.zeros((20, 30), np.uint8), ["cat"]) == {}
    np.testing.assert_array_equal(
        overlay_with_legend(image, np.zeros((20, 30), np.uint8), ["cat"]), image
    )


def test_names_of_labels() -> None:
    mask = np.array([[0, 2, 255], [1, 2, 0]], np.uint8)
    assert names_in(mask, ("cat", "dog")) == {1: "cat", 2: "dog", 255: "unsure"}
    with pytest.raises(TagmaskError, match="has the label 2, but there are 1 classes; give a name"):
        names_in(mask, ("cat",))


def test_a_long_legend_ends_with_how_many_are_left_out() -> None:
    names = {label: f"class {label}" for label in range(1, 41)}
    image = np.zeros((50, 400, 3), np.uint8)
    whole = add_legend(image, dict(list(names.items())[:24]))
    assert len(add_legend(image, names)) == len(whole) + round(1.7 * TEXT)


def test_a_name_that_no_font_has_becomes_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty boxes say less than the number, which the tables have, too."""
    image = np.zeros((50, 400, 3), np.uint8)
    monkeypatch.setattr("tagmask.show.overlay.can_write", lambda name: name != "沙发")
    np.testing.assert_array_equal(
        add_legend(image, {3: "沙发", 1: "cat"}), add_legend(image, {3: "label 3", 1: "cat"})
    )


def test_bad_input_is_refused_with_value_and_remedy() -> None:
    image = np.zeros((4, 6, 3), np.uint8)
    with pytest.raises(
        TagmaskError, match=r"map has shape \(6, 4\) and the image \(4, 6\).*resize the map"
    ):
        heat_overlay(image, np.zeros((6, 4)))
    with pytest.raises(TagmaskError, match=r"runs from 0 to 1.5; scale it to 0 … 1"):
        heat_overlay(image, np.full((4, 6), 1.5) * (np.arange(6) > 2))
    with pytest.raises(TagmaskError, match="runs from nan"):
        heat_overlay(image, np.full((4, 6), np.nan))
    with pytest.raises(TagmaskError, match="dtype int64; give floats"):
        heat_overlay(image, np.zeros((4, 6), np.int64))  # type: ignore[arg-type]
    with pytest.raises(TagmaskError, match="strength is 2; give 0"):
        heat_overlay(image, np.zeros((4, 6)), strength=2)
    with pytest.raises(
        TagmaskError, match=r"shape \(4, 6\) and dtype float64; give uint8 \(H, W, 3\)"
    ):
        heat_overlay(np.zeros((4, 6)), np.zeros((4, 6)))  # type: ignore[arg-type]
    with pytest.raises(TagmaskError, match=r"mask has shape .* dtype int64; give uint8"):
        mask_overlay(image, np.zeros((4, 6), np.int64))
    with pytest.raises(TagmaskError, match="a legend of 0 names, 640 pixels wide cannot be drawn"):
        legend({}, width=640)
    with pytest.raises(
        TagmaskError, match=r"99 pixels wide cannot be drawn; give .* a width of 112 pixels"
    ):
        legend({1: "cat"}, width=99)
