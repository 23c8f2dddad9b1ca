"""Tables of seed scores: what is trained or localised differently in each row."""

from collections.abc import Mapping, Sequence
from typing import Any

from tagmask.errors import TagmaskError
from tagmask.models.kinds import load_classifier
from tagmask.paper import numbers
from tagmask.paper.bench import Bench, Changes
from tagmask.paper.measures import KINDS, ORACLE, SCORES, seed_columns, seed_notes, seed_row, value, value_of
from tagmask.paper.methods import TITLES
from tagmask.paper.numbers import Pair
from tagmask.paper.table import Cell, Chart, Column, Row, Table

OFF: Changes = {"alpha": 0.0, "beta": 0.0}
ACR: Changes = {"kind": "acr"}
ABLATION: Mapping[str, Changes] = {"none": OFF, "act": {"beta": 0.0}, "aff": {"alpha": 0.0}, "both": {}}
ABLATION_TITLES = {
    "none": "none (baseline)",
    "act": "activation (SEAM*)",
    "aff": "affinity",
    "both": "activation + affinity (ACR)",
}
BACKBONES: Mapping[str, Changes] = {
    "mct": {"kind": "mct", **OFF},
    "mct+acr": {"kind": "mct"},
    "acr": {"kind": "acr"},
}
BACKBONE_TITLES = {"mct": "MCTformer", "mct+acr": "MCTformer + ACR", "acr": "ACR"}


def ablation(bench: Bench) -> Table:
    """None, activation, affinity, both."""
    return _trained_rows(
        bench, "ablation", "Consistency", "consistency", ABLATION, dict(numbers.ABLATION), ABLATION_TITLES
    )


def backbones(bench: Bench) -> Table:
    """MCTformer without and with ACR, and ACR, on the backbone that is trained."""
    note = f"ours: {bench.settings.train.backbone}; paper: deit_small_patch16_224."
    paper = dict(numbers.BACKBONES)
    return _trained_rows(bench, "backbones", "Multi-class tokens", "model", BACKBONES, paper, BACKBONE_TITLES, note)


def augmentations(bench: Bench) -> Table:
    """The second view; `none` is the baseline of the ablation, as its number in the paper is."""
    variants: dict[str, Changes] = {view: OFF if view == "none" else {"view": view} for view in numbers.VIEWS}
    paper: dict[str, Pair] = {view: (None, number) for view, number in numbers.VIEWS.items()}
    titles = {view: view.replace("+", " + ") for view in numbers.VIEWS}
    return _trained_rows(bench, "augmentations", "Second view", "view", variants, paper, titles)


def distances(bench: Bench) -> Table:
    """L1, L2, smooth L1."""
    variants: dict[str, Changes] = {name: {"distance": name} for name in numbers.DISTANCES}
    paper: dict[str, Pair] = {name: (None, number) for name, number in numbers.DISTANCES.items()}
    return _trained_rows(bench, "distances", "Distance between attentions", "distance", variants, paper, {})


def methods(bench: Bench) -> Table:
    """Other methods on the same classifiers as ACR's."""
    chosen = bench.rows(TITLES)
    runs = bench.trained({"ACR": ACR})
    rows, scores = [], list[Any]()
    for method, title in chosen.items():
        scores = bench.scored(runs, method)["ACR"]
        rows.append(seed_row(bench, title, scores, numbers.METHODS[method]))
    notes = seed_notes(bench, scores)
    return Table("methods", "Seeds by method", "method", seed_columns(bench), tuple(rows), notes)


def layers(bench: Bench) -> Table:
    """mIoU, FP and FN over the first of the blocks whose gradients are fused."""
    asked = bench.settings.seeds
    if asked.method != "acr":
        raise TagmaskError(f"layers is about class gradients; --seeds.method {asked.method} has none, leave it out.")
    runs = bench.trained({"ACR": ACR})
    model = load_classifier(runs["ACR"][0].classifier)
    depth = len(model.blocks)
    rows, scores = [], list[Any]()
    for count in range(depth, 0, -1):
        is_default = count == model.map_layers and asked.layers is None  # whose scores other tables share
        changes = {} if is_default else {"layers": count}
        scores = bench.scored(runs, maps=changes)["ACR"]
        paper = numbers.BEST_LAYERS.get(count, (None, None))
        rows.append(Row(f"{depth - count}", _layer_cells(scores, paper, bench.settings.only)))
    notes = (
        f"blocks are counted from 0; the gradients of the first block to the last ({depth - 1}) are fused.",
        f"per cent, oracle threshold, {scores[0]['images']} images. FP: over-activation, FN: under-activation; "
        "aff.: with affinity.",
        "paper: improves as fewer, later blocks are used, saturates at the last two; the value there is all we know.",
        numbers.ABOUT,
    )
    titles = [f"{name}{end}" for end in ("", ", aff.") for name in SCORES.values()]
    titles += ["mIoU, only", "mIoU, only, aff."] if bench.settings.only else []
    charts = tuple(
        Chart(f"maps {kind}", tuple(range(start, start + len(SCORES))), "first block", "per cent")
        for kind, start in zip(KINDS.values(), (0, len(SCORES)), strict=True)
    )
    return Table("layers", "Blocks fused", "first block", tuple(map(Column, titles)), tuple(rows), notes, charts)


def _layer_cells(scores: list[Any], paper: Pair, only: Sequence[str]) -> tuple[Cell, ...]:
    cells = [
        Cell(tuple(value(one, kind, ORACLE, name) for one in scores), theirs if name == "miou_present" else None)
        for kind, theirs in zip(KINDS, paper, strict=True)
        for name in SCORES
    ]
    cells += [Cell(tuple(value_of(one, kind, ORACLE, only) for one in scores)) for kind in KINDS if only]
    return tuple(cells)


def _trained_rows(
    bench: Bench,
    name: str,
    title: str,
    head: str,
    variants: Mapping[str, Changes],
    paper: Mapping[str, Pair],
    titles: Mapping[str, str],
    *notes: str,
) -> Table:
    """A row for each way to train; every row has the same budget."""
    scores = bench.scored(bench.trained(bench.rows(variants)))
    rows = [seed_row(bench, titles.get(key, key), found, paper[key]) for key, found in scores.items()]
    told = (*seed_notes(bench, next(iter(scores.values()))), *notes)
    return Table(name, f"{title}: seeds", head, seed_columns(bench), tuple(rows), told)
