"""A look at every image of a run: its labels against the truth or against each other, and pictures for the gallery."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from tagmask.data.catalog import Catalog
from tagmask.data.images import read_mask
from tagmask.errors import TagmaskError
from tagmask.labels import UNSURE, Mask
from tagmask.pipeline.layout import label_file, seed_file
from tagmask.report.records import FOLDERS, LABELS, RULE
from tagmask.scoring import choosers, confusion, iou
from tagmask.show.overlay import check_map
from tagmask.show.seeds import label_at, shown_heat, shown_mask
from tagmask.show.sheet import Picture, resize
from tagmask.stages.predict import read_probabilities
from tagmask.stages.seeds import read_seeds

TITLES = {"seeds": "seeds", **LABELS}
MAX_SURVEYED = 2000  # images that are looked at
MAX_FOR_THRESHOLD = 200  # images from which a threshold for the seeds is chosen
MIN_SHARE = 0.001  # a class on a smaller share of an image's pixels does not count as found
LONGEST = 288  # pixels of the longer side of a picture


@dataclass
class RunLabels:
    """The labels of a run, image by image; files that cannot be used are collected with the reason."""

    run: Path
    catalog: Catalog
    threshold: float = 0.5  # of the seeds
    problems: dict[str, str] = field(default_factory=dict)  # image name: reason

    def path(self, stage: str, i: int) -> Path:
        folder, name = self.run / FOLDERS[stage], self.catalog.name(i)
        return seed_file(folder, name) if stage == "seeds" else label_file(folder, name)

    def images_of(self, stage: str) -> list[int]:
        """The images that a stage has a file for."""
        if not (self.run / FOLDERS[stage]).is_dir():
            return []
        return [i for i in range(len(self.catalog)) if self.path(stage, i).is_file()]

    def read(self, stage: str, i: int) -> Mask:
        """(H, W) labels; seeds at the threshold."""
        if stage != "seeds":
            return read_mask(self.path(stage, i), len(self.catalog.classes))
        maps, numbers = self.maps(i)
        return label_at(maps, numbers, self.threshold)

    def maps(self, i: int) -> tuple[npt.NDArray[np.float64], list[int]]:
        """Maps with affinity (k, H, W) in [0, 1], and the label of each."""
        seeds = read_seeds(self.path("seeds", i))
        if not len(seeds["classes"]):
            raise TagmaskError(
                f"{self.path('seeds', i)} holds no map; delete it and run `tagmask seeds` again."
            )
        return check_map(seeds["refined"]), [int(c) + 1 for c in seeds["classes"]]

    def choose_threshold(self, indices: Sequence[int]) -> float:
        """The threshold of the seeds by ``RULE``, from a sample of the images."""
        rule = choosers()[RULE]
        for i in evenly(indices, MAX_FOR_THRESHOLD):
            try:
                rule.add(read_seeds(self.path("seeds", i))["refined"])
            except TagmaskError as error:
                self.problems[self.catalog.name(i)] = str(error)
        return rule.result()


@dataclass(frozen=True)
class ImageFacts:
    """What is known about one image; fractions, None if unknown."""

    index: int
    name: str
    tags: tuple[str, ...]
    iou: float | None = None  # last stage against truth, mean over the classes of the image
    agreement: float | None = None  # last stage against the one before, likewise
    confidence: float | None = None
    unsure: float | None = None  # share of pixels that the last stage leaves open
    missing: tuple[str, ...] = ()  # classes that are tagged and not in the labels
    extra: tuple[str, ...] = ()  # classes that are in the labels and not tagged

    def rank(self) -> tuple[float, float, str]:
        """Sorts the worst first: by IoU, or without truth by agreement (where there are two stages) and confidence."""
        values = (self.agreement, self.confidence) if self.iou is None else (self.iou, 0.0)
        first, second = (1.0 if value is None else value for value in values)
        return first, second, self.name


@dataclass(frozen=True)
class Case:
    """A row of the gallery."""

    facts: ImageFacts
    pictures: Sequence[tuple[str, Picture | None]]  # caption, picture; None if there is none
    labels: frozenset[int] = frozenset()  # that occur in the pictures


@dataclass(frozen=True)
class Survey:
    """The images of the last stage that has labels."""

    truth: bool  # whether there are masks to compare with
    last: str = ""  # the last stage, as shown
    before: str = ""  # the stage before it
    coverage: str = ""  # how many of the images were looked at
    facts: Sequence[ImageFacts] = ()
    cases: Mapping[str, Sequence[Case]] = field(default_factory=dict)  # worst, median, best


def survey(labels: RunLabels, stages: dict[str, list[int]], rows: int) -> Survey:
    """Look at the images of the last stage and pick ``rows`` of them. stages: {stage: indices of its images}."""
    truth = labels.catalog.has_masks
    if not stages:
        return Survey(truth)
    last, before = [*stages][-1], [None, *stages][-2]
    indices = evenly(stages[last], MAX_SURVEYED)
    facts = look_at(labels, indices, last, before, truth)
    if truth and not facts:  # none of these images has a mask
        truth, facts = False, look_at(labels, indices, last, before, False)
    total = f" of {len(stages[last])}" if len(facts) < len(stages[last]) else ""
    coverage = f"{len(facts)}{total} images"
    ranked = sorted(facts, key=ImageFacts.rank)
    worst, median, best = pick(len(ranked), rows)
    cases = {}
    for group, places in {"worst": worst, "median": median, "best": best[::-1]}.items():
        made = [make_case(labels, ranked[place], [*stages], truth) for place in places]
        cases[group] = [case for case in made if case is not None]
    cases = cases if any(cases.values()) else {}
    return Survey(truth, TITLES[last], TITLES[before] if before else "", coverage, facts, cases)


def look_at(
    labels: RunLabels, indices: Sequence[int], last: str, before: str | None, truth: bool
) -> list[ImageFacts]:
    """Facts on each image: with truth the IoU of the last stage, without it agreement and confidence."""
    facts, catalog = [], labels.catalog
    for i in tqdm(indices, desc="report", unit="image"):
        try:
            mask = labels.read(last, i)
            values = _compared(labels, i, mask, last, before, truth)
        except TagmaskError as error:
            labels.problems[catalog.name(i)] = str(error)
            continue
        if not truth or values["iou"] is not None:
            tags = tuple(catalog.classes[c] for c in catalog.tags(i))
            facts.append(
                ImageFacts(
                    i, catalog.name(i), tags, unsure=float((mask == UNSURE).mean()), **values
                )
            )
    return facts


def _compared(
    labels: RunLabels, i: int, mask: Mask, last: str, before: str | None, truth: bool
) -> dict[str, Any]:
    """The mask against the truth, or without it against the stage before, the maps and the tags."""
    if truth:
        return {"iou": _mean_iou(mask, labels.catalog.load_mask(i), labels)}
    earlier = labels.read(before, i) if before and labels.path(before, i).is_file() else None
    classes, tagged, names = classes_in(mask), set(labels.catalog.tags(i)), labels.catalog.classes
    return {
        "agreement": _mean_iou(mask, earlier, labels),
        "confidence": _confidence(labels, i, last),
        "missing": tuple(names[c] for c in sorted(tagged - classes)),
        "extra": tuple(names[c] for c in sorted(classes - tagged)) if tagged else (),
    }


def classes_in(mask: Mask) -> set[int]:
    """The classes (from 0) that cover at least MIN_SHARE of the mask."""
    shares = np.bincount(mask.ravel(), minlength=256) / mask.size
    return {
        label - 1
        for label in np.flatnonzero(shares >= MIN_SHARE).tolist()
        if label not in (0, UNSURE)
    }


def _mean_iou(mask: Mask, target: Mask | None, labels: RunLabels) -> float | None:
    """Mean over the classes of the image; None without a target or a pixel that counts."""
    if target is None:
        return None
    score = iou(confusion(mask, target, len(labels.catalog.classes) + 1)).miou_present
    return None if np.isnan(score) else score


def _confidence(labels: RunLabels, i: int, last: str) -> float | None:
    """Mean probability of the chosen class, or how far the maps lie from the threshold (0 on it, 1 at the ends)."""
    probabilities = labels.path(last, i).with_name(f"{Path(labels.catalog.name(i)).name}.npz")
    if last == "predictions" and probabilities.is_file():
        return float(read_probabilities(probabilities).max(axis=0).mean(dtype=np.float64))
    if not labels.path("seeds", i).is_file():
        return None
    maps, _ = labels.maps(i)
    top, limit = maps.max(axis=0), labels.threshold  # (H, W)
    room = np.where(top > limit, 1 - limit, limit)  # (H, W)
    return float((np.abs(top - limit) / np.maximum(room, 1e-9)).mean())


def make_case(labels: RunLabels, facts: ImageFacts, stages: list[str], truth: bool) -> Case | None:
    """The row of one image: picture, map, labels of each stage, truth; None if the picture cannot be read."""
    i = facts.index
    try:
        image = labels.catalog.load_image(i)
    except TagmaskError as error:
        labels.problems[facts.name] = str(error)
        return None
    size = fitted(*image.shape[:2])
    pictures: list[tuple[str, Picture | None]] = [("image", resize(image, size))]
    if "seeds" in stages:
        pictures.append(("map", None))
        with suppress(TagmaskError):  # the map is damaged or not of the image's size
            pictures[-1] = ("map", shown_heat(image, labels.maps(i)[0].max(axis=0), size))
    shown: set[int] = set()
    masks = [stage for stage in stages if stage != "seeds" or len(stages) == 1] + (
        ["truth"] if truth else []
    )
    for stage in masks:
        title = TITLES.get(stage, stage)
        pictures.append((f"no {title}", None))
        with suppress(TagmaskError):  # the mask is missing, damaged or not of the image's size
            mask = labels.catalog.load_mask(i) if stage == "truth" else labels.read(stage, i)
            if mask is not None:
                pictures[-1] = (title, shown_mask(image, mask, size))
                shown |= set(np.unique(mask).tolist())
    return Case(facts, pictures, frozenset(shown))


def evenly(indices: Sequence[int], most: int) -> list[int]:
    """At most ``most`` of the indices, evenly spread."""
    count = min(most, len(indices))
    return [indices[place * len(indices) // count] for place in range(count)]


def pick(count: int, rows: int) -> tuple[range, range, range]:
    """Of ``count`` ranked images the places of the first, the middle and the last; at most ``rows``, none twice."""
    rows = min(rows, count)
    first, middle = -(-rows // 3), (rows + 1) // 3
    last = rows - first - middle
    start = first + (count - first - last - middle) // 2
    return range(first), range(start, start + middle), range(count - last, count)


def fitted(height: int, width: int) -> tuple[int, int]:
    """(height, width) on the page: large pictures reduced, small ones enlarged by a whole number."""
    longest = max(height, width)
    times, part = (LONGEST, longest) if longest > LONGEST else (LONGEST // longest, 1)
    return max(1, round(height * times / part)), max(1, round(width * times / part))
