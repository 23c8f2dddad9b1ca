"""Polygons along pixel edges: by hand, and filled again by pycocotools."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from matplotlib.path import Path as Curve
from pycocotools import mask as coco_mask

from tagmask.exchange.contours import Point, centre_outlines, outlines, trace


def region(*rows: str) -> np.ndarray:
    return np.array([[cell == "#" for cell in row] for row in rows])


def filled(outlines: list[list[int]], shape: tuple[int, int]) -> np.ndarray:
    if not outlines:
        return np.zeros(shape, bool)
    runs = coco_mask.merge(coco_mask.frPyObjects(outlines, *shape))
    return np.asarray(coco_mask.decode(runs)).astype(bool)


def doubled_area(loop: list[Point]) -> int:
    """Twice the area inside, positive if clockwise on the screen."""
    corners = zip(loop, [*loop[1:], loop[0]], strict=True)
    return sum(x * next_y - next_x * y for (x, y), (next_x, next_y) in corners)


def test_one_pixel() -> None:
    assert outlines(region("...", ".#.", "...")) == [[1, 1, 2, 1, 2, 2, 1, 2]]


def test_straight_edges_keep_their_ends_only() -> None:
    assert sorted(outlines(region("##.", "##.", "..#"))) == [
        [0, 0, 2, 0, 2, 2, 0, 2],
        [2, 2, 3, 2, 3, 3, 2, 3],
    ]
    assert outlines(region("#.", "##")) == [[0, 0, 1, 0, 1, 1, 2, 1, 2, 2, 0, 2]]


def test_a_hole_is_slit_in_from_the_left() -> None:
    ring = region("###", "#.#", "###")
    (outline,) = outlines(ring)
    points = list(zip(outline[::2], outline[1::2], strict=True))
    assert points == [
        (0, 0),
        (3, 0),
        (3, 3),
        (0, 3),
        (0, 1),
        (1, 1),
        (1, 2),
        (2, 2),
        (2, 1),
        (0, 1),
    ]
    assert doubled_area(points) == 2 * 8  # the hole counts against the whole
    assert np.array_equal(filled([outline], (3, 3)), ring)


def test_outlines_run_clockwise_and_holes_the_other_way() -> None:
    areas = [
        doubled_area(loop) / 2
        for loop in trace(region("#####", "#.#.#", "#####", "#..##", "#####"))
    ]
    assert sorted(areas) == [-2, -1, -1, 25]


@pytest.mark.parametrize(
    "rows",
    [
        (
            "######",
            "#.##.#",
            "######",
            "#.#..#",
            "######",
        ),  # holes in one row: the second is slit to the first
        ("#####", "#...#", "#.#.#", "#...#", "#####"),  # a piece within a hole
        ("####", "#.##", "##.#", "####"),  # holes that meet at a corner
        ("##..", "#.#.", ".###", "...#"),  # pieces that meet at a corner, and a bay
        ("###", "##.", "#.#"),
        ("....", "...."),
        ("#",),
    ],
)
def test_filling_gives_the_region_back(rows: tuple[str, ...]) -> None:
    given = region(*rows)
    assert np.array_equal(filled(outlines(given), given.shape), given)


@settings(max_examples=150, deadline=None)
@given(hnp.arrays(bool, st.tuples(st.integers(1, 9), st.integers(1, 9))))
def test_filling_any_region_gives_it_back(given_region: np.ndarray) -> None:
    assert np.array_equal(filled(outlines(given_region), given_region.shape), given_region)


def test_large_noise() -> None:
    noise = np.random.default_rng(0).random((60, 81)) < 0.7
    assert np.array_equal(filled(outlines(noise), noise.shape), noise)


def filled_with_edge(
    polygons: list[list[tuple[float, float]]], shape: tuple[int, int]
) -> np.ndarray:
    """What tools draw that fill the inside and the pixels that an edge passes."""
    drawn = np.zeros(shape, bool)
    rows, columns = np.indices(shape)
    centres = np.stack([columns.ravel(), rows.ravel()], axis=1) + 0.5
    for polygon in polygons:
        drawn |= Curve([*polygon, polygon[0]], closed=True).contains_points(centres).reshape(shape)
        for (x, y), (end_x, end_y) in zip(polygon, [*polygon[1:], polygon[0]], strict=True):
            assert x == end_x or y == end_y
            low, high = sorted([(int(y), int(x)), (int(end_y), int(end_x))])
            drawn[low[0] : high[0] + 1, low[1] : high[1] + 1] = True
    return drawn


def test_centres_by_hand() -> None:
    assert centre_outlines(region("...", ".#.", "...")) == [[(1.5, 1.5)] * 4]
    assert centre_outlines(region("#.", "##")) == [
        [(0.5, 0.5), (0.5, 0.5), (0.5, 1.5), (1.5, 1.5), (1.5, 1.5), (0.5, 1.5)]
    ]


@settings(deadline=None, max_examples=300)
@given(hnp.arrays(bool, st.tuples(st.integers(1, 9), st.integers(1, 9))))
def test_filling_with_the_edge_gives_the_region_back(given: np.ndarray) -> None:
    assert np.array_equal(filled_with_edge(centre_outlines(given), given.shape), given)
