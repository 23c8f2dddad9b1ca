"""Kept tokens as training samples."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tagmask.data.catalog import Catalog
from tagmask.data.datasets import RandomSamples, tags_of
from tagmask.features.cache import TokenStore


class TokenDataset(RandomSamples):
    """For a classifier that is trained on fixed views: tokens of a photo, and its tags.

    The tokens are those of the feature cache, of the photo and its mirror image.

    Args:
        catalog: the images and their tags.
        store: the feature cache.
    """

    def __init__(self, catalog: Catalog, store: TokenStore) -> None:
        super().__init__(catalog, 0)
        self.store = store

    def load(self, index: int) -> tuple[Any, Tensor]:
        """Return the tokens and the tags (C,)."""
        tokens = self.store.get(self.catalog, index)
        return tokens, tags_of(self.catalog, index)

    def sample(self, image: Any, target: Tensor, seed: int) -> dict[str, Tensor]:
        """Return "tokens" (2, N, D), "grids" (2,) and "targets" (C,).

        Args:
            image: the tokens.
            target: tags (C,).
            seed: not needed: nothing is random.
        """
        del seed
        return {"tokens": image.values, "grids": torch.tensor(image.grid), "targets": target}

    @staticmethod
    def collate(samples: Sequence[dict[str, Tensor]]) -> dict[str, Any]:
        """Return a batch; photos differ in their number of tokens, so these stay a list."""
        batch: dict[str, Any] = {"tokens": [sample["tokens"] for sample in samples]}
        for name in samples[0]:
            if name != "tokens":
                batch[name] = torch.stack([sample[name] for sample in samples])
        return batch
