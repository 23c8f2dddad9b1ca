"""Where networks run, and what else may run on a GPU."""

import os
from typing import Literal, TypeVar

import torch
from torch import nn

from tagmask.errors import TagmaskError

Network = TypeVar("Network", bound=nn.Module)


def gpu() -> torch.device | None:
    """The current GPU, if there is one; the processes of a launch (``LOCAL_RANK``) take one each."""
    if not torch.accelerator.is_available():
        return None
    kind, rank = torch.accelerator.current_accelerator(), os.environ.get("LOCAL_RANK")
    assert kind is not None
    return (
        kind
        if rank is None
        else torch.device(kind.type, int(rank) % max(1, torch.accelerator.device_count()))
    )


def on_device(network: Network) -> Network:
    """The network on a GPU, if there is one."""
    device = gpu()
    return network if device is None else network.to(device)


def chosen_device(name: Literal["cpu", "gpu"] | None) -> str | None:
    """What torch calls the device of a setting."""
    if name != "gpu":
        return name
    device = gpu()
    if device is None or device.type == "mps":
        raise TagmaskError(
            "--device gpu: torch finds no GPU, or one without sparse products (mps); leave it out."
        )
    return str(device)
