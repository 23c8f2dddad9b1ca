"""Run folders of an earlier version are read: nothing that is done is redone, and a stopped training resumes.

The notes below are those of commit 180ae25 for ``tiny_run``, apart from hashes: it did not mark inputs in made_by.json
and in resume points, and some settings had other names or did not exist.
"""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from safetensors.torch import save_file

from tagmask.cli import main
from tagmask.cli.parse import parse_run
from tagmask.config import AffinitySettings
from tagmask.errors import TagmaskError
from tagmask.pipeline.record import differences, file_digest, made_from, places
from tagmask.pipeline.run import RunSummary, run
from tagmask.pipeline.stages import stage
from tagmask.scenes.objects import CLASSES
from tagmask.stages.segment import train_segmenter
from tagmask.stages.train import train
from tagmask.training.checkpoint import read_state
from tagmask.training.loop import Loop
from tests.pipeline.tiny import IMAGES, tiny_run

LOOP: dict[str, Any] = {
    "epochs": 15,
    "steps": 6,
    "batch": 2,
    "accumulate": 1,
    "optimizer": "adamw",
    "momentum": 0.9,
    "head_lr": 1.0,
    "power": 0.9,
    "warmup": 1,
    "clip": 0.0,
    "precision": "no",
    "ema": 0.0,
    "seed": 0,
    "val_every": 100.0,
}
TRAIN: dict[str, Any] = {
    **LOOP,
    "lr": 0.001,
    "weight_decay": 0.02,
    "backbone": "tagmask_tiny",
    "pretrained": True,
    "freeze": 0,
    "size": 32,
    "crop_scale": 0.8,
    "drop_path": 0.0,
    "alpha": 5.0,
    "beta": 5.0,
    "alpha_absolute": False,
    "view": "hflip",
    "distance": "l1",
    "checkpoint_attention": False,
    "val_fraction": 0.1,
}
SEEDS: dict[str, Any] = {
    "method": "acr",
    "affinity_blocks": [0, 1],
    "transpose": False,
    "centre": False,
    "compete": False,
    "propagation": 0.0,
    "size": 32,
    "scales": [1.0],
    "flip": True,
    "dtype": "uint8",
}
PSEUDO: dict[str, Any] = {
    "method": "crf",
    "rule": "cross_entropy",
    "crf": True,
    "crf_preset": "labels",
    "unsure": False,
    "alpha_low": 4.0,
    "alpha_high": 32.0,
    "affinity_blocks": [0, 1],
}
SEGMENT: dict[str, Any] = {
    **LOOP,
    "lr": 0.002,
    "weight_decay": 0.01,
    "backbone": "test_resnet",
    "pretrained": False,
    "caffe": False,
    "multi_scale": False,
    "frozen_norm": False,
    "crop": 33,
    "scales": [0.75, 1.25],
    "val_fraction": 0.05,
}
PREDICT: dict[str, Any] = {
    "scales": [1.0],
    "flip": False,
    "crf": False,
    "halo": 256,
    "use_tags": False,
    "probabilities": False,
}
SEEDS_MADE_BY: dict[str, Any] = {**SEEDS, "layers": 2, "scene_seed": 0}
PSEUDO_MADE_BY: dict[str, Any] = {
    "method": "crf",
    "maps": None,
    "crf": True,
    "crf_preset": "labels",
    "unsure": False,
    "background": None,
    "rule": "cross_entropy",
    "beta": None,
    "steps": None,
}
PREDICT_MADE_BY: dict[str, Any] = {
    "scales": [1.0],
    "flip": False,
    "tile": None,
    "halo": 256,
    "use_tags": False,
    "crf": None,
    "scene_seed": 0,
}
SCENES: dict[str, Any] = {"data": "scenes", "split": "train", "count": IMAGES, "scene_seed": 0}


@pytest.fixture
def earlier(finished: tuple[Path, RunSummary], tmp_path: Path) -> Path:
    """A finished run with the notes of the earlier version."""
    out = tmp_path / "run"
    shutil.copytree(finished[0], out)
    classifier, segmenter = (
        file_digest(out / f"{name}/model.safetensors") for name in ("1_classifier", "5_segmenter")
    )
    write_made_by(out / "2_seeds", model=classifier, **SEEDS_MADE_BY)
    write_made_by(
        out / "4_pseudo", seeds=file_digest(out / "2_seeds/made_by.json"), **PSEUDO_MADE_BY
    )
    write_made_by(out / "6_predictions", model=segmenter, **PREDICT_MADE_BY)
    write_done(out, "train", TRAIN)
    write_done(out, "seeds", SEEDS, classifier=classifier)
    write_done(out, "pseudo", PSEUDO, seeds=stage("seeds").record(out).stamp())
    write_done(out, "segment", SEGMENT, **{"pseudo labels": stage("pseudo").record(out).stamp()})
    write_done(out, "predict", PREDICT, segmenter=segmenter)
    files = {
        stage(name).title: stage(name).record(out).stamp()
        for name in ("seeds", "pseudo", "predict")
    }
    write_done(out, "score", {}, masks=inputs_of(out, "score")["masks"], **files)
    write_done(out, "report", {"rows": 3}, scores=file_digest(out / "scores.json"), **files)
    edit(out / "1_classifier/config.json", {"kind": "model"}, {"fixed_views"})
    edit(out / "5_segmenter/config.json", {"kind": "model", "freeze_norm": "frozen_norm"})
    return out


def write_made_by(folder: Path, **note: Any) -> None:
    (folder / "made_by.json").write_text(json.dumps({**note, "classes": CLASSES}))


def write_done(out: Path, name: str, settings: dict[str, Any], **inputs: str) -> None:
    images = {
        title: value
        for title, value in inputs_of(out, name).items()
        if title in ("names and tags", "images")
    }
    marked = {f"input {title}": value for title, value in (images | inputs).items()}
    record = stage(name).record(out)
    record.done.write_text(
        json.dumps({"made_from": {**settings, **marked}, "files": record.files()})
    )


def inputs_of(out: Path, name: str) -> dict[str, str]:
    noted = json.loads(stage(name).record(out).done.read_text())["made_from"]
    return {
        title.removeprefix("input "): value
        for title, value in noted.items()
        if title.startswith("input ")
    }


def edit(file: Path, names: dict[str, str], dropped: set[str] | None = None) -> None:
    content = json.loads(file.read_text())
    kept = {
        names.get(name, name): value
        for name, value in content.items()
        if name not in (dropped or set())
    }
    file.write_text(json.dumps(kept))


def command(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run a command; what it prints, or its error."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    printed = capsys.readouterr()
    return printed.out if ended.value.code == 0 else printed.err


def test_nothing_is_redone(earlier: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = earlier / "config.toml"
    text = (
        config.read_text()
        .replace("freeze_norm =", "frozen_norm =")
        .replace('kind = "acr"', 'model = "acr"')
    )
    added = ("affinity_steps", "fixed_views", "tokens_limit")
    config.write_text(
        "".join(line for line in text.splitlines(keepends=True) if not line.startswith(added))
    )
    rewritten = {config, *earlier.glob("*/log.jsonl")}  # with the same content
    before = {
        file: file.stat().st_mtime_ns
        for file in earlier.rglob("*")
        if file.is_file() and file not in rewritten
    }
    assert (
        run(parse_run(["--config", str(config), "--out", str(earlier), "--no-estimate"])).made == ()
    )
    words = ["--config", str(config), "--out", str(earlier)]
    for name, folder in (
        ("seeds", "2_seeds"),
        ("pseudo", "4_pseudo"),
        ("predict", "6_predictions"),
    ):
        assert f"0 made, {IMAGES} already there, in {earlier / folder}" in command(
            capsys, name, *words
        )
    for name in ("train", "segment"):
        assert f"{earlier / stage(name).folder / 'model.safetensors'}" in command(
            capsys, name, *words
        )
    assert {file: file.stat().st_mtime_ns for file in before} == before


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["seeds", "--layers", "1"], "layers was 2 and is now 1"),
        (["seeds", "--affinity-steps", "2"], "affinity_steps was 1 and is now 2"),
        (["seeds", "--model", "OTHER"], "classifier changed"),
        (["pseudo", "--background", "0.4"], "background was the default and is now 0.4"),
        (["predict", "--crf"], "crf was False and is now True"),
        (["predict", "--model", "OTHER"], "segmenter changed"),
        (["predict", "--tile", "200"], "tile was the default and is now 200"),
    ],
)
def test_files_of_other_settings_are_not_mixed(
    words: list[str], reason: str, earlier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "OTHER" in words:  # the same network with one byte of its weights changed
        other = tmp_path / "other"
        shutil.copytree(
            earlier / {"seeds": "1_classifier", "predict": "5_segmenter"}[words[0]], other
        )
        weights = bytearray((other / "model.safetensors").read_bytes())
        weights[-1] ^= 1
        (other / "model.safetensors").write_bytes(weights)
        words = [str(other) if word == "OTHER" else word for word in words]
    config = ["--config", str(earlier / "config.toml"), "--out", str(earlier)]
    assert f"made with other settings or inputs ({reason});" in command(
        capsys, words[0], *config, *words[1:]
    )


def test_labels_of_other_seeds_are_not_mixed(
    earlier: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    note = json.loads((earlier / "2_seeds/made_by.json").read_text())
    (earlier / "2_seeds/made_by.json").write_text(json.dumps({**note, "layers": 1}))
    words = ["pseudo", "--config", str(earlier / "config.toml"), "--out", str(earlier)]
    assert "made with other settings or inputs (seeds changed);" in command(capsys, *words)


@pytest.mark.parametrize("name", ["train", "segment"])
def test_a_stopped_training_resumes(
    name: str, finished: tuple[Path, RunSummary], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, row = tmp_path / "run", stage(name)
    shutil.copytree(finished[0] / "4_pseudo", out / "4_pseudo")
    settings = row.settings_of(tiny_run(out))
    work: Callable[[Any], Any] = train if name == "train" else train_segmenter
    save = Loop._save

    def save_and_stop(self: Loop, last: bool) -> None:
        save(self, last)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_save", save_and_stop)
        with pytest.raises(KeyboardInterrupt):
            work(settings)
    state = read_state(out / row.folder)
    assert state is not None
    assert state["step"] == 2
    today = state["identity"]
    noted = {"train": {**TRAIN, "model": "acr"}, "segment": SEGMENT}[name]
    inputs = {"images": today["input names and tags"], "labels": today.get("input labels")}
    write_identity(
        out / row.folder,
        {**SCENES, **noted, **{key: value for key, value in inputs.items() if value}},
    )
    with pytest.raises(
        TagmaskError, match=r"\(lr was 0\.00\d and is now 0\.5\); choose another --out"
    ):
        work(dataclasses.replace(settings, lr=0.5))
    work(settings)
    resumed, undisturbed = (
        folder / row.folder / "model.safetensors" for folder in (out, finished[0])
    )
    assert resumed.read_bytes() == undisturbed.read_bytes()


def write_identity(folder: Path, identity: dict[str, Any]) -> None:
    """Replace what a resume point notes about its training."""
    file = folder / "resume.safetensors"
    with safe_open(file, framework="pt") as content:
        tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
        state = json.loads(content.metadata()["state"])
    save_file(tensors, file, metadata={"state": json.dumps({**state, "identity": identity})})


def test_affinity_net_and_its_regions() -> None:
    settings = AffinitySettings(steps=4, size=32, backbone="test_resnet")
    noted: dict[str, Any] = {
        "epochs": 5,
        "steps": 4,
        "batch": 8,
        "accumulate": 1,
        "optimizer": "sgd",
        "lr": 0.01,
        "momentum": 0.9,
        "weight_decay": 0.0005,
        "head_lr": 10.0,
        "power": 0.9,
        "warmup": 0,
        "clip": 0.0,
        "precision": "no",
        "ema": 0.0,
        "seed": 0,
        "val_every": 1.0,
        "backbone": "test_resnet",
        "pretrained": False,
        "weights": None,
        "caffe": False,
        "freeze_norm": None,
        "size": 32,
        "scales": [1.0, 1.0],
        "jitter": 0.3,
        "radius": 5.0,
        "images": "01",
        "regions": "ab",
    }
    today = {
        **made_from(settings),
        **places(settings),
        "input names and tags": "01",
        "input regions": "ab",
    }
    assert differences(noted, today) == ()
    assert differences({**noted, "images": "02", "regions": "cd"}, today) == (
        "names and tags changed",
        "regions changed",
    )
    regions = {
        "alpha_low": 4.0,
        "alpha_high": 32.0,
        "input seeds": "01",
        "classes": CLASSES,
        "scene_seed": 0,
    }
    assert differences({"seeds": "01", "low": 4.0, "high": 32.0}, regions) == ()
    assert differences({"seeds": "02", "low": 4.0, "high": 16.0}, regions) == (
        "alpha_high was 16.0 and is now 32.0",
        "seeds changed",
    )
