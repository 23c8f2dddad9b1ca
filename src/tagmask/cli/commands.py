"""The commands: each parses its settings, calls one function, and prints what that returns."""

import os
from typing import Any

from tagmask.cli import examples


def run_command(name: str, arguments: list[str]) -> None:
    """Parse the settings of a command, run it, and print its summary."""
    _quieten_libraries()
    from tagmask.cli import parse
    from tagmask.pipeline.stages import call

    if name == "demo":
        from tagmask.demo import DemoSettings, run_demo

        run_demo(parse.from_flags(DemoSettings, {}, arguments, "demo", DemoSettings.__doc__ or ""))
    elif name == "run":
        settings = parse.parse_run(arguments)
        print(call("tagmask.pipeline.run:run")(settings).summary())
    elif name == "paper" and "--list" in arguments:
        print(call("tagmask.paper.names:listing")())
    elif name == "paper":
        table = parse.parse_paper(arguments)
        print(call("tagmask.paper.command:run_paper")(table).summary())
    elif name == "export":
        from tagmask.config import ExportSettings

        export: Any = parse.parse(ExportSettings, arguments, name, examples.EXPORT)
        print(call("tagmask.stages.export:export_run")(export))
    else:
        _run_stage(name, arguments)


def commands() -> list[str]:
    """Every command: the stages of the table, and some more."""
    from tagmask.pipeline.stages import STAGES

    return ["demo", "run", *(row.name for row in STAGES), "export", "paper"]


def _run_stage(name: str, arguments: list[str]) -> None:
    from tagmask.cli import parse
    from tagmask.pipeline.stages import call, stage

    row, description = stage(name), getattr(examples, name.upper(), "")
    if row.photo is not None and arguments and not arguments[0].startswith("-"):
        kind, function = row.photo
        photo = parse.from_flags(kind, {}, ["--photo", *arguments], name, description)
        print(call(function)(photo))
        return
    settings: Any = parse.parse(row.settings, arguments, name, description)
    if name == "train" and not settings.pretrained and settings.weights is None and settings.backbone != "tagmask_tiny":
        print(f"{settings.backbone} starts from scratch; --pretrained or --weights give better maps.", flush=True)
    result = row.run(settings)
    if getattr(result, "is_main", True):  # of several launched processes one speaks
        print(result.summary())


def _quieten_libraries() -> None:
    """No chatter of libraries between the progress lines, and threads that wait without burning the core.

    Spinning threads make training many times slower on a laptop that does anything else; must be set before torch.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
