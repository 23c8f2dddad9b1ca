"""Class localisation maps from class gradients of the attention (paper §3.3, Eq. 7 and 8).

    M*^c = Σ_{last k blocks} mean_heads( relu(g_i^c) )        "ACR*", without affinity
    M^c  = ( Σ_blocks Ā_i[1:, 1:] ) · M*^c                    "ACR", with affinity

ReLU comes before the mean over heads. The paper writes the product as a row vector times A (Aᵀg); here each patch
collects evidence from the patches it attends to (A·g), as the authors' code does; ``transpose`` gives Aᵀg. The paper
takes the affinity of all blocks; ``affinity_blocks`` chooses others. ``compete`` and ``propagation`` are not the
paper's (see ``tagmask.acr.competition``) and off by default.

``centre`` is not the paper's either, and off by default. A row of attention sums to 1: it can move between tokens but
not grow, so a number added to all of g changes nothing that the network can do, and where relu cuts is arbitrary. With
``centre`` it cuts at the mean over the patches: what is left speaks for the class more than the average patch does.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from tagmask.acr.competition import propagate, share
from tagmask.errors import TagmaskError

PADDING = -1  # in place of a class where an image has fewer classes than another of its batch


class Localizable(Protocol):
    """What a model must offer: its blocks, the grid of an image, and maps without affinity together with attention.

    ``evidence`` gives an object with ``plain_maps(centre)`` (B, K, n) and ``attention``, a list of (B, T+n, T+n); T is
    ``class_tokens``. How plain maps are made is the model's own: class gradients here, see
    ``tagmask.methods.fusion`` for
    models with a class token per class.
    """

    @property
    def blocks(self) -> Any: ...
    @property
    def class_tokens(self) -> int: ...
    @property
    def map_layers(self) -> int: ...
    def grid(self, height: int, width: int) -> tuple[int, int]: ...
    def evidence(self, images: Tensor, classes: Tensor, layers: int, affinity_blocks: range) -> Any: ...


def gradient_map(gradients: Sequence[Tensor], layers: int | None = None, centre: bool = False) -> Tensor:
    """Sum over the last ``layers`` of the head mean of relu; each gradient is (…, heads, n), the result (…, n)."""
    chosen = gradients[-layers:] if layers is not None else gradients
    if centre:
        chosen = [gradient - gradient.mean(dim=-1, keepdim=True) for gradient in chosen]
    return torch.stack([gradient.relu().mean(dim=-2) for gradient in chosen]).sum(0)


def affinity(attention: Sequence[Tensor], class_tokens: int = 1) -> Tensor:
    """Sum over blocks of the patch-to-patch part: each attention is (…, T+n, T+n), the result (…, n, n)."""
    return torch.stack([one[..., class_tokens:, class_tokens:] for one in attention]).sum(0)


def refine(maps: Tensor, affinity: Tensor, transpose: bool = False) -> Tensor:
    """A·g for maps (…, K, n) and affinity (…, n, n): each patch collects from what it attends to; or Aᵀg."""
    return maps @ affinity if transpose else maps @ affinity.transpose(-2, -1)


def pad_classes(classes: Sequence[Sequence[int]]) -> Tensor:
    """Lists of classes, one per image, to (B, K) filled up with −1; K is at least 1."""
    negative = [number for one in classes for number in one if number < 0]
    if negative:
        raise TagmaskError(f"class {negative[0]} does not exist; classes are counted from 0.")
    width = max([1, *(len(one) for one in classes)])
    return torch.tensor([[*one, *[PADDING] * (width - len(one))] for one in classes])


def localize_both(
    model: Localizable,
    images: Tensor,
    classes: Sequence[Sequence[int]],
    *,
    layers: int | None = None,
    affinity_blocks: range | None = None,
    transpose: bool = False,
    compete: bool = False,
    propagation: float = 0.0,
    centre: bool = False,
) -> tuple[list[Tensor], list[Tensor]]:
    """Maps without and with affinity of each image, each (k, h, w), from one pass; see ``localize``."""
    blocks = affinity_blocks if affinity_blocks is not None else range(len(model.blocks))
    if not blocks:
        raise TagmaskError("affinity_blocks is empty; name at least one block, or ask for maps without affinity.")
    grid = model.grid(*images.shape[-2:])
    found = _evidence(model, images, classes, layers, blocks)
    plain = found.plain_maps(centre)  # (B, K, n)
    pairs = affinity(found.attention, model.class_tokens)  # (B, n, n)
    cut, refined = list[Tensor](), list[Tensor]()
    for one, maps, pair in zip(classes, plain, pairs, strict=True):
        own = maps[: len(one)]  # (k, n)
        rivals = share(own) if compete and len(own) else own
        spread = propagate(rivals, pair, propagation, transpose=transpose) if propagation else None
        cut.append(own.unflatten(-1, grid))
        refined.append((refine(rivals, pair, transpose) if spread is None else spread).unflatten(-1, grid))
    return cut, refined


def localize(
    model: Localizable,
    images: Tensor,
    classes: Sequence[Sequence[int]],
    layers: int | None = None,
    affinity: bool = True,
    affinity_blocks: range | None = None,
    transpose: bool = False,
    compete: bool = False,
    propagation: float = 0.0,
    centre: bool = False,
) -> list[Tensor]:
    """Localisation maps of a batch of images that may carry different classes.

    Args:
        model: a ``tagmask.Classifier``, or one with a class token per class.
        images: normalised, (B, 3, H, W), H and W multiples of the patch size.
        classes: for each image the classes to localise.
        layers: how many last blocks give gradients, by default two, best and fast; with a class token per class, how
            many give attention, by default three.
        affinity: refine by the patch affinity (ACR) or not (ACR*).
        affinity_blocks: blocks whose attention makes the affinity; default: all.
        transpose: propagate by Aᵀ instead of A.
        compete: with affinity, weight each class by its softmax share against the others first.
        propagation: with affinity, a walk with restart of this strength, e.g. 0.8, instead of one product.
        centre: gradients are taken against their mean over the patches; not the paper's, better where measured.

    Returns:
        For each image (k, h, w) on the token grid, not normalised, values ≥ 0.
    """
    if affinity:
        options: dict[str, Any] = {"layers": layers, "affinity_blocks": affinity_blocks, "transpose": transpose}
        options |= {"compete": compete, "propagation": propagation, "centre": centre}
        return localize_both(model, images, classes, **options)[1]
    grid = model.grid(*images.shape[-2:])
    plain = _evidence(model, images, classes, layers, range(0)).plain_maps(centre)  # (B, K, n)
    return [plain[i, : len(one)].unflatten(-1, grid) for i, one in enumerate(classes)]


def _evidence(
    model: Localizable, images: Tensor, classes: Sequence[Sequence[int]], layers: int | None, blocks: range
) -> Any:
    chosen = model.map_layers if layers is None else layers
    return model.evidence(images, pad_classes(classes).to(images.device), chosen, blocks)
