"""The command as a user meets it."""

import csv
import dataclasses
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tagmask.cli import main
from tagmask.cli.parse import parse_paper
from tagmask.config import SeedSettings, TrainSettings
from tagmask.config.paper import PREDICTING, PaperSettings, write_paper_config
from tagmask.config.presets import MCT_RECIPE
from tagmask.data.catalog import Catalog
from tagmask.data.images import write_mask
from tagmask.errors import TagmaskError
from tagmask.reproduction import label_tables
from tagmask.reproduction.bench import Bench
from tagmask.reproduction.command import make, sentence
from tagmask.reproduction.measures import unlike_acr
from tagmask.reproduction.names import CONSISTENCY, NAMES
from tagmask.reproduction.numbers import NUMBERS
from tagmask.reproduction.seed_tables import mct_variants, second_backbone
from tagmask.reproduction.settings import paper_settings
from tests.reproduction.small import SMALL, small
from tests.reproduction.test_settings_page import of_voc

NOT_CLASSES = ("methods", "background", "mean")


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code or 0)


def test_the_list_names_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("paper", "--list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines if line.startswith("  ")} == set(NAMES)
    assert next(line for line in lines if "augmentations" in line).split()[-3:] == [
        "8",
        "trainings;",
        "masks",
    ]


def test_a_table_is_printed_with_its_files(
    shared_out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("paper", "ablation", *SMALL, "--out", str(shared_out)) == 0
    printed = capsys.readouterr().out
    assert "none (baseline)" in printed
    assert "67.3" in printed
    assert f"csv: {shared_out / 'ablation.csv'}" in printed


def test_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("paper", "--help") == 0
    printed = capsys.readouterr().out
    assert "tagmask paper --list" in printed
    assert "--random-seeds" in printed


def voc_of(folder: Path, counts: dict[str, int]) -> Path:
    """A set in the layout of VOC; its first list holds those that follow, but for val."""
    root = folder / "VOC2012"
    for part in ("JPEGImages", "SegmentationClassAug", "ImageSets/Segmentation"):
        (root / part).mkdir(parents=True)
    mask = np.full((20, 20), 8, np.uint8)
    for name, count in counts.items():
        prefix = "val" if name == "val" else "train"
        members = [f"{prefix}_{i}" for i in range(count)]
        (root / f"ImageSets/Segmentation/{name}.txt").write_text("\n".join(members) + "\n")
        for member in members:
            Image.new("RGB", (20, 20), "red").save(root / f"JPEGImages/{member}.jpg")
            write_mask(root / f"SegmentationClassAug/{member}.png", mask)
    return root


def photos(folder: Path) -> list[str]:
    for tag in ("cat", "dog"):
        (folder / tag).mkdir(parents=True)
        Image.new("RGB", (40, 40), "red").save(folder / tag / "one.png")
    return ["--data", "folder", "--images", str(folder)]


@pytest.mark.parametrize("table", ["ablation", "pseudo", "segmentation"])
def test_missing_masks_are_told_before_training(
    table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("paper", table, *photos(tmp_path / "photos"), "--out", str(tmp_path / "out")) == 1
    assert "have no masks to compare with; give --masks" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_figures_need_no_masks(tmp_path: Path) -> None:
    flags = [
        "--train.backbone",
        "tagmask_tiny",
        "--train.size",
        "32",
        "--train.steps",
        "1",
        "--train.batch",
        "2",
    ]
    arguments = [*photos(tmp_path / "photos"), *flags, "--out", str(tmp_path / "out")]
    assert run("paper", "maps", *arguments) == 0
    assert (tmp_path / "out" / "maps.png").is_file()


def test_no_picture_that_fits_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = [
        "--train.backbone",
        "tagmask_tiny",
        "--train.size",
        "32",
        "--train.steps",
        "1",
        "--train.batch",
        "2",
    ]
    assert (
        run("paper", "multi-class", *photos(tmp_path / "p"), *flags, "--out", str(tmp_path / "out"))
        == 1
    )
    assert "no image has 2 tags or more" in capsys.readouterr().err


def test_presets_and_flags(tmp_path: Path) -> None:
    settings = parse_paper(
        ["ablation", "--out", str(tmp_path), "--train.lr", "0.5", "--random-seeds", "3"]
    )
    assert settings.data == "scenes"  # the preset, where nothing else is said
    assert settings.of(TrainSettings).backbone == "tagmask_tiny"
    assert (settings.of(TrainSettings).lr, settings.random_seeds) == (0.5, 3)
    assert settings.of(SeedSettings).affinity_blocks == (0, 1)
    plain = parse_paper(["ablation", "--data", "voc", "--root", str(tmp_path), "--out", "x"])
    assert plain.of(TrainSettings).backbone == "deit_small_patch16_224"
    assert [plain.run(tmp_path, place).of(TrainSettings).seed for place in range(3)] == [0, 1, 2]


def test_what_is_scored(tmp_path: Path) -> None:
    scenes = parse_paper(["ablation", "--out", "x", "--scene-seed", "4"]).score_data()
    assert (scenes["count"], scenes["scene_seed"]) == (200, 5)  # none of those trained on
    voc = ["ablation", "--preset", "voc", "--root", str(tmp_path), "--out", "x"]
    assert parse_paper(voc).score_data()["split"] == "train"  # as in the paper
    assert parse_paper([*voc, "--split", "mine.txt"]).score_data()["split"] == "mine.txt"
    assert parse_paper([*voc, "--score-split", "val"]).score_data()["split"] == "val"


@pytest.mark.parametrize("table", PREDICTING)
def test_predicted_masks_are_those_of_val(table: str, tmp_path: Path) -> None:
    flags = ["--preset", "voc-paper", "--root", str(tmp_path), "--out", str(tmp_path / "x")]
    assert parse_paper([table, *flags]).score_data()["split"] == "val"
    asked = parse_paper([table, *flags, "--score-split", "train"])
    assert asked.score_data()["split"] == "train"
    assert parse_paper(["ablation", *flags]).score_data()["split"] == "train"


def test_every_table_with_a_segmenter_predicts_val() -> None:
    """`chain` follows the seeds of the images that other tables score."""
    segmented = {name for name, entry in NAMES.items() if "a segmenter" in entry.needs}
    assert segmented == set(PREDICTING)


def test_cocos_val_has_to_be_named(tmp_path: Path) -> None:
    settings = PaperSettings(table="compare-coco", out=tmp_path, data="coco", images=tmp_path)
    with pytest.raises(TagmaskError, match="--score-images and --score-annotations, otherwise"):
        make(Bench(settings))


@pytest.mark.parametrize("table", ["backbones", "ablation", "affinity"])
def test_tables_about_the_consistency_need_one(table: str, tmp_path: Path) -> None:
    flags = ["--preset", "voc-mct-paper", "--root", str(tmp_path), "--out", str(tmp_path / "x")]
    with pytest.raises(TagmaskError, match=r"--train\.alpha and --train\.beta are 0"):
        make(Bench(parse_paper([table, *flags])))


@pytest.mark.parametrize("table", CONSISTENCY)
@pytest.mark.parametrize(("loss", "other"), [("alpha", "beta"), ("beta", "alpha")])
def test_tables_about_the_consistency_need_both(
    table: str, loss: str, other: str, tmp_path: Path
) -> None:
    """With one of them, a row called ACR would be SEAM*, or affinity consistency alone."""
    settings = small(tmp_path, table, f"--train.{loss}", "0", f"--train.{other}", "7")
    with pytest.raises(TagmaskError, match=rf"--train\.{loss} is 0; give --train\.{loss} 7, or"):
        make(Bench(settings))
    assert not (tmp_path / "runs").exists()


def test_presets_of_seam_make_no_ablation(tmp_path: Path) -> None:
    settings = parse_paper(["ablation", "--preset", "scenes-seam", "--out", str(tmp_path)])
    with pytest.raises(TagmaskError, match=r"--train\.beta is 0; give --train\.beta 5, or"):
        make(Bench(settings))


def of_paper(folder: Path, table: str, preset: str, *flags: str) -> Bench:
    """A table by a strict preset, as if VOC's 10,582 images were there."""
    data = ["--root", str(folder)]
    if preset == "coco-paper":
        data = ["--images", str(folder), "--annotations", str(folder)]
    settings = parse_paper([table, "--preset", preset, *data, "--out", str(folder), *flags])
    bench = Bench(settings)
    bench.training_images = of_voc()
    return bench


@pytest.mark.parametrize("preset", ["voc-paper", "coco-paper", "voc-paper-psa"])
def test_strict_tables_compare_with_mctformer_on_deit_s(preset: str, tmp_path: Path) -> None:
    """The paper does; the rows are those of the strict preset of that backbone."""
    bench = of_paper(tmp_path, "backbones", preset)
    theirs = of_paper(tmp_path, "backbones", "voc-deit-s-paper")
    for row, changes in mct_variants(theirs).items():
        ours = bench.settings.run(tmp_path, changes=mct_variants(bench)[row]).of(TrainSettings)
        wanted = theirs.settings.run(tmp_path, changes=changes).of(TrainSettings)
        assert ours == wanted, row
        assert (ours.backbone, ours.size) == ("deit_small_patch16_224", 224)
    seeds = dataclasses.replace(bench.settings.of(SeedSettings), **second_backbone(bench)[1])
    assert seeds == theirs.settings.of(SeedSettings)
    assert seeds.size == 224


def test_another_backbone_and_what_was_asked_for_stay(tmp_path: Path) -> None:
    other = of_paper(tmp_path, "backbones", "voc-paper", "--train.backbone", "tagmask_tiny")
    assert second_backbone(other) == ({}, {})
    larger = of_paper(tmp_path, "maps", "voc-paper", "--train.size", "448")
    assert second_backbone(larger)[0] == {
        "backbone": "deit_small_patch16_224",
        "long_side": (201, 256),
    }
    ours = of_paper(tmp_path, "backbones", "voc-paper", "--no-mct-recipe")
    assert second_backbone(ours) == ({}, {})


def test_weights_of_the_first_backbone_are_not_the_seconds(tmp_path: Path) -> None:
    weights = tmp_path / "hybrid.safetensors"
    weights.touch()
    flags = ("--train.weights", str(weights), "--train.no-pretrained")
    bench = of_paper(tmp_path, "backbones", "voc-paper", *flags)
    with pytest.raises(TagmaskError, match="give --preset voc-deit-s-paper and weights"):
        mct_variants(bench)


def test_mctformer_warms_up_for_five_epochs_of_what_is_trained_on(tmp_path: Path) -> None:
    bench = of_paper(tmp_path, "backbones", "coco-paper")
    assert mct_variants(bench)["mct"]["warmup"] == MCT_RECIPE["warmup"] == 827  # of VOC
    bench.training_images = of_voc().subset(list(range(6400)))
    assert mct_variants(bench)["mct"]["warmup"] == 5 * 100
    half = of_paper(tmp_path, "backbones", "voc-paper", "--train.val-fraction", "0.5")
    assert mct_variants(half)["mct"]["warmup"] == round(5 * 5291 / 64)


def test_it_is_said_whose_budget_it_is(tmp_path: Path) -> None:
    of_acr = "15 epochs of 4 images"
    of_mct = "MCTformer: deit_small_patch16_224, 60 epochs of 64 images"
    told = sentence(of_paper(tmp_path, "backbones", "voc-paper"))
    assert f"ACR: deit_small_patch16_224, {of_acr}; {of_mct}, 10582 images" in told
    told = sentence(of_paper(tmp_path, "maps", "voc-paper"))
    assert f"ACR: vit_base_r50_s16_384, {of_acr}; {of_mct}, 10582 images" in told
    assert f"{of_acr} each" in sentence(of_paper(tmp_path, "ablation", "voc-paper"))
    assert f"{of_acr} each" in sentence(
        of_paper(tmp_path, "backbones", "voc-paper", "--no-mct-recipe")
    )


def test_tables_name_the_images_that_they_score(shared_out: Path) -> None:
    bench = Bench(small(shared_out, "segmentation"))
    assert bench.scored_on() == "5 built-in scenes of seed 1"
    same = dataclasses.replace(bench.settings, score_scene_seed=0, score_count=8)
    assert Bench(same).scored_on() == "8 built-in scenes of seed 0, all of them trained on"


@pytest.mark.parametrize(
    ("table", "flags", "told"),
    [
        (
            "methods",
            ("--train.alpha", "0", "--train.beta", "0"),
            "is called ACR here is the baselin",
        ),
        ("methods", ("--train.beta", "0"), "called ACR here is SEAM*"),
        ("layers", ("--train.alpha", "0"), "called ACR here is affinity consistency alone"),
        ("segmentation", ("--train.kind", "mct"), "an MCTformer"),
        ("ablation", ("--train.kind", "mct"), "an MCTformer"),
        ("augmentations", ("--train.kind", "mct"), "an MCTformer"),
        ("distances", ("--train.kind", "mct"), "an MCTformer"),
        ("gains", ("--train.kind", "mct"), "an MCTformer"),
        ("open-ends", ("--train.kind", "mct"), "an MCTformer"),
        ("affinity", ("--train.kind", "mct"), "an MCTformer"),
        ("source-pixels", ("--train.kind", "mct"), "an MCTformer"),
        ("backbones", ("--train.kind", "mct"), ""),  # it says itself which row is one
        ("maps", ("--train.kind", "mct"), ""),
        ("methods", ("--train.kind", "mct"), ""),  # its rows are ACR's in any case
        ("pseudo", ("--seeds.method", "weighted"), "--seeds.method weighted, not ACR's"),
        ("methods", ("--seeds.method", "weighted"), ""),
        ("pseudo", ("--train.objects",), "maps of objects"),
        ("ablation", ("--train.objects",), ""),  # its maps are made by the method
        ("pseudo", ("--train.objects", "--seeds.objects", "False"), ""),
        ("ablation", (), ""),
    ],
)
def test_tables_say_in_what_they_are_not_acrs(
    table: str, flags: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    notes = unlike_acr(Bench(small(tmp_path, table, *flags)))
    assert len(notes) == bool(told)
    assert told in " ".join(notes)


def test_our_row_names_images_that_are_not_the_papers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images that were trained on are not called val, and a list of that name is not VOC's."""
    for name, count in (("compare-voc", 2), ("compare-seeds", 3)):
        theirs = dataclasses.replace(label_tables.MEASURED_ON[name], count=count)
        monkeypatch.setitem(label_tables.MEASURED_ON, name, theirs)
    monkeypatch.setattr(Bench, "trained", lambda *_: {"ACR": []})
    root = voc_of(tmp_path, {"train_aug": 6, "train": 3, "val": 2})
    flags = ["--preset", "voc-paper", "--root", str(root), "--out", str(tmp_path / "x")]
    for table, more, expected in (
        ("compare-voc", (), "tagmask"),
        (
            "compare-voc",
            ("--score-split", "train"),
            "3 images of VOC train, all of them trained on",
        ),
        ("compare-voc", ("--split", "val"), "2 images of VOC val, all of them trained on"),
        ("compare-seeds", (), "tagmask"),
        (
            "compare-seeds",
            ("--score-split", "train_aug"),
            "6 images of VOC train_aug, all of them trained on",
        ),
    ):
        *_, ours = label_tables.compare(Bench(parse_paper([table, *flags, *more]))).rows
        assert ours.title.removeprefix("tagmask, on ") == expected
    monkeypatch.undo()
    monkeypatch.setattr(Bench, "trained", lambda *_: {"ACR": []})
    for table, expected in (
        ("compare-voc", "2 images of VOC val"),
        ("compare-seeds", "3 images of VOC train, all of them trained on"),
    ):
        made = label_tables.compare(Bench(parse_paper([table, *flags])))
        assert made.rows[-1].title == f"tagmask, on {expected}"
        assert made.title.endswith("; tagmask on other images")


def test_only_cocos_val_is_cocos_val(tmp_path: Path) -> None:
    """Not any photos in its format, and not as many images with other classes."""
    val = tmp_path / "val"
    settings = PaperSettings(
        table="compare-coco", out=tmp_path, data="coco", images=tmp_path, score_images=val
    )
    bench = Bench(settings)
    names = [f"{i}" for i in range(40_137)]
    tags = [[0]] * len(names)
    classes = [name for name in NUMBERS["per-class-coco"] if name not in NOT_CLASSES]
    assert len(classes) == 80
    for images, expected in (
        (Catalog(classes, names, tags), True),
        (Catalog(classes, names[1:], tags[1:]), False),
        (Catalog(["dog", "cat"], names, tags), False),
    ):
        bench.scored_images = images
        assert label_tables._are_the_papers(bench, "compare-coco") is expected
        assert label_tables._are_the_papers(bench, "per-class-coco") is expected
        assert not label_tables._are_the_papers(bench, "per-class-voc")


def test_nothing_is_compared_where_nothing_is_trained(tmp_path: Path) -> None:
    flags = ("--train.fixed-views", "--train.freeze", "1", "--train.head-first")
    few = small(tmp_path, "ablation", *flags, "--train.train-from", "9")
    with pytest.raises(
        TagmaskError, match=r"with 8 photos nothing is trained .* --train\.train-from 0"
    ):
        make(Bench(few))


def test_methods_make_their_own_maps_where_objects_were_learned(tmp_path: Path) -> None:
    flags = ("--train.objects", "--train.object-blocks", "1", "3", "--train.object-size", "64")
    bench = Bench(small(tmp_path, "methods", *flags))
    runs = bench.trained({"ACR": {}})
    scores = {name: bench.scored(runs, name)["ACR"][0] for name in ("cam", "generic")}
    plain = [score["plain"]["curve"] for score in scores.values()]
    assert plain[0] != plain[1]
    (of_objects,) = bench.scored(runs, is_chain=True)["ACR"]
    assert of_objects["refined"]["curve"] not in [s["refined"]["curve"] for s in scores.values()]
    asked = Bench(small(tmp_path, "ablation", *flags, "--seeds.objects", "True"))
    (again,) = asked.scored(asked.trained({"ACR": {}}))["ACR"]
    assert again["refined"]["curve"] == of_objects["refined"]["curve"]


def test_settings_of_a_table_are_read_again(tmp_path: Path) -> None:
    settings = small(
        tmp_path, "ablation", "--random-seeds", "2", "--only", "cow", "--score-scene-seed", "7"
    )
    write_paper_config(tmp_path / "ablation.toml", settings)
    again = parse_paper(
        ["layers", "--config", str(tmp_path / "ablation.toml"), "--out", str(tmp_path / "b")]
    )
    assert _changed(settings, again) == {"table", "out"}
    more = parse_paper(
        ["layers", "--config", str(tmp_path / "ablation.toml"), "--out", "b", "--train.steps", "9"]
    )
    assert _changed(settings, more) == {"table", "out", "stages"}
    assert more.with_changes(train={"steps": settings.of(TrainSettings).steps}).stages == (
        settings.stages
    )


@pytest.mark.parametrize("preset", ["scenes", "voc-paper"])
def test_settings_from_python_are_those_of_the_command(preset: str) -> None:
    """With all sections of the preset, those of tables included."""
    typed = parse_paper(
        f"methods --preset {preset} --out paper --count 8 --random-seeds 2 --train.size 32".split()
    )
    given = {"count": 8, "random_seeds": 2, "train": {"size": 32}}
    assert paper_settings("methods", "paper", preset=preset, **given) == typed
    assert typed.mct_recipe == (preset == "voc-paper")


def test_settings_from_python_that_are_not() -> None:
    with pytest.raises(TagmaskError, match="paper_settings: train: there is no setting 'stepz'"):
        paper_settings("methods", "paper", train={"stepz": 1})
    with pytest.raises(TagmaskError, match="paper_settings: there is no setting 'seed'"):
        paper_settings("methods", "paper", seed=1)
    with pytest.raises(TagmaskError, match="did you mean 'scenes'"):
        paper_settings("methods", "paper", preset="scene")


def _changed(first: PaperSettings, second: PaperSettings) -> set[str]:
    names = [field.name for field in dataclasses.fields(first)]
    return {name for name in names if getattr(first, name) != getattr(second, name)}


@pytest.mark.parametrize(
    ("table", "flags"),
    [
        ("backbones", ("--seeds.method", "generic")),
        ("backbones", ("--seeds.centre",)),
        ("layers", ("--seeds.method", "cam")),
    ],
)
def test_maps_that_a_row_has_not_are_refused_before_training(
    table: str, flags: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("paper", table, *SMALL, "--out", str(tmp_path), *flags) == 1
    assert "leave" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_some_rows_of_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("paper", "ablation", *SMALL, "--out", str(tmp_path), "--rows", "both", "none") == 0
    printed = capsys.readouterr().out
    assert printed.index("none (baseline)") < printed.index(
        "activation + affinity (ACR)"
    )  # the table's order
    assert "SEAM*" not in printed
    assert len(list((tmp_path / "runs").iterdir())) == 2  # and no other training
    config = ["--config", str(tmp_path / "ablation.toml"), "--out", str(tmp_path)]
    assert parse_paper(["ablation", *config]).rows == ("both", "none")
    assert parse_paper(["methods", *config]).rows == ()  # another table's rows are not this one's
    assert run("paper", "methods", *SMALL, "--out", str(tmp_path), "--rows", "cam") == 0
    assert "TS-CAM" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("table", "rows", "sentence"),
    [
        (
            "ablation",
            ("none", "cam"),
            "--rows cam: ablation has no such row; choose from none, act, aff, both.",
        ),
        ("backbones", ("mct+",), "choose from mct, mct+acr, acr."),
        (
            "layers",
            ("1",),
            "--rows belongs to ablation, gains, open-ends, methods, backbones, augmentations, distances",
        ),
    ],
)
def test_rows_that_are_not(
    table: str,
    rows: tuple[str, ...],
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("paper", table, *SMALL, "--out", str(tmp_path), "--rows", *rows) == 1
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_finished_run_gives_our_row(
    shared_out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = {
        "seeds": {"plain": {}, "refined": {"thresholds": {"oracle": {"miou_present": 0.4567}}}},
        "pseudo": {"miou_present": 0.5123},
        "predictions": {"miou_present": 0.6, "iou": {"background": 0.9, "dog": 0.3}, "images": 7},
    }
    (tmp_path / "scores.json").write_text(json.dumps(scores))
    rows = {}
    for table in ("compare-seeds", "compare-voc", "compare-coco", "per-class"):
        assert run("paper", table, "--scores", str(tmp_path), "--out", str(tmp_path / "out")) == 0
        text = (tmp_path / f"out/{table}.csv").read_text()
        rows[table] = {row[0]: row[1:] for row in csv.reader(io.StringIO(text))}
        note = " ".join(capsys.readouterr().out.split())
        others = "columns" if table == "per-class" else "rows"
        assert f"can be compared with the other {others} only if those images are" in note
    assert not (tmp_path / "out/runs").exists()  # nothing was trained
    assert float(rows["compare-seeds"]["tagmask"][0]) == pytest.approx(45.67)
    assert float(rows["compare-seeds"]["tagmask"][4]) == pytest.approx(51.23)
    assert (
        float(rows["compare-voc"]["tagmask"][0]) == float(rows["compare-coco"]["tagmask"][0]) == 60
    )
    assert rows["compare-voc"]["tagmask"][4] == ""  # nobody has the masks of test
    assert float(rows["per-class"]["dog"][0]) == 30
    assert rows["per-class"]["dog"][3:] == [
        "83.5",
        "83.4",
        "83.1",
    ]  # the paper's, CPN, Kweon et al.
    assert rows["per-class"]["horse"][0] == ""
    page = tmp_path / "out/per-class.md"
    assert "21 IoUs on VOC" in page.read_text()
    predictions = scores["predictions"]
    assert isinstance(predictions, dict)
    predictions["iou"] = {"background": 0.9, "motorcycle": 0.3}
    (tmp_path / "scores.json").write_text(json.dumps(scores))
    assert run("paper", "per-class", "--scores", str(tmp_path), "--out", str(tmp_path / "out")) == 0
    assert "MS COCO 2014" in page.read_text()
    assert "VOC" not in page.read_text()  # no note on VOC below numbers of COCO
    (tmp_path / "scores.json").write_text("{}")
    assert (
        run("paper", "compare-voc", "--scores", str(tmp_path), "--out", str(tmp_path / "out")) == 1
    )
    assert "has no scores of predictions" in capsys.readouterr().err
