"""One look at every image for the report: its labels of each stage, against truth or against each other."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from tagmask.data.catalog import Catalog
from tagmask.data.images import check_same_size, read_mask
from tagmask.errors import TagmaskError
from tagmask.scoring import choosers, confusion, iou
from tagmask.show.overlay import UNSURE, Mask, check_map
from tagmask.show.report_data import Case, ImageFacts
from tagmask.show.report_gallery import heat_picture, mask_picture, plain_picture
from tagmask.show.seeds import label_at
from tagmask.show.sheet import Picture
from tagmask.stages.predict import FOLDER as PREDICTIONS
from tagmask.stages.predict import read_probabilities
from tagmask.stages.report_files import LABELS, RULE
from tagmask.stages.seeds import FOLDER as SEEDS
from tagmask.stages.seeds import read_seeds, seed_file
from tagmask.training.segmenter import PSEUDO_FOLDER

FOLDERS = {"seeds": SEEDS, "pseudo": PSEUDO_FOLDER, "predictions": PREDICTIONS}
TITLES = {"seeds": "seeds", **LABELS}
MOST = 2000  # images that are looked at for the gallery
FOR_THRESHOLD = 200  # images that a threshold for the seeds is chosen from
SPECK = 0.001  # a class on fewer of an image's pixels does not count as found


@dataclass
class Files:
    """The labels of a run, image by image; what cannot be used is noted with its reason."""

    run: Path
    catalog: Catalog
    threshold: float = 0.5  # of the seeds
    problems: dict[str, str] = field(default_factory=dict)  # name: why

    def path(self, stage: str, i: int) -> Path:
        folder, name = self.run / FOLDERS[stage], self.catalog.name(i)
        return seed_file(folder, name) if stage == "seeds" else folder / f"{name}.png"

    def having(self, stage: str) -> list[int]:
        """The images that a stage has a file of."""
        if not (self.run / FOLDERS[stage]).is_dir():
            return []
        return [i for i in range(len(self.catalog)) if self.path(stage, i).is_file()]

    def labels(self, stage: str, i: int) -> Mask:
        """(H, W) labels; seeds at the threshold."""
        if stage != "seeds":
            return read_mask(self.path(stage, i), len(self.catalog.classes))
        maps, numbers = self.maps(i)
        return label_at(maps, numbers, self.threshold)

    def maps(self, i: int) -> tuple[npt.NDArray[np.float64], list[int]]:
        """Maps with affinity (k, H, W) in [0, 1], and the label of each."""
        seeds = read_seeds(self.path("seeds", i))
        if not len(seeds["classes"]):
            raise TagmaskError(f"{self.path('seeds', i)} holds no map; make it anew with `tagmask seeds`.")
        return check_map(seeds["refined"]), [int(c) + 1 for c in seeds["classes"]]


def choose_threshold(files: Files, indices: list[int]) -> float:
    """The threshold of the seeds by ``RULE``, from some of the images."""
    rule = choosers()[RULE]
    for i in evenly(indices, FOR_THRESHOLD):
        try:
            rule.add(read_seeds(files.path("seeds", i))["refined"])
        except TagmaskError as error:
            files.problems[files.catalog.name(i)] = str(error)
    return rule.result()


def evenly(indices: list[int], most: int) -> list[int]:
    """At most ``most`` of the indices, spread evenly."""
    if len(indices) <= most:
        return indices
    return [indices[place * len(indices) // most] for place in range(most)]


def look_at(files: Files, indices: list[int], last: str, before: str | None, truth: bool) -> list[ImageFacts]:
    """Facts on each image: with truth the IoU of the last stage, without it agreement and confidence."""
    found = []
    for i in tqdm(indices, desc="report", unit="image"):
        try:
            labels = files.labels(last, i)
            values = _against_truth(files, i, labels) if truth else _without_truth(files, i, labels, last, before)
        except TagmaskError as error:
            files.problems[files.catalog.name(i)] = str(error)
            continue
        if values is not None:
            tags = tuple(files.catalog.classes[c] for c in files.catalog.tags(i))
            unsure = float((labels == UNSURE).mean())
            found.append(ImageFacts(i, files.catalog.name(i), tags, unsure=unsure, **values))
    return found


def _against_truth(files: Files, i: int, labels: Mask) -> dict[str, Any] | None:
    """None where the image has no truth."""
    truth = files.catalog.load_mask(i)
    if truth is None:
        return None
    score = _mean_iou(labels, truth, files)
    return None if score is None else {"iou": score}


def _without_truth(files: Files, i: int, labels: Mask, last: str, before: str | None) -> dict[str, Any]:
    earlier = files.labels(before, i) if before and files.path(before, i).is_file() else None
    found, tagged = found_classes(labels), set(files.catalog.tags(i))
    names = files.catalog.classes
    return {
        "agreement": None if earlier is None else _mean_iou(labels, earlier, files),
        "confidence": _confidence(files, i, last),
        "lacking": tuple(names[c] for c in sorted(tagged - found)),
        "extra": tuple(names[c] for c in sorted(found - tagged)) if tagged else (),
    }


def found_classes(labels: Mask) -> set[int]:
    """The classes (from 0) that cover more than a speck of the labels."""
    shares = np.bincount(labels.ravel(), minlength=256) / labels.size
    return {label - 1 for label in np.flatnonzero(shares >= SPECK).tolist() if label not in (0, UNSURE)}


def _mean_iou(labels: Mask, target: Mask, files: Files) -> float | None:
    """Mean over the classes of the image; None where no pixel counts."""
    score = iou(confusion(labels, target, len(files.catalog.classes) + 1)).miou_present
    return None if np.isnan(score) else score


def _confidence(files: Files, i: int, last: str) -> float | None:
    """Mean probability of the chosen class, or how far the maps lie from the threshold (0 on it, 1 at the ends)."""
    stored = files.path(last, i).with_name(f"{Path(files.catalog.name(i)).name}.npz")
    if last == "predictions" and stored.is_file():
        return float(read_probabilities(stored).max(axis=0).mean(dtype=np.float64))
    if not files.path("seeds", i).is_file():
        return None
    maps, _ = files.maps(i)
    top, limit = maps.max(axis=0), files.threshold  # (H, W)
    room = np.where(top > limit, 1 - limit, limit)  # (H, W)
    return float((np.abs(top - limit) / np.maximum(room, 1e-9)).mean())


def make_case(files: Files, facts: ImageFacts, group: str, stages: list[str], truth: bool, told: str) -> Case | None:
    """The row of one image: picture, map, labels of each stage, truth; None where the picture cannot be read."""
    i = facts.index
    try:
        image = files.catalog.load_image(i)
    except TagmaskError as error:
        files.problems[facts.name] = str(error)
        return None
    pictures: list[tuple[str, Picture | None]] = [("image", plain_picture(image))]
    seen: set[int] = set()
    if "seeds" in stages:
        pictures.append(("map", _map_picture(files, i, image)))
    shown = [stage for stage in stages if stage != "seeds" or stages == ["seeds"]]
    masks = {TITLES[stage]: _labels_or_none(files, stage, i) for stage in shown}
    if truth:
        masks["truth"] = files.catalog.load_mask(i)
    for title, mask in masks.items():
        if mask is not None and mask.shape == image.shape[:2]:
            seen |= set(np.unique(mask).tolist())
            pictures.append((title, mask_picture(image, mask)))
        else:
            pictures.append((f"no {title}", None))
    return Case(group, facts.name, told, pictures, frozenset(seen))


def _map_picture(files: Files, i: int, image: Picture) -> Picture | None:
    """The highest map of each pixel over the image; None where there are none of its size."""
    try:
        maps, _ = files.maps(i)
        check_same_size(image, maps[0].astype(np.uint8), files.catalog.name(i))
    except TagmaskError:
        return None
    return heat_picture(image, maps.max(axis=0))


def _labels_or_none(files: Files, stage: str, i: int) -> Mask | None:
    try:
        return files.labels(stage, i)
    except TagmaskError:
        return None
