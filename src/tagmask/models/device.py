"""Where a trained network runs."""

import os
from typing import TypeVar

import torch
from torch import nn

Network = TypeVar("Network", bound=nn.Module)


def on_device(network: Network) -> Network:
    """The network on a GPU, if there is one; the processes of a launch (``LOCAL_RANK``) take one each."""
    if not torch.accelerator.is_available():
        return network
    count = torch.accelerator.device_count()
    kind = torch.accelerator.current_accelerator()
    assert kind is not None
    return network.to(torch.device(kind.type, int(os.environ.get("LOCAL_RANK", "0")) % max(1, count)))
