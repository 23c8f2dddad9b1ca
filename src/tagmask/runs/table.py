"""The table of stages: everything that several places need to know about a stage, once.

    images + tags ─► train ─► seeds ─► affinity ─► pseudo ─► segment
        ─► predict ─► check ─► score ─► report

``tagmask run``, its plan, the record of what is done, the command line, the demo and the paper's
tables are loops over this table. To add a stage, write its file and its settings and add a row
here; its folder also goes into ``layout.FOLDERS``. The settings name their ``section`` and what the
stage ``makes``. The module of a stage has

    FUNCTION(run, settings)     does the stage, resumes or refuses; returns an object with
                                ``summary()``
    made_from(run, settings)    optional: every setting that makes a difference, and a hash of
                                every input; default: every setting
    is_needed(settings)         optional: False if a run with these settings leaves the stage out
    check_start(run, settings)  optional: refuses what cannot be used, e.g. weights of another
                                backbone, before the plan measures anything
    amount(settings, photos)    optional: how much there is to do, and in which unit
    estimate(probe)             optional: seconds of one step or image, for the plan
    memory(probe, one)          optional: bytes of all its processes, if one that does a step or
                                an image takes ``one``; default: that
    disk(probe)                 optional: bytes that the stage adds to the feature cache

where ``run`` is a ``tagmask.runs.run.Run``. A stage with ``together`` is done by all processes of a
launch at once; ``run.team`` says which one this is.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal

from tagmask import config, layout
from tagmask.config.run import RunSettings
from tagmask.runs.record import Record


@dataclass(frozen=True)
class Stage:
    """One row of the table."""

    name: str  # the command, unless another row has it in ``first``
    title: str  # what it makes
    folder: str  # in the run's folder; empty for files of the run itself
    products: str  # pattern of its files below that folder
    settings: type[Any]
    function: str  # module:function
    reads: tuple[str, ...] = ()  # the stages it is made from, besides the images
    # what ``amount`` counts, if the module has none
    unit: Literal["steps", "images", "page"] = "images"
    corrected: bool = False  # keeps or learns from pixels that a person has corrected
    scores: bool = False  # compares with masks: left out if the data have none
    # settings and module:function of the form for a single photo
    photo: tuple[type[Any], str] | None = None
    # base class of the settings that are stored with the network it reads
    use: type[Any] | None = None
    first: tuple[str, ...] = ()  # stages without a command, done before it where they are needed
    # of several launched processes all do it, each its part; otherwise the first one alone
    together: bool = False

    def do(self, run: Any, settings: Any) -> Any:
        """Do the stage; nothing is checked.

        Args:
            run: A ``tagmask.runs.run.Run``.
            settings: The stage's own settings.
        """
        return resolve_name(self.function)(run, settings)

    def part(self, name: str) -> Callable[..., Any] | None:
        """Return another function of the stage's module; None if it has none of this name."""
        return getattr(resolve_name(self.function.partition(":")[0]), name, None)

    def is_needed(self, settings: Any) -> bool:
        """Return False if a run with these settings of the stage leaves it out."""
        needed = self.part("is_needed")
        return needed is None or bool(needed(settings))

    def record(self, out: Path) -> Record:
        """Return the notes of the stage in the run's folder ``out``."""
        if self.folder:
            return Record(out / self.folder, self.products)
        return Record(out, self.products, f"{self.name}.")

    def settings_of(self, run: RunSettings) -> Any:
        """Return the settings of this stage in a run."""
        if self.settings.section:
            return run.of(self.settings)
        # a stage without a section has what is set once for the run
        values = {}
        for field in dataclasses.fields(self.settings):
            if hasattr(run, field.name):
                values[field.name] = getattr(run, field.name)
        return self.settings(**values)


STAGES: list[Stage] = [
    Stage(
        "train",
        title="classifier",
        folder=layout.CLASSIFIER,
        products=layout.MODEL,
        settings=config.TrainSettings,
        function="tagmask.stages.train:train",
        unit="steps",
        together=True,
    ),
    Stage(
        "seeds",
        title="seeds",
        folder=layout.SEEDS,
        products="**/*.npz",
        settings=config.SeedSettings,
        function="tagmask.stages.seeds:seed_catalog",
        reads=("train",),
        photo=(config.PhotoSettings, "tagmask.stages.seeds:seed_photo"),
        use=config.MapSettings,
        together=True,
    ),
    Stage(
        "affinity",
        title="AffinityNet",
        folder=layout.AFFINITY,
        products=layout.MODEL,
        settings=config.PseudoSettings,
        function="tagmask.stages.affinity:prepare_walk",
        reads=("seeds",),
        unit="steps",
        together=True,
    ),
    Stage(
        "pseudo",
        title="pseudo labels",
        folder=layout.PSEUDO,
        products="**/*.png",
        settings=config.PseudoSettings,
        function="tagmask.stages.pseudo:make_pseudo",
        reads=("seeds",),
        corrected=True,
        first=("affinity",),
        together=True,
    ),
    Stage(
        "segment",
        title="segmenter",
        folder=layout.SEGMENTER,
        products=layout.MODEL,
        settings=config.SegmentSettings,
        function="tagmask.stages.segment:train_segmenter",
        reads=("pseudo",),
        unit="steps",
        corrected=True,
        together=True,
    ),
    Stage(
        "predict",
        title="predictions",
        folder=layout.PREDICTIONS,
        products="**/*.png",
        settings=config.PredictSettings,
        function="tagmask.stages.predict:predict_catalog",
        reads=("segment",),
        corrected=True,
        photo=(config.PredictPhotoSettings, "tagmask.stages.predict:predict_photo"),
        use=config.MaskSettings,
        together=True,
    ),
    Stage(
        "check",
        title="self-check",
        folder="",
        products=layout.CHECK,
        settings=config.CheckSettings,
        function="tagmask.stages.check:check_run",
        reads=("train", "seeds", "pseudo", "predict"),
    ),
    Stage(
        "score",
        title="scores",
        folder="",
        products=layout.SCORES,
        settings=config.ScoreSettings,
        function="tagmask.stages.score:score_run",
        reads=("seeds", "pseudo", "predict", "check"),
        scores=True,
    ),
    Stage(
        "report",
        title="report",
        folder="",
        products=layout.REPORT,
        settings=config.ReportSettings,
        function="tagmask.report.stage:write_report",
        reads=("seeds", "pseudo", "predict", "check", "score"),
        unit="page",
    ),
]


def stage(name: str) -> Stage:
    """Return a row of the table by its name."""
    return next(row for row in STAGES if row.name == name)


def commands() -> list[str]:
    """Return the stages that are commands; the others are done before one of these."""
    hidden = {name for row in STAGES for name in row.first}
    return [row.name for row in STAGES if row.name not in hidden]


def sections() -> dict[str, type[Any]]:
    """Return the settings class of each section of config.toml, in the order of the stages."""
    return {row.settings.section: row.settings for row in STAGES if row.settings.section}
