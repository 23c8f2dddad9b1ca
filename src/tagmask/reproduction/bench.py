"""Trainings, seeds, labels and their scores for the tables, each made once by the ordinary stages.

The trainings of a table can be shared out over devices and machines (``shard``): every part begins
with its own share; part 0 then takes over whatever nobody is training, waits for the rest, and
makes the table.

OUT/runs/KEY/                       a training; KEY is a hash of its settings and images
  1_classifier/  trained.json
  maps-KEY/      scored.json        seeds of the scored images by a method, and their score
  labels-KEY/    2_seeds 3_affinity 4_pseudo   of the images trained on; labelled.json, scored.json
    segment-KEY/ 5_segmenter                   segmented.json
      masks-KEY/ 6_predictions                 of the scored images; scored.json
"""

import dataclasses
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch

from tagmask import layout
from tagmask.config import (
    DataSettings,
    HeadSettings,
    MapSettings,
    PredictSettings,
    PseudoSettings,
    ScoreSettings,
    SeedSettings,
    SegmentSettings,
    TrainSettings,
    check,
)
from tagmask.config.paper import PaperSettings
from tagmask.config.run import RunSettings
from tagmask.data.catalog import Catalog
from tagmask.data.open import open_catalog
from tagmask.errors import TagmaskError
from tagmask.files import read_json
from tagmask.progress import logger
from tagmask.reproduction.paired import mask_counts, photo_counts
from tagmask.runs.plan import duration
from tagmask.runs.record import IMAGES, contents_of, key, made_from, once, places, seconds_of
from tagmask.runs.run import Run

ORACLE = "oracle"
Changes = Mapping[str, Any]
Value = TypeVar("Value")
AnyMapSettings = TypeVar("AnyMapSettings", bound=MapSettings)


class PartDoneError(Exception):
    """Another part than the first has done its share; only the first makes the table."""


def by_method(settings: AnyMapSettings, method: str) -> AnyMapSettings:
    """Return settings for another map method, without those that only ACR has.

    Args:
        settings: How maps are made; stays as it is.
        method: Name of a map method, e.g. "cam".
    """
    changes: dict[str, Any] = {"method": method}
    if method != "acr":
        changes |= {"layers": None, "centre": False}
    return dataclasses.replace(settings, **changes)


@dataclass(frozen=True)
class Training:
    """One training of the cache."""

    folder: Path
    settings: RunSettings

    @property
    def classifier(self) -> Path:
        """Return the folder of the classifier."""
        return self.folder / layout.CLASSIFIER

    @property
    def weights(self) -> Path:
        """Return the file of its weights."""
        return self.classifier / layout.MODEL

    @property
    def note(self) -> Path:
        """Return the file that says how it was trained."""
        return self.folder / "trained.json"

    @property
    def is_trained(self) -> bool:
        """Return True if the training came to its end."""
        return self.note.is_file() and self.weights.is_file()


class Bench:
    """What the tables of one folder share: images, trainings, maps, labels and their scores.

    Args:
        settings: Settings of the table.
        shard: Part of the trainings that this process begins with, and the number of parts.
    """

    def __init__(self, settings: PaperSettings, shard: tuple[int, int] = (0, 1)) -> None:
        self.settings = settings
        self.shard = shard
        self.score_data = settings.score_data()
        # how the threshold of seeds is chosen in the tables
        self.rules = (ORACLE, settings.of(PseudoSettings).rule)
        # of catalogs, which live as long as this object
        self._digests: dict[int, str] = {}

    @cached_property
    def training_images(self) -> Catalog:
        """Return the images that classifiers are trained on."""
        return open_catalog(self.settings)

    @cached_property
    def scored_images(self) -> Catalog:
        """Return the images whose maps are scored."""
        return open_catalog(DataSettings(**self.score_data))

    @cached_property
    def labelled_images(self) -> Catalog:
        """Return the images whose pseudo labels are scored.

        Of VOC these are the scored list, of other data all images that were trained on.

        Raises:
            TagmaskError: An image of the scored list was not trained on.
        """
        score_split = self.score_data["split"]
        if self.settings.data != "voc" or score_split == self.settings.split:
            return self.training_images
        trained_on = set(_names(self.training_images))
        unlabelled = [name for name in _names(self.scored_images) if name not in trained_on]
        if unlabelled:
            raise TagmaskError(
                f"{len(unlabelled)} images of --score-split {score_split} have no pseudo label, "
                f"e.g. {unlabelled[0]}: only images trained on are labelled; "
                "choose a part of --split."
            )
        return self.scored_images

    def scored_on(self) -> str:
        """Say which images are scored, and that they were trained on if they were."""
        data = self.score_data
        images = self._named(len(self.scored_images), data)
        return f"{images}, all of them trained on" if self.are_trained_on() else images

    def are_trained_on(self) -> bool:
        """Return True if all images that are scored were trained on."""
        if self.settings.data == "voc":
            return set(_names(self.scored_images)) <= set(_names(self.training_images))
        return self.score_data == self.settings.data_settings()

    def labelled_on(self) -> str:
        """Say which images have the pseudo labels that are scored."""
        data = self.settings.data_settings()
        if self.settings.data == "voc":
            data = self.score_data
        return f"{self._named(len(self.labelled_images), data)}, all of them trained on"

    def _named(self, count: int, data: Mapping[str, Any]) -> str:
        """Say which images these are.

        Args:
            count: How many.
            data: Their data settings.
        """
        if self.settings.data == "voc":
            return f"{count} images of VOC {data['split']}"
        if self.settings.data == "scenes":
            return f"{count} built-in scenes of seed {data['scene_seed']}"
        return f"{count} images of {data['images']}"

    def check_masks(self, which: str) -> None:
        """Refuse before the first training what could not be scored after the last."""
        if which == "scored" and not self.scored_images.has_masks:
            raise TagmaskError(
                "the images to score have no masks to compare with; "
                "give --masks (--score-masks), or another --data."
            )
        if which == "trained" and not self.labelled_images.has_masks:
            raise TagmaskError(
                "the images trained on have no masks to compare with; "
                "give --masks, or another --data."
            )
        classes = self.scored_images.classes
        unknown = [name for name in self.settings.only if name not in classes]
        if unknown:
            raise TagmaskError(
                f"--only {unknown[0]} is no class of these images; "
                f"choose from {', '.join(classes)}."
            )

    def rows(
        self, names: Mapping[str, Value], by_default: Iterable[str] | None = None
    ) -> dict[str, Value]:
        """Return those of a table's rows that ``--rows`` asks for, in the table's order.

        Args:
            names: All rows of the table.
            by_default: The rows that are returned where it asks for none; default: all.
        """
        default = tuple(names if by_default is None else by_default)
        asked = self.settings.rows or default
        unknown = [name for name in asked if name not in names]
        if unknown:
            raise TagmaskError(
                f"--rows {unknown[0]}: {self.settings.table} has no such row; "
                f"choose from {', '.join(names)}."
            )
        return {name: row for name, row in names.items() if name in asked}

    def trained(
        self, variants: Mapping[str, Changes], seeds: int | None = None
    ) -> dict[str, list[Training]]:
        """Train every variant with every random seed; what was done before is found again.

        Args:
            variants: Title of a variant to the training settings that it changes.
            seeds: How many random seeds; default: as the settings say.

        Returns:
            Of each variant a run for each random seed.

        Raises:
            PartDoneError: This process has done its share, and another one makes the table.
        """
        count = self.settings.random_seeds if seeds is None else seeds
        runs = {}
        for title, changes in variants.items():
            runs[title] = [self._run(number, changes) for number in range(count)]
        for variant in runs.values():
            check(variant[0].settings)
        jobs = _jobs(runs)
        part, parts = self.shard
        share = list(range(part, len(jobs), parts))
        order = list(share)
        if part == 0:
            order += [index for index in range(len(jobs)) if index not in share]
        for index in order:
            title, run = jobs[index]
            seed = run.settings.of(TrainSettings).seed
            message = f"training {index + 1} of {len(jobs)} ({title}, seed {seed})"
            if run.is_trained:
                logger.info(f"{message}: done before")
                continue
            logger.info(message + _time_left([run for _, run in jobs]))
            self._train(run)
        if part:
            raise PartDoneError(
                f"part {part} of {parts}: {len(share)} of {len(jobs)} trainings are done."
            )
        return runs

    def scored(
        self,
        runs: Mapping[str, Sequence[Training]],
        method: str | None = None,
        maps: Changes | None = None,
        *,
        is_chain: bool = False,
    ) -> dict[str, list[Any]]:
        """Make and score the seeds of every run.

        Args:
            runs: Of each variant its runs.
            method: Name of a map method; default: the one in the settings.
            maps: Settings of the maps that are changed; default: none.
            is_chain: Make the seeds from which the run makes its labels, which are maps of objects
                where it has learned them; otherwise maps are made by the method in any case,
                unless the settings ask for objects.

        Returns:
            Of each variant the scores of each run, as scores.json holds those of seeds.
        """
        scores: dict[str, list[Any]] = {title: [] for title in runs}
        jobs = _jobs(runs)
        by = f", by {method}" if method else ""
        for number, (title, run) in enumerate(jobs, 1):
            seed = run.settings.of(TrainSettings).seed
            message = f"maps {number} of {len(jobs)} ({title}, seed {seed}{by})"
            chosen = dataclasses.replace(run.settings.of(SeedSettings), **(maps or {}))
            if method:
                chosen = by_method(chosen, method)
            learned = run.settings.of(TrainSettings).objects
            if learned and chosen.objects is None and not is_chain:
                chosen = dataclasses.replace(chosen, objects=False)
            scores[title].append(self._score(run, chosen, message))
        return scores

    def labelled(self, run: Training) -> Path:
        """Make pseudo labels of the images that were trained on, and return their folder."""
        seeds = dataclasses.replace(run.settings.of(SeedSettings), model=run.classifier)
        pseudo = dataclasses.replace(run.settings.of(PseudoSettings), model=run.classifier)
        parts = {"seeds": made_from(seeds), "pseudo": made_from(pseudo)}
        folder = run.folder / f"labels-{key(parts)}"

        def work() -> Any:
            logger.info("seeds and pseudo labels of the images trained on")
            here = self._at(run, folder, self.training_images)
            here.seeds(seeds)
            done = here.pseudo(pseudo)
            return {"images": done.made + done.kept, "background": done.background}

        once(folder / "labelled.json", parts, work)
        return folder

    def label_scores(self, run: Training, catalog: Catalog | None = None) -> Any:
        """Return the scores of seeds and pseudo labels of images that were trained on.

        Args:
            run: The training whose maps the labels are made from.
            catalog: The images that are scored; default: ``labelled_images``.

        Returns:
            The content of scores.json, and under "photos" the pixel counts of each photo.
        """
        folder = self.labelled(run)
        if catalog is None:
            catalog = self.labelled_images
        images = catalog
        data = run.settings.data_settings()
        if images is self.scored_images:
            data = self.score_data

        def work() -> Any:
            self._at(run, folder, images, data).score(self._scoring())
            scores = read_json(folder / layout.SCORES)
            photos = mask_counts(folder / layout.PSEUDO, images)
            return {**scores, "photos": photos}

        name = "scored"
        if images is not self.training_images:
            name = f"scored-{key(self._scored_parts())}"
        return self._once_for_masks(folder / f"{name}.json", {}, images, work)

    def segmented(self, run: Training) -> Path:
        """Train a segmenter on the pseudo labels of a run, and return its folder."""
        labels = self.labelled(run)
        segment = run.settings.of(SegmentSettings)
        parts = {"segment": made_from(segment)}
        folder = labels / f"segment-{key(parts)}"

        def work() -> Any:
            logger.info("a segmenter on the pseudo labels")
            threads = torch.get_num_threads()
            settings = dataclasses.replace(segment, pseudo=labels / layout.PSEUDO)
            if isinstance(settings, HeadSettings):
                settings = dataclasses.replace(settings, model=run.classifier)
            trained = self._at(run, folder, self.training_images).segment(settings)
            torch.set_num_threads(threads)
            # no other network reads the feature cache of this head
            shutil.rmtree(folder / layout.TOKENS, ignore_errors=True)
            return trained.metrics

        once(folder / "segmented.json", parts, work)
        return folder

    def predicted(self, run: Training, *, told: bool | None = None) -> tuple[Path, Any]:
        """Predict and score the masks of the scored images.

        Args:
            run: The training whose segmenter predicts.
            told: True if the tags are given at test time; default: as the settings say.

        Returns:
            The folder of the masks, and their scores with the pixel counts of each photo.
        """
        segmenter = self.segmented(run)
        predict = run.settings.of(PredictSettings)
        if told is not None:
            predict = dataclasses.replace(predict, use_tags=told)
        parts = {"predict": made_from(predict), **self._scored_parts()}
        folder = segmenter / f"masks-{key(parts)}"
        settings = dataclasses.replace(predict, model=segmenter / layout.SEGMENTER)

        def work() -> Any:
            here = self._at(run, folder, self.scored_images, self.score_data)
            here.predict(settings)
            shutil.rmtree(folder / layout.TOKENS, ignore_errors=True)
            here.score(self._scoring())
            photos = mask_counts(folder / layout.PREDICTIONS, self.scored_images)
            scores = read_json(folder / layout.SCORES)["predictions"]
            return {**scores, "photos": photos}

        file = folder / "scored.json"
        return folder, self._once_for_masks(file, parts, self.scored_images, work)

    def _once_for_masks(
        self, file: Path, parts: Changes, images: Catalog, work: Callable[[], Any]
    ) -> Any:
        """Score once, and again if a mask has changed in place since.

        Args:
            file: Where the scores are kept.
            parts: What identifies them besides the masks.
            images: The images that are scored.
            work: Scores them.
        """
        masks = self._masks_digest(images)
        if file.is_file():
            note = read_json(file)
            settings = note.get("settings") if isinstance(note, dict) else None
            # notes of earlier versions do not name the masks, and are believed
            before = settings.get("masks") if isinstance(settings, dict) else None
            if before not in (None, masks):
                logger.info("%s: the masks have changed since; scoring again", file.parent)
                file.unlink()
        return once(file, {**parts, "masks": masks}, work)

    def _masks_digest(self, images: Catalog) -> str:
        """Return a hash of the content of the masks; of drawn ones, of what they are drawn from."""
        if id(images) not in self._digests:
            files = {images.item(i).mask for i in range(len(images))}
            files |= {self.score_data.get("annotations"), self.settings.annotations}
            self._digests[id(images)] = contents_of(sorted(file for file in files if file))
        return self._digests[id(images)]

    def _scored_parts(self) -> dict[str, Any]:
        """Return what identifies the scored images."""
        return {
            "scored": places(self._scoring(), DataSettings(**self.score_data)),
            "scored images": self.scored_images.fingerprint(),
        }

    def _scoring(self) -> ScoreSettings:
        """Return settings to score what a run has made."""
        return ScoreSettings(processes=self.settings.of(PseudoSettings).processes)

    def _at(self, run: Training, folder: Path, images: Catalog, data: Changes | None = None) -> Run:
        """Return a run in another folder, on these images; default: its own data."""
        settings = dataclasses.replace(run.settings, out=folder, **(data or {}))
        return Run.of(settings, images)

    def _run(self, number: int, changes: Changes) -> Training:
        """Return the training with the ``number``-th random seed, done or not."""
        settings = self.settings.run(Path(), number, changes)
        train = settings.of(TrainSettings)
        parts = {**made_from(train), **places(train, settings)}
        parts[IMAGES[0]] = self.training_images.fingerprint()
        folder = self.settings.out / "runs" / key(parts)
        return Training(folder, dataclasses.replace(settings, out=folder))

    def _train(self, run: Training) -> None:
        """Train one network, unless another process does so meanwhile."""
        settings = run.settings.of(TrainSettings)
        here = self._at(run, run.folder, self.training_images)
        threads = torch.get_num_threads()

        def work() -> Any:
            trained = here.train(settings)
            # the weights were deleted, and the resume point is of the last step
            if not run.weights.is_file():
                trained = here.train(settings, restart=True)
            return trained.metrics

        # a note without weights: they were deleted to save space
        if not run.weights.is_file():
            run.note.unlink(missing_ok=True)
        once(run.note, made_from(settings), work)
        # a training with loading processes takes fewer threads
        torch.set_num_threads(threads)

    def _score(self, run: Training, chosen: SeedSettings, title: str) -> Any:
        """Make the seeds of the scored images and return their scores, from the cache if there."""
        from tagmask.stages.score import score_seeds

        parts = {"maps": made_from(chosen), **self._scored_parts()}
        folder = run.folder / f"maps-{key(parts)}"
        settings = dataclasses.replace(chosen, model=run.classifier)
        seeds = folder / layout.SEEDS

        def work() -> Any:
            logger.info(title)
            here = self._at(run, folder, self.scored_images, self.score_data)
            here.seeds(settings)
            scores = score_seeds(here, self._scoring()).to_json()
            scores["photos"] = photo_counts(seeds, self.scored_images, scores, self.rules)
            if not self.settings.keep_maps:
                shutil.rmtree(seeds, ignore_errors=True)
            return scores

        return self._once_for_masks(folder / "scored.json", parts, self.scored_images, work)


def _names(catalog: Catalog) -> list[str]:
    return [catalog.name(i) for i in range(len(catalog))]


def _jobs(runs: Mapping[str, Sequence[Training]]) -> list[tuple[str, Training]]:
    """Return the runs of all variants in one list, each with the title of its variant."""
    jobs = []
    for title, variant in runs.items():
        jobs += [(title, run) for run in variant]
    return jobs


def _time_left(runs: Sequence[Training]) -> str:
    """Say about how long the trainings that are left will take; empty before the first is done."""
    unique = {run.folder: run for run in runs}.values()
    spent = [seconds_of(run.note) for run in unique if run.is_trained]
    if not spent:
        return ""
    mean = sum(spent) / len(spent)
    left = mean * (len(unique) - len(spent))
    return f", about {duration(left)} of training left"
