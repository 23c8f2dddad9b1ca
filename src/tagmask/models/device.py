"""Where networks run, and what else may run on a GPU."""

import os
from typing import Literal, TypeVar

import torch
from torch import nn

from tagmask.config.launch import launch_number
from tagmask.errors import TagmaskError

AnyModule = TypeVar("AnyModule", bound=nn.Module)


def gpu() -> torch.device | None:
    """Return the current GPU, or None if there is none.

    The processes of a launch (``LOCAL_RANK``) take one each.
    """
    if not torch.accelerator.is_available():
        return None
    device = torch.accelerator.current_accelerator()
    assert device is not None
    if "LOCAL_RANK" not in os.environ:
        return device
    count = max(1, torch.accelerator.device_count())
    return torch.device(device.type, launch_number("LOCAL_RANK") % count)


def on_device(network: AnyModule) -> AnyModule:
    """Move a network to a GPU, if there is one, and return it."""
    device = gpu()
    if device is None:
        return network
    return network.to(device)


def chosen_device(name: Literal["cpu", "gpu"] | None) -> str | None:
    """Return what torch calls the device of a setting."""
    if name != "gpu":
        return name
    device = gpu()
    if device is None or device.type == "mps":
        raise TagmaskError(
            "--device gpu: torch finds no GPU, or one without sparse products (mps); leave it out."
        )
    return str(device)
