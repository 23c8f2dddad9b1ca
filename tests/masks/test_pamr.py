"""Pixel-adaptive refinement against a computation pixel by pixel."""

import numpy as np

from tagmask.masks.pamr import STEEPNESS, pamr


def by_hand(
    image: np.ndarray, chances: np.ndarray, rounds: int, distances: tuple[int, ...]
) -> np.ndarray:
    """Every pixel and every neighbour in a loop."""
    height, width = image.shape[:2]
    colours = image.astype(np.float64) / 255
    shifts = [
        (y * d, x * d)
        for d in distances
        for y in (-1, 0, 1)
        for x in (-1, 0, 1)
        if (y, x) != (0, 0)
    ]

    def clip(row: int, column: int) -> tuple[int, int]:
        return min(max(row, 0), height - 1), min(max(column, 0), width - 1)

    for _ in range(rounds):
        refined = np.zeros_like(chances, dtype=np.float64)
        for row in range(height):
            for column in range(width):
                around = [clip(row + y, column + x) for y, x in shifts]
                near = np.array([colours[place] for place in around])  # (48, 3)
                deviation = np.maximum(near.std(0), 1e-4)
                distance = (np.abs(near - colours[row, column]) / (STEEPNESS * deviation)).mean(1)
                weights = np.exp(-(distance - distance.min()))
                weights /= weights.sum()
                for weight, place in zip(weights, around, strict=True):
                    refined[:, row, column] += weight * chances[(slice(None), *place)]
        chances = refined
    return chances


def test_against_a_loop_over_pixels() -> None:
    generator = np.random.default_rng(0)
    image = generator.integers(0, 255, (6, 9, 3), dtype=np.uint8)
    chances = generator.random((2, 6, 9), dtype=np.float32)
    refined = pamr(image, chances, rounds=2, distances=(1, 3))
    np.testing.assert_allclose(refined, by_hand(image, chances, 2, (1, 3)), rtol=2e-4)


def test_probabilities_still_add_up_to_one() -> None:
    generator = np.random.default_rng(1)
    image = generator.integers(0, 255, (30, 20, 3), dtype=np.uint8)
    chances = generator.random((3, 30, 20), dtype=np.float32)
    chances /= chances.sum(0)
    np.testing.assert_allclose(pamr(image, chances).sum(0), 1, rtol=1e-4)


def test_an_edge_of_colour_stops_it() -> None:
    """A blurred step of probabilities becomes sharp where the colour changes, and stays so elsewhere."""
    image = np.zeros((40, 60, 3), np.uint8)
    image[:, 30:] = 200
    ramp = np.clip((np.arange(60, dtype=np.float32) - 20) / 20, 0, 1)
    chances = (
        np.broadcast_to(np.stack([1 - ramp, ramp])[:, None], (2, 40, 60)).astype(np.float32).copy()
    )
    refined = pamr(image, chances)[1, 20]
    assert refined[28] < 0.3 < 0.7 < refined[31]
    assert abs(ramp[28] - ramp[31]) < 0.2
