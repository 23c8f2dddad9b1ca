"""The resume point: weights, optimiser state and average in one file, replaced atomically."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from tagmask.errors import TagmaskError
from tagmask.files import is_a, replacing
from tagmask.layout import RESUME

# entries of the state, and the type that each must have
_STATE = {"step": int, "best": dict, "broken": list, "identity": dict}


def save_resume(
    folder: Path,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: Mapping[str, Tensor] | None,
    state: Mapping[str, Any],
) -> None:
    """Write the resume point.

    Args:
        folder: Folder of the training.
        module: Module that is trained.
        optimizer: Optimiser of its parameters.
        average: Moving average of the weights, by name; None if none is kept.
        state: Anything else that JSON can hold.
    """
    tensors: dict[str, Tensor] = {}
    for name, value in module.state_dict().items():
        tensors[f"module/{name}"] = value
    for name, value in (average or {}).items():
        tensors[f"average/{name}"] = value
    # e.g. optimizer/momentum_buffer/vit.head.weight
    for name, parameter in module.named_parameters():
        for slot, value in optimizer.state.get(parameter, {}).items():
            if value is not None:
                tensors[f"optimizer/{slot}/{name}"] = torch.as_tensor(value)
    with replacing(folder / RESUME) as partial:
        stored = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
        save_file(stored, partial, metadata={"state": json.dumps(state)})


def read_state(folder: Path) -> dict[str, Any] | None:
    """Return the ``state`` of the resume point in ``folder``, None if there is none."""
    path = folder / RESUME
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            state: dict[str, Any] = json.loads((file.metadata() or {})["state"])
        wrong = [name for name, form in _STATE.items() if not is_a(state[name], form)]
        if wrong:
            raise ValueError(f"{wrong[0]} is of another form")
        if state["step"] < 0:
            raise ValueError("step is of another form")
    except (SafetensorError, KeyError, ValueError, TypeError, RecursionError, OSError) as error:
        raise TagmaskError(
            f"the resume point {path} cannot be read ({error}); "
            "delete it or start over with --restart."
        ) from None
    return {name: state[name] for name in _STATE}


def load_resume(
    folder: Path,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: dict[str, Tensor] | None,
) -> None:
    """Put the tensors of the resume point back where they belong.

    Args:
        folder: Folder of the training.
        module: Module that gets the weights.
        optimizer: Optimiser that gets its state.
        average: Moving average that gets its values; None leaves those of the file.

    Raises:
        TagmaskError: If the resume point is of another network.
    """
    path = folder / RESUME
    with safe_open(path, framework="pt") as file:
        names = file.keys()
        tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in names}
    try:
        module.load_state_dict(_under("module/", tensors))
        if average is not None:
            for name, value in _under("average/", tensors).items():
                average[name].copy_(value)
        parameters = dict(module.named_parameters())
        for name, value in _under("optimizer/", tensors).items():
            slot, parameter_name = name.split("/", 1)
            parameter = parameters[parameter_name]
            # AdamW keeps its counter on the CPU
            moved = value if slot == "step" else value.to(parameter.device)
            optimizer.state[parameter][slot] = moved
    except (RuntimeError, KeyError, ValueError) as error:
        first = str(error).splitlines()[0]
        raise TagmaskError(
            f"the resume point {path} is of another network ({first}); "
            "delete it or start over with --restart."
        ) from None


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with ``prefix``, without it."""
    chosen = {}
    for name, value in tensors.items():
        if name.startswith(prefix):
            chosen[name.removeprefix(prefix)] = value
    return chosen
