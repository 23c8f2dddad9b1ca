"""Scores of what a run has made against true masks: seeds, pseudo labels, predictions.

Every file is read once. The whole threshold curve of the seeds comes from one reading, together
with thresholds that are chosen without masks.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from tagmask import layout
from tagmask.config import ScoreSettings
from tagmask.data.catalog import Catalog
from tagmask.data.images import read_mask
from tagmask.errors import ImageError, TagmaskError, typed
from tagmask.files import read_json, read_object, write_json
from tagmask.layout import label_file, seed_file
from tagmask.progress import Bar
from tagmask.runs import record
from tagmask.runs.processes import count_processes, each
from tagmask.runs.run import Run
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
    """Curves and chosen thresholds of the two kinds of maps.

    The counts of several processes can be added.
    """

    def __init__(self, classes: tuple[str, ...]) -> None:
        self.classes = classes  # without the background
        self.sweeps = {kind: Sweep(len(classes) + 1) for kind in KINDS}
        # histograms of the top scores, for the rules that choose a threshold
        self.tops: dict[str, Any] = dict.fromkeys(KINDS, 0)
        self.missing: dict[str, str] = {}  # name: why it was left out
        self.images = 0

    def add(self, catalog: Catalog, folder: Path, i: int) -> None:
        """Count the maps of one image.

        Args:
            catalog: Images with their true masks.
            folder: Folder of the seeds.
            i: Index of the image in the catalog.

        Raises:
            TagmaskError: If the seeds cannot be read or are of other classes.
            ImageError: If the image has no mask, or one of another size.
        """
        name = catalog.name(i)
        seeds = read_seeds(seed_file(folder, name))
        check_seeds(seeds, catalog)
        mask = catalog.load_mask(i)
        if mask is None:
            raise ImageError(f'"{name}" has no mask.')
        size = tuple(seeds["size"])
        if size != mask.shape:
            raise ImageError(
                f'the maps of "{name}" are {size} and its mask is {mask.shape}; '
                "redo the seeds from these images."
            )
        classes = seeds["classes"].tolist()
        for kind in KINDS:
            self.sweeps[kind].add(classes, seeds[kind], mask)
            self.tops[kind] += top_histogram(seeds[kind])

    def merge(self, other: Self) -> None:
        """Add the counts of another process; ``missing`` and ``images`` are left to the caller."""
        for kind in KINDS:
            self.sweeps[kind].merge(other.sweeps[kind])
            self.tops[kind] += other.tops[kind]

    @cached_property
    def curves(self) -> dict[str, Curve]:
        """Return the scores at every threshold, by kind of maps."""
        return {kind: sweep.result() for kind, sweep in self.sweeps.items()}

    @cached_property
    def chosen(self) -> dict[str, dict[str, float]]:
        """Return, by kind of maps, the threshold of every rule that can choose one."""
        chosen: dict[str, dict[str, float]] = {kind: {} for kind in KINDS}
        for kind, histogram in self.tops.items():
            for name, rule in choosers().items():
                rule.counts += histogram
                with suppress(TagmaskError):
                    chosen[kind][name] = rule.result()
        return chosen

    def table(self) -> str:
        """Return a table with one line per kind of maps and way to choose the threshold."""
        head = f"{'maps':26} {'threshold':>22} {'mIoU':>6} {'FP':>6} {'FN':>6}"
        lines = [head, "-" * len(head)]
        for kind, title in KINDS.items():
            curve = self.curves[kind]
            for rule, threshold in self._thresholds(kind).items():
                lines.append(_row(title, f"{rule} {threshold:.2f}", curve.at(threshold)))
        best = self.curves["refined"].best
        if abs(best.miou_all - best.miou_present) > 5e-4:
            lines.append(
                "with absent classes counted as 0, "
                f"the refined maps' oracle mIoU is {100 * best.miou_all:.1f}."
            )
        lines.append("oracle: tuned on the masks; the other thresholds are chosen without them.")
        return "\n".join(lines)

    def summary(self, out: Path) -> str:
        """Return the table, what was left out, and where the files are."""
        lines = [
            f"{self.images} images scored",
            self.table(),
            *list_missing(self.missing),
            f"scores: {out / layout.SCORES}, curve: {out / layout.CURVE}",
        ]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return everything, for scores.json; nan is written as null."""
        values: dict[str, Any] = {"images": self.images}
        for kind in KINDS:
            values[kind] = self._kind_to_json(kind)
        return values

    def _thresholds(self, kind: str) -> dict[str, float]:
        """Return the oracle threshold and those that the rules have chosen."""
        return {"oracle": self.curves[kind].best_threshold, **self.chosen[kind]}

    def _kind_to_json(self, kind: str) -> dict[str, Any]:
        """Return the scores at each chosen threshold and the curve, for one kind of maps."""
        curve = self.curves[kind]
        thresholds = {}
        for rule, threshold in self._thresholds(kind).items():
            scores = _values(curve.at(threshold), self.classes)
            thresholds[rule] = {"threshold": threshold, **scores}
        values = {}
        for name in ("miou_present", "fp", "fn"):
            values[name] = [_number(value) for value in getattr(curve, name)]
        return {"thresholds": thresholds, "curve": values}


class LabelScores:
    """Confusion matrix of a folder of masks; those of several processes can be added."""

    def __init__(self, classes: tuple[str, ...]) -> None:
        self.classes = classes  # without the background
        # (K, K+1): rows are the truth, the last column counts unsure pixels
        self.counts = np.zeros((len(classes) + 1, len(classes) + 2), np.int64)
        self.missing: dict[str, str] = {}  # name: why it was left out
        self.images = 0

    def add(self, catalog: Catalog, folder: Path, i: int) -> None:
        """Count the labels of one image.

        Args:
            catalog: Images with their true masks.
            folder: Folder of the masks that are scored.
            i: Index of the image in the catalog.

        Raises:
            ImageError: If a mask is missing or cannot be read, or the sizes differ.
        """
        name = catalog.name(i)
        labels = read_mask(label_file(folder, name), len(catalog.classes))
        truth = catalog.load_mask(i)
        if truth is None:
            raise ImageError(f'"{name}" has no mask to compare with.')
        if labels.shape != truth.shape:
            raise ImageError(
                f'the label of "{name}" is {labels.shape} and its mask {truth.shape}; '
                "make it again."
            )
        self.counts += confusion(labels, truth, len(self.counts))

    def merge(self, other: Self) -> None:
        """Add the counts of another process; ``missing`` and ``images`` are left to the caller."""
        self.counts += other.counts

    @property
    def scores(self) -> Scores:
        """Return IoU, false positives and false negatives of the counts."""
        return iou(self.counts)

    @property
    def unsure(self) -> float:
        """Return the share of the scored pixels that are left open."""
        unsure = self.counts[:, -1].sum()
        return float(unsure / max(1, self.counts.sum()))

    def row(self, title: str) -> str:
        """Return a line of the table of seeds, whose threshold column says how much is unsure."""
        note = f"{100 * self.unsure:.0f} % unsure" if self.unsure else ""
        return _row(title, note, self.scores)

    def to_json(self) -> dict[str, Any]:
        """Return everything, for scores.json; nan is written as null."""
        values = {"images": self.images, **_values(self.scores, self.classes)}
        # the long lists come last in the file
        ious = values.pop("iou")
        values["unsure"] = round(self.unsure, 6)
        values["iou"] = ious
        values["class_names"] = ["background", *self.classes]
        values["confusion"] = self.counts.tolist()
        return values


@dataclass
class RunScores:
    """Scores of the stages that are there."""

    out: Path
    seeds: SeedScores | None
    labels: dict[str, LabelScores] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)  # stages that hold nothing of these images

    def summary(self) -> str:
        """Return one table, what was left out, and where the files are."""
        lines = []
        if self.seeds:
            lines.append(self.seeds.summary(self.out))
        elif self.labels:
            lines.append(f"{'masks':26} {'':22} {'mIoU':>6} {'FP':>6} {'FN':>6}")
        for kind, scores in self.labels.items():
            title = MADE[kind][0]
            lines.append(scores.row(title))
            lines += list_missing(scores.missing)
        lines += [f"{title}: none of these images, left out." for title in self.left_out]
        if not self.seeds:
            lines.append(f"scores: {self.out / layout.SCORES}")
        return "\n".join(lines)


def score_run(run: Run, settings: ScoreSettings) -> RunScores:
    """Score every stage of the run that holds something of these images; write scores.json.

    Pseudo labels and predictions are often of different images: stages without any of these are
    left out.

    Args:
        run: The run, whose images have true masks.
        settings: Settings of the stage.

    Returns:
        Scores of the seeds and of each folder of masks.

    Raises:
        TagmaskError: If there are no masks to compare with, or nothing can be scored.
    """
    catalog = run.catalog
    folders: dict[str, Path] = {}
    left_out = []
    for kind, (title, name, file_of) in MADE.items():
        folder = run.out / name
        if _holds(folder, file_of, catalog):
            folders[kind] = folder
        elif folder.is_dir():
            left_out.append(title)
    for kind, folder in folders.items():
        record.check_classes(folder, catalog.classes, MADE[kind][0])
    if not folders:
        # it says what is missing
        score_seeds(run, settings)
    check_masks(catalog)

    labels = _count(folders, catalog, settings.processes)
    seeds = None
    if "seeds" in labels:
        seeds = _write_seeds(run.out, labels.pop("seeds"))
    _add_scores(run.out, {kind: scores.to_json() for kind, scores in labels.items()})
    return RunScores(run.out, seeds, labels, left_out)


def score_seeds(run: Run, settings: ScoreSettings) -> SeedScores:
    """Score the seeds alone; write scores.json and the curve.

    Args:
        run: The run, whose images have true masks.
        settings: Settings of the stage.

    Returns:
        Curves and chosen thresholds of both kinds of maps.

    Raises:
        TagmaskError: If there are no masks or no seeds, or nothing can be scored.
    """
    catalog = run.catalog
    check_masks(catalog)
    folder = run.out / layout.SEEDS
    if not folder.is_dir():
        raise TagmaskError(
            f"{folder} does not exist; run `tagmask seeds --out {typed(run.out)}` first."
        )
    scores = _count({"seeds": folder}, catalog, settings.processes)
    return _write_seeds(run.out, scores["seeds"])


def _write_seeds(out: Path, scores: SeedScores) -> SeedScores:
    """Put the scores into scores.json, and draw the curve."""
    _add_scores(out, {"seeds": scores.to_json()})
    from tagmask.show.curve import curve_plot

    curves = {title: scores.curves[kind] for kind, title in KINDS.items()}
    chosen = {title: scores.chosen[kind] for kind, title in KINDS.items()}
    curve_plot(out / layout.CURVE, curves, chosen)
    return scores


def score_labels(catalog: Catalog, folder: Path) -> LabelScores:
    """Compare every mask of a folder with the truth, in this process.

    Args:
        catalog: Images with true masks.
        folder: Folder of label PNGs, named as the images.

    Returns:
        Confusion matrix and scores; images that could not be scored are in ``missing``.
    """
    scores: LabelScores = _count({"labels": folder}, catalog, 1)["labels"]
    return scores


def check_masks(catalog: Catalog) -> None:
    """Raise TagmaskError if the catalog has no true masks."""
    if not catalog.has_masks:
        raise TagmaskError(
            "these data have no masks to compare with; give --masks FOLDER, or other --data."
        )


def list_missing(missing: dict[str, str]) -> list[str]:
    """Return lines on how many images could not be scored, and why, for the first five."""
    if not missing:
        return []
    reasons = list(missing.values())[:5]
    return [f"{len(missing)} images were left out:", *(f"  {why}" for why in reasons)]


Tally = TypeVar("Tally", SeedScores, LabelScores)


def _count(folders: Mapping[str, Path], catalog: Catalog, processes: int | None) -> dict[str, Any]:
    """Count folders over the whole catalog; return a tally for each.

    The work is shared out in small pieces over processes that start once for all folders.
    """
    images = len(catalog)
    kinds: dict[str, tuple[type[Any], Path]] = {}
    totals: dict[str, Any] = {}
    items: list[tuple[str, range]] = []
    for name, folder in folders.items():
        kind: type[Any] = SeedScores if name == "seeds" else LabelScores
        kinds[name] = (kind, folder)
        totals[name] = kind(catalog.classes)
        for start in range(0, images, _PIECE):
            piece = range(start, min(start + _PIECE, images))
            items.append((name, piece))

    work = partial(_count_item, kinds, catalog)
    with Bar(images * len(kinds), "score") as bar:
        tallies = each(work, items, count_processes(processes, images))
        for (name, _), tally in zip(items, tallies, strict=True):
            total = totals[name]
            total.merge(tally)
            total.missing |= tally.missing
            total.images += tally.images
            bar.update(tally.images + len(tally.missing))

    for name, folder in folders.items():
        total = totals[name]
        if not total.images:
            why = next(iter(total.missing.values()), "the catalog is empty")
            raise TagmaskError(f"nothing in {folder} could be scored; the first reason: {why}")
    return totals


def _count_item(
    kinds: Mapping[str, tuple[type[Any], Path]], catalog: Catalog, item: tuple[str, range]
) -> Any:
    """Count one piece of one folder; a function of the module, so that processes can be sent it."""
    name, indices = item
    kind, folder = kinds[name]
    return count_piece(kind, catalog, folder, indices)


def count_piece(kind: type[Tally], catalog: Catalog, folder: Path, indices: Iterable[int]) -> Tally:
    """Count over these images; those that cannot be scored are listed with the reason.

    Args:
        kind: Kind of the tally, ``SeedScores`` or ``LabelScores``.
        catalog: Images with true masks.
        folder: Folder of the files that are scored.
        indices: Images to count, by their index in the catalog.

    Returns:
        A tally of these images alone.
    """
    tally = kind(catalog.classes)
    for i in indices:
        try:
            tally.add(catalog, folder, i)
            tally.images += 1
        except TagmaskError as error:
            tally.missing[catalog.name(i)] = str(error)
    return tally


def _holds(folder: Path, file_of: Callable[[Path, str], Path], catalog: Catalog) -> bool:
    """Return True if a folder has a file of any of the images."""
    if not folder.is_dir():
        return False
    return any(file_of(folder, catalog.name(i)).is_file() for i in range(len(catalog)))


def _add_scores(out: Path, scores: dict[str, Any]) -> None:
    """Put scores into the run's scores.json, with a hash of the files scored.

    Those of other stages stay, and nothing else does; the verdicts of the self-check come last.
    """
    file = out / layout.SCORES
    before = read_json(file) if file.exists() else {}
    known = before if isinstance(before, dict) else {}
    merged: dict[str, Any] = {kind: known[kind] for kind in known if kind in MADE}
    for kind, values in scores.items():
        merged[kind] = {**values, "files": record.files_of(out / MADE[kind][1])}
    verdicts = out / layout.CHECK
    if verdicts.is_file():
        merged["check"] = read_object(verdicts, tags=dict)["tags"]
    write_json(file, merged)


def _row(title: str, note: str, scores: Scores) -> str:
    """Return a line of the table: title, note, mIoU, false positives and negatives in percent."""
    values = (scores.miou_present, scores.fp, scores.fn)
    numbers = " ".join(f"{100 * value:6.1f}" for value in values)
    return f"{title:26} {note:>22} {numbers}"


def _values(scores: Scores, classes: tuple[str, ...]) -> dict[str, Any]:
    """Return the scores as JSON can hold them, with the IoU of each class by name."""
    values: dict[str, Any] = {}
    for name in ("miou_present", "miou_all", "fp", "fn", "fp_per_hit", "fn_per_hit"):
        values[name] = _number(getattr(scores, name))
    ious = [_number(value) for value in scores.class_iou]
    values["iou"] = dict(zip(("background", *classes), ious, strict=True))
    return values


def _number(value: Any) -> float | None:
    """Round a number for JSON; nan, which JSON does not have, becomes None."""
    return None if np.isnan(value) else round(float(value), 6)
