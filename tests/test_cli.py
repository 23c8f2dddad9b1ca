"""The command line as a user meets it."""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tagmask.cli import main
from tagmask.cli.parse import parse_stage, with_place
from tagmask.config import ExportSettings, Settings, TrainSettings
from tagmask.runs.table import STAGES as TABLE
from tagmask.runs.table import stage as row_of


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code or 0)


def test_help_imports_nothing_heavy() -> None:
    code = "import sys, tagmask.cli\ntry: tagmask.cli.main(['--help'])\nexcept SystemExit: pass\n"
    code += "heavy = {'torch', 'timm', 'numpy', 'tyro', 'matplotlib'} & set(sys.modules)\nassert not heavy, heavy"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "tagmask train" in done.stdout


@pytest.mark.parametrize(
    "command", ["train", "demo", "seeds", "score", "segment", "predict", "export", "paper"]
)
def test_help_of_a_command_shows_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command, "--help") == 0
    assert f"tagmask {command} --" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out.startswith("tagmask 0.")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fly"], "there is no command 'fly'; choose from demo, run, train"),
        (
            ["train", "--preset", "paper", "--out", "x"],
            "there is no preset 'paper'; did you mean",
        ),
        (["train", "--out", "x", "--preset"], "--preset needs a value"),
        (["train", "--config", "no.toml", "--out", "x"], "no.toml does not exist"),
        (
            ["train", "--out", "x", "--data", "folder"],
            "--images is missing; --data folder needs it",
        ),
        (
            ["train", "--out", "x", "--data", "voc", "--root", "nowhere"],
            "--root nowhere does not exist",
        ),
        (
            ["train", "--out", "x", "--backbone", "resnet18", "--count", "4"],
            "use a ViT with a class token",
        ),
        (
            ["score", "--out", "x", "--preset", "scenes"],
            "--preset scenes: tagmask score has no presets; leave it out.",
        ),
        (
            ["segment", "--out", "x", "--count", "4"],
            "x/4_pseudo contains no pseudo labels of these images; make them",
        ),
        (
            ["segment", "--out", "x", "--backbone", "resnet18", "--size", "3"],
            "--size 3 must be at least 9",
        ),
        (["predict", "--out", "x"], "x/5_segmenter/config.json does not exist"),
        (["predict", "photo.jpg", "--model", "m"], "m/config.json does not exist"),
        (
            ["predict", "photo.jpg", "--model", "m", "--scales", "9"],
            "--scales 9.0 must be above 0 and at most 4",
        ),
        (
            ["export", "--out", "x"],
            "--to is missing; name the file or folder to write, or --onnx FILE",
        ),
        (
            ["export", "--out", "x", "--to", "y.json"],
            "x/6_predictions holds no mask of these images; make some with",
        ),
        (["export", "--out", "x", "--onnx", "y.onnx"], "x/5_segmenter/config.json does not exist"),
        (["paper"], "name a table or figure first: all, compare-coco, compare-seeds"),
        (
            ["paper", "ablaton", "--out", "x"],
            "no table or figure 'ablaton'; did you mean 'ablation'?",
        ),
        (["paper", "zebra", "--out", "x"], "choose from all, compare-coco, compare-seeds"),
        (["paper", "ablation", "--preset", "photos", "--out", "x"], "there is no preset 'photos'"),
        (
            ["paper", "ablation", "--out", "x", "--score-split", "val"],
            "--score-split belongs to --data voc; leave it out.",
        ),
        (
            ["paper", "ablation", "--out", "x", "--random-seeds", "0"],
            "--random-seeds 0 must be at least 1",
        ),
        (
            ["paper", "ablation", "--out", "x", "--train.steps", "0"],
            "train: --steps 0 must be at least 1",
        ),
        (
            ["paper", "ablation", "--out", "x", "--train.count", "3"],
            "--train.count has no place in a run",
        ),
        (
            ["paper", "ablation", "--out", "x", "--count", "4", "--only", "zebra"],
            "--only zebra is no class of these images",
        ),
        (
            ["paper", "ablation", "--preset", "voc", "--out", "x"],
            "--root is missing; --data voc needs it",
        ),
        (["paper", "ablation", "--config", "no.toml", "--out", "x"], "no.toml does not exist"),
    ],
)
def test_mistakes_end_with_a_sentence(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*arguments) == 1
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_train_from_a_config_with_a_flag_on_top(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--preset", "scenes", "--count", "8", "--size", "32", "--batch", "2", "--steps", "1"]
    assert run("train", *flags, "--out", str(tmp_path / "a")) == 0
    assert "validation mAP" in capsys.readouterr().out
    config = str(tmp_path / "a" / "config.toml")
    assert run("train", "--config", config, "--out", str(tmp_path / "b"), "--steps=2") == 0
    text = (tmp_path / "b" / "config.toml").read_text()
    assert "steps = 2" in text
    assert "count = 8" in text


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_unwritable_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.chmod(0o500)
    flags = ["--preset", "scenes", "--count", "8", "--size", "32", "--batch", "2", "--steps", "1"]
    assert run("train", *flags, "--out", str(tmp_path / "a")) == 1
    assert "permission denied" in capsys.readouterr().err


def test_full_disk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path / "log.jsonl"))

    monkeypatch.setattr("tagmask.training.loop.Loop._log", full)
    flags = ["--preset", "scenes", "--count", "8", "--size", "32", "--batch", "2", "--steps", "1"]
    assert run("train", *flags, "--out", str(tmp_path / "a")) == 1
    assert "the disk is full; free some space" in capsys.readouterr().err


STAGES = [
    *((row.name, row.settings) for row in TABLE if row.name != "affinity"),
    ("export", ExportSettings),
]


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> set[str]:
    """The flags that a help lists."""
    assert run(*arguments) == 0
    _, _, options = capsys.readouterr().out.partition(" options")
    return set(re.findall(r"^[│ ]+(--[\w.-]+)", options, re.MULTILINE))


@pytest.mark.parametrize(("name", "kind"), STAGES)
def test_help_is_short_and_help_all_is_complete(
    name: str, kind: type[Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(name, "--help") == 0
    assert len(capsys.readouterr().out.splitlines()) <= 66
    short, everything = shown(capsys, name, "--help"), shown(capsys, name, "--help-all")
    flags = {f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(kind)} - {
        "--affinity"
    }
    assert flags <= everything
    assert {"--out", "--data"} <= short < everything
    assert run(name, "--help-all") == 0
    first, _, second = capsys.readouterr().out.partition("more options")
    assert "--scene-seed" not in first
    assert "--scene-seed" in second
    assert "--out PATH" in first


@pytest.mark.parametrize(("name", "kind"), STAGES)
def test_every_basic_setting_exists(name: str, kind: type[Settings]) -> None:
    names = {field.name for field in dataclasses.fields(with_place(kind))}
    assert set(kind.basic.split()) <= names


def test_help_of_nested_settings_and_of_a_photo(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--affinity.radius" not in shown(capsys, "pseudo", "--help")
    assert {"--affinity.radius", "--affinity.freeze-norm"} <= shown(capsys, "pseudo", "--help-all")
    assert {"--photo", "--model", "--tags"} <= shown(capsys, "seeds", "photo.jpg", "--help")


def test_help_of_a_run_says_how_to_set_a_stage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("run", "--help") == 0
    text = capsys.readouterr().out
    assert "--STAGE.NAME" in text
    assert "stages: train, seeds, pseudo, segment, predict" in text
    assert "--rows INT" in text
    assert "--train.lr FLOAT" not in text


@pytest.mark.parametrize(
    ("preset", "backbone"),
    [((), "vit_small_patch14_reg4_dinov2"), (("--preset", "scenes"), "tagmask_tiny")],
    ids=["none", "scenes"],
)
def test_help_of_a_run_lists_weights_and_backbone(
    preset: tuple[str, ...], backbone: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a preset the backbone is that of own photos."""
    for asked in ("--help", "--help-all"):
        assert run("run", *preset, asked) == 0
        text = capsys.readouterr().out
        assert "--train.weights PATH" in text
        assert "--train.backbone STR" in text
        assert f"(default: {backbone})" in " ".join(text.replace("│", " ").split())


def test_defaults_in_the_help_are_those_of_the_preset(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "--preset", "scenes", "--help") == 0
    assert "(default: 380)" in capsys.readouterr().out


def test_settings_that_the_help_hides_can_be_set(tmp_path: Path) -> None:
    run, settings = parse_stage(
        TrainSettings, ["--out", str(tmp_path), "--power", "0.5", "--scene-seed=7"], "train", ""
    )
    assert isinstance(settings, TrainSettings)
    assert (settings.power, run.scene_seed) == (0.5, 7)


@pytest.mark.parametrize("stage", ["seeds", "pseudo", "segment", "predict"])
def test_a_preset_gives_a_stage_its_data(stage: str) -> None:
    settings, _ = parse_stage(
        row_of(stage).settings, ["--preset", "voc", "--root", "here", "--out", "nowhere"], stage, ""
    )
    assert (settings.data, settings.split, settings.root) == ("voc", "train_aug", Path("here"))
