"""Differences between rows with intervals: counts, and the bootstrap against plain resampling."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tagmask.config import HeadSettings
from tagmask.errors import TagmaskError
from tagmask.reproduction.command import run_paper
from tagmask.reproduction.paired import Gain, difference, mean_gain
from tagmask.scoring.confusion import iou
from tests.reproduction.small import small

CLASSES = 4


def rows(
    seed: int, photos: int = 30
) -> tuple[list[np.ndarray[Any, Any]], dict[str, list[list[int]]]]:
    """Random confusion matrices of photos, and their counts."""
    rng = np.random.default_rng(seed)
    matrices = [
        np.diag(rng.integers(0, 90, CLASSES)) + rng.integers(0, 30, (CLASSES, CLASSES))
        for _ in range(photos)
    ]
    counts = {}
    for place, matrix in enumerate(matrices):
        matrix[place % CLASSES] = matrix[:, place % CLASSES] = (
            0  # a class that this photo does not have
        )
        hit = matrix.diagonal()
        union = matrix.sum(0) + matrix.sum(1) - hit
        counts[f"p{place}"] = [[c, int(hit[c]), int(union[c])] for c in range(CLASSES) if union[c]]
    return matrices, counts


def test_the_interval_is_that_of_drawing_photos_one_by_one() -> None:
    (ours, our_counts), (theirs, their_counts) = rows(0), rows(1)

    def miou(matrices: list[np.ndarray[Any, Any]], drawn: Any) -> float:
        return 100 * iou(np.sum([matrices[i] for i in drawn], axis=0)).miou_present

    everything = range(len(ours))
    found = difference([our_counts], [their_counts])
    (gain,), (low, high) = found.of_seeds, found.interval
    assert gain == pytest.approx(miou(ours, everything) - miou(theirs, everything))
    rng, draws = np.random.default_rng(7), []
    for _ in range(2000):
        drawn = rng.integers(0, len(ours), len(ours))
        draws.append(miou(ours, drawn) - miou(theirs, drawn))
    assert (low, high) == pytest.approx(
        tuple(np.percentile(draws, [2.5, 97.5])), abs=0.25 * (high - low) / 2
    )
    assert low < gain < high


def test_seeds_are_averaged_and_a_row_does_not_differ_from_itself() -> None:
    a, b, c = (rows(seed)[1] for seed in range(3))
    same = difference([a, b], [a, b])
    assert (*same.of_seeds, *same.interval) == (0.0, 0.0, 0.0, 0.0)
    gains = difference([a, b], [c, c])
    assert [*gains.of_seeds] == [*difference([a], [c]).of_seeds, *difference([b], [c]).of_seeds]
    assert gains.interval[0] < np.mean(gains.of_seeds) < gains.interval[1]


def test_the_mean_of_gains_is_that_of_their_seeds_and_draws() -> None:
    """Gains that are opposite in every draw have a mean without an interval, however wide their own are."""
    a, b, c = (rows(seed)[1] for seed in range(3))
    mean = mean_gain(
        [
            difference([a, b], [b, c]),
            difference([b, c], [a, b]),
            Gain(np.array([3, 6]), np.full(2000, 9)),
        ]
    )
    assert [*mean.of_seeds] == pytest.approx([1, 2])
    assert mean.interval == pytest.approx((3, 3))


def test_the_mean_may_be_over_some_classes() -> None:
    (ours, our_counts), (theirs, their_counts) = rows(0), rows(1)
    expected = [
        100 * iou(np.sum(matrices, axis=0)).class_iou[[0, 2]].mean() for matrices in (ours, theirs)
    ]
    (gain,) = difference([our_counts], [their_counts], [0, 2]).of_seeds
    assert gain == pytest.approx(expected[0] - expected[1])


def test_rows_of_different_photos_are_refused() -> None:
    with pytest.raises(TagmaskError, match="no photo in common"):
        difference([{"a": [[0, 1, 2]]}], [{"b": [[0, 1, 2]]}])


def test_counts_of_photos_add_up_to_the_score(shared_out: Path) -> None:
    run_paper(small(shared_out, "gains"))
    files = list(shared_out.glob("runs/*/maps-*/scored.json"))
    assert files
    for file in files:
        scores = json.loads(file.read_text())["result"]
        for kind, rules in scores["photos"].items():
            assert len(rules) == 2
            for rule, photos in rules.items():
                total = np.zeros((2, 256))
                for photo in photos.values():
                    for number, hit, union in photo:
                        total[:, number] += hit, union
                ious = total[0] / np.where(total[1], total[1], np.nan)
                assert np.nanmean(ious) == pytest.approx(
                    scores[kind]["thresholds"][rule]["miou_present"], abs=1e-6
                )


def test_gains_end_with_their_mean(shared_out: Path) -> None:
    """Of the baselines and of the gains; the seeds of every gain are in the CSV, those of the mean in a note."""
    made = run_paper(small(shared_out, "gains", "--rows", "none", "both", "--random-seeds", "2"))
    *maps, mean = csv.DictReader((shared_out / "gains.csv").open())
    assert (len(maps), mean["maps"]) == (9, "mean of the maps")
    for head in (
        "none (baseline)",
        "activation + affinity (ACR)",
        "activation + affinity (ACR), blind",
    ):
        assert float(mean[f"{head} mean"]) == pytest.approx(
            np.mean([float(row[f"{head} mean"]) for row in maps])
        )
    each = [
        [float(word) for word in row["activation + affinity (ACR), blind each"].split()]
        for row in (*maps, mean)
    ]
    assert each[-1] == pytest.approx(np.mean(each[:-1], axis=0))
    assert float(maps[3]["activation + affinity (ACR), blind mean"]) == pytest.approx(
        np.mean(each[3])
    )
    assert (
        f"activation + affinity (ACR), blind {each[-1][0]:+.1f}, {each[-1][1]:+.1f}"
        in made.summary()
    )


def test_the_chain_ends_in_masks_of_a_head(tmp_path: Path) -> None:
    """A head reads the classifier of its own training; what it alone reads is not kept."""
    head = HeadSettings(head_blocks=(2, 3), steps=1, size=33)
    summary = run_paper(small(tmp_path, "chain").with_stages(head)).summary()
    assert "masks, told the tags" in summary
    assert "masks, not told the tags" in summary
    assert (
        len(list(tmp_path.glob("runs/*/labels-*/segment-*/5_segmenter/model.safetensors"))) == 2
    )  # of one training
    assert len(list(tmp_path.glob("runs/*/labels-*/segment-*/masks-*/scored.json"))) == 4
    assert not list(tmp_path.glob("runs/**/0_tokens"))
    with Image.open(tmp_path / "chain.png") as picture:
        assert picture.width < 850  # one panel: all thresholds are chosen without masks


def test_gains_need_the_baseline(shared_out: Path) -> None:
    for rows_asked in (("act", "both"), ("none",)):
        with pytest.raises(TagmaskError, match="give --rows none and at least one other row"):
            run_paper(small(shared_out, "gains", "--rows", *rows_asked))
