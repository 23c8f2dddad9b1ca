"""Which photos are alike, and which tags they probably lack or have wrongly.

Every photo is one vector: the class token of a frozen network, and the mean of its patch tokens.
Scores are cross-validated (``inference.linear``): a photo is judged by models that have not seen
it.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tagmask.data.images import Picture
from tagmask.features.photo import photo_features
from tagmask.inference.linear import cross_validate, fit_logistic
from tagmask.models.classifier import Classifier

# pixels of the photos' long side as the network sees them here
SIZE = 224
# tagged photos of a tag, and photos without it, before anything is suggested
LEAST = 3
# how much the tags count against the penalty of the fit
STRENGTH = 0.1
LIKELY = 0.7
UNLIKELY = 0.15
MOST = 60


def load_network(backbone: str, weights: Path | None, pretrained: bool) -> Classifier:
    """Return the network that photos are compared with, without a head of its own.

    Args:
        backbone: A name of timm.
        weights: A file with its weights.
        pretrained: True to take timm's weights, where no file is given.
    """
    model = Classifier(backbone, 1, pretrained=pretrained, weights=weights, img_size=SIZE)
    return model.eval()


@torch.no_grad()
def photo_vector(model: Classifier, image: Picture) -> Tensor:
    """Return the vector of a photo, of unit length.

    Args:
        model: The frozen network.
        image: (H, W, 3) uint8.
    """
    last = len(model.blocks) - 1
    tokens = photo_features(model, [last], SIZE, image)
    parts = [tokens.values[0].mean(0)]
    if tokens.class_token is not None:
        parts.append(tokens.class_token)
    both = torch.cat(parts).float().cpu()
    unit: Tensor = both / both.norm().clamp(min=1e-6)
    return unit


def order_by_similarity(vectors: Tensor) -> list[int]:
    """Return photos in an order in which neighbours are alike.

    From the photo nearest to the centre on, the nearest of those that are left comes next.

    Args:
        vectors: (N, F) of unit length.
    """
    count = len(vectors)
    if not count:
        return []
    similar = (vectors @ vectors.T).numpy()  # (N, N)
    left = np.ones(count, bool)
    now = int((vectors @ vectors.mean(0)).argmax())
    order = []
    for _ in range(count):
        order.append(now)
        left[now] = False
        now = int(np.where(left, similar[now], -np.inf).argmax())
    return order


def suggest(vectors: Tensor, tags: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Return which photos probably lack a tag, and which have one that is unlikely.

    Args:
        vectors: (N, F).
        tags: The tags of each photo; photos without any are taken as not looked at yet.

    Returns:
        For each tag with enough photos its name, ``likely`` and ``unlikely`` as pairs of a photo
        and a probability, the surest first.
    """
    seen = [i for i, names in enumerate(tags) if names]
    unseen = [i for i, names in enumerate(tags) if not names]
    counts: dict[str, int] = {}
    for names in tags:
        for name in names:
            counts[name] = counts.get(name, 0) + 1
    usable = sorted(name for name, count in counts.items() if LEAST <= count <= len(seen) - LEAST)
    if not usable:
        return []
    targets = torch.zeros(len(seen), len(usable))
    for row, i in enumerate(seen):
        for k, name in enumerate(usable):
            targets[row, k] = float(name in tags[i])
    known = vectors[seen]
    centre = known.mean(0)
    scale = known.std(0).clamp(min=1e-6)
    features = (known - centre) / scale
    held_out = torch.sigmoid(cross_validate(features, targets, STRENGTH, balanced=True))
    weight, bias = fit_logistic(features, targets, STRENGTH, balanced=True)
    others = torch.sigmoid(((vectors[unseen] - centre) / scale) @ weight.T + bias)
    suggestions = []
    for k, name in enumerate(usable):
        likely = [(i, float(others[row, k])) for row, i in enumerate(unseen)]
        likely += [
            (i, float(held_out[row, k])) for row, i in enumerate(seen) if not targets[row, k]
        ]
        unlikely = [(i, float(held_out[row, k])) for row, i in enumerate(seen) if targets[row, k]]
        suggestions.append(
            {
                "tag": name,
                "likely": _chosen(likely, lambda p: p >= LIKELY, -1),
                "unlikely": _chosen(unlikely, lambda p: p <= UNLIKELY, 1),
            }
        )
    return suggestions


def _chosen(
    scored: list[tuple[int, float]], is_chosen: Callable[[float], bool], sign: int
) -> list[tuple[int, float]]:
    """Return the chosen photos with their probability, the surest first."""
    chosen = [(i, round(score, 3)) for i, score in scored if is_chosen(score)]
    return sorted(chosen, key=lambda pair: sign * pair[1])[:MOST]
