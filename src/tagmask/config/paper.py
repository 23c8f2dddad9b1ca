"""Settings of the paper's tables and figures: data, what to score, a section for each stage."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tagmask import layout
from tagmask.config.base import DataSettings, ShardSettings, flag
from tagmask.config.limits import Count, Seed
from tagmask.config.pseudo import PseudoSettings
from tagmask.config.run import RunSettings, Staged, write_config
from tagmask.config.segment import SegmentSettings
from tagmask.config.toml import to_plain, write_sections
from tagmask.config.train import TrainSettings

BELONGS = {  # setting of the images that are scored: the kinds of data that have it
    "score_split": ("voc",),
    "score_images": ("folder", "coco"),
    "score_tags": ("folder",),
    "score_masks": ("folder",),
    "score_annotations": ("coco",),
    "score_count": ("scenes",),
    "score_scene_seed": ("scenes",),
}
SCENES_SCORED = 200
PREDICTING = ("compare-coco", "compare-voc", "per-class", "segmentation", "examples")
"""Tables and figures of predicted masks, which the paper makes of val:
images that were not trained on."""


@dataclass(frozen=True, kw_only=True)
class PaperTop(ShardSettings, DataSettings):
    """What is set once for a table; the [paper] section of its TOML file."""

    section = "paper"
    basic = "random_seeds only rows pictures masks count score_split score_count scores shard"
    table: str
    """The table or figure; `--table` may be left out if it comes first.
    `tagmask paper --list` names them."""
    out: Path
    """Folder of the tables; trainings are shared by all tables in it."""
    random_seeds: Count = 1
    """How many times each row is trained, each time with another seed."""
    only: tuple[str, ...] = ()
    """Also report the mean over the background and these classes, e.g. dog person."""
    rows: tuple[str, ...] = ()
    """ablation, methods, backbones, augmentations, distances: these rows alone, e.g. none both;
    default: all."""
    pictures: Count = 4
    """Images in a figure."""
    scores: Path | None = None
    """compare-coco, compare-seeds, compare-voc, per-class: scores.json of a finished run,
    instead of training one."""
    mct_recipe: bool = False
    """backbones, maps, computation: train MCTformer with its own recipe (that of the
    preset voc-mct-paper) instead of ACR's, and on DeiT-S in the place of ViT-hybrid-B."""
    keep_maps: bool = False
    """Keep the maps of every image once they are scored; they may take gigabytes."""
    score_split: str | None = None
    """voc: the list whose images are scored; default: val for predicted masks, otherwise
    --split; train, as in the paper, where that is train_aug. Pseudo labels exist of images
    trained on only: this may name a part of them, and the next ones do not matter."""
    score_images: Path | None = None
    """folder, coco: the images that are scored; default: those trained on.
    So for the next three."""
    score_tags: Path | None = None
    score_masks: Path | None = None
    score_annotations: Path | None = None
    score_count: Count | None = None
    """scenes: how many pictures are scored; default: 200."""
    score_scene_seed: Seed | None = None
    """scenes: seed of the pictures that are scored;
    default: one more than --scene-seed, so none was trained on."""

    def score_data(self) -> dict[str, Any]:
        """Return the data settings of the images that are scored."""
        values = self.data_settings()
        if self.data == "voc" and self.table in PREDICTING:
            values["split"] = "val"
        elif self.data == "voc" and self.split == "train_aug":
            values["split"] = "train"
        elif self.data == "scenes":
            values |= {"count": SCENES_SCORED, "scene_seed": self.scene_seed + 1}
        given = {
            name.removeprefix("score_"): value
            for name in BELONGS
            if (value := getattr(self, name)) is not None
        }
        return values | given


@dataclass(frozen=True, kw_only=True)
class PaperSettings(Staged, PaperTop):
    """One table or figure of the paper; stages write into folders of the cache."""

    def _mistakes(self) -> Iterator[str]:
        told = self.run(self.out).mistakes()
        told += [mistake for mistake in super()._mistakes() if mistake not in told]
        yield from told
        for name, kinds in BELONGS.items():
            if getattr(self, name) is not None and self.data not in kinds:
                yield f"--{flag(name)} belongs to --data {' or '.join(kinds)}; leave it out."
        if self.scores is not None and not self.scores.exists():
            yield f"--scores {self.scores} does not exist; check the path."
        scored = DataSettings(**self.score_data()).data_mistakes()
        yield from (
            mistake.replace("--", "--score-", 1) for mistake in scored if mistake not in told
        )

    def run(
        self, out: Path, place: int = 0, changes: Mapping[str, Any] | None = None
    ) -> RunSettings:
        """Return the settings of one run of the table.

        Args:
            out: Its folder.
            place: Which random seed, counted from 0.
            changes: Settings of the training that are changed; default: none.
        """
        train = self.of(TrainSettings)
        pseudo = self.of(PseudoSettings)
        segment = self.of(SegmentSettings)
        affinity = dataclasses.replace(pseudo.affinity, seed=pseudo.affinity.seed + place)
        run = RunSettings(
            out=out,
            tokens=self.out / layout.TOKENS,
            stages=self.stages,
            **self.data_settings(),
        )
        return run.with_stages(
            dataclasses.replace(train, **{"seed": train.seed + place, **(changes or {})}),
            dataclasses.replace(pseudo, affinity=affinity),
            dataclasses.replace(segment, seed=segment.seed + place),
        )


def write_paper_config(path: Path, settings: PaperSettings) -> None:
    """Write every setting of a table, as `tagmask paper --config` reads them.

    Args:
        path: The TOML file.
        settings: Those of the table.
    """
    top = {field.name: getattr(settings, field.name) for field in dataclasses.fields(PaperTop)}
    write_sections(path, {"paper": to_plain(PaperTop(**top))})
    write_config(dataclasses.replace(settings.run(settings.out), tokens=None), path)
