"""Stages that tests do alone, as a command does: settings of a stage with those of its run."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tagmask.cli.commands import show_messages
from tagmask.config.run import DATA, KEPT, RunSettings
from tagmask.data.catalog import Catalog
from tagmask.runs.run import Run
from tagmask.runs.settings import run_settings
from tagmask.runs.summary import RunSummary
from tagmask.runs.table import stage
from tagmask.stages import score

_PLACE = {"out", *DATA, *KEPT}


@dataclass(frozen=True)
class Alone:
    """The settings of a stage, and the run that it is done in."""

    run: RunSettings
    own: Any

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.run if name in _PLACE else self.own, name)

    def but(self, **changes: Any) -> Any:
        """A copy with values changed, of the run or of the stage."""
        place = {name: changes.pop(name) for name in [*changes] if name in _PLACE}
        own = dataclasses.replace(self.own, **changes)
        run = dataclasses.replace(self.run, **place)
        return Alone(run.with_stages(own) if own.section else run, own)

    def mistakes(self) -> list[str]:
        """What a command with these flags would be refused for."""
        from tagmask.config.run import check_stage
        from tagmask.errors import TagmaskError

        try:
            check_stage(self.run, self.own)
        except TagmaskError as error:
            lines = str(error).splitlines()
            return lines[1:] if "settings cannot be used" in lines[0] else lines
        return []


def alone(kind: Any, /, **values: Any) -> Any:
    """Settings of a stage and of its run, from the flags of its command."""
    chosen = kind.kind_for(values)
    own = chosen(**{name: value for name, value in values.items() if name not in _PLACE})
    place = {name: value for name, value in values.items() if name in _PLACE}
    run = RunSettings(**{"out": Path(), **place})
    return Alone(run.with_stages(own) if own.section else run, own)


def alone_of(run: RunSettings, name: str) -> Any:
    """The settings of a stage in a run."""
    return Alone(run, stage(name).settings_of(run))


def do(name: str, settings: Any, catalog: Catalog | None = None) -> Any:
    """Do a stage."""
    return Run.of(settings.run, catalog).do(name, settings.own)


def train(settings: Any, catalog: Catalog | None = None) -> Any:
    return do("train", settings, catalog)


def seed_catalog(settings: Any, catalog: Catalog | None = None) -> Any:
    return do("seeds", settings, catalog)


def make_pseudo(settings: Any, catalog: Catalog | None = None) -> Any:
    return do("pseudo", settings, catalog)


def train_segmenter(settings: Any, catalog: Catalog | None = None) -> Any:
    return do("segment", settings, catalog)


def predict_catalog(settings: Any, catalog: Catalog | None = None) -> Any:
    return do("predict", settings, catalog)


def check_run(settings: Any, catalog: Catalog | None = None) -> Any:
    return do("check", settings, catalog)


def score_run(settings: Any, catalog: Catalog | None = None) -> Any:
    return do("score", settings, catalog)


def score_seeds(settings: Any, catalog: Catalog | None = None) -> Any:
    return score.score_seeds(Run.of(settings.run, catalog), settings.own)


def write_report(settings: Any, catalog: Catalog | None = None) -> Any:
    return do("report", settings, catalog)


def run(settings: RunSettings, catalog: Catalog | None = None) -> RunSummary:
    """Do a whole run, and show what the command line shows."""
    show_messages()
    return Run.of(settings, catalog)()


def settings_of_run(**values: Any) -> RunSettings:
    """Settings of a run from values by name, those of stages by section."""
    return run_settings(values)
