"""A look at every image of a run: its labels against the truth or against each other.

Some of the images are chosen for the gallery, with pictures of every stage.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tagmask.data.catalog import Catalog
from tagmask.data.images import read_mask
from tagmask.errors import TagmaskError
from tagmask.labels import UNSURE, Mask
from tagmask.layout import label_file, seed_file
from tagmask.progress import track
from tagmask.report.records import FOLDERS, LABELS
from tagmask.scoring import choosers, confusion, iou
from tagmask.show.overlay import check_map
from tagmask.show.seeds import label_at, shown_heat, shown_mask
from tagmask.show.sheet import Picture, resize
from tagmask.stages.predict import read_probabilities
from tagmask.stages.seeds import read_seeds

TITLES = {"seeds": "seeds", **LABELS}
# images that are looked at
MAX_SURVEYED = 2000
# images from which a threshold for the seeds is chosen
MAX_FOR_THRESHOLD = 200
# a class on a smaller share of an image's pixels does not count as found
MIN_SHARE = 0.001
# pixels of the longer side of a picture
LONGEST = 288


@dataclass
class RunLabels:
    """The labels of a run, image by image; unusable files are collected with the reason."""

    run: Path
    catalog: Catalog
    threshold: float = 0.5  # of the seeds
    problems: dict[str, str] = field(default_factory=dict)  # image name: reason

    def path(self, stage: str, i: int) -> Path:
        """Return the file of an image.

        Args:
            stage: A key of ``FOLDERS``.
            i: Index of the image.
        """
        folder = self.run / FOLDERS[stage]
        name = self.catalog.name(i)
        if stage == "seeds":
            return seed_file(folder, name)
        return label_file(folder, name)

    def images_of(self, stage: str) -> list[int]:
        """Return the images that a stage has a file for."""
        if not (self.run / FOLDERS[stage]).is_dir():
            return []
        indices = range(len(self.catalog))
        return [i for i in indices if self.path(stage, i).is_file()]

    def read(self, stage: str, i: int) -> Mask:
        """Return the labels (H, W) of an image; seeds at the threshold.

        Args:
            stage: A key of ``FOLDERS``.
            i: Index of the image.
        """
        if stage != "seeds":
            return read_mask(self.path(stage, i), len(self.catalog.classes))
        maps, numbers = self.maps(i)
        return label_at(maps, numbers, self.threshold)

    def maps(self, i: int) -> tuple[npt.NDArray[np.float64], list[int]]:
        """Return maps with affinity (k, H, W) in [0, 1], and the label of each."""
        file = self.path("seeds", i)
        seeds = read_seeds(file)
        if not len(seeds["classes"]):
            raise TagmaskError(f"{file} holds no map; delete it and run `tagmask seeds` again.")
        labels = [int(c) + 1 for c in seeds["classes"]]
        return check_map(seeds["refined"]), labels

    def choose_threshold(self, indices: Sequence[int], rule_name: str) -> float:
        """Choose the threshold of the seeds, from a sample of the images.

        Args:
            indices: The images that have seeds.
            rule_name: How it is chosen, e.g. "otsu".
        """
        rule = choosers()[rule_name]
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
        """Return a key that sorts the worst image first.

        It is the IoU, or without truth the agreement (where there are two stages) and confidence.
        """
        if self.iou is not None:
            return self.iou, 0.0, self.name
        agreement = 1.0 if self.agreement is None else self.agreement
        confidence = 1.0 if self.confidence is None else self.confidence
        return agreement, confidence, self.name


@dataclass(frozen=True)
class Case:
    """A row of the gallery."""

    facts: ImageFacts
    pictures: Sequence[tuple[str, Picture | None]]  # caption, picture; None if there is none
    labels: frozenset[int] = frozenset()  # that occur in the pictures


@dataclass(frozen=True)
class Survey:
    """The images of the last stage that has labels."""

    truth: bool  # True if there are masks to compare with
    last: str = ""  # the last stage, as shown
    before: str = ""  # the stage before it
    coverage: str = ""  # how many of the images were looked at
    facts: Sequence[ImageFacts] = ()
    cases: Mapping[str, Sequence[Case]] = field(default_factory=dict)  # worst, median, best


def survey(labels: RunLabels, stages: dict[str, list[int]], rows: int) -> Survey:
    """Look at the images of the last stage, and pick some of them for the gallery.

    Args:
        labels: The labels of the run.
        stages: Stage to the indices of its images, in the order of the stages.
        rows: How many images the gallery shows.
    """
    truth = labels.catalog.has_masks
    if not stages:
        return Survey(truth)
    names = list(stages)
    last = names[-1]
    before = names[-2] if len(names) > 1 else None
    indices = evenly(stages[last], MAX_SURVEYED)
    facts = look_at(labels, indices, last, before, truth)
    if truth and not facts:
        # none of these images has a mask
        truth = False
        facts = look_at(labels, indices, last, before, truth)
    total = len(stages[last])
    coverage = f"{total} images"
    if len(facts) < total:
        coverage = f"{len(facts)} of {total} images"
    return Survey(
        truth=truth,
        last=TITLES[last],
        before=TITLES[before] if before else "",
        coverage=coverage,
        facts=facts,
        cases=_cases(labels, facts, names, rows, truth),
    )


def _cases(
    labels: RunLabels, facts: Sequence[ImageFacts], stages: list[str], rows: int, truth: bool
) -> dict[str, list[Case]]:
    """Return the worst, median and best images for the gallery; empty if none can be read."""
    ranked = sorted(facts, key=ImageFacts.rank)
    worst, median, best = pick(len(ranked), rows)
    groups = {"worst": worst, "median": median, "best": best[::-1]}
    cases = {}
    for group, ranks in groups.items():
        made = [make_case(labels, ranked[rank], stages, truth) for rank in ranks]
        cases[group] = [case for case in made if case is not None]
    return cases if any(cases.values()) else {}


def look_at(
    labels: RunLabels, indices: Sequence[int], last: str, before: str | None, truth: bool
) -> list[ImageFacts]:
    """Return facts on each image: with truth the IoU, without it agreement and confidence.

    Args:
        labels: The labels of the run; files that cannot be used are added to its problems.
        indices: The images.
        last: The stage whose labels are compared.
        before: The stage before it; None if there is none.
        truth: True if there are masks to compare with; an image without a mask is left out.
    """
    catalog = labels.catalog
    facts = []
    for i in track(indices, "report", len(indices)):
        try:
            mask = labels.read(last, i)
            values = _compared(labels, i, mask, last, before, truth)
        except TagmaskError as error:
            labels.problems[catalog.name(i)] = str(error)
            continue
        if truth and values["iou"] is None:
            continue
        tags = tuple(catalog.classes[c] for c in catalog.tags(i))
        unsure = float((mask == UNSURE).mean())
        name = catalog.name(i)
        facts.append(ImageFacts(i, name, tags, unsure=unsure, **values))
    return facts


def _compared(
    labels: RunLabels, i: int, mask: Mask, last: str, before: str | None, truth: bool
) -> dict[str, Any]:
    """Compare a mask with the truth, or without it with the stage before, the maps and the tags."""
    catalog = labels.catalog
    if truth:
        return {"iou": _mean_iou(mask, catalog.load_mask(i), labels)}
    earlier = None
    if before and labels.path(before, i).is_file():
        earlier = labels.read(before, i)
    found = classes_in(mask)
    tagged = set(catalog.tags(i))
    names = catalog.classes
    missing = [names[c] for c in sorted(tagged - found)]
    extra = []
    # without tags nothing is known about what should not be there
    if tagged:
        extra = [names[c] for c in sorted(found - tagged)]
    return {
        "agreement": _mean_iou(mask, earlier, labels),
        "confidence": _confidence(labels, i, last),
        "missing": tuple(missing),
        "extra": tuple(extra),
    }


def classes_in(mask: Mask) -> set[int]:
    """Return the classes (from 0) that cover at least ``MIN_SHARE`` of the mask."""
    shares = np.bincount(mask.ravel(), minlength=256) / mask.size  # (256,)
    labels = set(np.flatnonzero(shares >= MIN_SHARE).tolist())
    return {label - 1 for label in labels - {0, UNSURE}}


def _mean_iou(mask: Mask, target: Mask | None, labels: RunLabels) -> float | None:
    """Return the mean IoU over the classes of an image; None without a pixel to compare with."""
    if target is None:
        return None
    counts = confusion(mask, target, len(labels.catalog.classes) + 1)
    score = iou(counts).miou_present
    return None if np.isnan(score) else score


def _confidence(labels: RunLabels, i: int, last: str) -> float | None:
    """Return how certain the labels of an image are, from 0 to 1; None if it is not known.

    This is the mean probability of the chosen class, or without probabilities how far the maps lie
    from the threshold (0 on it, 1 at the ends).
    """
    name = Path(labels.catalog.name(i)).name
    probabilities = labels.path(last, i).with_name(f"{name}.npz")
    if last == "predictions" and probabilities.is_file():
        chosen = read_probabilities(probabilities).max(axis=0)  # (H, W)
        return float(chosen.mean(dtype=np.float64))
    if not labels.path("seeds", i).is_file():
        return None
    maps, _ = labels.maps(i)
    limit = labels.threshold
    top = maps.max(axis=0)  # (H, W)
    room = np.where(top > limit, 1 - limit, limit)  # (H, W)
    distances = np.abs(top - limit) / np.maximum(room, 1e-9)  # (H, W)
    return float(distances.mean())


def make_case(labels: RunLabels, facts: ImageFacts, stages: list[str], truth: bool) -> Case | None:
    """Return the row of one image: picture, map, labels of each stage, truth.

    Args:
        labels: The labels of the run.
        facts: What is known about the image.
        stages: The stages that are shown, keys of ``FOLDERS``.
        truth: True if the true mask is shown too.

    Returns:
        The row; None if the picture cannot be read.
    """
    i = facts.index
    try:
        image = labels.catalog.load_image(i)
    except TagmaskError as error:
        labels.problems[facts.name] = str(error)
        return None
    size = fitted(*image.shape[:2])
    pictures: list[tuple[str, Picture | None]] = [("image", resize(image, size))]
    if "seeds" in stages:
        heat = None
        # the map may be damaged or not of the image's size
        with suppress(TagmaskError):
            maps, _ = labels.maps(i)
            heat = shown_heat(image, maps.max(axis=0), size)
        pictures.append(("map", heat))
    # maps are shown as a mask only if there is nothing else
    masks = [stage for stage in stages if stage != "seeds" or len(stages) == 1]
    if truth:
        masks.append("truth")
    shown: set[int] = set()
    for stage in masks:
        title = TITLES.get(stage, stage)
        pictures.append((f"no {title}", None))
        # the mask may be missing, damaged or not of the image's size
        with suppress(TagmaskError):
            if stage == "truth":
                mask = labels.catalog.load_mask(i)
            else:
                mask = labels.read(stage, i)
            if mask is not None:
                pictures[-1] = (title, shown_mask(image, mask, size))
                shown |= set(np.unique(mask).tolist())
    return Case(facts, pictures, frozenset(shown))


def evenly(indices: Sequence[int], most: int) -> list[int]:
    """Return some of the indices, evenly spread.

    Args:
        indices: The indices.
        most: At most so many are returned.
    """
    total = len(indices)
    count = min(most, total)
    return [indices[number * total // count] for number in range(count)]


def pick(count: int, rows: int) -> tuple[range, range, range]:
    """Choose the first, the middle and the last of ranked images, none of them twice.

    Args:
        count: How many images are ranked.
        rows: At most so many are chosen in all.

    Returns:
        The ranks of the first, of the middle and of the last ones.
    """
    rows = min(rows, count)
    first = -(-rows // 3)
    middle = (rows + 1) // 3
    last = rows - first - middle
    start = first + (count - first - last - middle) // 2
    return (
        range(first),
        range(start, start + middle),
        range(count - last, count),
    )


def fitted(height: int, width: int) -> tuple[int, int]:
    """Return height and width on the page: large pictures reduced, small ones enlarged.

    They are enlarged by a whole number.

    Args:
        height: Height of the picture in pixels.
        width: Width of the picture in pixels.
    """
    longest = max(height, width)
    if longest <= LONGEST:
        times = LONGEST // longest
        return height * times, width * times
    return (
        max(1, round(height * LONGEST / longest)),
        max(1, round(width * LONGEST / longest)),
    )
