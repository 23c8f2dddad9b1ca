"""What every network on a timm backbone shares.

Its colours, unknown names, missing weights, Caffe's strides.
"""

import difflib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import timm
import torch
from timm.data import resolve_model_data_config
from torch import Tensor, nn

from tagmask.errors import TagmaskError
from tagmask.models.storage import StoredNetwork

_WEIGHTS_HOST = "https://huggingface.co"


class Normalized(StoredNetwork):
    """A network that knows the colour statistics its backbone was trained with."""

    mean: Tensor  # (3, 1, 1)
    std: Tensor  # (3, 1, 1)
    freeze_norm = False  # batch norms keep their statistics and are not trained

    def use_statistics(self, backbone: nn.Module) -> None:
        """Take mean and deviation from timm's data configuration of the backbone."""
        config = resolve_model_data_config(backbone)
        mean = torch.tensor(config["mean"]).view(3, 1, 1)
        std = torch.tensor(config["std"]).view(3, 1, 1)
        self.register_buffer("mean", mean, persistent=False)
        self.register_buffer("std", std, persistent=False)

    def normalize(self, images: Tensor) -> Tensor:
        """Bring images in [0, 1] (B, 3, H, W) to the mean and deviation of the backbone."""
        return (images - self.mean) / self.std

    def train(self, mode: bool = True) -> Self:
        """Switch training on or off; frozen batch norms stay as they are."""
        super().train(mode)
        if self.freeze_norm:
            freeze_norms(self)
        return self


def check_start(name: str, pretrained: bool, weights: Path | str | None, advice: str) -> None:
    """Refuse two sources of weights, and a name that timm does not know.

    Args:
        name: the name of a backbone; an unknown one is answered with the nearest ones.
        pretrained: published weights are asked for.
        weights: the local file that is asked for, if any.
        advice: which backbones to use, for a name that none is near.

    Raises:
        TagmaskError: if either is the case.
    """
    if pretrained and weights is not None:
        raise TagmaskError("both pretrained and a weights file were asked for; choose one.")
    if timm.is_model(name):
        return
    known = timm.list_models()
    near = [model for model in known if model.startswith(name)][:3]
    if not near:
        near = difflib.get_close_matches(name, known)
    hint = f"did you mean {' or '.join(near)}?" if near else f"{advice}."
    raise TagmaskError(f"timm knows no backbone named {name!r}; {hint}")


@contextmanager
def fetching(name: str, pretrained: bool) -> Iterator[None]:
    """Explain a failure to fetch published weights.

    Args:
        name: the backbone that is created within.
        pretrained: its weights are fetched; without this, errors pass.

    Raises:
        TagmaskError: if the weights cannot be fetched.
    """
    cfg = timm.get_pretrained_cfg(name)
    if not pretrained or (cfg is not None and cfg.file):  # the package brings some weights
        yield
        return
    online = _reaches_host()
    try:
        with nullcontext() if online else _cache_only():
            yield
    except (OSError, RuntimeError) as error:
        lines = str(error).splitlines()
        why = "there is no connection"
        if online:
            why = lines[0] if lines else type(error).__name__
        raise _unfetched(name, why) from None


def check_published(name: str) -> None:
    """Refuse a backbone whose published weights are neither on this machine nor to be had.

    Args:
        name: the backbone.

    Raises:
        TagmaskError: if they would have to be fetched and there is no connection.
    """
    cfg = timm.get_pretrained_cfg(name)
    if cfg is None or cfg.file or _is_cached(cfg) or _reaches_host():
        return
    raise _unfetched(name, "there is no connection")


def _unfetched(name: str, why: str) -> TagmaskError:
    """Return what to say about published weights that cannot be fetched."""
    return TagmaskError(
        f"the published weights of {name} could not be fetched ({why}); connect to the "
        f"internet once, or give a local file with --weights: {_published_file(name)}."
    )


def _is_cached(cfg: Any) -> bool:
    """Return True if published weights were fetched before."""
    from huggingface_hub import try_to_load_from_cache

    repository = _repository(cfg)
    if not repository:
        file = Path(torch.hub.get_dir(), "checkpoints", Path(cfg.url or "").name)
        return file.is_file()
    names = (cfg.hf_hub_filename, "model.safetensors", "pytorch_model.bin")
    found = [try_to_load_from_cache(repository, name) for name in names if name]
    return any(isinstance(file, str) for file in found)


def _reaches_host() -> bool:
    """Return True if the host of published weights can be reached, or the proxy that leads there.

    Where the user has switched the hub off (HF_HUB_OFFLINE), nobody is asked.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    names = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
    proxy = next((os.environ[name] for name in names if os.environ.get(name)), "")
    if proxy:
        # a proxy that is not there would be asked for half a minute
        place = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    else:
        place = urlsplit(os.environ.get("HF_ENDPOINT") or _WEIGHTS_HOST)
    usual_port = {"http": 80, "socks5": 1080, "socks5h": 1080, "socks4": 1080}.get(
        place.scheme, 443
    )
    try:
        with socket.create_connection((place.hostname or "", place.port or usual_port), timeout=3):
            return True
    except (OSError, ValueError):
        return False


@contextmanager
def _cache_only() -> Iterator[None]:
    """Look for published weights on this machine alone; asking in vain takes half a minute."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _repository(cfg: Any) -> str:
    """Return the repository of published weights; empty if they are a plain address."""
    repository = str(cfg.hf_hub_id or "")
    if repository.endswith("/"):
        tag = f".{cfg.tag}" if cfg.tag else ""
        repository += f"{cfg.architecture}{tag}"
    return repository


def _published_file(name: str) -> str:
    """Return where the published weights of a backbone are."""
    cfg = timm.get_pretrained_cfg(name)
    if cfg is None:
        return "a file of its weights"
    repository = _repository(cfg)
    if repository:
        return f"model.safetensors of {_WEIGHTS_HOST}/{repository}"
    return str(cfg.url or "a file of its weights")


def freeze_norms(cnn: nn.Module) -> int:
    """Keep the statistics and weights of batch norms as they are, also in training.

    Returns:
        How many batch norms there are.
    """
    count = 0
    for module in cnn.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eval().requires_grad_(False)
            count += 1
    return count


def move_strides(cnn: nn.Module, name: str) -> None:
    """Move the stride of each bottleneck to its first 1×1 convolution, as in Caffe's ResNets.

    Args:
        cnn: the network, whose bottlenecks have their stride on the 3×3 convolution.
        name: what an error calls it.

    Raises:
        TagmaskError: if there is no stride to move.
    """
    moved = 0
    for block in cnn.modules():
        first = getattr(block, "conv1", None)
        second = getattr(block, "conv2", None)
        if not isinstance(first, nn.Conv2d) or not isinstance(second, nn.Conv2d):
            continue
        if not hasattr(block, "conv3"):
            continue
        if first.kernel_size == (1, 1) and second.stride != (1, 1):
            first.stride = second.stride
            second.stride = (1, 1)
            moved += 1
    if not moved:
        raise TagmaskError(
            f"{name} has no bottlenecks with a stride to move; "
            "use caffe with resnet50 or resnet101."
        )
