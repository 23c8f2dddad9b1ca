"""The sparse walk against double loops and dense matrix powers."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tagmask.errors import TagmaskError
from tagmask.masks.walk import (
    edge_affinities,
    from_attention,
    from_edges,
    half_offsets,
    random_walk,
    transition,
)

Array = npt.NDArray[Any]


def dense_transition(features: Array, radius: float, beta: float) -> Array:
    """Every pair of positions by a double loop, in float64."""
    _, height, width = features.shape
    places = [(y, x) for y in range(height) for x in range(width)]
    matrix = np.zeros((len(places), len(places)))
    for i, (y, x) in enumerate(places):
        for j, (v, u) in enumerate(places):
            if (y - v) ** 2 + (x - u) ** 2 < radius**2:
                apart = np.abs(
                    features[:, y, x].astype(float) - features[:, v, u].astype(float)
                ).mean()
                matrix[i, j] = np.exp(-apart) ** beta
    matrix /= matrix.sum(axis=1, keepdims=True)
    return matrix


@pytest.mark.parametrize("grid", [(7, 5), (1, 9), (8, 1), (1, 1), (4, 4), (2, 11)])
@pytest.mark.parametrize(("radius", "beta"), [(5, 36), (2, 8), (3.5, 1)])
def test_matrix_and_walk_equal_the_dense_ones(
    grid: tuple[int, int], radius: float, beta: float
) -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(0, 0.1, (6, *grid))
    maps = rng.random((3, *grid))
    expected = dense_transition(features, radius, beta)
    matrix = transition(features, radius, beta)
    np.testing.assert_allclose(matrix.toarray(), expected, atol=1e-12)
    walked = (np.linalg.matrix_power(expected, 64) @ maps.reshape(3, -1).T).T.reshape(maps.shape)
    np.testing.assert_allclose(random_walk(maps, matrix), walked, atol=1e-10)
    single = transition(features.astype(np.float32), radius, beta)
    assert [str(single.dtype), str(single.indices.dtype)] == ["float32", "int32"]
    power = np.linalg.matrix_power(single.toarray().astype(float), 64)
    steps = random_walk(maps.astype(np.float32), single)
    np.testing.assert_allclose(steps.reshape(3, -1).T, power @ maps.reshape(3, -1).T, atol=1e-6)
    np.testing.assert_allclose(steps, walked, atol=5e-6)  # 64 products with rounded affinities


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_torch_takes_the_same_steps(dtype: Any) -> None:
    random = np.random.default_rng(3)
    matrix, maps = transition(random.random((4, 5, 9)).astype(dtype)), random.random((3, 5, 9))
    walked = random_walk(maps, matrix, 20, device="cpu")
    assert walked.dtype == dtype
    np.testing.assert_allclose(walked, random_walk(maps, matrix, 20), rtol=1e-5)
    dense = from_attention(random.random((45, 45)), 2.0)
    np.testing.assert_allclose(
        random_walk(maps, dense, 3, device="cpu"), random_walk(maps, dense, 3), rtol=1e-12
    )


def test_many_channels_are_summed_in_parts() -> None:
    features = (
        np.random.default_rng(1).normal(0, 1, (700, 12, 10)).astype(np.float32)
    )  # 546 channels fit in a part
    np.testing.assert_allclose(
        transition(features, 5, 2).toarray(), dense_transition(features, 5, 2), atol=1e-6
    )


def test_offsets_are_strictly_nearer_than_the_radius() -> None:
    assert half_offsets(2) == [(0, 1), (1, -1), (1, 0), (1, 1)]
    assert len(half_offsets(5)) == 34
    assert (4, 2) in half_offsets(5)
    assert (4, 3) not in half_offsets(5)  # just 5 away


def test_corners_and_borders_are_connected() -> None:
    links = (transition(np.zeros((1, 9, 11)), 5, 36) > 0).toarray().reshape(9, 11, 99).sum(-1)
    quarter = 1 + 2 * 4 + sum(1 for y in range(1, 5) for x in range(1, 5) if y * y + x * x < 25)
    assert [links[y, x] for y, x in ((0, 0), (0, 10), (8, 0), (8, 10))] == [quarter] * 4
    assert links[4, 5] == 69
    assert (links == links[::-1]).all()
    assert (links == links[:, ::-1]).all()


def test_two_positions_by_hand() -> None:
    matrix = transition(np.array([[[0.0, 1.0]], [[0.0, 3.0]]]), 5, 1.0)  # mean distance 2
    stay = 1 / (1 + math.exp(-2))
    np.testing.assert_allclose(matrix.toarray(), [[stay, 1 - stay], [1 - stay, stay]])
    walked = random_walk(np.array([[[1.0, 0.0]]]), matrix, steps=2)
    back = stay**2 + (1 - stay) ** 2
    np.testing.assert_allclose(walked, [[[back, 1 - back]]])


def test_edges_say_the_same_as_features() -> None:
    features = np.random.default_rng(2).normal(0, 1, (4, 6, 3))
    edges = edge_affinities(features, 3)
    assert edges[0, 2, 1] == pytest.approx(
        np.exp(-np.abs(features[:, 2, 1] - features[:, 2, 2]).mean())
    )
    assert edges[0, 2, 2] == 0  # its right neighbour lies outside
    np.testing.assert_array_equal(
        from_edges(edges, 3, 8).toarray(), transition(features, 3, 8).toarray()
    )


def test_a_wall_stops_the_walk_and_constants_stay() -> None:
    features = np.zeros((2, 10, 12), np.float32)
    features[:, :, 6:] = 3
    maps = np.zeros((2, 10, 12), np.float32)
    maps[0, 5, 2], maps[1] = 60, 0.55
    walked = random_walk(maps, transition(features))
    np.testing.assert_allclose(walked[1], 0.55, atol=1e-5)
    assert walked[0, :, 6:].max() < 1e-6
    assert walked[0, :, :6].std() < 0.05 * walked[0, :, :6].mean()
    np.testing.assert_array_equal(random_walk(maps, transition(features), steps=0), maps)


def test_attention_to_transition_by_the_definition() -> None:
    attention = np.random.default_rng(3).random((12, 12))
    attention /= attention.sum(1, keepdims=True)
    powered = ((attention + attention.T) / 2) ** 4
    np.testing.assert_allclose(
        from_attention(attention, 4).toarray(), powered / powered.sum(1, keepdims=True)
    )


def test_small_attention_to_a_high_power_does_not_vanish() -> None:
    attention = np.full((100, 100), 1e-4, np.float32)
    attention[7], attention[:, 7] = 0, 0
    matrix = from_attention(attention, 36).toarray()
    np.testing.assert_allclose(matrix.sum(1), 1, rtol=1e-5)
    assert matrix[7, 7] == 1  # nothing else is left of this row
    assert matrix[3, 4] == pytest.approx(1 / 99)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: half_offsets(1), "radius is 1; .* above 1"),
        (lambda: transition(np.zeros((4, 4))), r"shape \(4, 4\); give \(channels"),
        (lambda: transition(np.full((1, 2, 2), np.nan)), "NaN or infinity.*train it again"),
        (lambda: transition(np.zeros((1, 2, 2)), beta=0), "beta is 0"),
        (lambda: from_edges(np.zeros((3, 2, 2)), 2), r"radius 2 needs \(4, height, width\)"),
        (
            lambda: random_walk(np.zeros((1, 2, 3)), transition(np.zeros((1, 2, 2)))),
            "the 4 positions.*resize them",
        ),
        (lambda: random_walk(np.zeros((1, 2, 2)), transition(np.zeros((1, 2, 2))), -1), "-1 steps"),
        (lambda: from_attention(np.zeros((2, 3)), 1), r"shape \(2, 3\)"),
        (lambda: from_attention(np.array([[-1.0]]), 1), "after the softmax"),
    ],
)
def test_bad_input_is_refused(call: Any, message: str) -> None:
    with pytest.raises(TagmaskError, match=message):
        call()
