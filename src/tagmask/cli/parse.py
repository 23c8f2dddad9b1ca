"""Settings from flags, on top of --preset, --config, and the data of the run's earlier stages."""

import dataclasses
import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tagmask.cli import examples
from tagmask.cli.help import ASKED, show_help
from tagmask.config import preset_of, read_toml, read_use, read_values
from tagmask.config.paper import PaperSettings, PaperTop
from tagmask.config.presets import find_preset
from tagmask.config.run import DATA, SECTIONS, RunSettings, RunTop, run_values
from tagmask.errors import TagmaskError
from tagmask.layout import CONFIG

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Settings = TypeVar("Settings", bound="DataclassInstance")


def parse(
    kind: type[Settings],
    arguments: list[str],
    command: str,
    description: str,
    start: Mapping[str, Any] | None = None,
) -> Settings:
    """Return the settings of a stage; later sources win: defaults, preset, run or --config, flags.

    Args:
        kind: Class of the settings.
        arguments: The command line after the command.
        command: Name of the command.
        description: Text that the help shows before the settings.
        start: Settings by name, instead of defaults.
    """
    values: dict[str, Any] = dict(start or {})
    rest = list(arguments)
    preset = take(rest, "--preset")
    config = take(rest, "--config")
    if preset is not None and command not in SECTIONS:
        raise TagmaskError(f"--preset {preset}: tagmask {command} has no presets; leave it out.")
    if preset is not None:
        values |= read_values(kind, preset_of(preset, command), f"preset {preset}")
    if config is not None:
        section = read_toml(Path(config)).get(command, {})
        values |= read_values(kind, section, config)
    elif command != "train":
        values |= read_values(kind, data_of_run(rest, command), "config.toml of the run")
    if command in SECTIONS:
        description += examples.SOURCES
    return from_flags(kind, values, rest, command, description)


def parse_run(arguments: list[str]) -> RunSettings:
    """Return the settings of a run; later sources win: defaults, preset, --config, flags."""
    rest = list(arguments)
    preset = take(rest, "--preset")
    config = take(rest, "--config")
    values = run_values(preset, None if config is None else Path(config))
    # the help of the stages lists their settings
    if ASKED & set(rest):
        top = {key: value for key, value in values.items() if key not in SECTIONS}
        from_flags(RunTop, top, rest, "run", examples.RUN)
    return from_flags(RunSettings, values, rest, "run", examples.RUN)


def parse_paper(arguments: list[str]) -> PaperSettings:
    """Return the settings of a table; later sources win: defaults, preset, --config, flags."""
    rest = list(arguments)
    if ASKED & set(rest):
        from_flags(PaperTop, {}, rest, "paper", examples.PAPER)
    if rest and not rest[0].startswith("-"):
        rest = ["--table", *rest]
    table = _table_of(rest)
    preset = take(rest, "--preset")
    config = take(rest, "--config")
    if preset is None and config is None and not _given(rest, "--data"):
        preset = "scenes"
    values = run_values(preset, None if config is None else Path(config))
    # a run has settings that a table has not
    shared = {*DATA, *SECTIONS}
    values = {key: value for key, value in values.items() if key in shared}
    if preset is not None:
        values |= find_preset(preset).get("paper", {})
    if config is not None:
        values |= _values_of_table(config, table)
    return from_flags(PaperSettings, values, rest, "paper", examples.PAPER)


def _table_of(arguments: list[str]) -> str:
    """Return the table or figure that the arguments name; refuse one that does not exist."""
    from tagmask.reproduction.names import NAMES

    table = take(list(arguments), "--table")
    names = ", ".join(NAMES)
    if table is None:
        raise TagmaskError(
            f"name a table or figure first: {names}; `tagmask paper --list` explains them."
        )
    if table not in NAMES:
        near = difflib.get_close_matches(table, NAMES, n=1)
        remedy = f"did you mean {near[0]!r}?" if near else f"choose from {names}."
        raise TagmaskError(f"there is no table or figure {table!r}; {remedy}")
    return table


def _values_of_table(config: str, table: str) -> dict[str, Any]:
    """Return what is scored, from a table's TOML file, and the rows if they are of this table."""
    section = read_toml(Path(config)).get("paper", {})
    values = read_values(PaperTop, section, f"{config}: paper")
    left_out = {"table", "out", "shard", "scores"}
    if values.get("table") != table:
        left_out.add("rows")
    return {key: value for key, value in values.items() if key not in left_out}


def from_flags(
    kind: type[Settings],
    values: dict[str, Any],
    arguments: list[str],
    command: str,
    description: str,
) -> Settings:
    """Apply flags on top of other values; if the arguments ask for help, print it and exit.

    Args:
        kind: Class of the settings.
        values: Settings by name, from presets and files.
        arguments: The flags.
        command: Name of the command.
        description: Text that the help shows before the settings.
    """
    import tyro

    missing = dataclasses.MISSING
    start: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        if field.default is missing and field.default_factory is missing:
            start[field.name] = tyro.MISSING
    default = kind(**{**start, **values})
    prog = f"tagmask {command}"
    show_help(kind, default, arguments, prog, description)
    return tyro.cli(kind, args=arguments, prog=prog, description=description, default=default)


def take(arguments: list[str], name: str) -> str | None:
    """Remove a flag with its value from the arguments and return the value.

    Args:
        arguments: The command line; ``name VALUE`` or ``name=VALUE`` is removed from it.
        name: The flag with its dashes.

    Returns:
        The value where the flag is first given; None if it is not.

    Raises:
        TagmaskError: The flag comes last, without a value.
    """
    for index, argument in enumerate(arguments):
        if argument == name:
            if index + 1 == len(arguments):
                raise TagmaskError(f"{name} needs a value; see --help.")
            value = arguments[index + 1]
            del arguments[index : index + 2]
            return value
        if argument.startswith(name + "="):
            del arguments[index]
            return argument.split("=", 1)[1]
    return None


def use_of_network(kind: type[Any], arguments: list[str], folder: str = "") -> dict[str, Any]:
    """Return what the network of a command was told by its run, to start from.

    Args:
        kind: Class of the settings that the network is told.
        arguments: The flags; --model names the folder of the network.
        folder: Where the network is in the run of --out, if there is no --model.

    Returns:
        Settings by name; none if the network cannot be read: loading it tells why.
    """
    from tagmask.models.storage import read_network_use

    # the empty word is the value of a last flag without one
    path = take([*arguments, ""], "--model")
    out = take([*arguments, ""], "--out")
    if not path and folder and out:
        path = str(Path(out) / folder)
    if not path:
        return {}
    try:
        return read_use(kind, read_network_use(Path(path)))
    except (TagmaskError, OSError):
        return {}


def data_of_run(arguments: list[str], command: str) -> dict[str, Any]:
    """Return the data settings of the run in --out, so that later stages need not repeat them.

    Args:
        arguments: The flags; with --data nothing is read.
        command: Name of the command; of the stages before it the most recent one counts.
    """
    # the empty word is the value of a last --out without one
    out = take([*arguments, ""], "--out")
    if not out or _given(arguments, "--data"):
        return {}
    file = Path(out) / CONFIG
    if not file.exists():
        return {}
    tables = read_toml(file)
    sections = [name for name in _sections_for(arguments, command) if name in tables]
    if not sections:
        return {}
    newest = sections[0]
    names = {*DATA}
    if command == "export" and newest == "predict":
        names |= {"photos", "model"}
    return {key: value for key, value in tables[newest].items() if key in names}


def _sections_for(arguments: list[str], command: str) -> list[str]:
    """Return the stages whose images a command works on: its own and those before, newest first."""
    # masks given by --labels are pseudo labels or the user's own
    if command == "export":
        command = "pseudo" if _given(arguments, "--labels") else "predict"
    if command == "score":
        command = "seeds"
    newest_first = list(SECTIONS)[::-1]
    # a stage without a section comes after them all
    if command not in SECTIONS:
        return newest_first
    return newest_first[newest_first.index(command) :]


def _given(arguments: list[str], name: str) -> bool:
    return any(argument.partition("=")[0] == name for argument in arguments)
