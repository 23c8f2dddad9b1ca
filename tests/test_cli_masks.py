"""From pseudo labels to exported masks on the command line, and what goes wrong on the way."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco_mask

import tagmask.files
from tagmask.cli.parse import data_of_run
from tagmask.config import read_toml
from tagmask.config.run import RunSettings, write_stage_config
from tagmask.data.images import write_mask
from tagmask.data.scenes.catalog import CLASSES, Scenes
from tagmask.labels import as_percent
from tagmask.models.deeplab import DeepLabV2
from tagmask.runs.table import sections
from tests.test_cli import run

COUNT = 6
SMALL = [
    "--backbone",
    "test_resnet",
    "--size",
    "33",
    "--batch",
    "2",
    "--steps",
    "2",
    "--workers",
    "0",
]


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """A run that has got as far as pseudo labels; they are the truth."""
    scenes = Scenes(COUNT, 0)
    for i in range(COUNT):
        mask = scenes.load_mask(i)
        assert mask is not None
        write_mask(tmp_path / f"4_pseudo/{scenes.name(i)}.png", mask)
    (tmp_path / "config.toml").write_text(
        f'[train]\ndata = "scenes"\ncount = {COUNT}\nbackbone = "tagmask_tiny"\n'
    )
    return tmp_path


@pytest.fixture
def segmented(labelled: Path) -> Path:
    DeepLabV2("test_resnet", len(CLASSES) + 1, classes=CLASSES).save(labelled / "5_segmenter")
    return labelled


def leftovers(folder: Path) -> list[Path]:
    return list(folder.rglob(f"*{tagmask.files.PARTIAL}"))


def test_segment_predict_and_export_with_the_data_of_the_run(
    labelled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(labelled)]
    assert run("segment", "--preset", "scenes", *SMALL, *out) == 0
    assert "segmenter:" in capsys.readouterr().out
    tables = read_toml(labelled / "config.toml")
    section = tables["segment"]
    assert tables["data"]["count"] == COUNT
    assert (section["steps"], section["optimizer"]) == (2, "adamw")
    assert not {"count", "data", "out"} & section.keys()
    assert run("predict", "--preset", "scenes", "--no-crf", *out) == 0
    assert f"masks: {COUNT} made" in capsys.readouterr().out
    assert read_toml(labelled / "config.toml")["predict"]["scales"] == [1.0]
    assert run("export", *out, "--format", "coco", "--to", str(labelled / "masks.json")) == 0
    assert f"{COUNT} masks in" in capsys.readouterr().out
    assert len(json.loads((labelled / "masks.json").read_text())["images"]) == COUNT


def test_formats(labelled: Path) -> None:
    source = ["--out", str(labelled), "--labels", str(labelled / "4_pseudo")]
    truth = Scenes(COUNT, 0).load_mask(2)
    assert truth is not None
    for flags, name in (
        (["--format", "coco", "--polygons", "--pieces"], "coco.json"),
        (["--format", "label-studio", "--image-url", "http://here/{file}"], "tasks.json"),
        (["--format", "cvat", "--pieces"], "cvat.zip"),
        (["--format", "voc"], "voc"),
        (["--format", "overlays"], "overlays"),
    ):
        assert run("export", *source, *flags, "--to", str(labelled / name)) == 0
    coco = json.loads((labelled / "coco.json").read_text())
    drawn = np.zeros_like(truth)
    for annotation in coco["annotations"]:
        if annotation["image_id"] == 3:
            outlines = coco_mask.merge(
                coco_mask.frPyObjects(annotation["segmentation"], *truth.shape)
            )
            drawn[coco_mask.decode(outlines) > 0] = annotation["category_id"]
    assert np.array_equal(drawn, truth)
    assert (
        json.loads((labelled / "tasks.json").read_text())[0]["data"]["image"]
        == "http://here/scene_000000.jpg"
    )
    assert np.array_equal(
        np.array(Image.open(labelled / "voc/SegmentationClass/scene_000002.png")), truth
    )
    assert (labelled / "voc/ImageSets/Segmentation/train.txt").read_text().split()[
        2
    ] == "scene_000002"
    overlay = np.array(Image.open(labelled / "overlays/scene_000002.png"))
    assert overlay.shape[0] > truth.shape[0]  # the names of the colours are below
    assert overlay.shape[1] >= truth.shape[1]
    assert (labelled / "cvat.zip").stat().st_size > 0
    assert not leftovers(labelled)


def test_export_tells_what_is_left_out_and_what_does_not_fit(
    labelled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = ["--out", str(labelled), "--labels", str(labelled / "4_pseudo")]
    (labelled / "4_pseudo/scene_000001.png").unlink()
    assert run("export", *source, "--to", str(labelled / "coco.json")) == 0
    assert f"1 of {COUNT} images have no mask" in capsys.readouterr().out
    for flags, message in (
        (
            ["--format", "voc-test", "--to", str(labelled / "r.tgz")],
            "the VOC server accepts its own 20 classes only",
        ),
        (
            ["--format", "overlays", "--to", str(labelled / "4_pseudo")],
            "is read itself (--labels); choose another place",
        ),
    ):
        assert run("export", *source, *flags) == 1
        assert message in capsys.readouterr().err
    (labelled / "4_pseudo/made_by.json").write_text(json.dumps({"classes": ["cat", "dog"]}))
    assert run("export", *source, "--to", str(labelled / "other.json")) == 1
    assert "were made for 2 classes (cat, dog), but the images have 10" in capsys.readouterr().err
    assert not (labelled / "other.json").exists()


def test_photos_are_predicted_and_exported(
    segmented: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos = segmented / "photos"
    (photos / "sub").mkdir(parents=True)
    Image.fromarray(Scenes(1, 0).load_image(0)).save(photos / "sub/one.png")
    out = ["--out", str(segmented)]
    assert run("predict", *out, "--photos", str(photos), "--scales", "1", "--no-flip") == 0
    assert (
        run("export", *out, "--to", str(segmented / "coco.json")) == 0
    )  # the photos stand in config.toml
    assert (
        json.loads((segmented / "coco.json").read_text())["images"][0]["file_name"] == "sub/one.png"
    )
    (segmented / "6_predictions/made_by.json").unlink()
    capsys.readouterr()
    assert run("export", *out, "--to", str(segmented / "coco.json")) == 1
    assert "made_by.json does not name the classes" in capsys.readouterr().err


def test_one_photo(segmented: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = Scenes(1, 0).load_image(0)
    photo = str(segmented / "photo.png")
    Image.fromarray(image).save(photo)
    flags = ["--model", str(segmented / "5_segmenter"), "--scales", "1", "0.5"]
    assert run("predict", photo, *flags) == 0
    assert "nothing was written; add --show out.png" in capsys.readouterr().out
    names = CLASSES[3], CLASSES[1]
    files = ["--show", str(segmented / "out.png"), "--mask", str(segmented / "mask.png")]
    assert run("predict", photo, *flags, *files, "--tags", f"{names[0]}, {names[1]}") == 0
    mask = np.array(Image.open(segmented / "mask.png"))
    assert mask.shape == image.shape[:2]
    assert set(np.unique(mask).tolist()) <= {0, 2, 4}
    assert np.array(Image.open(segmented / "out.png")).shape[1] > 2 * image.shape[1]
    printed = capsys.readouterr().out
    for name in names:
        share = float((mask == CLASSES.index(name) + 1).mean())
        expected = f"{name} {as_percent(share)}" if share else f"not found: {name};"
        assert expected in printed


def test_a_tag_that_one_photo_lacks_is_told(
    segmented: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mask with the first class on a quarter of it; the second was given, too."""
    mask = np.zeros((20, 30), np.uint8)
    mask[:10, :15] = 1
    monkeypatch.setattr("tagmask.stages.predict.photo_mask", lambda *_: mask)
    photo = str(segmented / "photo.png")
    Image.new("RGB", (30, 20)).save(photo)
    command = ["predict", str(segmented), photo]
    assert run(*command, "--tags", f"{CLASSES[0]},{CLASSES[1]}") == 0
    printed = capsys.readouterr().out
    assert f"classes: {CLASSES[0]} 25.0 % of the photo" in printed
    assert f"not found: {CLASSES[1]}; no pixel was given this tag" in printed
    assert "tagmask seeds" not in printed  # this run has no classifier
    (segmented / "1_classifier").mkdir()
    (segmented / "1_classifier/model.safetensors").touch()
    assert run(*command, "--tags", f"{CLASSES[0]},{CLASSES[1]}") == 0
    assert f"`tagmask seeds {segmented} {photo} --tags" in capsys.readouterr().out
    shown = str(segmented / "shown.png")
    assert run(*command, "--tags", CLASSES[0], "--show", shown) == 0
    # the colour of the first class is named below the two pictures
    below = np.array(Image.open(shown))[-32:]
    assert (below == (128, 0, 0)).all(axis=2).sum() == 12 * 12
    # capitals of a tag do not matter, and the command for maps has the tag of the model
    capsys.readouterr()
    assert run(*command, "--tags", CLASSES[1].upper()) == 0
    printed = capsys.readouterr().out
    assert f"not found: {CLASSES[1]};" in printed
    assert f"{photo} --tags {CLASSES[1]} --show" in printed
    assert run(*command) == 0
    assert "not found" not in capsys.readouterr().out


def test_tags_of_one_photo_that_cannot_be_used(
    segmented: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photo = str(segmented / "photo.png")
    Image.new("RGB", (30, 20)).save(photo)
    flags = ["--model", str(segmented / "5_segmenter")]
    for tags, message in (
        ("unicorn", "does not know the class 'unicorn'"),
        ("a,,b", "contains an empty tag"),
    ):
        assert run("predict", photo, *flags, "--tags", tags) == 1
        assert message in capsys.readouterr().err


def test_pseudo_labels_that_cannot_be_learned_from(
    labelled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(labelled), "--val-fraction", "0"]
    scenes = Scenes(COUNT, 0)
    for value, message in (
        (255, "unsure (255) all over; make the pseudo labels"),
        (99, "holds the label 99, but"),
    ):
        for i in range(COUNT):
            shape = scenes.load_image(i).shape[:2]
            write_mask(labelled / f"4_pseudo/{scenes.name(i)}.png", np.full(shape, value, np.uint8))
        assert run("segment", *SMALL, *out, "--restart") == 1
        assert message in capsys.readouterr().err
    assert not (labelled / "5_segmenter/model.safetensors").exists()
    assert not leftovers(labelled)


def test_a_model_of_other_classes(labelled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    DeepLabV2("test_resnet", 3, classes=["cat", "dog"]).save(labelled / "5_segmenter")
    assert run("predict", "--out", str(labelled)) == 1
    error = capsys.readouterr().err
    assert "the model does not know the class" in error
    assert "it was trained on: cat, dog" in error
    assert not (labelled / "6_predictions").exists()


def interrupting(after: int) -> Any:
    """A write of masks that is stopped by Ctrl-C in mid-file."""
    calls = []

    def write(path: Path, mask: Any, **notes: str) -> None:
        calls.append(path)
        if len(calls) > after:
            with tagmask.files.replacing(path) as partial:
                partial.write_bytes(b"half")
                raise KeyboardInterrupt
        write_mask(path, mask, **notes)

    return write


def test_ctrl_c_leaves_no_half_file_and_the_rest_is_made_later(
    segmented: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["predict", "--out", str(segmented), "--scales", "1", "--no-crf"]
    with monkeypatch.context() as patch:
        patch.setattr("tagmask.stages.predict.write_mask", interrupting(after=2))
        assert run(*command) == 130
    assert "type the same command again to resume" in capsys.readouterr().err
    assert len(list((segmented / "6_predictions").glob("*.png"))) == 2
    assert not leftovers(segmented)
    assert run(*command) == 0
    assert f"{COUNT - 2} made, 2 already there" in capsys.readouterr().out


def test_ctrl_c_while_training(labelled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tagmask.training.loop import Loop

    command = [
        "segment",
        *SMALL,
        "--save-every",
        "1",
        "--val-fraction",
        "0",
        "--out",
        str(labelled),
    ]
    plain = Loop._one_step

    def step(self: Loop, number: int, batches: Any) -> dict[str, float]:
        if number == 1:
            raise KeyboardInterrupt
        return plain(self, number, batches)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_one_step", step)
        assert run(*command) == 130
    assert not (labelled / "5_segmenter/model.safetensors").exists()
    assert not leftovers(labelled)
    assert run(*command) == 0
    assert (labelled / "5_segmenter/model.safetensors").exists()


@pytest.mark.parametrize(
    ("number", "message"),
    [(30, "the disk is read-only; choose another --out"), (28, "the disk is full")],
)
@pytest.mark.parametrize("command", ["segment", "predict", "export"])
def test_disk_that_cannot_be_written(
    command: str,
    number: int,
    message: str,
    segmented: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = {
        "segment": [*SMALL, "--val-fraction", "0"],
        "predict": ["--scales", "1", "--no-crf"],
        "export": ["--labels", str(segmented / "4_pseudo"), "--to", str(segmented / "coco.json")],
    }

    def refuse(source: Path, target: Path) -> None:
        raise OSError(number, os.strerror(number), str(target))

    monkeypatch.setattr("tagmask.files.os.replace", refuse)
    assert run(command, *flags[command], "--out", str(segmented)) == 1
    assert message in capsys.readouterr().err
    assert not leftovers(segmented)


def test_a_file_in_place_of_the_run(segmented: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (segmented / "taken").write_text("a file")
    model = ["--model", str(segmented / "5_segmenter")]
    assert run("predict", "--out", str(segmented / "taken"), "--count", "1", *model) == 1
    assert "a file is where a folder is needed; choose another path" in capsys.readouterr().err


def test_data_of_the_newest_stage_before(tmp_path: Path) -> None:
    out = ["--out", str(tmp_path)]
    assert data_of_run(out, "seeds") == {}
    for section, count in (("train", 1), ("seeds", 2), ("segment", 3), ("predict", 4)):
        settings = RunSettings(out=tmp_path, count=count)
        write_stage_config(settings, sections()[section]())
    counts = {
        command: data_of_run(out, command)["count"]
        for command in ("seeds", "score", "segment", "predict")
    }
    assert counts == {"seeds": 2, "score": 2, "segment": 3, "predict": 4}
    assert data_of_run(out, "export")["count"] == 4
    assert data_of_run([*out, "--labels", "4_pseudo"], "export")["count"] == 2
    assert "steps" not in data_of_run(out, "segment")
    assert data_of_run([f"--out={tmp_path}"], "predict")["count"] == 4
    assert data_of_run([*out, "--data=voc"], "predict") == {}
    assert data_of_run(["--out"], "predict") == {}


def test_the_network_as_onnx(segmented: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    assert run("export", "--out", str(segmented), "--onnx", str(segmented / "net.onnx")) == 0
    assert (
        "images (N, 3, H, W) in [0, 1] in, probabilities (N, 11, H, W) out"
        in capsys.readouterr().out
    )
    assert (segmented / "net.onnx").stat().st_size > 10_000
