"""Signs by hand, and verdicts in the right order; the exact limits are calibrated elsewhere."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from tagmask.inference.selfcheck import (
    POWERS,
    Signs,
    border_ratio,
    judge,
    overlap,
    trust_of,
)

PERFECT = Signs(
    photos=9, border_ratio=0.2, agreement=0.95, stability=0.95, empty=0.0, full=0.0, learned=0.95
)
INVERTED = Signs(
    photos=9, border_ratio=1.2, agreement=0.05, stability=0.6, empty=0.0, full=0.4, learned=0.9
)


def changed(signs: Signs, **values: Any) -> Signs:
    return dataclasses.replace(signs, **values)


@pytest.mark.parametrize("shape", [(5, 5), (3, 8), (40, 90), (1, 4), (1, 1)])
def test_a_constant_map_has_a_border_ratio_of_one(shape: tuple[int, int]) -> None:
    assert border_ratio(np.full(shape, 0.3)) == pytest.approx(1)
    assert border_ratio(np.zeros(shape)) == 1


def test_border_ratios_by_hand() -> None:
    """A border of one cell, on 4×6 cells: 16 lie at the border and 8 inside."""
    middle = np.zeros((4, 6))
    middle[1:3, 1:5] = 1
    assert border_ratio(middle) == 0
    frame = 1 - middle
    assert border_ratio(frame) == pytest.approx(1 / (16 / 24))
    mixed = middle + 0.25
    assert border_ratio(mixed) == pytest.approx(0.25 / (0.25 + 8 / 24))
    corner = np.zeros((4, 6))
    corner[:2, :3] = 1  # 6 cells, 4 of them at the border
    assert border_ratio(corner) == pytest.approx((4 / 16) / (6 / 24))


def test_the_border_is_a_share_of_each_side() -> None:
    """0.035 of 200 rows and of 100 columns are 7 rows and 4 columns (3.5, rounded to even)."""
    values = np.zeros((200, 100))
    values[:7] = values[-7:] = 1
    values[:, :4] = values[:, -4:] = 1
    covered = 200 * 100 - (200 - 14) * (100 - 8)
    assert values.sum() == covered
    assert border_ratio(values) == pytest.approx(200 * 100 / covered)
    assert border_ratio(1 - values) == 0


def test_overlaps_by_hand() -> None:
    first = np.array([[True, True, False], [False, False, False]])
    second = np.array([[False, True, True], [False, False, False]])
    assert overlap(first, second) == pytest.approx(1 / 3)
    assert overlap(first, first) == 1
    assert overlap(first, ~first) == 0
    assert overlap(np.zeros((2, 3), dtype=bool), np.zeros((2, 3), dtype=bool)) == 0


def test_clearly_good_masks_are_called_good() -> None:
    verdict = judge("cat", PERFECT)
    assert verdict.level == "good"
    assert verdict.reason == verdict.remedy == ""
    assert verdict.tag == "cat"
    assert verdict.trust > 0.9


def test_inverted_masks_are_called_the_surroundings() -> None:
    verdict = judge("cat", INVERTED)
    assert verdict.level == "probably the surroundings"
    assert verdict.trust < 0.5


def test_between_them_lies_doubt() -> None:
    verdict = judge(
        "cat",
        Signs(9, border_ratio=0.65, agreement=0.4, stability=0.5, empty=0.2, full=0, learned=0.4),
    )
    assert verdict.level == "doubtful"
    assert judge("", INVERTED).trust < verdict.trust < judge("", PERFECT).trust


@pytest.mark.parametrize(
    "worse",
    [
        {"border_ratio": 0.8},
        {"agreement": 0.3},
        {"stability": 0.2},
        {"empty": 0.6},
        {"full": 0.6},
        {"learned": 0.1},
    ],
    ids=str,
)
def test_every_sign_counts(worse: dict[str, float]) -> None:
    assert judge("", changed(PERFECT, **worse)).trust < judge("", PERFECT).trust


def test_trust_is_a_product_of_powers() -> None:
    assert trust_of(dict.fromkeys(POWERS, 1.0)) == pytest.approx(1)
    assert trust_of({}) == 0
    total = sum(POWERS.values())
    # two signs stand for all: their powers are scaled up to the same sum
    pair = POWERS["inside"] + POWERS["agreement"]
    expected = 0.5 ** (POWERS["inside"] * total / pair)
    assert trust_of({"inside": 0.5, "agreement": 1.0}) == pytest.approx(expected)
    assert trust_of(dict.fromkeys(POWERS, 0.3)) == pytest.approx(0.3**total)
    assert 0 < trust_of({"inside": 0.0}) < 0.01


def test_values_stay_between_nothing_and_one() -> None:
    extreme = Signs(1, border_ratio=-3, agreement=2, stability=-1, empty=1, full=1, learned=7)
    assert set(extreme.values().values()) <= {0.0, 1.0}


MEASURED = ("border_ratio", "agreement", "stability", "learned")


@pytest.mark.parametrize("missing", MEASURED)
def test_a_sign_that_is_missing_is_left_out(missing: str) -> None:
    """It is neither good nor bad: what is left decides."""
    signs = changed(PERFECT, **{missing: None})
    assert len(signs.values()) == len(PERFECT.values()) - 1
    assert judge("", signs).level == "good"
    bad = changed(INVERTED, **{missing: None})
    assert judge("", bad).level == "probably the surroundings"


def test_presence_needs_both_of_its_numbers() -> None:
    for missing in ("empty", "full"):
        signs = changed(PERFECT, **{missing: None})
        assert "presence" not in signs.values()


def test_without_any_sign_nothing_is_believed() -> None:
    verdict = judge("cat", Signs(photos=3))
    assert verdict.level != "good"
    assert verdict.reason == "nothing could be measured"
    assert verdict.remedy


@pytest.mark.parametrize("seed", range(60))
def test_every_bad_verdict_has_a_reason_and_a_remedy(seed: int) -> None:
    random = np.random.default_rng(seed)
    values: dict[str, Any] = {name: float(random.uniform(0, 1.2)) for name in MEASURED}
    values |= {"empty": float(random.uniform(0, 0.5)), "full": float(random.uniform(0, 0.5))}
    for name in list(values):
        if random.random() < 0.3:
            values[name] = None
    verdict = judge("cat", Signs(5, **values))
    assert 0 <= verdict.trust <= 1
    is_good = verdict.level == "good"
    assert bool(verdict.reason) != is_good
    assert bool(verdict.remedy) != is_good
    written = json.loads(json.dumps(verdict.to_json()))
    assert written["level"] == verdict.level
    assert written["signs"]["photos"] == 5
    assert {name: written["signs"][name] is None for name in values} == {
        name: value is None for name, value in values.items()
    }


@pytest.mark.parametrize(
    ("worst", "words"),
    [
        ({"border_ratio": 1.3}, "surrounds"),
        ({"agreement": 0.0}, "stands out"),
        ({"stability": 0.0}, "labels"),
        ({"empty": 1.0}, "100 % of its photos have no mask"),
        ({"learned": 0.0}, "cannot be told"),
    ],
    ids=str,
)
def test_the_reason_is_the_sign_that_costs_most(worst: dict[str, float], words: str) -> None:
    middling = Signs(
        9, border_ratio=0.6, agreement=0.55, stability=0.55, empty=0.2, full=0.2, learned=0.55
    )
    only = {name: None for name in vars(middling) if name not in ("photos", "full", *worst)}
    signs = changed(middling, **{**only, **worst})
    assert words in judge("cat", signs).reason
