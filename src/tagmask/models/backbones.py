"""What every network on a timm backbone shares: its colours, unknown names, missing weights, Caffe's strides."""

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import timm
import torch
from timm.data import resolve_model_data_config
from torch import Tensor, nn

from tagmask.errors import TagmaskError
from tagmask.models.storage import StoredNetwork


class Normalized(StoredNetwork):
    """A network that knows the colour statistics its backbone was trained with."""

    mean: Tensor
    std: Tensor
    freeze_norm = False  # batch norms keep their statistics and are not trained

    def use_statistics(self, backbone: nn.Module) -> None:
        """Take mean and deviation from timm's data configuration of the backbone."""
        config = resolve_model_data_config(backbone)
        self.register_buffer("mean", torch.tensor(config["mean"]).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(config["std"]).view(3, 1, 1), persistent=False)

    def normalize(self, images: Tensor) -> Tensor:
        """Images in [0, 1] (B, 3, H, W) to the mean and deviation that the backbone was trained with."""
        return (images - self.mean) / self.std

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.freeze_norm:
            freeze_norms(self)
        return self


def check_start(name: str, pretrained: bool, weights: Path | str | None, advice: str) -> None:
    """Refuse two sources of weights, and a name that timm does not know, with the nearest ones or else the advice."""
    if pretrained and weights is not None:
        raise TagmaskError("both pretrained and a weights file were asked for; choose one.")
    if timm.is_model(name):
        return
    known = timm.list_models()
    near = [model for model in known if model.startswith(name)][:3] or difflib.get_close_matches(
        name, known
    )
    hint = f"did you mean {' or '.join(near)}?" if near else f"{advice}."
    raise TagmaskError(f"timm knows no backbone named {name!r}; {hint}")


@contextmanager
def fetching(name: str, pretrained: bool) -> Iterator[None]:
    """Explain a failure to fetch published weights, if they are asked for."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        if not pretrained:
            raise
        raise TagmaskError(
            f"the published weights of {name} could not be fetched ({str(error).splitlines()[0]}); "
            "connect to the internet once, or give a local file with --weights."
        ) from None


def freeze_norms(cnn: nn.Module) -> int:
    """Keep the statistics and weights of batch norms as they are, also in training; returns how many there are."""
    norms = [
        module for module in cnn.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)
    ]
    for norm in norms:
        norm.eval().requires_grad_(False)
    return len(norms)


def move_strides(cnn: nn.Module, name: str) -> None:
    """Stride on the first 1×1 convolution of each bottleneck, as in Caffe's ResNets, instead of on the 3×3."""
    moved = 0
    for block in cnn.modules():
        first, second = getattr(block, "conv1", None), getattr(block, "conv2", None)
        if not (
            isinstance(first, nn.Conv2d)
            and isinstance(second, nn.Conv2d)
            and hasattr(block, "conv3")
        ):
            continue
        if first.kernel_size == (1, 1) and second.stride != (1, 1):
            first.stride, second.stride = second.stride, (1, 1)
            moved += 1
    if not moved:
        raise TagmaskError(
            f"{name} has no bottlenecks with a stride to move; use caffe with resnet50 or resnet101."
        )
