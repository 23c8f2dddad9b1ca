"""The two consistency losses of ACR (paper Eq. 1 and 2).

Both compare the head-mean attention Ā of an image with the restored one of its view: the class
token's row (region activation) and the patch-to-patch part (region affinity). Mean-reduced; what
the patches attend to in the class token is not regularised; both views receive gradient. A model
with T class tokens (``class_tokens``) has T rows of activation, and what is given to class tokens
is compared for neither class tokens nor patches.

Rows of attention sum to one, so a mean of |differences| over entries shrinks as 1/n, and a mean of
squares (l2, and smooth_l1 below 1) as 1/n². The paper's α = β = 100 were chosen on its 24×24 grid.
Deviation: ``strength`` keeps their effect on another grid; ``absolute`` gives the paper's plain α.
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


def consistency_losses(
    attention: Tensor, restored: Tensor, distance: str = "l1", class_tokens: int = 1
) -> tuple[Tensor, Tensor]:
    """Return L_act and L_aff, the distances of two attentions.

    Args:
        attention: Ā (…, T+n, T+n) of the images.
        restored: Ā of their views, brought back to the images' grid; of the same shape.
        distance: Name of one of ``DISTANCES``.
        class_tokens: T, the number of class tokens, which stand first.

    Returns:
        Two numbers, each a mean over batch, blocks and entries.

    Raises:
        ValueError: If there is no such distance, or if the shapes differ.
    """
    if distance not in DISTANCES:
        raise ValueError(f"there is no distance {distance!r}; choose from {', '.join(DISTANCES)}")
    if attention.shape != restored.shape:
        raise ValueError(
            f"attentions differ in shape, {tuple(attention.shape)} and {tuple(restored.shape)}; "
            "restore one first"
        )
    entries = DISTANCES[distance](attention, restored, reduction="none")  # (…, T+n, T+n)
    rows = entries[..., class_tokens:].mean(
        dim=-1
    )  # (…, T+n): a slice of the whole matrix costs less than two
    return rows[..., :class_tokens].mean(), rows[..., class_tokens:].mean()


def strength(weight: float, patches: int, absolute: bool = False, distance: str = "l1") -> float:
    """Return α or β for a grid of ``patches`` tokens.

    Args:
        weight: α or β as given for the reference grid of 24×24 patches.
        patches: Number of patches of the grid.
        absolute: Return ``weight`` itself, as the paper has it.
        distance: Name of the distance; squares shrink faster with the grid.

    Returns:
        The factor on the loss.
    """
    return (
        weight
        if absolute
        else weight * (patches / REFERENCE_PATCHES) ** (1 if distance == "l1" else 2)
    )
