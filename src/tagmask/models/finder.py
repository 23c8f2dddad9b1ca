"""Where objects are and which tag they have, as a part of a classifier, on its tokens.

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
    """Numbers that turn standardised tokens of a frozen network into objects and their tags.

    Args:
        blocks: the blocks, counted from 0, whose tokens are read.
        size: the long side in pixels at which photos are seen.
        width: numbers in a token, of all blocks together.
        classes: how many tags there are.
        stuff: the tags that are no objects.
        kinds: into how many kinds cells are sorted.
    """

    shift: Tensor  # (F,)
    scale: Tensor  # (F,)
    where_weight: Tensor  # (F,)
    where_bias: Tensor  # ()
    kinds: Tensor  # (k, F)
    kind_scores: Tensor  # (k,)
    which_weight: Tensor  # (K, F)
    which_bias: Tensor  # (K,)

    def __init__(
        self,
        blocks: Sequence[int],
        size: int,
        width: int,
        classes: int,
        stuff: Sequence[int] = (),
        kinds: int = 0,
    ) -> None:
        super().__init__()
        self.blocks = tuple(blocks)
        self.size = size
        self.stuff = tuple(stuff)
        self.register_buffer("shift", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))
        self.register_buffer("where_weight", torch.zeros(width))
        self.register_buffer("where_bias", torch.zeros(()))
        self.register_buffer("kinds", torch.zeros(kinds, width))
        self.register_buffer("kind_scores", torch.zeros(kinds))
        self.register_buffer("which_weight", torch.zeros(classes, width))
        self.register_buffer("which_bias", torch.zeros(classes))

    def standardise(self, tokens: Tensor) -> Tensor:
        """Return tokens (…, F) with the mean and deviation of the photos it was fitted to."""
        return (tokens - self.shift) / self.scale

    def config(self) -> dict[str, Any]:
        """Return what config.json says about it."""
        return {
            "blocks": list(self.blocks),
            "size": self.size,
            "stuff": list(self.stuff),
            "kinds": len(self.kinds),
        }

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
        kinds: Any = config.get("kinds")
        is_right = is_a(blocks, list) and is_a(stuff, list) and is_a(size, int) and is_a(kinds, int)
        if is_right:
            is_right = bool(blocks) and all(is_a(number, int) for number in [*blocks, *stuff])
        is_right = is_right and 0 < size <= 16_384 and 0 <= kinds <= 4096
        if not is_right or not set(stuff) <= set(range(classes)):
            raise TagmaskError(f"objects is {dict(config)!r}")
        return cls(blocks, size, len(blocks) * embed_dim, classes, stuff, kinds)
