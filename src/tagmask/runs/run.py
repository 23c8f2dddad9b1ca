"""A run: its folder, its data and its settings, and every stage that can be done with them.

Stopped anywhere and started again, a run resumes and ends with the same files. A finished stage is
skipped while its settings and inputs are those it was made from; otherwise the run says what
changed and redoes it, and then all that is made from it.
"""

import dataclasses
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, Self, cast

import torch

from tagmask import layout
from tagmask.config import LoopSettings, PseudoSettings, check, read_values, use_of
from tagmask.config.base import Settings, refuse, within
from tagmask.config.run import (
    RunSettings,
    RunTop,
    check_stage,
    data_of,
    read_config,
    write_config,
    write_stage_config,
)
from tagmask.data.about import read_about
from tagmask.data.catalog import Catalog, give_back
from tagmask.data.open import open_catalog
from tagmask.data.survey import tag_notes
from tagmask.errors import TagmaskError, first_of, typed
from tagmask.files import check_format, only_one, read_json, read_object, write_json
from tagmask.models.backbones import check_published
from tagmask.models.storage import write_network_use
from tagmask.notes import INPUT, Parts, shorten
from tagmask.progress import Listener, listening, logger
from tagmask.runs import record
from tagmask.runs.plan import plan
from tagmask.runs.record import Record, Status, places
from tagmask.runs.settings import read_given, run_settings, run_values
from tagmask.runs.summary import RunSummary
from tagmask.runs.table import STAGES, Stage, stage
from tagmask.runs.team import ALONE, Team, joined

Tags = str | Path | Mapping[str, Sequence[str]]
_SECONDS_TO_APPEAR = 30.0  # of a new folder on a disk of the network


class Run:
    """A run: folder, data and settings once, and a function for each stage.

    Called like a function it does what `tagmask run` does; ``run.train()``, ``run.seeds()`` and so
    on do single stages. A folder that holds a run is continued with its own settings.

    Args:
        out: Folder of the run; it is made if it is not there.
        images: Folder of photos; default: the data of the settings or of the run in ``out``.
        tags: A table of files and tags, a file or folder of another tool, "embedded", or a
            dictionary such as ``{"a.jpg": ["dog"]}``, which is kept in the run as tags.json.
        preset: A recipe to start from; default: own-photos for a new run without ``config``.
        config: The config.toml of a run to start from.
        progress: Called with a ``Progress`` after each image or step.
        **settings: What is set once for a run, e.g. ``masks="masks"``, and values of stages as
            dictionaries, e.g. ``train={"steps": 200}``.

    Raises:
        TagmaskError: A setting is unknown or of another form.
    """

    def __init__(
        self,
        out: str | Path,
        *,
        images: str | Path | None = None,
        tags: Tags | None = None,
        preset: str | None = None,
        config: str | Path | None = None,
        progress: Listener | None = None,
        **settings: Any,
    ) -> None:
        folder: Path = read_values(RunTop, {"out": out}, "tagmask.Run")["out"]
        own = folder / layout.CONFIG
        if preset is None and config is None:
            if own.is_file():
                config = own
            else:
                preset = "own-photos"
        values = run_values(preset, Path(config) if config is not None else None)
        if images is not None:
            settings["images"] = Path(images)
            settings.setdefault("data", "folder")
        if isinstance(tags, Mapping):
            settings["tags"] = _write_tags(folder / layout.GIVEN_TAGS, tags)
        elif tags is not None:
            settings["tags"] = Path(tags)
        values |= read_given(RunTop, values, settings, "tagmask.Run")
        self._begin(run_settings({**values, "out": folder}), None, progress)

    @classmethod
    def of(
        cls,
        settings: RunSettings,
        catalog: Catalog | None = None,
        progress: Listener | None = None,
    ) -> Self:
        """Return the run that settings describe.

        Args:
            settings: Those of the run.
            catalog: Its images; default: those that the settings name, opened when needed.
            progress: Called with a ``Progress`` after each image or step.
        """
        run = cls.__new__(cls)
        run._begin(settings, catalog, progress)
        return run

    def _begin(
        self, settings: RunSettings, catalog: Catalog | None, progress: Listener | None
    ) -> None:
        check_format(settings.out)
        self.settings = settings
        self.out = settings.out
        self.progress = progress
        self.look_first = ""  # the report's sentence on the images most in doubt, once it is made
        self.team: Team = ALONE  # the processes of a launch, while they do the whole run
        if catalog is not None:
            self.catalog = catalog
        self._made_from: dict[str, tuple[Settings, Parts]] = {}
        self._parts: dict[str, Parts] = {}
        self._stamps: dict[str, str] = {}

    @cached_property
    def catalog(self) -> Catalog:
        """Return the images and tags, with the corrections in the run's folder."""
        return open_catalog(self.settings, self.out)

    def __call__(self) -> RunSummary:
        """Do every stage that is not done, as `tagmask run` does.

        Returns:
            What was made, with a summary for the terminal.

        Raises:
            TagmaskError: Settings or images cannot be used.
        """
        with listening(self.progress):
            return run(self)

    def train(self, settings: Settings | None = None, **changes: Any) -> Any:
        """Train the classifier, or fit it without training.

        Args:
            settings: A ``TrainSettings``; default: those of the run.
            **changes: Settings by name that are changed.
        """
        return self.do("train", settings, **changes)

    def seeds(self, settings: Settings | None = None, **changes: Any) -> Any:
        """Make the localisation maps of every photo.

        Args:
            settings: A ``SeedSettings``; default: those of the run.
            **changes: Settings by name that are changed.
        """
        return self.do("seeds", settings, **changes)

    def pseudo(self, settings: Settings | None = None, **changes: Any) -> Any:
        """Turn the maps into labels of pixels.

        Args:
            settings: A ``PseudoSettings``; default: those of the run.
            **changes: Settings by name that are changed.
        """
        return self.do("pseudo", settings, **changes)

    def segment(self, settings: Settings | None = None, **changes: Any) -> Any:
        """Train the segmentation network on the labels.

        Args:
            settings: A ``SegmentSettings``; default: those of the run.
            **changes: Settings by name that are changed.
        """
        return self.do("segment", settings, **changes)

    def predict(self, settings: Settings | None = None, **changes: Any) -> Any:
        """Predict the mask of every photo.

        Args:
            settings: A ``PredictSettings``; default: those of the run.
            **changes: Settings by name that are changed.
        """
        return self.do("predict", settings, **changes)

    def check(self) -> Any:
        """Say, without masks, whether the masks of each tag can be believed."""
        return self.do("check")

    def score(self, settings: Settings | None = None, **changes: Any) -> Any:
        """Compare maps, labels and masks with true masks.

        Args:
            settings: A ``ScoreSettings``; default: its defaults.
            **changes: Settings by name that are changed.
        """
        return self.do("score", settings, **changes)

    def report(self, settings: Settings | None = None, **changes: Any) -> Any:
        """Write one page on the run.

        Args:
            settings: A ``ReportSettings``; default: those of the run.
            **changes: Settings by name that are changed.
        """
        return self.do("report", settings, **changes)

    def do(self, name: str, settings: Settings | None = None, **changes: Any) -> Any:
        """Do one stage of the table: check its settings, then do it, resume it, or refuse.

        Args:
            name: A stage.
            settings: The stage's own settings; default: those of the run.
            **changes: Settings by name that are changed.

        Returns:
            What the stage returns; it has a ``summary()``.
        """
        row = stage(name)
        if settings is None:
            settings = row.settings_of(self.settings)
        settings = dataclasses.replace(settings, **changes)
        check_stage(self.settings, settings)
        with listening(self.progress):
            for earlier in map(stage, row.first):
                if earlier.is_needed(settings):
                    earlier.do(self, settings)
            return row.do(self, settings)

    def keep(self, settings: Settings) -> None:
        """Put the settings of a stage into config.toml, if that is not what it holds.

        Args:
            settings: The stage's own settings.
        """
        if self.settings.stages.get(settings.section) != settings or not self._is_kept:
            write_stage_config(self.settings, settings)

    _is_kept = False  # True while a whole run is done: its settings are written once

    def keep_all(self) -> None:
        """Put every setting into config.toml, if that is not what it holds."""
        write_config(self.settings)
        self._is_kept = True

    def made_from(self, name: str, settings: Settings) -> Parts:
        """Return what a stage is made from: its settings, and its inputs by their content.

        It is computed once, until a stage changes something.

        Args:
            name: The stage.
            settings: The stage's own settings.
        """
        known = self._made_from.get(name)
        if known is None or known[0] != settings:
            own = stage(name).part("made_from")
            parts = record.made_from(settings) if own is None else own(self, settings)
            self._made_from[name] = (settings, parts)
        return dict(self._made_from[name][1])

    def parts(self, row: Stage) -> Parts:
        """Return what a stage of the run is made from: settings, images and other stages."""
        if row.name not in self._parts:
            settings = row.settings_of(self.settings)
            parts = {**self.made_from(row.name, settings), **self._image_parts}
            if row.scores:
                parts |= self._mask_parts
            if row.corrected:
                parts |= self._correction_parts
            for name in row.reads:
                # networks are identified by their content, in ``made_from``
                if stage(name).products != layout.MODEL:
                    parts[f"{INPUT}{stage(name).title}"] = self._stamp(name)
            self._parts[row.name] = parts
        return self._parts[row.name]

    def forget(self, row: Stage) -> None:
        """Forget what was computed from the files of a stage, because they have changed."""
        self._stamps.pop(row.name, None)
        self._parts.clear()
        self._made_from.clear()

    def _stamp(self, name: str) -> str:
        """Return what identifies the files of a stage."""
        if name not in self._stamps:
            self._stamps[name] = stage(name).record(self.out).stamp()
        return self._stamps[name]

    @cached_property
    def _image_parts(self) -> Parts:
        return record.image_parts(self.catalog, self.out)

    @cached_property
    def _mask_parts(self) -> Parts:
        return record.mask_parts(self.settings, self.catalog, self.out)

    @cached_property
    def _correction_parts(self) -> Parts:
        return record.correction_parts(self.catalog)


def _write_tags(file: Path, tags: Mapping[str, Sequence[str]]) -> Path:
    """Write the tags of files as JSON, if that is not what the file holds."""
    table = {}
    for name, words in tags.items():
        if isinstance(words, str):
            raise TagmaskError(f"the tags of {name} are a text; give a list, e.g. ['{words}'].")
        table[name] = list(words)
    if not file.is_file() or read_json(file) != table:
        write_json(file, table)
    return file


def run(run: Run) -> RunSummary:
    """Do every stage of a run that is not done; the plan comes first.

    Args:
        run: The run.

    Returns:
        What was made.

    Raises:
        TagmaskError: Settings or images cannot be used, or another command works in the folder.
    """
    with joined() as team:
        run.team = team
        try:
            check(run.settings)
            # of several processes the first has the lock
            with only_one(run.out) if team.is_first else nullcontext():
                return _do_all(run)
        finally:
            run.team = ALONE


def _do_all(run: Run) -> RunSummary:
    """Do what is left of a run, and return what became of it."""
    team = run.team
    catalog = run.catalog
    sentence = team.from_first(lambda: _of_other_data(run))
    if sentence:
        raise TagmaskError(sentence)
    _check_alike(run)
    if run.settings.about is not None:
        # the report needs it last; mistakes in it are told first
        names = [item.name for item in catalog]
        about = read_about(run.settings.about, names, run.settings.images or Path())
        about.check_columns(run.settings.by)
    rows = []
    for row in STAGES:
        has_what_it_needs = catalog.has_masks or not row.scores
        if has_what_it_needs and row.is_needed(row.settings_of(run.settings)):
            rows.append(row)
    statuses = {row.name: _status_of(run, row) for row in rows}
    check_batches(run, [row for row in rows if statuses[row.name].state != "done"])
    _check_starts(run, [row for row in rows if statuses[row.name].state in ("new", "redo")])
    if team.is_first:
        _tell_plan(run, statuses)
        run.keep_all()
    threads = torch.get_num_threads()
    is_changed = False
    for number, row in enumerate(rows, 1):
        if is_changed:
            # what it is made from may have changed since the plan
            statuses[row.name] = _status_of(run, row)
        title = f"[{number}/{len(rows)}] {row.name}"
        is_changed |= do_stage(run, row, statuses[row.name], title)
        if team.is_first:
            tell_network(run, row)
        # a training with loading processes takes fewer
        torch.set_num_threads(threads)
        give_back()
    file = run.out / layout.SCORES
    scores = read_json(file) if catalog.has_masks and file.is_file() else {}
    rule = run.settings.of(PseudoSettings).rule
    return RunSummary(run.out, statuses, scores, rule, run.look_first)


def _of_other_data(run: Run) -> str:
    """Return why the folder of a run is not the place for its data; empty if it is.

    It is another run's if its photos or its table lie elsewhere and its classes are others. A table
    that was edited is the same table, and so is one that was written into the folder of the run.
    """
    settings = run.settings
    config = run.out / layout.CONFIG
    if settings.restart or not config.is_file():
        return ""
    before = data_of(read_config(config))
    moved = []
    for name, what in (("tags", "the tags of"), ("images", "the photos in")):
        former, own = before.get(name), getattr(settings, name)
        if former is not None and not _is_same_place(Path(former), own, run.out):
            moved.append(f"{what} {former}")
    if "images" in before and "tags" not in before and settings.tags is not None:
        moved.append(f"the sub-folders of {before['images']} as tags")
    file = run.out / layout.CLASSIFIER / layout.MODEL_CONFIG
    made_for = read_object(file).get("classes") if moved and file.is_file() else None
    if made_for is None or list(made_for) == list(run.catalog.classes):
        return ""
    paths = [path for path in (settings.images, settings.tags) if path is not None]
    again = typed("tagmask", "run", *paths, "--out", "other")
    return (
        f"{run.out} was made with {' and '.join(moved)}, for other classes "
        f"({first_of(made_for, 3)}), and would be replaced. For a run of its own: `{again}`; "
        "to replace it: add --restart."
    )


def _is_same_place(former: Path, own: Path | None, out: Path) -> bool:
    """Return True if a path of a config.toml may be the one that is given now."""
    if own is None:
        return False
    if os.path.realpath(former) == os.path.realpath(own) or within(own, out):
        return True
    # it may have been written from another folder
    return former.name == own.name and not former.is_absolute() and not former.exists()


def _tell_plan(run: Run, statuses: Mapping[str, Status]) -> None:
    """Say what will be done, and what is odd about the images and tags."""
    catalog = run.catalog
    notes = list(catalog.notes)
    if any(status.state != "done" for status in statuses.values()):
        notes += tag_notes(catalog)
    lines = [plan(run.settings, catalog, statuses)]
    if run.team.count > 1:
        lines.append(
            f"  {run.team.count} processes share the work; times and memory are those of one"
        )
    lines += [f"note: {note}" for note in notes]
    logger.info("%s", "\n".join(lines))


def _check_starts(run: Run, rows: Sequence[Stage]) -> None:
    """Refuse what stages could not start from, before the plan measures anything.

    Args:
        run: The run.
        rows: The stages that start from the beginning.

    Raises:
        TagmaskError: Published weights cannot be had, or a stage refuses its settings.
    """
    for row in rows:
        settings = row.settings_of(run.settings)
        check_start = row.part("check_start")
        if check_start is not None:
            try:
                check_start(run, settings)
            except TagmaskError as error:
                raise TagmaskError(f"{row.name}: {error}") from None
        if row.unit != "steps":
            continue
        if row.name == "affinity":
            settings = settings.affinity
        if getattr(settings, "pretrained", False):
            check_published(settings.backbone)


def _check_alike(run: Run) -> None:
    """Refuse to work with processes that do not see the same images, or not the same folder."""
    seen = run.team.gather(run.catalog.fingerprint())
    if len(set(seen)) > 1:
        raise TagmaskError(
            "the processes of this launch do not see the same images and tags; give them the same "
            "command and a disk that all machines share."
        )
    # the folder is made by the process that has the lock
    if not all(run.team.gather(_appears(run.out))):
        raise TagmaskError(
            f"not every process of this launch sees {run.out}; choose an --out on a disk that all "
            "machines share."
        )


def _appears(folder: Path) -> bool:
    """Return True if a folder is there; disks of other machines may show it some seconds later."""
    end = time.monotonic() + _SECONDS_TO_APPEAR
    while not folder.is_dir():
        if time.monotonic() > end:
            return False
        time.sleep(0.5)
    return True


def check_batches(run: Run, rows: Sequence[Stage]) -> None:
    """Refuse batches that the processes of a launch cannot split evenly, all at once.

    Args:
        run: The run.
        rows: The stages that are to be done.

    Raises:
        TagmaskError: It names each setting, and what to use.
    """
    refuse(uneven_batches(run.settings, rows, len(run.catalog), run.team.count))


def uneven_batches(
    settings: RunSettings, rows: Sequence[Stage], photos: int, processes: int
) -> list[str]:
    """Return a sentence for each batch of a run that processes cannot split evenly.

    Args:
        settings: Those of the run.
        rows: The stages that are to be done.
        photos: How many there are; with few of them a stage may train nothing.
        processes: How many work together.
    """
    mistakes = []
    for row in rows:
        own = row.settings_of(settings)
        amount = row.part("amount")
        if amount is None or amount(own, photos)[1] != "steps":
            continue
        flag = f"--{row.settings.section}.batch"
        if row.name == "affinity":
            own = own.affinity
            flag = f"--{row.settings.section}.affinity.batch"
        if not isinstance(own, LoopSettings):
            continue
        parts = own.accumulate * processes
        if own.batch % parts:
            mistakes.append(
                f"{flag} {own.batch} cannot be split evenly over {processes} processes; "
                f"use a multiple of {parts}."
            )
    return mistakes


def run_images(
    *, preset: str | None = None, config: Path | str | None = None, **settings: Any
) -> RunSummary:
    """Turn images and tags into masks, like `tagmask run`; finished stages are skipped.

    Args:
        preset: A named recipe to start from; default: own-photos, unless ``config`` is given.
        config: The config.toml of a run to start from.
        **settings: The run's, e.g. ``images="photos", tags="tags.csv", out="run"``, and those of
            stages as dictionaries, e.g. ``train={"steps": 200}``.

    Returns:
        What was made, with a summary for the terminal.

    Raises:
        TagmaskError: Settings or images cannot be used.
    """
    if preset is None and config is None:
        preset = "own-photos"
    values = run_values(preset, Path(config) if config is not None else None)
    values |= read_given(RunTop, values, settings, "tagmask.Run")
    if "out" not in values:
        raise TagmaskError("tagmask.run: out is missing; name the folder of the run.")
    return Run.of(run_settings(values))()


def tell_network(run: Run, row: Stage) -> None:
    """Tell the network that a stage made how a later stage of the run uses it.

    Args:
        run: The run.
        row: The stage; nothing happens if it makes no network.
    """
    if row.products != layout.MODEL:
        return
    for reader in STAGES:
        if reader.use is not None and row.name in reader.reads:
            use = use_of(reader.use, reader.settings_of(run.settings))
            write_network_use(run.out / row.folder, use)


def _status_of(run: Run, row: Stage) -> Status:
    """Return how far a stage has come, as the first process sees it."""

    def look() -> tuple[str, list[str]]:
        status = status_of(run, row)
        return status.state, list(status.why)

    state, why = run.team.from_first(look)
    return Status(cast(Any, state), tuple(why))


def status_of(run: Run, row: Stage) -> Status:
    """Return how far a stage has come.

    Args:
        run: The run.
        row: The stage.
    """
    where = places(row.settings_of(run.settings), run.settings)
    return row.record(run.out).status(run.parts(row), where, run.settings.restart)


def do_stage(run: Run, row: Stage, status: Status, title: str) -> bool:
    """Do a stage of a run unless it is done.

    Args:
        run: The run.
        row: The stage.
        status: How far it has come.
        title: What messages begin with.

    Returns:
        True if there was something to do.
    """
    if status.state == "done":
        logger.info("%s: done before", title)
        if run.team.is_first:
            row.record(run.out).settle()
        return False
    state = "" if status.state == "new" else f": {status.state}"
    why = f" ({shorten(status.why)})" if status.why else ""
    logger.info("%s", title + state + why)
    settings = row.settings_of(run.settings)
    team = run.team
    if not team.is_first:
        # the first process has made the folder ready
        team.wait()
        if row.together:
            row.do(run, settings)
        team.wait()
        run.forget(row)
        # and has noted that the stage is done
        team.wait()
        return True
    began = time.monotonic()
    with (
        _noted(row.record(run.out), status, run.parts(row), places(settings, run.settings)),
        team.hearing(),
    ):
        team.wait()
        summary = row.do(run, settings).summary()
        team.wait()
    run.forget(row)
    team.wait()
    # the plan has told what was left out of the images
    told = {line for note in run.catalog.notes for line in note.splitlines()}
    lines = [line for line in summary.splitlines() if line not in told]
    lines.append(f"took {time.monotonic() - began:.0f} s")
    logger.info("%s", "\n".join(f"  {line}" for line in lines))
    return True


@contextmanager
def _noted(record: Record, status: Status, parts: Parts, where: Parts) -> Iterator[None]:
    """Note what is begun, and what is done; a redo first moves aside what it is to replace.

    If it fails, that is taken back; a redo that is stopped or lacks disk space resumes later.
    """
    record.sweep()
    if status.state == "redo":
        record.discard()
    before = record.begin({**parts, **where})
    try:
        yield
    except OSError:
        raise
    except Exception:
        record.take_back(before)
        raise
    record.finish(parts)
    record.clean()
