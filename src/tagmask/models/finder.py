"""Where objects are and which tag they have, as a part of a classifier: two linear layers on tokens.

They are fitted to a set of photos (``tagmask.inference``) and saved with the classifier, so that a
single photo is treated as the photos of the run are.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from tagmask.errors import TagmaskError
from tagmask.files import is_a


class ObjectFinder(nn.Module):
    """Two linear layers on the standardised tokens of some blocks of a frozen network.

    Args:
        blocks: the blocks, counted from 0, whose tokens are read.
        size: the long side in pixels at which photos are seen.
        width: numbers in a token, of all blocks together.
        classes: how many tags there are.
        stuff: the tags that are no objects.
    """

    shift: Tensor  # (F,)
    scale: Tensor  # (F,)
    where_weight: Tensor  # (F,)
    where_bias: Tensor  # ()
    which_weight: Tensor  # (K, F)
    which_bias: Tensor  # (K,)

    def __init__(
        self, blocks: Sequence[int], size: int, width: int, classes: int, stuff: Sequence[int] = ()
    ) -> None:
        super().__init__()
        self.blocks = tuple(blocks)
        self.size = size
        self.stuff = tuple(stuff)
        self.register_buffer("shift", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))
        self.register_buffer("where_weight", torch.zeros(width))
        self.register_buffer("where_bias", torch.zeros(()))
        self.register_buffer("which_weight", torch.zeros(classes, width))
        self.register_buffer("which_bias", torch.zeros(classes))

    def standardise(self, tokens: Tensor) -> Tensor:
        """Return tokens (…, F) with the mean and deviation of the photos it was fitted to."""
        return (tokens - self.shift) / self.scale

    def config(self) -> dict[str, Any]:
        """Return what config.json says about it."""
        return {"blocks": list(self.blocks), "size": self.size, "stuff": list(self.stuff)}

    @classmethod
    def build(cls, config: Mapping[str, Any], embed_dim: int, classes: int) -> Self:
        """Build the finder that ``config`` describes, its weights not yet loaded.

        Args:
            config: what ``config()`` returned.
            embed_dim: width of a token of one block.
            classes: how many tags there are.

        Raises:
            TagmaskError: if the description cannot be right.
        """
        blocks: Any = config.get("blocks")
        size: Any = config.get("size")
        stuff: Any = config.get("stuff")
        is_right = is_a(blocks, list) and is_a(stuff, list) and is_a(size, int)
        if is_right:
            is_right = bool(blocks) and all(is_a(number, int) for number in [*blocks, *stuff])
        if not is_right or not 0 < size <= 16_384 or not set(stuff) <= set(range(classes)):
            raise TagmaskError(f"objects is {dict(config)!r}")
        return cls(blocks, size, len(blocks) * embed_dim, classes, stuff)
