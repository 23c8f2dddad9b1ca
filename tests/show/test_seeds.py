"""The seed sheet shows each map, and the labels that scoring would give."""

import numpy as np
import pytest

from tagmask.errors import TagmaskError
from tagmask.labels import voc_palette
from tagmask.scoring.sweep import top_bins
from tagmask.show.overlay import heat_overlay
from tagmask.show.seeds import label_at, resize_map, seed_sheet, shown_heat, shown_mask
from tagmask.show.sheet import GAP, MARGIN, Picture

SIZE = (200, 150)  # shown as it is: cells can be cut out and compared


def picture() -> Picture:
    return np.random.default_rng(0).integers(0, 256, (*SIZE, 3), dtype=np.uint8)


def cells(result: Picture, rows: int, columns: int, below: int = 0) -> list[list[Picture]]:
    """The cells of a sheet whose pictures all have SIZE, and `below` pixels of legend under them."""
    line = (result.shape[0] - below - 2 * MARGIN + GAP) // rows  # caption, picture and gap
    tops = [MARGIN + row * line + line - GAP - SIZE[0] for row in range(rows)]
    lefts = [MARGIN + column * (SIZE[1] + GAP) for column in range(columns)]
    return [[result[top : top + SIZE[0], left : left + SIZE[1]] for left in lefts] for top in tops]


def test_every_map_stands_in_its_cell() -> None:
    image, maps = picture(), np.random.default_rng(1).random((4, *SIZE)).astype(np.float32)
    plain, refined = maps[:2], maps[2:]
    result = seed_sheet(image, ["dog", "sofa"], plain, refined)
    (first, *upper), (blank, *lower) = cells(result, 2, 3)
    np.testing.assert_array_equal(first, image)
    assert (blank == 255).all()
    for cell, map in zip([*upper, *lower], maps, strict=True):
        np.testing.assert_array_equal(cell, heat_overlay(image, map))
    assert result.shape[1] == 2 * MARGIN + 3 * SIZE[1] + 2 * GAP


def test_maps_of_eight_bits_look_like_their_fractions() -> None:
    image, maps = picture(), np.random.default_rng(1).integers(0, 256, (1, *SIZE), dtype=np.uint8)
    np.testing.assert_array_equal(seed_sheet(image, ["dog"], maps), seed_sheet(image, ["dog"], maps / 255))


def test_truth_and_labels_without_affinity_stand_at_the_end() -> None:
    image = picture()
    map = np.zeros((1, *SIZE))
    map[0, 50:100, 20:60] = 0.5
    mask = np.zeros(SIZE, np.uint8)
    mask[60:120, 20:60] = 7
    result = seed_sheet(image, ["dog"], map, mask=mask, threshold=0.4, labels=[7])
    body = seed_sheet(image, ["dog"], map)
    _, heat, guess, truth = cells(result, 1, 4, below=result.shape[0] - body.shape[0])[0]
    np.testing.assert_array_equal(heat, heat_overlay(image, map[0]))
    np.testing.assert_array_equal(guess, shown_mask(image, np.where(map[0] > 0.4, np.uint8(7), np.uint8(0))))
    np.testing.assert_array_equal(truth, shown_mask(image, mask))
    swatch = (result[body.shape[0] :] == voc_palette()[7]).all(axis=2)  # the legend names the label's own colour
    assert swatch.sum() > 80


def test_each_kind_of_map_can_have_its_own_threshold() -> None:
    image, maps = picture(), np.full((1, *SIZE), 0.3)
    tall = seed_sheet(image, ["dog"], maps, maps, threshold=(0.2, 0.5))
    below = tall.shape[0] - seed_sheet(image, ["dog"], maps, maps).shape[0]
    (_, _, upper), (_, _, lower) = cells(tall, 2, 3, below)
    assert (upper == shown_mask(image, np.ones(SIZE, np.uint8))).all()
    assert (lower == image).all()


def test_many_classes_wrap() -> None:
    image, maps = picture(), np.random.default_rng(1).random((7, *SIZE))
    result = seed_sheet(image, [f"class {i}" for i in range(7)], maps)
    upper, lower = cells(result, 2, 6)
    np.testing.assert_array_equal(upper[5], heat_overlay(image, maps[4].astype(np.float32)))
    np.testing.assert_array_equal(lower[2], heat_overlay(image, maps[6].astype(np.float32)))
    assert all((cell == 255).all() for cell in [lower[0], *lower[3:]])


def test_labels_at_a_threshold_are_those_of_the_sweep() -> None:
    maps = np.random.default_rng(0).integers(0, 11, (3, 9, 8)) / 10  # ties, and values on the threshold
    labels = (4, 9, 2)
    for step in (0, 30, 70):
        top, bins = top_bins(maps, 100)
        expected = np.where(bins > step, np.array(labels)[top], 0)
        np.testing.assert_array_equal(label_at(maps, labels, step / 100), expected)


def test_a_hot_patch_stays_in_place_on_a_small_non_square_picture() -> None:
    image, map = np.zeros((48, 96, 3), np.uint8), np.zeros((48, 96))
    map[40, 70] = 1
    heat = shown_heat(image, map).astype(int).sum(axis=2)
    assert heat.shape == (192, 384)
    y, x = np.unravel_index(heat.argmax(), heat.shape)
    assert abs(y - (40.5 * 4 - 0.5)) <= 1
    assert abs(x - (70.5 * 4 - 0.5)) <= 1


def test_maps_are_resized_between_pixel_centres() -> None:
    row = resize_map(np.array([[0.0, 1.0]]), (1, 4))
    np.testing.assert_allclose(row, [[0, 0.25, 0.75, 1]])


def test_bad_input_is_refused_with_value_and_remedy() -> None:
    image, maps = picture(), np.zeros((2, *SIZE))
    with pytest.raises(TagmaskError, match=r"maps have shape \(2, 200, 150\); for 1 class.* give \(1, 200, 150\)"):
        seed_sheet(image, ["dog"], maps)
    with pytest.raises(TagmaskError, match=r"maps \+ affinity have shape \(2, 20, 15\)"):
        seed_sheet(image, ["dog", "sofa"], maps, maps[:, :20, :15])
    with pytest.raises(TagmaskError, match="runs from 2 to 2; scale it"):
        seed_sheet(image, ["dog", "sofa"], maps + 2)
    with pytest.raises(TagmaskError, match="no class to show; give at least one"):
        seed_sheet(image, [], maps[:0])
    with pytest.raises(TagmaskError, match=r"labels \[1, 255\] for 2 classes; .* 1 … 254"):
        seed_sheet(image, ["dog", "sofa"], maps, labels=[1, 255])
    with pytest.raises(TagmaskError, match="threshold is 30; give a value in 0 … 1"):
        seed_sheet(image, ["dog", "sofa"], maps, threshold=30)
    with pytest.raises(TagmaskError, match=r"mask has shape \(3, 3\) and the image \(200, 150\)"):
        seed_sheet(image, ["dog", "sofa"], maps, mask=np.zeros((3, 3), np.uint8))
