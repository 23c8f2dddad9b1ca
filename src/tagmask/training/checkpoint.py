"""The resume point: one safetensors file with weights, optimiser state and average, replaced atomically."""

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


def save_resume(
    folder: Path,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: Mapping[str, Tensor] | None,
    state: Mapping[str, Any],
) -> None:
    """Write the resume point; ``state`` is anything JSON can hold."""
    tensors = {f"module/{name}": value for name, value in module.state_dict().items()}
    tensors |= {f"average/{name}": value for name, value in (average or {}).items()}
    tensors |= _optimizer_tensors(module, optimizer)
    with replacing(folder / RESUME) as partial:
        stored = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
        save_file(stored, partial, metadata={"state": json.dumps(state)})


def read_state(folder: Path) -> dict[str, Any] | None:
    """The ``state`` of the resume point in ``folder``, None where there is none."""
    if not (folder / RESUME).is_file():
        return None
    try:
        with safe_open(folder / RESUME, framework="pt") as file:
            state: dict[str, Any] = json.loads((file.metadata() or {})["state"])
            forms = {"step": int, "best": dict, "broken": list, "identity": dict}
            wrong = [name for name, form in forms.items() if not is_a(state[name], form)]
            if wrong or state["step"] < 0:
                raise ValueError(f"{(*wrong, 'step')[0]} is of another form")
            return {name: state[name] for name in forms}
    except (SafetensorError, KeyError, ValueError, TypeError, RecursionError, OSError) as error:
        raise TagmaskError(
            f"the resume point {folder / RESUME} cannot be read ({error}); delete it or start over with --restart."
        ) from None


def load_resume(
    folder: Path,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: dict[str, Tensor] | None,
) -> None:
    """Put the tensors of the resume point back in place."""
    with safe_open(folder / RESUME, framework="pt") as file:
        tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    try:
        module.load_state_dict(_under("module/", tensors))
        if average is not None:
            for name, value in _under("average/", tensors).items():
                average[name].copy_(value)
        parameters = dict(module.named_parameters())
        for name, value in _under("optimizer/", tensors).items():
            slot, parameter_name = name.split("/", 1)
            parameter = parameters[parameter_name]
            place = (
                value if slot == "step" else value.to(parameter.device)
            )  # AdamW keeps its counter on the CPU
            optimizer.state[parameter][slot] = place
    except (RuntimeError, KeyError, ValueError) as error:
        first = str(error).splitlines()[0]
        raise TagmaskError(
            f"the resume point {folder / RESUME} is of another network ({first}); "
            "delete it or start over with --restart."
        ) from None


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }


def _optimizer_tensors(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Optimiser state by slot and parameter name, e.g. ``optimizer/momentum_buffer/vit.head.weight``."""
    return {
        f"optimizer/{slot}/{name}": torch.as_tensor(value)
        for name, parameter in module.named_parameters()
        for slot, value in optimizer.state.get(parameter, {}).items()
        if value is not None
    }
