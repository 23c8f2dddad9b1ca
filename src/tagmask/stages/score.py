"""Scores of everything a run has made against true masks: seeds at every threshold, pseudo labels, predictions.

Every file is read once. The whole threshold curve of the seeds comes from one reading, together with thresholds that
are chosen without masks.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from tqdm import tqdm

from tagmask import layout
from tagmask.config import ScoreSettings, check
from tagmask.data.catalog import Catalog
from tagmask.data.images import read_mask
from tagmask.data.open import open_catalog
from tagmask.errors import ImageError, TagmaskError
from tagmask.files import read_json, read_object, write_json
from tagmask.layout import label_file, seed_file
from tagmask.runs import record
from tagmask.runs.processes import count_processes, each
from tagmask.scoring import Curve, Sweep, choosers
from tagmask.scoring.confusion import Scores, confusion, iou
from tagmask.scoring.threshold import top_histogram
from tagmask.stages.seeds import check_seeds, read_seeds

KINDS = {"plain": "without affinity", "refined": "with affinity"}
MADE = {  # key in scores.json: title, folder, file of an image
    "seeds": ("seeds", layout.SEEDS, seed_file),
    "pseudo": ("pseudo labels", layout.PSEUDO, label_file),
    "predictions": ("predictions", layout.PREDICTIONS, label_file),
}
_PIECE = 16  # images that a process counts at a time


class SeedScores:
    """Curves and chosen thresholds of the two kinds of maps; the counts of several processes can be added."""

    def __init__(self, classes: tuple[str, ...]) -> None:
        self.classes = classes  # without the background
        self.sweeps = {kind: Sweep(len(classes) + 1) for kind in KINDS}
        self.tops: dict[str, Any] = dict.fromkeys(
            KINDS, 0
        )  # histograms of the top scores, for the rules
        self.missing: dict[str, str] = {}  # name: why it was left out
        self.images = 0

    def add(self, catalog: Catalog, folder: Path, i: int) -> None:
        seeds = read_seeds(seed_file(folder, catalog.name(i)))
        check_seeds(seeds, catalog)
        mask = catalog.load_mask(i)
        if mask is None:
            raise ImageError(f'"{catalog.name(i)}" has no mask.')
        if tuple(seeds["size"]) != mask.shape:
            raise ImageError(
                f'the maps of "{catalog.name(i)}" are {tuple(seeds["size"])} and its mask is {mask.shape}; '
                "redo the seeds from these images."
            )
        for kind in KINDS:
            self.sweeps[kind].add(seeds["classes"].tolist(), seeds[kind], mask)
            self.tops[kind] += top_histogram(seeds[kind])

    def merge(self, other: Self) -> None:
        for kind in KINDS:
            self.sweeps[kind].merge(other.sweeps[kind])
            self.tops[kind] += other.tops[kind]

    @cached_property
    def curves(self) -> dict[str, Curve]:
        return {kind: sweep.result() for kind, sweep in self.sweeps.items()}

    @cached_property
    def chosen(self) -> dict[str, dict[str, float]]:
        """For each kind of maps the threshold of every rule that can choose one."""
        chosen: dict[str, dict[str, float]] = {kind: {} for kind in KINDS}
        for kind, histogram in self.tops.items():
            for name, rule in choosers().items():
                rule.counts += histogram
                with suppress(TagmaskError):
                    chosen[kind][name] = rule.result()
        return chosen

    def table(self) -> str:
        """One line per kind of maps and way to choose the threshold."""
        head = f"{'maps':26} {'threshold':>22} {'mIoU':>6} {'FP':>6} {'FN':>6}"
        lines = [head, "-" * len(head)]
        for kind, title in KINDS.items():
            for rule, threshold in self._thresholds(kind).items():
                lines.append(
                    _row(title, f"{rule} {threshold:.2f}", self.curves[kind].at(threshold))
                )
        best = self.curves["refined"].best
        if abs(best.miou_all - best.miou_present) > 5e-4:
            absent = f"with absent classes counted as 0, the refined maps' oracle mIoU is {100 * best.miou_all:.1f}."
            lines.append(absent)
        return "\n".join(
            [*lines, "oracle: tuned on the masks; the other thresholds are chosen without them."]
        )

    def summary(self, out: Path) -> str:
        """The table, what was left out, and where the files are."""
        lines = [f"{self.images} images scored", self.table(), *list_missing(self.missing)]
        return "\n".join([*lines, f"scores: {out / layout.SCORES}, curve: {out / layout.CURVE}"])

    def to_json(self) -> dict[str, Any]:
        """Everything, for scores.json; nan is written as null."""
        return {"images": self.images, **{kind: self._kind_to_json(kind) for kind in KINDS}}

    def _thresholds(self, kind: str) -> dict[str, float]:
        return {"oracle": self.curves[kind].best_threshold, **self.chosen[kind]}

    def _kind_to_json(self, kind: str) -> dict[str, Any]:
        curve = self.curves[kind]
        thresholds = {
            rule: {"threshold": threshold, **_values(curve.at(threshold), self.classes)}
            for rule, threshold in self._thresholds(kind).items()
        }
        values = {
            name: [_number(v) for v in getattr(curve, name)]
            for name in ("miou_present", "fp", "fn")
        }
        return {"thresholds": thresholds, "curve": values}


class LabelScores:
    """The confusion matrix of a folder of masks; those of several processes can be added."""

    def __init__(self, classes: tuple[str, ...]) -> None:
        self.classes = classes  # without the background
        self.counts = np.zeros(
            (len(classes) + 1, len(classes) + 2), np.int64
        )  # (K, K+1), rows = truth, last = unsure
        self.missing: dict[str, str] = {}  # name: why it was left out
        self.images = 0

    def add(self, catalog: Catalog, folder: Path, i: int) -> None:
        name = catalog.name(i)
        labels, truth = (
            read_mask(label_file(folder, name), len(catalog.classes)),
            catalog.load_mask(i),
        )
        if truth is None:
            raise ImageError(f'"{name}" has no mask to compare with.')
        if labels.shape != truth.shape:
            raise ImageError(
                f'the label of "{name}" is {labels.shape} and its mask {truth.shape}; make it again.'
            )
        self.counts += confusion(labels, truth, len(self.counts))

    def merge(self, other: Self) -> None:
        self.counts += other.counts

    @property
    def scores(self) -> Scores:
        return iou(self.counts)

    @property
    def unsure(self) -> float:
        """Share of the scored pixels that are left open."""
        return float(self.counts[:, -1].sum() / max(1, self.counts.sum()))

    def row(self, title: str) -> str:
        """A line of the table of seeds, whose threshold column stays empty."""
        return _row(title, f"{100 * self.unsure:.0f} % unsure" if self.unsure else "", self.scores)

    def to_json(self) -> dict[str, Any]:
        """Everything, for scores.json; nan is written as null."""
        values = {"images": self.images, **_values(self.scores, self.classes)}
        ious = values.pop("iou")
        values |= {"unsure": round(self.unsure, 6), "iou": ious}
        return values | {
            "class_names": ["background", *self.classes],
            "confusion": self.counts.tolist(),
        }


@dataclass
class RunScores:
    """Scores of the stages that are there."""

    out: Path
    seeds: SeedScores | None
    labels: dict[str, LabelScores] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)  # stages that hold nothing of these images

    def summary(self) -> str:
        """One table, what was left out, and where the files are."""
        lines = [self.seeds.summary(self.out)] if self.seeds else []
        if self.labels and not lines:
            lines.append(f"{'masks':26} {'':22} {'mIoU':>6} {'FP':>6} {'FN':>6}")
        for kind, scores in self.labels.items():
            lines += [scores.row(MADE[kind][0]), *list_missing(scores.missing)]
        lines += [f"{title}: none of these images, left out." for title in self.left_out]
        return "\n".join([*lines, *([] if self.seeds else [f"scores: {self.out / layout.SCORES}"])])


def score_run(settings: ScoreSettings, catalog: Catalog | None = None) -> RunScores:
    """Score every stage of the run that holds something of these images against the masks; write scores.json.

    Pseudo labels and predictions are often of different images: stages without any of these are left out.
    """
    check(settings)
    catalog = open_catalog(settings) if catalog is None else catalog
    folders = {kind: settings.out / folder for kind, (_, folder, _) in MADE.items()}
    there = [kind for kind, (_, _, file) in MADE.items() if _holds(folders[kind], file, catalog)]
    for kind in there:
        record.check_classes(folders[kind], catalog.classes, MADE[kind][0])
    if not there:
        score_seeds(settings, catalog)  # it says what is missing
    check_masks(catalog)
    labels = _count({kind: folders[kind] for kind in there}, catalog, settings.processes)
    seeds = _write_seeds(settings, labels.pop("seeds")) if "seeds" in labels else None
    _add_scores(settings.out, {kind: scores.to_json() for kind, scores in labels.items()})
    _add_verdicts(settings.out)
    others = [
        title
        for kind, (title, _, _) in MADE.items()
        if folders[kind].is_dir() and kind not in there
    ]
    return RunScores(settings.out, seeds, labels, others)


def score_seeds(settings: ScoreSettings, catalog: Catalog | None = None) -> SeedScores:
    """Score the seeds alone; write scores.json and the curve."""
    check(settings)
    catalog = open_catalog(settings) if catalog is None else catalog
    check_masks(catalog)
    folder = settings.out / layout.SEEDS
    if not folder.is_dir():
        raise TagmaskError(
            f"{folder} does not exist; run `tagmask seeds --out {settings.out}` first."
        )
    return _write_seeds(settings, _count({"seeds": folder}, catalog, settings.processes)["seeds"])


def _write_seeds(settings: ScoreSettings, scores: SeedScores) -> SeedScores:
    """Put the scores into scores.json, and draw the curve."""
    _add_scores(settings.out, {"seeds": scores.to_json()})
    from tagmask.show.curve import curve_plot

    curves = {title: scores.curves[kind] for kind, title in KINDS.items()}
    chosen = {title: scores.chosen[kind] for kind, title in KINDS.items()}
    curve_plot(settings.out / layout.CURVE, curves, chosen)
    return scores


def score_labels(catalog: Catalog, folder: Path) -> LabelScores:
    """Compare every mask of a folder with the truth, in this process."""
    scores: LabelScores = _count({"labels": folder}, catalog, 1)["labels"]
    return scores


def check_masks(catalog: Catalog) -> None:
    if not catalog.has_masks:
        raise TagmaskError(
            "these data have no masks to compare with; give --masks FOLDER, or other --data."
        )


def list_missing(missing: dict[str, str]) -> list[str]:
    """How many images could not be scored, and why, for the first five."""
    shown = [f"  {why}" for why in list(missing.values())[:5]]
    return [f"{len(missing)} images were left out:", *shown] if shown else []


Tally = TypeVar("Tally", SeedScores, LabelScores)


def _count(folders: Mapping[str, Path], catalog: Catalog, processes: int | None) -> dict[str, Any]:
    """Tallies of folders over the whole catalog, in small pieces shared out over processes that start once for all."""
    pieces = [
        range(start, min(start + _PIECE, len(catalog))) for start in range(0, len(catalog), _PIECE)
    ]
    kinds: dict[str, tuple[type[Any], Path]] = {
        name: (SeedScores if name == "seeds" else LabelScores, folder)
        for name, folder in folders.items()
    }
    totals = {name: kind(catalog.classes) for name, (kind, _) in kinds.items()}
    items = [(name, piece) for name in kinds for piece in pieces]
    with tqdm(total=len(catalog) * len(kinds), desc="score", unit="image") as bar:
        results = each(
            partial(_count_item, kinds, catalog), items, count_processes(processes, len(catalog))
        )
        for (name, _), tally in zip(items, results, strict=True):
            totals[name].merge(tally)
            totals[name].missing |= tally.missing
            totals[name].images += tally.images
            bar.update(tally.images + len(tally.missing))
    for name, (_, folder) in kinds.items():
        if not totals[name].images:
            why = next(iter(totals[name].missing.values()), "the catalog is empty")
            raise TagmaskError(f"nothing in {folder} could be scored; the first reason: {why}")
    return totals


def _count_item(
    kinds: Mapping[str, tuple[type[Any], Path]], catalog: Catalog, item: tuple[str, range]
) -> Any:
    kind, folder = kinds[item[0]]
    return count_piece(kind, catalog, folder, item[1])


def count_piece(kind: type[Tally], catalog: Catalog, folder: Path, indices: Iterable[int]) -> Tally:
    """Counts over these images; those that cannot be scored are listed with the reason."""
    tally = kind(catalog.classes)
    for i in indices:
        try:
            tally.add(catalog, folder, i)
            tally.images += 1
        except TagmaskError as error:
            tally.missing[catalog.name(i)] = str(error)
    return tally


def _holds(folder: Path, file: Callable[[Path, str], Path], catalog: Catalog) -> bool:
    """Whether a folder has a file of any of the images."""
    return folder.is_dir() and any(
        file(folder, catalog.name(i)).is_file() for i in range(len(catalog))
    )


def _add_scores(out: Path, scores: dict[str, Any]) -> None:
    """Put scores into the run's scores.json, beside those of other stages, with a hash of the files scored."""
    file = out / layout.SCORES
    before = read_json(file) if file.exists() else {}
    noted = {
        kind: {**values, "files": record.files_of(out / MADE[kind][1])}
        for kind, values in scores.items()
    }
    write_json(file, {**(before if isinstance(before, dict) else {}), **noted})


def _add_verdicts(out: Path) -> None:
    """Put the verdicts of the self-check into the run's scores.json."""
    file = out / layout.CHECK
    if file.is_file():
        scores = read_object(out / layout.SCORES)
        write_json(out / layout.SCORES, {**scores, "check": read_object(file)["tags"]})


def _row(title: str, note: str, scores: Scores) -> str:
    numbers = " ".join(
        f"{100 * value:6.1f}" for value in (scores.miou_present, scores.fp, scores.fn)
    )
    return f"{title:26} {note:>22} {numbers}"


def _values(scores: Scores, classes: tuple[str, ...]) -> dict[str, Any]:
    values: dict[str, Any] = {
        n: _number(getattr(scores, n)) for n in ("miou_present", "miou_all", "fp", "fn")
    }
    names = ("background", *classes)
    return {**values, "iou": dict(zip(names, map(_number, scores.class_iou), strict=True))}


def _number(value: Any) -> float | None:
    return None if np.isnan(value) else round(float(value), 6)
