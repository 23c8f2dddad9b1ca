"""Sub-classes: the regions of one tag, sorted into kinds by what a frozen network makes of them.

A region is one vector: the mean of the standardised tokens of its cells, each weighted by how much
of it the region covers, scaled to length 1. Ward's method joins, again and again, the two groups
whose union adds least to the squared distances from their centres, until as many groups are left as
were asked for. Nothing is random.

Kinds that look alike to the network but not to a person are told apart by names: a person names
some regions, a logistic regression on the same vectors names the others, and regions that were kept
apart say how often it is right.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from scipy.cluster.hierarchy import fcluster, linkage
from torch import Tensor

from tagmask.inference.linear import cross_validate, fit_logistic
from tagmask.inference.objectness import nearest_kind

MOST_COMPARED = 4000  # regions that are compared with each other; the rest go to the nearest kind
STRENGTH = 30.0  # of the regression on vectors of length 1; as C in scikit-learn


def region_vector(
    tokens: Tensor, grid: tuple[int, int], region: npt.NDArray[np.bool_]
) -> Tensor | None:
    """Return the vector (F,) of a region, of length 1.

    Args:
        tokens: standardised tokens (n, F) of the photo, row by row.
        grid: (h, w) of the tokens.
        region: (H, W) at the size of the photo.

    Returns:
        None if the region has no pixel.
    """
    pixels = torch.from_numpy(region.astype(np.float32))[None, None]  # (1, 1, H, W)
    share = F.interpolate(pixels, grid, mode="area").flatten().to(tokens.device)  # (n,)
    if not share.any():
        return None
    return F.normalize((share[:, None] * tokens).sum(0), dim=0)


def sort_regions(vectors: Tensor, count: int) -> list[int]:
    """Sort regions into kinds by Ward's method.

    Args:
        vectors: (R, F) of length 1.
        count: how many kinds; fewer if there are fewer regions.

    Returns:
        The kind of each region, from 1; the largest kind is the first.
    """
    if len(vectors) < 2:
        return [1] * len(vectors)
    values = vectors.double().cpu()
    # evenly spaced, so that every part of the photos is represented
    every = -(-len(values) // MOST_COMPARED)
    compared = values[::every]
    tree = linkage(compared.numpy(), "ward")
    groups = torch.from_numpy(fcluster(tree, count, "maxclust")).long() - 1
    if every > 1:
        sums = torch.zeros(int(groups.max()) + 1, values.shape[1], dtype=values.dtype)
        sums.index_add_(0, groups, compared)
        groups = nearest_kind(values, F.normalize(sums, dim=1))
    sizes = torch.bincount(groups)
    # of two equal ones, the one that is seen first comes first
    first = {int(group): i for i, group in reversed(list(enumerate(groups)))}
    order = sorted(first, key=lambda group: (-int(sizes[group]), first[group]))
    number = {group: place for place, group in enumerate(order, start=1)}
    return [number[int(group)] for group in groups]


def typicality(vectors: Tensor, kinds: Sequence[int]) -> list[float]:
    """Return the cosine of the angle between each region and the mean of its kind.

    Args:
        vectors: (R, F) of length 1.
        kinds: the kind of each region.
    """
    labels = torch.tensor(list(kinds), device=vectors.device)
    result = torch.zeros(len(vectors), device=vectors.device)
    for kind in labels.unique():
        chosen = labels == kind
        centre = F.normalize(vectors[chosen].mean(0), dim=0)  # (F,)
        result[chosen] = vectors[chosen] @ centre
    return [float(value) for value in result]


def learn_names(
    vectors: Tensor, names: Sequence[str | None]
) -> tuple[list[str], dict[str, tuple[int, int]]]:
    """Name the regions that have no name, by those that have one.

    Args:
        vectors: (R, F) of length 1.
        names: of each region; None where it is not known. At least two names occur.

    Returns:
        The name of every region, and for each name how many of its regions are named rightly by a
        model that has not seen them, and how many there are.
    """
    known = [i for i, name in enumerate(names) if name is not None]
    choices = sorted({name for name in names if name is not None})
    column = {name: place for place, name in enumerate(choices)}
    own = torch.tensor([column[str(names[i])] for i in known])
    targets = F.one_hot(own, len(choices)).float().to(vectors.device)  # (known, K)
    # most regions point the same way; what tells them apart is the rest
    centred = vectors - vectors[known].mean(0)
    weight, bias = fit_logistic(centred[known], targets, STRENGTH, balanced=True)
    guessed = F.linear(centred, weight, bias).argmax(1).tolist()  # (R,)
    result = []
    for name, guess in zip(names, guessed, strict=True):
        result.append(choices[guess] if name is None else name)
    unseen = cross_validate(centred[known], targets, STRENGTH, balanced=True).argmax(1).tolist()
    right = dict.fromkeys(choices, 0)
    total = dict.fromkeys(choices, 0)
    for place, guess in zip(own.tolist(), unseen, strict=True):
        total[choices[place]] += 1
        right[choices[place]] += guess == place
    return result, {name: (right[name], total[name]) for name in choices}
