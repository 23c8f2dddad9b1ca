"""Any method of ``tagmask.methods.baselines`` in the place of ACR's maps, for every stage.

``Compared`` stands in for a classifier: it offers a method's maps as its evidence, so that views, padding, fusion and
normalisation are the ordinary ones, without and with affinity, from one pass.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tagmask.methods.baselines import METHODS, check_blocks


@dataclass
class Evidence:
    """What localisation needs: a method's own maps, and the attention for the affinity."""

    maps: Tensor  # (B, K, n)
    attention: list[Tensor]  # each (B, n+1, n+1)

    def plain_maps(self, centre: bool = False) -> Tensor:
        del centre  # of class gradients only
        return self.maps


class Compared:
    """A classifier whose evidence is that of another method."""

    def __init__(self, model: Any, method: str) -> None:
        self.model, self.method = model, METHODS[method]
        self.class_tokens, self.map_layers = 1, 1
        self.blocks, self.grid = model.blocks, model.grid
        self.last: Any = None  # the trace that the latest maps were made from

    def evidence(self, images: Tensor, classes: Tensor, layers: int, affinity_blocks: range) -> Evidence:
        """The method's maps of ``classes`` (B, K); padding (−1) takes those of class 0, which nobody reads."""
        del layers  # of class gradients only
        check_blocks(affinity_blocks, len(self.blocks))
        maps = torch.stack(self.method(self, images, classes.clamp(min=0).tolist(), affinity=False))  # (B, K, h, w)
        heads = [self.last.attention[i].mean(dim=1) for i in affinity_blocks]  # (B, N, N)
        return Evidence(maps.flatten(2), [self.model.without_extra_tokens(head) for head in heads])

    def trace(self, images: Tensor, classes: Tensor, gradients: bool = True) -> Any:
        """The classifier's, kept for the affinity."""
        self.last = self.model.trace(images, classes, gradients)
        return self.last
