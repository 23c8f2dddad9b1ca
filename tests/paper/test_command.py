"""The command as a user meets it."""

import dataclasses
from pathlib import Path

import pytest
from PIL import Image

from tagmask.cli import main
from tagmask.cli.parse import parse_paper
from tagmask.config.paper import PaperSettings, write_paper_config
from tagmask.paper.names import NAMES
from tests.paper.small import SMALL, small


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code or 0)


def test_the_list_names_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("paper", "--list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines if line.startswith("  ")} == set(NAMES)
    assert next(line for line in lines if "augmentations" in line).split()[-3:] == ["8", "trainings;", "masks"]


def test_a_table_is_printed_with_its_files(shared_out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("paper", "ablation", *SMALL, "--out", str(shared_out)) == 0
    told = capsys.readouterr().out
    assert "none (baseline)" in told
    assert "67.3" in told
    assert f"csv: {shared_out / 'ablation.csv'}" in told


def test_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("paper", "--help") == 0
    told = capsys.readouterr().out
    assert "tagmask paper --list" in told
    assert "--random-seeds" in told


def photos(folder: Path) -> list[str]:
    for tag in ("cat", "dog"):
        (folder / tag).mkdir(parents=True)
        Image.new("RGB", (40, 40), "red").save(folder / tag / "one.png")
    return ["--data", "folder", "--images", str(folder)]


@pytest.mark.parametrize("table", ["ablation", "pseudo", "segmentation"])
def test_missing_masks_are_told_before_training(table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("paper", table, *photos(tmp_path / "photos"), "--out", str(tmp_path / "out")) == 1
    assert "have no masks to compare with; give --masks" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_figures_need_no_masks(tmp_path: Path) -> None:
    flags = ["--train.backbone", "tagmask_tiny", "--train.size", "32", "--train.steps", "1", "--train.batch", "2"]
    arguments = [*photos(tmp_path / "photos"), *flags, "--out", str(tmp_path / "out")]
    assert run("paper", "maps", *arguments) == 0
    assert (tmp_path / "out" / "maps.png").is_file()


def test_no_picture_that_fits_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--train.backbone", "tagmask_tiny", "--train.size", "32", "--train.steps", "1", "--train.batch", "2"]
    assert run("paper", "multi-class", *photos(tmp_path / "p"), *flags, "--out", str(tmp_path / "out")) == 1
    assert "no image has 2 tags or more" in capsys.readouterr().err


def test_presets_and_flags(tmp_path: Path) -> None:
    settings = parse_paper(["ablation", "--out", str(tmp_path), "--train.lr", "0.5", "--random-seeds", "3"])
    assert settings.data == "scenes"  # the preset, where nothing else is said
    assert settings.train.backbone == "tagmask_tiny"
    assert (settings.train.lr, settings.random_seeds) == (0.5, 3)
    assert settings.seeds.affinity_blocks == (0, 1)
    plain = parse_paper(["ablation", "--data", "voc", "--root", str(tmp_path), "--out", "x"])
    assert plain.train.backbone == "deit_small_patch16_224"
    assert [plain.run(tmp_path, place).train.seed for place in range(3)] == [0, 1, 2]


def test_what_is_scored(tmp_path: Path) -> None:
    scenes = parse_paper(["ablation", "--out", "x", "--scene-seed", "4"]).score_data()
    assert (scenes["count"], scenes["scene_seed"]) == (200, 5)  # none of those trained on
    voc = ["ablation", "--preset", "voc", "--root", str(tmp_path), "--out", "x"]
    assert parse_paper(voc).score_data()["split"] == "train_aug"
    assert parse_paper([*voc, "--score-split", "val"]).score_data()["split"] == "val"


def test_settings_of_a_table_are_read_again(tmp_path: Path) -> None:
    settings = small(tmp_path, "ablation", "--random-seeds", "2", "--only", "cow", "--score-scene-seed", "7")
    write_paper_config(tmp_path / "ablation.toml", settings)
    again = parse_paper(["layers", "--config", str(tmp_path / "ablation.toml"), "--out", str(tmp_path / "b")])
    assert _changed(settings, again) == {"table", "out"}
    more = parse_paper(["layers", "--config", str(tmp_path / "ablation.toml"), "--out", "b", "--train.steps", "9"])
    assert _changed(settings, more) == {"table", "out", "train"}


def _changed(one: PaperSettings, other: PaperSettings) -> set[str]:
    names = [field.name for field in dataclasses.fields(one)]
    return {name for name in names if getattr(one, name) != getattr(other, name)}


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
    told = capsys.readouterr().out
    assert told.index("none (baseline)") < told.index("activation + affinity (ACR)")  # the table's order
    assert "SEAM*" not in told
    assert len(list((tmp_path / "runs").iterdir())) == 2  # and no other training
    config = ["--config", str(tmp_path / "ablation.toml"), "--out", str(tmp_path)]
    assert parse_paper(["ablation", *config]).rows == ("both", "none")
    assert parse_paper(["methods", *config]).rows == ()  # another table's rows are not this one's
    assert run("paper", "methods", *SMALL, "--out", str(tmp_path), "--rows", "cam") == 0
    assert "TS-CAM" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("table", "rows", "sentence"),
    [
        ("ablation", ("none", "cam"), "--rows cam: ablation has no such row; choose from none, act, aff, both."),
        ("backbones", ("mct+",), "choose from mct, mct+acr, acr."),
        ("layers", ("1",), "--rows belongs to ablation, methods, backbones, augmentations, distances"),
    ],
)
def test_rows_that_are_not(
    table: str, rows: tuple[str, ...], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("paper", table, *SMALL, "--out", str(tmp_path), "--rows", *rows) == 1
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
