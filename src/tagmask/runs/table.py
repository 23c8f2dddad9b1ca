"""The table of stages: everything that several places need to know about a stage, once.

    images + tags ─► train ─► seeds ─► pseudo ─► segment ─► predict ─► check ─► score ─► report

``tagmask run``, its plan, the record of what is done, the command line, the demo and the paper's tables are loops over
this table. To add a stage, write its file and its settings and add a row here. The module of a stage has

    FUNCTION(settings, catalog)     runs the stage, resumes or refuses; opens the catalog if it is None; returns an
                                    object with ``summary()``
    made_from(settings)             every setting that makes a difference, and a hash of every input
    estimate(probe)                 optional: seconds of one step or image, for the plan
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal

from tagmask import config, layout
from tagmask.config.run import RunSettings
from tagmask.data.catalog import Catalog
from tagmask.notes import INPUT, Parts
from tagmask.runs.record import Record, correction_parts, image_parts, mask_parts


@dataclass(frozen=True)
class Stage:
    """One row of the table."""

    name: str  # the command, and the section of config.toml
    title: str  # what it makes
    folder: str  # in the run's folder; empty for files of the run itself
    products: str  # pattern of its files below that folder
    settings: type[Any]
    function: str  # module:function
    reads: tuple[str, ...] = ()  # the stages it is made from, besides the images
    unit: Literal["steps", "images", "page"] = "images"
    corrected: bool = False  # keeps or learns from pixels that a person has corrected
    scores: bool = False  # compares with masks: left out if the data have none
    photo: tuple[type[Any], str] | None = (
        None  # settings and module:function of the form for a single photo
    )
    use: type[Any] | None = None  # those of its settings that the network it reads is told

    def run(self, settings: Any, catalog: Catalog | None = None) -> Any:
        """Run the stage; it opens the catalog if none is given."""
        return resolve_name(self.function)(settings, catalog)

    def part(self, name: str) -> Callable[..., Any] | None:
        """Another function of the stage's module; None if it has none of this name."""
        return getattr(resolve_name(self.function.partition(":")[0]), name, None)

    def record(self, out: Path) -> Record:
        return (
            Record(out / self.folder, self.products)
            if self.folder
            else Record(out, self.products, f"{self.name}.")
        )

    def settings_of(self, run: RunSettings) -> Any:
        """The settings of this stage in a run."""
        if hasattr(run, self.name):
            return run.for_stage(self.name)
        names = [
            field.name for field in dataclasses.fields(self.settings)
        ]  # a stage without a section of its own
        return self.settings(**{name: getattr(run, name) for name in names if hasattr(run, name)})


# fmt: off
STAGES: list[Stage] = [
    Stage("train", "classifier", layout.CLASSIFIER, layout.MODEL, config.TrainSettings,
          "tagmask.stages.train:train", unit="steps"),
    Stage("seeds", "seeds", layout.SEEDS, "**/*.npz", config.SeedSettings,
          "tagmask.stages.seeds:seed_catalog", reads=("train",),
          photo=(config.PhotoSettings, "tagmask.stages.seeds:seed_photo"), use=config.MapSettings),
    Stage("pseudo", "pseudo labels", layout.PSEUDO, "**/*.png", config.PseudoSettings,
          "tagmask.stages.pseudo:make_pseudo", reads=("seeds",), corrected=True),
    Stage("segment", "segmenter", layout.SEGMENTER, layout.MODEL, config.SegmentSettings,
          "tagmask.stages.segment:train_segmenter", reads=("pseudo",), unit="steps", corrected=True),
    Stage("predict", "predictions", layout.PREDICTIONS, "**/*.png", config.PredictSettings,
          "tagmask.stages.predict:predict_catalog", reads=("segment",), corrected=True,
          photo=(config.PredictPhotoSettings, "tagmask.stages.predict:predict_photo"), use=config.MaskSettings),
    Stage("check", "self-check", "", layout.CHECK, config.CheckSettings,
          "tagmask.stages.check:check_run", reads=("train", "seeds", "pseudo", "predict")),
    Stage("score", "scores", "", layout.SCORES, config.ScoreSettings,
          "tagmask.stages.score:score_run", reads=("seeds", "pseudo", "predict", "check"), scores=True),
    Stage("report", "report", "", layout.REPORT, config.ReportSettings,
          "tagmask.report.stage:write_report", reads=("seeds", "pseudo", "predict", "check", "score"), unit="page"),
]
# fmt: on


def stage(name: str) -> Stage:
    return next(row for row in STAGES if row.name == name)


class Inputs:
    """What the stages of a run are made from; computed once, until a stage changes it."""

    def __init__(self, settings: RunSettings, catalog: Catalog) -> None:
        self.settings, self.catalog = settings, catalog
        self._parts: dict[str, Parts] = {}
        self._stamps: dict[str, str] = {}
        self._images = cache(lambda: image_parts(catalog))
        self._masks = cache(lambda: mask_parts(settings, catalog))
        self._corrections = cache(lambda: correction_parts(catalog))

    def parts(self, row: Stage) -> Parts:
        """Settings, images and inputs of a stage."""
        if row.name not in self._parts:
            made_from = row.part("made_from")
            parts: Parts = {
                **(made_from(row.settings_of(self.settings)) if made_from else {}),
                **self._images(),
            }
            parts |= self._masks() if row.scores else {}
            parts |= self._corrections() if row.corrected else {}
            reads = {
                stage(name).title: self._stamp(name)
                for name in row.reads
                if stage(name).products != layout.MODEL
            }
            self._parts[row.name] = parts | {
                f"{INPUT}{title}": stamp for title, stamp in reads.items()
            }
        return self._parts[row.name]

    def forget(self, row: Stage) -> None:
        """The files of a stage have changed."""
        self._stamps.pop(row.name, None)
        self._parts.clear()

    def _stamp(self, name: str) -> str:
        """What identifies the files of a stage; networks are identified by their content, in ``made_from``."""
        if name not in self._stamps:
            self._stamps[name] = stage(name).record(self.settings.out).stamp()
        return self._stamps[name]
