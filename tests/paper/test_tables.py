"""Every table and figure of the paper, at one step on a few scenes."""

import csv
import dataclasses
import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tagmask.paper import numbers
from tagmask.paper.bench import Bench
from tagmask.paper.command import MAKERS, run_paper
from tagmask.paper.measures import mean_of
from tagmask.paper.names import NAMES
from tests.paper.small import small

TABLES = [name for name, entry in NAMES.items() if entry.kind == "table"]
FIGURES = [name for name, entry in NAMES.items() if entry.kind == "figure"]
ROWS = {
    "ablation": 4,
    "methods": 5,
    "backbones": 3,
    "augmentations": 8,
    "distances": 3,
    "layers": 4,  # blocks of the small backbone
    "computation": 3,
    "pseudo": 4,
    "segmentation": 12,  # background, ten classes, mean
}


def rows_of(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(file.read_text())))


@pytest.mark.parametrize("name", TABLES)
def test_a_table_runs(name: str, shared_out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = run_paper(small(shared_out, name)).summary()
    rows = rows_of(shared_out / f"{name}.csv")
    heads = (shared_out / f"{name}.csv").read_text().splitlines()[0]
    assert len(next(csv.reader([heads]))) == len(rows[0])  # no two columns alike
    assert len(rows) == ROWS[name]
    assert all(row[next(iter(row))] in told for row in rows)
    means = [float(value) for row in rows for head, value in row.items() if head.endswith(" mean") and value]
    assert means
    assert all(value >= 0 for value in means)
    if name != "computation":
        assert all(value <= 100 for value in means)
    page = (shared_out / f"{name}.html").read_text()
    assert all(f"{row[next(iter(row))]}</td>" in page for row in rows)
    assert "http://" not in page
    assert "https://" not in page
    assert (shared_out / f"{name}.toml").is_file()


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_drawn(name: str, shared_out: Path) -> None:
    written = run_paper(small(shared_out, name))
    picture = np.asarray(Image.open(shared_out / f"{name}.png"))
    assert picture.ndim == 3
    assert picture.std() > 10  # not a blank sheet
    assert "data:image/jpeg;base64," in (shared_out / f"{name}.html").read_text()
    assert str(shared_out / f"{name}.png") in written.summary()


def test_the_papers_numbers_stand_in_their_cells(shared_out: Path) -> None:
    run_paper(small(shared_out, "ablation"))
    found = {row["consistency"]: row for row in rows_of(shared_out / "ablation.csv")}
    both = found["activation + affinity (ACR)"]
    assert (both["without affinity paper"], both["with affinity paper"]) == ("59.4", "67.3")
    assert both["with, blind paper"] == ""
    run_paper(small(shared_out, "methods"))
    methods = {row["method"]: row for row in rows_of(shared_out / "methods.csv")}
    assert methods["CAM"]["without affinity paper"] == "44.0"
    assert methods["CAM"]["with affinity paper"] == ""


def test_our_numbers_are_those_of_the_ordinary_stages(shared_out: Path, tmp_path: Path) -> None:
    """The ACR row against tagmask train, seeds and score, typed one by one."""
    from tagmask.config import ScoreSettings
    from tagmask.stages.score import score_seeds
    from tagmask.stages.seeds import seed_catalog
    from tagmask.stages.train import train

    settings = small(shared_out, "ablation")
    run_paper(settings)
    row = rows_of(shared_out / "ablation.csv")[-1]
    plain = settings.run(tmp_path)
    train(plain.for_stage("train"))
    scored = settings.score_data()
    seed_catalog(dataclasses.replace(plain.for_stage("seeds"), **scored))
    found = score_seeds(ScoreSettings(out=tmp_path, **scored))
    for kind, head in (("plain", "without affinity"), ("refined", "with affinity")):
        assert float(row[f"{head} mean"]) == pytest.approx(100 * found.curves[kind].best.miou_present, abs=1e-4)


def test_the_rows_of_the_ablation_are_trained_differently(shared_out: Path) -> None:
    settings = small(shared_out, "ablation")
    bench = Bench(settings)
    from tagmask.paper.seed_tables import ABLATION

    runs = bench.trained(ABLATION)
    weights = {name: (some[0].classifier / "model.safetensors").read_bytes() for name, some in runs.items()}
    assert len(set(weights.values())) == 4
    budgets = {(some[0].settings.train.steps, some[0].settings.train.batch) for some in runs.values()}
    assert budgets == {(1, 2)}  # the same for every row


def test_several_seeds_give_mean_and_deviation(shared_out: Path) -> None:
    run_paper(small(shared_out, "layers", "--random-seeds", "2"))
    row = rows_of(shared_out / "layers.csv")[2]  # the last two blocks: the default
    bench = Bench(small(shared_out, "layers", "--random-seeds=2"))
    scores = bench.scored(bench.trained({"ACR": {}}))["ACR"]
    values = [100 * one["refined"]["thresholds"]["oracle"]["miou_present"] for one in scores]
    assert len(set(values)) == 2
    assert row["mIoU, aff. seeds"] == "2"
    assert float(row["mIoU, aff. mean"]) == pytest.approx(sum(values) / 2)
    assert float(row["mIoU, aff. std"]) == pytest.approx(abs(values[0] - values[1]) / math.sqrt(2))
    assert "±" in (shared_out / "layers.md").read_text()


def test_only_some_classes(shared_out: Path) -> None:
    settings = small(shared_out, "ablation", "--only", "cow", "crab")
    run_paper(settings)
    row = rows_of(shared_out / "ablation.csv")[-1]
    bench = Bench(settings)
    iou = bench.scored(bench.trained({"both": {}}))["both"][0]["plain"]["thresholds"]["oracle"]["iou"]
    there = [iou[name] for name in ("background", "cow", "crab") if iou[name] is not None]
    assert float(row["without, only mean"]) == pytest.approx(100 * sum(there) / len(there))
    assert mean_of({"background": 0.5, "cow": None, "crab": 0.25, "car": 1.0}, ["cow", "crab"]) == 37.5
    assert math.isnan(mean_of({}, ["cow"]))


def test_maps_are_thrown_away_once_scored_unless_kept(shared_out: Path, tmp_path: Path) -> None:
    run_paper(small(shared_out, "ablation"))
    assert list(shared_out.glob("runs/*/maps-*/scored.json"))
    assert not list(shared_out.glob("runs/*/maps-*/2_seeds"))
    bench = Bench(small(tmp_path, "ablation", "--keep-maps"))
    bench.scored(bench.trained({"both": {}}))
    assert len(list(tmp_path.glob("runs/*/maps-*/2_seeds/*.npz"))) == 5


def test_segmentation_learns_from_the_labels_of_what_was_trained_on(shared_out: Path) -> None:
    run_paper(small(shared_out, "segmentation"))
    (labels,) = shared_out.glob("runs/*/labels-*")
    assert len(list((labels / "4_pseudo").glob("*.png"))) == 8
    (segment,) = labels.glob("segment-*")
    assert len(list((segment / "6_predictions").glob("*.png"))) == 5  # of the scored scenes
    kept = json.loads((segment / "scored.json").read_text())["result"]
    mean = next(row for row in rows_of(shared_out / "segmentation.csv") if row["class"].startswith("mean"))
    assert float(mean["IoU mean"]) == pytest.approx(100 * kept["miou_present"])
    assert mean["IoU paper"] == "71.2"


def test_every_name_has_a_maker_and_numbers_fit_the_rows() -> None:
    assert list(MAKERS) == list(NAMES)
    assert len(numbers.VIEWS) == 8
    from tagmask.acr.views import parse_view

    for view in numbers.VIEWS:
        parse_view(view, 16)
