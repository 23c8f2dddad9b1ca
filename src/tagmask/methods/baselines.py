"""Localisation maps of other methods on the same classifier, to compare ACR with.

- ``cam``       Zhou et al. 2016, Learning Deep Features for Discriminative Localization. The head's weight, without its
                bias, on the patch tokens after the final norm; ReLU. The head was trained on the class token.
- ``ts_cam``    Gao et al. 2021, TS-CAM: Token Semantic Coupled Attention Map. Patch CAM × class-token attention, the
                mean over heads summed over all blocks. The paper trains a convolution head on the patches; here the
                CAM is the one above, so that the classifier stays the same.
- ``grad_cam``  Selvaraju et al. 2017, Grad-CAM. On the tokens that enter the last block (those that leave it have
                gradient 0: the score reads the class token only). Channel weights are the mean of the gradient over
                the patches; ReLU of the weighted sum.
- ``generic``   Chefer et al. 2021, Generic Attention-model Explainability. Per block Ā = mean_heads relu(∇A ⊙ A),
                R ← R + Ā R from R = I; row 0 of R at the patches.
- ``rollout``   Abnar and Zuidema 2020, Quantifying Attention Flow in Transformers. Product over blocks of ½Ā + ½I, rows
                normalised; row 0 at the patches: the same map for every class.

The last two need row 0 of a product of matrices only: it is carried as a row vector from the last block to the first.
Every method is called alike: ``method(model, images, classes, affinity, affinity_blocks, transpose)`` gives for each
image (k, h, w) on the token grid, ≥ 0, not normalised. ``affinity`` refines the maps by the patch affinity, as in ACR.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from tagmask.acr.localize import Localizable, localize, pad_classes, refine
from tagmask.acr.localize import affinity as summed
from tagmask.errors import TagmaskError


class Traceable(Localizable, Protocol):
    """What a model must offer: what ACR needs, and a trace of everything."""

    def trace(self, images: Tensor, classes: Tensor, gradients: bool = True) -> Any: ...


class Method(Protocol):
    """How every method is called; see ``tagmask.acr.localize.localize`` for the arguments."""

    def __call__(
        self,
        model: Traceable,
        images: Tensor,
        classes: Sequence[Sequence[int]],
        affinity: bool = ...,
        affinity_blocks: range | None = None,
        transpose: bool = False,
    ) -> list[Tensor]: ...


def cam_map(features: Tensor, weight: Tensor) -> Tensor:
    """relu(w · x) of features (B, n, D) and class weights (B, K, D): (B, K, n)."""
    return (weight @ features.transpose(-2, -1)).relu()


def class_attention(attention: Sequence[Tensor], prefix: int) -> Tensor:
    """What the class token attends to, Σ_blocks mean_heads A[0, patches]; A is (B, heads, N, N): (B, n)."""
    return torch.stack([one[:, :, 0, prefix:].mean(dim=1) for one in attention]).sum(0)


def grad_cam_map(tokens: Tensor, gradients: Tensor) -> Tensor:
    """relu(Σ_d mean_patches(∂y/∂x)_d · x_d) of patch tokens (B, n, D) and gradients (B, K, n, D): (B, K, n)."""
    weight = gradients.mean(dim=-2)  # (B, K, D)
    return (weight @ tokens.transpose(-2, -1)).relu()


def generic_map(attention: Sequence[Tensor], gradients: Sequence[Tensor], prefix: int) -> Tensor:
    """Relevance (B, K, n) of attention (B, heads, N, N) and its gradients (B, K, heads, N, N), first block first."""
    batch, count, _, _, tokens = gradients[0].shape
    row = torch.zeros(batch, count, 1, tokens).to(gradients[0])
    row[..., 0] = 1
    for one, gradient in zip(reversed(attention), reversed(gradients), strict=True):
        row = row + row @ (gradient * one.unsqueeze(1)).relu().mean(dim=2)  # (B, K, 1, N)
    return row[..., 0, prefix:]


def rollout_map(attention: Sequence[Tensor], prefix: int) -> Tensor:
    """Attention flow (B, n) from the patches to the class token; attention is (B, heads, N, N), first block first."""
    identity = torch.eye(attention[0].shape[-1]).to(attention[0])
    row = identity[:1].expand(len(attention[0]), -1, -1)  # (B, 1, N)
    for one in reversed(attention):
        mixed = (one.mean(dim=1) + identity) / 2  # (B, N, N)
        row = row @ (mixed / mixed.sum(dim=-1, keepdim=True))
    return row[:, 0, prefix:]


def compared(gradients: bool) -> Callable[[Callable[[Any, Tensor], Tensor]], Method]:
    """Make a rule (trace, classes (B, K)) -> maps (B, K, n) a method; ``gradients`` says whether it needs any."""

    def with_rule(rule: Callable[[Any, Tensor], Tensor]) -> Method:
        def method(
            model: Traceable,
            images: Tensor,
            classes: Sequence[Sequence[int]],
            affinity: bool = False,
            affinity_blocks: range | None = None,
            transpose: bool = False,
        ) -> list[Tensor]:
            padded = pad_classes(classes).to(images.device)  # (B, K)
            trace = model.trace(images, padded, gradients)
            maps = rule(trace, padded)  # (B, K, n)
            if affinity:
                maps = refine(maps, patch_affinity(trace, affinity_blocks), transpose)
            return [maps[i, : len(one)].unflatten(-1, trace.grid) for i, one in enumerate(classes)]

        method.__name__, method.__qualname__, method.__doc__ = rule.__name__, rule.__qualname__, rule.__doc__
        return method

    return with_rule


def patch_affinity(trace: Any, blocks: range | None) -> Tensor:
    """Sum over ``blocks`` (default: all) of the head mean of the patch-to-patch attention: (B, n, n)."""
    depth = len(trace.attention)
    chosen = blocks if blocks is not None else range(depth)
    check_blocks(chosen, depth)
    first = trace.prefix - 1  # ``affinity`` leaves out one more token
    return summed([trace.attention[i][..., first:, first:].mean(dim=1) for i in chosen])


def check_blocks(blocks: range, depth: int) -> None:
    """Refuse blocks that a model of this depth has not."""
    if not blocks or min(blocks) < 0 or max(blocks) >= depth:
        raise TagmaskError(f"blocks {blocks} do not exist; this model has blocks 0 to {depth - 1}.")


@compared(gradients=False)
def cam(trace: Any, classes: Tensor) -> Tensor:
    """Patch CAM."""
    return cam_map(trace.features, trace.weight[classes])


@compared(gradients=False)
def ts_cam(trace: Any, classes: Tensor) -> Tensor:
    """Patch CAM × class-token attention."""
    coupled = class_attention(trace.attention, trace.prefix).unsqueeze(1)  # (B, 1, n)
    return cam_map(trace.features, trace.weight[classes]) * coupled


@compared(gradients=True)
def grad_cam(trace: Any, classes: Tensor) -> Tensor:
    """Grad-CAM on the tokens that enter the last block."""
    return grad_cam_map(trace.tokens[:, trace.prefix :], trace.token_gradients[:, :, trace.prefix :])


@compared(gradients=True)
def generic(trace: Any, classes: Tensor) -> Tensor:
    """Generic attention explainability."""
    return generic_map(trace.attention, trace.gradients, trace.prefix)


@compared(gradients=False)
def rollout(trace: Any, classes: Tensor) -> Tensor:
    """Attention rollout: the same map for every class."""
    return rollout_map(trace.attention, trace.prefix).unsqueeze(1).expand(-1, classes.shape[1], -1)


def acr(
    model: Traceable,
    images: Tensor,
    classes: Sequence[Sequence[int]],
    affinity: bool = True,
    affinity_blocks: range | None = None,
    transpose: bool = False,
) -> list[Tensor]:
    """ACR: ``localize`` with the last two blocks. Of a model with a class token per class its own maps."""
    options: dict[str, Any] = {"affinity_blocks": affinity_blocks, "transpose": transpose}
    return localize(model, images, classes, affinity=affinity, **options)


def acr_star(
    model: Traceable,
    images: Tensor,
    classes: Sequence[Sequence[int]],
    affinity: bool = False,
    affinity_blocks: range | None = None,
    transpose: bool = False,
) -> list[Tensor]:
    """ACR*: without affinity unless asked for."""
    return acr(model, images, classes, affinity, affinity_blocks, transpose)


METHODS: dict[str, Method] = {
    "cam": cam,
    "ts_cam": ts_cam,
    "grad_cam": grad_cam,
    "generic": generic,
    "rollout": rollout,
    "acr*": acr_star,
    "acr": acr,
}
"""Name to method. Called without ``affinity``, only ``acr`` refines."""
