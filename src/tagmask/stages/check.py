"""The self-check of a run: whether the masks of each tag can be believed, without true masks.

It reads maps, labels and masks of some photos, looks for signs of trouble, and writes a verdict
for each tag into check.json. What the signs are is told in ``tagmask.inference.selfcheck``.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from tagmask import layout
from tagmask.config import CheckSettings, TrainSettings
from tagmask.data.catalog import Catalog
from tagmask.data.images import read_mask
from tagmask.errors import ImageError, TagmaskError
from tagmask.features.cache import TokenStore
from tagmask.files import is_a, read_object, write_json
from tagmask.inference.objectness import Grid, fit_where
from tagmask.inference.selfcheck import (
    FILLED,
    FOUND,
    Signs,
    Verdict,
    border_ratio,
    judge,
    overlap,
    verdict_lines,
)
from tagmask.labels import UNSURE, Mask
from tagmask.layout import label_file, seed_file
from tagmask.models.device import on_device
from tagmask.models.head import HeadSegmenter
from tagmask.models.kinds import load_segmenter
from tagmask.runs.images import split_tags
from tagmask.runs.run import Run
from tagmask.stages.seeds import as_float, read_seeds

MOST_PHOTOS = 200  # that are looked at, evenly spaced
MOST_FOR_OBJECTS = 80  # of them, whose tokens are compared
OBJECTNESS = ("border", "component")  # what masks are compared with
MOST_GIGABYTES = 0.2  # of tokens that this stage may add


@dataclass(frozen=True)
class Company:
    """How often a tag is seen with others, over all photos."""

    alone: float | None  # share of its photos without another tag that competes; None without any
    is_everywhere: bool  # every photo that has tags has this one


@dataclass
class Tally:
    """What was seen of one tag so far."""

    photos: int = 0
    borders: list[float] = field(default_factory=list)
    agreements: list[float] = field(default_factory=list)
    shared: int = 0  # pixels with this label in both label and mask
    either: int = 0  # pixels with it in at least one of them
    masks: int = 0  # photos with a mask
    empty: int = 0
    full: int = 0

    def signs(self, learned: float | None, company: Company) -> Signs:
        """Return the signs.

        Args:
            learned: how far the tag was learned, from the training stage.
            company: which tags it is seen with.
        """
        return Signs(
            photos=self.photos,
            border_ratio=_mean(self.borders),
            agreement=_mean(self.agreements),
            stability=self.shared / self.either if self.either else None,
            empty=self.empty / self.masks if self.masks else None,
            full=self.full / self.masks if self.masks else None,
            learned=learned,
            alone=company.alone,
            is_everywhere=company.is_everywhere,
        )


@dataclass
class Checked:
    """The verdicts on a run."""

    out: Path
    verdicts: list[Verdict]

    def summary(self) -> str:
        """Say which tags can be believed, the worst first, and what to do about the others."""
        rows = [verdict.to_json() | {"tag": verdict.tag} for verdict in self.verdicts]
        return "\n".join(verdict_lines(rows))


def check_run(run: Run, settings: CheckSettings) -> Checked:
    """Look at what the run has made, and write check.json.

    Args:
        run: the run.
        settings: those of the stage.
    """
    catalog = run.catalog
    count = min(MOST_PHOTOS, len(catalog))
    places = np.linspace(0, len(catalog) - 1, count).astype(int)
    chosen = np.unique(places).tolist()
    tallies = [Tally() for _ in catalog.classes]
    masks: dict[int, Mask] = {}
    for i in chosen:
        mask = _look(run.out, catalog, i, tallies)
        if mask is not None:
            masks[i] = mask
    _compare_with_objects(run.out, catalog, masks, tallies)
    learned = _learned(run.out / layout.CLASSIFIER / layout.TAGS)
    stuff = split_tags(run.settings.of(TrainSettings).stuff, "--stuff") or []
    companies = company_of_tags(catalog, stuff)
    verdicts = []
    for name, tally, company in zip(catalog.classes, tallies, companies, strict=True):
        if tally.photos:
            verdicts.append(judge(name, tally.signs(learned.get(name), company)))
    rows = {verdict.tag: verdict.to_json() for verdict in verdicts}
    write_json(run.out / layout.CHECK, {"photos": len(chosen), "tags": rows})
    return Checked(run.out, verdicts)


def company_of_tags(catalog: Catalog, stuff: Sequence[str]) -> list[Company]:
    """Return how often each tag is seen with others.

    Objects compete for what stands out and stuff for the rest, so a dog on grass is alone.

    Args:
        catalog: all photos.
        stuff: names of the tags that are no objects.
    """
    photos = [0] * len(catalog.classes)
    alone = [0] * len(catalog.classes)
    is_stuff = [name in stuff for name in catalog.classes]
    tagged = 0
    for i in range(len(catalog)):
        tags = catalog.tags(i)
        tagged += bool(tags)
        things = sum(not is_stuff[tag] for tag in tags)
        for tag in tags:
            rivals = len(tags) - things if is_stuff[tag] else things
            photos[tag] += 1
            alone[tag] += rivals == 1
    companies = []
    for count, single in zip(photos, alone, strict=True):
        companies.append(Company(single / count if count else None, count == tagged))
    return companies


def _look(out: Path, catalog: Catalog, i: int, tallies: list[Tally]) -> Mask | None:
    """Add what the stages have made of item ``i``; returns its mask, if there is one."""
    name = catalog.name(i)
    tags = catalog.tags(i)
    maps = _maps(out, name, len(catalog.classes))
    label = _mask(label_file(out / layout.PSEUDO, name), len(catalog.classes))
    mask = _mask(label_file(out / layout.PREDICTIONS, name), len(catalog.classes))
    for tag in tags:
        tally = tallies[tag]
        tally.photos += 1
        if tag in maps:
            tally.borders.append(border_ratio(maps[tag]))
        if mask is None:
            continue
        found = mask == tag + 1
        share = float(found.mean())
        tally.masks += 1
        tally.empty += share < FOUND
        tally.full += share > FILLED
        if label is not None and label.shape == mask.shape:
            labelled = (label == tag + 1) & (label != UNSURE)
            tally.shared += int((labelled & found).sum())
            tally.either += int(((labelled | found) & (label != UNSURE)).sum())
    return mask


def _maps(out: Path, name: str, classes: int) -> dict[int, Any]:
    """Return the maps of a photo by class; none if they are missing or damaged."""
    try:
        seeds = read_seeds(seed_file(out / layout.SEEDS, name))
    except TagmaskError:
        return {}
    numbers = seeds["classes"].tolist()
    values = as_float(seeds["refined"])
    return {c: values[k] for k, c in enumerate(numbers) if 0 <= c < classes}


def _mask(file: Path, classes: int) -> Mask | None:
    """Return a mask; None if it is missing or damaged."""
    try:
        return read_mask(file, classes) if file.is_file() else None
    except TagmaskError:
        return None


def _compare_with_objects(
    out: Path, catalog: Catalog, masks: Mapping[int, Mask], tallies: list[Tally]
) -> None:
    """Compare masks with what stands out in the photos, where tokens are kept.

    Of the objectness methods the one counts that agrees best, because each is misled by other
    backgrounds.
    """
    folder = out / layout.SEGMENTER
    if not masks or not (folder / layout.MODEL).is_file():
        return
    model = load_segmenter(folder)
    if not isinstance(model, HeadSegmenter):
        return
    model = on_device(model)
    store = TokenStore.features_of(model.classifier, model.blocks, model.size, out, MOST_GIGABYTES)
    every = math.ceil(len(masks) / MOST_FOR_OBJECTS)
    chosen = list(masks)[::every]
    cells: list[torch.Tensor] = []
    grids: list[Grid] = []
    seen: list[int] = []
    for i in chosen:
        try:
            tokens = store.get(catalog, i)
        except ImageError:
            continue
        cells.append(model.standardise(tokens.values[0]))
        grids.append(tokens.grid)
        seen.append(i)
    if not cells:
        return
    covered = [_covered(masks[i], grid) for i, grid in zip(seen, grids, strict=True)]
    best: list[float] = []
    for method in OBJECTNESS:
        try:
            where = fit_where(cells, grids, method)
        except TagmaskError:  # nothing stands out
            continue
        agreements = []
        for tokens_of, mask in zip(cells, covered, strict=True):
            stands_out = (where.probability(tokens_of) > 0.5).reshape(mask.shape).cpu().numpy()
            agreements.append(overlap(mask, stands_out))
        if not best or sum(agreements) > sum(best):
            best = agreements
    # nothing may have stood out: then there is no agreement
    for i, agreement in zip(seen, best, strict=False):
        for tag in catalog.tags(i):
            tallies[tag].agreements.append(agreement)


def _covered(mask: Mask, grid: Grid) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    """Return which cells of a grid are mostly foreground."""
    foreground = torch.from_numpy(((mask > 0) & (mask != UNSURE)).astype(np.float32))
    share = F.interpolate(foreground[None, None], grid, mode="area")[0, 0]
    covered: np.ndarray[Any, np.dtype[np.bool_]] = (share > 0.5).numpy()
    return covered


def _learned(file: Path) -> dict[str, float]:
    """Return how far each tag was learned, as the training stage found; nothing if it did not."""
    if not file.is_file():
        return {}
    forms = {"tag": str, "by_chance": (int, float), "average_precision": (int, float)}
    learned = {}
    for row in read_object(file, tags=list)["tags"]:
        is_whole = isinstance(row, dict) and all(
            is_a(row.get(name), form) for name, form in forms.items()
        )
        if not is_whole:
            raise TagmaskError(f"{file} is damaged; delete {file.parent} and run the stage again.")
        if row["by_chance"] < 1:
            above = (row["average_precision"] - row["by_chance"]) / (1 - row["by_chance"])
            learned[row["tag"]] = max(0.0, above)
    return learned


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
