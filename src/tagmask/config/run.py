"""Settings of a whole run: the data once, and a section for each stage."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tagmask.config.base import DataSettings
from tagmask.config.presets import (
    PREDICT_PRESETS,
    PSEUDO_PRESETS,
    SEED_PRESETS,
    SEGMENT_PRESETS,
    TRAIN_PRESETS,
    Preset,
)
from tagmask.config.pseudo import PseudoSettings
from tagmask.config.seeds import SeedSettings
from tagmask.config.segment import PredictSettings, SegmentSettings
from tagmask.config.toml import read_toml, read_values, write_section
from tagmask.config.train import TrainSettings
from tagmask.errors import TagmaskError

DATA = tuple(field.name for field in dataclasses.fields(DataSettings))
NOT_IN_A_RUN = {  # setting of a stage: what to do instead
    "out": "give --out once, for the whole run",
    "restart": "use --restart for the whole run, or delete the folder of the stage",
    "shard": "run the stages one by one to share them out",
    "model": "a run uses its own networks",
    "pseudo": "a run uses its own pseudo labels",
    "photos": "predict other photos with `tagmask predict` after the run",
}
KIND = ("train", "model")  # there it is the kind of classifier, not a folder
Section = TypeVar("Section", bound=DataSettings)
_NOWHERE = Path()  # stages write where the run says


@dataclass(frozen=True, kw_only=True)
class RunTop(DataSettings):
    """What a run has of its own; the [run] table of config.toml."""

    out: Path
    """Folder of the run."""
    restart: bool = False
    """Do every stage anew."""
    estimate: bool = True
    """Measure how long the stages will take before they begin; seconds, on a slow machine up to a minute."""
    rows: int = 12
    """Images in the report's gallery."""

    def data_settings(self) -> dict[str, Any]:
        """The data settings, for any stage."""
        return {name: getattr(self, name) for name in DATA}


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

    def mistakes(self) -> list[str]:
        """One sentence for every setting that cannot be used."""
        known = DataSettings.mistakes(self)
        found = list(known)
        for name in SECTIONS:
            section = getattr(self, name)
            found += _misplaced(name, section)
            found += [f"{name}: {one}" for one in self._complete(section).mistakes() if one not in known]
        if self.train.model == "mct" and (self.seeds.method != "acr" or self.seeds.centre):
            found.append("--train.model mct has maps of its own; give --seeds.method acr and leave out --seeds.centre.")
        return found

    def for_train(self) -> TrainSettings:
        return self._complete(self.train)

    def for_seeds(self) -> SeedSettings:
        return self._complete(self.seeds)

    def for_pseudo(self) -> PseudoSettings:
        return self._complete(self.pseudo)

    def for_segment(self) -> SegmentSettings:
        return self._complete(self.segment)

    def for_predict(self) -> PredictSettings:
        return self._complete(self.predict)

    def _complete(self, section: Section) -> Section:
        """A stage's own settings with the run's data and folder."""
        changes: dict[str, Any] = {"out": self.out, **self.data_settings()}
        return dataclasses.replace(section, **changes)


SECTIONS: Mapping[str, type[Any]] = {
    "train": TrainSettings,
    "seeds": SeedSettings,
    "pseudo": PseudoSettings,
    "segment": SegmentSettings,
    "predict": PredictSettings,
}


def _misplaced(name: str, section: Any) -> list[str]:
    """Settings of a stage that belong to the run."""
    plain = SECTIONS[name](out=_NOWHERE)
    told = {**NOT_IN_A_RUN, **{one: f"give --{one.replace('_', '-')} once, for the whole run" for one in DATA}}
    return [
        f"--{name}.{one.replace('_', '-')} has no place in a run; {remedy}."
        for one, remedy in told.items()
        if getattr(section, one, None) != getattr(plain, one, None) and (name, one) != KIND
    ]


def _recipe(name: str, **changes: Preset) -> dict[str, Preset]:
    """The sections of a run from the stages' presets of that name; data settings move up to the run."""
    stages = {
        "train": TRAIN_PRESETS,
        "seeds": SEED_PRESETS,
        "pseudo": PSEUDO_PRESETS,
        "segment": SEGMENT_PRESETS,
        "predict": PREDICT_PRESETS,
    }
    whole = {stage: {**presets.get(name, {}), **changes.get(stage, {})} for stage, presets in stages.items()}
    data = {key: value for key, value in whole["train"].items() if key in DATA}
    return {"run": {**data, **changes.get("run", {})}} | {
        stage: {key: value for key, value in values.items() if key not in DATA} for stage, values in whole.items()
    }


RUN_PRESETS: Mapping[str, Mapping[str, Preset]] = {
    "scenes": _recipe("scenes"),
    "voc": _recipe("voc"),
    "voc-deit-s": _recipe("voc-deit-s", pseudo=PSEUDO_PRESETS["voc"], segment=SEGMENT_PRESETS["voc"]),
    "coco": _recipe("coco"),
    **{
        f"{data}-{kind}": {**_recipe(data), "train": _recipe(f"{data}-{kind}")["train"]}
        for data in ("scenes", "voc")
        for kind in ("seam", "mct")
    },
    "own-photos": _recipe(  # what one GPU, or a patient laptop, can do: no third network, a small segmenter
        "own-photos",
        run={"data": "folder"},
        train={"backbone": "deit_small_patch16_224", "pretrained": True},
        seeds={"method": "generic"},  # better than ACR's maps on all data measured: docs/seeds.md
        pseudo={"method": "crf"},
        segment={"backbone": "resnet18", "pretrained": True, "frozen_norm": True, "lr": 1e-3, "steps": 4000},
        predict={"scales": (0.75, 1.0, 1.25), "use_tags": True},
    ),
}


def run_values(preset: str | None, config: Path | None) -> dict[str, Any]:
    """Arguments of ``RunSettings`` from a named recipe and a run's config.toml on top of it; mistakes all at once."""
    if preset is not None and preset not in RUN_PRESETS:
        raise TagmaskError(f"there is no preset {preset!r}; choose from {', '.join(RUN_PRESETS)}.")
    sources: list[tuple[str, Mapping[str, Preset]]] = []
    if preset is not None:
        sources.append((f"preset {preset}", RUN_PRESETS[preset]))
    if config is not None:
        sources.append((str(config), _sections_of(config)))
    found: list[str] = []
    top: dict[str, Any] = {}
    sections = {name: kind(out=_NOWHERE) for name, kind in SECTIONS.items()}
    for source, whole in sources:
        try:
            top |= read_values(RunTop, whole.get("run", {}), source)
        except TagmaskError as error:
            found.append(str(error))
        for name, kind in SECTIONS.items():
            try:
                ready = read_values(kind, whole.get(name, {}), f"{source}: {name}")
                sections[name] = dataclasses.replace(sections[name], **ready)
            except TagmaskError as error:
                found.append(str(error))
    if found:
        raise TagmaskError("\n".join(found))
    return {**top, **sections}


def _sections_of(config: Path) -> dict[str, Preset]:
    """The tables of a run's config.toml, with the data settings at the run's own."""
    whole = read_toml(config)
    named = [name for name in SECTIONS if isinstance(whole.get(name), dict)]
    if not named and "run" not in whole:
        raise TagmaskError(f"{config} has no section of a stage; give the config.toml of a run.")
    once = {*DATA, "out", "restart"}
    if "run" not in whole:  # the stages were run one by one
        whole["run"] = {key: value for key, value in whole[named[0]].items() if key in once - {"restart"}}
    kept = {name: {key: value for key, value in whole[name].items() if key not in once} for name in named}
    return {"run": whole["run"], **kept}


def write_config(settings: RunSettings) -> None:
    """Put every setting of the run into its config.toml, before the first stage begins."""
    path = settings.out / "config.toml"
    table = RunTop(out=settings.out, rows=settings.rows, **settings.data_settings())
    write_section(path, "run", table)
    for name in SECTIONS:
        write_section(path, name, getattr(settings, f"for_{name}")())
