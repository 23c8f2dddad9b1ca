"""The table of commands: each parses its settings, calls one function, and prints what that returns."""

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

from tagmask import config
from tagmask.cli import examples
from tagmask.cli.parse import from_flags, parse, parse_paper, parse_run


def _summary(result: Any, settings: Any) -> str:
    return result if isinstance(result, str) else str(result.summary())


@dataclass(frozen=True)
class Command:
    """A command that works on a catalog of images, and on one photo where ``photo`` names a function for it."""

    settings: type[config.Settings]
    function: str  # module:function, imported when the command runs
    description: str
    photo: tuple[type[config.Settings], str] | None = None
    summary: Callable[[Any, Any], str] = _summary  # of what the function returns, and its settings


STAGES: Mapping[str, Command] = {
    "train": Command(config.TrainSettings, "tagmask.training.classifier:train", examples.TRAIN),
    "seeds": Command(
        config.SeedSettings,
        "tagmask.stages.seeds:seed_catalog",
        examples.SEEDS,
        (config.PhotoSettings, "tagmask.stages.photo:seed_photo"),
    ),
    "score": Command(
        config.ScoreSettings,
        "tagmask.stages.score_run:score_run",
        examples.SCORE,
        summary=lambda scores, settings: scores.summary(settings.out),
    ),
    "pseudo": Command(config.PseudoSettings, "tagmask.stages.pseudo:make_pseudo", examples.PSEUDO),
    "segment": Command(config.SegmentSettings, "tagmask.training.segmenter:train_segmenter", examples.SEGMENT),
    "predict": Command(
        config.PredictSettings,
        "tagmask.stages.predict:predict_catalog",
        examples.PREDICT,
        (config.PredictPhotoSettings, "tagmask.stages.predict_photo:predict_photo"),
    ),
    "report": Command(
        config.ReportSettings,
        "tagmask.stages.report:write_report",
        examples.REPORT,
        summary=lambda page, settings: f"report: {page}",
    ),
    "export": Command(config.ExportSettings, "tagmask.stages.export:export_run", examples.EXPORT),
}
COMMANDS = ("demo", "run", *STAGES, "paper")


def run_command(name: str, arguments: list[str]) -> None:
    """Parse the settings of a command, run it, and print its summary."""
    _quieten_libraries()
    if name == "demo":
        from tagmask.demo import DemoSettings, run_demo

        run_demo(from_flags(DemoSettings, {}, arguments, "demo", inspect.getdoc(DemoSettings) or ""))
    elif name == "run":
        settings = parse_run(arguments)
        print(resolve_name("tagmask.pipeline.run:run")(settings).summary())
    elif name == "paper" and "--list" in arguments:
        print(resolve_name("tagmask.paper.names:listing")())
    elif name == "paper":
        table = parse_paper(arguments)
        print(resolve_name("tagmask.paper.command:run_paper")(table).summary())
    else:
        _run_stage(name, arguments)


def _run_stage(name: str, arguments: list[str]) -> None:
    command = STAGES[name]
    if command.photo is not None and arguments and not arguments[0].startswith("-"):
        kind, function = command.photo
        photo = from_flags(kind, {}, ["--photo", *arguments], name, command.description)
        print(resolve_name(function)(photo))
        return
    settings: Any = parse(command.settings, arguments, name, command.description)
    if name == "train" and not settings.pretrained and settings.weights is None and settings.backbone != "tagmask_tiny":
        print(f"{settings.backbone} starts from scratch; --pretrained or --weights give better maps.", flush=True)
    result = resolve_name(command.function)(settings)
    if getattr(result, "is_main", True):  # of several launched processes one speaks
        print(command.summary(result, settings))


def _quieten_libraries() -> None:
    """No chatter of libraries between the progress lines, and threads that wait without burning the core.

    Spinning threads make training many times slower on a laptop that does anything else; must be set before torch.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
