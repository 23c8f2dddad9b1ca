"""Beyond the paper: classes that compete, and evidence that spreads in many steps.

The authors name a limit of their maps: classes do not compete, so connected or co-occurring objects over-activate.
Two remedies that use only what the model already gives; ``docs/seeds.md`` says where they help and what else was tried.

``share``      before the affinity spreads the maps, each class keeps, at each patch, its softmax share against the
               other tagged classes and a constant background.
``propagate``  instead of one product A·g, a walk with restart: x ← (1 − r)·g + r·A x. Evidence reaches patches that
               are related over several steps, and stays anchored where it came from.
"""

import torch
from torch import Tensor

from tagmask.errors import TagmaskError

TEMPERATURE = 0.5
BACKGROUND = 0.3
STEPS = 8


def share(maps: Tensor, temperature: float = TEMPERATURE, background: float = BACKGROUND) -> Tensor:
    """Maps (k, n) of the classes of one image, each stretched to [0, 1] and weighted by its softmax share."""
    low, high = maps.amin(-1, keepdim=True), maps.amax(-1, keepdim=True)  # (k, 1)
    stretched = (maps - low) / (high - low).clamp(min=torch.finfo(maps.dtype).tiny)  # (k, n)
    rivals = torch.cat([torch.full_like(stretched[:1], background), stretched])  # (k + 1, n)
    return stretched * (rivals / temperature).softmax(0)[1:]


def propagate(
    maps: Tensor, affinity: Tensor, strength: float = 0.8, steps: int = STEPS, transpose: bool = False
) -> Tensor:
    """Maps (…, K, n) after ``steps`` of a walk with restart on affinity (…, n, n), rows normalised.

    ``strength`` r is the share that comes along the affinity in each step; 1 − r comes from the map itself.
    """
    if not 0 < strength < 1:
        raise TagmaskError(f"the strength of the propagation is {strength}; it must lie between 0 and 1, e.g. 0.8.")
    pairs = affinity.transpose(-2, -1) if transpose else affinity
    pairs = pairs / pairs.sum(-1, keepdim=True)
    spread = maps
    for _ in range(steps):
        spread = (1 - strength) * maps + strength * (spread @ pairs.transpose(-2, -1))
    return spread
