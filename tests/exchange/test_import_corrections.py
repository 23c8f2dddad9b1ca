"""Masks that were corrected in other tools come back as corrections, pixel for pixel."""

import base64
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tagmask.cli import main
from tagmask.data.corrections import read_labels, read_tags
from tagmask.data.images import write_mask, write_png
from tagmask.exchange.coco import write_coco
from tagmask.exchange.index import write_indices
from tagmask.exchange.items import Labelled, regions
from tagmask.exchange.label_studio import pack, unpack, write_label_studio
from tagmask.exchange.labelme import write_labelme

CLASSES = ("cat", "dog")
MASK = np.zeros((12, 17), np.uint8)
MASK[2:9, 3:12] = 2
MASK[4:6, 5:9] = 0
MASK[10:, :4] = 1


@pytest.fixture(autouse=True)
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("day 1/a", "b"):
        path = tmp_path / f"photos/{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (17, 12)).save(path)
    Path("tags.json").write_text('{"day 1/a": ["dog"], "b": ["cat"]}')


def corrections(source: str) -> int:
    data = ("--data", "folder", "--images", "photos", "--tags", "tags.json")
    with pytest.raises(SystemExit) as ended:
        main(["corrections", "--out", "run", *data, "--from", source])
    return int(ended.value.code or 0)


def check_the_correction() -> None:
    labels = read_labels(Path("run/corrections"), "day 1/a", 2)
    assert labels is not None
    assert np.array_equal(labels, MASK)
    assert not Path("run/corrections/b.png").exists()
    changes = read_tags(Path("run/corrections"), CLASSES, {})
    assert changes is not None
    assert (changes["day 1/a"].added, changes["day 1/a"].removed) == (("cat",), ())


def label_studio() -> list[Any]:
    """What Label Studio exports after the predictions were accepted as annotations."""
    write_label_studio([Labelled("day 1/a", MASK, Path("a.png"))], CLASSES, Path("tasks.json"))
    tasks = json.loads(Path("tasks.json").read_text())
    for task in tasks:
        task["annotations"] = [{"result": []}, {"result": task.pop("predictions")[0]["result"]}]
    return tasks  # type: ignore[no-any-return]


def test_from_label_studio(capsys: pytest.CaptureFixture[str]) -> None:
    Path("export.json").write_text(json.dumps(label_studio()))
    assert corrections("export.json") == 0, capsys.readouterr().err
    check_the_correction()
    assert "1 photos corrected in run/corrections" in capsys.readouterr().out


def test_a_polygon_of_label_studio(capsys: pytest.CaptureFixture[str]) -> None:
    tasks = label_studio()
    result = tasks[0]["annotations"][1]["result"][0]
    corners = [[25, 25], [75, 25], [75, 75], [25, 75]]
    result |= {"type": "polygonlabels", "value": {"points": corners, "polygonlabels": ["dog"]}}
    tasks[0]["annotations"][1]["result"] = [result]
    Path("export.json").write_text(json.dumps(tasks))
    assert corrections("export.json") == 0, capsys.readouterr().err
    labels = read_labels(Path("run/corrections"), "day 1/a", 2)
    assert labels is not None
    assert (labels == 2).sum() == pytest.approx(6 * 8.5, abs=7)
    assert (labels[3:9, 5:12] == 2).all()


def cvat_mask(region: np.ndarray, name: str) -> str:
    rows, columns = np.nonzero(region)
    left, top = columns.min(), rows.min()
    box = region[top : rows.max() + 1, left : columns.max() + 1]
    flat = np.concatenate([[False], box.ravel(), [not box.ravel()[-1]]])
    ends = np.flatnonzero(flat[1:] != flat[:-1])
    runs = np.diff([0, *ends.tolist()])
    size = f'left="{left}" top="{top}" width="{box.shape[1]}" height="{box.shape[0]}"'
    return f'<mask label="{name}" source="manual" rle="{", ".join(map(str, runs))}" {size} z_order="0"></mask>'


def test_from_cvat(capsys: pytest.CaptureFixture[str]) -> None:
    shapes = "".join(
        cvat_mask(region, CLASSES[label - 1]) for label, region in regions(MASK, pieces=True)
    )
    text = f'<annotations><image id="0" name="day 1/a.png" width="17" height="12">{shapes}</image></annotations>'
    Path("task.xml").write_text(text)
    assert corrections("task.xml") == 0, capsys.readouterr().err
    check_the_correction()
    Path("task.xml").write_text(text.replace('width="17"', 'width="7"', 1))
    assert corrections("task.xml") == 1
    assert "do not fit its box, or the box the image" in capsys.readouterr().err


@pytest.mark.parametrize("polygons", [False, True])
def test_from_coco(polygons: bool, capsys: pytest.CaptureFixture[str]) -> None:
    write_coco(
        [Labelled("day 1/a", MASK, Path("a.png"))], CLASSES, Path("coco.json"), polygons=polygons
    )
    assert corrections("coco.json") == 0, capsys.readouterr().err
    check_the_correction()


def test_a_coco_file_with_paths_of_another_tool(capsys: pytest.CaptureFixture[str]) -> None:
    """Label Studio writes images/0a1b2c3d-a.png; what is not found is told, not lost in silence."""
    names = ("images/0a1b2c3d-a", "elsewhere/c")
    write_coco([Labelled(name, MASK, Path("a.png")) for name in names], CLASSES, Path("coco.json"))
    assert corrections("coco.json") == 0, capsys.readouterr().err
    check_the_correction()
    assert "1 image was listed but not found and left out: elsewhere/c.png." in (
        capsys.readouterr().out
    )


def test_a_name_that_ends_like_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    """The name of x.png.png is x.png, which must not lose its ending a second time."""
    Path("photos/x.png.png").write_bytes(Path("photos/b.png").read_bytes())
    Path("tags.json").write_text('{"x.png.png": ["dog"], "b": ["cat"]}')
    item = Labelled("x.png", MASK, Path("x.png"))
    write_coco([item], CLASSES, Path("coco.json"))
    write_labelme([item], CLASSES, Path("labelme"))
    for source in ("coco.json", "labelme"):
        assert corrections(source) == 0, capsys.readouterr().err
        labels = read_labels(Path("run/corrections"), "x.png", 2)
        assert labels is not None
        assert np.array_equal(labels, MASK)
        Path("run/corrections/x.png.png").unlink()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"original_width": 16}, "not those of a picture of this size"),
        ({"original_width": True}, "is not within 1 to 65535"),
        ({"value": {"rle": [1, 2], "brushlabels": ["dog"]}}, "end too early"),
        ({"value": {"rle": pack(MASK == 2)[:-6], "brushlabels": ["dog"]}}, "end too early"),
        ({"value": {"rle": "x", "brushlabels": ["dog"]}}, "a region cannot be drawn"),
        (
            {"value": {"rle": pack(MASK == 2), "brushlabels": ["cow"]}},
            '"cow" is no class of these images: cat, dog',
        ),
        ({"value": 7}, "a region cannot be drawn"),
        ({"type": "keypointlabels"}, 'only regions of kinds that are not read ("keypointlabels")'),
        ({"type": "choices"}, "holds no corrected mask of these images; annotate some"),
        ({"image_rotation": 90}, "it was turned in Label Studio"),
    ],
)
def test_hostile_regions(
    change: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = label_studio()
    tasks[0]["annotations"][1]["result"] = [tasks[0]["annotations"][1]["result"][0] | change]
    Path("export.json").write_text(json.dumps(tasks))
    assert corrections("export.json") == 1
    assert message in capsys.readouterr().err
    assert not Path("run/corrections").exists()


def test_unpacking_with_runs_that_do_not_repeat() -> None:
    """Label Studio's own encoder writes words that differ one by one: bit 0, then the length, then the words."""
    words = [0, 0, 0, 0, 255, 255, 255, 255]
    bits = f"{8:032b}{7:05b}" + "".join(f"{size - 1:04b}" for size in (3, 4, 8, 16))
    bits += "0" + "00" + f"{7:03b}" + "".join(f"{word:08b}" for word in words)
    bits += "0" * (-len(bits) % 8)
    packed = [int(bits[i : i + 8], 2) for i in range(0, len(bits), 8)]
    assert unpack(packed, (1, 2)).tolist() == [[False, True]]
    region = np.random.default_rng(0).random((140, 211)) < 0.3
    assert np.array_equal(unpack(pack(region), region.shape), region)


def annotated(*results: dict[str, Any], **more: Any) -> None:
    """Write an export with one annotation of these results."""
    shared = {"original_width": 17, "original_height": 12, "id": "r"}
    listed = [shared | result for result in results]
    address = {"image": "/data/local-files/?d=photos/day%201/a.png"}
    task = {"data": address, "annotations": [{"result": listed, **more}]}
    Path("export.json").write_text(json.dumps([task]))


def corrected() -> np.ndarray:
    labels = read_labels(Path("run/corrections"), "day 1/a", 2)
    assert labels is not None
    return labels


def test_a_rectangle_of_label_studio_by_hand() -> None:
    """Per cent of 17 by 12 pixels: a box of 4 by 3 pixels, upright and turned by a quarter."""
    value = {"x": 500 / 17, "y": 25, "width": 400 / 17, "height": 25, "rectanglelabels": ["dog"]}
    annotated({"type": "rectanglelabels", "value": value})
    assert corrections("export.json") == 0
    expected = np.zeros((12, 17), np.uint8)
    expected[3:6, 5:9] = 2
    assert np.array_equal(corrected(), expected)
    annotated({"type": "rectanglelabels", "value": value | {"rotation": 90}})
    assert corrections("export.json") == 0
    expected = np.zeros((12, 17), np.uint8)
    expected[3:7, 2:5] = 2  # clockwise about the upper left corner
    assert np.array_equal(corrected(), expected)


def test_an_ellipse_of_label_studio() -> None:
    value = {"x": 50, "y": 50, "radiusX": 200 / 17, "radiusY": 400 / 12, "ellipselabels": ["cat"]}
    annotated({"type": "ellipselabels", "value": value})
    assert corrections("export.json") == 0
    y, x = np.mgrid[:12, :17] + 0.5
    upright = ((x - 8.5) / 2) ** 2 + ((y - 6) / 4) ** 2 <= 1
    assert np.array_equal(corrected() == 1, upright)
    annotated({"type": "ellipselabels", "value": value | {"rotation": 90}})
    assert corrections("export.json") == 0
    lying = ((x - 8.5) / 4) ** 2 + ((y - 6) / 2) ** 2 <= 1
    assert np.array_equal(corrected() == 1, lying)


def test_a_bitmask_of_label_studio(capsys: pytest.CaptureFixture[str]) -> None:
    picture = np.zeros((12, 17, 4), np.uint8)
    picture[MASK == 2, 3] = 255  # black on transparent
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, format="PNG")
    text = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
    value = {"imageDataURL": text, "bitmasklabels": ["dog"]}
    annotated({"type": "bitmasklabels", "value": value})
    assert corrections("export.json") == 0
    assert np.array_equal(corrected() == 2, MASK == 2)
    value["imageDataURL"] = text[: len("data:image/png;base64,") + 40]
    annotated({"type": "bitmasklabels", "value": value})
    assert corrections("export.json") == 1
    assert "a bitmask is damaged" in capsys.readouterr().err


def test_a_brush_with_its_class_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The form of <Brush> with <Labels>; what is left out is named, not lost in silence."""
    brush = {"type": "brush", "value": {"format": "rle", "rle": pack(MASK == 2)}}
    name = {"type": "labels", "value": {"labels": ["dog"]}}
    point = {"type": "keypointlabels", "id": "p", "value": {"x": 1, "y": 1}}
    annotated(brush, name, point)
    assert corrections("export.json") == 0
    assert np.array_equal(corrected() == 2, MASK == 2)
    assert 'were left out: 1 "keypointlabels".' in capsys.readouterr().out


def test_the_annotation_that_was_edited_last_counts() -> None:
    def annotation(name: str, updated: str, **more: Any) -> dict[str, Any]:
        value = {"rle": pack(MASK == 2), "brushlabels": [name]}
        size = {"original_width": 17, "original_height": 12}
        result = {"type": "brushlabels", "value": value, **size}
        return {"result": [result], "updated_at": updated, "created_at": "2026-01-01", **more}

    annotations = [
        annotation("cat", "2026-05-02T10:00:00.000000Z"),
        annotation("dog", "2026-05-01T10:00:00.000000Z"),
        annotation("dog", "2026-05-03T10:00:00.000000Z", was_cancelled=True),
    ]
    task = {"data": {"image": "day 1/a.png"}, "annotations": annotations}
    Path("export.json").write_text(json.dumps([task]))
    assert corrections("export.json") == 0
    assert np.unique(corrected()).tolist() == [0, 1]


def test_other_exports_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("min.json").write_text('[{"image": "a.png", "tag": [{"format": "rle"}], "id": 1}]')
    assert corrections("min.json") == 1
    assert "JSON-MIN, its short form); export the project as JSON" in capsys.readouterr().err
    with zipfile.ZipFile("coco.zip", "w") as archive:
        archive.writestr("result.json", "{}")
    assert corrections("coco.zip") == 1
    assert "coco.zip holds result.json" in capsys.readouterr().err
    with zipfile.ZipFile("yolo.zip", "w") as archive:
        archive.writestr("notes.json", "{}")
        archive.writestr("classes.txt", "dog")
    assert corrections("yolo.zip") == 1
    assert "yolo.zip is an export to YOLO" in capsys.readouterr().err


def test_an_error_at_the_end_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    tasks = label_studio()
    spoiled = json.loads(json.dumps(tasks[0]))
    spoiled["annotations"][1]["result"][0]["value"]["rle"] = [1, 2]
    Path("export.json").write_text(json.dumps([*tasks, spoiled]))
    assert corrections("export.json") == 1
    assert "image 2: a region cannot be drawn" in capsys.readouterr().err
    assert not Path("run").exists()


def test_boxes_ellipses_and_huge_runs_of_cvat(capsys: pytest.CaptureFixture[str]) -> None:
    box = '<box label="dog" xtl="3" ytl="2" xbr="9" ybr="6" z_order="0" rotation="90"/>'
    line = '<polyline label="cat" points="1,1;2,2" z_order="0"/>'
    image = '<image id="0" name="day 1/a.png" width="17" height="12">'
    Path("task.xml").write_text(f"<annotations>{image}{box}{line}</image></annotations>")
    assert corrections("task.xml") == 0
    expected = np.zeros((12, 17), np.uint8)
    expected[1:7, 4:8] = 2  # about the centre, x = 6 and y = 4
    assert np.array_equal(corrected(), expected)
    assert '1 "polyline"' in capsys.readouterr().out
    huge = '<mask label="dog" rle="9223372036854775807,9223372036854775807,14" left="0" top="0" width="4" height="3"/>'
    Path("task.xml").write_text(f"<annotations>{image}{huge}</image></annotations>")
    assert corrections("task.xml") == 1
    assert "do not fit its box" in capsys.readouterr().err


def test_labelme_there_and_back(capsys: pytest.CaptureFixture[str]) -> None:
    item = Labelled("day 1/a", MASK, Path("photos/day 1/a.png"))
    write_labelme([item], CLASSES, Path("labelme"))
    assert corrections("labelme") == 0, capsys.readouterr().err
    check_the_correction()
    document = json.loads(Path("labelme/day 1/a.json").read_text())
    assert document["imagePath"] == "../../photos/day 1/a.png"
    document["shapes"] = [
        {"label": "dog", "points": [[5, 3], [8, 5]], "shape_type": "rectangle"},
        {"label": "cat", "points": [[2.0, 2.0], [2.0, 3.0]], "shape_type": "circle"},
        {"label": "cat", "points": [[2, 2]], "shape_type": "point"},
    ]
    Path("labelme/day 1/a.json").write_text(json.dumps(document))
    assert corrections("labelme/day 1/a.json") == 0
    assert 'left out: 1 "point"' in capsys.readouterr().out
    expected = np.zeros((12, 17), np.uint8)
    expected[3:6, 5:9] = 2
    expected[2, 1:4] = 1
    expected[1:4, 2] = 1
    assert np.array_equal(corrected(), expected)
    document["shapes"] = [{"label": "dog", "points": [[5, 3]], "shape_type": "mask", "mask": "x"}]
    Path("labelme/day 1/a.json").write_text(json.dumps(document))
    assert corrections("labelme") == 1
    assert "a.json: a shape cannot be drawn" in capsys.readouterr().err


def test_a_folder_of_masks(capsys: pytest.CaptureFixture[str]) -> None:
    """Masks that are still those of the run are no corrections; the others are, without any object too."""
    write_mask(Path("run/6_predictions/b.png"), MASK)
    write_indices([Labelled("day 1/a", MASK), Labelled("b", MASK)], CLASSES, Path("masks"))
    assert corrections("masks") == 0, capsys.readouterr().err
    assert "1 masks are still those of the run" in capsys.readouterr().out
    check_the_correction()
    write_png(Path("masks/masks/b.png"), np.zeros((12, 17), np.uint8))
    Path("masks/classes.json").write_text('{"0": "background", "1": "dog", "2": "cat"}')
    assert corrections("masks") == 0
    assert np.array_equal(corrected(), np.array([0, 2, 1])[MASK])
    empty = read_labels(Path("run/corrections"), "b", 2)
    assert empty is not None
    assert not empty.any()
    write_png(Path("masks/masks/b.png"), np.full((12, 17), 7, np.uint8))
    assert corrections("masks") == 0
    assert "b: it holds the label 7; the labels are 0 to 2, or 255" in capsys.readouterr().out
