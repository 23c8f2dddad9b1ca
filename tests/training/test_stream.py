"""The order of images is a function of seed and position alone."""

import numpy as np
import pytest

from tagmask.training.stream import Stream, draw


def test_every_epoch_is_a_permutation_of_its_own() -> None:
    epochs = [
        [draw(position, 7, seed=3) for position in range(start, start + 7)] for start in (0, 7, 14)
    ]
    assert all(sorted(epoch) == list(range(7)) for epoch in epochs)
    assert epochs[0] != epochs[1]
    assert epochs[0] != [draw(position, 7, seed=4) for position in range(7)]


@pytest.mark.parametrize(("world", "accumulate"), [(2, 1), (1, 3), (2, 3), (3, 2)])
def test_processes_and_parts_share_out_the_same_batch(world: int, accumulate: int) -> None:
    whole = list(Stream(10, 0, 12, 0, 4))
    parts = [list(Stream(10, 0, 12, 0, 4, accumulate, rank, world)) for rank in range(world)]
    for step in range(4):
        drawn = [
            d
            for part in range(accumulate)
            for rank in range(world)
            for d in parts[rank][step * accumulate + part]
        ]
        assert drawn == whole[step]


def test_a_later_start_goes_on_where_the_first_stopped() -> None:
    assert list(Stream(5, 1, 4, 3, 9)) == list(Stream(5, 1, 4, 0, 9))[3:]
    assert len(Stream(5, 1, 4, 3, 9, accumulate=2)) == 12


def test_batches_are_always_full() -> None:
    assert {len(batch) for batch in Stream(3, 0, 8, 0, 5)} == {8}
    positions = np.array([d[0] for batch in Stream(3, 0, 8, 0, 5) for d in batch])
    assert (positions == np.arange(40)).all()
