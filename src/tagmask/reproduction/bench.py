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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch
from tqdm import tqdm

from tagmask import layout
from tagmask.config import MapSettings, ScoreSettings, check
from tagmask.config.paper import PaperSettings
from tagmask.config.run import RunSettings
from tagmask.data.catalog import Catalog
from tagmask.data.open import open_catalog
from tagmask.errors import TagmaskError
from tagmask.files import read_json
from tagmask.reproduction.paired import mask_counts, photo_counts
from tagmask.runs.plan import duration
from tagmask.runs.record import IMAGES, key, made_from, once, places, seconds_of
from tagmask.runs.table import stage

ORACLE = "oracle"
Changes = Mapping[str, Any]
Row = TypeVar("Row")
Maps = TypeVar("Maps", bound=MapSettings)


class PartDoneError(Exception):
    """Another part than the first has done its share; only the first makes the table."""


def by_method(settings: Maps, method: str) -> Maps:
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
class Run:
    """One training of the cache."""

    folder: Path
    settings: RunSettings

    @property
    def classifier(self) -> Path:
        return self.folder / layout.CLASSIFIER

    @property
    def weights(self) -> Path:
        return self.classifier / layout.MODEL

    @property
    def note(self) -> Path:
        return self.folder / "trained.json"

    @property
    def is_trained(self) -> bool:
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
        self.rules = (ORACLE, settings.pseudo.rule)

    @cached_property
    def training_images(self) -> Catalog:
        return open_catalog(self.settings)

    @cached_property
    def scored_images(self) -> Catalog:
        return open_catalog(self._scoring(Path()))

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

    def rows(self, names: Mapping[str, Row]) -> dict[str, Row]:
        """Return those of a table's rows that ``--rows`` asks for, in the table's order.

        All rows are returned where it asks for none.
        """
        asked = self.settings.rows or tuple(names)
        unknown = [name for name in asked if name not in names]
        if unknown:
            raise TagmaskError(
                f"--rows {unknown[0]}: {self.settings.table} has no such row; "
                f"choose from {', '.join(names)}."
            )
        return {name: row for name, row in names.items() if name in asked}

    def trained(
        self, variants: Mapping[str, Changes], seeds: int | None = None
    ) -> dict[str, list[Run]]:
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
            seed = run.settings.train.seed
            message = f"training {index + 1} of {len(jobs)} ({title}, seed {seed})"
            if run.is_trained:
                tqdm.write(f"{message}: done before")
                continue
            tqdm.write(message + _time_left([run for _, run in jobs]))
            self._train(run)
        if part:
            raise PartDoneError(
                f"part {part} of {parts}: {len(share)} of {len(jobs)} trainings are done."
            )
        return runs

    def scored(
        self,
        runs: Mapping[str, Sequence[Run]],
        method: str | None = None,
        maps: Changes | None = None,
    ) -> dict[str, list[Any]]:
        """Make and score the seeds of every run.

        Args:
            runs: Of each variant its runs.
            method: Name of a map method; default: the one in the settings.
            maps: Settings of the maps that are changed; default: none.

        Returns:
            Of each variant the scores of each run, as scores.json holds those of seeds.
        """
        scores: dict[str, list[Any]] = {title: [] for title in runs}
        jobs = _jobs(runs)
        by = f", by {method}" if method else ""
        for number, (title, run) in enumerate(jobs, 1):
            seed = run.settings.train.seed
            message = f"maps {number} of {len(jobs)} ({title}, seed {seed}{by})"
            scores[title].append(self._score(run, method, maps or {}, message))
        return scores

    def labelled(self, run: Run) -> Path:
        """Make pseudo labels of the images that were trained on, and return their folder."""
        seeds = dataclasses.replace(run.settings.for_stage("seeds"), model=run.classifier)
        pseudo = dataclasses.replace(run.settings.for_stage("pseudo"), model=run.classifier)
        parts = {"seeds": made_from(seeds), "pseudo": made_from(pseudo)}
        folder = run.folder / f"labels-{key(parts)}"

        def work() -> Any:
            tqdm.write("seeds and pseudo labels of the images trained on")
            seeds_here = dataclasses.replace(seeds, out=folder)
            stage("seeds").run(seeds_here, self.training_images)
            pseudo_here = dataclasses.replace(pseudo, out=folder)
            done = stage("pseudo").run(pseudo_here, self.training_images)
            return {"images": done.made + done.kept, "background": done.background}

        once(folder / "labelled.json", parts, work)
        return folder

    def label_scores(self, run: Run, catalog: Catalog | None = None) -> Any:
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
            stage("score").run(self._scoring(folder, data), images)
            scores = read_json(folder / layout.SCORES)
            photos = mask_counts(folder / layout.PSEUDO, images)
            return {**scores, "photos": photos}

        name = "scored"
        if images is not self.training_images:
            name = f"scored-{key(self._scored_parts())}"
        return once(folder / f"{name}.json", {}, work)

    def segmented(self, run: Run) -> Path:
        """Train a segmenter on the pseudo labels of a run, and return its folder."""
        labels = self.labelled(run)
        segment = run.settings.for_stage("segment")
        parts = {"segment": made_from(segment)}
        folder = labels / f"segment-{key(parts)}"

        def work() -> Any:
            tqdm.write("a segmenter on the pseudo labels")
            threads = torch.get_num_threads()
            model = run.classifier if segment.net == "head" else None
            pseudo = labels / layout.PSEUDO
            settings = dataclasses.replace(segment, out=folder, pseudo=pseudo, model=model)
            trained = stage("segment").run(settings, self.training_images)
            torch.set_num_threads(threads)
            # no other network reads the feature cache of this head
            shutil.rmtree(folder / layout.TOKENS, ignore_errors=True)
            return trained.metrics

        once(folder / "segmented.json", parts, work)
        return folder

    def predicted(self, run: Run, *, told: bool | None = None) -> tuple[Path, Any]:
        """Predict and score the masks of the scored images.

        Args:
            run: The training whose segmenter predicts.
            told: True if the tags are given at test time; default: as the settings say.

        Returns:
            The folder of the masks, and their scores with the pixel counts of each photo.
        """
        segmenter = self.segmented(run)
        predict = run.settings.for_stage("predict")
        if told is not None:
            predict = dataclasses.replace(predict, use_tags=told)
        parts = {"predict": made_from(predict), **self._scored_parts()}
        folder = segmenter / f"masks-{key(parts)}"
        where = {"out": folder, "model": segmenter / layout.SEGMENTER, **self.score_data}

        def work() -> Any:
            stage("predict").run(dataclasses.replace(predict, **where), self.scored_images)
            shutil.rmtree(folder / layout.TOKENS, ignore_errors=True)
            stage("score").run(self._scoring(folder), self.scored_images)
            photos = mask_counts(folder / layout.PREDICTIONS, self.scored_images)
            scores = read_json(folder / layout.SCORES)["predictions"]
            return {**scores, "photos": photos}

        return folder, once(folder / "scored.json", parts, work)

    def _scored_parts(self) -> dict[str, Any]:
        """Return what identifies the scored images."""
        return {
            "scored": places(self._scoring(Path())),
            "scored images": self.scored_images.fingerprint(),
        }

    def _scoring(self, out: Path, data: Changes | None = None) -> ScoreSettings:
        """Return settings to score what is in ``out``; default: on the scored images."""
        data = data or self.score_data
        return ScoreSettings(out=out, processes=self.settings.pseudo.processes, **data)

    def _run(self, number: int, changes: Changes) -> Run:
        """Return the training with the ``number``-th random seed, done or not."""
        settings = self.settings.run(Path(), number, changes)
        train = settings.for_stage("train")
        parts = {**made_from(train), **places(train)}
        parts[IMAGES[0]] = self.training_images.fingerprint()
        folder = self.settings.out / "runs" / key(parts)
        return Run(folder, dataclasses.replace(settings, out=folder))

    def _train(self, run: Run) -> None:
        """Train one network, unless another process does so meanwhile."""
        settings = run.settings.for_stage("train")
        threads = torch.get_num_threads()

        def work() -> Any:
            trained = stage("train").run(settings, self.training_images)
            # the weights were deleted, and the resume point is of the last step
            if not run.weights.is_file():
                again = dataclasses.replace(settings, restart=True)
                trained = stage("train").run(again, self.training_images)
            return trained.metrics

        # a note without weights: they were deleted to save space
        if not run.weights.is_file():
            run.note.unlink(missing_ok=True)
        once(run.note, made_from(settings), work)
        # a training with loading processes takes fewer threads
        torch.set_num_threads(threads)

    def _score(self, run: Run, method: str | None, maps: Changes, title: str) -> Any:
        """Make the seeds of the scored images and return their scores, from the cache if there."""
        from tagmask.stages.score import score_seeds

        chosen = dataclasses.replace(run.settings.seeds, **maps)
        if method:
            chosen = by_method(chosen, method)
        parts = {"maps": made_from(chosen), **self._scored_parts()}
        folder = run.folder / f"maps-{key(parts)}"
        where = {
            "out": folder,
            "model": run.classifier,
            "tokens": run.settings.tokens,
            **self.score_data,
        }
        settings = dataclasses.replace(chosen, **where)
        seeds = folder / layout.SEEDS

        def work() -> Any:
            tqdm.write(title)
            stage("seeds").run(settings, self.scored_images)
            scores = score_seeds(self._scoring(folder), self.scored_images).to_json()
            scores["photos"] = photo_counts(seeds, self.scored_images, scores, self.rules)
            if not self.settings.keep_maps:
                shutil.rmtree(seeds, ignore_errors=True)
            return scores

        return once(folder / "scored.json", parts, work)


def _names(catalog: Catalog) -> list[str]:
    return [catalog.name(i) for i in range(len(catalog))]


def _jobs(runs: Mapping[str, Sequence[Run]]) -> list[tuple[str, Run]]:
    """Return the runs of all variants in one list, each with the title of its variant."""
    jobs = []
    for title, variant in runs.items():
        jobs += [(title, run) for run in variant]
    return jobs


def _time_left(runs: Sequence[Run]) -> str:
    """Say about how long the trainings that are left will take; empty before the first is done."""
    unique = {run.folder: run for run in runs}.values()
    spent = [seconds_of(run.note) for run in unique if run.is_trained]
    if not spent:
        return ""
    mean = sum(spent) / len(spent)
    left = mean * (len(unique) - len(spent))
    return f", about {duration(left)} of training left"
