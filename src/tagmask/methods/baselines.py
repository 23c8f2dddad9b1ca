"""Localisation maps of other methods on the same classifier.

- ``weighted``  Not from a paper: the class gradients of ACR, each weighted by the attention it belongs to,
                Σ_{last k blocks} mean_heads relu(A_i[0, 1:] ⊙ g_i^c), by the same shortcut.
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
- ``legrad``    Bousselham et al. 2024, LeGrad. The head is read behind every block, the gradient taken with respect to
                the attention of that block alone: Σ_blocks mean over heads and queries of relu(∂s_i/∂A_i). The head
                reads the class token, so all queries but that one add zero.
- ``rollout``   Abnar and Zuidema 2020, Quantifying Attention Flow in Transformers. Product over blocks of ½Ā + ½I, rows
                normalised; row 0 at the patches: the same map for every class.

``generic`` and ``rollout`` need row 0 of a product of matrices only: it is carried as a row vector from the last block
to the first, for ``generic`` during the backward pass (``tagmask.methods.relevance``). Only ``legrad`` keeps the
attention of single heads.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from tagmask.acr.gradients import Network, class_rows
from tagmask.acr.localize import Maps, gradient_map
from tagmask.methods.relevance import relevance
from tagmask.methods.trace import block_gradients, head_weight, plain_pass, token_gradients


def weighted(
    model: Network, images: Tensor, classes: Tensor, blocks: range, *, layers: int | None = None
) -> Maps:
    """Class gradients of the last ``layers`` blocks (default 2), weighted by the class token's attention."""
    last = class_rows(
        model, images, classes, model.map_layers if layers is None else layers, blocks
    )
    products = [
        row.unsqueeze(1) * gradient for row, gradient in zip(last.rows, last.gradients, strict=True)
    ]
    return Maps(gradient_map(products), last.attention)  # products are (B, K, heads, n)


def cam(model: Network, images: Tensor, classes: Tensor, blocks: range) -> Maps:
    """Patch CAM."""
    features, means = plain_pass(model, images, blocks)
    return Maps(cam_map(features, head_weight(model)[classes]), [means[i] for i in blocks])


def ts_cam(model: Network, images: Tensor, classes: Tensor, blocks: range) -> Maps:
    """Patch CAM × class-token attention."""
    features, means = plain_pass(model, images, range(len(model.blocks)))
    coupled = class_attention(list(means.values())).unsqueeze(1)  # (B, 1, n)
    return Maps(
        cam_map(features, head_weight(model)[classes]) * coupled, [means[i] for i in blocks]
    )


def grad_cam(model: Network, images: Tensor, classes: Tensor, blocks: range) -> Maps:
    """Grad-CAM on the tokens that enter the last block."""
    tokens, gradients, means = token_gradients(model, images, classes, blocks)
    prefix = model.prefix
    return Maps(grad_cam_map(tokens[:, prefix:], gradients[:, :, prefix:]), means)


def generic(model: Network, images: Tensor, classes: Tensor, blocks: range) -> Maps:
    """Generic attention explainability."""
    return Maps(*relevance(model, images, classes, blocks))


def legrad(model: Network, images: Tensor, classes: Tensor, blocks: range) -> Maps:
    """LeGrad."""
    means, gradients = block_gradients(model, images, classes)
    maps = torch.stack([gradient.relu().mean(dim=(2, 3)) for gradient in gradients]).sum(
        0
    )  # (B, K, N)
    return Maps(maps[..., model.prefix :], [model.without_extra_tokens(means[i]) for i in blocks])


def rollout(model: Network, images: Tensor, classes: Tensor, blocks: range) -> Maps:
    """Attention rollout: the same map for every class."""
    _, means = plain_pass(model, images, range(len(model.blocks)), extra=True)
    flow = rollout_map(list(means.values()), model.prefix)  # (B, n)
    attention = [model.without_extra_tokens(means[i]) for i in blocks]
    return Maps(flow.unsqueeze(1).repeat(1, classes.shape[1], 1), attention)


def cam_map(features: Tensor, weight: Tensor) -> Tensor:
    """relu(w · x) of features (B, n, D) and class weights (B, K, D): (B, K, n)."""
    return (weight @ features.transpose(-2, -1)).relu()


def class_attention(means: Sequence[Tensor]) -> Tensor:
    """Σ_blocks Ā[0, patches]: what the class token attends to; each Ā is (B, 1+n, 1+n), the result (B, n)."""
    return torch.stack([mean[:, 0, 1:] for mean in means]).sum(0)


def grad_cam_map(tokens: Tensor, gradients: Tensor) -> Tensor:
    """relu(Σ_d mean_patches(∂y/∂x)_d · x_d) of patch tokens (B, n, D) and gradients (B, K, n, D): (B, K, n)."""
    weight = gradients.mean(dim=-2)  # (B, K, D)
    return (weight @ tokens.transpose(-2, -1)).relu()


def rollout_map(means: Sequence[Tensor], prefix: int) -> Tensor:
    """Attention flow (B, n) from the patches to the class token; each Ā is (B, N, N), first block first."""
    identity = torch.eye(means[0].shape[-1]).to(means[0])
    row = identity[:1].expand(len(means[0]), -1, -1)  # (B, 1, N)
    for mean in reversed(means):
        mixed = (mean + identity) / 2  # (B, N, N)
        row = row @ (mixed / mixed.sum(dim=-1, keepdim=True))
    return row[:, 0, prefix:]
