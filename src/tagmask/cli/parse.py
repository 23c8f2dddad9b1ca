"""Settings from flags, on top of --preset, --config, and the data settings of the run's earlier stages."""

import dataclasses
import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tagmask.cli import examples
from tagmask.cli.help import ASKED, show_help
from tagmask.config import RENAMED, preset_of, read_toml, read_values
from tagmask.config.base import flag
from tagmask.config.paper import PaperSettings, PaperTop
from tagmask.config.presets import find_preset
from tagmask.config.run import DATA, SECTIONS, RunSettings, RunTop, run_values
from tagmask.errors import TagmaskError
from tagmask.pipeline.layout import CONFIG

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Settings = TypeVar("Settings", bound="DataclassInstance")


def parse(kind: type[Settings], arguments: list[str], command: str, description: str) -> Settings:
    """The settings of a stage; later sources win: defaults, preset, the run or --config, flags."""
    values: dict[str, Any] = {}
    rest = list(arguments)
    preset, config = take(rest, "--preset"), take(rest, "--config")
    if preset is not None and command not in SECTIONS:
        raise TagmaskError(f"--preset {preset}: tagmask {command} has no presets; leave it out.")
    if preset is not None:
        values |= read_values(kind, preset_of(preset, command), f"preset {preset}")
    if config is not None:
        values |= read_values(kind, read_toml(Path(config)).get(command, {}), config)
    elif command != "train":
        values |= read_values(kind, data_of_run(rest, command), "config.toml of the run")
    return from_flags(
        kind, values, rest, command, description + (examples.SOURCES if command in SECTIONS else "")
    )


def parse_run(arguments: list[str]) -> RunSettings:
    """The settings of a run; later sources win: defaults, preset, --config, flags."""
    rest = list(arguments)
    preset, config = take(rest, "--preset"), take(rest, "--config")
    values = run_values(preset, Path(config) if config is not None else None)
    if ASKED & set(rest):  # the help of the stages lists their settings
        top = {key: value for key, value in values.items() if key not in SECTIONS}
        from_flags(RunTop, top, rest, "run", examples.RUN)
    return from_flags(RunSettings, values, rest, "run", examples.RUN)


def parse_paper(arguments: list[str]) -> PaperSettings:
    """The settings of a table; later sources win: defaults, preset, --config, flags."""
    from tagmask.paper.names import NAMES

    rest = list(arguments)
    if ASKED & set(rest):
        from_flags(PaperTop, {}, rest, "paper", examples.PAPER)
    if rest and not rest[0].startswith("-"):
        rest = ["--table", *rest]
    table = take([*rest], "--table")
    if table is None:
        raise TagmaskError(
            f"name a table or figure first: {', '.join(NAMES)}; `tagmask paper --list` explains them."
        )
    if table not in NAMES:
        near = difflib.get_close_matches(table, NAMES, n=1)
        remedy = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(NAMES)}."
        raise TagmaskError(f"there is no table or figure {table!r}; {remedy}")
    preset, config = take(rest, "--preset"), take(rest, "--config")
    if preset is None and config is None and not _given(rest, "--data"):
        preset = "scenes"
    values = run_values(preset, Path(config) if config is not None else None)
    values = {key: value for key, value in values.items() if key in (*DATA, *SECTIONS)}
    if preset is not None:
        values |= find_preset(preset).get("paper", {})
    if config is not None:  # what is scored, and the rows if they are of the same table
        earlier = read_values(
            PaperTop, read_toml(Path(config)).get("paper", {}), f"{config}: paper"
        )
        left_out = {"table", "out", "shard", "scores"} | (
            {"rows"} if earlier.get("table") != table else set()
        )
        values |= {key: value for key, value in earlier.items() if key not in left_out}
    return from_flags(PaperSettings, values, rest, "paper", examples.PAPER)


def from_flags(
    kind: type[Settings],
    values: dict[str, Any],
    arguments: list[str],
    command: str,
    description: str,
) -> Settings:
    """Apply flags on top of ``values``; if the arguments ask for help, print it and exit."""
    import tyro

    missing = dataclasses.MISSING
    fields = dataclasses.fields(kind)
    required = [
        field.name
        for field in fields
        if field.default is missing and field.default_factory is missing
    ]
    default = kind(**{**dict.fromkeys(required, tyro.MISSING), **values})
    prog = f"tagmask {command}"
    show_help(kind, default, arguments, prog, description)
    _refuse_old_names(arguments, command)
    return tyro.cli(kind, args=arguments, prog=prog, description=description, default=default)


def take(arguments: list[str], name: str) -> str | None:
    """Remove ``name VALUE`` or ``name=VALUE`` from the arguments and return the value."""
    for place, argument in enumerate(arguments):
        if argument == name:
            if place + 1 == len(arguments):
                raise TagmaskError(f"{name} needs a value; see --help.")
            value = arguments[place + 1]
            del arguments[place : place + 2]
            return value
        if argument.startswith(name + "="):
            del arguments[place]
            return argument.split("=", 1)[1]
    return None


def data_of_run(arguments: list[str], command: str) -> dict[str, Any]:
    """Data settings of the run in --out, so that later stages need not repeat them; newer stages win."""
    out = take([*arguments, ""], "--out")
    if not out or _given(arguments, "--data") or not (Path(out) / CONFIG).exists():
        return {}
    tables = read_toml(Path(out) / CONFIG)
    section = next((name for name in _sections_for(arguments, command) if name in tables), "")
    names = {*DATA, "photos", "model"} if (command, section) == ("export", "predict") else {*DATA}
    return {key: value for key, value in tables.get(section, {}).items() if key in names}


def _sections_for(arguments: list[str], command: str) -> list[str]:
    """The stages whose images a command works on, the most recent first: its own and those before it."""
    if command == "export":  # masks given by --labels are pseudo labels or the user's own
        command = "pseudo" if _given(arguments, "--labels") else "predict"
    command = "seeds" if command == "score" else command
    stages = list(SECTIONS)
    last = (
        stages.index(command) if command in stages else len(stages) - 1
    )  # a stage without a section comes after them
    return stages[last::-1]


def _refuse_old_names(arguments: list[str], command: str) -> None:
    """Name the new flag if an earlier version's name is used."""
    stages = SECTIONS if command in ("run", "paper") else ()
    today = {
        f"--{prefix}{switch}{flag(old)}": f"--{prefix}{switch}{flag(new)}"
        for section, prefix in ((command, ""), *((stage, f"{stage}.") for stage in stages))
        for old, new in RENAMED.get(section, {}).items()
        for switch in ("", "no-")
    }
    for argument in arguments:
        name = flag(argument.partition("=")[0])
        if name in today:
            raise TagmaskError(f"{name} is now {today[name]}.")


def _given(arguments: list[str], name: str) -> bool:
    return any(argument == name or argument.startswith(name + "=") for argument in arguments)
