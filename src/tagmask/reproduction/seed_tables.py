"""Tables of seed scores: what is trained or localised differently in each row."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tagmask.config import SeedSettings, TrainSettings
from tagmask.config.presets import (
    DEIT_S,
    DEIT_S_MAPS,
    MCT_ALONE,
    MCT_INSTEAD,
    MCT_MAPS,
    MCT_RECIPE,
    MCT_WARMUP_EPOCHS,
    PRESETS,
    Section,
)
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
from tagmask.training.loop import total_steps

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
# tables and figures that train an MCTformer beside ACR
MCT_TABLES = ("backbones", "maps")
BACKBONE_TITLES = {"mct": "MCTformer", "mct+acr": "MCTformer + ACR", "acr": "ACR"}
NO_CONSISTENCY = "none: two views, no consistency"
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
    """Compare MCTformer without and with ACR, and ACR, all on one backbone.

    It is the one that is trained. Strict settings (``mct_recipe``) of ViT-hybrid-B take DeiT-S in
    its place, on which the paper makes this comparison.
    """
    variants = mct_variants(bench)
    maps = {"mct": mct_maps(bench), "mct+acr": mct_maps(bench), "acr": second_backbone(bench)[1]}
    return _trained_rows(
        bench,
        "Multi-class tokens",
        "model",
        variants,
        BACKBONE_TITLES,
        maps=maps,
        first_note=_backbone_note(bench, variants),
    )


def _backbone_note(bench: Bench, variants: Mapping[str, Changes]) -> str:
    """Say on which backbone and by which recipe the rows of ``backbones`` are trained."""
    own = bench.settings.run(Path(), changes=variants["mct"]).of(TrainSettings)
    recipe = "ACR's recipe and views (--mct-recipe: its own)"
    if bench.settings.mct_recipe:
        recipe = (
            f"its own recipe ({budget(own)}, one view alone, with ACR two), without random "
            "erasing and its lowest learning rate, and its own maps: three blocks, A·g, photos at "
            "their own size"
        )
    theirs = DEIT_S["backbone"]
    backbone = f"{own.backbone}, as in the paper"
    if own.backbone != theirs:
        backbone = (
            f"{own.backbone}; the paper's numbers are of {theirs}, so they cannot be compared with "
            "ours"
        )
    return f"ours: {backbone}. MCTformer is trained by {recipe}."


def second_backbone(bench: Bench) -> tuple[Changes, Changes]:
    """Return the settings of training and of maps that put DeiT-S in the place of ViT-hybrid-B.

    The paper compares with MCTformer on DeiT-S alone. What is not as voc-paper has it stays as it
    is, and so does another backbone.

    Returns:
        Both are empty unless the settings are strict (``mct_recipe``) and train ViT-hybrid-B.

    Raises:
        TagmaskError: DeiT-S cannot start from the file of another backbone's weights.
    """
    settings = bench.settings
    train = settings.of(TrainSettings)
    first = PRESETS["voc-paper"]
    hybrid = first["train"]["backbone"]
    if not settings.mct_recipe or train.backbone != hybrid:
        return {}, {}
    if train.weights is not None:
        raise TagmaskError(
            f"{settings.table} trains MCTformer on {DEIT_S['backbone']}, as the paper does, and "
            f"--train.weights is for {hybrid}; give --preset voc-deit-s-paper and weights of its "
            "backbone, or --no-mct-recipe to train MCTformer on yours."
        )
    maps = settings.of(SeedSettings)
    return (
        _where_unchanged(train, first["train"], DEIT_S),
        _where_unchanged(maps, first["seeds"], DEIT_S_MAPS),
    )


def _where_unchanged(settings: Any, before: Section, after: Section) -> Changes:
    """Return those new values whose settings still are what the preset had before."""
    return {name: value for name, value in after.items() if getattr(settings, name) == before[name]}


def mct_maps(bench: Bench) -> Changes:
    """Return the settings of maps that MCTformer's own recipe changes."""
    return MCT_MAPS if bench.settings.mct_recipe else {}


def mct_recipe(bench: Bench) -> Changes:
    """Return the training settings of MCTformer's own recipe; none unless it is asked for.

    Its warm-up is five epochs of the images that are trained on.
    """
    if not bench.settings.mct_recipe:
        return {}
    own = {**MCT_RECIPE, **MCT_INSTEAD}
    train = dataclasses.replace(bench.settings.of(TrainSettings), **own)
    images = len(bench.training_images)
    if train.val_split is None:
        training, _ = bench.training_images.split(train.val_fraction, train.seed)
        images = len(training)
    steps = total_steps(train, images)
    return {**own, "warmup": round(steps * MCT_WARMUP_EPOCHS / train.epochs)}


def mct_variants(bench: Bench) -> dict[str, Changes]:
    """Return the training settings of MCTformer, MCTformer with consistency, and ACR."""
    backbone, _ = second_backbone(bench)
    recipe = mct_recipe(bench)
    mct: dict[str, Any] = {"kind": "mct", **backbone, **recipe}
    alone = MCT_ALONE if recipe else OFF
    return {"mct": {**mct, **alone}, "mct+acr": mct, "acr": {**ACR, **backbone}}


def augmentations(bench: Bench) -> Table:
    """Compare kinds of second view; `none` is the baseline of the ablation, as in the paper.

    It has two views, as all rows, and no consistency between them.
    """
    variants: dict[str, Changes] = {}
    titles = {}
    for view in pairs("augmentations"):
        variants[view] = OFF if view == "none" else {"view": view}
        titles[view] = view.replace("+", " + ")
    titles["none"] = NO_CONSISTENCY
    note = (
        "the paper states neither the scale of the resized view (0.5 here) nor the share of hidden "
        "patches (0.25: the authors' code). Its last row is called Baseline (no aug); whether the "
        "classification loss has a second view there is not stated. Ours has one, mirrored, as the "
        "baseline of the ablation."
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
        "the pixels found, as SEAM's text has them; which of the two the paper plots is not "
        "stated. aff.: with affinity.",
        "paper: mIoU rises and FN falls as fewer, later blocks are used; both saturate at the last "
        "two, and FP is above FN throughout. It is a plot without numbers: 59.4 and 67.3 are those "
        "of its tables, taken to be of two blocks, as in the authors' code.",
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
    first_note: str | None = None,
) -> Table:
    """Train every variant and return a table with a row for each.

    ``maps`` changes the settings of maps for some variants; ``first_note`` stands above those that
    all seed tables have.
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
    above = () if first_note is None else (first_note,)
    all_notes = (*above, *seed_notes(bench), *notes, *footnotes(name))
    return Table(
        name=name,
        title=f"{title}: seeds",
        head=head,
        columns=seed_columns(bench),
        rows=tuple(rows),
        notes=all_notes,
    )
