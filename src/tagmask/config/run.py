"""Settings of a whole run: the data once, and a section for each stage."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tagmask import layout
from tagmask.config.base import DataSettings, SharedTokenSettings, flag
from tagmask.config.presets import Preset, Section, find_preset
from tagmask.config.pseudo import PseudoSettings
from tagmask.config.seeds import Rows, SeedSettings
from tagmask.config.segment import PredictSettings, SegmentSettings
from tagmask.config.toml import read_toml, read_values, write_section
from tagmask.config.train import TrainSettings
from tagmask.errors import TagmaskError

DATA = tuple(field.name for field in dataclasses.fields(DataSettings))
KEPT = ("tokens", "tokens_limit")  # settings of kept tokens, of the whole run
SECTIONS: Mapping[str, type[Any]] = {
    kind.section: kind
    for kind in (TrainSettings, SeedSettings, PseudoSettings, SegmentSettings, PredictSettings)
}
NOT_IN_A_RUN = {  # setting of a stage: what to do instead
    "restart": "use --restart for the whole run, or delete the folder of the stage",
    "shard": "run the stages one by one to share them out",
    "model": "a run uses its own networks",
    "pseudo": "a run uses its own pseudo labels",
    "photos": "predict other photos with `tagmask predict` after the run",
    **{name: f"give --{flag(name)} once, for the whole run" for name in ("out", *KEPT, *DATA)},
}
_NOWHERE = Path()  # stages write into the folder of the run


@dataclass(frozen=True, kw_only=True)
class RunTop(SharedTokenSettings, DataSettings):
    """What is set once for a whole run; the [run] table of config.toml."""

    section = "run"
    makes = (
        *layout.FOLDERS,
        layout.CONFIG,
        layout.CHECK,
        layout.SCORES,
        layout.CURVE,
        layout.REPORT,
    )
    basic = "restart estimate rows masks count"
    out: Path
    """Folder of the run."""
    restart: bool = False
    """Discard what earlier runs made and do every stage."""
    estimate: bool = True
    """Measure first how long the stages will take; this takes seconds, on a slow machine up to a minute."""
    rows: Rows = 12
    """Images in the report's gallery."""


@dataclass(frozen=True, kw_only=True)
class Sections:
    """The settings of each stage."""

    train: TrainSettings = field(default_factory=lambda: TrainSettings(out=_NOWHERE))
    seeds: SeedSettings = field(default_factory=lambda: SeedSettings(out=_NOWHERE))
    pseudo: PseudoSettings = field(default_factory=lambda: PseudoSettings(out=_NOWHERE))
    segment: SegmentSettings = field(default_factory=lambda: SegmentSettings(out=_NOWHERE))
    predict: PredictSettings = field(default_factory=lambda: PredictSettings(out=_NOWHERE))


@dataclass(frozen=True, kw_only=True)
class RunSettings(Sections, RunTop):
    """From images and tags to masks."""

    def _mistakes(self) -> Iterator[str]:
        of_the_run = list(super()._mistakes())
        yield from of_the_run
        for name in SECTIONS:
            yield from self._misplaced(name)
            its_own = (
                mistake for mistake in self.for_stage(name).mistakes() if mistake not in of_the_run
            )
            yield from (f"{name}: {mistake}" for mistake in its_own)
        if self.train.kind == "mct" and (self.seeds.method != "acr" or self.seeds.centre):
            yield "--train.kind mct has maps of its own; give --seeds.method acr and leave out --seeds.centre."

    def for_stage(self, name: str) -> Any:
        """The section of a stage, with the run's data and folder."""
        section = getattr(self, name)
        kept = {key: getattr(self, key) for key in KEPT if hasattr(section, key)}
        return dataclasses.replace(section, out=self.out, **kept, **self.data_settings())

    def _misplaced(self, name: str) -> Iterator[str]:
        """Settings of a stage that belong to the run."""
        section, default = getattr(self, name), SECTIONS[name](out=_NOWHERE)
        for key, remedy in NOT_IN_A_RUN.items():
            if getattr(section, key, None) != getattr(default, key, None):
                yield f"--{name}.{flag(key)} has no place in a run; {remedy}."


def run_values(preset: str | None, config: Path | None) -> dict[str, Any]:
    """Arguments of ``RunSettings`` from a preset, and from a run's config.toml on top; all mistakes at once."""
    sources: dict[str, Preset] = {}
    if preset is not None:
        sources[f"preset {preset}"] = find_preset(preset)
    if config is not None:
        sources[str(config)] = _sections_of(config)
    mistakes: list[str] = []
    top: dict[str, Any] = {}
    stages = {name: kind(out=_NOWHERE) for name, kind in SECTIONS.items()}
    for source, sections in sources.items():
        for name, kind in (("run", RunTop), *SECTIONS.items()):
            try:
                values = read_values(kind, sections.get(name, {}), f"{source}: {name}")
            except TagmaskError as error:
                mistakes.append(str(error))
                continue
            if name == "run":
                top |= values
            else:
                stages[name] = dataclasses.replace(stages[name], **values)
    if mistakes:
        raise TagmaskError("\n".join(mistakes))
    return {**top, **stages}


def _sections_of(config: Path) -> Preset:
    """The tables of a run's config.toml, with the data settings in that of the run."""
    tables = read_toml(config)
    stages = {name: tables[name] for name in SECTIONS if name in tables}
    if not stages and "run" not in tables:
        raise TagmaskError(f"{config} has no section of a stage; give the config.toml of a run.")
    once = {*DATA, *KEPT, "out"}
    first: Section = next(
        iter(stages.values()), {}
    )  # without [run], the stages were run one by one
    run = tables.get("run", {key: value for key, value in first.items() if key in once})
    return {"run": run} | {
        name: {key: value for key, value in values.items() if key not in {*once, "restart"}}
        for name, values in stages.items()
    }


def write_config(settings: RunSettings, path: Path | None = None) -> None:
    """Put every setting of the run into its config.toml, or another file."""
    path = path or settings.out / layout.CONFIG
    kept = {key: getattr(settings, key) for key in KEPT}
    write_section(
        path,
        "run",
        RunTop(out=settings.out, rows=settings.rows, **kept, **settings.data_settings()),
    )
    for name in SECTIONS:
        write_section(path, name, settings.for_stage(name))
