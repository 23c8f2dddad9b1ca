"""Masks that were corrected in other tools come back as corrections, pixel for pixel."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tagmask.cli import main
from tagmask.data.corrections import read_labels, read_tags
from tagmask.exchange.coco import write_coco
from tagmask.exchange.items import Labelled, regions
from tagmask.exchange.label_studio import pack, unpack, write_label_studio

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
        ({"type": "rectanglelabels"}, "holds no corrected mask of these images; annotate some"),
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
