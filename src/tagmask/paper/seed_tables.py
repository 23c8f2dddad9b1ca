"""Tables of seed scores: what is trained or localised differently in each row."""

from collections.abc import Mapping
from typing import Any

from tagmask.config.presets import MCT_RECIPE
from tagmask.errors import TagmaskError
from tagmask.models.kinds import load_classifier
from tagmask.paper.bench import ORACLE, Bench, Changes
from tagmask.paper.measures import KINDS, SCORES, at, only_at, seed_columns, seed_notes, seed_row
from tagmask.paper.numbers import ABOUT, Pair, footnotes, pairs
from tagmask.paper.table import Chart, Column, Row, Table

OFF: Changes = {"alpha": 0.0, "beta": 0.0}
ACR: Changes = {"kind": "acr"}
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
MAP_TITLES = {
    **METHODS,
    "weighted": "Weighted by attention",
    "legrad": "LeGrad",
}  # the last two are not in the paper


def ablation(bench: Bench) -> Table:
    """None, activation, affinity, both."""
    return _trained_rows(bench, "Consistency", "consistency", ABLATION, ABLATION_TITLES)


def backbones(bench: Bench) -> Table:
    """MCTformer without and with ACR, and ACR, on the backbone that is trained."""
    recipe = (
        "its own recipe" if bench.settings.mct_recipe else "ACR's recipe (--mct-recipe: its own)"
    )
    note = f"ours: {bench.settings.train.backbone}, MCTformer with {recipe}; paper: deit_small_patch16_224."
    return _trained_rows(
        bench, "Multi-class tokens", "model", mct_variants(bench), BACKBONE_TITLES, note
    )


def mct_variants(bench: Bench) -> dict[str, Changes]:
    """MCTformer, MCTformer with consistency, ACR."""
    mct: Changes = {"kind": "mct", **(MCT_RECIPE if bench.settings.mct_recipe else {})}
    return {"mct": {**mct, **OFF}, "mct+acr": mct, "acr": ACR}


def augmentations(bench: Bench) -> Table:
    """The second view; `none` is the baseline of the ablation, as its number in the paper is."""
    views = pairs("augmentations")
    variants: dict[str, Changes] = {
        view: OFF if view == "none" else {"view": view} for view in views
    }
    titles = {view: view.replace("+", " + ") for view in views}
    note = (
        "the paper states neither the scale of the resized view (0.5 here) nor the share of hidden patches (0.25: the "
        "authors' code)."
    )
    return _trained_rows(bench, "Second view", "view", variants, titles, note)


def distances(bench: Bench) -> Table:
    """L1, L2, smooth L1."""
    variants: dict[str, Changes] = {name: {"distance": name} for name in pairs("distances")}
    return _trained_rows(bench, "Distance between attentions", "distance", variants, {})


def methods(bench: Bench) -> Table:
    """Other methods on the same classifiers as ACR's."""
    chosen = bench.rows(MAP_TITLES)
    runs = bench.trained({"ACR": ACR})
    scores = {method: bench.scored(runs, method)["ACR"] for method in chosen}
    paper = pairs("methods")
    rows = [
        seed_row(bench, title, scores[m], paper.get(m, (None, None))) for m, title in chosen.items()
    ]
    notes = seed_notes(bench, next(iter(scores.values())))
    return Table("methods", "Seeds by method", "method", seed_columns(bench), tuple(rows), notes)


def layers(bench: Bench) -> Table:
    """mIoU, FP and FN over the first of the blocks whose gradients are fused."""
    asked, only = bench.settings.seeds, bench.settings.only
    if asked.method != "acr":
        raise TagmaskError(
            f"layers is about class gradients; --seeds.method {asked.method} has none, leave it out."
        )
    runs = bench.trained({"ACR": ACR})
    model = load_classifier(runs["ACR"][0].classifier)
    depth = len(model.blocks)
    rows, scores = [], list[Any]()
    for count in range(depth, 0, -1):
        is_default = (
            count == model.map_layers and asked.layers is None
        )  # other tables share its scores
        scores = bench.scored(runs, maps={} if is_default else {"layers": count})["ACR"]
        paper: Pair = pairs("ablation")["both"] if count == 2 else (None, None)
        cells = [
            at(scores, kind, ORACLE, name, number if name == "miou_present" else None)
            for kind, number in zip(KINDS, paper, strict=True)
            for name in SCORES
        ]
        rows.append(
            Row(
                f"{depth - count}",
                (*cells, *(only_at(scores, kind, ORACLE, only) for kind in KINDS if only)),
            )
        )
    notes = (
        f"blocks are counted from 0; the gradients of the first block to the last ({depth - 1}) are fused.",
        f"per cent, oracle threshold, {scores[0]['images']} images. FP: over-activation, FN: under-activation; "
        "aff.: with affinity.",
        "paper: mIoU rises and FN falls as fewer, later blocks are used; both saturate at the last two, and FP is "
        "above FN throughout. It is a plot: only the mIoU of the last two blocks is known from the tables.",
        ABOUT,
    )
    titles = [f"{name}{end}" for end in ("", ", aff.") for name in SCORES.values()]
    titles += ["mIoU, only", "mIoU, only, aff."] if only else []
    charts = tuple(
        Chart(f"maps {kind}", tuple(range(start, start + len(SCORES))), "first block", "per cent")
        for kind, start in zip(KINDS.values(), (0, len(SCORES)), strict=True)
    )
    return Table(
        "layers",
        "Blocks fused",
        "first block",
        tuple(map(Column, titles)),
        tuple(rows),
        notes,
        charts,
    )


def _trained_rows(
    bench: Bench,
    title: str,
    head: str,
    variants: Mapping[str, Changes],
    titles: Mapping[str, str],
    *notes: str,
) -> Table:
    """A row for each way to train."""
    name = bench.settings.table
    paper = pairs(name)
    scores = bench.scored(bench.trained(bench.rows(variants)))
    rows = [
        seed_row(bench, titles.get(key, key), seeds, paper[key]) for key, seeds in scores.items()
    ]
    every_note = (*seed_notes(bench, next(iter(scores.values()))), *notes, *footnotes(name))
    return Table(name, f"{title}: seeds", head, seed_columns(bench), tuple(rows), every_note)
