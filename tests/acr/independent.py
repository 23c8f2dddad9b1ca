"""Answers by other means than the package's: timm's unfused attention, hooks, one backward pass per class."""

from typing import Any

import torch
from torch import Tensor

from tagmask.models.classifier import Classifier
from tests.helpers import tiny_classifier


def around(vit: Any) -> Classifier:
    """A classifier on a ViT that has no name."""
    model = tiny_classifier(classes=vit.num_classes)
    for block in vit.blocks:
        attention(block).fused_attn = True
    model.vit = vit
    return model.eval()


def attention(block: Any) -> Any:
    """The part of a block that attends: the block itself, if it does everything in one."""
    return getattr(block, "attn", block)


def lively(model: Classifier, seed: int = 0) -> Classifier:
    """In float64, with sharp attention, and with no bias, norm or LayerScale at a value that does nothing."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "gamma" in name:
                parameter.fill_(0.7)
            elif name.endswith(("qkv.weight", "q_proj.weight", "k_proj.weight", "in_proj.weight")):
                parameter.mul_(4)
            elif name.endswith(("head.weight", "head_dist.weight", "relative_position_bias_table")):
                parameter.normal_()
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model.double().eval()


def by_hooks(
    model: Classifier, images: Tensor, classes: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """Attention, L × (B, heads, N, N), and its class gradients, L × (B, K, heads, N, N).

    One full backward pass per class, parameters requiring gradients, every matrix a tensor of timm's own code.
    """
    kept: list[Tensor] = []

    def keep(_module: Any, _inputs: Any, matrix: Tensor) -> None:
        matrix.retain_grad()
        kept.append(matrix)

    hooks = [attention(block).attn_drop.register_forward_hook(keep) for block in model.blocks]
    for block in model.blocks:
        attention(block).fused_attn = False
    logits = model.vit(images)  # (B, C)
    for block, hook in zip(model.blocks, hooks, strict=True):
        attention(block).fused_attn = True
        hook.remove()
    per_class = []
    for column in classes.T:
        model.zero_grad()
        for matrix in kept:
            matrix.grad = None
        sum(logits[image, c] for image, c in enumerate(column) if c >= 0).backward(
            retain_graph=True
        )
        per_class.append([torch.zeros_like(m) if m.grad is None else m.grad.clone() for m in kept])
    model.zero_grad()
    return [matrix.detach() for matrix in kept], [
        torch.stack(one, dim=1) for one in zip(*per_class, strict=True)
    ]


def distance(actual: Tensor, expected: Tensor) -> float:
    """The largest difference relative to the largest value."""
    assert actual.shape == expected.shape
    return ((actual - expected).abs().max() / expected.abs().max()).item()
