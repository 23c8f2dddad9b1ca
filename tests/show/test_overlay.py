"""Colours where they belong, by numbers."""

import numpy as np
import numpy.typing as npt
import pytest

from tagmask.errors import TagmaskError
from tagmask.show.overlay import (
    HEAT,
    heat_colours,
    heat_overlay,
    label_map,
    legend,
    mask_overlay,
    outline,
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
