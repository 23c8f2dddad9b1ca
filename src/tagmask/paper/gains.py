"""What the consistency brings over the baseline, with intervals: by every kind of map, and through the whole chain."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tagmask.errors import TagmaskError
from tagmask.paper.bench import ORACLE, Bench, Run
from tagmask.paper.measures import KINDS, at, mean_of, only_at
from tagmask.paper.paired import DRAWS, Gain, difference, mean_gain
from tagmask.paper.seed_tables import ABLATION, ABLATION_TITLES, MAP_TITLES
from tagmask.paper.table import BLIND, NONE, Cell, Column, Row, Table
from tagmask.stages.score import check_masks

GAIN_MAPS = (
    ("acr", 1),
    ("acr", 2),
    ("weighted", 1),
    ("weighted", 2),
    ("generic", 1),
    ("generic", 2),
)
_Kind = tuple[
    str, list[Cell], list[Gain | None]
]  # of maps: title, baseline by each rule, gains over it
INTERVAL_NOTE = (
    f"gains over the baseline in points; [ ] holds 95 % of {DRAWS} draws of the photos (paired bootstrap of the mean "
    "over the random seeds, thresholds as they are)."
)


def gains(bench: Bench) -> Table:
    """What each consistency brings over the baseline, by every kind of map, with intervals."""
    variants = bench.rows(ABLATION)
    if len(variants) < 2 or "none" not in variants:
        raise TagmaskError(
            "gains compares with the baseline; give --rows none and at least one other row."
        )
    runs = bench.trained(variants)
    columns = [Column(_at(rule, ABLATION_TITLES["none"])) for rule in bench.rules]
    columns += [
        Column(_at(rule, ABLATION_TITLES[name]), gain=True)
        for name in variants
        for rule in bench.rules
    ][2:]
    maps = [kind for method, steps in GAIN_MAPS for kind in _map_gains(bench, runs, method, steps)]
    rows = [_gain_row(*kind) for kind in (*maps, _mean_of_maps(maps))]
    blind = (
        f"threshold tuned on the masks (oracle); blind: by {bench.rules[1]}, chosen without masks."
    )
    by_seed = "; ".join(
        f"{column.title} {', '.join(f'{gain:+.1f}' for gain in cell.ours) or NONE}"
        for column, cell in zip(columns[2:], rows[-1].cells[2:], strict=True)
    )
    notes = (
        _score_note(bench),
        INTERVAL_NOTE,
        blind,
        f"mean of the maps for each seed: {by_seed}.",
    )
    return Table("gains", "Gain of the consistency", "maps", tuple(columns), tuple(rows), notes)


def chain(bench: Bench) -> Table:
    """Does the gain of the consistency survive to the masks? Baseline and ACR through every stage."""
    check_masks(bench.training_images)
    runs = bench.trained({name: ABLATION[name] for name in ("none", "both")})
    blind = bench.rules[1]
    seeds = bench.scored(runs)
    labels = {
        name: [bench.label_scores(run, bench.training_images) for run in row]
        for name, row in runs.items()
    }
    rows = [
        _chain_row(bench, f"seeds, {title}", {
            name: [(seed[kind]["thresholds"].get(blind, {}), seed["photos"][kind].get(blind)) for seed in variant]
            for name, variant in seeds.items()
        })
        for kind, title in KINDS.items()
    ]  # fmt: skip
    stages = {"pseudo labels of the images trained on": labels}
    for title, told in (("told", True), ("not told", False)):
        masks = {
            name: [bench.predicted(run, told=told)[1] for run in row] for name, row in runs.items()
        }
        stages[f"masks, {title} the tags"] = masks
    for title, scores in stages.items():
        pairs_of = {
            name: [(s.get("pseudo", s), s["photos"]) for s in variant]
            for name, variant in scores.items()
        }
        rows.append(_chain_row(bench, title, pairs_of))
    columns = (*(Column(ABLATION_TITLES[name]) for name in runs), Column("gain", gain=True))
    notes = (
        _score_note(bench),
        f"thresholds of seeds by {blind}, chosen without masks.",
        INTERVAL_NOTE,
    )
    return Table(
        "chain",
        "From seeds to masks, without and with consistency",
        "stage",
        columns,
        tuple(rows),
        notes,
    )


def _chain_row(bench: Bench, title: str, scores: Mapping[str, Sequence[tuple[Any, Any]]]) -> Row:
    """Scores and counts of photos of baseline and ACR."""
    only = bench.settings.only
    cells = [Cell(tuple(_mean(s.get("iou", {}), only) for s, _ in row)) for row in scores.values()]
    theirs, ours = ([photos for _, photos in variant] for variant in scores.values())
    return Row(title, (*cells, _cell(_gain(ours, theirs, _class_numbers(bench)))))


def _mean(ious: Mapping[str, float | None], only: Sequence[str]) -> float:
    return mean_of(ious, only or tuple(ious)[1:])


def _gain(ours: Sequence[Any], theirs: Sequence[Any], classes: Sequence[int] | None) -> Gain | None:
    """The gain from counts of photos; None where a rule chose no threshold, so that there are none."""
    return None if None in (*ours, *theirs) else difference(ours, theirs, classes)


def _cell(gain: Gain | None) -> Cell:
    return Cell() if gain is None else Cell(tuple(gain.of_seeds.tolist()), interval=gain.interval)


def _class_numbers(bench: Bench) -> list[int] | None:
    """Labels of the background and of ``--only``; None for all classes."""
    names, only = ("background", *bench.scored_images.classes), bench.settings.only
    return [names.index(name) for name in ("background", *only)] if only else None


def _score_note(bench: Bench) -> str:
    only, seeds = bench.settings.only, bench.settings.random_seeds
    over = f"background, {', '.join(only)}" if only else "the classes present"
    spread = f"; ±: deviation over {seeds} seeds" if seeds > 1 else ""
    return f"mIoU in per cent over {over}, {len(bench.scored_images)} images scored{spread}."


def _at(rule: str, title: str) -> str:
    return title if rule == ORACLE else title + BLIND


def _gain_row(title: str, baseline: Sequence[Cell], gains: Sequence[Gain | None]) -> Row:
    return Row(title, (*baseline, *map(_cell, gains)))


def _map_gains(
    bench: Bench, runs: Mapping[str, Sequence[Run]], method: str, steps: int
) -> list[_Kind]:
    """Maps of a method after so many affinity steps; before those of one step those of none."""
    scores = bench.scored(runs, method, {"affinity_steps": steps})
    only, classes, found = bench.settings.only, _class_numbers(bench), list[_Kind]()
    for kind in KINDS if steps == 1 else list(KINDS)[1:]:
        value = partial(only_at, only=only) if only else at
        baseline = [value(scores["none"], kind, rule) for rule in bench.rules]
        gains = list[Gain | None]()
        for name in scores:
            for rule in bench.rules if name != "none" else ():
                ours, theirs = (
                    [seed["photos"][kind].get(rule) for seed in scores[row]]
                    for row in (name, "none")
                )
                gains.append(_gain(ours, theirs, classes))
        title = (
            "without affinity" if kind == "plain" else f"affinity, {steps} step{'s' * (steps > 1)}"
        )
        found.append((f"{MAP_TITLES[method]}, {title}", baseline, gains))
    return found


def _mean_of_maps(maps: Sequence[_Kind]) -> _Kind:
    """Seed by seed and draw by draw; none of gains that a kind of map has not."""
    _, baselines, gains = zip(*maps, strict=True)
    cells = [
        Cell(tuple(np.mean([cell.ours for cell in column], axis=0).tolist()))
        for column in zip(*baselines, strict=True)
    ]
    means = [None if None in column else mean_gain(column) for column in zip(*gains, strict=True)]
    return "mean of the maps", cells, means
