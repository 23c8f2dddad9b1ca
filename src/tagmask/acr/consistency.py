"""The two consistency losses of ACR (paper Eq. 1 and 2).

Both compare the head-mean attention Ā of an image with the restored one of its view: the class token's row
(region activation) and the patch-to-patch part (region affinity). Mean-reduced; the patches' attention to the
class token is not regularised; both views receive gradient. A model with T class tokens (``class_tokens``) has T rows
of activation, and neither class token nor patch is compared in what it gives to class tokens.

Rows of attention sum to one, so a mean over entries shrinks as 1/n. The paper's α = β = 100 belong to its
24×24 grid; ``strength`` keeps their effect on another grid (``absolute`` gives the paper's plain α).
"""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

DISTANCES: dict[str, Callable[..., Tensor]] = {
    "l1": F.l1_loss,
    "l2": F.mse_loss,
    "smooth_l1": F.smooth_l1_loss,
}
REFERENCE_PATCHES = 24 * 24  # the grid at which the paper chose α and β


def activation_loss(attention: Tensor, restored: Tensor, distance: str = "l1", class_tokens: int = 1) -> Tensor:
    """Distance of the class tokens' rows of two attentions (…, T+n, T+n), mean over all entries."""
    first, second = (one[..., :class_tokens, class_tokens:] for one in _checked(attention, restored))
    return _distance(distance)(first, second)


def affinity_loss(attention: Tensor, restored: Tensor, distance: str = "l1", class_tokens: int = 1) -> Tensor:
    """Distance of the patch-to-patch parts of two attentions (…, T+n, T+n), mean over all entries."""
    first, second = (one[..., class_tokens:, class_tokens:] for one in _checked(attention, restored))
    return _distance(distance)(first, second)


def consistency_losses(
    attention: Tensor, restored: Tensor, distance: str = "l1", class_tokens: int = 1
) -> tuple[Tensor, Tensor]:
    """``activation_loss`` and ``affinity_loss`` at once, by one pass over the matrices instead of a slice for each."""
    entries = _distance(distance)(*_checked(attention, restored), reduction="none")  # (…, T+n, T+n)
    rows = entries[..., class_tokens:].mean(dim=-1)  # (…, T+n)
    return rows[..., :class_tokens].mean(), rows[..., class_tokens:].mean()


def strength(weight: float, patches: int, absolute: bool = False) -> float:
    """α or β given at the reference grid, for a grid of ``patches`` tokens."""
    return weight if absolute else weight * patches / REFERENCE_PATCHES


def _distance(name: str) -> Callable[..., Tensor]:
    if name not in DISTANCES:
        raise ValueError(f"there is no distance {name!r}; choose from {', '.join(DISTANCES)}")
    return DISTANCES[name]


def _checked(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    if first.shape != second.shape:
        raise ValueError(
            f"attentions differ in shape, {tuple(first.shape)} and {tuple(second.shape)}; restore one first"
        )
    return first, second
