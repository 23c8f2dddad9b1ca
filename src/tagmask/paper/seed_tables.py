"""Tables of seed scores: what is trained or localised differently in each row."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from tagmask.config.presets import MCT_RECIPE
from tagmask.errors import TagmaskError
from tagmask.models.kinds import load_classifier
from tagmask.paper.bench import ORACLE, Bench, Changes, Run
from tagmask.paper.measures import KINDS, SCORES, at, only_at, seed_columns, seed_notes, seed_row
from tagmask.paper.numbers import ABOUT, Pair, footnotes, pairs
from tagmask.paper.paired import DRAWS, difference
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
BACKBONE_TITLES = {"mct": "MCTformer", "mct+acr": "MCTformer + ACR", "acr": "ACR"}
METHODS = {
    "cam": "CAM",
    "ts_cam": "TS-CAM",
    "grad_cam": "Grad-CAM",
    "generic": "Generic attention",
    "acr": "ACR",
}
MAP_TITLES = {**METHODS, "weighted": "Weighted by attention"}
GAIN_MAPS = (("acr", 1), ("acr", 2), ("weighted", 1), ("weighted", 2), ("generic", 1), ("generic", 2))


def ablation(bench: Bench) -> Table:
    """None, activation, affinity, both."""
    return _trained_rows(bench, "Consistency", "consistency", ABLATION, ABLATION_TITLES)


def backbones(bench: Bench) -> Table:
    """MCTformer without and with ACR, and ACR, on the backbone that is trained."""
    recipe = "its own recipe" if bench.settings.mct_recipe else "ACR's recipe (--mct-recipe: its own)"
    note = f"ours: {bench.settings.train.backbone}, MCTformer with {recipe}; paper: deit_small_patch16_224."
    return _trained_rows(bench, "Multi-class tokens", "model", mct_variants(bench), BACKBONE_TITLES, note)


def mct_variants(bench: Bench) -> dict[str, Changes]:
    """MCTformer, MCTformer with consistency, ACR."""
    mct: Changes = {"kind": "mct", **(MCT_RECIPE if bench.settings.mct_recipe else {})}
    return {"mct": {**mct, **OFF}, "mct+acr": mct, "acr": ACR}


def augmentations(bench: Bench) -> Table:
    """The second view; `none` is the baseline of the ablation, as its number in the paper is."""
    views = pairs("augmentations")
    variants: dict[str, Changes] = {view: OFF if view == "none" else {"view": view} for view in views}
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
    chosen = bench.rows(METHODS)
    runs = bench.trained({"ACR": ACR})
    scores = {method: bench.scored(runs, method)["ACR"] for method in chosen}
    rows = [seed_row(bench, title, scores[method], pairs("methods")[method]) for method, title in chosen.items()]
    notes = seed_notes(bench, next(iter(scores.values())))
    return Table("methods", "Seeds by method", "method", seed_columns(bench), tuple(rows), notes)


def gains(bench: Bench) -> Table:
    """What each consistency brings over the baseline, by every kind of map, with intervals."""
    variants = bench.rows(ABLATION)
    if len(variants) < 2 or "none" not in variants:
        raise TagmaskError("gains compares with the baseline; give --rows none and at least one other row.")
    runs = bench.trained(variants)
    columns = [Column(_at(rule, ABLATION_TITLES["none"])) for rule in bench.rules]
    columns += [Column(_at(rule, ABLATION_TITLES[name]), gain=True) for name in variants for rule in bench.rules][2:]
    rows = [row for method, steps in GAIN_MAPS for row in _gain_rows(bench, runs, method, steps)]
    only = bench.settings.only
    notes = (
        f"mIoU of seeds in per cent over {'background, ' + ', '.join(only) if only else 'the classes present'}, "
        f"{len(bench.scored_images)} images; others: gain over the baseline in points.",
        f"± is the standard deviation over {bench.settings.random_seeds} random seeds; [ ] holds 95 % of "
        f"{DRAWS} draws of the photos (paired bootstrap of the mean over the seeds, thresholds as they are).",
        f"threshold tuned on the masks (oracle); blind: by {bench.rules[1]}, chosen without masks.",
    )
    return Table("gains", "Gain of the consistency", "maps", tuple(columns), tuple(rows), notes)


def _at(rule: str, title: str) -> str:
    return title if rule == ORACLE else f"{title}, blind"


def _gain_rows(bench: Bench, runs: Mapping[str, Sequence[Run]], method: str, steps: int) -> list[Row]:
    """Maps of a method after so many affinity steps; before the rows of one step that of none."""
    scores = bench.scored(runs, method, {"affinity_steps": steps})
    names, only = ("background", *bench.scored_images.classes), bench.settings.only
    classes = [names.index(name) for name in ("background", *only)] if only else None
    rows = []
    for kind in KINDS if steps == 1 else list(KINDS)[1:]:
        value = partial(only_at, only=only) if only else at
        cells = [value(scores["none"], kind, rule) for rule in bench.rules]
        for name in scores:
            for rule in bench.rules if name != "none" else ():
                ours, theirs = ([seed["photos"][kind][rule] for seed in scores[row]] for row in (name, "none"))
                of_seeds, interval = difference(ours, theirs, classes)
                cells.append(Cell(of_seeds, interval=interval))
        title = "without affinity" if kind == "plain" else f"affinity, {steps} step{'s' * (steps > 1)}"
        rows.append(Row(f"{MAP_TITLES.get(method, method)}, {title}", tuple(cells)))
    return rows


def layers(bench: Bench) -> Table:
    """mIoU, FP and FN over the first of the blocks whose gradients are fused."""
    asked, only = bench.settings.seeds, bench.settings.only
    if asked.method != "acr":
        raise TagmaskError(f"layers is about class gradients; --seeds.method {asked.method} has none, leave it out.")
    runs = bench.trained({"ACR": ACR})
    model = load_classifier(runs["ACR"][0].classifier)
    depth = len(model.blocks)
    rows, scores = [], list[Any]()
    for count in range(depth, 0, -1):
        is_default = count == model.map_layers and asked.layers is None  # other tables share its scores
        scores = bench.scored(runs, maps={} if is_default else {"layers": count})["ACR"]
        paper: Pair = pairs("ablation")["both"] if count == 2 else (None, None)
        cells = [
            at(scores, kind, ORACLE, name, number if name == "miou_present" else None)
            for kind, number in zip(KINDS, paper, strict=True)
            for name in SCORES
        ]
        rows.append(Row(f"{depth - count}", (*cells, *(only_at(scores, kind, ORACLE, only) for kind in KINDS if only))))
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
    return Table("layers", "Blocks fused", "first block", tuple(map(Column, titles)), tuple(rows), notes, charts)


def _trained_rows(
    bench: Bench, title: str, head: str, variants: Mapping[str, Changes], titles: Mapping[str, str], *notes: str
) -> Table:
    """A row for each way to train."""
    name = bench.settings.table
    paper = pairs(name)
    scores = bench.scored(bench.trained(bench.rows(variants)))
    rows = [seed_row(bench, titles.get(key, key), seeds, paper[key]) for key, seeds in scores.items()]
    every_note = (*seed_notes(bench, next(iter(scores.values()))), *notes, *footnotes(name))
    return Table(name, f"{title}: seeds", head, seed_columns(bench), tuple(rows), every_note)
