"""Which image is seen when: a function of the seed and the position alone.

Position p is the p-th image drawn since the start of training. No random state is carried from one
step to the next, so a training can resume at any step, and any number of processes together see
what a single one would see.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from torch.utils.data import Sampler

Draw = tuple[int, int]  # (position, image index)


@lru_cache(maxsize=4)
def _order(images: int, seed: int, epoch: int) -> np.ndarray:
    return np.random.default_rng([seed, epoch]).permutation(images)


def draw(position: int, images: int, seed: int) -> int:
    """Return the image index at ``position``.

    Each epoch is its own permutation; epochs follow each other without a gap.

    Args:
        position: Number of images drawn before, since the start of the training.
        images: Number of images.
        seed: Random number that the order depends on.
    """
    epoch, offset = divmod(position, images)
    return int(_order(images, seed, epoch)[offset])


class Stream(Sampler[list[Draw]]):
    """Yield the batches of one process, part by part, from step ``start`` to step ``stop``.

    A step has ``batch`` images in ``accumulate`` parts; each part is split evenly over ``world``
    processes.
    """

    def __init__(
        self,
        images: int,
        seed: int,
        batch: int,
        start: int,
        stop: int,
        accumulate: int = 1,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.images, self.seed, self.batch, self.accumulate = images, seed, batch, accumulate
        self.start, self.stop, self.rank, self.world = start, stop, rank, world
        self.share = batch // accumulate // world

    def __len__(self) -> int:
        return (self.stop - self.start) * self.accumulate

    def __iter__(self) -> Iterator[list[Draw]]:
        for step in range(self.start, self.stop):
            for part in range(self.accumulate):
                first = step * self.batch + (part * self.world + self.rank) * self.share
                positions = range(first, first + self.share)
                yield [(position, draw(position, self.images, self.seed)) for position in positions]
