"""Localisation maps of other methods on the same classifier.

``weighted``
    Not from a paper: the class gradients of ACR, each weighted by the attention it belongs to,
    Σ_{last k blocks} mean_heads relu(A_i[0, 1:] ⊙ g_i^c), by the same shortcut.
``cam``
    Zhou et al. 2016, Learning Deep Features for Discriminative Localization. The head's weight,
    without its bias, on the patch tokens after the final norm; ReLU. The head was trained on the
    class token.
``ts_cam``
    Gao et al. 2021, TS-CAM: Token Semantic Coupled Attention Map. Patch CAM × class-token
    attention, the mean over heads summed over all blocks. The paper trains a convolution head on
    the patches; here the CAM is the one above, so that the classifier stays the same.
``grad_cam``
    Selvaraju et al. 2017, Grad-CAM. On the tokens that enter the last block (those that leave it
    have gradient 0: the score reads the class token only). Channel weights are the mean of the
    gradient over the patches; ReLU of the weighted sum.
``generic``
    Chefer et al. 2021, Generic Attention-model Explainability. Per block
    Ā = mean_heads relu(∇A ⊙ A), R ← R + Ā R from R = I; row 0 of R at the patches.
``legrad``
    Bousselham et al. 2024, LeGrad. The head is read behind every block, the gradient taken with
    respect to the attention of that block alone: Σ_blocks mean over heads and queries of
    relu(∂s_i/∂A_i). The head reads the class token, so all queries but that one add zero.
``rollout``
    Abnar and Zuidema 2020, Quantifying Attention Flow in Transformers. Product over blocks of
    ½Ā + ½I, rows normalised; row 0 at the patches: the same map for every class.

``generic`` and ``rollout`` need row 0 of a product of matrices only: it is carried as a row vector
from the last block to the first, for ``generic`` during the backward pass
(``tagmask.methods.relevance``). Only ``legrad`` keeps the attention of single heads.

All methods take the same arguments: the classifier ``model``, normalised ``images`` (B, 3, H, W),
the ``classes`` (B, K) whose maps are wanted (−1 = padding), and the ``blocks`` whose attention is
wanted for the affinity.
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
    """Return class gradients, each weighted by the class token's attention.

    Args:
        model: the classifier.
        images: (B, 3, H, W), normalised.
        classes: (B, K); −1 = padding.
        blocks: the blocks whose attention is returned.
        layers: how many last blocks make the map (default: the model's ``map_layers``, 2).
    """
    if layers is None:
        layers = model.map_layers
    last = class_rows(model, images, classes, layers, blocks)
    products = []
    for row, gradient in zip(last.rows, last.gradients, strict=True):
        products.append(row.unsqueeze(1) * gradient)  # (B, K, heads, n)
    return Maps(gradient_map(products), last.attention)


def cam(model: Network, images: Tensor, classes: Tensor, blocks: range) -> Maps:
    """Return the patch CAM.

    Args:
        model: the classifier.
        images: (B, 3, H, W), normalised.
        classes: (B, K); −1 = padding.
        blocks: the blocks whose attention is returned.
    """
    features, means = plain_pass(model, images, blocks)
    weight = head_weight(model)[classes]  # (B, K, D)
    return Maps(cam_map(features, weight), [means[i] for i in blocks])


def ts_cam(model: Network, images: Tensor, classes: Tensor, blocks: range) -> Maps:
    """Return the patch CAM times the class token's attention.

    Args:
        model: the classifier.
        images: (B, 3, H, W), normalised.
        classes: (B, K); −1 = padding.
        blocks: the blocks whose attention is returned; the map reads that of all blocks.
    """
    every_block = range(len(model.blocks))
    features, means = plain_pass(model, images, every_block)
    coupled = class_attention(list(means.values())).unsqueeze(1)  # (B, 1, n)
    weight = head_weight(model)[classes]  # (B, K, D)
    maps = cam_map(features, weight) * coupled  # (B, K, n)
    return Maps(maps, [means[i] for i in blocks])


def grad_cam(model: Network, images: Tensor, classes: Tensor, blocks: range) -> Maps:
    """Return Grad-CAM on the tokens that enter the last block.

    Args:
        model: the classifier.
        images: (B, 3, H, W), normalised.
        classes: (B, K); −1 = padding.
        blocks: the blocks whose attention is returned.
    """
    tokens, gradients, means = token_gradients(model, images, classes, blocks)
    patches = tokens[:, model.prefix :]  # (B, n, D)
    patch_gradients = gradients[:, :, model.prefix :]  # (B, K, n, D)
    return Maps(grad_cam_map(patches, patch_gradients), means)


def generic(model: Network, images: Tensor, classes: Tensor, blocks: range) -> Maps:
    """Return the maps of generic attention explainability.

    Args:
        model: the classifier.
        images: (B, 3, H, W), normalised.
        classes: (B, K); −1 = padding.
        blocks: the blocks whose attention is returned.
    """
    maps, means = relevance(model, images, classes, blocks)
    return Maps(maps, means)


def legrad(model: Network, images: Tensor, classes: Tensor, blocks: range) -> Maps:
    """Return the maps of LeGrad.

    Args:
        model: the classifier.
        images: (B, 3, H, W), normalised.
        classes: (B, K); −1 = padding.
        blocks: the blocks whose attention is returned; the map reads that of all blocks.
    """
    means, gradients = block_gradients(model, images, classes)
    per_block = [gradient.relu().mean(dim=(2, 3)) for gradient in gradients]  # L × (B, K, N)
    maps = torch.stack(per_block).sum(0)  # (B, K, N)
    attention = [model.without_extra_tokens(means[i]) for i in blocks]
    return Maps(maps[..., model.prefix :], attention)


def rollout(model: Network, images: Tensor, classes: Tensor, blocks: range) -> Maps:
    """Return the attention rollout: the same map for every class.

    Args:
        model: the classifier.
        images: (B, 3, H, W), normalised.
        classes: (B, K); only their number is used.
        blocks: the blocks whose attention is returned; the map reads that of all blocks.
    """
    every_block = range(len(model.blocks))
    _, means = plain_pass(model, images, every_block, extra=True)
    flow = rollout_map(list(means.values()), model.prefix)  # (B, n)
    maps = flow.unsqueeze(1).repeat(1, classes.shape[1], 1)  # (B, K, n)
    attention = [model.without_extra_tokens(means[i]) for i in blocks]
    return Maps(maps, attention)


def cam_map(features: Tensor, weight: Tensor) -> Tensor:
    """Return relu(w · x), shape (B, K, n).

    Args:
        features: x, the patch tokens (B, n, D).
        weight: w, the head's weights of the wanted classes (B, K, D).
    """
    return (weight @ features.transpose(-2, -1)).relu()


def class_attention(means: Sequence[Tensor]) -> Tensor:
    """Return Σ_blocks Ā[0, patches], what the class token attends to, shape (B, n).

    Each Ā of ``means`` is (B, 1+n, 1+n).
    """
    rows = [mean[:, 0, 1:] for mean in means]  # L × (B, n)
    return torch.stack(rows).sum(0)


def grad_cam_map(tokens: Tensor, gradients: Tensor) -> Tensor:
    """Return relu(Σ_d mean_patches(∂y/∂x)_d · x_d), shape (B, K, n).

    Args:
        tokens: x, the patch tokens (B, n, D).
        gradients: ∂y/∂x (B, K, n, D), y the logit of a class.
    """
    weight = gradients.mean(dim=-2)  # (B, K, D)
    return (weight @ tokens.transpose(-2, -1)).relu()


def rollout_map(means: Sequence[Tensor], prefix: int) -> Tensor:
    """Return the attention flow from the patches to the class token, shape (B, n).

    Args:
        means: Ā (B, N, N) of every block, first block first.
        prefix: the number of tokens before the patches.
    """
    first = means[0]
    identity = torch.eye(first.shape[-1]).to(first)  # (N, N)
    row = identity[:1].expand(len(first), -1, -1)  # (B, 1, N)
    for mean in reversed(means):
        mixed = (mean + identity) / 2  # (B, N, N)
        row = row @ (mixed / mixed.sum(dim=-1, keepdim=True))  # (B, 1, N)
    return row[:, 0, prefix:]
