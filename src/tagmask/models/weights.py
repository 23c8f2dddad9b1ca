"""Reading weights from a local file into a timm model; the error says why they do not fit."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from tagmask.errors import TagmaskError
from tagmask.models.storage import check_finite

_WRAPPERS = (
    "state_dict",
    "model",
    "model_ema",
)  # keys under which published checkpoints nest their tensors
_PREFIXES = ("module.", "_orig_mod.", "backbone.")


def read_weights(path: Path) -> dict[str, Tensor]:
    """Tensors of a .safetensors, .pth or .pt file, as float32; a .pth can run no code (weights only)."""
    if not path.is_file():
        raise TagmaskError(f"weights file {path} does not exist; check --weights.")
    try:
        if path.suffix == ".safetensors":
            content: Any = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(content, Mapping):
            raise ValueError(f"it holds a {type(content).__name__} instead of named tensors")
        content = next(
            (content[key] for key in _WRAPPERS if isinstance(content.get(key), Mapping)), content
        )
        named = {
            name: value
            for name, value in content.items()
            if isinstance(name, str) and isinstance(value, Tensor)
        }
        tensors = {
            _bare(name): value.float() if value.is_floating_point() else value
            for name, value in named.items()
        }
    except (SafetensorError, OSError, RuntimeError, EOFError, ValueError) as error:
        raise TagmaskError(
            f"weights file {path} cannot be read ({_first_line(error)}); fetch it again."
        ) from None
    except (
        Exception
    ) as error:  # torch raises pickle errors of several kinds for unsafe or foreign files
        raise TagmaskError(
            f"weights file {path} is not a plain tensor file ({_first_line(error)}); convert it to safetensors."
        ) from None
    if not tensors:
        raise TagmaskError(
            f"weights file {path} holds no tensors; give the weights of an image classifier."
        )
    check_finite(tensors, f"weights file {path}")
    return tensors


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _bare(name: str) -> str:
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name


def fit_weights(
    model: nn.Module,
    path: Path,
    adapt: Callable[[dict[str, Tensor], nn.Module], Mapping[str, Tensor]],
    optional: tuple[str, ...],
) -> None:
    """Load ``path`` into ``model``; every parameter must be found except those whose name starts with ``optional``.

    ``adapt`` is timm's own conversion of foreign layouts (it also resamples position embeddings). A head of
    another number of classes is left out.
    """
    wanted = model.state_dict()
    read = read_weights(path)
    try:
        counters = {
            name: value for name, value in wanted.items() if name.endswith("num_batches_tracked")
        }
        tensors = {
            **counters,
            **adapt(read, model),
        }  # many files leave the counters out, and nothing reads them
    except TagmaskError:
        raise
    except Exception as error:  # timm's conversions trust the shapes of a file
        raise TagmaskError(
            f"weights file {path} does not fit this backbone ({_first_line(error)}); choose the backbone the file was "
            "made for."
        ) from None
    for name in [
        n
        for n in tensors
        if n.startswith(optional) and n in wanted and tensors[n].shape != wanted[n].shape
    ]:
        del tensors[name]
    missing = [name for name in wanted if name not in tensors and not name.startswith(optional)]
    wrong = [
        name for name in wanted if name in tensors and tensors[name].shape != wanted[name].shape
    ]
    unused = [
        name
        for name in tensors
        if name not in wanted and not name.startswith((*optional, "mask_token"))
    ]
    if missing or wrong or unused:
        shown = ", ".join((missing + wrong + unused)[:3])
        raise TagmaskError(
            f"weights file {path} does not fit this backbone: of {len(wanted)} tensors {len(missing)} are missing and "
            f"{len(wrong)} have another shape, and {len(unused)} of the file have no place (first: {shown}); "
            "choose the backbone the file was made for."
        )
    model.load_state_dict(tensors, strict=False)
