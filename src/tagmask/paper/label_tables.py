"""Tables of the later stages: pseudo labels and segmentation."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tagmask.paper import numbers
from tagmask.paper.bench import Bench
from tagmask.paper.measures import KINDS, ORACLE, SCORES, mean_of, value, value_of
from tagmask.paper.table import Cell, Column, Row, Table

MEAN = "mean over the classes present"


def pseudo(bench: Bench) -> Table:
    """Seeds and the pseudo labels made from them, on the images that were trained on."""
    scores = [bench.label_scores(run) for run in bench.trained({"ACR": {}})["ACR"]]
    seeds = [one["seeds"] for one in scores]
    rows = [
        Row(f"seeds {title}", _seed_cells(bench, seeds, kind, ORACLE, numbers.SEEDS if kind == "refined" else None))
        for kind, title in KINDS.items()
    ]
    blind, only = bench.settings.pseudo.rule, bench.settings.only
    rows.append(Row("seeds with affinity, blind threshold", _seed_cells(bench, seeds, "refined", blind, None)))
    labels = [one["pseudo"] for one in scores]
    cells = [Cell(tuple(_percent(one[name]) for one in labels)) for name in SCORES]
    cells += [Cell(tuple(mean_of(one["iou"], only) for one in labels))] if only else []
    rows.append(Row("pseudo labels", (Cell(cells[0].ours, numbers.PSEUDO), *cells[1:])))
    notes = (
        f"in per cent, the {labels[0]['images']} images trained on, as in the paper; seeds at the oracle threshold "
        f"unless blind ({blind}, chosen without masks); labels by {bench.settings.pseudo.method}, from seeds "
        f"{KINDS[bench.settings.pseudo.source()]}. FP: over-activation, FN: under-activation.",
        *([f"only: mean over background, {', '.join(only)}."] if only else []),
        numbers.ABOUT,
    )
    titles = [*SCORES.values(), *(["mIoU, only"] if only else [])]
    return Table("pseudo", "From seeds to pseudo labels", "stage", tuple(map(Column, titles)), tuple(rows), notes)


def _seed_cells(
    bench: Bench, seeds: Sequence[Mapping[str, Any]], kind: str, rule: str, paper: float | None
) -> tuple[Cell, ...]:
    cells = [Cell(tuple(value(one, kind, rule, name) for one in seeds)) for name in SCORES]
    only = bench.settings.only
    cells += [Cell(tuple(value_of(one, kind, rule, only) for one in seeds))] if only else []
    return (Cell(cells[0].ours, paper), *cells[1:])


def segmentation(bench: Bench) -> Table:
    """IoU of the predictions, class by class."""
    scores = [bench.prediction_scores(run) for run in bench.trained({"ACR": {}})["ACR"]]
    only = bench.settings.only
    rows = [Row(name, (Cell(tuple(_percent(one["iou"][name]) for one in scores)),)) for name in scores[0]["iou"]]
    theirs = numbers.SEGMENTATION["COCO val" if bench.settings.data == "coco" else "VOC val"]
    if only:
        rows.append(Row("mean over background and --only", (Cell(tuple(mean_of(one["iou"], only) for one in scores)),)))
    rows.append(Row(MEAN, (Cell(tuple(_percent(one["miou_present"]) for one in scores), theirs),)))
    told = ", ".join(f"{name} {number}" for name, number in numbers.SEGMENTATION.items())
    notes = (
        f"IoU in per cent of {bench.settings.segment.backbone}'s masks on {scores[0]['images']} images; it learnt from "
        "pseudo labels of the images trained on.",
        f"paper: the means are {told}.",
        numbers.ABOUT,
    )
    return Table("segmentation", "Segmentation", "class", (Column("IoU"),), tuple(rows), notes)


def _percent(found: float | None) -> float:
    return math.nan if found is None else 100 * found
