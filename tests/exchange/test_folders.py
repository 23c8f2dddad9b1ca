"""Formats that are folders, through the command: layout, split, what is refused. The real packages: tests/exchange."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tagmask.cli import main
from tagmask.data.images import write_mask
from tagmask.exchange.items import Labelled, put_image
from tagmask.exchange.split import split_by_tag, tell_split
from tagmask.exchange.yolo import polygon_lines, yaml_text
from tagmask.files import write_arrays

NAMES = ("a", "b c", "sub/é #1", "new\nline", "images/x")


@pytest.fixture
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Photos of every odd name, their tags, and a run with masks of them."""
    monkeypatch.chdir(tmp_path)
    mask = np.zeros((6, 8), np.uint8)
    mask[1:5, 1:7] = 2
    mask[2:4, 3:5] = 255
    for name in NAMES:
        path = tmp_path / f"photos/{name}.{'gif' if name == 'a' else 'jpg'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 6)).save(path)
        write_mask(tmp_path / f"run/6_predictions/{name}.png", mask)
    rows = [{"file": name, "tags": ["dog", "cat"] if len(name) > 3 else ["dog"]} for name in NAMES]
    (tmp_path / "tags.json").write_text(json.dumps(rows))
    return tmp_path


def export(*words: str) -> int:
    data = ("--data", "folder", "--images", "photos", "--tags", "tags.json")
    with pytest.raises(SystemExit) as ended:
        main(["export", "--out", "run", *data, *words])
    return int(ended.value.code or 0)


def written(folder: Path) -> set[str]:
    """Return what is in a folder besides the note of the export, which lists it."""
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    note = json.loads((folder / "made_by.json").read_text())
    assert note["complete"] is True
    assert files == {*note["files"], "made_by.json"}
    return {*note["files"]}


def test_index(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export("--format", "index", "--to", "out") == 0, capsys.readouterr().err
    assert written(run_folder / "out") == {"classes.json", *(f"masks/{name}.png" for name in NAMES)}
    image = Image.open(run_folder / "out/masks/new\nline.png")
    assert image.mode == "L"
    assert np.unique(np.array(image)).tolist() == [0, 2, 255]
    names = json.loads((run_folder / "out/classes.json").read_text())
    assert names == {"0": "background", "1": "cat", "2": "dog", "255": "unsure"}


@pytest.mark.parametrize("format", ["ultralytics", "yolo-seg"])
def test_yolo(run_folder: Path, format: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        export("--format", format, "--to", "out", "--val-fraction", "0.25", "--split-seed", "3")
        == 0
    )
    printed = capsys.readouterr().out
    assert "4 images for train and 1 for val, divided by tag with --split-seed 3." in printed
    files = written(run_folder / "out")
    (train, val) = (
        {file for file in files if file.startswith(f"images/{part}/")} for part in ("train", "val")
    )
    assert len(train | val) == 5
    assert {file.count("/") for file in train | val} == {2}, "no folders below the parts"
    kind, suffix = ("masks", ".png") if format == "ultralytics" else ("labels", ".txt")
    labels = {
        f"{kind}{file.removeprefix('images').rpartition('.')[0]}{suffix}" for file in train | val
    }
    assert files == train | val | labels | {"data.yaml", "names.json"}
    assert any(file.endswith("/a.png") for file in train | val), "a GIF becomes a PNG"
    page = (run_folder / "out/data.yaml").read_text()
    assert page.startswith("train: images/train\nval: images/")
    assert ('masks_dir: masks\nnames:\n  0: "background"\n' in page) == (format == "ultralytics")


def test_polygons_by_hand() -> None:
    mask = np.array([[0, 2, 2, 0], [0, 2, 2, 255]], np.uint8)
    assert (
        polygon_lines(mask)
        == "1 0.375000 0.250000 0.625000 0.250000 0.625000 0.750000 0.375000 0.750000\n"
    )
    assert polygon_lines(np.zeros((2, 2), np.uint8)) == ""
    assert yaml_text('a"b\\: #\u200d🐕') == '"a\\"b\\\\: #\\U0000200d🐕"'


def test_fiftyone_with_heat_maps(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    maps = np.linspace(0, 1, 48).reshape(1, 6, 8).astype(np.float16)
    size, classes = np.array([6, 8]), np.array([1])
    write_arrays(
        run_folder / "run/2_seeds/b c.npz", classes=classes, size=size, plain=0 * maps, refined=maps
    )
    assert export("--format", "fiftyone", "--to", "out") == 0, capsys.readouterr().err
    assert "heat maps of 1 images." in capsys.readouterr().out
    expected = (
        {f"labels/{n}.png" for n in NAMES}
        | {f"data/{n}.jpg" for n in NAMES if n != "a"}
        | {"data/a.png"}
    )
    assert written(run_folder / "out") == expected | {"mask_targets.json", "heatmaps/2/b c.png"}
    heat = np.array(Image.open(run_folder / "out/heatmaps/2/b c.png"))
    assert np.array_equal(heat, np.round(maps[0].astype(np.float32) * 255))


def test_huggingface(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export("--format", "huggingface", "--to", "out", "--val-fraction", "0.4") == 0, (
        capsys.readouterr().err
    )
    rows = {}
    for part in ("train", "validation"):
        for line in (run_folder / f"out/{part}/metadata.jsonl").read_text().splitlines():
            row = json.loads(line)
            rows[row["name"]] = row["tags"]
            for key in ("file_name", "mask_file_name"):
                assert (run_folder / "out" / part / row[key]).is_file()
    assert rows == {name: ["cat", "dog"] if len(name) > 3 else ["dog"] for name in NAMES}


def test_xanylabeling_is_read_as_tags_again(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export("--format", "xanylabeling", "--to", "out") == 0, capsys.readouterr().err
    file = json.loads((run_folder / "out/sub/é #1.json").read_text())
    assert (file["imagePath"], file["imageHeight"], file["imageWidth"]) == ("é #1.jpg", 6, 8)
    (shape,) = file["shapes"]
    assert (shape["label"], shape["shape_type"]) == ("dog", "polygon")
    assert export("--format", "index", "--to", "again", "--tags", "out") == 0, (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--format", "index", "--to", "photos/out"], "is among the images or masks themselves"),
        (["--format", "fiftyone", "--to", "full"], "--to full is not empty; name a new folder"),
        (["--format", "overlays", "--to", "full"], "--to full is not empty; name a new folder"),
        (["--format", "voc", "--to", "full"], "--to full is not empty; name a new folder"),
        (
            ["--format", "index", "--to", "out", "--split-seed", "1"],
            "--format index has no split; leave them out",
        ),
        (
            ["--format", "yolo-seg", "--to", "out", "--pieces"],
            "--format yolo-seg always writes pieces",
        ),
        (
            ["--format", "ultralytics", "--to", "out", "--val-fraction", "1"],
            "--val-fraction 1.0 must be",
        ),
        (
            ["--format", "huggingface", "--to", "tags.json"],
            "is a file; --format huggingface writes a folder",
        ),
    ],
)
def test_what_is_refused(
    run_folder: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (run_folder / "full").mkdir()
    (run_folder / "full/mine.txt").write_text("x")
    before = sorted(run_folder.rglob("*"))
    assert export(*words) == 1
    assert message in capsys.readouterr().err
    assert sorted(run_folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("first", "second"), [("overlays", "voc"), ("voc", "overlays"), ("labelme", "overlays")]
)
def test_two_formats_are_not_mixed_in_a_folder(
    first: str, second: str, run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export("--format", first, "--to", "out") == 0
    before = written(run_folder / "out")
    assert export("--format", second, "--to", "out") == 1
    message = f"--to out holds an export of the format {first}; name a new folder"
    assert message in capsys.readouterr().err
    assert written(run_folder / "out") == before
    # the same format is written again
    assert export("--format", first, "--to", "out") == 0


def test_a_name_that_the_disk_cannot_hold_is_refused(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "x" * 251
    Image.new("RGB", (8, 6)).save(run_folder / f"photos/{name}.jpg")
    write_mask(run_folder / f"run/6_predictions/{name}.png", np.zeros((6, 8), np.uint8))
    (run_folder / "tags.json").write_text(json.dumps({name: ["dog"]}))
    assert export("--format", "xanylabeling", "--to", "out") == 1
    assert "this name is too long for the disk; choose a shorter one" in capsys.readouterr().err


def test_an_image_without_a_file_becomes_a_png(tmp_path: Path) -> None:
    picture = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    path = put_image(
        Labelled("x", np.zeros((2, 2), np.uint8), None, lambda: picture), tmp_path / "v1.2"
    )
    assert path.name == "v1.2.png"
    assert np.array_equal(np.array(Image.open(path)), picture)


TAGS = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=5), st.sets(st.sampled_from("wxyz")), max_size=40
)


@settings(deadline=None, max_examples=200)
@given(TAGS, st.sampled_from([0.0, 0.1, 0.2, 0.5, 0.9]), st.integers(0, 5))
def test_a_split_by_tag(tags: dict[str, set[str]], fraction: float, seed: int) -> None:
    val = split_by_tag(tags, fraction, seed)
    assert val <= tags.keys()
    assert len(val) < len(tags) or not tags
    assert split_by_tag(dict(reversed(tags.items())), fraction, seed) == val
    total, held = (Counter(tag for name in names for tag in tags[name]) for names in (tags, val))
    assert all(held[tag] < total[tag] for tag in total), "no tag loses its last image of train"
    assert not val or fraction > 0


def test_a_split_gives_each_tag_its_share() -> None:
    random = np.random.default_rng(0)
    shares = {"common": 0.5, "some": 0.2, "rare": 0.02}
    tags = {
        f"{n}": {tag for tag, share in shares.items() if random.random() < share}
        for n in range(1000)
    }
    val = split_by_tag(tags, 0.2, 0)
    assert len(val) == 200
    for tag in shares:
        carriers = [name for name in tags if tag in tags[name]]
        assert len(val & set(carriers)) / len(carriers) == pytest.approx(0.2, abs=0.05)
    assert split_by_tag(tags, 0.2, 1) != val
    assert tell_split({"a": ["x"], "b": ["y"], "c": ["y"]}, {"b"}, 4) == [
        "2 images for train and 1 for val, divided by tag with --split-seed 4.",
        "no image of val carries the tags x; there are too few.",
    ]


@pytest.mark.parametrize("format", ["napari", "coco", "ultralytics"])
def test_photos_that_exif_turns_are_named(
    run_folder: Path, format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    exif = Image.Exif()
    exif[274] = 8
    Image.new("RGB", (6, 8)).save(run_folder / "photos/b c.jpg", exif=exif)
    assert export("--format", format, "--to", "out") == 0, capsys.readouterr().err
    is_told = "1 photos are turned by an EXIF entry" in capsys.readouterr().out
    assert is_told == (format != "ultralytics"), "there they are copied upright"


def test_photos_that_few_tools_show_are_named(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run_folder / "photos/b c.jpg").unlink()
    Image.fromarray(np.full((6, 8), 40_000, np.uint16)).save(run_folder / "photos/b c.tif")
    assert export("--format", "labelme", "--to", "out") == 0, capsys.readouterr().err
    assert "1 photos are HEIC, or TIFF that is no plain picture: b c;" in capsys.readouterr().out


def test_a_name_that_datumaro_refuses_does_not_lose_the_others(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("C:x", "fine:x"):
        Image.new("RGB", (8, 6)).save(run_folder / f"photos/{name}.jpg")
        write_mask(run_folder / f"run/6_predictions/{name}.png", np.ones((6, 8), np.uint8))
    rows = [{"file": name, "tags": ["dog"]} for name in ("C:x", "fine:x")]
    (run_folder / "tags.json").write_text(json.dumps(rows))
    assert export("--format", "datumaro", "--to", "out") == 0, capsys.readouterr().err
    assert "C:x: Datumaro takes this name for a path" in capsys.readouterr().out
    document = json.loads((run_folder / "out/annotations/default.json").read_text())
    assert {item["id"] for item in document["items"]} == {"fine:x"}
