"""Class localisation maps from class gradients of the attention (paper §3.3, Eq. 7 and 8).

    M*^c = Σ_{last k blocks} mean_heads( relu(g_i^c) )        "ACR*", without affinity
    M^c  = ( Σ_blocks Ā_i[1:, 1:] ) · M*^c                    "ACR", with affinity

ReLU comes before the mean over heads. The paper writes the product as a row vector times A (Aᵀg);
here each patch collects evidence from the patches it attends to (A·g), as the authors' code does;
``transpose`` gives Aᵀg. The paper takes the affinity of all blocks; ``affinity_blocks`` chooses
others.

Not the paper's, and off by default (``docs/how-to/seeds.md`` says where they help and what else was
tried):

- ``affinity_steps`` repeats the product.
- ``centre`` subtracts the mean over the patches from the gradients. A row of attention sums to 1:
  it can move between tokens but not grow, so a constant added to all of g changes nothing that the
  network can do, and where relu cuts is arbitrary. With ``centre`` it cuts at the mean: what is
  left speaks for the class more than the average patch does.

``localize`` serves every map method, not only ACR's: see ``MapMethod`` and ``tagmask.methods``.
"""

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tagmask.acr.gradients import Network, check_blocks, class_rows
from tagmask.errors import TagmaskError

Classes = Sequence[Sequence[int]]  # for each image the numbers of its classes
PADDING = -1  # fills up the classes of an image that has fewer than others in its batch


@dataclass
class Maps:
    """Hold what a map method gives for B images with K classes each (padded) on n patches."""

    plain: Tensor  # maps without affinity (B, K, n), values ≥ 0, not normalised
    attention: list[
        Tensor
    ]  # Ā (B, T+n, T+n) of the blocks asked for: T class tokens, then the patches


MapMethod = Callable[..., Maps]
"""``method(model, images, classes, blocks, **options) -> Maps``.

``images`` (B, 3, H, W) are normalised, ``classes`` (B, K) are class numbers filled up with −1,
whose maps are ignored, and ``blocks`` are those whose attention is wanted. Options are keyword-only
arguments with defaults.
"""


def acr(
    model: Network,
    images: Tensor,
    classes: Tensor,
    blocks: range,
    *,
    layers: int | None = None,
    centre: bool = False,
) -> Maps:
    """Return ACR's own maps, from class gradients of the last blocks.

    Args:
        model: A classifier with one class token and a head.
        images: Normalised images (B, 3, H, W).
        classes: Class numbers (B, K); −1 is padding.
        blocks: Blocks whose attention is returned.
        layers: Number of last blocks whose gradients are used; None means the model's own
            ``map_layers``, which is two where nothing else was decided.
        centre: Subtract the mean over the patches from the gradients before relu.

    Returns:
        Maps without affinity (B, K, n), and the attention of ``blocks``.
    """
    last = class_rows(
        model, images, classes, model.map_layers if layers is None else layers, blocks
    )
    return Maps(gradient_map(last.gradients, centre), last.attention)


def gradient_map(gradients: Sequence[Tensor], centre: bool = False) -> Tensor:
    """Return the sum over blocks of the head mean of relu (paper Eq. 7).

    Args:
        gradients: For each block (…, heads, n).
        centre: Subtract the mean over the patches first.

    Returns:
        (…, n), values ≥ 0.
    """
    if centre:
        gradients = [gradient - gradient.mean(dim=-1, keepdim=True) for gradient in gradients]
    return torch.stack([gradient.relu().mean(dim=-2) for gradient in gradients]).sum(0)


def affinity(attention: Sequence[Tensor], class_tokens: int = 1) -> Tensor:
    """Return the sum over blocks of the patch-to-patch part of the attention.

    Args:
        attention: For each block (…, T+n, T+n).
        class_tokens: T, which stand first.

    Returns:
        (…, n, n).
    """
    return torch.stack([mean[..., class_tokens:, class_tokens:] for mean in attention]).sum(0)


def refine(maps: Tensor, affinity: Tensor, transpose: bool = False, steps: int = 1) -> Tensor:
    """Refine maps by affinity: each patch collects from what it attends to (paper Eq. 8).

    One step is the product A·g as it stands. With more, A (or Aᵀ) is first divided by its row sums,
    so that every step is an average over patches, and applied ``steps`` times: Ã^s·g.

    Args:
        maps: (…, K, n).
        affinity: (…, n, n).
        transpose: Use Aᵀ instead of A.
        steps: How often the affinity is applied, 1 or more.

    Returns:
        (…, K, n).

    Raises:
        TagmaskError: If there are no steps.
    """
    if steps < 1:
        raise TagmaskError(
            f"affinity_steps is {steps}; give 1 or more, or take the maps without affinity."
        )
    pairs = affinity.transpose(-2, -1) if transpose else affinity
    if steps > 1:
        pairs = pairs / pairs.sum(-1, keepdim=True)
    for _ in range(steps):
        maps = maps @ pairs.transpose(-2, -1)
    return maps


def pad_classes(classes: Classes) -> Tensor:
    """Return lists of classes, one per image, as (B, K) filled up with −1; K is at least 1.

    Raises:
        TagmaskError: If a class is negative.
    """
    negative = [number for numbers in classes for number in numbers if number < 0]
    if negative:
        raise TagmaskError(f"class {negative[0]} does not exist; classes are counted from 0.")
    width = max([1, *(len(numbers) for numbers in classes)])
    padded = torch.full((len(classes), width), PADDING)  # (B, K)
    for row, numbers in zip(padded, classes, strict=True):
        row[: len(numbers)] = torch.tensor(list(numbers), dtype=row.dtype)
    return padded


def localize_both(
    model: Network,
    images: Tensor,
    classes: Classes,
    method: MapMethod = acr,
    *,
    affinity_blocks: range | None = None,
    transpose: bool = False,
    affinity_steps: int = 1,
    **options: Any,
) -> tuple[list[Tensor], list[Tensor]]:
    """Return maps without and with affinity of a batch of images, from one pass.

    Args:
        model: A ``tagmask.Classifier``.
        images: Normalised images (B, 3, H, W), H and W multiples of the patch size.
        classes: For each image the classes to localise.
        method: How maps are made; ``tagmask.methods`` has others.
        affinity_blocks: Blocks whose attention makes the affinity; None means all.
        transpose: Propagate by Aᵀ instead of A.
        affinity_steps: How often the affinity is applied; see ``refine``.
        **options: Options of the method.

    Returns:
        For each image (k, h, w) without affinity, and for each image (k, h, w) with it.

    Raises:
        TagmaskError: If blocks, classes or options do not belong to the model or the method.
    """
    blocks = affinity_blocks if affinity_blocks is not None else range(len(model.blocks))
    if not blocks:
        raise TagmaskError(
            "affinity_blocks is empty; name at least one block, or ask for maps without affinity."
        )
    maps = _maps(model, images, classes, method, blocks, options)
    pairs = affinity(maps.attention, model.class_tokens)  # (B, n, n)
    grid = model.grid(*images.shape[-2:])
    plain, refined = list[Tensor](), list[Tensor]()
    for numbers, padded, pair in zip(classes, maps.plain, pairs, strict=True):
        image_maps = padded[: len(numbers)]  # (k, n)
        plain.append(image_maps.unflatten(-1, grid))
        spread = refine(image_maps, pair, transpose, affinity_steps)
        refined.append(spread.unflatten(-1, grid))
    return plain, refined


def localize(
    model: Network,
    images: Tensor,
    classes: Classes,
    method: MapMethod = acr,
    *,
    affinity: bool = True,
    **options: Any,
) -> list[Tensor]:
    """Return localisation maps of a batch of images that may carry different classes.

    Args:
        model: A ``tagmask.Classifier``.
        images: Normalised images (B, 3, H, W), H and W multiples of the patch size.
        classes: For each image the classes to localise.
        method: How maps are made; ``tagmask.methods`` has others, one of them for MCTformer.
        affinity: Refine by the patch affinity (ACR) or not (ACR*).
        **options: Options of the method, for example ``layers`` and ``centre``, and with affinity
            ``affinity_blocks``: blocks whose attention makes the affinity; default: all.
            ``transpose``: propagate by Aᵀ instead of A.
            ``affinity_steps``: how often; see ``refine``.

    Returns:
        For each image (k, h, w) on the token grid, not normalised, values ≥ 0.

    Raises:
        TagmaskError: If blocks, classes or options do not belong to the model or the method.
    """
    if affinity:
        return localize_both(model, images, classes, method, **options)[1]
    grid = model.grid(*images.shape[-2:])
    plain = _maps(model, images, classes, method, range(0), options).plain  # (B, K, n)
    return [
        padded[: len(numbers)].unflatten(-1, grid)
        for numbers, padded in zip(classes, plain, strict=True)
    ]


def _maps(
    model: Network,
    images: Tensor,
    classes: Classes,
    method: MapMethod,
    blocks: range,
    options: dict[str, Any],
) -> Maps:
    """Return the method's maps, after a check of everything that does not depend on the method."""
    check_blocks(model, blocks)
    model.grid(*images.shape[-2:])
    if len(classes) != len(images):
        raise TagmaskError(
            f"classes were given for {len(classes)} images, but there are {len(images)}; "
            "give one list each."
        )
    largest = max((number for numbers in classes for number in numbers), default=0)
    if largest >= model.num_classes:
        raise TagmaskError(
            f"class {largest} does not exist; this model knows classes 0 to "
            f"{model.num_classes - 1}."
        )
    foreign = [name for name in options if name not in inspect.signature(method).parameters]
    if foreign:
        raise TagmaskError(
            f"{foreign[0]} is not an option of the map method {method.__name__}; leave it out."
        )
    padded = pad_classes(classes).to(images.device)  # (B, K)
    if not len(images):  # networks and gradients need at least one image
        patches = math.prod(model.grid(*images.shape[-2:]))
        tokens = model.class_tokens + patches
        attention = [images.new_zeros(0, tokens, tokens) for _ in blocks]
        return Maps(images.new_zeros(0, padded.shape[1], patches), attention)
    return method(model, images, padded, blocks, **options)
