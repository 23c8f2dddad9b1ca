"""Where objects are and which tag they have, as a part of a classifier, on its tokens.

They are fitted to a set of photos (``tagmask.inference``) and saved with the classifier, so that a
single photo is treated as the photos of the run are.
"""

from collections.abc import Sequence
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
    def build(cls, config: Any, embed_dim: int, classes: int, depth: int) -> Self:
        """Build the finder that ``config`` describes, its weights not yet loaded.

        Args:
            config: what ``config()`` returned.
            embed_dim: width of a token of one block.
            classes: how many tags there are.
            depth: how many blocks the backbone has.

        Raises:
            TagmaskError: if the description cannot be right.
        """
        if not _is_right(config, classes, depth):
            raise TagmaskError(
                f"the entry objects of a classifier's config.json is {config!r}, which cannot be "
                "right; take the file from a backup, or train again with --restart."
            )
        blocks = config["blocks"]
        width = len(blocks) * embed_dim
        return cls(blocks, config["size"], width, classes, config["stuff"], config["kinds"])


def _is_right(config: Any, classes: int, depth: int) -> bool:
    """Return True if an entry of config.json describes an object finder."""
    forms = {"blocks": list, "size": int, "stuff": list, "kinds": int}
    if not isinstance(config, dict):
        return False
    if not all(is_a(config.get(name), form) for name, form in forms.items()):
        return False
    numbers = [*config["blocks"], *config["stuff"]]
    if not all(is_a(number, int) for number in numbers):
        return False
    has_blocks = bool(config["blocks"]) and set(config["blocks"]) <= set(range(depth))
    has_tags = set(config["stuff"]) <= set(range(classes))
    return has_blocks and has_tags and 0 < config["size"] <= 16_384 and 0 <= config["kinds"] <= 4096
