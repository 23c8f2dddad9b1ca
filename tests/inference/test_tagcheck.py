"""What is wrong with the tags: scikit-learn's precision, and tags swapped on purpose."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tagmask.errors import TagmaskError
from tagmask.inference.linear import cross_validate
from tagmask.inference.tagcheck import (
    LISTED,
    TagFinding,
    check_tags,
    read_findings,
    suspects_of,
)
from tagmask.stages.train import tag_lines

Pairs = tuple[tuple[str, float], ...]
NAMES = [f"photo {i}" for i in range(40)]


def test_average_precision_is_scikit_learns() -> None:
    from sklearn.metrics import average_precision_score

    random = np.random.default_rng(0)
    logits = random.normal(size=(40, 3)).round(1)  # with ties
    targets = random.random((40, 3)) < (0.5, 0.2, 0.1)
    findings = check_tags(torch.tensor(logits), torch.tensor(targets), ["a", "b", "c"], NAMES)
    for k, finding in enumerate(findings):
        assert finding.tag == "abc"[k]
        assert finding.photos == targets[:, k].sum()
        expected = average_precision_score(targets[:, k], logits[:, k])
        assert finding.average_precision == pytest.approx(expected)
        assert finding.by_chance == pytest.approx(targets[:, k].mean())


def test_how_far_a_tag_was_learned_by_hand() -> None:
    """From chance to perfection; below chance counts as nothing."""
    for precision, learned in ((0.25, 0), (1.0, 1), (0.625, 0.5), (0.1, 0)):
        assert TagFinding("a", 5, precision, 0.25, (), ()).learned == pytest.approx(learned)
    assert TagFinding("a", 5, 1.0, 1.0, (), ()).learned == 0


def test_suspects_by_hand() -> None:
    """Above 0.9 without the tag, below 0.1 with it; the worst first."""
    chances = torch.tensor([[0.95], [0.99], [0.5], [0.05], [0.01], [0.999], [0.02]])
    targets = torch.tensor([[0.0], [0], [1], [1], [1], [1], [0]])
    (finding,) = check_tags(torch.logit(chances), targets, ["cat"], NAMES[:7])
    assert finding.missing == (("photo 1", 0.99), ("photo 0", 0.95))
    assert finding.wrong == (("photo 4", 0.01), ("photo 3", 0.05))


def swapped(missing: int, wrong: int) -> tuple[Tensor, Tensor]:
    """Return features by which two tags are told easily, and tags with two mistakes."""
    random = torch.Generator().manual_seed(0)
    truth = (torch.arange(40) % 2).float()
    features = 0.5 * torch.randn(40, 4, generator=random)
    features[:, 0] += 6 * truth - 3
    targets = torch.stack([truth, 1 - truth], dim=1)
    targets[missing, 0] = 0
    targets[wrong, 0] = 1
    return features, targets


def test_a_tag_that_was_swapped_is_listed_first() -> None:
    """Photo 7 has lost the tag, photo 12 was given it."""
    features, targets = swapped(missing=7, wrong=12)
    logits = cross_validate(features, targets, strength=1.0, balanced=True)
    finding, other = check_tags(logits, targets, ["cat", "dog"], NAMES)
    assert finding.missing[0][0] == "photo 7"
    assert finding.wrong[0][0] == "photo 12"
    assert finding.learned > 0.5
    assert not other.missing
    assert not other.wrong


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_tag_on_all_photos_or_on_none(value: float) -> None:
    features, targets = swapped(3, 4)
    targets[:, 0] = value
    logits = cross_validate(features, targets, strength=0.1, balanced=True)
    finding, other = check_tags(logits, targets, ["cat", "dog"], NAMES)
    assert finding.photos == 40 * value
    assert finding.by_chance == value
    assert finding.learned == 0
    assert np.isfinite(finding.average_precision)
    assert other.learned == pytest.approx(1)


def test_long_lists_are_cut_behind_the_worst() -> None:
    logits = torch.linspace(9, 5, 40)[:, None]
    (finding,) = check_tags(logits, torch.zeros(40, 1), ["cat"], NAMES)
    assert [name for name, _ in finding.missing] == NAMES[:LISTED]


def test_no_photos() -> None:
    (finding,) = check_tags(torch.zeros(0, 1), torch.zeros(0, 1), ["cat"], [])
    assert finding.photos == 0
    assert finding.learned == 0


def finding(tag: str, missing: Pairs = (), wrong: Pairs = ()) -> TagFinding:
    return TagFinding(tag, 10, 0.9, 0.5, missing, wrong)


MIXED_UP = [
    finding("horse", missing=(("a", 0.931), ("b", 0.92))),
    finding("sheep", wrong=(("c", 0.02), ("a", 0.069))),
    finding("pony", missing=(("b", 0.95),)),
]


def test_each_suspicious_photo_is_named_once_with_what_it_looks_like() -> None:
    """Photo c is the most suspicious (1 - 0.02), then b (0.95), then a (0.931 and 1 - 0.069)."""
    suspects = suspects_of(MIXED_UP)
    assert [(suspect.photo, suspect.words()) for suspect in suspects] == [
        ("c", "does not look like sheep"),
        ("b", "looks like horse and pony, which is no tag of it"),
        ("a", "looks like horse, not sheep"),
    ]
    assert [suspect.strength for suspect in suspects] == pytest.approx([0.98, 0.95, 0.931])
    (line,) = [line for line in tag_lines(MIXED_UP, most=2) if "look wrong" in line]
    assert line == (
        "the tags of 3 photos look wrong: c (does not look like sheep), b (looks like horse and "
        "pony, which is no tag of it) and 1 more; check them (all in 1_classifier/tags.json)."
    )
    (one,) = [line for line in tag_lines(MIXED_UP[:1] + MIXED_UP[2:])[1:] if "photos" in line]
    assert one.startswith("the tags of 2 photos look wrong: b (looks like horse and pony")


def test_findings_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "tags.json"
    assert read_findings(file) == []
    rows = [dataclasses.asdict(one) for one in MIXED_UP]
    file.write_text(json.dumps({"tags": rows}))
    assert read_findings(file) == MIXED_UP


@pytest.mark.parametrize(
    "change",
    [
        {"missing": None},
        {"wrong": [["a"]]},
        {"wrong": [[1, 0.5]]},
        {"missing": [["a", "b"]]},
        {"tag": 3},
    ],
    ids=str,
)
def test_damaged_findings_are_refused_with_a_sentence(change: Any, tmp_path: Path) -> None:
    file = tmp_path / "tags.json"
    file.write_text(json.dumps({"tags": [{**dataclasses.asdict(MIXED_UP[0]), **change}]}))
    with pytest.raises(TagmaskError, match="is damaged"):
        read_findings(file)
