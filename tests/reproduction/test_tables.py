"""Every table and figure of the paper, at one step on a few scenes."""

import csv
import dataclasses
import io
import math
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from html import unescape
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tagmask import localize
from tagmask.acr.views import parse_view
from tagmask.config import MapSettings, SeedSettings, TrainSettings
from tagmask.data.images import read_mask, write_mask
from tagmask.data.scenes.catalog import Scenes
from tagmask.errors import TagmaskError
from tagmask.labels import Mask
from tagmask.methods import METHODS
from tagmask.models.kinds import load_classifier
from tagmask.report.page import data_uri
from tagmask.reproduction.bench import Bench
from tagmask.reproduction.command import run_paper
from tagmask.reproduction.figures import CANDIDATES, numbered, three_points
from tagmask.reproduction.measures import mean_of
from tagmask.reproduction.names import EVERYTHING, NAMES, TABLES
from tagmask.reproduction.numbers import pairs
from tagmask.reproduction.page import LONGEST, QUALITY
from tagmask.reproduction.seed_tables import ABLATION, ACR, OFF, mct_variants
from tagmask.scoring import confusion, iou
from tagmask.show.affinity import RED, affinity_matrix, default_points, marked
from tagmask.show.seeds import label_at, shown_heat, shown_mask
from tagmask.show.sheet import GAP, MARGIN, Picture, resize, shown_size
from tagmask.stages.seeds import patch_affinity
from tests.alone import alone, alone_of
from tests.reproduction.small import SMALL, small

ROWS = {
    "ablation": 4,
    "chain": 5,
    "gains": 10,  # three methods without affinity and after one and two steps, and their mean
    "open-ends": 7,  # the way without a training needs tokens that are kept
    "methods": 7,  # those of the paper and two more
    "backbones": 3,
    "augmentations": 8,
    "distances": 3,
    "layers": 4,  # blocks of the small backbone
    "computation": 5,
    "pseudo": 4,
    "segmentation": 12,  # background, ten classes, mean
    "per-class": 22 + 6,  # of VOC, and six classes of scenes that VOC has not
    "compare-coco": 16,
    "compare-seeds": 18,  # ours without and with affinity
    "compare-voc": 24,
}


def rows_of(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(file.read_text())))


@pytest.mark.parametrize("name", [name for name in TABLES if name != EVERYTHING])
def test_all_files_of_a_table_hold_the_same_numbers(name: str, shared_out: Path) -> None:
    text = run_paper(small(shared_out, name)).summary()
    rows = rows_of(shared_out / f"{name}.csv")
    columns = (shared_out / f"{name}.csv").read_text().splitlines()[0]
    assert len(next(csv.reader([columns]))) == len(rows[0])  # no two columns alike
    assert len(rows) == ROWS[name]
    markdown = [
        line[2:-2]
        for line in (shared_out / f"{name}.md").read_text().splitlines()
        if line.startswith("|")
    ]
    heads, _, *lines = ([word.strip() for word in line.split(" | ")] for line in markdown)
    page = (shared_out / f"{name}.html").read_text()
    cells = [
        re.findall(r"<td[^>]*>(.*?)</td>", row) for row in page.split("<tr>")[2:]
    ]  # after the head
    assert [[unescape(cell) for cell in row] for row in cells] == lines
    count = 0
    for row, (title, *shown) in zip(rows, lines, strict=True):
        assert next(iter(row.values())) == title
        assert title in text
        ours = [
            float(value) if value else math.nan
            for head, value in row.items()
            if head.endswith(" mean")
        ]
        places = [i for i, head in enumerate(heads[1:]) if f"{head} mean" in row]
        for mean, place in zip(ours, places, strict=True):
            word = re.split(r" ± | \[", shown[place])[0]
            assert (
                word == "–"
                if math.isnan(mean)
                else float(word) == pytest.approx(mean, abs=0.5001 * _unit(word))
            )
            lowest = -100 if name in ("gains", "chain", "open-ends") else 0
            is_ratio = name == "computation" or "/TP" in heads[1 + place]
            assert math.isnan(mean) or lowest <= mean <= (math.inf if is_ratio else 100)
            count += not math.isnan(mean)
    # two classes do not occur in the scenes that are scored; most rows of some tables are the paper's alone
    assert count >= {"per-class": 9, "computation": 8}.get(
        name, 1 if name.startswith("compare-") else len(rows) - 2
    )
    assert "http://" not in page
    assert "https://" not in page
    assert (shared_out / f"{name}.toml").is_file()


@pytest.mark.parametrize("name", ["compare-voc", "compare-seeds", "compare-coco"])
def test_a_comparison_on_other_images_says_so(name: str, shared_out: Path) -> None:
    """In the title, in the row, and in a note; on the terminal and on the page."""
    text = run_paper(small(shared_out, name)).summary()
    page = unescape((shared_out / f"{name}.html").read_text())
    data = {"compare-voc": "VOC val and test", "compare-seeds": "VOC train"}
    assert rows_of(shared_out / f"{name}.csv")[-1]["method"].startswith("tagmask, on ")
    for shown in (" ".join(text.split()), page, (shared_out / f"{name}.md").read_text()):
        assert "; tagmask on other images" in shown
        assert "All rows but ours are numbers that the paper prints, measured on" in shown
        assert data.get(name, "MS COCO val") in shown
        assert "built-in scenes of seed" in shown
        assert "ours cannot be compared with the other rows" in shown


def test_seeds_and_labels_of_other_images_say_so(shared_out: Path) -> None:
    text = " ".join(run_paper(small(shared_out, "pseudo")).summary().split())
    assert "measured on VOC train, which are other images, so the two cannot be compared" in text
    assert "ours: " in text


def test_classes_of_other_images_say_so(shared_out: Path) -> None:
    text = " ".join(run_paper(small(shared_out, "per-class")).summary().split())
    assert "IoU of each class; tagmask on other images" in text
    assert "ours cannot be compared with the other columns" in text
    text = " ".join(run_paper(small(shared_out, "segmentation")).summary().split())
    assert "ours cannot be compared with the paper's" in text
    assert "21 IoUs on VOC is 71.1, where the table prints 71.2" in text


def test_the_row_without_consistency_has_two_views(shared_out: Path) -> None:
    run_paper(small(shared_out, "augmentations"))
    *_, last = rows_of(shared_out / "augmentations.csv")
    assert last["view"] == "none: two views, no consistency"
    bench = Bench(small(shared_out, "augmentations"))
    (run,) = bench.trained({"none": OFF})["none"]
    train = run.settings.of(TrainSettings)
    assert (train.view, train.alpha, train.beta) == ("hflip", 0, 0)


def test_the_backbone_of_the_papers_mctformer_is_named_first(shared_out: Path) -> None:
    run_paper(small(shared_out, "backbones"))
    page = (shared_out / "backbones.md").read_text()
    told = "ours: tagmask_tiny; the paper's numbers are of deit_small_patch16_224, so they cannot"
    assert page.index(told) < page.index("ours: mIoU of seeds")


def test_layers_say_what_the_paper_does_not(shared_out: Path) -> None:
    run_paper(small(shared_out, "layers"))
    page = (shared_out / "layers.md").read_text()
    assert "which of the two the paper plots is not stated" in page
    assert "taken to be of two blocks, as in the authors' code" in page


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


def cut(
    picture: Picture, height: int, widths: list[int], rows: int = 1, caption: int = 0
) -> list[list[Picture]]:
    """The cells of a sheet whose rows all have pictures of these sizes and captions of one height."""
    caption = caption or (len(picture) - 2 * MARGIN + GAP) // rows - height - GAP
    assert caption > 0
    tops = [MARGIN + caption + row * (caption + height + GAP) for row in range(rows)]
    lefts = [MARGIN + sum(widths[:i]) + i * GAP for i in range(len(widths))]
    assert picture.shape[1] == lefts[-1] + widths[-1] + MARGIN
    return [
        [picture[y : y + height, x : x + w] for x, w in zip(lefts, widths, strict=True)]
        for y in tops
    ]


def first_image(bench: Bench, least: int = 1) -> tuple[int, Picture]:
    catalog = bench.scored_images
    i = next(i for i in range(len(catalog)) if len(catalog.tags(i)) >= least)
    return i, catalog.load_image(i)


def truth(bench: Bench, i: int) -> Mask:
    mask = bench.scored_images.load_mask(i)
    assert mask is not None
    return mask


def acr_maps(
    bench: Bench, changes: Mapping[str, Any], i: int, tags: Sequence[int], affinity: bool = True
) -> list[Any]:
    """The maps of the ACR training by the public function."""
    run = bench.trained({"ACR": changes}, seeds=1)["ACR"][0]
    options = {
        field.name: getattr(run.settings.of(SeedSettings), field.name)
        for field in dataclasses.fields(MapSettings)
    }
    names = [bench.scored_images.classes[c] for c in tags]
    image = bench.scored_images.load_image(i)
    return [
        *localize(
            load_classifier(run.classifier), image, names, affinity=affinity, **options
        ).values()
    ]


def test_maps_stand_beside_image_and_truth(shared_out: Path) -> None:
    picture, bench = drawn("maps", shared_out), Bench(small(shared_out, "maps"))
    i, image = first_image(bench)
    height, width = shown_size(*image.shape[:2])
    (cells,) = cut(
        picture, height, [width] * 10
    )  # image, six methods, two of them also without affinity, truth
    np.testing.assert_array_equal(cells[0], resize(image, (height, width)))
    np.testing.assert_array_equal(cells[9], shown_mask(image, truth(bench, i)))
    (map,) = acr_maps(bench, mct_variants(bench)["mct"], i, bench.scored_images.tags(i)[:1])
    np.testing.assert_array_equal(cells[6], shown_heat(image, map))  # MCTformer's
    for cell, affinity in ((cells[7], False), (cells[8], True)):
        (map,) = acr_maps(bench, ACR, i, bench.scored_images.tags(i)[:1], affinity)
        np.testing.assert_array_equal(cell, shown_heat(image, map))
    assert len({cell.tobytes() for cell in cells}) == 10


def test_every_class_of_an_image_has_its_maps_and_the_last_row_is_a_failure(
    shared_out: Path,
) -> None:
    bench = Bench(small(shared_out, "multi-class"))
    catalog = bench.scored_images
    several = [i for i in range(len(catalog)) if len(catalog.tags(i)) > 1]
    assert 2 <= len(several) <= CANDIDATES
    first, *rest = several
    quality = {i: best_miou(bench, i) for i in rest}
    failure = min(rest, key=lambda i: quality[i])
    assert quality[failure] < max(quality.values())
    picture = drawn("multi-class", shared_out)
    height = shown_size(*catalog.load_image(first).shape[:2])[0]
    top = MARGIN
    for i in (first, failure):
        image, left = catalog.load_image(i), MARGIN
        plain, refined = (
            acr_maps(bench, {}, i, catalog.tags(i), affinity) for affinity in (False, True)
        )
        heats = [heat for pair in zip(plain, refined, strict=True) for heat in pair]
        size = shown_size(*image.shape[:2])
        wide = round(size[1] * height / size[0])
        top = top_of(picture, resize(resize(image, size), (height, wide)), top)
        for cell in [
            resize(image, size),
            *(shown_heat(image, heat) for heat in heats),
            shown_mask(image, truth(bench, i)),
        ]:
            wide = round(size[1] * height / size[0])
            drawn_cell = picture[top : top + height, left : left + wide]
            np.testing.assert_array_equal(drawn_cell, resize(cell, (height, wide)))
            left += max(wide, height // 2) + GAP
        top += height + GAP


def top_of(picture: Picture, part: Picture, start: int = MARGIN) -> int:
    """The first row of a sheet where a picture begins at the left margin."""
    height, width = part.shape[:2]
    for y in range(start, len(picture) - height):
        if np.array_equal(picture[y : y + height, MARGIN : MARGIN + width], part):
            return y
    raise AssertionError("the picture is not on the sheet")


def best_miou(bench: Bench, i: int) -> float:
    """mIoU of an image's refined maps at the best of 100 thresholds, threshold by threshold."""
    maps, mask, tags = (
        acr_maps(bench, {}, i, bench.scored_images.tags(i)),
        truth(bench, i),
        bench.scored_images.tags(i),
    )
    count = len(bench.scored_images.classes) + 1
    labels = [label_at(np.stack(maps), [c + 1 for c in tags], t / 100) for t in range(100)]
    return max(iou(confusion(label, mask, count)).miou_present for label in labels)


def test_affinity_matrices_and_maps_are_those_of_three_trainings(shared_out: Path) -> None:
    picture, bench = drawn("affinity", shared_out), Bench(small(shared_out, "affinity"))
    i, image = first_image(bench)
    width = round(image.shape[1] * 256 / image.shape[0])  # the image at the height of the matrices
    (cells,) = cut(picture, 256, [width, *[width, 256] * 3])
    for place, name in enumerate(("none", "act", "both")):
        (run,) = bench.trained({name: ABLATION[name]}, seeds=1)[name]
        affinity, grid = patch_affinity(
            load_classifier(run.classifier), image, run.settings.of(SeedSettings)
        )
        assert affinity.shape == (grid[0] * grid[1],) * 2
        np.testing.assert_array_equal(cells[2 + 2 * place], affinity_matrix(affinity))
        (map,) = acr_maps(bench, ABLATION[name], i, bench.scored_images.tags(i)[:1])
        np.testing.assert_array_equal(
            cells[1 + 2 * place], resize(shown_heat(image, map), (256, width))
        )


def test_three_source_pixels_are_crossed_in_every_picture_of_their_row(shared_out: Path) -> None:
    picture, bench = drawn("source-pixels", shared_out), Bench(small(shared_out, "source-pixels"))
    i, image = first_image(bench)
    height, width = shown_size(*image.shape[:2])
    points = three_points(
        np.stack(acr_maps(bench, ABLATION["both"], i, bench.scored_images.tags(i)))
    )
    assert len(set(points)) == 3
    for (x, y), cells in zip(points, cut(picture, height, [width] * 4, rows=3), strict=True):
        np.testing.assert_array_equal(cells[0], marked(image, [(x, y)]))
        crosses = [(cell == RED).all(axis=2) for cell in cells]
        assert crosses[0].any()
        assert all((cross == crosses[0]).all() for cross in crosses)


def test_three_points_by_hand() -> None:
    maps = np.zeros((1, 24, 24), np.float32)
    maps[0, 2:7, 2:7], maps[0, 16:21, 15:20] = 1, 0.9
    assert three_points(maps)[:2] == [
        (4, 4),
        (17, 18),
    ]  # (x, y): the stronger region, then the other
    several = np.concatenate([maps, maps[:, ::-1], maps[:, :, ::-1]])
    assert three_points(several) == [*default_points(several)[:2], default_points(several)[-1]]


def test_patches_of_a_flipped_picture(shared_out: Path) -> None:
    picture = drawn("patch-order", shared_out)
    original = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12], [13, 14, 15, 16]])
    flipped = torch.tensor([[4, 3, 2, 1], [8, 7, 6, 5], [12, 11, 10, 9], [16, 15, 14, 13]])
    restored = torch.tensor(
        [[2, 1, 4, 3], [6, 5, 8, 7], [10, 9, 12, 11], [14, 13, 16, 15]]
    )  # patches back, pixels not
    tokens = torch.tensor(
        [[2, 1, 4, 3, 10, 9, 12, 11], [6, 5, 8, 7, 14, 13, 16, 15]]
    )  # as the attention is compared
    caption, left = round(1.6 * max(11, round(6 + 192 / 24))), MARGIN
    for row, grid in enumerate((original, flipped, restored)):
        top = MARGIN + caption + row * (caption + 192 + GAP)
        np.testing.assert_array_equal(picture[top : top + 192, left : left + 192], numbered(grid))
    shown = resize(numbered(tokens), (192, 768))
    np.testing.assert_array_equal(
        picture[top : top + 192, left + 192 + GAP : left + 192 + GAP + 768], shown
    )


def test_examples_show_prediction_and_truth(shared_out: Path) -> None:
    picture, bench = drawn("examples", shared_out), Bench(small(shared_out, "examples"))
    i, image = first_image(bench)
    height, width = shown_size(*image.shape[:2])
    caption = top_of(picture, resize(image, (height, width))) - MARGIN
    (cells,) = cut(picture, height, [width] * 3, caption=caption)  # the legend is below
    folder, _ = bench.predicted(bench.trained({"ACR": {}})["ACR"][0])
    file = folder / "6_predictions" / f"{bench.scored_images.name(i)}.png"
    np.testing.assert_array_equal(
        cells[1], shown_mask(image, read_mask(file, len(bench.scored_images.classes)))
    )
    np.testing.assert_array_equal(cells[2], shown_mask(image, truth(bench, i)))


def test_the_papers_numbers_stand_in_their_cells(shared_out: Path) -> None:
    run_paper(small(shared_out, "ablation"))
    rows = {row["consistency"]: row for row in rows_of(shared_out / "ablation.csv")}
    acr = rows["activation + affinity (ACR)"]
    assert (acr["without affinity paper"], acr["with affinity paper"]) == ("59.4", "67.3")
    assert acr["with, blind paper"] == ""
    run_paper(small(shared_out, "methods"))
    methods = {row["method"]: row for row in rows_of(shared_out / "methods.csv")}
    assert methods["CAM"]["without affinity paper"] == "44.0"
    assert methods["CAM"]["with affinity paper"] == ""


def test_a_method_of_your_own_is_a_row(shared_out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below those of the package, by its name; it is weighted gradients under another one."""
    monkeypatch.setitem(METHODS, "mine", METHODS["weighted"])
    made = run_paper(small(shared_out, "methods"))
    rows = rows_of(shared_out / "methods.csv")
    assert [row.pop("method") for row in rows[-3:]] == ["Weighted by attention", "LeGrad", "mine"]
    assert rows[-1] == rows[-3]
    assert rows[-1]["with affinity paper"] == ""
    assert "not part of tagmask: mine." in made.summary()
    only = run_paper(small(shared_out, "methods", "--rows", "acr", "mine"))
    assert [row["method"] for row in rows_of(shared_out / "methods.csv")] == ["ACR", "mine"]
    assert "not part of tagmask: mine." in only.summary()


def test_rollout_is_a_row_on_demand(shared_out: Path) -> None:
    run_paper(small(shared_out, "methods", "--rows", "cam", "rollout"))
    titles = [row["method"] for row in rows_of(shared_out / "methods.csv")]
    assert titles == ["CAM", "Attention rollout"]
    with pytest.raises(TagmaskError, match=r"no such row; choose from cam, .*, legrad, rollout"):
        run_paper(small(shared_out, "methods", "--rows", "mine"))


def test_gains_of_a_method_of_your_own_are_below_the_mean(
    shared_out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ("--rows", "none", "both")
    run_paper(small(shared_out, "gains", *flags))
    before = rows_of(shared_out / "gains.csv")
    monkeypatch.setitem(METHODS, "mine", METHODS["weighted"])
    made = run_paper(small(shared_out, "gains", *flags))
    rows = rows_of(shared_out / "gains.csv")
    assert rows[:10] == before
    assert rows[9]["maps"] == "mean of the maps"
    titles = [row.pop("maps") for row in rows[10:]]
    assert titles == [
        "mine, without affinity",
        "mine, affinity, 1 step",
        "mine, affinity, 2 steps",
    ]
    weighted = [row for row in rows[:9] if row.pop("maps").startswith("Weighted")]
    assert rows[10:] == weighted
    assert "below the mean and not in it: mine." in made.summary()


def test_our_numbers_are_those_of_the_ordinary_stages(shared_out: Path, tmp_path: Path) -> None:
    """The ACR row against tagmask train, seeds and score, typed one by one."""
    from tagmask.config import ScoreSettings
    from tests.alone import score_seeds, seed_catalog, train

    settings = small(shared_out, "ablation")
    run_paper(settings)
    row = rows_of(shared_out / "ablation.csv")[-1]
    plain = settings.run(tmp_path)
    train(alone_of(plain, "train"))
    scored = settings.score_data()
    seed_catalog(alone_of(plain, "seeds").but(**scored))
    scores = score_seeds(alone(ScoreSettings, out=tmp_path, **scored))
    for kind, head in (("plain", "without affinity"), ("refined", "with affinity")):
        assert float(row[f"{head} mean"]) == pytest.approx(
            100 * scores.curves[kind].best.miou_present, abs=1e-4
        )


def test_the_rows_of_the_ablation_are_trained_differently(shared_out: Path) -> None:
    settings = small(shared_out, "ablation")
    bench = Bench(settings)
    runs = bench.trained(ABLATION)
    weights = {
        name: (run.classifier / "model.safetensors").read_bytes() for name, (run,) in runs.items()
    }
    assert len(set(weights.values())) == 4
    budgets = {
        (run.settings.of(TrainSettings).steps, run.settings.of(TrainSettings).batch)
        for (run,) in runs.values()
    }
    assert budgets == {(1, 2)}  # the same for every row


def test_several_seeds_give_mean_and_deviation(shared_out: Path) -> None:
    run_paper(small(shared_out, "layers", "--random-seeds", "2"))
    row = rows_of(shared_out / "layers.csv")[2]  # the last two blocks: the default
    bench = Bench(small(shared_out, "layers", "--random-seeds=2"))
    scores = bench.scored(bench.trained({"ACR": {}}))["ACR"]
    values = [100 * seed["refined"]["thresholds"]["oracle"]["miou_present"] for seed in scores]
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
    iou = bench.scored(bench.trained({"both": {}}))["both"][0]["plain"]["thresholds"]["oracle"][
        "iou"
    ]
    there = [iou[name] for name in ("background", "cow", "crab") if iou[name] is not None]
    assert float(row["without, only mean"]) == pytest.approx(100 * sum(there) / len(there))
    assert (
        mean_of({"background": 0.5, "cow": None, "crab": 0.25, "car": 1.0}, ["cow", "crab"]) == 37.5
    )
    assert math.isnan(mean_of({}, ["cow"]))


def test_maps_are_thrown_away_once_scored_unless_kept(shared_out: Path, tmp_path: Path) -> None:
    run_paper(small(shared_out, "ablation"))
    assert list(shared_out.glob("runs/*/maps-*/scored.json"))
    assert not list(shared_out.glob("runs/*/maps-*/2_seeds"))
    bench = Bench(small(tmp_path, "ablation", "--keep-maps"))
    bench.scored(bench.trained({"both": {}}))
    assert len(list(tmp_path.glob("runs/*/maps-*/2_seeds/*.npz"))) == 5


def test_segmentation_learns_from_the_labels_of_what_was_trained_on(shared_out: Path) -> None:
    settings = small(shared_out, "segmentation")
    run_paper(settings)
    bench = Bench(settings)
    run = bench.trained({"ACR": {}})["ACR"][0]
    assert len(list((bench.labelled(run) / "4_pseudo").glob("*.png"))) == 8
    folder, kept = bench.predicted(run)
    assert len(list((folder / "6_predictions").glob("*.png"))) == 5  # of the scored scenes
    mean = next(
        row for row in rows_of(shared_out / "segmentation.csv") if row["class"].startswith("mean")
    )
    assert float(mean["IoU mean"]) == pytest.approx(100 * kept["miou_present"])
    assert mean["IoU paper"] == "71.2"


def test_every_name_has_a_maker_and_every_view_exists() -> None:
    for entry in NAMES.values():
        assert callable(resolve_name(f"tagmask.reproduction.{entry.maker}"))
    for view in pairs("augmentations"):
        parse_view(view, 16)


@pytest.mark.parametrize("parts", [2, 3])
def test_parts_share_the_trainings_and_the_first_makes_the_table(
    parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trained() -> set[str]:
        return {file.parent.name for file in (tmp_path / "parts").glob("runs/*/trained.json")}

    flags = ("--rows", "none", "act", "both")
    done = run_paper(small(tmp_path / "parts", "ablation", *flags, "--shard", f"1/{parts}"))
    assert done.files == ()
    assert (
        done.summary() == f"part 1 of {parts}: 1 of 3 trainings are done. Part 0 makes the table."
    )
    first = trained()
    assert len(first) == 1
    monkeypatch.setenv(
        "RANK", "0"
    )  # the first process of a launch takes over what nobody has trained
    monkeypatch.setenv("WORLD_SIZE", str(parts))
    run_paper(small(tmp_path / "parts", "ablation", *flags))
    assert trained() > first
    assert len(trained()) == 3
    monkeypatch.delenv("RANK")
    monkeypatch.delenv("WORLD_SIZE")
    run_paper(small(tmp_path / "whole", "ablation", *flags))
    assert (tmp_path / "parts/ablation.csv").read_text() == (
        tmp_path / "whole/ablation.csv"
    ).read_text()
    assert (
        run_paper(small(tmp_path, "patch-order", "--shard", "1/2")).files == ()
    )  # nothing to train


def test_two_processes_at_once(tmp_path: Path) -> None:
    """As `accelerate launch` starts them: together they train each row once, and one writes the table."""
    out = tmp_path / "paper"
    command = [sys.executable, "-m", "tagmask", "paper", "ablation", *SMALL, "--out", str(out)]
    processes = [
        subprocess.Popen(
            command,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": "2",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert "activation + affinity (ACR)" in outputs[0]
    assert "part 1 of 2: 2 of 4 trainings are done." in outputs[1]
    assert len(list(out.glob("runs/*/trained.json"))) == 4
    assert len(rows_of(out / "ablation.csv")) == 4


def test_pseudo_labels_are_scored_on_the_list_that_is_named(tmp_path: Path) -> None:
    """A list of VOC: `train` after training on train_aug, as in the paper; images without a label are refused."""
    root, scenes = tmp_path / "VOC", Scenes(6, 0)
    for folder in ("JPEGImages", "SegmentationClassAug", "ImageSets/Segmentation"):
        (root / folder).mkdir(parents=True)
    names = [f"2008_{i:06}" for i in range(6)]
    for i, name in enumerate(names):
        Image.fromarray(scenes.load_image(i)).save(root / f"JPEGImages/{name}.jpg")
        write_mask(root / f"SegmentationClassAug/{name}.png", scenes.scene(i).mask)
    lists = {"train_aug": names[:5], "train": names[:2], "val": names[4:]}
    for name, members in lists.items():
        (root / f"ImageSets/Segmentation/{name}.txt").write_text("\n".join(members) + "\n")
    base = small(tmp_path / "out", "pseudo")
    settings = dataclasses.replace(
        base, data="voc", root=root, split="train_aug", score_count=None, count=2000
    )
    run_paper(settings)
    page = tmp_path / "out/pseudo.md"
    assert "2 images of VOC train, all of them trained on" in page.read_text()
    run_paper(dataclasses.replace(settings, score_split="train_aug"))
    assert "5 images of VOC train_aug, all of them trained on" in page.read_text()
    with pytest.raises(
        TagmaskError,
        match=r"1 images of --score-split val have no pseudo label, e\.g\. 2008_000005",
    ):
        run_paper(dataclasses.replace(settings, score_split="val"))
