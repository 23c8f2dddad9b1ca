"""Settings from flags, on top of --preset, --config, and what earlier stages of the run were told."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from tagmask.config import DataSettings, Preset, read_toml, read_values
from tagmask.errors import TagmaskError

Settings = TypeVar("Settings", bound=DataSettings)
NEWEST_FIRST = ("predict", "segment", "pseudo", "seeds", "train")  # sections of config.toml


def parse(
    kind: type[Settings], arguments: list[str], command: str, description: str, presets: Mapping[str, Preset]
) -> Settings:
    """The settings of a command; later sources win: defaults, preset, the run or --config, flags."""
    import tyro

    start: dict[str, Any] = {}
    preset = take(arguments, "--preset")
    if preset is not None:
        if preset not in presets:
            known = f"choose from {', '.join(presets)}" if presets else f"tagmask {command} has none"
            raise TagmaskError(f"there is no preset {preset!r}; {known}.")
        start |= read_values(kind, presets[preset], f"preset {preset}")
    config = take(arguments, "--config")
    if config is not None:
        start |= read_values(kind, read_toml(Path(config)).get(command, {}), config)
    elif command != "train":
        start |= read_values(kind, data_of_run(arguments, command), "config.toml of the run")
    required = [field.name for field in dataclasses.fields(kind) if _is_required(field)]
    default = kind(**{**dict.fromkeys(required, tyro.MISSING), **start})
    return tyro.cli(kind, args=arguments, prog=f"tagmask {command}", description=description, default=default)


def take(arguments: list[str], flag: str) -> str | None:
    """Remove ``flag VALUE`` or ``flag=VALUE`` from the arguments and return the value."""
    for place, argument in enumerate(arguments):
        if argument == flag:
            if place + 1 == len(arguments):
                raise TagmaskError(f"{flag} needs a value; see --help.")
            value = arguments[place + 1]
            del arguments[place : place + 2]
            return value
        if argument.startswith(flag + "="):
            del arguments[place]
            return argument.split("=", 1)[1]
    return None


def data_of_run(arguments: list[str], command: str) -> dict[str, Any]:
    """Data settings of the run in --out, so that later stages need not repeat them; newer stages win."""
    out = take([*arguments, ""], "--out")
    if not out or _given(arguments, "--data") or not (Path(out) / "config.toml").exists():
        return {}
    names = {field.name for field in dataclasses.fields(DataSettings)}
    if command == "export":
        names |= {"photos", "model"}
    whole = read_toml(Path(out) / "config.toml")
    section: dict[str, Any] = next((whole[name] for name in sections_for(arguments, command) if name in whole), {})
    return {name: value for name, value in section.items() if name in names}


def sections_for(arguments: list[str], command: str) -> tuple[str, ...]:
    """The stages whose images a command works on, the first that was run counts: its own, or one before it."""
    if command == "export":  # masks given by --labels are pseudo labels or the user's own
        command = "pseudo" if _given(arguments, "--labels") else "predict"
    command = {"score": "seeds", "report": "predict"}.get(command, command)
    return NEWEST_FIRST[NEWEST_FIRST.index(command) :]


def _given(arguments: list[str], flag: str) -> bool:
    return any(argument == flag or argument.startswith(flag + "=") for argument in arguments)


def _is_required(field: "dataclasses.Field[Any]") -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
