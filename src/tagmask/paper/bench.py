"""Trainings, seeds, labels and their scores for the tables, each made once by the ordinary stages.

The trainings of a table can be shared out over devices and machines (``shard``): every part begins with its own share;
part 0 then takes over whatever nobody is training, waits for the rest, and makes the table.

OUT/runs/KEY/                       a training; KEY is a hash of its settings and images
  1_classifier/  trained.json
  maps-KEY/      scored.json        seeds of the scored images by a method, and their score
  labels-KEY/    2_seeds 3_affinity 4_pseudo   of the images trained on; labelled.json, scored.json
    segment-KEY/ 5_segmenter                   segmented.json
      masks-KEY/ 6_predictions                 of the scored images; scored.json
"""

import dataclasses
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch
from tqdm import tqdm

from tagmask.config import MapSettings, ScoreSettings, check
from tagmask.config.paper import PaperSettings
from tagmask.config.run import RunSettings
from tagmask.data.catalog import Catalog
from tagmask.data.open import open_catalog
from tagmask.errors import TagmaskError
from tagmask.files import read_json
from tagmask.paper.paired import mask_counts, photo_counts
from tagmask.pipeline import layout
from tagmask.pipeline.plan import duration
from tagmask.pipeline.record import IMAGES, key, made_from, once, places, seconds_of
from tagmask.pipeline.stages import stage

ORACLE = "oracle"
Changes = Mapping[str, Any]
Row = TypeVar("Row")
Maps = TypeVar("Maps", bound=MapSettings)


class PartDoneError(Exception):
    """A part other than the first has done its share of the trainings; only the first makes the table."""


def by_method(settings: Maps, method: str) -> Maps:
    """Settings for another map method, without those that only ACR has."""
    changes: dict[str, Any] = {"method": method}
    return dataclasses.replace(
        settings, **changes | ({} if method == "acr" else {"layers": None, "centre": False})
    )


@dataclass(frozen=True)
class Run:
    """One training of the cache."""

    folder: Path
    settings: RunSettings

    @property
    def classifier(self) -> Path:
        return self.folder / layout.CLASSIFIER

    @property
    def note(self) -> Path:
        return self.folder / "trained.json"

    @property
    def is_trained(self) -> bool:
        return self.note.is_file() and (self.classifier / layout.MODEL).is_file()


class Bench:
    """What the tables of one folder share; ``shard`` is the part of the trainings that this process begins with."""

    def __init__(self, settings: PaperSettings, shard: tuple[int, int] = (0, 1)) -> None:
        self.settings, self.shard = settings, shard
        self.score_data = settings.score_data()
        self.rules = (
            ORACLE,
            settings.pseudo.rule,
        )  # how the threshold of seeds is chosen in the tables

    @cached_property
    def training_images(self) -> Catalog:
        return open_catalog(self.settings)

    @cached_property
    def scored_images(self) -> Catalog:
        return open_catalog(self._scoring(Path()))

    @cached_property
    def labelled_images(self) -> Catalog:
        """The images whose pseudo labels are scored: of VOC the scored list, else all that were trained on."""
        if self.settings.data != "voc" or self.score_data["split"] == self.settings.split:
            return self.training_images
        names = {self.training_images.name(i) for i in range(len(self.training_images))}
        unlabelled = [
            name
            for i in range(len(self.scored_images))
            if (name := self.scored_images.name(i)) not in names
        ]
        if unlabelled:
            raise TagmaskError(
                f"{len(unlabelled)} images of --score-split {self.score_data['split']} have no pseudo label, "
                f"e.g. {unlabelled[0]}: only images trained on are labelled; choose a part of --split."
            )
        return self.scored_images

    def check_masks(self, which: str) -> None:
        """Refuse before the first training what could not be scored after the last."""
        if which == "scored" and not self.scored_images.has_masks:
            raise TagmaskError(
                "the images to score have no masks to compare with; give --masks (--score-masks), or another --data."
            )
        if which == "trained" and not self.labelled_images.has_masks:
            raise TagmaskError(
                "the images trained on have no masks to compare with; give --masks, or another --data."
            )
        unknown = [name for name in self.settings.only if name not in self.scored_images.classes]
        if unknown:
            raise TagmaskError(
                f"--only {unknown[0]} is no class of these images; choose from {', '.join(self.scored_images.classes)}."
            )

    def rows(self, names: Mapping[str, Row]) -> dict[str, Row]:
        """Those of a table's rows that ``--rows`` asks for, in the table's order; all where it asks for none."""
        asked = self.settings.rows or tuple(names)
        unknown = [name for name in asked if name not in names]
        if unknown:
            raise TagmaskError(
                f"--rows {unknown[0]}: {self.settings.table} has no such row; choose from {', '.join(names)}."
            )
        return {name: row for name, row in names.items() if name in asked}

    def trained(
        self, variants: Mapping[str, Changes], seeds: int | None = None
    ) -> dict[str, list[Run]]:
        """Every variant trained with every random seed (or the first ``seeds``); what is done is found again."""
        places = range(self.settings.random_seeds if seeds is None else seeds)
        runs = {
            title: [self._run(place, changes) for place in places]
            for title, changes in variants.items()
        }
        for variant, *_ in runs.values():
            check(variant.settings)
        jobs = [(title, run) for title, variant in runs.items() for run in variant]
        part, parts = self.shard
        share = list(range(part, len(jobs), parts))
        rest = [] if part else [place for place in range(len(jobs)) if place not in share]
        for place in share + rest:
            title, run = jobs[place]
            message = (
                f"training {place + 1} of {len(jobs)} ({title}, seed {run.settings.train.seed})"
            )
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
        """The scores of the seeds of every run, as scores.json holds them; ``maps`` change how they are made."""
        scores: dict[str, list[Any]] = {title: [] for title in runs}
        jobs = [(title, run) for title, variant in runs.items() for run in variant]
        by = f", by {method}" if method else ""
        for number, (title, run) in enumerate(jobs, 1):
            message = f"maps {number} of {len(jobs)} ({title}, seed {run.settings.train.seed}{by})"
            scores[title].append(self._score(run, method, maps or {}, message))
        return scores

    def labelled(self, run: Run) -> Path:
        """The folder of the pseudo labels of the images that were trained on."""
        stages = (run.settings.for_stage(name) for name in ("seeds", "pseudo"))
        seeds, pseudo = (dataclasses.replace(settings, model=run.classifier) for settings in stages)
        parts = {"seeds": made_from(seeds), "pseudo": made_from(pseudo)}
        folder = run.folder / f"labels-{key(parts)}"

        def work() -> Any:
            tqdm.write("seeds and pseudo labels of the images trained on")
            stage("seeds").run(dataclasses.replace(seeds, out=folder), self.training_images)
            done = stage("pseudo").run(
                dataclasses.replace(pseudo, out=folder), self.training_images
            )
            return {"images": done.made + done.kept, "background": done.background}

        once(folder / "labelled.json", parts, work)
        return folder

    def label_scores(self, run: Run, catalog: Catalog | None = None) -> Any:
        """Scores of the seeds and pseudo labels of images that were trained on; by default ``labelled_images``."""
        folder, catalog = self.labelled(run), self.labelled_images if catalog is None else catalog
        data = self.score_data if catalog is self.scored_images else run.settings.data_settings()

        def work() -> Any:
            stage("score").run(self._scoring(folder, data), catalog)
            return {
                **read_json(folder / layout.SCORES),
                "photos": mask_counts(folder / layout.PSEUDO, catalog),
            }

        name = (
            "scored" if catalog is self.training_images else f"scored-{key(self._scored_parts())}"
        )
        return _once_with_photos(folder / f"{name}.json", {}, work)

    def segmented(self, run: Run) -> Path:
        """The folder of a segmenter trained on the pseudo labels."""
        labels, segment = self.labelled(run), run.settings.for_stage("segment")
        parts = {"segment": made_from(segment)}
        folder = labels / f"segment-{key(parts)}"

        def work() -> Any:
            tqdm.write("a segmenter on the pseudo labels")
            threads = torch.get_num_threads()
            model = run.classifier if segment.net == "head" else None
            network = dataclasses.replace(
                segment, out=folder, pseudo=labels / layout.PSEUDO, model=model
            )
            trained = stage("segment").run(network, self.training_images)
            torch.set_num_threads(threads)
            shutil.rmtree(folder / layout.TOKENS, ignore_errors=True)  # what this head alone reads
            return trained.metrics

        once(folder / "segmented.json", parts, work)
        return folder

    def predicted(self, run: Run, *, told: bool | None = None) -> tuple[Path, Any]:
        """The folder of the scored images' masks, and their scores; ``told`` the tags or not, else as set."""
        segmenter, predict = self.segmented(run), run.settings.for_stage("predict")
        predict = predict if told is None else dataclasses.replace(predict, use_tags=told)
        parts = {"predict": made_from(predict), **self._scored_parts()}
        folder = segmenter / f"masks-{key(parts)}"
        where = {"out": folder, "model": segmenter / layout.SEGMENTER, **self.score_data}

        def work() -> Any:
            stage("predict").run(dataclasses.replace(predict, **where), self.scored_images)
            shutil.rmtree(folder / layout.TOKENS, ignore_errors=True)
            stage("score").run(self._scoring(folder), self.scored_images)
            photos = mask_counts(folder / layout.PREDICTIONS, self.scored_images)
            return {**read_json(folder / layout.SCORES)["predictions"], "photos": photos}

        return folder, once(folder / "scored.json", parts, work)

    def _scored_parts(self) -> dict[str, Any]:
        """What the scored images are."""
        return {
            "scored": places(self._scoring(Path())),
            "scored images": self.scored_images.fingerprint(),
        }

    def _scoring(self, out: Path, data: Changes | None = None) -> ScoreSettings:
        return ScoreSettings(
            out=out, processes=self.settings.pseudo.processes, **(data or self.score_data)
        )

    def _run(self, place: int, changes: Changes) -> Run:
        settings = self.settings.run(Path(), place, changes)
        train = settings.for_stage("train")
        name = key(
            {**made_from(train), **places(train), IMAGES[0]: self.training_images.fingerprint()}
        )
        folder = self.settings.out / "runs" / name
        return Run(folder, dataclasses.replace(settings, out=folder))

    def _train(self, run: Run) -> None:
        settings, threads = run.settings.for_stage("train"), torch.get_num_threads()

        def work() -> Any:
            trained = stage("train").run(settings, self.training_images)
            if not (
                run.classifier / layout.MODEL
            ).is_file():  # deleted, and the resume point is of the last step
                trained = stage("train").run(
                    dataclasses.replace(settings, restart=True), self.training_images
                )
            return trained.metrics

        if not (run.classifier / layout.MODEL).is_file():
            run.note.unlink(missing_ok=True)  # the weights were deleted to save space
        once(run.note, made_from(settings), work)
        torch.set_num_threads(threads)  # a training with loading processes takes fewer

    def _score(self, run: Run, method: str | None, maps: Changes, title: str) -> Any:
        from tagmask.stages.score import score_seeds

        chosen = dataclasses.replace(run.settings.seeds, **maps)
        chosen = by_method(chosen, method) if method else chosen
        parts = {"maps": made_from(chosen), **self._scored_parts()}
        folder = run.folder / f"maps-{key(parts)}"
        where = {
            "out": folder,
            "model": run.classifier,
            "tokens": run.settings.tokens,
            **self.score_data,
        }
        settings = dataclasses.replace(chosen, **where)

        def work() -> Any:
            tqdm.write(title)
            stage("seeds").run(settings, self.scored_images)
            scores = score_seeds(self._scoring(folder), self.scored_images).to_json()
            scores["photos"] = photo_counts(
                folder / layout.SEEDS, self.scored_images, scores, self.rules
            )
            if not self.settings.keep_maps:
                shutil.rmtree(folder / layout.SEEDS, ignore_errors=True)
            return scores

        return _once_with_photos(folder / "scored.json", parts, work)


def _once_with_photos(file: Path, parts: Changes, work: Callable[[], Any]) -> Any:
    """Scores as ``once`` keeps them; those of an earlier version, without counts of each photo, are made again."""
    scores = once(file, parts, work)
    if "photos" not in scores:
        file.unlink()
        scores = once(file, parts, work)
    return scores


def _time_left(runs: Sequence[Run]) -> str:
    """About how long the trainings that are left will take, from those that are done; empty before the first."""
    unique = {run.folder: run for run in runs}.values()
    spent = [seconds_of(run.note) for run in unique if run.is_trained]
    if not spent:
        return ""
    return (
        f", about {duration(sum(spent) / len(spent) * (len(unique) - len(spent)))} of training left"
    )
