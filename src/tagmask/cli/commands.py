"""The table of commands: each parses its settings, calls one function, and prints what that returns."""

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from tagmask.cli import examples
from tagmask.config import (
    ExportSettings,
    PhotoSettings,
    PredictPhotoSettings,
    PredictSettings,
    PseudoSettings,
    ReportSettings,
    ScoreSettings,
    SeedSettings,
    SegmentSettings,
    Settings,
    TrainSettings,
)


def _summary(result: Any, settings: Any) -> str:
    return result if isinstance(result, str) else str(result.summary())


@dataclass(frozen=True)
class Command:
    """A command that works on a catalog of images, and on one photo where ``photo`` names a function for it."""

    settings: type[Settings]
    function: str  # module:function, imported when the command runs
    description: str
    photo: tuple[type[Settings], str] | None = None
    summary: Callable[[Any, Any], str] = _summary  # of what the function returns, and its settings


STAGES: Mapping[str, Command] = {
    "train": Command(TrainSettings, "tagmask.training.classifier:train", examples.TRAIN),
    "seeds": Command(
        SeedSettings,
        "tagmask.stages.seeds:seed_catalog",
        examples.SEEDS,
        (PhotoSettings, "tagmask.stages.photo:seed_photo"),
    ),
    "score": Command(
        ScoreSettings,
        "tagmask.stages.score_run:score_run",
        examples.SCORE,
        summary=lambda scores, settings: scores.summary(settings.out),
    ),
    "pseudo": Command(PseudoSettings, "tagmask.stages.pseudo:make_pseudo", examples.PSEUDO),
    "segment": Command(SegmentSettings, "tagmask.training.segmenter:train_segmenter", examples.SEGMENT),
    "predict": Command(
        PredictSettings,
        "tagmask.stages.predict:predict_catalog",
        examples.PREDICT,
        (PredictPhotoSettings, "tagmask.stages.predict_photo:predict_photo"),
    ),
    "report": Command(
        ReportSettings,
        "tagmask.stages.report:write_report",
        examples.REPORT,
        summary=lambda page, settings: f"report: {page}",
    ),
    "export": Command(ExportSettings, "tagmask.stages.export:export_run", examples.EXPORT),
}
COMMANDS = ("demo", "run", *STAGES, "paper")


def run_command(name: str, arguments: list[str]) -> None:
    """Parse the settings of a command, run it, and print its summary."""
    from tagmask.cli import parse

    _quieten_libraries()
    if name == "demo":
        from tagmask.demo import DemoSettings, run_demo

        run_demo(parse.from_flags(DemoSettings, {}, arguments, "demo", inspect.getdoc(DemoSettings) or ""))
    elif name == "run":
        settings = parse.parse_run(arguments)
        print(_function("tagmask.pipeline.run:run")(settings).summary())
    elif name == "paper" and "--list" in arguments:
        print(_function("tagmask.paper.names:listing")())
    elif name == "paper":
        table = parse.parse_paper(arguments)
        print(_function("tagmask.paper.command:run_paper")(table).summary())
    else:
        _run_stage(name, arguments)


def _run_stage(name: str, arguments: list[str]) -> None:
    from tagmask.cli import parse

    command = STAGES[name]
    if command.photo is not None and arguments and not arguments[0].startswith("-"):
        kind, function = command.photo
        photo = parse.from_flags(kind, {}, ["--photo", *arguments], name, command.description)
        print(_function(function)(photo))
        return
    settings: Any = parse.parse(command.settings, arguments, name, command.description)
    if name == "train" and not settings.pretrained and settings.weights is None and settings.backbone != "tagmask_tiny":
        print(f"{settings.backbone} starts from scratch; --pretrained or --weights give better maps.", flush=True)
    result = _function(command.function)(settings)
    if getattr(result, "is_main", True):  # of several launched processes one speaks
        print(command.summary(result, settings))


def _function(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)  # type: ignore[no-any-return]


def _quieten_libraries() -> None:
    """No chatter of libraries between the progress lines, and threads that wait without burning the core.

    Spinning threads make training many times slower on a laptop that does anything else; must be set before torch.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
