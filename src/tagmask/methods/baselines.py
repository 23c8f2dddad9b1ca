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
- ``rollout``   Abnar and Zuidema 2020, Quantifying Attention Flow in Transformers. Product over blocks of ½Ā + ½I, rows
                normalised; row 0 at the patches: the same map for every class.

The last two need row 0 of a product of matrices only: it is carried as a row vector from the last block to the first.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from tagmask.acr.gradients import Network, class_rows
from tagmask.acr.localize import Maps, gradient_map
from tagmask.methods.trace import class_trace


def weighted(model: Network, images: Tensor, classes: Tensor, blocks: range, *, layers: int | None = None) -> Maps:
    """Class gradients of the last ``layers`` blocks (default 2), weighted by the class token's attention."""
    last = class_rows(model, images, classes, model.map_layers if layers is None else layers, blocks)
    products = [row.unsqueeze(1) * gradient for row, gradient in zip(last.rows, last.gradients, strict=True)]
    return Maps(gradient_map(products), last.attention)  # products are (B, K, heads, n)


def cam(model: Network, images: Tensor, classes: Tensor, blocks: range) -> Maps:
    """Patch CAM."""
    trace = class_trace(model, images, classes, gradients=False)
    return Maps(cam_map(trace.features, trace.weight[classes]), trace.means(model, blocks))


def ts_cam(model: Network, images: Tensor, classes: Tensor, blocks: range) -> Maps:
    """Patch CAM × class-token attention."""
    trace = class_trace(model, images, classes, gradients=False)
    coupled = class_attention(trace.attention, model.prefix).unsqueeze(1)  # (B, 1, n)
    return Maps(cam_map(trace.features, trace.weight[classes]) * coupled, trace.means(model, blocks))


def grad_cam(model: Network, images: Tensor, classes: Tensor, blocks: range) -> Maps:
    """Grad-CAM on the tokens that enter the last block."""
    trace = class_trace(model, images, classes)
    tokens, gradients = trace.tokens[:, model.prefix :], trace.token_gradients[:, :, model.prefix :]
    return Maps(grad_cam_map(tokens, gradients), trace.means(model, blocks))


def generic(model: Network, images: Tensor, classes: Tensor, blocks: range) -> Maps:
    """Generic attention explainability."""
    trace = class_trace(model, images, classes)
    relevance = generic_map(trace.attention, trace.gradients, model.prefix)  # (B, K, n)
    return Maps(relevance.clone(), trace.means(model, blocks))  # a view would change the last digits of the product


def rollout(model: Network, images: Tensor, classes: Tensor, blocks: range) -> Maps:
    """Attention rollout: the same map for every class."""
    trace = class_trace(model, images, classes, gradients=False)
    flow = rollout_map(trace.attention, model.prefix)  # (B, n)
    return Maps(flow.unsqueeze(1).repeat(1, classes.shape[1], 1), trace.means(model, blocks))


def cam_map(features: Tensor, weight: Tensor) -> Tensor:
    """relu(w · x) of features (B, n, D) and class weights (B, K, D): (B, K, n)."""
    return (weight @ features.transpose(-2, -1)).relu()


def class_attention(attention: Sequence[Tensor], prefix: int) -> Tensor:
    """Σ_blocks mean_heads A[0, patches]: what the class token attends to; A is (B, heads, N, N), the result (B, n)."""
    return torch.stack([heads[:, :, 0, prefix:].mean(dim=1) for heads in attention]).sum(0)


def grad_cam_map(tokens: Tensor, gradients: Tensor) -> Tensor:
    """relu(Σ_d mean_patches(∂y/∂x)_d · x_d) of patch tokens (B, n, D) and gradients (B, K, n, D): (B, K, n)."""
    weight = gradients.mean(dim=-2)  # (B, K, D)
    return (weight @ tokens.transpose(-2, -1)).relu()


def generic_map(attention: Sequence[Tensor], gradients: Sequence[Tensor], prefix: int) -> Tensor:
    """Relevance (B, K, n) of attention (B, heads, N, N) and its gradients (B, K, heads, N, N), first block first."""
    batch, count, _, _, tokens = gradients[0].shape
    row = torch.zeros(batch, count, 1, tokens).to(gradients[0])
    row[..., 0] = 1
    for heads, gradient in zip(reversed(attention), reversed(gradients), strict=True):
        row = row + row @ (gradient * heads.unsqueeze(1)).relu().mean(dim=2)  # (B, K, 1, N)
    return row[..., 0, prefix:]


def rollout_map(attention: Sequence[Tensor], prefix: int) -> Tensor:
    """Attention flow (B, n) from the patches to the class token; attention is (B, heads, N, N), first block first."""
    identity = torch.eye(attention[0].shape[-1]).to(attention[0])
    row = identity[:1].expand(len(attention[0]), -1, -1)  # (B, 1, N)
    for heads in reversed(attention):
        mixed = (heads.mean(dim=1) + identity) / 2  # (B, N, N)
        row = row @ (mixed / mixed.sum(dim=-1, keepdim=True))
    return row[:, 0, prefix:]
