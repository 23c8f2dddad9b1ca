"""The seed sheet shows each map, and the labels that scoring would give."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image as PillowImage

from tagmask.data.images import write_mask
from tagmask.data.scenes.catalog import Scenes
from tagmask.errors import TagmaskError
from tagmask.scoring.sweep import top_bins
from tagmask.show.overlay import heat_overlay, mask_overlay
from tagmask.show.seeds import (
    label_at,
    resize_map,
    seed_sheet,
    show_regions,
    shown_heat,
    shown_mask,
)
from tagmask.show.sheet import GAP, MARGIN, Picture, sheet

SIZE = (200, 150)  # shown as it is: cells can be cut out and compared


def picture() -> Picture:
    return np.random.default_rng(0).integers(0, 256, (*SIZE, 3), dtype=np.uint8)


def cells(result: Picture, rows: int, columns: int) -> list[list[Picture]]:
    """The cells of a sheet whose pictures all have SIZE."""
    line = (result.shape[0] - 2 * MARGIN + GAP) // rows  # caption, picture and gap
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
    as_fractions = seed_sheet(image, ["dog"], maps / 255, maps / 255)
    np.testing.assert_array_equal(seed_sheet(image, ["dog"], maps, maps), as_fractions)


def test_many_classes_wrap() -> None:
    image, maps = picture(), np.random.default_rng(1).random((7, *SIZE)).astype(np.float32)
    result = seed_sheet(image, [f"class {i}" for i in range(7)], maps, maps[::-1])
    first, second, third, fourth = cells(result, 4, 6)
    np.testing.assert_array_equal(first[5], heat_overlay(image, maps[4]))
    np.testing.assert_array_equal(second[1], heat_overlay(image, maps[6]))
    np.testing.assert_array_equal(third[2], heat_overlay(image, maps[6]))
    np.testing.assert_array_equal(fourth[2], heat_overlay(image, maps[0]))
    assert all((cell == 255).all() for cell in [second[0], third[0], *third[3:], *fourth[3:]])


def test_regions_stand_beside_their_images(tmp_path: Path) -> None:
    catalog = Scenes(4, 0)
    cells = []
    for i in (0, 2, 3):  # the second scene has no regions
        scene = catalog.scene(i)
        write_mask(tmp_path / f"{catalog.name(i)}.png", scene.mask)
        tags = ", ".join(catalog.classes[c] for c in scene.tags)
        cells += [(tags, scene.image), ("confident", mask_overlay(scene.image, scene.mask))]
    show_regions(catalog, tmp_path, tmp_path / "all.png")
    np.testing.assert_array_equal(
        np.asarray(PillowImage.open(tmp_path / "all.png")), sheet([cells[:4], cells[4:]])
    )
    show_regions(catalog, tmp_path, tmp_path / "first.png", count=1)
    np.testing.assert_array_equal(
        np.asarray(PillowImage.open(tmp_path / "first.png")), sheet([cells[:2]])
    )
    show_regions(catalog, tmp_path / "none", tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def test_labels_at_a_threshold_are_those_of_the_sweep() -> None:
    maps = (
        np.random.default_rng(0).integers(0, 11, (3, 9, 8)) / 10
    )  # ties, and values on the threshold
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
    with pytest.raises(
        TagmaskError, match=r"maps have shape \(2, 200, 150\); for 1 class.* give \(1, 200, 150\)"
    ):
        seed_sheet(image, ["dog"], maps, maps)
    with pytest.raises(TagmaskError, match=r"maps \+ affinity have shape \(2, 20, 15\)"):
        seed_sheet(image, ["dog", "sofa"], maps, maps[:, :20, :15])
    with pytest.raises(TagmaskError, match="runs from 2 to 2; scale it"):
        seed_sheet(image, ["dog", "sofa"], maps + 2, maps)
    with pytest.raises(TagmaskError, match="no class to show; give at least one"):
        seed_sheet(image, [], maps[:0], maps[:0])
    with pytest.raises(TagmaskError, match="threshold is 30; give a value in 0 … 1"):
        label_at(maps, [1, 2], 30)
    with pytest.raises(TagmaskError, match=r"mask has shape \(3, 3\) and the image \(200, 150\)"):
        shown_mask(image, np.zeros((3, 3), np.uint8))
