"""Tables of seed scores: what is trained or localised differently in each row."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tagmask.config import SeedSettings, TrainSettings
from tagmask.config.presets import MCT_ALONE, MCT_INSTEAD, MCT_MAPS, MCT_RECIPE
from tagmask.config.seeds import MAP_METHODS
from tagmask.errors import TagmaskError
from tagmask.methods import METHODS as REGISTRY
from tagmask.models.kinds import load_classifier
from tagmask.reproduction.bench import ORACLE, Bench, Changes
from tagmask.reproduction.measures import (
    KINDS,
    SCORES,
    SEAM_SCORES,
    at,
    budget,
    only_at,
    seed_columns,
    seed_notes,
    seed_row,
    unlike_acr,
)
from tagmask.reproduction.numbers import Pair, about, footnotes, pairs
from tagmask.reproduction.table import Cell, Chart, Column, Table, TableRow

OFF: Changes = {"alpha": 0.0, "beta": 0.0}
ACR: Changes = {"kind": "acr", "mct_read": None}
ABLATION: Mapping[str, Changes] = {
    "none": OFF,
    "act": {"beta": 0.0},
    "aff": {"alpha": 0.0},
    "both": {},
}
ABLATION_TITLES = {
    "none": "none (baseline)",
    "act": "activation (SEAM*)",
    "aff": "affinity",
    "both": "activation + affinity (ACR)",
}
BACKBONE_TITLES = {"mct": "MCTformer", "mct+acr": "MCTformer + ACR", "acr": "ACR"}
METHODS = {
    "cam": "CAM",
    "ts_cam": "TS-CAM",
    "grad_cam": "Grad-CAM",
    "generic": "Generic attention",
    "acr": "ACR",
}
# the last two are not in the paper
MAP_TITLES = {**METHODS, "weighted": "Weighted by attention", "legrad": "LeGrad"}
# rollout knows no classes, so --rows alone shows it
ON_DEMAND = {"rollout": "Attention rollout"}


def ablation(bench: Bench) -> Table:
    """Compare trainings without consistency, with activation, affinity, and both."""
    return _trained_rows(bench, "Consistency", "consistency", ABLATION, ABLATION_TITLES)


def backbones(bench: Bench) -> Table:
    """Compare MCTformer without and with ACR, and ACR, on the backbone that is trained."""
    variants = mct_variants(bench)
    recipe = "ACR's recipe and views (--mct-recipe: its own)"
    if bench.settings.mct_recipe:
        own = bench.settings.run(Path(), changes=variants["mct"]).of(TrainSettings)
        recipe = (
            f"its own recipe ({budget(own)}, one view alone, with ACR two), without random "
            "erasing and its lowest learning rate, and its own maps: three blocks, A·g, photos at "
            "their own size"
        )
    note = (
        f"ours: {bench.settings.of(TrainSettings).backbone}, MCTformer with {recipe}; "
        "paper: deit_small_patch16_224."
    )
    maps = {name: mct_maps(bench) for name in ("mct", "mct+acr")}
    return _trained_rows(
        bench, "Multi-class tokens", "model", variants, BACKBONE_TITLES, note, maps=maps
    )


def mct_maps(bench: Bench) -> Changes:
    """Return the settings of maps that MCTformer's own recipe changes."""
    return MCT_MAPS if bench.settings.mct_recipe else {}


def mct_variants(bench: Bench) -> dict[str, Changes]:
    """Return the training settings of MCTformer, MCTformer with consistency, and ACR."""
    mct: dict[str, Any] = {"kind": "mct"}
    alone: Changes = OFF
    if bench.settings.mct_recipe:
        mct |= {**MCT_RECIPE, **MCT_INSTEAD}
        alone = MCT_ALONE
    return {"mct": {**mct, **alone}, "mct+acr": mct, "acr": ACR}


def augmentations(bench: Bench) -> Table:
    """Compare kinds of second view; `none` is the baseline of the ablation, as in the paper."""
    variants: dict[str, Changes] = {}
    titles = {}
    for view in pairs("augmentations"):
        variants[view] = OFF if view == "none" else {"view": view}
        titles[view] = view.replace("+", " + ")
    note = (
        "the paper states neither the scale of the resized view (0.5 here) nor the share of hidden "
        "patches (0.25: the authors' code)."
    )
    return _trained_rows(bench, "Second view", "view", variants, titles, note)


def distances(bench: Bench) -> Table:
    """Compare distances between attentions: L1, L2, smooth L1."""
    variants: dict[str, Changes] = {name: {"distance": name} for name in pairs("distances")}
    return _trained_rows(bench, "Distance between attentions", "distance", variants, {})


def methods(bench: Bench) -> Table:
    """Compare map methods on the same classifiers as ACR's; those of the user come last."""
    own = own_methods()
    titles = {**MAP_TITLES, **{name: name for name in own}}
    chosen = bench.rows({**titles, **ON_DEMAND}, by_default=titles)
    runs = bench.trained({"ACR": ACR})
    scores = {method: bench.scored(runs, method)["ACR"] for method in chosen}
    paper = pairs("methods")
    rows = []
    for method, title in chosen.items():
        numbers = paper.get(method, (None, None))
        rows.append(seed_row(bench, title, scores[method], numbers))
    notes = [*seed_notes(bench), "weighted by attention and LeGrad are not in the paper."]
    shown = [name for name in own if name in chosen]
    if shown:
        notes.append(f"not part of tagmask: {', '.join(shown)}.")
    return Table(
        name="methods",
        title="Seeds by method",
        head="method",
        columns=seed_columns(bench),
        rows=tuple(rows),
        notes=tuple(notes),
    )


def own_methods() -> list[str]:
    """Return the map methods that somebody has added to the registry, in its order."""
    return [name for name in REGISTRY if name not in MAP_METHODS and name != "mct"]


def layers(bench: Bench) -> Table:
    """Score maps over the first of the blocks whose gradients are fused: mIoU, FP and FN."""
    asked = bench.settings.of(SeedSettings)
    only = bench.settings.only
    if asked.method != "acr":
        raise TagmaskError(
            f"layers is about class gradients; --seeds.method {asked.method} has none, "
            "leave it out."
        )
    runs = bench.trained({"ACR": ACR})
    model = load_classifier(runs["ACR"][0].classifier)
    depth = len(model.blocks)
    rows = []
    for count in range(depth, 0, -1):
        # with the default number of blocks, other tables share the scores
        is_default = count == model.map_layers and asked.layers is None
        changes = {} if is_default else {"layers": count}
        scores = bench.scored(runs, maps=changes)["ACR"]
        paper: Pair = pairs("ablation")["both"] if count == 2 else (None, None)
        first_block = depth - count
        rows.append(TableRow(str(first_block), _layer_cells(scores, paper, only)))
    return Table(
        name="layers",
        title="Blocks fused",
        head="first block",
        columns=_layer_columns(only),
        rows=tuple(rows),
        notes=_layer_notes(bench, depth),
        charts=_layer_charts(),
    )


def _layer_cells(scores: list[Any], paper: Pair, only: Sequence[str]) -> tuple[Cell, ...]:
    """Return the cells of a row: all scores without and with affinity, then those of --only."""
    cells = []
    for kind, number in zip(KINDS, paper, strict=True):
        for name in SEAM_SCORES:
            beside = number if name == "miou_present" else None
            cells.append(at(scores, kind, ORACLE, name, beside))
    if only:
        cells += [only_at(scores, kind, ORACLE, only) for kind in KINDS]
    return tuple(cells)


def _layer_columns(only: Sequence[str]) -> tuple[Column, ...]:
    titles = list(SEAM_SCORES.values())
    titles += [f"{name}, aff." for name in SEAM_SCORES.values()]
    if only:
        titles += ["mIoU, only", "mIoU, only, aff."]
    return tuple(map(Column, titles))


def _layer_notes(bench: Bench, depth: int) -> tuple[str, ...]:
    images = bench.scored_on()
    return (
        "blocks are counted from 0; "
        f"the gradients of the first block to the last ({depth - 1}) are fused.",
        f"per cent, oracle threshold, {images}. FP: over-activation, FN: under-activation, "
        "as shares of the union (FP + FN + IoU = 100 of each class); FP/TP and FN/TP: as shares of "
        "the pixels found, as SEAM and so the paper have them; aff.: with affinity.",
        "paper: mIoU rises and FN falls as fewer, later blocks are used; both saturate at the last "
        "two, and FP is above FN throughout. It is a plot: only the mIoU of the last two blocks is "
        "known from the tables.",
        *unlike_acr(bench),
        about(),
    )


def _layer_charts() -> tuple[Chart, ...]:
    """Return a chart for each kind of maps, whose columns stand side by side."""
    charts = []
    for number, kind in enumerate(KINDS.values()):
        start = number * len(SEAM_SCORES)
        # ratios to the pixels found have no upper end, so they are left out
        columns = tuple(range(start, start + len(SCORES)))
        charts.append(Chart(f"maps {kind}", columns, "first block", "per cent"))
    return tuple(charts)


def _trained_rows(
    bench: Bench,
    title: str,
    head: str,
    variants: Mapping[str, Changes],
    titles: Mapping[str, str],
    *notes: str,
    maps: Mapping[str, Changes] | None = None,
) -> Table:
    """Train every variant and return a table with a row for each.

    ``maps`` changes the settings of maps for some variants.
    """
    name = bench.settings.table
    paper = pairs(name)
    scores: dict[str, list[Any]] = {}
    for variant, runs in bench.trained(bench.rows(variants)).items():
        changes = (maps or {}).get(variant)
        scores |= bench.scored({variant: runs}, maps=changes)
    rows = []
    for variant, seeds in scores.items():
        row_title = titles.get(variant, variant)
        rows.append(seed_row(bench, row_title, seeds, paper[variant]))
    all_notes = (*seed_notes(bench), *notes, *footnotes(name))
    return Table(
        name=name,
        title=f"{title}: seeds",
        head=head,
        columns=seed_columns(bench),
        rows=tuple(rows),
        notes=all_notes,
    )
