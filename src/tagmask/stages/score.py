"""Scores of seeds: the whole threshold curve in one reading, and thresholds chosen without ground truth."""

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from tagmask.config import ScoreSettings, check
from tagmask.data.catalog import Catalog
from tagmask.data.open import open_catalog
from tagmask.errors import ImageError, TagmaskError
from tagmask.files import read_json, write_json
from tagmask.scoring import Curve, Sweep, choosers
from tagmask.stages.pool import pool
from tagmask.stages.seeds import FOLDER, read_seeds, seed_file

KINDS = ("plain", "refined")  # maps without and with affinity
TITLES = {"plain": "without affinity", "refined": "with affinity"}


@dataclass
class Tally:
    """Counts over some images; those of several processes can be added."""

    sweeps: dict[str, Sweep]
    choosers: dict[str, dict[str, Any]]  # kind: rule: Chooser
    missing: dict[str, str] = field(default_factory=dict)  # name: why it was left out
    images: int = 0

    @classmethod
    def empty(cls, classes: int) -> "Tally":
        return cls({kind: Sweep(classes + 1) for kind in KINDS}, {kind: choosers() for kind in KINDS})

    def add(self, classes: Any, maps: dict[str, Any], mask: Any) -> None:
        for kind in KINDS:
            self.sweeps[kind].add(classes, maps[kind], mask)
            for rule in self.choosers[kind].values():
                rule.add(maps[kind])
        self.images += 1

    def merge(self, other: "Tally") -> None:
        for kind in KINDS:
            self.sweeps[kind].merge(other.sweeps[kind])
            for name, rule in self.choosers[kind].items():
                rule.merge(other.choosers[kind][name])
        self.missing |= other.missing
        self.images += other.images


@dataclass
class SeedScores:
    """Curves and chosen thresholds of the two kinds of maps."""

    classes: tuple[str, ...]
    curves: dict[str, Curve]
    chosen: dict[str, dict[str, float]]  # kind: rule: threshold
    missing: dict[str, str]
    images: int

    def table(self) -> str:
        """One line per kind of maps and way to choose the threshold."""
        head = f"{'maps':26} {'threshold':>22} {'mIoU':>6} {'FP':>6} {'FN':>6}"
        lines = [head, "-" * len(head)]
        for kind in KINDS:
            curve = self.curves[kind]
            for rule, threshold in {"oracle": curve.best_threshold, **self.chosen[kind]}.items():
                scores = curve.at(threshold)
                told = f"{rule} {threshold:.2f}"
                numbers = " ".join(f"{100 * v:6.1f}" for v in (scores.miou_present, scores.fp, scores.fn))
                lines.append(f"{TITLES[kind]:26} {told:>22} {numbers}")
        best = self.curves["refined"].best
        if abs(best.miou_all - best.miou_present) > 5e-4:
            lines.append(
                f"with absent classes counted as 0, the refined maps' oracle mIoU is {100 * best.miou_all:.1f}."
            )
        lines.append("oracle: tuned on the masks; the other thresholds are chosen without them.")
        return "\n".join(lines)

    def summary(self, out: Path) -> str:
        """The table, what was left out, and where the files are."""
        lines = [f"{self.images} images scored", self.table(), *self.left_out()]
        return "\n".join([*lines, f"scores: {out / 'scores.json'}, curve: {out / 'scores.png'}"])

    def left_out(self) -> list[str]:
        """How many images could not be scored, and why the first of them."""
        shown = [f"  {why}" for why in list(self.missing.values())[:5]]
        return [f"{len(self.missing)} images were left out:", *shown] if shown else []

    def to_json(self) -> dict[str, Any]:
        """Everything, for scores.json; nan is written as null."""
        return {"images": self.images, **{kind: self._kind_to_json(kind) for kind in KINDS}}

    def _kind_to_json(self, kind: str) -> dict[str, Any]:
        curve = self.curves[kind]
        names = ("background", *self.classes)
        rows = {"oracle": curve.best_threshold, **self.chosen[kind]}
        return {
            "thresholds": {
                rule: {
                    "threshold": threshold,
                    "miou_present": _number(curve.at(threshold).miou_present),
                    "miou_all": _number(curve.at(threshold).miou_all),
                    "fp": _number(curve.at(threshold).fp),
                    "fn": _number(curve.at(threshold).fn),
                    "iou": dict(zip(names, map(_number, curve.at(threshold).class_iou), strict=True)),
                }
                for rule, threshold in rows.items()
            },
            "curve": {name: [_number(v) for v in getattr(curve, name)] for name in ("miou_present", "fp", "fn")},
        }


def _number(value: Any) -> float | None:
    return None if np.isnan(value) else round(float(value), 6)


def score_seeds(settings: ScoreSettings) -> SeedScores:
    """Read every seed file and mask once; write scores.json and the curve."""
    check(settings)
    catalog = open_catalog(settings)
    if not catalog.has_masks:
        raise TagmaskError("these data have no masks to compare with; give --masks, or another --data.")
    folder = settings.out / FOLDER
    if not folder.is_dir():
        raise TagmaskError(f"{folder} does not exist; run `tagmask seeds --out {settings.out}` first.")
    tally = _count(catalog, folder, settings.processes)
    if not tally.images:
        why = next(iter(tally.missing.values()), "the catalog is empty")
        raise TagmaskError(f"no image could be scored; the first because: {why}")
    curves = {kind: tally.sweeps[kind].result() for kind in KINDS}
    chosen = {kind: _choose(tally.choosers[kind]) for kind in KINDS}
    scores = SeedScores(catalog.classes, curves, chosen, tally.missing, tally.images)
    add_scores(settings.out, {"seeds": scores.to_json()})
    from tagmask.show.curve import curve_plot

    named = {TITLES[kind]: curves[kind] for kind in KINDS}
    curve_plot(settings.out / "scores.png", named, {TITLES[kind]: chosen[kind] for kind in KINDS})
    return scores


def add_scores(out: Path, found: dict[str, Any]) -> None:
    """Put scores into the run's scores.json, beside those of other stages."""
    file = out / "scores.json"
    before = read_json(file) if file.exists() else {}
    write_json(file, {**(before if isinstance(before, dict) else {}), **found})


def _choose(rules: dict[str, Any]) -> dict[str, float]:
    """Threshold by each rule that can tell one from another."""
    chosen = {}
    for name, rule in rules.items():
        with suppress(TagmaskError):
            chosen[name] = rule.result()
    return chosen


def _count(catalog: Catalog, folder: Path, processes: int) -> Tally:
    """Counts over the whole catalog, shared out over processes in small pieces."""
    pieces = [range(start, min(start + 16, len(catalog))) for start in range(0, len(catalog), 16)]
    total = Tally.empty(len(catalog.classes))
    with tqdm(total=len(catalog), desc="score", unit="image") as bar:
        if processes == 1:
            for piece in pieces:
                total.merge(count_piece(catalog, folder, piece))
                bar.update(len(piece))
            return total
        with pool(processes) as each:
            for piece, tally in zip(pieces, each(partial(count_piece, catalog, folder), pieces), strict=True):
                total.merge(tally)
                bar.update(len(piece))
    return total


def count_piece(catalog: Catalog, folder: Path, indices: range) -> Tally:
    """Counts over some images; what cannot be scored is listed with its reason."""
    tally = Tally.empty(len(catalog.classes))
    for i in indices:
        try:
            seeds = read_seeds(seed_file(folder, catalog.name(i)))
            mask = catalog.load_mask(i)
            if mask is None:
                raise ImageError(f'"{catalog.name(i)}" has no mask.')
            if tuple(seeds["size"]) != mask.shape:
                raise ImageError(
                    f'the maps of "{catalog.name(i)}" are {tuple(seeds["size"])} and its mask is {mask.shape}; '
                    "make the seeds again from these images."
                )
            tally.add(seeds["classes"].tolist(), seeds, mask)
        except TagmaskError as error:
            tally.missing[catalog.name(i)] = str(error)
    return tally
