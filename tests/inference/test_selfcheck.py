"""Signs by hand, and verdicts in the right order; the exact limits are calibrated elsewhere."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from tagmask.inference.selfcheck import (
    GOOD,
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


LEARNED: dict[str, Any] = {
    "border_ratio": 0.2,
    "agreement": 0.95,
    "stability": 0.95,
    "empty": 0.0,
    "full": 0.0,
}


@pytest.mark.parametrize("learned", [1.0, 0.7, None])
def test_a_tag_that_is_never_alone_is_not_good(learned: float | None) -> None:
    """However well it is learned: nothing says which part of its photos it is."""
    signs = Signs(20, **LEARNED, learned=learned, alone=0.0)
    verdict = judge("person", signs)
    assert verdict.level == "doubtful"
    assert verdict.trust < GOOD
    assert "no photo shows it without another tag" in verdict.reason
    assert "photos that show it alone" in verdict.remedy
    perfect = changed(signs, border_ratio=0.0, agreement=1.0, stability=1.0)
    assert judge("person", perfect).level == "doubtful"


def test_photos_that_show_a_tag_alone_raise_its_trust() -> None:
    """Its class sign is at most half of the way from one half to one, if half of them do."""
    signs = [Signs(20, **LEARNED, learned=0.95, alone=share / 10) for share in range(11)]
    trusts = [judge("dog", own).trust for own in signs]
    assert trusts == sorted(trusts)
    assert trusts[0] < GOOD < trusts[-1]
    assert [own.values()["class"] for own in signs[:11:5]] == pytest.approx([0.5, 0.75, 1])
    few = judge("dog", changed(signs[1], agreement=0.85))
    assert few.level == "doubtful"
    assert "only 10 % of its photos show it without another tag" in few.reason
    assert judge("dog", signs[5]).level == "good"


def test_a_tag_that_is_not_learned_is_not_helped_by_the_limit() -> None:
    signs = Signs(20, **LEARNED, learned=0.2, alone=0.0)
    assert signs.values()["class"] == pytest.approx(0.2)
    assert "cannot be told" in judge("person", signs).reason
    random = Signs(20, **LEARNED, learned=0.1, alone=0.4)
    assert random.values()["class"] == pytest.approx((0.4 + 0.6 * 0.1) / 2)


@pytest.mark.parametrize(("alone", "level"), [(0.25, "doubtful"), (0.5, "doubtful"), (0.9, "good")])
def test_a_tag_on_every_photo_is_judged_by_how_often_it_is_alone(alone: float, level: str) -> None:
    """No photo shows what lacks it, so where another tag is beside it, its masks hold both."""
    signs = Signs(20, **LEARNED, alone=alone, is_everywhere=True)
    verdict = judge("dog", signs)
    assert verdict.level == level
    if level != "good":
        percent = round(100 * (1 - alone))
        assert f"every photo has it and {percent} % have another tag" in verdict.reason
        assert "add photos that do not show it" in verdict.remedy


def test_the_only_tag_of_all_photos_needs_no_other() -> None:
    signs = Signs(20, **LEARNED, alone=1.0, is_everywhere=True)
    assert "class" not in signs.values()
    assert judge("dog", signs).level == "good"


def test_a_tag_on_every_photo_that_is_never_alone_is_not_called_the_surroundings() -> None:
    """Its masks hold the other things, too; they do not show what is around them all."""
    verdict = judge("person", Signs(20, **LEARNED, alone=0.0, is_everywhere=True))
    assert verdict.level == "doubtful"
    assert "no photo shows it without another tag" in verdict.reason


def test_company_alone_is_no_measurement() -> None:
    verdict = judge("person", Signs(20, alone=0.0, is_everywhere=True))
    assert verdict.reason == "nothing could be measured"


def test_signs_are_written_and_read_again() -> None:
    signs = Signs(20, **LEARNED, learned=0.5, alone=0.25, is_everywhere=True)
    written = json.loads(json.dumps(judge("dog", signs).to_json()["signs"]))
    assert written["is_everywhere"] is True
    assert Signs(**written) == signs
    # rows of earlier measurements lack the last sign
    del written["is_everywhere"]
    assert not Signs(**written).is_everywhere


@pytest.mark.parametrize(
    ("empty", "full", "reason"),
    [
        (0.6, 0.0, "60 % of its photos have no mask of it"),
        (0.0, 0.6, "60 % of its photos are filled by it"),
        (
            0.3,
            0.4,
            "30 % of its photos have no mask of it and 40 % of its photos are filled by it",
        ),
    ],
)
def test_only_what_was_found_is_a_reason(empty: float, full: float, reason: str) -> None:
    signs = Signs(
        20, border_ratio=0.3, agreement=1, stability=1, empty=empty, full=full, learned=1.0
    )
    verdict = judge("cat", signs)
    assert verdict.reason == reason
    assert ("--train.stuff" in verdict.remedy) == (full > 0)
