"""Optimiser and learning-rate schedule."""

import math
from collections.abc import Sequence

import torch
from torch import nn

from tagmask.config import LoopSettings


def decay(step: int, steps: int, settings: LoopSettings) -> float:
    """Return the factor on the learning rate: linear warm-up times polynomial or cosine decay.

    Args:
        step: Step from 0.
        steps: Number of steps of the training.
        settings: Warm-up, schedule and power.

    Returns:
        A factor in [0, 1].
    """
    rise = min(1.0, (step + 1) / settings.warmup) if settings.warmup else 1.0
    if settings.schedule == "cosine":
        return rise * (1 + math.cos(math.pi * step / steps)) / 2
    return float(rise * (1 - step / steps) ** settings.power)


def build_optimizer(
    module: nn.Module, settings: LoopSettings, new_layers: Sequence[str] = ()
) -> torch.optim.Optimizer:
    """Return SGD or AdamW over the trainable parameters.

    Biases, norms and one-dimensional tokens are not decayed under AdamW; SGD decays everything.

    Args:
        module: The network.
        settings: Optimiser, learning rates, momentum and weight decay.
        new_layers: Parameters whose name contains one of these learn ``head_lr`` times faster.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        lr = settings.lr
        if any(part in name for part in new_layers):
            lr = settings.lr * settings.head_lr
        weight_decay = settings.weight_decay
        is_small = parameter.ndim < 2 or "token" in name or "pos_embed" in name
        if settings.optimizer == "adamw" and is_small:
            weight_decay = 0.0
        groups.setdefault((lr, weight_decay), []).append(parameter)
    described = []
    for (lr, weight_decay), parameters in groups.items():
        described.append(
            {"params": parameters, "lr": lr, "peak_lr": lr, "weight_decay": weight_decay}
        )
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(described, lr=settings.lr)
    return torch.optim.SGD(described, lr=settings.lr, momentum=settings.momentum)


def set_lr(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Set the learning rate of every group to its peak times ``factor``.

    Args:
        optimizer: An optimiser of ``build_optimizer``.
        factor: What ``decay`` returns.
    """
    for group in optimizer.param_groups:
        group["lr"] = group["peak_lr"] * factor
