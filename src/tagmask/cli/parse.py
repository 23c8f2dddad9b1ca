"""Settings from flags, on top of --preset, --config, and the data of the run's earlier stages."""

import dataclasses
import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tagmask.cli import examples
from tagmask.cli.help import ASKED, show_help, with_some_of_stage
from tagmask.cli.mistakes import table_of_paper, unknown_words
from tagmask.config import preset_of, read_use, read_values
from tagmask.config.base import Settings, flag
from tagmask.config.paper import PaperSettings, PaperTop
from tagmask.config.run import (
    DATA,
    KEPT,
    NOT_IN_A_RUN,
    ONCE,
    Located,
    RunSettings,
    RunTop,
    data_of,
    own_values,
    read_config,
)
from tagmask.errors import TagmaskError
from tagmask.layout import CONFIG

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Parsed = TypeVar("Parsed", bound="DataclassInstance")


def sections() -> dict[str, type[Any]]:
    """Return the settings class of each section of config.toml."""
    # imported on first use, so that `tagmask --help` is quick
    from tagmask.runs.table import sections as of_the_table

    return of_the_table()


def parse(
    kind: type[Parsed],
    arguments: list[str],
    command: str,
    description: str,
    start: Mapping[str, Any] | None = None,
) -> Parsed:
    """Return the settings of a command on the data of a run; flags win over the run's data.

    Args:
        kind: Class of the settings.
        arguments: The command line after the command.
        command: Name of the command.
        description: Text that the help shows before the settings.
        start: Settings by name, instead of defaults.
    """
    values: dict[str, Any] = dict(start or {})
    rest = list(arguments)
    _refuse_preset(take(rest, "--preset"), command)
    config = take(rest, "--config")
    if config is not None:
        values |= read_values(kind, _section_of(Path(config), command), config)
    else:
        values |= read_values(kind, data_of_run(rest, command), "config.toml of the run")
    return from_flags(kind, values, rest, command, description)


def parse_stage(
    kind: type[Settings],
    arguments: list[str],
    command: str,
    description: str,
    start: Mapping[str, Any] | None = None,
) -> tuple[RunSettings, Settings]:
    """Return the run that a stage is done in, and the stage's own settings.

    Later sources win: defaults or ``start``, preset, what the run or --config says, flags.

    Args:
        kind: Class of the stage's own settings.
        arguments: The command line after the command.
        command: Name of the command.
        description: Text that the help shows before the settings.
        start: Settings by name, instead of defaults.
    """
    rest = list(arguments)
    preset = take(rest, "--preset")
    config = take(rest, "--config")
    stages = sections()
    if command not in stages:
        _refuse_preset(preset, command)
    values: dict[str, Any] = dict(start or {})
    sources: dict[str, Mapping[str, Any]] = {}
    if preset is not None:
        sources[f"preset {preset}"] = preset_of(preset, command)
    if config is not None:
        sources[config] = _section_of(Path(config), command)
    elif command != "train":
        # a preset that is named means its settings, not those of the run
        own = settings_of_run(rest, command) if preset is None else {}
        if _given(rest, "--photos"):
            # photos that the run does not know have no tags to use
            own = {name: value for name, value in own.items() if name != "use_tags"}
        sources["config.toml of the run"] = {**own, **data_of_run(rest, command)}
    for source in sources.values():
        values |= source
    kind = _chosen(kind, values, rest)
    for title, source in sources.items():
        read_values(with_place(kind), source, title)
    if command in stages:
        description += examples.SOURCES
    flags = with_place(kind)
    given = from_flags(flags, read_values(flags, values, command), rest, command, description)
    own = {field.name: getattr(given, field.name) for field in dataclasses.fields(kind)}
    settings = kind(**own)
    names = [name for name in ("out", *DATA, *KEPT) if hasattr(given, name)]
    place = {name: getattr(given, name) for name in names}
    return _run_of_stage(place, settings), settings


def _run_of_stage(place: Mapping[str, Any], settings: Settings) -> RunSettings:
    """Return the settings of the run in a folder, in which one stage is done by itself.

    Args:
        place: Folder and data, by name.
        settings: The stage's own settings.
    """
    from tagmask.runs.settings import run_values

    file = place["out"] / CONFIG
    values: dict[str, Any] = run_values(None, file) if file.is_file() else {}
    known = {field.name for field in dataclasses.fields(RunTop)}
    top = {name: value for name, value in values.items() if name in known}
    stages = {name: value for name, value in values.items() if name not in known}
    if settings.section:
        stages[settings.section] = settings
    return RunSettings(**{**top, **place, "stages": stages})


def with_place(kind: type[Settings]) -> type[Any]:
    """Return a class with a stage's own settings, the folder and the data of its run."""
    cache = () if kind.cache is None else (kind.cache,)
    body = {"__doc__": kind.__doc__, "__module__": kind.__module__}
    flags = type(kind.__name__, (kind, *cache, Located), body)
    return dataclasses.dataclass(frozen=True, kw_only=True)(flags)


def _chosen(
    kind: type[Settings], values: Mapping[str, Any], arguments: list[str], prefix: str = "--"
) -> type[Settings]:
    """Return the class of a stage's settings, of which it may have one for each network.

    Args:
        kind: The class that all of them have as a base.
        values: Settings by name, from presets and files.
        arguments: The flags, which win over values.
        prefix: What the flags of the stage begin with.

    Raises:
        TagmaskError: A flag belongs to another network.
    """
    options = kind.kinds()
    if not options:
        return kind
    name = next(iter(options))
    net = take([*arguments, ""], f"{prefix}{name}") or values.get(name)
    chosen = kind.kind_for({} if net is None else {name: net})
    own = {field.name for field in dataclasses.fields(chosen)}
    for value, other in options[name].items():
        for field in dataclasses.fields(other):
            word = f"{prefix}{flag(field.name)}"
            no_word = f"{prefix}no-{flag(field.name)}"
            is_given = _given(arguments, word) or _given(arguments, no_word)
            if field.name not in own and is_given:
                mine = chosen.kind_for({}) if net is None else chosen
                shown = next(key for key, of in options[name].items() if of is mine)
                raise TagmaskError(
                    f"{word} belongs to {prefix}{name} {value}, not to {prefix}{name} {shown}; "
                    "leave it out, or change the network."
                )
    return chosen


def parse_run(arguments: list[str]) -> RunSettings:
    """Return the settings of a run; later sources win: defaults, preset, --config, flags."""
    from tagmask.runs.settings import run_settings, run_values

    rest = list(arguments)
    preset = take(rest, "--preset")
    config = take(rest, "--config")
    values = run_values(preset, None if config is None else Path(config))
    # the help of the stages lists their settings
    if ASKED & set(rest):
        top = {key: value for key, value in values.items() if key not in sections()}
        # photos with tags get this preset by themselves
        shown = values if preset or config else run_values("own-photos", None)
        kind, start = with_some_of_stage(
            RunTop, shown["train"], ("weights", "backbone"), examples.START_OF_RUN
        )
        from_flags(kind, {**top, "train": start}, rest, "run", examples.RUN)
    return run_settings(_with_sections(RunTop, values, rest, "run", examples.RUN))


def _with_sections(
    top: type[Any], values: Mapping[str, Any], arguments: list[str], command: str, description: str
) -> dict[str, Any]:
    """Return values with those of flags on top, of a command that has a section for each stage.

    Args:
        top: Class of what is set once.
        values: Of the top by name, and settings of stages by section.
        arguments: The flags.
        command: Name of the command.
        description: Text that the help shows before the settings.
    """
    start = dict(values)
    fields: list[tuple[str, Any, Any]] = []
    for name, kind in sections().items():
        _refuse_misplaced(name, arguments)
        given = values[name]
        net = {key: getattr(given, key) for key in kind.kinds()}
        chosen = _chosen(kind, net, arguments, f"--{name}.")
        if not isinstance(given, chosen):
            start[name] = given = chosen()
        fields.append((name, chosen, dataclasses.field(default=given)))
    flags = dataclasses.make_dataclass(
        top.__name__, fields, bases=(top,), frozen=True, kw_only=True
    )
    parsed: Any = from_flags(flags, start, arguments, command, description)
    return {field.name: getattr(parsed, field.name) for field in dataclasses.fields(flags)}


def _refuse_misplaced(section: str, arguments: list[str]) -> None:
    """Refuse flags of a stage that belong to the whole run."""
    for name, remedy in {**NOT_IN_A_RUN, **ONCE}.items():
        word = f"--{section}.{flag(name)}"
        is_own = name in {field.name for field in dataclasses.fields(sections()[section])}
        if _given(arguments, word) and not is_own:
            raise TagmaskError(f"{word} has no place in a run; {remedy}.")


def parse_paper(arguments: list[str]) -> PaperSettings:
    """Return the settings of a table; later sources win: defaults, preset, --config, flags."""
    from tagmask.reproduction.settings import preset_values

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
    values = preset_values(preset, None if config is None else Path(config))
    if config is not None:
        values |= _values_of_table(config, table)
    values = _with_sections(PaperTop, values, rest, "paper", examples.PAPER)
    stages = {name: values.pop(name) for name in sections()}
    return PaperSettings(**values, stages=stages)


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
        numbered = table_of_paper(table)
        remedy = f"did you mean {near[0]!r}?" if near else f"choose from {names}."
        if numbered is not None:
            remedy = f"the paper's is {numbered}; `tagmask paper --list` has all."
        raise TagmaskError(f"there is no table or figure {table!r}; {remedy}")
    return table


def _values_of_table(config: str, table: str) -> dict[str, Any]:
    """Return what is scored, from a table's TOML file, and the rows if they are of this table."""
    section = read_config(Path(config)).get("paper", {})
    values = read_values(PaperTop, section, f"{config}: paper")
    left_out = {"table", "out", "shard", "scores"}
    if values.get("table") != table:
        left_out.add("rows")
    return {key: value for key, value in values.items() if key not in left_out}


def from_flags(
    kind: type[Parsed],
    values: dict[str, Any],
    arguments: list[str],
    command: str,
    description: str,
) -> Parsed:
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
    parsed, unknown = tyro.cli(
        kind,
        args=arguments,
        prog=prog,
        description=description,
        default=default,
        return_unknown_args=True,
    )
    if unknown:
        raise TagmaskError(unknown_words(command, unknown, parsed))
    return parsed


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
    tables = read_config(file)
    done = [name for name in _sections_for(arguments, command) if name in tables]
    if not done:
        return {}
    newest = done[0]
    values = data_of(tables, newest)
    if command == "export" and newest == "predict":
        for name in ("photos", "model"):
            if name in tables[newest]:
                values[name] = tables[newest][name]
    return values


# what a stage did once on other photos or for a part of them is not what it does the next time
_NOT_INHERITED = {"photos", "model", "shard", "restart"}


def settings_of_run(arguments: list[str], command: str) -> dict[str, Any]:
    """Return the settings of a stage in the run in --out, so that they need not be repeated.

    Args:
        arguments: The flags.
        command: Name of the stage.
    """
    out = take([*arguments, ""], "--out")
    if not out or not (Path(out) / CONFIG).exists() or command not in sections():
        return {}
    values = own_values(read_config(Path(out) / CONFIG), command)
    for name in sections()[command].kinds():
        asked = take([*arguments, ""], f"--{flag(name)}")
        # another network has other settings
        if asked and asked != values.get(name):
            return {}
    return {name: value for name, value in values.items() if name not in _NOT_INHERITED}


def _section_of(config: Path, command: str) -> dict[str, Any]:
    """Return what a config.toml says about a stage: its own settings, folder and data."""
    tables = read_config(config)
    if command not in tables:
        return {}
    of_run = tables.get("run", {})
    once = {name: of_run[name] for name in ("out", *KEPT) if name in of_run}
    kind = sections().get(command)
    cache = {} if kind is None or kind.cache is None else dataclasses.fields(kind.cache)
    names = {"out", *(field.name for field in cache)}
    values = {name: value for name, value in once.items() if name in names}
    return {**data_of(tables, command), **values, **own_values(tables, command)}


def _sections_for(arguments: list[str], command: str) -> list[str]:
    """Return the stages whose images a command works on: its own and those before, newest first."""
    # masks given by --labels are pseudo labels or the user's own
    if command == "export":
        command = "pseudo" if _given(arguments, "--labels") else "predict"
    if command == "score":
        command = "seeds"
    newest_first = list(sections())[::-1]
    # a stage without a section comes after them all
    if command not in newest_first:
        return newest_first
    return newest_first[newest_first.index(command) :]


def _refuse_preset(preset: str | None, command: str) -> None:
    """Refuse a preset for a command that has none."""
    if preset is not None:
        raise TagmaskError(f"--preset {preset}: tagmask {command} has no presets; leave it out.")


def _given(arguments: list[str], name: str) -> bool:
    return any(argument.partition("=")[0] == name for argument in arguments)
