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

# keys under which published checkpoints nest their tensors
_WRAPPERS = ("state_dict", "model", "model_ema")
_PREFIXES = ("module.", "_orig_mod.", "backbone.")


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a .safetensors, .pth or .pt file as float32.

    A .pth can run no code (weights only).
    """
    if not path.is_file():
        raise TagmaskError(f"weights file {path} does not exist; check --weights.")
    try:
        if path.suffix == ".safetensors":
            content: Any = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
        tensors = _named_tensors(content)
    except (SafetensorError, OSError, RuntimeError, EOFError, ValueError) as error:
        raise TagmaskError(
            f"weights file {path} cannot be read ({_first_line(error)}); fetch it again."
        ) from None
    # torch raises pickle errors of several kinds for unsafe or foreign files
    except Exception as error:
        raise TagmaskError(
            f"weights file {path} is not a plain tensor file ({_first_line(error)}); "
            "convert it to safetensors."
        ) from None
    if not tensors:
        raise TagmaskError(
            f"weights file {path} holds no tensors; give the weights of an image classifier."
        )
    check_finite(tensors, f"weights file {path}")
    return tensors


def _named_tensors(content: Any) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint by their names in the model."""
    if not isinstance(content, Mapping):
        raise ValueError(f"it holds a {type(content).__name__} instead of named tensors")
    for key in _WRAPPERS:
        if isinstance(content.get(key), Mapping):
            content = content[key]
            break
    tensors = {}
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            continue
        bare = name
        for prefix in _PREFIXES:
            bare = bare.removeprefix(prefix)
        tensors[bare] = value.float() if value.is_floating_point() else value
    return tensors


def _first_line(error: Exception) -> str:
    """Return the first line of an error's message; its type if it has none."""
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__


def fit_weights(
    model: nn.Module,
    path: Path,
    adapt: Callable[[dict[str, Tensor], nn.Module], Mapping[str, Tensor]],
    optional: tuple[str, ...],
) -> None:
    """Load a weights file into a model.

    Args:
        model: the network, whose weights are replaced.
        path: a .safetensors, .pth or .pt file.
        adapt: timm's own conversion of foreign layouts (it also resamples position embeddings).
        optional: beginnings of names that the file need not have, or may have in another shape: a
            head of another number of classes is left out. All others must be found.

    Raises:
        TagmaskError: if the file cannot be read or does not fit the model.
    """
    wanted = model.state_dict()
    read = read_weights(path)
    # many files leave the counters out, and nothing reads them
    tensors = {name: wanted[name] for name in wanted if name.endswith("num_batches_tracked")}
    try:
        tensors.update(adapt(read, model))
    except TagmaskError:
        raise
    except Exception as error:  # timm's conversions trust the shapes of a file
        raise TagmaskError(
            f"weights file {path} does not fit this backbone ({_first_line(error)}); "
            f"{_other_backbone(read)}."
        ) from None
    for name in list(tensors):
        is_optional = name.startswith(optional) and name in wanted
        if is_optional and tensors[name].shape != wanted[name].shape:
            del tensors[name]
    _check_fit(path, tensors, wanted, optional)
    model.load_state_dict(tensors, strict=False)


def _check_fit(
    path: Path,
    tensors: Mapping[str, Tensor],
    wanted: Mapping[str, Tensor],
    optional: tuple[str, ...],
) -> None:
    """Refuse tensors of which some are missing, have another shape or are not wanted."""
    missing = []
    wrong = []
    for name, value in wanted.items():
        if name not in tensors:
            if not name.startswith(optional):
                missing.append(name)
        elif tensors[name].shape != value.shape:
            wrong.append(name)
    may_be_unused = (*optional, "mask_token")
    unused = [n for n in tensors if n not in wanted and not n.startswith(may_be_unused)]
    if not missing and not wrong and not unused:
        return
    shown = ", ".join((missing + wrong + unused)[:3])
    raise TagmaskError(
        f"weights file {path} does not fit this backbone: of {len(wanted)} tensors "
        f"{len(missing)} are missing and {len(wrong)} have another shape, and {len(unused)} of "
        f"the file have no place (first: {shown}); {_other_backbone(tensors)}."
    )


_SIZES = {192: "tiny", 384: "small", 768: "base", 1024: "large"}  # widths of ViTs


def _other_backbone(tensors: Mapping[str, Tensor]) -> str:
    """Return a remedy for weights of another backbone; it names the one, if it is a DINOv2."""
    remedy = "choose the backbone the file was made for with --backbone"
    patches = tensors.get("patch_embed.proj.weight")  # (D, 3, patch, patch)
    if patches is None or patches.ndim != 4 or "blocks.0.ls1.gamma" not in tensors:
        return remedy
    size = _SIZES.get(patches.shape[0])
    if size is None or patches.shape[-1] != 14:
        return remedy
    registers = "_reg4" if "reg_token" in tensors else ""
    return f"{remedy} vit_{size}_patch14{registers}_dinov2, by the shapes in it"
