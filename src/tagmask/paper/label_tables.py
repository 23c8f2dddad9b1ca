"""Tables of the later stages: pseudo labels, segmentation, and the paper's comparisons with other methods."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tagmask.errors import TagmaskError
from tagmask.files import read_json
from tagmask.paper.bench import ORACLE, Bench
from tagmask.paper.measures import KINDS, SCORES, at, mean_of, only_at, percent
from tagmask.paper.numbers import ABOUT, NUMBERS, footnotes
from tagmask.paper.table import Cell, Column, Row, Table
from tagmask.pipeline import layout

MEAN = "mean over the classes present"
OURS = "tagmask"
COMPARED = {  # table: title, columns
    "compare-coco": ("Segmentation of MS COCO by weakly supervised methods", ("val",)),
    "compare-seeds": ("Seeds and pseudo labels of PASCAL VOC train", ("seeds", "pseudo labels")),
    "compare-voc": (
        "Segmentation of PASCAL VOC 2012 by weakly supervised methods",
        ("val", "test"),
    ),
}


def pseudo(bench: Bench) -> Table:
    """Seeds and the pseudo labels made from them, on images that were trained on."""
    scores = [bench.label_scores(run) for run in bench.trained({"ACR": {}})["ACR"]]
    seeds, labels = ([seed[name] for seed in scores] for name in ("seeds", "pseudo"))
    blind, only, paper = bench.settings.pseudo.rule, bench.settings.only, NUMBERS["stages"]
    rows = []
    for title, kind, rule, number in (
        ("seeds without affinity (ACR*)", "plain", ORACLE, paper["seeds_plain"]),
        ("seeds with affinity (ACR)", "refined", ORACLE, paper["seeds"]),
        ("seeds with affinity, blind threshold", "refined", blind, None),
    ):
        cells = [
            at(seeds, kind, rule, name, number if name == "miou_present" else None)
            for name in SCORES
        ]
        rows.append(Row(title, (*cells, *([only_at(seeds, kind, rule, only)] if only else []))))
    cells = [
        _score(labels, paper["pseudo"] if name == "miou_present" else None, name) for name in SCORES
    ]
    rows.append(Row("pseudo labels", (*cells, *_only(labels, only))))
    notes = (
        f"in per cent, {labels[0]['images']} images, all of them trained on (paper: VOC train); seeds at the oracle "
        f"threshold unless blind ({blind}, chosen without masks); labels by {bench.settings.pseudo.method}, from seeds "
        f"{KINDS[bench.settings.pseudo.source()]}. FP: over-activation, FN: under-activation.",
        *([f"only: mean over background, {', '.join(only)}."] if only else []),
        ABOUT,
    )
    titles = [*SCORES.values(), *(["mIoU, only"] if only else [])]
    return Table(
        "pseudo",
        "From seeds to pseudo labels",
        "stage",
        tuple(map(Column, titles)),
        tuple(rows),
        notes,
    )


def segmentation(bench: Bench) -> Table:
    """IoU of the predictions, class by class."""
    scores = _prediction_scores(bench)
    only, data = bench.settings.only, bench.settings.data
    theirs = NUMBERS[f"per-class-{data}"] if data in ("voc", "coco") else {}
    rows = [Row(name, (_iou(scores, name, theirs.get(name)),)) for name in scores[0]["iou"]]
    rows += [Row("mean over background and --only", (mean,)) for mean in _only(scores, only)]
    stages = NUMBERS["stages"]
    rows.append(Row(MEAN, (_score(scores, stages["coco_val" if data == "coco" else "voc_val"]),)))
    notes = (
        f"IoU in per cent of {bench.settings.segment.backbone}'s masks on {scores[0]['images']} images; it learnt from "
        "pseudo labels of the images trained on.",
        f"paper: mean on VOC val {stages['voc_val']}, VOC test {stages['voc_test']}, COCO val {stages['coco_val']}.",
        ABOUT,
    )
    return Table("segmentation", "Segmentation", "class", (Column("IoU"),), tuple(rows), notes)


def per_class(bench: Bench) -> Table:
    """IoU of each class: ours, and all that the paper prints (of COCO with --data coco, else of VOC)."""
    scores = _prediction_scores(bench)
    is_coco = bench.settings.data == "coco" or "motorcycle" in scores[0]["iou"]
    *others, acr = (theirs := NUMBERS["per-class-coco" if is_coco else "per-class-voc"])["methods"]
    names = [name for name in theirs if name not in ("methods", "mean")]
    names += [name for name in scores[0]["iou"] if name not in names]

    def row(title: str, ours: Cell, key: str) -> Row:
        numbers = theirs.get(key, [None] * len(others))[: len(others)]
        return Row(title, (ours, *(Cell((), number) for number in numbers)))

    rows = [row(name, _iou(scores, name, theirs.get(name)), name) for name in names]
    rows.append(row(MEAN, _score(scores, theirs["mean"][-1]), "mean"))
    columns = (Column("IoU"), *(Column(name, theirs=True) for name in others))
    notes = (
        f"IoU in per cent on {'MS COCO' if is_coco else 'PASCAL VOC'} val; the column paper is {acr}, the last ones "
        f"are the methods it is compared with. Ours: {scores[0]['images']} images.",
        *footnotes("per-class"),
        ABOUT,
    )
    return Table("per-class", "IoU of each class", "class", columns, tuple(rows), notes)


def compare(bench: Bench) -> Table:
    """A comparison with other methods as the paper prints it, and our row."""
    name = bench.settings.table
    title, columns = COMPARED[name]
    rows = []
    for method, venue, saliency, *numbers in NUMBERS[name]["rows"]:
        about = [f" ({venue})" if venue else "", ", with saliency" if saliency else ""]
        about.append(", seeds too" if numbers[-1] is True else "")
        cells = [
            Cell((), None if math.isnan(number) else number) for number in numbers[: len(columns)]
        ]
        rows.append(Row(method + "".join(about), tuple(cells)))
    rows.append(Row(OURS, _our_cells(bench, name)))
    notes = (
        "mIoU in per cent; all rows but the last are the paper's numbers.",
        *footnotes(name),
        ABOUT,
    )
    return Table(name, title, "method", tuple(map(Column, columns)), tuple(rows), notes)


def _our_cells(bench: Bench, name: str) -> tuple[Cell, ...]:
    if name == "compare-coco":
        return (_score(_prediction_scores(bench)),)
    if name == "compare-voc":  # the masks of test are on the server of the data set
        return _score(_prediction_scores(bench)), Cell()
    scores = _finished(bench, "seeds", "pseudo")
    scores = scores or [bench.label_scores(run) for run in bench.trained({"ACR": {}})["ACR"]]
    return at([seed["seeds"] for seed in scores], "refined", ORACLE), _score(
        [seed["pseudo"] for seed in scores]
    )


def _prediction_scores(bench: Bench) -> list[Any]:
    finished = _finished(bench, "predictions")
    if finished:
        return [finished[0]["predictions"]]
    return [bench.predicted(run)[1] for run in bench.trained({"ACR": {}})["ACR"]]


def _finished(bench: Bench, *needed: str) -> list[Any]:
    """The scores of the run that --scores names, none where it names none."""
    path = bench.settings.scores
    if path is None:
        return []
    file = path / layout.SCORES if path.is_dir() else path
    scores = read_json(file) if file.is_file() else None
    missing = [name for name in needed if not isinstance(scores, Mapping) or not scores.get(name)]
    if missing:
        raise TagmaskError(
            f"--scores {path} has no scores of {', '.join(missing)}; make them with `tagmask score`."
        )
    return [scores]


def _iou(scores: list[Any], name: str, paper: list[float] | None = None) -> Cell:
    """IoU of a class; the paper's own is the last of its numbers."""
    values = tuple(percent(seed["iou"][name]) for seed in scores if name in seed["iou"])
    return Cell(values, paper[-1] if paper else None)


def _score(scores: list[Any], paper: float | None = None, name: str = "miou_present") -> Cell:
    return Cell(tuple(percent(seed[name]) for seed in scores), paper)


def _only(scores: list[Any], only: Sequence[str]) -> list[Cell]:
    """The mean over the background and --only, where that is given."""
    return [Cell(tuple(mean_of(seed["iou"], only) for seed in scores))] if only else []
