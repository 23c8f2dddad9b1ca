"""The commands: each parses its settings, calls one function, and prints what that returns."""

import inspect
import logging
import os
import re
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pkgutil import resolve_name
from typing import Any, cast

from tagmask import config
from tagmask.cli import examples
from tagmask.cli.parse import (
    from_flags,
    parse,
    parse_paper,
    parse_run,
    parse_stage,
    take,
    use_of_network,
)
from tagmask.cli.presets import listing
from tagmask.cli.shards import means_shards, run_on_shards
from tagmask.cli.surroundings import check_surroundings
from tagmask.cli.understand import understand
from tagmask.layout import SEGMENTER
from tagmask.progress import logger, show_bars, terminal_bars

# command that takes the data of a run: its settings, its function
_ON_DATA: dict[str, tuple[type[Any], str]] = {
    "export": (config.ExportSettings, "tagmask.exchange.export:export_run"),
    "serve": (config.ServeSettings, "tagmask.exchange.label_studio_server:serve"),
    "push": (config.PushSettings, "tagmask.exchange.label_studio_push:push"),
    "subclasses": (config.SubclassSettings, "tagmask.exchange.subclasses:subclasses"),
    "corrections": (config.CorrectionSettings, "tagmask.exchange.corrections:import_corrections"),
}


def run_command(name: str, arguments: list[str]) -> None:
    """Parse the settings of a command, run it, and print its summary.

    Args:
        name: One of ``commands``.
        arguments: What follows it on the command line.
    """
    check_surroundings()
    _quieten_libraries()
    show_messages()
    arguments = list(arguments)
    gpus = take(arguments, "--gpus") if name == "run" else None
    if name == "slurm":
        _slurm(arguments)
        return
    if means_shards(name, arguments):
        print(run_on_shards(name, arguments))
        return
    arguments = understand(name, arguments)
    if name == "run":
        _run(arguments, gpus)
    elif name in _ON_DATA:
        _run_on_data(name, arguments)
    elif name in _OTHERS:
        _OTHERS[name](arguments)
    else:
        _run_stage(name, arguments)


def commands() -> list[str]:
    """Return the names of all commands: the stages of the table, and those that are none."""
    from tagmask.runs.table import commands as stages

    return [
        "demo",
        "run",
        *stages(),
        "export",
        "shard",
        "sample",
        "studio",
        "explore",
        "serve",
        "push",
        "corrections",
        "subclasses",
        "paper",
        "presets",
        "selftest",
        "slurm",
    ]


def _run(arguments: list[str], gpus: str | None) -> None:
    """Do a whole run, here or in processes that are started for several GPUs."""
    settings = parse_run(arguments)
    launch = "tagmask.cli.launch:launch_on_gpus"
    if gpus is not None and resolve_name(launch)(gpus, arguments):
        return
    summary = resolve_name("tagmask.runs.run:Run").of(settings)().summary()
    # of several launched processes, the first prints
    if resolve_name("tagmask.runs.processes:launched_shard")()[0] == 0:
        print(summary)


def _run_on_data(name: str, arguments: list[str]) -> None:
    """Run a command that takes the data of a run."""
    kind, function = _ON_DATA[name]
    if name == "corrections":
        arguments = [re.sub("^--from(?==|$)", "--source", word) for word in arguments]
    start = {}
    if name == "serve":
        start = use_of_network(config.MaskSettings, arguments, SEGMENTER)
    settings = parse(kind, arguments, name, getattr(examples, name.upper()), start)
    print(resolve_name(function)(settings))


def _demo(arguments: list[str]) -> None:
    from tagmask.demo import DemoSettings, run_demo

    run_demo(from_flags(DemoSettings, {}, arguments, "demo", examples.DEMO))


def _selftest(arguments: list[str]) -> None:
    from tagmask.selftest import SelftestSettings, selftest

    description = inspect.getdoc(SelftestSettings) or ""
    print(selftest(from_flags(SelftestSettings, {}, arguments, "selftest", description)))


def _presets(_: list[str]) -> None:
    print(listing())


def _paper(arguments: list[str]) -> None:
    if "--list" in arguments:
        print(resolve_name("tagmask.reproduction.names:listing")())
        return
    settings = parse_paper(arguments)
    print(resolve_name("tagmask.reproduction.command:run_paper")(settings).summary())


def _explore(arguments: list[str]) -> None:
    if _begins_with_photo(arguments):
        arguments = ["--photo", *arguments]
    settings = from_flags(config.ExploreSettings, {}, arguments, "explore", examples.EXPLORE)
    if settings.browser:
        print("opening the page …", file=sys.stderr, flush=True)
    print(resolve_name("tagmask.studio.server:explore")(settings))


def _studio(arguments: list[str]) -> None:
    if _begins_with_photo(arguments):
        arguments = ["--folder", *arguments]
    settings = from_flags(config.StudioSettings, {}, arguments, "studio", examples.STUDIO)
    if settings.browser:
        what = "the page" if settings.folder is None else settings.folder
        print(f"opening {what} …", file=sys.stderr, flush=True)
    print(resolve_name("tagmask.studio.server:studio")(settings))


# commands that are no stages and take no data of a run
_OTHERS: dict[str, Callable[[list[str]], None]] = {
    "demo": _demo,
    "explore": _explore,
    "paper": _paper,
    "presets": _presets,
    "selftest": _selftest,
    "studio": _studio,
}


def _slurm(arguments: list[str]) -> None:
    """Write a Slurm script for the command that the arguments end with."""
    from tagmask.cli.slurm import IN_PARTS, TOGETHER, SlurmSettings, write_slurm

    known = {*IN_PARTS, *TOGETHER}
    own = []
    for word in arguments:
        if word in known:
            break
        own.append(word)
    settings = from_flags(SlurmSettings, {}, own, "slurm", examples.SLURM)
    print(write_slurm(settings, arguments[len(own) :]))


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
    start = _use_of_stage(row, arguments)
    parsed = parse_stage(row.settings, arguments, name, description, start)
    place, settings = parsed[0], cast(Any, parsed[1])
    if name == "train" and _is_from_scratch(settings):
        print(
            f"{settings.backbone} is trained from scratch; "
            "--pretrained or --weights FILE gives better maps.",
            flush=True,
        )
    run = resolve_name("tagmask.runs.run:Run").of(place)
    with _lock(row, run, settings):
        result = run.do(name, settings)
    # of several launched processes, only one prints
    if getattr(result, "is_main", True):
        print(result.summary())


def _use_of_stage(row: Any, arguments: list[str]) -> dict[str, Any]:
    """Return what the network of a stage was told, if it is another run's or for other photos."""
    flags = {word.partition("=")[0] for word in arguments}
    if row.use is None or not flags & {"--model", "--photos"}:
        return {}
    from tagmask.runs.table import stage

    # the network that a stage reads is the first that it is made from
    return use_of_network(row.use, arguments, stage(row.reads[0]).folder)


def _is_from_scratch(settings: Any) -> bool:
    """Return True if a training has no pretrained weights although its backbone may have some."""
    has_weights = settings.pretrained or settings.weights is not None
    return not has_weights and settings.backbone != "tagmask_tiny"


def _lock(row: Any, run: Any, settings: Any) -> AbstractContextManager[None]:
    """Refuse to work in a run that another command works in.

    Several commands may share out the images of a stage.
    """
    from tagmask.config.run import check_stage
    from tagmask.errors import TagmaskError
    from tagmask.files import only_one
    from tagmask.runs.processes import launched_shard

    # of launched processes the first has the lock
    if launched_shard()[0] > 0 or not row.folder:
        return nullcontext()
    # without a folder that is a run's, nothing is written
    try:
        check_stage(run.settings, settings)
    except TagmaskError:
        # the stage itself says what is wrong with its settings
        return nullcontext()
    return only_one(run.out, shared=row.unit == "images")


def _quieten_libraries() -> None:
    """Keep libraries quiet between the progress lines; must be set before torch is imported."""
    # spinning threads slow training down on a busy laptop
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


def show_messages() -> None:
    """Show what the library logs, and bars for long work."""
    show_bars()
    logger.setLevel(logging.INFO)
    if not any(isinstance(handler, _Terminal) for handler in logger.handlers):
        logger.addHandler(_Terminal())


class _Terminal(logging.Handler):
    """Print messages above the bars."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one message."""
        terminal_bars().write(record.getMessage())
        sys.stdout.flush()
