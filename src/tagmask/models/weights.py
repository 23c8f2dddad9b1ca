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
    name: str,
    path: Path,
    adapt: Callable[[dict[str, Tensor], nn.Module], Mapping[str, Tensor]],
    optional: tuple[str, ...],
) -> None:
    """Load a weights file into a model.

    Args:
        model: the network, whose weights are replaced.
        name: what the backbone is called.
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
    tensors = {key: wanted[key] for key in wanted if key.endswith("num_batches_tracked")}
    try:
        tensors.update(adapt(read, model))
    except TagmaskError:
        raise
    except Exception as error:  # timm's conversions trust the shapes of a file
        raise TagmaskError(
            f"weights file {path} does not fit the backbone {name} ({_first_line(error)}); "
            f"{_remedy(name, read, wanted)}."
        ) from None
    for key in list(tensors):
        is_optional = key.startswith(optional) and key in wanted
        if is_optional and tensors[key].shape != wanted[key].shape:
            del tensors[key]
    misfit = _misfit(tensors, wanted, optional)
    if misfit:
        raise TagmaskError(
            f"weights file {path} does not fit the backbone {name}: {misfit}; "
            f"{_remedy(name, read, wanted)}."
        )
    model.load_state_dict(tensors, strict=False)


def _misfit(
    tensors: Mapping[str, Tensor],
    wanted: Mapping[str, Tensor],
    optional: tuple[str, ...],
) -> str:
    """Return how many tensors are missing, have another shape or are not wanted; empty if none."""
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
        return ""
    shown = ", ".join((missing + wrong + unused)[:3])
    return (
        f"of {len(wanted)} tensors {len(missing)} are missing and {len(wrong)} have another shape, "
        f"and {len(unused)} of the file have no place (first: {shown})"
    )


_PATCHES = "patch_embed.proj.weight"  # every ViT has it
# widths of ViTs
_SIZES = {192: "tiny", 384: "small", 768: "base", 1024: "large"}
# blocks in the four stages of a ResNet with bottlenecks
_RESNETS: dict[tuple[int, ...], str] = {
    (3, 4, 6, 3): "resnet50",
    (3, 4, 23, 3): "resnet101",
    (3, 8, 36, 3): "resnet152",
}


def _remedy(backbone: str, tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> str:
    """Return what to do about weights of another backbone; the shapes may tell which it is.

    Args:
        backbone: the one that was asked for.
        tensors: what the file holds.
        wanted: what the backbone has.
    """
    names = " or ".join(_backbones_of(tensors))
    if not names:
        return "choose the backbone the file was made for with --backbone"
    if (_PATCHES in tensors) != (_PATCHES in wanted):
        return (
            f"by the shapes in it the file is of {names}, a network of another kind: give a file "
            f"of {backbone}"
        )
    return f"choose the backbone the file was made for with --backbone {names}, by the shapes in it"


def _backbones_of(tensors: Mapping[str, Tensor]) -> list[str]:
    """Return the usual backbones whose weights have such names and shapes; none if unsure."""
    patches = tensors.get(_PATCHES)  # (D, 3, patch, patch)
    if patches is None or patches.ndim != 4:
        blocks = [_blocks_in(tensors, f"layer{stage}.") for stage in (1, 2, 3, 4)]
        resnet = _RESNETS.get(tuple(blocks))
        return [resnet] if resnet and "layer1.0.conv3.weight" in tensors else []
    size = _SIZES.get(patches.shape[0])
    patch = patches.shape[-1]
    is_scaled = "blocks.0.ls1.gamma" in tensors
    if size and is_scaled and patch == 14:
        # the name in timm, and in the files of the authors
        has_registers = "reg_token" in tensors or "register_tokens" in tensors
        registers = "_reg4" if has_registers else ""
        return [f"vit_{size}_patch14{registers}_dinov2"]
    is_deit = size in ("tiny", "small", "base") and "dist_token" not in tensors
    if is_deit and not is_scaled and patch == 16 and "pos_embed" in tensors:
        return [f"deit_{size}_patch16_224", f"vit_{size}_patch16_224"]
    return []


def _blocks_in(tensors: Mapping[str, Tensor], prefix: str) -> int:
    """Return how many blocks a stage of a ResNet has."""
    numbers = {name.split(".")[1] for name in tensors if name.startswith(prefix)}
    return len(numbers)
