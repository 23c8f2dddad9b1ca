"""timm backbones by name: what every network here says about a wrong name, missing weights and Caffe's strides."""

import difflib
from collections.abc import Iterator
from contextlib import contextmanager

import timm
from torch import nn

from tagmask.errors import TagmaskError


def check_name(name: str, advice: str) -> None:
    """Refuse a name that timm does not know, with the nearest ones or else the advice."""
    if timm.is_model(name):
        return
    known = timm.list_models()
    near = [model for model in known if model.startswith(name)][:3] or difflib.get_close_matches(name, known)
    hint = f"did you mean {' or '.join(near)}?" if near else f"{advice}."
    raise TagmaskError(f"timm knows no backbone named {name!r}; {hint}")


@contextmanager
def fetching(name: str, pretrained: bool) -> Iterator[None]:
    """Where published weights are asked for: a sentence if they cannot be had."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        if not pretrained:
            raise
        raise TagmaskError(
            f"the published weights of {name} could not be fetched ({str(error).splitlines()[0]}); "
            "connect to the internet once, or give a local file with --weights."
        ) from None


def move_strides(cnn: nn.Module, name: str) -> None:
    """Stride on the first 1×1 convolution of each bottleneck, as in Caffe's ResNets, instead of on the 3×3."""
    moved = 0
    for block in cnn.modules():
        first, second = getattr(block, "conv1", None), getattr(block, "conv2", None)
        if not (isinstance(first, nn.Conv2d) and isinstance(second, nn.Conv2d) and hasattr(block, "conv3")):
            continue
        if first.kernel_size == (1, 1) and second.stride != (1, 1):
            first.stride, second.stride = second.stride, (1, 1)
            moved += 1
    if not moved:
        raise TagmaskError(f"{name} has no bottlenecks with a stride to move; use caffe with resnet50 or resnet101.")
