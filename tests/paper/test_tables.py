"""Every table and figure of the paper, at one step on a few scenes."""

import csv
import dataclasses
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tagmask import localize
from tagmask.config import MapSettings
from tagmask.data.images import read_mask
from tagmask.labels import Mask
from tagmask.models.kinds import load_classifier
from tagmask.paper import numbers
from tagmask.paper.bench import Bench
from tagmask.paper.command import MAKERS, run_paper
from tagmask.paper.measures import mean_of
from tagmask.paper.names import NAMES
from tagmask.paper.page import LONGEST, QUALITY
from tagmask.paper.seed_tables import ABLATION, ACR
from tagmask.report.page import data_uri
from tagmask.show.affinity import RED, affinity_matrix, default_points, marked
from tagmask.show.seeds import shown_heat, shown_mask
from tagmask.show.sheet import GAP, MARGIN, Picture, resize, shown_size
from tagmask.stages.seeds import patch_affinity
from tests.paper.small import small

TABLES = [name for name, entry in NAMES.items() if entry.kind == "table"]
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
def test_all_files_of_a_table_hold_the_same_numbers(name: str, shared_out: Path) -> None:
    text = run_paper(small(shared_out, name)).summary()
    rows = rows_of(shared_out / f"{name}.csv")
    columns = (shared_out / f"{name}.csv").read_text().splitlines()[0]
    assert len(next(csv.reader([columns]))) == len(rows[0])  # no two columns alike
    assert len(rows) == ROWS[name]
    markdown = [line[2:-2] for line in (shared_out / f"{name}.md").read_text().splitlines() if line.startswith("|")]
    heads, _, *lines = ([word.strip() for word in line.split(" | ")] for line in markdown)
    page = (shared_out / f"{name}.html").read_text()
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in page.split("<tr>")[2:]]  # after the head
    assert [[unescape(cell) for cell in row] for row in cells] == lines
    numbers = 0
    for row, (title, *shown) in zip(rows, lines, strict=True):
        assert next(iter(row.values())) == title
        assert title in text
        ours = [float(value) if value else math.nan for head, value in row.items() if head.endswith(" mean")]
        places = [i for i, head in enumerate(heads[1:]) if head != "paper"]
        for mean, place in zip(ours, places, strict=True):
            word = shown[place].split(" ± ")[0]
            assert word == "–" if math.isnan(mean) else float(word) == pytest.approx(mean, abs=0.5001 * _unit(word))
            assert math.isnan(mean) or 0 <= mean <= (math.inf if name == "computation" else 100)
            numbers += not math.isnan(mean)
    assert numbers >= len(rows) - 2  # two classes do not occur in the scenes that are scored
    assert "http://" not in page
    assert "https://" not in page
    assert (shared_out / f"{name}.toml").is_file()


def _unit(word: str) -> float:
    """The weight of the last digit."""
    return float(10 ** -len(word.partition(".")[2]))


def drawn(name: str, out: Path) -> Picture:
    """A figure as it is written; the page holds the same picture."""
    written = run_paper(small(out, name))
    picture = np.asarray(Image.open(out / f"{name}.png"))
    assert str(out / f"{name}.png") in written.summary()
    assert data_uri(picture, LONGEST, QUALITY) in (out / f"{name}.html").read_text()
    return picture


def cut(picture: Picture, height: int, widths: list[int], rows: int = 1) -> list[list[Picture]]:
    """The cells of a sheet whose rows all have pictures of these sizes."""
    caption = round(1.6 * max(11, round(6 + height / 24)))
    tops = [MARGIN + caption + row * (caption + height + GAP) for row in range(rows)]
    lefts = [MARGIN + sum(widths[:i]) + i * GAP for i in range(len(widths))]
    assert picture.shape[1] == lefts[-1] + widths[-1] + MARGIN
    return [[picture[y : y + height, x : x + w] for x, w in zip(lefts, widths, strict=True)] for y in tops]


def first_image(bench: Bench, least: int = 1) -> tuple[int, Picture]:
    catalog = bench.scored_images
    i = next(i for i in range(len(catalog)) if len(catalog.tags(i)) >= least)
    return i, catalog.load_image(i)


def truth(bench: Bench, i: int) -> Mask:
    mask = bench.scored_images.load_mask(i)
    assert mask is not None
    return mask


def acr_maps(bench: Bench, changes: Mapping[str, Any], i: int, tags: Sequence[int], affinity: bool = True) -> list[Any]:
    """The maps of the ACR training by the public function."""
    run = bench.trained({"ACR": changes}, seeds=1)["ACR"][0]
    options = {field.name: getattr(run.settings.seeds, field.name) for field in dataclasses.fields(MapSettings)}
    names = [bench.scored_images.classes[c] for c in tags]
    image = bench.scored_images.load_image(i)
    return [*localize(load_classifier(run.classifier), image, names, affinity=affinity, **options).values()]


def test_maps_stand_beside_image_and_truth(shared_out: Path) -> None:
    picture, bench = drawn("maps", shared_out), Bench(small(shared_out, "maps"))
    i, image = first_image(bench)
    height, width = shown_size(*image.shape[:2])
    (cells,) = cut(picture, height, [width] * 9)  # image, five methods, two of them also with affinity, truth
    np.testing.assert_array_equal(cells[0], resize(image, (height, width)))
    np.testing.assert_array_equal(cells[8], shown_mask(image, truth(bench, i)))
    for cell, affinity in ((cells[6], False), (cells[7], True)):
        (map,) = acr_maps(bench, ACR, i, bench.scored_images.tags(i)[:1], affinity)
        np.testing.assert_array_equal(cell, shown_heat(image, map))
    assert len({cell.tobytes() for cell in cells}) == 9


def test_every_class_of_an_image_has_its_map(shared_out: Path) -> None:
    picture, bench = drawn("multi-class", shared_out), Bench(small(shared_out, "multi-class"))
    i, image = first_image(bench, least=2)
    tags = bench.scored_images.tags(i)
    height, width = shown_size(*image.shape[:2])
    (cells,) = cut(picture, height, [width] * (len(tags) + 2))
    for cell, map in zip(cells[1:-1], acr_maps(bench, {}, i, tags), strict=True):
        np.testing.assert_array_equal(cell, shown_heat(image, map))


def test_affinity_matrices_are_those_of_three_trainings(shared_out: Path) -> None:
    picture, bench = drawn("affinity", shared_out), Bench(small(shared_out, "affinity"))
    _, image = first_image(bench)
    width = round(image.shape[1] * 256 / image.shape[0])  # the image at the height of the matrices
    (cells,) = cut(picture, 256, [width, 256, 256, 256])
    runs = bench.trained({name: ABLATION[name] for name in ("none", "act", "both")}, seeds=1)
    for cell, (run,) in zip(cells[1:], runs.values(), strict=True):
        affinity, grid = patch_affinity(load_classifier(run.classifier), image, run.settings.seeds)
        assert affinity.shape == (grid[0] * grid[1],) * 2
        np.testing.assert_array_equal(cell, affinity_matrix(affinity))


def test_source_pixels_are_crossed_in_every_picture_of_their_row(shared_out: Path) -> None:
    picture, bench = drawn("source-pixels", shared_out), Bench(small(shared_out, "source-pixels"))
    i, image = first_image(bench)
    height, width = shown_size(*image.shape[:2])
    points = default_points(np.stack(acr_maps(bench, ABLATION["both"], i, bench.scored_images.tags(i))))
    for (x, y), cells in zip(points, cut(picture, height, [width] * 4, rows=len(points)), strict=True):
        np.testing.assert_array_equal(cells[0], marked(image, [(x, y)]))
        crosses = [(cell == RED).all(axis=2) for cell in cells]
        assert crosses[0].any()
        assert all((cross == crosses[0]).all() for cross in crosses)


def test_examples_show_prediction_and_truth(shared_out: Path) -> None:
    picture, bench = drawn("examples", shared_out), Bench(small(shared_out, "examples"))
    i, image = first_image(bench)
    height, width = shown_size(*image.shape[:2])
    (cells,) = cut(picture, height, [width] * 3)
    (file,) = shared_out.glob(f"runs/*/labels-*/segment-*/6_predictions/{bench.scored_images.name(i)}.png")
    np.testing.assert_array_equal(cells[1], shown_mask(image, read_mask(file, len(bench.scored_images.classes))))
    np.testing.assert_array_equal(cells[2], shown_mask(image, truth(bench, i)))


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
