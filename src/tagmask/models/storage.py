"""A network on disk: ``model.safetensors`` and a ``config.json`` that says which kind it is and how to build it."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import nn

from tagmask.errors import TagmaskError
from tagmask.files import read_json, replacing, write_json
from tagmask.pipeline.layout import MODEL, MODEL_CONFIG

_FORMS: Mapping[str, type] = {"backbone": str, "classes": list, "crop_size": int, "caffe": bool, "freeze_norm": bool}
_RENAMED = {"model": "kind", "frozen_norm": "freeze_norm"}  # in files of earlier versions


def save_model(folder: Path, module: nn.Module, config: Mapping[str, Any]) -> None:
    """Write the weights of ``module`` and its ``config``, each whole or not at all."""
    with replacing(folder / MODEL) as partial:
        save_file({name: value.contiguous() for name, value in module.state_dict().items()}, partial)
    write_json(folder / MODEL_CONFIG, dict(config))


def read_config(folder: Path, kind: str, needed: Iterable[str], otherwise: str) -> Mapping[str, Any]:
    """The config of a network of ``kind`` that holds all ``needed``; ``otherwise`` says what the folder should be."""
    config = read_json(folder / MODEL_CONFIG)
    if isinstance(config, dict):
        config = {_RENAMED.get(name, name): value for name, value in config.items()}
    if not isinstance(config, dict) or config.get("kind") != kind or not set(needed) <= config.keys():
        raise TagmaskError(f"{folder} does not hold {otherwise}")
    wrong = [name for name, form in _FORMS.items() if name in config and not isinstance(config[name], form)]
    if wrong:
        entry = f"{wrong[0]} is {config[wrong[0]]!r}"
        raise TagmaskError(f"{folder / MODEL_CONFIG} is not as tagmask writes it ({entry}); correct it or train again.")
    return config


def load_weights(folder: Path, module: nn.Module, what: str) -> None:
    """Load the weights of ``folder`` into ``module``; ``what`` is its name with an article."""
    file = folder / MODEL
    if not file.is_file():
        raise TagmaskError(f"{file} does not exist; train {what} into {folder} first.")
    try:
        module.load_state_dict(load_file(file))
    except Exception as error:
        raise TagmaskError(
            f"{file} does not hold the model of config.json beside it: {error}\n"
            f"Take both from a backup, or train {what} again with --restart."
        ) from None
