"""What belongs to the user stays as it is: inputs, files of other programs, results that a failed redo would lose."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tagmask.data.catalog import Catalog
from tagmask.data.coco import read_coco
from tagmask.data.folder import read_folder
from tagmask.data.images import read_image, write_mask
from tagmask.data.voc import read_voc
from tagmask.errors import ImageError, TagmaskError
from tagmask.files import only_one
from tagmask.runs.record import Record
from tagmask.runs.run import run_images
from tests.alone import alone_of, train, train_segmenter
from tests.alone import run as run_stages
from tests.helpers import process_of, tiny_classifier, tiny_settings
from tests.runs.tiny import tiny_run
from tests.test_cli import run


def snapshot(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Photos with tags, masks, labels to export, and files of other programs."""
    root = tmp_path / "mine"
    for name, tag in (("a", "cat"), ("b", "dog")):
        (root / "photos").mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 6), "red").save(root / f"photos/{name}.jpg")
        for folder, label in (("masks", 1), ("labels", 2)):
            write_mask(root / folder / f"{name}.png", np.full((6, 8), label, np.uint8))
        with (root / "tags.csv").open("a") as file:
            file.write(("" if file.tell() else "file,tags\n") + f"{name}.jpg,{tag}\n")
    (root / "mine.xml").write_text("<mine/>")
    return root


def export(root: Path, *flags: str) -> int:
    data = [
        "--data",
        "folder",
        "--images",
        f"{root}/photos",
        "--tags",
        f"{root}/tags.csv",
        "--masks",
        f"{root}/masks",
    ]
    return run("export", "--out", f"{root}/run", *data, "--labels", f"{root}/labels", *flags)


@pytest.mark.parametrize(
    "flags",
    [
        ["--format", "overlays", "--to", "{root}/masks"],
        ["--format", "overlays", "--to", "{root}/photos/new"],
        ["--format", "overlays", "--to", "{root}/pictures"],
        ["--format", "coco", "--to", "{root}/tags.csv"],
        ["--format", "coco", "--to", "{root}/link.csv"],
        ["--format", "coco", "--to", "{root}/photos/a.jpg"],
        ["--format", "cvat", "--to", "{root}/masks/a.png"],
        ["--format", "label-studio", "--to", "{root}/mine.json"],
        ["--format", "voc", "--to", "{root}/voc"],
        ["--format", "voc", "--to", "{root}/half"],
        ["--format", "coco", "--to", "{root}/labels/a.png"],
        ["--onnx", "{root}/photos/a.jpg"],
    ],
)
def test_an_export_replaces_nothing_of_the_user(
    flags: list[str], photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (photos / "link.csv").symlink_to(photos / "tags.csv")
    for name in ("voc/SegmentationClass/b.png", "pictures/b.png", "half/labels.txt"):
        (photos / name).parent.mkdir(parents=True)
        (photos / name).write_bytes(b"mine")
    before = snapshot(photos)
    assert export(photos, *(flag.format(root=photos) for flag in flags)) == 1
    assert "choose another" in capsys.readouterr().err
    assert snapshot(photos) == before


def test_an_export_replaces_its_own_files(photos: Path) -> None:
    for kind, name in (
        ("voc", "v"),
        ("overlays", "o"),
        ("label-studio", "l.json"),
        ("coco", "c.json"),
    ):
        for _ in range(2):
            assert export(photos, "--format", kind, "--to", str(photos / name)) == 0


def voc(root: Path) -> Path:
    """A data set of two images in VOC's layout."""
    for name in ("a", "b"):
        for folder in ("JPEGImages", "ImageSets/Segmentation"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 6)).save(root / f"JPEGImages/{name}.jpg")
        write_mask(root / f"SegmentationClass/{name}.png", np.full((6, 8), 3, np.uint8))
    (root / "ImageSets/Segmentation/train.txt").write_text("a\nb\n")
    return root


def test_a_voc_data_set_is_not_exported_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = voc(tmp_path / "V")
    shutil.copytree(root / "SegmentationClass", tmp_path / "labels")
    before = snapshot(root)
    words = [
        "export",
        "--out",
        str(tmp_path / "run"),
        "--labels",
        str(tmp_path / "labels"),
        "--format",
        "voc",
    ]
    for to in (root, root / "../V"):
        assert run(*words, "--data", "voc", "--root", str(root), "--to", str(to)) == 1
        assert "choose another place" in capsys.readouterr().err
    assert snapshot(root) == before


@pytest.mark.parametrize("flag", ["--show", "--mask"])
def test_a_photos_outputs_replace_no_input(
    flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net/model.safetensors").write_bytes(b"weights")
    photo = tmp_path / "p.png"
    Image.new("RGB", (8, 8)).save(photo)
    before = snapshot(tmp_path)
    for target in (photo, tmp_path / "net/model.safetensors"):
        assert run("predict", str(photo), "--model", str(tmp_path / "net"), flag, str(target)) == 1
        assert "choose another" in capsys.readouterr().err
    same = ["--show", str(tmp_path / "x.png"), "--mask", str(tmp_path / "x.png")]
    assert run("predict", str(photo), "--model", str(tmp_path / "net"), *same) == 1
    assert "must be different files" in capsys.readouterr().err
    assert snapshot(tmp_path) == before


def test_weights_inside_the_run_are_not_trained_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = tmp_path / "run/1_classifier/model.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"mine")
    assert (
        run(
            "train",
            "--preset",
            "scenes",
            "--no-pretrained",
            "--weights",
            str(weights),
            "--out",
            str(tmp_path / "run"),
        )
        == 1
    )
    assert "lies in a part of --out" in capsys.readouterr().err
    assert weights.read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["config.toml", "report.html", "scores.json"])
def test_a_folder_of_another_program_is_no_run(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text("[mine]\nx = 1\n")
    with pytest.raises(TagmaskError, match="choose another"):
        run_stages(tiny_run(tmp_path))
    assert snapshot(tmp_path) == {name: b"[mine]\nx = 1\n"}


def test_masks_of_another_program_are_not_discarded(tmp_path: Path) -> None:
    file = tmp_path / "4_pseudo/a.png"
    file.parent.mkdir()
    file.write_bytes(b"mine")
    catalog = Catalog(["cat"], ["a"], [[0]])
    for restart in (False, True):
        with pytest.raises(TagmaskError, match="tagmask did not make it; move the files elsewhere"):
            Record(file.parent, "**/*.png").claim({}, catalog, "masks", restart, [file])
    with pytest.raises(TagmaskError, match="tagmask did not make it"):
        Record(file.parent, "**/*.png").begin({})
    assert snapshot(tmp_path) == {"4_pseudo/a.png": b"mine"}


def test_only_our_own_temporary_files_are_removed(tmp_path: Path) -> None:
    record = Record(tmp_path / "2_seeds", "**/*.npz")
    whole = Record(tmp_path, "scores.json", "score.")
    kept = [
        "film.mp4.partial",
        "a.partial",
        "0123abcd.x.partial",
        "2_seeds/b.npz.partial",
        "2_seeds/.tmp_mine",
    ]
    for name in (*kept, "0123abcd.77.partial", "2_seeds/0123abcd.7.partial", "2_seeds/.tmpa1B2c3"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"1")
    (tmp_path / "2_seeds/89abcdef.1.partial").mkdir()  # photos in a folder of this name
    record.clean()
    whole.clean()
    assert sorted(snapshot(tmp_path)) == sorted(kept)


def test_files_of_the_user_survive_a_redo(tmp_path: Path) -> None:
    record = Record(tmp_path / "4_pseudo", "**/*.png")
    for name in ("a.png", "notes.txt", "sub/todo.md"):
        (record.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (record.folder / name).write_bytes(b"1")
    record.finish({})
    record.discard()
    record.begin({})
    record.finish({})
    record.clean()
    assert sorted(snapshot(record.folder)) == ["done.json", "notes.txt", "sub/todo.md"]


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    if not hasattr(os, "mkfifo"):
        pytest.skip("there are no pipes here")
    (tmp_path / "photos/cat").mkdir(parents=True)
    Image.new("RGB", (8, 6)).save(tmp_path / "photos/cat/a.jpg")
    os.mkfifo(tmp_path / "photos/cat/pipe.jpg")
    (tmp_path / "photos/cat/loop.jpg").symlink_to("loop.jpg")
    return tmp_path / "photos"


@pytest.mark.timeout(20)
def test_a_pipe_among_the_photos_is_listed_and_never_opened(pipe: Path) -> None:
    catalog = read_folder(pipe, None)
    assert [item.name for item in catalog] == ["cat/a"]
    assert any("cat/loop.jpg, cat/pipe.jpg" in note for note in catalog.notes)
    table = pipe.parent / "tags.csv"
    table.write_text("file,tags\ncat/a.jpg,cat\ncat/pipe.jpg,cat\n")
    assert any("cat/pipe.jpg" in note for note in read_folder(pipe, table).notes)
    with pytest.raises(ImageError, match="pipe or device"):
        read_image(pipe / "cat/pipe.jpg")


@pytest.mark.timeout(20)
def test_a_pipe_in_a_voc_data_set(pipe: Path, tmp_path: Path) -> None:
    root = voc(tmp_path / "V")
    (root / "ImageSets/Segmentation/train.txt").write_text("a\nb\nc\n")
    os.mkfifo(root / "JPEGImages/c.jpg")
    (root / "Annotations").mkdir()
    os.mkfifo(root / "Annotations/a.xml")
    catalog = read_voc(root, "train")
    assert [item.name for item in catalog] == ["a", "b"]
    assert any("c.jpg" in note for note in catalog.notes)


@pytest.mark.parametrize("changes", [{"lr": 1e12, "clip": 0.0}, {"weights": Path("missing")}])
def test_a_redo_that_fails_gives_the_old_classifier_back(
    changes: dict[str, Any], whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    before = {name: data for name, data in snapshot(out).items() if name != "config.toml"}
    settings = tiny_run(out)
    wrong = {**changes, "pretrained": "weights" not in changes}
    with pytest.raises(TagmaskError):
        run_stages(settings.with_changes(train=wrong))
    assert {name: data for name, data in snapshot(out).items() if name != "config.toml"} == before
    assert run_stages(settings).made == ()


def test_a_redo_that_was_stopped_can_still_be_taken_back(tmp_path: Path) -> None:
    record = Record(tmp_path / "1_classifier", "model.safetensors")
    record.folder.mkdir()
    (record.folder / "model.safetensors").write_bytes(b"good")
    record.finish({"lr": 1})
    record.discard()  # killed meanwhile: the next start resumes
    record.begin({"lr": 2})
    (record.folder / "model.safetensors").write_bytes(b"half")
    record.sweep()
    record.discard()  # other settings again
    record.begin({"lr": 3})
    record.restore()
    assert (record.folder / "model.safetensors").read_bytes() == b"good"
    assert json.loads(record.done.read_text())["made_from"] == {"lr": 1}


def test_an_edited_pseudo_label_of_the_same_size_is_noticed(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(
        whole, out, copy_function=shutil.copy
    )  # as cp -r: all times are those of the copy
    assert run_stages(tiny_run(out)).made == ()
    label = next(iter(sorted((out / "4_pseudo").glob("*.png"))))
    content = bytearray(label.read_bytes())
    content[content.index(b"PLTE") + 604] ^= 1  # a colour that no pixel has
    label.write_bytes(fix_png(bytes(content)))
    assert label.stat().st_size == len(content)
    made = run_stages(tiny_run(out)).stages
    assert (made["pseudo"].state, made["segment"].state) == ("resume", "redo")
    assert run_stages(tiny_run(out)).made == ()


def fix_png(content: bytes) -> bytes:
    """A PNG with the check sums of its chunks computed again."""
    fixed, place = content[:8], 8
    while place < len(content):
        length = int.from_bytes(content[place : place + 4], "big")
        chunk = content[place + 4 : place + 8 + length]
        fixed += content[place : place + 4] + chunk + zlib.crc32(chunk).to_bytes(4, "big")
        place += 12 + length
    return fixed


def test_labels_of_the_same_size_are_another_training(whole: Path, tmp_path: Path) -> None:
    for folder in ("4_pseudo", "5_segmenter"):
        shutil.copytree(whole / folder, tmp_path / folder)
    settings = alone_of(tiny_run(whole), "segment").but(out=tmp_path)
    train_segmenter(settings)  # nothing to do
    label = next(iter(sorted((tmp_path / "4_pseudo").glob("*.png"))))
    content = bytearray(label.read_bytes())
    content[content.index(b"PLTE") + 604] ^= 1
    label.write_bytes(fix_png(bytes(content)))
    with pytest.raises(TagmaskError, match="contents of labels changed"):
        train_segmenter(settings)


@pytest.mark.parametrize(
    ("name", "stage", "how"),
    [
        ("5_segmenter/config.json", "segment", "cut"),
        ("5_segmenter/best/config.json", "segment", "cut"),
        ("6_predictions/made_by.json", "predict", "cut"),
        ("6_predictions/made_by.json", "predict", "lost"),
        ("scores.png", "score", "cut"),
    ],
)
def test_damage_of_what_belongs_to_a_stage_is_noticed(
    name: str, stage: str, how: str, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    if how == "lost":
        (out / name).unlink()
    else:
        (out / name).write_bytes((out / name).read_bytes()[:40])
    assert run_stages(tiny_run(out)).stages[stage].state in ("redo", "resume")
    assert (out / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.parametrize(
    "name", ["background", "Background", " BACKGROUND ", "a\nb", "a\x1bb", "a\u2028b", "a\udc80"]
)
def test_class_names_that_cannot_be_used(name: str) -> None:
    with pytest.raises(TagmaskError, match=r"give it another name|rename it"):
        Catalog(["cat", name], ["a"], [[0]])


@pytest.mark.parametrize(
    "changes",
    [{"lr": 1e9, "weight_decay": 1e9}, {"optimizer": "sgd", "lr": 1e9, "head_lr": 1e9, "ema": 0.5}],
)
def test_weights_that_are_not_finite_are_never_saved(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(TagmaskError, match=r"no longer finite|loss is"):
        train(tiny_settings(tmp_path, steps=5, warmup=0, **changes))
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_last_step_that_diverges_saves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverge(optimizer: Any, *_: Any) -> None:
        for group in optimizer.param_groups:
            group["params"][0].data.fill_(float("inf"))

    monkeypatch.setattr("torch.optim.AdamW.step", diverge)
    with pytest.raises(TagmaskError, match="no longer finite"):
        train(tiny_settings(tmp_path / "run", steps=1, warmup=0))
    model = tiny_classifier()
    model.vit.head.bias.data.fill_(float("nan"))
    with pytest.raises(TagmaskError, match="no longer finite"):
        model.save(tmp_path / "net")
    assert not list(tmp_path.rglob("*.safetensors"))


def coco(tmp_path: Path, **changes: Any) -> Path:
    (tmp_path / "images").mkdir()
    Image.new("RGB", (8, 6)).save(tmp_path / "images/a.jpg")
    box = [[0, 0, 4, 0, 4, 4, 0, 4]]
    image = {"id": 1, "file_name": "a.jpg", "height": 6, "width": 8}
    thing = {"id": 1, "image_id": 1, "category_id": 1, "segmentation": box, "iscrowd": 0}
    content = {"images": [image], "categories": [{"id": 1, "name": "cat"}], "annotations": [thing]}
    for key, entry in changes.items():
        content[key] = [
            {**content[key][0], **part} for part in (entry if isinstance(entry, list) else [entry])
        ]
    (tmp_path / "coco.json").write_text(json.dumps(content))
    return tmp_path / "coco.json"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"annotations": {"iscrowd": "0"}}, "iscrowd is '0'; it must be 0 or 1"),
        ({"annotations": {"iscrowd": 2}}, "iscrowd is 2"),
        ({"annotations": {"category_id": 1.9}}, "category_id is 1.9; it must be a whole number"),
        ({"annotations": {"image_id": True}}, "image_id is True"),
        ({"categories": [{}, {"id": "1", "name": "dog"}]}, "id is '1'; it must be a whole number"),
        ({"categories": {"id": 1.9}}, "id is 1.9"),
        ({"categories": {"name": 7}}, "name is 7; it must be a text"),
        ({"images": {"file_name": None}}, "file_name is None; it must be a text"),
        ({"images": {"height": "6"}}, "height is '6'"),
        ({"categories": {"name": "background"}}, "give it another name"),
    ],
)
def test_coco_of_wrong_types(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    file = coco(tmp_path, **changes)
    with pytest.raises(TagmaskError, match=re.escape(message)):
        read_coco(tmp_path / "images", file)


def test_a_closed_output_ends_with_a_sentence(tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "tagmask",
        "run",
        "--preset",
        "scenes",
        "--count",
        "8",
        "--no-estimate",
    ]
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run(
        [*words, "--out", str(tmp_path / "run")], stdout=writer, stderr=subprocess.PIPE, timeout=120
    )
    os.close(writer)
    assert result.returncode == 1
    assert result.stderr.decode().splitlines()[-1].startswith("error: the output was closed")


@pytest.mark.parametrize("words", [["--out", ""], ["--out="], ["--out", "x", "--images", ""]])
def test_an_empty_path_is_refused(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("run", "--preset", "scenes", "--no-estimate", *words) == 1
    assert "is empty; give it a value" in capsys.readouterr().err
    with pytest.raises(TagmaskError, match="out = ''"):
        run_images(preset="scenes", out="")
    assert list(tmp_path.iterdir()) == []


def hold(folder: Path, begun: Path) -> None:
    with only_one(folder):
        begun.write_text(str(os.getpid()))
        time.sleep(600)


def test_one_command_at_a_time_in_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, begun = tmp_path / "run", tmp_path / "begun"
    process = process_of(hold, out, begun)
    process.start()
    try:
        while not begun.exists() or not begun.read_text():
            time.sleep(0.01)
        words = ["--preset", "scenes", "--count", "8", "--out", str(out)]
        for command in (["run", "--no-estimate"], ["train"], ["seeds"]):
            assert run(*command, *words) == 1
            assert (
                f"{out} is in use by another tagmask (process {process.pid}); wait for it"
                in capsys.readouterr().err
            )
        assert [file.name for file in out.iterdir()] == [".tagmask.lock"]
    finally:
        process.kill()
        process.join()
    with only_one(out):  # gone with its process
        pass
    assert list(out.iterdir()) == []
    with only_one(out, shared=True), only_one(out, shared=True):
        pass
