"""The paper's open ends: each way differs from the paper's chain in what it says, and in nothing else."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tagmask import layout
from tagmask.config import HeadSettings, PseudoSettings, SeedSettings, TrainSettings
from tagmask.data.images import read_mask
from tagmask.errors import TagmaskError
from tagmask.reproduction.bench import Bench
from tagmask.reproduction.command import run_paper
from tagmask.reproduction.open_ends import WAYS, _activation, _changed, _trainings, _ways, open_ends
from tagmask.scoring import confusion, iou
from tests.reproduction.small import small


def rows_of(file: Path) -> dict[str, dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as opened:
        return {row["way"]: row for row in csv.DictReader(opened)}


def test_each_way_changes_what_it_says(shared_out: Path) -> None:
    bench = Bench(small(shared_out, "open-ends"))
    run = bench._run(0, {})
    plain = _changed(run, WAYS["both"]).settings
    assert plain.of(SeedSettings).objects is False
    expected = {
        "regions": {("pseudo", "regions")},
        "unsure": {("pseudo", "unsure")},
        "objects": {("seeds", "objects")},
        "objects-unsure": {("seeds", "objects"), ("pseudo", "unsure")},
    }
    for name, changes in expected.items():
        changed = _changed(run, WAYS[name]).settings
        found = set()
        for section, kind in (("seeds", SeedSettings), ("pseudo", PseudoSettings)):
            before = plain.of(kind)
            after = changed.of(kind)
            found |= {
                (section, field)
                for field in before.__dataclass_fields__
                if getattr(before, field) != getattr(after, field)
            }
        assert found == changes, name


def test_trainings_differ_in_consistency_alone(shared_out: Path) -> None:
    bench = Bench(small(shared_out, "open-ends"))
    trainings = _trainings(bench, WAYS)
    assert {name: bool(changes.get("alpha", 1)) for name, changes in trainings.items()} == {
        "none": False,
        "both": True,
        "fitted": False,
    }
    assert all(changes["objects"] for changes in trainings.values())


def test_regions_are_a_matter_of_the_walk(shared_out: Path) -> None:
    walk = Bench(small(shared_out, "open-ends"))
    crf = Bench(small(shared_out, "open-ends", "--pseudo.method", "crf"))
    assert "regions" in _ways(walk)
    assert "regions" not in _ways(crf)
    # a head is fitted to tokens that are kept, and these trainings keep none
    assert "objects-fitted" not in _ways(walk)


def test_the_papers_chain_has_to_be_there(shared_out: Path) -> None:
    with pytest.raises(TagmaskError, match="add both to --rows"):
        open_ends(Bench(small(shared_out, "open-ends", "--rows", "none", "objects")))


def test_gains_are_over_both_chains_and_none_over_itself(shared_out: Path) -> None:
    run_paper(small(shared_out, "open-ends"))
    rows = rows_of(shared_out / "open-ends.csv")
    baseline = rows[WAYS["none"].title]
    acr = rows[WAYS["both"].title]
    objects = rows[WAYS["objects"].title]
    assert baseline["labels, over none mean"] == ""
    assert acr["labels, over ACR mean"] == ""
    for stage in ("seeds", "labels", "masks, with tags", "masks, without tags"):
        of_objects = float(objects[f"{stage} mean"])
        for base, over in ((baseline, "over none"), (acr, "over ACR")):
            gain = float(objects[f"{stage}, {over} mean"])
            assert gain == pytest.approx(of_objects - float(base[f"{stage} mean"]), abs=0.01)
    with Image.open(shared_out / "open-ends.png") as picture:
        assert picture.width > 1200  # four panels side by side


def test_over_activation_is_that_of_the_confusion_matrix(shared_out: Path) -> None:
    bench = Bench(small(shared_out, "open-ends"))
    runs = bench.trained(_trainings(bench, {"both": WAYS["both"]}))
    run = _changed(runs["both"][0], WAYS["both"])
    folder = bench.labelled(run) / layout.PSEUDO
    catalog = bench.training_images
    classes = len(catalog.classes) + 1
    counts = np.zeros((classes, classes + 1), np.int64)
    for i in range(len(catalog)):
        truth = catalog.load_mask(i)
        assert truth is not None
        found = read_mask(layout.label_file(folder, catalog.name(i)), classes - 1)
        counts += confusion(found, truth, classes)
    scores = iou(counts)
    found_fp, found_fn = _activation(bench, folder, catalog)
    assert found_fp == pytest.approx(100 * scores.fp)
    assert found_fn == pytest.approx(100 * scores.fn)


def test_some_classes_alone_are_scored(shared_out: Path) -> None:
    """FP and FN of one class are those of its row and column."""
    settings = small(shared_out, "open-ends", "--only", "cow")
    bench = Bench(settings)
    run = _changed(
        bench.trained(_trainings(bench, {"both": WAYS["both"]}))["both"][0], WAYS["both"]
    )
    folder = bench.labelled(run) / layout.PSEUDO
    catalog = bench.training_images
    cow = catalog.classes.index("cow") + 1
    hit = wrong = missed = 0
    for i in range(len(catalog)):
        truth = catalog.load_mask(i)
        assert truth is not None
        found = read_mask(layout.label_file(folder, catalog.name(i)), len(catalog.classes))
        scored = truth != 255
        hit += int((scored & (truth == cow) & (found == cow)).sum())
        wrong += int((scored & (truth != cow) & (found == cow)).sum())
        missed += int((scored & (truth == cow) & (found != cow)).sum())
    union = hit + wrong + missed
    assert _activation(bench, folder, catalog) == pytest.approx(
        (100 * wrong / union, 100 * missed / union)
    )


def test_nothing_is_trained_for_the_fitted_way(tmp_path: Path) -> None:
    kept = ("--train.freeze", "1", "--train.fixed-views", "--rows", "both", "objects-fitted")
    head = HeadSettings(head_blocks=(2, 3), steps=1, size=33)
    settings = small(tmp_path, "open-ends", *kept).with_stages(head)
    run_paper(settings)
    rows = rows_of(tmp_path / "open-ends.csv")
    assert set(rows) == {WAYS["both"].title, WAYS["objects-fitted"].title}
    logs = [path.read_text() for path in tmp_path.glob("runs/*/1_classifier/log.jsonl")]
    steps = sorted(json.loads(log.splitlines()[0])["step"] for log in logs)
    assert steps[0] == 0
    assert settings.of(TrainSettings).train_from == 0
