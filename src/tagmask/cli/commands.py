"""The commands: each parses its settings, calls one function, and prints what that returns."""

import inspect
import os
import re
from contextlib import AbstractContextManager, nullcontext
from pkgutil import resolve_name
from typing import Any

from tagmask import config
from tagmask.cli import examples
from tagmask.cli.parse import from_flags, parse, parse_paper, parse_run

_ON_DATA: dict[
    str, tuple[type[Any], str]
] = {  # command that takes the data of a run: its settings, its function
    "export": (config.ExportSettings, "tagmask.stages.export:export_run"),
    "serve": (config.ServeSettings, "tagmask.live.label_studio:serve"),
    "corrections": (config.CorrectionSettings, "tagmask.stages.corrections:import_corrections"),
}


def run_command(name: str, arguments: list[str]) -> None:
    """Parse the settings of a command, run it, and print its summary."""
    _quieten_libraries()
    if name == "demo":
        from tagmask.demo import DemoSettings, run_demo

        run_demo(
            from_flags(DemoSettings, {}, arguments, "demo", inspect.getdoc(DemoSettings) or "")
        )
    elif name == "run":
        settings = parse_run(arguments)
        print(resolve_name("tagmask.pipeline.run:run")(settings).summary())
    elif name == "paper" and "--list" in arguments:
        print(resolve_name("tagmask.paper.names:listing")())
    elif name == "paper":
        table = parse_paper(arguments)
        print(resolve_name("tagmask.paper.command:run_paper")(table).summary())
    elif name == "explore":
        first = (
            ["--photo", *arguments] if arguments and not arguments[0].startswith("-") else arguments
        )
        explore = from_flags(config.ExploreSettings, {}, first, name, examples.EXPLORE)
        print(resolve_name("tagmask.explore.server:explore")(explore))
    elif name in _ON_DATA:
        kind, function = _ON_DATA[name]
        if name == "corrections":
            arguments = [re.sub("^--from(?==|$)", "--source", word) for word in arguments]
        print(resolve_name(function)(parse(kind, arguments, name, getattr(examples, name.upper()))))
    else:
        _run_stage(name, arguments)


def commands() -> list[str]:
    """Every command: the stages of the table, and seven more."""
    from tagmask.pipeline.stages import STAGES

    return [
        "demo",
        "run",
        *(row.name for row in STAGES),
        "export",
        "explore",
        "serve",
        "corrections",
        "paper",
    ]


def _run_stage(name: str, arguments: list[str]) -> None:
    from tagmask.pipeline.stages import stage

    row, description = stage(name), getattr(examples, name.upper(), "")
    if row.photo is not None and arguments and not arguments[0].startswith("-"):
        kind, function = row.photo
        photo = from_flags(kind, {}, ["--photo", *arguments], name, description)
        print(resolve_name(function)(photo))
        return
    settings: Any = parse(row.settings, arguments, name, description)
    if (
        name == "train"
        and not settings.pretrained
        and settings.weights is None
        and settings.backbone != "tagmask_tiny"
    ):
        print(
            f"{settings.backbone} is trained from scratch; --pretrained or --weights FILE gives better maps.",
            flush=True,
        )
    with _lock(row, settings):
        result = row.run(settings)
    if getattr(result, "is_main", True):  # of several launched processes, only one prints
        print(result.summary())


def _lock(row: Any, settings: Any) -> AbstractContextManager[None]:
    """Refuse to work in a run that another command works in; several may share out the images of a stage."""
    from tagmask.files import only_one
    from tagmask.stages.pool import launched_shard

    # of launched processes the first has it; the stage itself says what is wrong with its settings
    if launched_shard()[0] > 0 or not row.folder or settings.mistakes():
        return nullcontext()
    return only_one(settings.out, shared=row.unit == "images")


def _quieten_libraries() -> None:
    """Keep libraries quiet between the progress lines; must be set before torch is imported."""
    os.environ.setdefault(
        "OMP_WAIT_POLICY", "PASSIVE"
    )  # spinning threads slow training down on a busy laptop
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
