"""`tagmask run`: settings from --preset, --config and flags, then the pipeline."""

import os
from pathlib import Path

from tagmask.config.run import RUN_PRESETS, SECTIONS, RunSettings, RunTop, run_values

EXAMPLES = f"""\
From images and tags to masks: train, seeds, pseudo, segment, predict, score, report. Stopped anywhere and typed
again, it goes on; a finished stage is done anew only where its settings or inputs have changed.

examples:
  tagmask run --preset scenes --out run
  tagmask run --preset own-photos --images photos --tags tags.csv --out run
  tagmask run --preset voc --root VOCdevkit/VOC2012 --out run
  tagmask run --preset scenes --out run --train.steps 200 --pseudo.method walk --segment.backbone resnet18
  tagmask run --config run/config.toml                     the same run again: goes on, or does nothing
  tagmask run --config run/config.toml --out other         the same settings, another folder

also: --preset NAME   start from a named recipe: {", ".join(RUN_PRESETS)}
      --config FILE   start from a run's config.toml
      --STAGE.NAME    any setting of a stage, as `tagmask STAGE --help` lists them; stages: {", ".join(SECTIONS)}
"""


def run_command(arguments: list[str]) -> None:
    """Parse, run, print."""
    settings = parse_run(arguments)
    # before torch: spinning threads make training many times slower on a machine that does anything else
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from tagmask.pipeline import run as pipeline

    print(pipeline.run(settings).summary())


def parse_run(arguments: list[str]) -> RunSettings:
    """The settings of a run; later sources win: defaults, preset, --config, flags."""
    import tyro

    from tagmask.cli.parse import take

    rest = list(arguments)
    preset, config = take(rest, "--preset"), take(rest, "--config")
    values = {"out": tyro.MISSING, **run_values(preset, Path(config) if config is not None else None)}
    if {"-h", "--help"} & set(rest):  # the settings of the stages are told by the stages' own help
        tyro.cli(RunTop, args=["--help"], prog="tagmask run", description=EXAMPLES)
    return tyro.cli(RunSettings, args=rest, prog="tagmask run", description=EXAMPLES, default=RunSettings(**values))
