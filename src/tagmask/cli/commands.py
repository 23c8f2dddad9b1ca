"""The commands: each parses its settings, calls one function, and prints what that returns."""

import inspect
import os
import re
from contextlib import AbstractContextManager, nullcontext
from pkgutil import resolve_name
from typing import Any

from tagmask import config
from tagmask.cli import examples
from tagmask.cli.parse import from_flags, parse, parse_paper, parse_run, use_of_network
from tagmask.layout import SEGMENTER

# command that takes the data of a run: its settings, its function
_ON_DATA: dict[str, tuple[type[Any], str]] = {
    "export": (config.ExportSettings, "tagmask.exchange.export:export_run"),
    "serve": (config.ServeSettings, "tagmask.exchange.label_studio_server:serve"),
    "corrections": (config.CorrectionSettings, "tagmask.exchange.corrections:import_corrections"),
}


def run_command(name: str, arguments: list[str]) -> None:
    """Parse the settings of a command, run it, and print its summary.

    Args:
        name: One of ``commands``.
        arguments: What follows it on the command line.
    """
    _quieten_libraries()
    if name == "demo":
        from tagmask.demo import DemoSettings, run_demo

        description = inspect.getdoc(DemoSettings) or ""
        run_demo(from_flags(DemoSettings, {}, arguments, "demo", description))
    elif name == "run":
        settings = parse_run(arguments)
        print(resolve_name("tagmask.runs.run:run")(settings).summary())
    elif name == "paper" and "--list" in arguments:
        print(resolve_name("tagmask.reproduction.names:listing")())
    elif name == "paper":
        table = parse_paper(arguments)
        print(resolve_name("tagmask.reproduction.command:run_paper")(table).summary())
    elif name == "explore":
        if _begins_with_photo(arguments):
            arguments = ["--photo", *arguments]
        explore = from_flags(config.ExploreSettings, {}, arguments, name, examples.EXPLORE)
        print(resolve_name("tagmask.explore.server:explore")(explore))
    elif name in _ON_DATA:
        kind, function = _ON_DATA[name]
        if name == "corrections":
            arguments = [re.sub("^--from(?==|$)", "--source", word) for word in arguments]
        start = {}
        if name == "serve":
            start = use_of_network(config.MaskSettings, arguments, SEGMENTER)
        on_data = parse(kind, arguments, name, getattr(examples, name.upper()), start)
        print(resolve_name(function)(on_data))
    else:
        _run_stage(name, arguments)


def commands() -> list[str]:
    """Return the names of all commands: the stages of the table, and seven more."""
    from tagmask.runs.table import STAGES

    stages = [row.name for row in STAGES]
    return ["demo", "run", *stages, "export", "explore", "serve", "corrections", "paper"]


def _begins_with_photo(arguments: list[str]) -> bool:
    return bool(arguments) and not arguments[0].startswith("-")


def _run_stage(name: str, arguments: list[str]) -> None:
    """Run a stage on the images of a run or, where it can, on one photo."""
    from tagmask.runs.table import stage

    row = stage(name)
    description = getattr(examples, name.upper(), "")
    if row.photo is not None and _begins_with_photo(arguments):
        kind, function = row.photo
        start = use_of_network(row.use, arguments) if row.use is not None else {}
        photo = from_flags(kind, start, ["--photo", *arguments], name, description)
        print(resolve_name(function)(photo))
        return
    settings: Any = parse(row.settings, arguments, name, description)
    if name == "train" and _is_from_scratch(settings):
        print(
            f"{settings.backbone} is trained from scratch; "
            "--pretrained or --weights FILE gives better maps.",
            flush=True,
        )
    with _lock(row, settings):
        result = row.run(settings)
    # of several launched processes, only one prints
    if getattr(result, "is_main", True):
        print(result.summary())


def _is_from_scratch(settings: Any) -> bool:
    """Return True if a training has no pretrained weights although its backbone may have some."""
    has_weights = settings.pretrained or settings.weights is not None
    return not has_weights and settings.backbone != "tagmask_tiny"


def _lock(row: Any, settings: Any) -> AbstractContextManager[None]:
    """Refuse to work in a run that another command works in.

    Several commands may share out the images of a stage.
    """
    from tagmask.files import only_one
    from tagmask.runs.processes import launched_shard

    # of launched processes the first has the lock
    if launched_shard()[0] > 0 or not row.folder:
        return nullcontext()
    # the stage itself says what is wrong with its settings
    if settings.mistakes():
        return nullcontext()
    return only_one(settings.out, shared=row.unit == "images")


def _quieten_libraries() -> None:
    """Keep libraries quiet between the progress lines; must be set before torch is imported."""
    # spinning threads slow training down on a busy laptop
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
