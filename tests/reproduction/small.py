"""Settings of tables that take seconds."""

import dataclasses
import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType

from tagmask.cli.parse import parse_paper
from tagmask.config.paper import PaperSettings

SMALL = (
    *("--preset", "scenes", "--count", "8", "--score-count", "5", "--pictures", "1"),
    *("--train.steps", "1", "--train.warmup", "0", "--train.size", "32", "--train.batch", "2"),
    *("--train.val-fraction", "0.25", "--seeds.size", "40", "--pseudo.affinity.steps", "1"),
    *(
        "--pseudo.affinity.batch",
        "2",
        "--pseudo.affinity.size",
        "32",
        "--segment.steps",
        "1",
        "--segment.batch",
        "2",
    ),
    *("--train.object-blocks", "2", "3", "--train.object-size", "64"),
    *("--segment.size", "33", "--segment.workers", "0", "--predict.no-crf", "--predict.no-flip"),
)


@cache
def _parsed(flags: tuple[str, ...]) -> PaperSettings:
    return parse_paper(["ablation", *SMALL, "--out", "x", *flags])


def small(out: Path, table: str, *flags: str) -> PaperSettings:
    """A table at one step, 32 pixels and a few pictures."""
    return dataclasses.replace(_parsed(flags), out=out, table=table)


def script(name: str) -> ModuleType:
    """A program of the folder scripts, as a module."""
    path = Path(__file__).parents[2] / "scripts" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
