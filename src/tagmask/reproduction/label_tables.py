"""Tables of the later stages: pseudo labels, segmentation, and comparisons with other methods."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tagmask import layout
from tagmask.config import PseudoSettings, SegmentSettings
from tagmask.errors import TagmaskError
from tagmask.files import read_json
from tagmask.reproduction.bench import ORACLE, Bench
from tagmask.reproduction.measures import (
    KINDS,
    SCORES,
    at,
    mean_of,
    only_at,
    percent,
    unlike_acr,
)
from tagmask.reproduction.numbers import NUMBERS, about, footnotes
from tagmask.reproduction.table import Cell, Column, Table, TableRow

MEAN = "mean over the classes present"
OURS = "tagmask"
# ends the title of our row of maps without affinity, the paper's ACR*
PLAIN = ", without affinity"
# table: title, columns
COMPARED = {
    "compare-coco": ("Segmentation of MS COCO by weakly supervised methods", ("val",)),
    "compare-seeds": ("Seeds and pseudo labels of PASCAL VOC train", ("seeds", "pseudo labels")),
    "compare-voc": (
        "Segmentation of PASCAL VOC 2012 by weakly supervised methods",
        ("val", "test"),
    ),
}


@dataclass(frozen=True)
class Measured:
    """What the paper's numbers of a table were measured on."""

    name: str
    data: str
    # the list of VOC's layout; of COCO there is none
    split: str | None
    # how many images can be scored: COCO val has 40,504, of which some have no tag
    count: int
    # the numbers of each class, whose names are those of the data set
    per_class: str
    were_trained_on: bool = False


MEASURED_ON = {
    "compare-coco": Measured("MS COCO val", "coco", None, 40_137, "per-class-coco"),
    "compare-seeds": Measured("PASCAL VOC train", "voc", "train", 1464, "per-class-voc", True),
    "compare-voc": Measured("PASCAL VOC val and test", "voc", "val", 1449, "per-class-voc"),
    "per-class-coco": Measured("MS COCO val", "coco", None, 40_137, "per-class-coco"),
    "per-class-voc": Measured("PASCAL VOC val", "voc", "val", 1449, "per-class-voc"),
}
OTHER_IMAGES = f"; {OURS} on other images"


def pseudo(bench: Bench) -> Table:
    """Score seeds and the pseudo labels made from them, on images that were trained on."""
    scores = _label_scores(bench)
    seeds = [seed["seeds"] for seed in scores]
    labels = [seed["pseudo"] for seed in scores]
    blind = bench.settings.of(PseudoSettings).rule
    only = bench.settings.only
    paper = NUMBERS["stages"]
    rows = []
    for title, kind, rule, number in (
        ("seeds without affinity (ACR*)", "plain", ORACLE, paper["seeds_plain"]),
        ("seeds with affinity (ACR)", "refined", ORACLE, paper["seeds"]),
        ("seeds with affinity, blind threshold", "refined", blind, None),
    ):
        cells = []
        for name in SCORES:
            beside = number if name == "miou_present" else None
            cells.append(at(seeds, kind, rule, name, beside))
        if only:
            cells.append(only_at(seeds, kind, rule, only))
        rows.append(TableRow(title, tuple(cells)))
    cells = []
    for name in SCORES:
        beside = paper["pseudo"] if name == "miou_present" else None
        cells.append(_score(labels, beside, name))
    if only:
        cells.append(_only(labels, only))
    rows.append(TableRow("pseudo labels", tuple(cells)))
    titles = list(SCORES.values())
    if only:
        titles.append("mIoU, only")
    return Table(
        name="pseudo",
        title="From seeds to pseudo labels",
        head="stage",
        columns=tuple(map(Column, titles)),
        rows=tuple(rows),
        notes=_pseudo_notes(bench),
    )


def _pseudo_notes(bench: Bench) -> tuple[str, ...]:
    settings = bench.settings.of(PseudoSettings)
    different = ""
    if not _are_the_papers(bench, "compare-seeds"):
        different = ", which are other images, so the two cannot be compared"
    notes = [
        f"in per cent; ours: {bench.labelled_on()}; the column paper: numbers that the paper "
        f"prints, measured on VOC train{different}; "
        f"seeds at the oracle threshold unless blind ({settings.rule}, chosen without masks); "
        f"labels by {settings.method}, from seeds {KINDS[settings.source()]}. "
        "FP: over-activation, FN: under-activation, as shares of the union."
    ]
    if bench.settings.only:
        notes.append(f"only: mean over background, {', '.join(bench.settings.only)}.")
    return (*notes, *unlike_acr(bench), about("voc"))


def segmentation(bench: Bench) -> Table:
    """Score the predictions, class by class."""
    scores = _prediction_scores(bench)
    only = bench.settings.only
    data = bench.settings.data
    theirs = NUMBERS[f"per-class-{data}"] if data in ("voc", "coco") else {}
    rows = []
    for name in scores[0]["iou"]:
        cell = _iou(scores, name, theirs.get(name))
        rows.append(TableRow(name, (cell,)))
    if only:
        rows.append(TableRow("mean over background and --only", (_only(scores, only),)))
    stages = NUMBERS["stages"]
    their_mean = stages["coco_val" if data == "coco" else "voc_val"]
    rows.append(TableRow(MEAN, (_score(scores, their_mean),)))
    segment = bench.settings.of(SegmentSettings)
    network = getattr(segment, "backbone", segment.net)
    notes = (
        f"IoU in per cent of {network}'s masks on {bench.scored_on()}; "
        "it learned from pseudo labels of the images trained on.",
        f"paper: mean on VOC val {stages['voc_val']}, VOC test {stages['voc_test']}, "
        f"COCO val {stages['coco_val']}.",
        *_comparable(bench, f"per-class-{'coco' if data == 'coco' else 'voc'}", "the paper's"),
        *([] if data == "coco" else footnotes("per-class-voc")),
        *unlike_acr(bench),
        about(data),
    )
    return Table(
        name="segmentation",
        title="Segmentation",
        head="class",
        columns=(Column("IoU"),),
        rows=tuple(rows),
        notes=notes,
    )


def per_class(bench: Bench) -> Table:
    """Score each class beside all methods that the paper prints.

    The paper's numbers are of COCO if the classes are COCO's, else of VOC.
    """
    scores = _prediction_scores(bench)
    classes = scores[0]["iou"]
    is_coco = bench.settings.data == "coco" or "motorcycle" in classes
    printed = "per-class-coco" if is_coco else "per-class-voc"
    theirs = NUMBERS[printed]
    *others, acr = theirs["methods"]
    names = [name for name in theirs if name not in ("methods", "mean")]
    names += [name for name in classes if name not in names]
    unknown = [None] * len(others)
    rows = []
    for name in names:
        numbers = theirs.get(name, unknown)[: len(others)]
        ours = _iou(scores, name, theirs.get(name))
        rows.append(TableRow(name, (ours, *_paper_cells(numbers))))
    means = theirs["mean"]
    ours = _score(scores, means[-1])
    other_means = _paper_cells(means[: len(others)])
    rows.append(TableRow(MEAN, (ours, *other_means)))
    columns = [Column("IoU")]
    columns += [Column(name, theirs=True) for name in others]
    data = "MS COCO" if is_coco else "PASCAL VOC"
    notes = (
        f"IoU in per cent; the column paper is {acr} on {data} val, the last ones are the "
        f"methods it is compared with. Ours: {_scored_on(bench)}.",
        *_comparable(bench, printed, "the other columns"),
        *footnotes(printed),
        *unlike_acr(bench),
        about("coco" if is_coco else "voc"),
    )
    title = "IoU of each class"
    if not _are_the_papers(bench, printed):
        title += OTHER_IMAGES
    return Table(
        name="per-class",
        title=title,
        head="class",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=notes,
    )


def compare(bench: Bench) -> Table:
    """Return a comparison with other methods as the paper prints it, and our row."""
    name = bench.settings.table
    title, columns = COMPARED[name]
    rows = []
    for method, venue, saliency, *numbers in NUMBERS[name]["rows"]:
        row_title = method
        if venue:
            row_title += f" ({venue})"
        if saliency:
            row_title += ", with saliency"
        # some rows end in true where seeds use saliency maps too
        if numbers[-1] is True:
            row_title += ", seeds too"
        known: list[float | None] = []
        for number in numbers[: len(columns)]:
            known.append(None if math.isnan(number) else number)
        rows.append(TableRow(row_title, tuple(_paper_cells(known))))
    ours = _scored_on(bench)
    if name == "compare-seeds" and bench.settings.scores is None:
        ours = bench.labelled_on()
    rows += _our_rows(bench, name, ours)
    if not _are_the_papers(bench, name):
        title += OTHER_IMAGES
    notes = (
        "mIoU in per cent. All rows but ours are numbers that the paper prints, measured on "
        f"{MEASURED_ON[name].name}. Ours: {ours}.",
        *_comparable(bench, name, "the other rows"),
        *_test_note(name),
        *footnotes(name),
        *unlike_acr(bench),
        about("coco" if name == "compare-coco" else "voc"),
    )
    return Table(
        name=name,
        title=title,
        head="method",
        columns=tuple(map(Column, columns)),
        rows=tuple(rows),
        notes=notes,
    )


def _test_note(name: str) -> tuple[str, ...]:
    """Say why VOC test has no number of ours."""
    if name != "compare-voc":
        return ()
    return (
        "test: only the server of the data set has its masks; "
        "`tagmask export --format voc-test` writes what it takes.",
    )


def _comparable(bench: Bench, name: str, others: str) -> tuple[str, ...]:
    """Return a note on whether our numbers can be compared with the others.

    Args:
        bench: Gives the settings and the images.
        name: A key of ``MEASURED_ON``.
        others: What the others are called, e.g. "the other rows".
    """
    if bench.settings.scores is not None:
        return (
            f"Ours can be compared with {others} only if those images are "
            f"{MEASURED_ON[name].name}.",
        )
    if not _are_the_papers(bench, name):
        return (
            f"These are different images, so ours cannot be compared with {others}: it "
            "says nothing on which method is better.",
        )
    return ()


def _scored_on(bench: Bench) -> str:
    """Say which images our row is about; of a finished run its scores do not tell."""
    if bench.settings.scores is not None:
        return f"the images of {bench.settings.scores}"
    return bench.scored_on()


def _our_rows(bench: Bench, name: str, images: str) -> list[TableRow]:
    """Return our rows; their titles name the images if they are not those of the columns.

    Args:
        bench: Gives the settings.
        name: Of the table.
        images: Says which images are scored.
    """
    title = OURS if _are_the_papers(bench, name) else f"{OURS}, on {images}"
    if name == "compare-coco":
        return [TableRow(title, (_score(_prediction_scores(bench)),))]
    if name == "compare-voc":
        # the masks of test are on the server of the data set
        return [TableRow(title, (_score(_prediction_scores(bench)), Cell()))]
    scores = _finished(bench, "seeds", "pseudo") or _label_scores(bench)
    seeds = [seed["seeds"] for seed in scores]
    labels = _score([seed["pseudo"] for seed in scores])
    return [
        TableRow(f"{title}{PLAIN}", (at(seeds, "plain", ORACLE), Cell())),
        TableRow(title, (at(seeds, "refined", ORACLE), labels)),
    ]


def _are_the_papers(bench: Bench, name: str) -> bool:
    """Return True if our images are those of the paper's table, or a finished run's.

    These are VOC's train or val, or COCO's val; images that were trained on are no val. Any data
    can be in the layout of VOC or COCO, so the classes and the number of images count, too.

    Args:
        bench: Gives the settings and the images.
        name: A key of ``MEASURED_ON``.
    """
    if bench.settings.scores is not None:
        return True
    theirs = MEASURED_ON[name]
    if bench.settings.data != theirs.data:
        return False
    if theirs.split is not None and bench.score_data["split"] != theirs.split:
        return False
    if bench.are_trained_on() and not theirs.were_trained_on:
        return False
    images = bench.scored_images
    names = set(NUMBERS[theirs.per_class]) - {"methods", "background", "mean"}
    return len(images) == theirs.count and set(images.classes) == names


def _label_scores(bench: Bench) -> list[Any]:
    """Return the scores of seeds and pseudo labels for each random seed."""
    runs = bench.trained({"ACR": {}})["ACR"]
    return [bench.label_scores(run) for run in runs]


def _prediction_scores(bench: Bench) -> list[Any]:
    """Return the scores of the predictions: of the run in --scores, or for each random seed."""
    finished = _finished(bench, "predictions")
    if finished:
        return [finished[0]["predictions"]]
    runs = bench.trained({"ACR": {}})["ACR"]
    return [bench.predicted(run)[1] for run in runs]


def _finished(bench: Bench, *needed: str) -> list[Any]:
    """Return the scores of the run that --scores names; none where it names none."""
    path = bench.settings.scores
    if path is None:
        return []
    file = path / layout.SCORES if path.is_dir() else path
    scores = read_json(file) if file.is_file() else None
    if not isinstance(scores, Mapping):
        scores = {}
    missing = [name for name in needed if not scores.get(name)]
    if missing:
        raise TagmaskError(
            f"--scores {path} has no scores of {', '.join(missing)}; "
            "make them with `tagmask score`."
        )
    return [scores]


def _paper_cells(numbers: Sequence[float | None]) -> list[Cell]:
    return [Cell((), number) for number in numbers]


def _iou(scores: list[Any], name: str, paper: list[float] | None = None) -> Cell:
    """Return the IoU of a class; the paper's own is the last of its numbers."""
    ious = [seed["iou"] for seed in scores]
    values = [percent(iou[name]) for iou in ious if name in iou]
    return Cell(tuple(values), paper[-1] if paper else None)


def _score(scores: list[Any], paper: float | None = None, name: str = "miou_present") -> Cell:
    values = [percent(seed[name]) for seed in scores]
    return Cell(tuple(values), paper)


def _only(scores: list[Any], only: Sequence[str]) -> Cell:
    """Return the mean IoU over the background and --only."""
    values = [mean_of(seed["iou"], only) for seed in scores]
    return Cell(tuple(values))
