"""Affinity pictures: the right row, the right place, the right means."""

import numpy as np
import numpy.typing as npt
import pytest

from tagmask.data.scenes.catalog import draw_scene
from tagmask.errors import TagmaskError
from tagmask.show.affinity import (
    RED,
    affinity_matrix,
    affinity_of_pixels,
    area_average,
    default_points,
    draw_cross,
    patch_at,
)
from tagmask.show.overlay import GREY, HEAT
from tagmask.show.sheet import GAP, MARGIN, Picture


def red(picture: Picture) -> npt.NDArray[np.bool_]:
    is_red: npt.NDArray[np.bool_] = (picture == RED).all(axis=2)
    return is_red


@pytest.mark.parametrize(("x", "y"), [(20, 11), (33, 40), (7, 8)])
def test_the_cross_is_centred_at_its_pixel(x: int, y: int) -> None:
    picture = draw_cross(np.zeros((60, 80, 3), np.uint8), x, y)
    rows, columns = np.nonzero(red(picture))
    assert (columns.mean(), rows.mean()) == (x, y)
    assert red(picture)[y, x]
    window = red(picture)[y - 4 : y + 5, x - 4 : x + 5]
    assert np.array_equal(window, window[::-1])
    assert np.array_equal(window, window.T)
    assert window.sum() == len(rows) == 9  # two diagonals of 5 that share the middle


def test_a_cross_at_the_border_is_cut_and_the_input_unchanged() -> None:
    image = np.zeros((60, 80, 3), np.uint8)
    picture = draw_cross(image, 0, 59)
    assert red(picture)[59, 0]
    assert image.max() == 0


def test_the_patch_of_a_pixel_on_a_non_square_grid() -> None:
    # 30 × 40 pixels (height × width) in 3 × 4 patches of 10
    assert patch_at(0, 0, (3, 4), (30, 40)) == 0
    assert patch_at(39, 9, (3, 4), (30, 40)) == 3
    assert patch_at(0, 10, (3, 4), (30, 40)) == 4
    assert patch_at(25, 29, (3, 4), (30, 40)) == 2 * 4 + 2


def test_the_row_of_the_source_is_shown_not_its_column() -> None:
    height, width, grid = 192, 256, (3, 4)
    affinity = np.zeros((12, 12))
    affinity[patch_at(30, 30, grid, (height, width)), patch_at(170, 100, grid, (height, width))] = 1
    result = affinity_of_pixels(np.zeros((height, width, 3), np.uint8), affinity, grid, [(30, 30)])
    top, left = result.shape[0] - MARGIN - height, MARGIN + width + GAP
    heat = result[top : top + height, left : left + width]
    assert np.nonzero(red(heat))[0].mean() == 30
    assert np.nonzero(red(heat))[1].mean() == 30
    bright = np.where((heat == 255).all(axis=2) | red(heat), 0, heat @ GREY)  # without the cross
    y, x = np.nonzero(bright == bright.max())
    assert (y.mean(), x.mean()) == (
        95.5,
        159.5,
    )  # the middle of patch (1, 2): rows 64 … 127, columns 128 … 191
    assert len(y) == 4


def test_the_first_picture_has_all_crosses_and_each_other_its_own() -> None:
    image = np.zeros((200, 150, 3), np.uint8)
    result = affinity_of_pixels(image, np.full((12, 12), 1 / 12), (4, 3), [(20, 50), (100, 150)])
    top = result.shape[0] - MARGIN - 200
    lefts = [MARGIN + i * (150 + GAP) for i in range(3)]
    first, second, third = (red(result[top : top + 200, left : left + 150]) for left in lefts)
    np.testing.assert_array_equal(first, second | third)
    assert [int(np.median(axis)) for axis in np.nonzero(second)] == [50, 20]
    assert [int(np.median(axis)) for axis in np.nonzero(third)] == [150, 100]


def test_area_average_of_whole_blocks_by_hand() -> None:
    matrix = np.array([[1.0, 3, 0, 0], [5, 7, 0, 8], [2, 2, 1, 1], [2, 2, 1, 5]])
    np.testing.assert_allclose(area_average(matrix, 2), [[4, 2], [2, 2]])


def test_area_average_cuts_entries_and_enlarges() -> None:
    # Three entries over two areas: each has one whole entry and half of the middle one.
    matrix = np.outer([3.0, 6, 9], [1.0, 1, 4])
    np.testing.assert_allclose(area_average(matrix, 2), np.outer([4, 8], [1, 3]))
    np.testing.assert_allclose(
        area_average(np.array([[1.0, 2], [3, 4]]), 4), np.kron([[1, 2], [3, 4]], np.ones((2, 2)))
    )


def test_bright_columns_are_bright_from_top_to_bottom() -> None:
    rng = np.random.default_rng(0)
    affinity = rng.uniform(0.5, 1, (512, 512))
    affinity[:, 200:204] += 60  # 512 patches on 256 pixels: columns 100 and 101
    picture = affinity_matrix(affinity / affinity.sum(axis=1, keepdims=True)) @ GREY
    assert picture.shape == (256, 256)
    others = np.delete(picture, [100, 101], axis=1)
    assert picture[:, 100:102].min() > others.max() + 80


def test_a_block_is_where_its_patches_are() -> None:
    affinity = np.full((64, 64), 0.01)
    affinity[:16, 48:] = 1  # the first 16 patches attend to the last 16
    picture = affinity_matrix(affinity, side=64) @ GREY
    assert picture[:16, 48:].min() > picture[:16, :48].max() + 100
    assert picture[16:].max() == picture[16:].min()


def test_a_nearly_uniform_matrix_looks_uniform() -> None:
    noise = np.random.default_rng(0).uniform(0.99, 1.01, (64, 64)) / 64
    picture = affinity_matrix(noise, side=64).astype(int)
    assert np.ptp(picture.reshape(-1, 3), axis=0).max() <= 6
    assert np.abs(picture - HEAT[4]).max() <= 6  # in the middle of the scale
    assert (affinity_matrix(np.zeros((4, 4)), side=8) == HEAT[0]).all()


def test_default_points_lie_in_their_regions() -> None:
    maps = np.zeros((2, 60, 90))
    maps[0, 10:30, 5:25] = 0.8
    maps[0, 50, 80] = 1  # a single brighter pixel does not attract
    maps[1, 40:60, 30:50] = 1
    (ax, ay), (bx, by), (gx, gy) = default_points(maps)
    assert (abs(ax - 14.5) <= 3, abs(ay - 19.5) <= 3) == (True, True)
    assert (abs(bx - 39.5) <= 5, abs(by - 49.5) <= 5) == (True, True)
    assert maps[:, gy, gx].max() == 0
    assert min(gx, gy, 89 - gx, 59 - gy) >= 8  # away from the border
    assert default_points(np.zeros((0, 41, 61))) == [(30, 20)]


def test_default_points_hit_the_objects_of_scenes() -> None:
    for index in range(12):
        scene = draw_scene(index)
        maps = np.stack([scene.mask == tag + 1 for tag in scene.tags]).astype(np.float64)
        *inside, ground = default_points(maps)
        assert [scene.mask[y, x] for x, y in inside] == [tag + 1 for tag in scene.tags]
        assert scene.mask[ground[1], ground[0]] == 0


def test_bad_input_is_refused_with_value_and_remedy() -> None:
    image, uniform = np.zeros((40, 60, 3), np.uint8), np.full((6, 6), 1 / 6)
    with pytest.raises(
        TagmaskError, match=r"point \(60, 5\) lies outside the image of 60 × 40 .* x in 0 … 59"
    ):
        affinity_of_pixels(image, uniform, (2, 3), [(1, 1), (60, 5)])
    with pytest.raises(TagmaskError, match=r"no source pixel; give at least one \(x, y\)"):
        affinity_of_pixels(image, uniform, (2, 3), [])
    with pytest.raises(
        TagmaskError, match=r"of 7 patches and the grid \(2, 3\) has 6; drop the class token"
    ):
        affinity_of_pixels(image, np.ones((7, 7)), (2, 3), [(1, 1)])
    with pytest.raises(
        TagmaskError, match=r"of 6 patches and the grid \(2, 4\) has 8; give the grid"
    ):
        affinity_of_pixels(image, uniform, (2, 4), [(1, 1)])
    with pytest.raises(
        TagmaskError, match=r"shape \(6, 5\) and dtype float64; give floats \(n, n\)"
    ):
        affinity_matrix(uniform[:, :5])
    with pytest.raises(TagmaskError, match=r"runs from -0\.8.* give finite values from 0 up"):
        affinity_matrix(uniform - 1)
    with pytest.raises(TagmaskError, match=r"picture of 0 pixels .* give a side of 8"):
        affinity_matrix(uniform, side=0)
    with pytest.raises(TagmaskError, match=r"maps have shape \(4, 4\); give \(k, H, W\)"):
        default_points(np.zeros((4, 4)))
