"""What the head would learn from the last strokes: one step of least squares, in milliseconds.

The linear layer W moves by the Δ that minimises

    Σ over all cells ‖Δ x‖² / M · ANCHOR  +  Σ over corrected cells ‖Δ x − r‖²

x are standardised features with a 1 for the bias. r is what the logits of a corrected cell lack:
the person's label is to lead all others by ``MARGIN``. The first sum keeps the answers of all other
cells as they are; its matrix is computed once. The page shows the result as a preview; nothing of
it is kept, and the button learns properly.
"""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tagmask.data.catalog import Catalog
from tagmask.data.corrections import fix
from tagmask.features.cache import TokenStore
from tagmask.labels import UNSURE
from tagmask.models.head import HeadSegmenter
from tagmask.training.head import person_labels

# by how much the logit of the person's label is to lead
MARGIN = 4.0
# what all other cells together count, in corrected cells
ANCHOR = 20.0
# cells that stand for all others, and how many of them one photo gives
MOST_CELLS = 20_000
PER_PHOTO = 200


def with_bias(head: HeadSegmenter, features: Tensor) -> Tensor:
    """Return standardised features (n, F) with a column of ones, (n, F + 1) float32.

    Args:
        head: Knows mean and deviation of the features.
        features: Those of n cells, (n, F).
    """
    standard = head.standardise(features.float().to(head.shift.device)).cpu()
    return torch.cat([standard, torch.ones(len(standard), 1)], 1)


def second_moments(
    head: HeadSegmenter,
    tokens: TokenStore,
    catalog: Catalog,
    stopped: Callable[[], bool] = lambda: False,
) -> Tensor:
    """Return the mean of x xᵀ over cells of photos, (F + 1, F + 1).

    Args:
        head: The head, whose standardised features are meant.
        tokens: Its feature cache.
        catalog: The photos; of many, every k-th is taken.
        stopped: Returns True to end early.
    """
    photos = max(1, MOST_CELLS // PER_PHOTO)
    step = max(1, len(catalog) // photos)
    width = head.linear.in_features + 1
    total = torch.zeros(width, width)
    count = 0
    for i in range(0, len(catalog), step):
        if stopped():
            break
        values = tokens.get(catalog, i).values[0]  # (n, F)
        cells = with_bias(head, values[:: max(1, len(values) // PER_PHOTO)])
        total += cells.T @ cells
        count += len(cells)
    return total / max(1, count)


def corrected_cells(
    head: HeadSegmenter, tokens: TokenStore, catalog: Catalog, i: int, numbers: list[int]
) -> tuple[Tensor, Tensor]:
    """Return the corrected cells of a photo.

    Args:
        head: The head.
        tokens: Its feature cache.
        catalog: The photos with their corrections.
        i: Index of the photo.
        numbers: For each class of the photos its number in the head.

    Returns:
        Features (m, F + 1) and labels of the head (m,).
    """
    labels = catalog.load_correction(i)
    if labels is None:
        return torch.zeros(0, head.linear.in_features + 1), torch.zeros(0, dtype=torch.long)
    found = tokens.get(catalog, i)
    person = fix(np.full_like(labels, UNSURE), labels, catalog.name(i))
    shares, touched = person_labels(person, found.grid, len(catalog.classes) + 1)
    own = torch.tensor([0, *(number + 1 for number in numbers)])
    features = with_bias(head, found.values[0])
    return features[touched], own[shares.argmax(1)[touched]]


def step(head: HeadSegmenter, moments: Tensor, features: Tensor, labels: Tensor) -> HeadSegmenter:
    """Return a head whose linear layer has made one step towards the corrected cells.

    Args:
        head: The head to go on from; it stays as it is.
        moments: Mean of x xᵀ over all cells (F + 1, F + 1).
        features: Corrected cells (m, F + 1).
        labels: What they are (m,).
    """
    linear = head.linear
    weight = torch.cat([linear.weight, linear.bias[:, None]], 1).detach().cpu()  # (K, F + 1)
    logits = features @ weight.T  # (m, K)
    own = logits.gather(1, labels[:, None])  # (m, 1)
    others = logits.scatter(1, labels[:, None], -torch.inf)
    # half of what is lacking is added to the label, half is taken from those that are too high
    lacking = (others.max(1, keepdim=True).values + MARGIN - own).clamp(min=0)  # (m, 1)
    excess = (others - own + MARGIN).clamp(min=0)
    wanted = -torch.minimum(excess, lacking) / 2
    wanted = wanted.scatter(1, labels[:, None], lacking / 2)  # (m, K)
    ridge = 1e-3 * moments.diagonal().mean() * torch.eye(len(moments))
    matrix = ANCHOR * (moments + ridge) + features.T @ features
    moved = torch.linalg.solve(matrix, features.T @ wanted).T  # (K, F + 1)
    twin = copy.copy(head)
    fresh: Any = copy.deepcopy(linear)
    twin._modules = {**head._modules, "linear": fresh}
    with torch.no_grad():
        device = fresh.weight.device
        fresh.weight += moved[:, :-1].to(device)
        fresh.bias += moved[:, -1].to(device)
    return twin
