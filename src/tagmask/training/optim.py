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


def build_optimizer(module: nn.Module, settings: LoopSettings, new_layers: Sequence[str] = ()) -> torch.optim.Optimizer:
    """SGD or AdamW over the trainable parameters.

    Parameters whose name contains one of ``new_layers`` learn ``head_lr`` times faster. Biases, norms and
    one-dimensional tokens are not decayed under AdamW; SGD decays everything.
    """
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            new = any(part in name for part in new_layers)
            plain = settings.optimizer == "adamw" and (parameter.ndim < 2 or "token" in name or "pos_embed" in name)
            groups.setdefault((new, plain), []).append(parameter)
    described = [
        {
            "params": parameters,
            "lr": settings.lr * (settings.head_lr if new else 1.0),
            "weight_decay": 0.0 if plain else settings.weight_decay,
        }
        for (new, plain), parameters in groups.items()
    ]
    for group in described:
        group["peak_lr"] = group["lr"]
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(described, lr=settings.lr)
    return torch.optim.SGD(described, lr=settings.lr, momentum=settings.momentum)


def set_lr(optimizer: torch.optim.Optimizer, factor: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = group["peak_lr"] * factor
