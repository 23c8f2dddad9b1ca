"""What training costs and how fast maps are: whose training, on which backbone, beside which number."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from tagmask.config import PseudoSettings, TrainSettings
from tagmask.reproduction import computation
from tagmask.reproduction.bench import Bench
from tagmask.reproduction.computation import DEIT, HYBRID, MCT, OURS, PER_CLASS, PSA
from tagmask.reproduction.seed_tables import mct_recipe
from tagmask.training.classifier import build_classifier
from tests.reproduction.small import small


def fixed(_: object, settings: TrainSettings, number: int) -> dict[str, Any]:
    """What is measured: other numbers for each backbone and random seed."""
    base = {DEIT: 100.0, HYBRID: 200.0}.get(settings.backbone, 300.0) + number
    return {
        "megabytes": {OURS: base, MCT: base + 10},
        "images_per_second": {OURS: base / 10, PER_CLASS: base / 20, MCT: base / 5},
        "device": "one CPU thread",
        "size": settings.size or 224,
        "classes": 2,
    }


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    sizes: list[int] = []

    def psa(_: object, size: int, classes: int, number: int) -> dict[str, Any]:
        sizes.append(size)
        return {"megabytes": {PSA: 50.0}, "images_per_second": {PSA: 4.0}}

    monkeypatch.setattr(computation, "_measured", fixed)
    monkeypatch.setattr(computation, "_psa", psa)

    def make(backbone: str, size: int) -> tuple[dict[str, list[Any]], list[int]]:
        settings = small(tmp_path, "computation")
        train = dataclasses.replace(settings.of(TrainSettings), backbone=backbone, size=size)
        table = computation.computation(Bench(settings.with_stages(train)))
        rows = {}
        for row in table.rows:
            numbers = [(cell.mean if cell.ours else None, cell.paper) for cell in row.cells]
            rows[row.title] = numbers
        return rows, sizes

    return make


def test_both_backbones_and_mctformer_stand_beside_the_papers_numbers(made: Any) -> None:
    rows, sizes = made(HYBRID, 384)
    assert rows["ACR"][0] == (200, 5260)
    assert rows[PER_CLASS][1] == (10, 2.33)
    # the paper has MCTformer on DeiT-S: its numbers are not beside another backbone's
    assert rows["MCTformer"][:2] == [(210, None), (40, None)]
    assert rows[f"ACR on {DEIT}"][0] == (100, 1580)
    assert rows[f"ACR on {DEIT}, one backward per class"][1] == (5, 3.61)
    assert rows[f"MCTformer on {DEIT}"][:2] == [(110, 1500), (20, 7.1)]
    assert rows["PSA on test_resnet"][:2] == [(50, 3082), (4, 0.98)]
    assert sizes == [384]
    rows, sizes = made(DEIT, 224)
    assert rows["MCTformer"][:2] == [(110, 1500), (20, 7.1)]
    assert rows[f"ACR on {HYBRID}"][0] == (200, 5260)
    assert f"MCTformer on {HYBRID}" not in rows
    assert sizes == [384, 384]  # the paper's, whichever backbone is trained


def test_other_backbones_have_psa_at_their_own_size(made: Any) -> None:
    rows, sizes = made("tagmask_tiny", 36)
    assert sizes == [32]
    assert rows["PSA on test_resnet"][2] == (4 / 30, None)  # relative to the maps of ACR
    assert rows[f"ACR on {HYBRID}"] == [(None, 5260), (None, 2.33), (None, None)]


def test_mctformers_training_is_its_own(tmp_path: Path) -> None:
    settings = small(tmp_path, "computation").of(TrainSettings)
    ways = computation.trainings(settings)
    assert ways[OURS] is settings
    assert settings.alpha > 0
    mct = ways[MCT]
    assert (mct.kind, mct.view, mct.alpha, mct.beta) == ("mct", "none", 0, 0)
    assert mct.mistakes() == []


def test_mctformers_own_recipe_is_measured_where_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AdamW, dropped paths, and tokens read before the norm, in memory and in speed."""
    monkeypatch.setattr(computation, "TURNS", 1)
    read: list[str | None] = []

    def built(settings: TrainSettings, catalog: Any) -> Any:
        if settings.kind == "mct":
            read.append(settings.mct_read)
        return build_classifier(settings, catalog)

    monkeypatch.setattr(computation, "build_classifier", built)
    asked: list[dict[str, TrainSettings]] = []
    for strict in (False, True):
        settings = dataclasses.replace(small(tmp_path, "computation"), mct_recipe=strict)
        bench = Bench(settings)
        train = dataclasses.replace(settings.of(TrainSettings), batch=1, pretrained=False)
        own = mct_recipe(bench)
        asked.append(computation.trainings(train, own))
        mct = asked[-1][MCT]
        computation.map_speeds(train, bench.training_images, 1, mct.mct_read)
        note, *_ = computation._notes(bench, fixed(None, train, 0), train, DEIT)
        assert ("by its own recipe: adamw" in note) is strict
    plain, recipe = (ways[MCT] for ways in asked)
    assert read == [None, "before_norm"]
    assert (plain.optimizer, plain.drop_path, plain.mct_read) == (train.optimizer, 0, None)
    assert (recipe.optimizer, recipe.drop_path, recipe.mct_read) == ("adamw", 0.1, "before_norm")
    assert recipe.batch == train.batch == 1
    assert recipe.mistakes() == []
    assert asked[1][OURS] is train


def test_a_table_without_a_consistency_does_not_call_it_acr(tmp_path: Path) -> None:
    settings = small(tmp_path, "computation", "--train.beta", "0")
    train = settings.of(TrainSettings)
    notes = computation._notes(Bench(settings), fixed(None, train, 0), train, DEIT)
    assert "called ACR here is SEAM*" in notes[-1]


def test_psa_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A larger image needs more memory and more time."""
    monkeypatch.setattr(computation, "TURNS", 4)
    settings = small(tmp_path, "computation").of(PseudoSettings)
    threads = torch.get_num_threads()
    assert computation.affinity_megabytes(384, settings.affinity) > 10
    fast = computation.walk_speed(settings, 32, 2)
    slow = computation.walk_speed(settings, 256, 2)
    assert fast > 2 * slow > 0
    torch.set_num_threads(threads)
