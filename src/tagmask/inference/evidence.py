"""Which tag a cell has: evidence of the pooled foreground, in which the tags of a photo compete.

Every photo is one vector: the mean of its tokens, weighted by where objects are. A logistic
regression on these vectors tells photos with a tag from photos without; its weights, applied to
single cells, say which of the photo's tags a cell speaks for. Inside an object the tags share out
the cell by a softmax, so that connected objects do not both claim it: ACR's maps have no such
competition, a limit that its authors name.

A tag that is no object ("grass") is learned from the rest of the photo instead, and found there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tagmask.inference.linear import fit_logistic
from tagmask.inference.objectness import Where

STRENGTH = 0.003  # of the logistic regression; 0.03 and 0.3 lose half a point and a point
SURE = 0.5  # only cells that are more likely object than not count for an object's vector


@dataclass(frozen=True)
class Which:
    """Evidence of every tag in a cell with standardised token x: weight·x + bias."""

    weight: Tensor  # (K, F)
    bias: Tensor  # (K,)
    stuff: tuple[int, ...] = ()  # tags that are no objects

    def logits(self, tokens: Tensor) -> Tensor:
        """Return the evidence (…, K) of tokens (…, F)."""
        return tokens @ self.weight.T + self.bias


def pool(tokens: Tensor, foreground: Tensor) -> Tensor:
    """Return the mean token of the foreground and of the rest, (2, F), of a photo.

    Args:
        tokens: (n, F).
        foreground: probabilities (n,). Cells below one half do not count for the foreground;
            a photo without any cell above counts as a whole.
    """
    sure = foreground * (foreground > SURE)
    if not sure.any():
        sure = foreground
    rest = 1 - foreground
    inside = (sure[:, None] * tokens).sum(0)  # (F,)
    inside = inside / sure.sum().clamp(min=1e-6)
    outside = (rest[:, None] * tokens).sum(0)  # (F,)
    outside = outside / rest.sum().clamp(min=1e-6)
    return torch.stack([inside, outside])


def fit_which(pooled: Tensor, targets: Tensor, stuff: Sequence[int] = ()) -> Which:
    """Learn which tag a foreground has.

    Args:
        pooled: (N, 2, F) of ``pool``, one row per photo.
        targets: (N, K) of 0 and 1.
        stuff: tags that are no objects; they are learned from the rest of the photos.
    """
    weight, bias = fit_logistic(pooled[:, 0], targets, STRENGTH, balanced=True)
    chosen = list(stuff)
    if chosen:
        other = fit_logistic(pooled[:, 1], targets[:, chosen], STRENGTH, balanced=True)
        weight[chosen], bias[chosen] = other
    return Which(weight, bias, tuple(chosen))


def shares_of_objects(where: Where, which: Which, tokens: Tensor, tags: Sequence[int]) -> Tensor:
    """Return how much each tag of a photo claims each cell, (k, n), between 0 and 1.

    Objects: the tags share out a cell by softmax, and the shares are scaled so that the largest
    is the probability of an object. So a cell is an object's where its highest map is above one
    half, however many tags the photo has.
    Stuff: probability of no object times the tag's own probability.

    Args:
        where: where objects are.
        which: which tag they have.
        tokens: standardised tokens (n, F) of the photo.
        tags: the photo's tags.
    """
    foreground = where.probability(tokens)  # (n,)
    logits = which.logits(tokens)  # (n, K)
    objects = [tag for tag in tags if tag not in which.stuff]
    shares = logits[:, objects].softmax(-1)  # (n, objects)
    if objects:
        shares = shares / shares.amax(-1, keepdim=True)
    maps = []
    for tag in tags:
        if tag in which.stuff:
            maps.append((1 - foreground) * torch.sigmoid(logits[:, tag]))
        else:
            maps.append(foreground * shares[:, objects.index(tag)])
    return torch.stack(maps) if maps else tokens.new_zeros(0, len(tokens))
