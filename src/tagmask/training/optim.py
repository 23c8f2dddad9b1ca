"""Optimiser and learning-rate schedule."""

import math
from collections.abc import Sequence

import torch
from torch import nn

from tagmask.config import LoopSettings


def decay(step: int, steps: int, settings: LoopSettings) -> float:
    """Factor on the learning rate at ``step`` of ``steps``: linear warm-up times polynomial or cosine decay."""
    rise = min(1.0, (step + 1) / settings.warmup) if settings.warmup else 1.0
    if settings.schedule == "cosine":
        return rise * (1 + math.cos(math.pi * step / steps)) / 2
    return float(rise * (1 - step / steps) ** settings.power)


def build_optimizer(
    module: nn.Module, settings: LoopSettings, new_layers: Sequence[str] = ()
) -> torch.optim.Optimizer:
    """SGD or AdamW over the trainable parameters.

    Parameters whose name contains one of ``new_layers`` learn ``head_lr`` times faster. Biases, norms and
    one-dimensional tokens are not decayed under AdamW; SGD decays everything.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            lr = settings.lr * (
                settings.head_lr if any(part in name for part in new_layers) else 1.0
            )
            plain = settings.optimizer == "adamw" and (
                parameter.ndim < 2 or "token" in name or "pos_embed" in name
            )
            groups.setdefault((lr, 0.0 if plain else settings.weight_decay), []).append(parameter)
    described = [
        {"params": parameters, "lr": lr, "peak_lr": lr, "weight_decay": weight_decay}
        for (lr, weight_decay), parameters in groups.items()
    ]
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(described, lr=settings.lr)
    return torch.optim.SGD(described, lr=settings.lr, momentum=settings.momentum)


def set_lr(optimizer: torch.optim.Optimizer, factor: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = group["peak_lr"] * factor
