"""Every export format, read back by something that is not its writer."""

import dataclasses
import inspect
import io
import json
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO

from tagmask.config import ExportSettings
from tagmask.data.catalog import Catalog
from tagmask.data.coco import read_coco
from tagmask.data.images import write_mask
from tagmask.data.voc import CLASSES, read_voc
from tagmask.errors import TagmaskError
from tagmask.exchange.coco import write_coco
from tagmask.exchange.cvat import write_cvat
from tagmask.exchange.export import FORMATS
from tagmask.exchange.fiftyone import write_fiftyone
from tagmask.exchange.huggingface import write_huggingface
from tagmask.exchange.index import write_indices
from tagmask.exchange.items import Labelled, from_folder
from tagmask.exchange.label_studio import pack, write_label_studio
from tagmask.exchange.overlays import write_overlays
from tagmask.exchange.voc import write_voc, write_voc_submission
from tagmask.exchange.xanylabeling import write_xanylabeling
from tagmask.exchange.yolo import write_ultralytics, write_yolo_seg
from tagmask.files import PARTIAL
from tagmask.labels import voc_palette
from tagmask.show.overlay import mask_overlay, overlay_with_legend

NAMES = ("dog", "sofa & chair", "grass")
FIRST = np.array([[1, 1, 0, 3, 255], [1, 0, 0, 3, 3], [1, 1, 0, 0, 1]], np.uint8)
SECOND = np.array([[2, 2, 2, 2], [2, 0, 3, 2], [2, 2, 2, 2], [0, 0, 0, 0], [0, 1, 0, 1]], np.uint8)
MASKS = {"a/one": FIRST, "two": SECOND}


def items() -> list[Labelled]:
    return [Labelled(name, mask, Path(f"/photos/{name}.jpeg")) for name, mask in MASKS.items()]


def sure(mask: np.ndarray) -> np.ndarray:
    return np.where(mask == 255, 0, mask)


@pytest.mark.parametrize("pieces", [False, True])
@pytest.mark.parametrize("polygons", [False, True])
def test_coco_reads_the_masks_back(tmp_path: Path, polygons: bool, pieces: bool) -> None:
    done = write_coco(items(), NAMES, tmp_path / "instances.json", polygons=polygons, pieces=pieces)
    coco = COCO(str(tmp_path / "instances.json"))
    assert [category["name"] for category in coco.loadCats(coco.getCatIds())] == list(NAMES)
    for number, (name, mask) in enumerate(MASKS.items(), start=1):
        image = coco.loadImgs(number)[0]
        assert (image["file_name"], image["height"], image["width"]) == (
            f"{name}.jpeg",
            *mask.shape,
        )
        drawn = np.zeros(mask.shape, int)
        for annotation in coco.loadAnns(coco.getAnnIds(imgIds=number)):
            region = coco.annToMask(annotation).astype(bool)
            drawn[region] += annotation["category_id"]
            rows, columns = np.nonzero(region)
            box = [columns.min(), rows.min(), np.ptp(columns) + 1, np.ptp(rows) + 1]
            assert annotation["bbox"] == box
            assert annotation["area"] == region.sum()
        assert np.array_equal(drawn, sure(mask))
    assert len(coco.anns) == (3 + 4 if pieces else 2 + 3)
    assert (done.images, done.unsure) == (2, 1)
    assert "1 images have unsure pixels" in done.summary()


def test_coco_is_read_by_this_package_too(tmp_path: Path) -> None:
    for item in items():
        file = tmp_path / item.file
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", item.mask.shape[::-1]).save(file)
    write_coco(items(), NAMES, tmp_path / "instances.json", polygons=True)
    catalog = read_coco(tmp_path, tmp_path / "instances.json")
    assert catalog.classes == NAMES
    assert [item.name for item in catalog] == list(MASKS)
    for i, mask in enumerate(MASKS.values()):
        again = catalog.load_mask(i)
        assert again is not None
        assert np.array_equal(again, sure(mask))


def test_voc_layout_is_read_back(tmp_path: Path) -> None:
    flat = [Labelled("2007_000001", FIRST), Labelled("2007_000002", SECOND)]
    write_voc(flat, CLASSES, tmp_path, split="pseudo")
    (tmp_path / "JPEGImages").mkdir()
    for item in flat:
        Image.new("RGB", item.mask.shape[::-1]).save(tmp_path / f"JPEGImages/{item.name}.jpg")
        stored = Image.open(tmp_path / f"SegmentationClass/{item.name}.png")
        assert stored.mode == "P"
        assert np.array_equal(np.array(stored), item.mask)
        palette = stored.getpalette()
        assert palette is not None
        assert palette[3:6] == [128, 0, 0]
    catalog = read_voc(tmp_path, "pseudo")
    assert [catalog.tags(i) for i in range(2)] == [(0, 2), (0, 1, 2)]
    assert (tmp_path / "labels.txt").read_text().splitlines()[:2] == ["background", "aeroplane"]


@pytest.mark.parametrize("suffix", [".tar", ".tgz"])
def test_voc_submission(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"results{suffix}"
    write_voc_submission([Labelled("2008_000006", SECOND)], CLASSES, path)
    with tarfile.open(path) as archive:
        assert archive.getnames() == ["results/VOC2012/Segmentation/comp6_test_cls/2008_000006.png"]
        member = archive.extractfile(archive.getnames()[0])
        assert member is not None
        stored = Image.open(io.BytesIO(member.read()))
        assert stored.mode == "P"
        assert np.array_equal(np.array(stored), SECOND)


def test_voc_server_limits(tmp_path: Path) -> None:
    with pytest.raises(
        TagmaskError, match=r"own 20 classes only.*these are 3, beginning with 'dog'"
    ):
        write_voc_submission(items(), NAMES, tmp_path / "r.tar")
    with pytest.raises(TagmaskError, match=r"unsure pixels \(255\), which the VOC server refuses"):
        write_voc_submission(items(), CLASSES, tmp_path / "r.tar")
    assert not list(tmp_path.iterdir())


def unpack(packed: list[int]) -> np.ndarray:
    """The words of a packed picture, read bit by bit as the format's page describes it."""
    bits = iter("".join(f"{byte:08b}" for byte in packed))

    def read(count: int) -> int:
        return int("".join(next(bits) for _ in range(count)), 2)

    total, word = read(32), read(5) + 1
    sizes = [read(4) + 1 for _ in range(4)]
    out: list[int] = []
    while len(out) < total:
        repeated = read(1)
        length = read(sizes[read(2)]) + 1
        out += [read(word)] * length if repeated else [read(word) for _ in range(length)]
    assert len(out) == total
    assert all(bit == "0" for bit in bits)
    return np.array(out)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (140, 211)])
def test_label_studio_runs(shape: tuple[int, int]) -> None:
    region = np.random.default_rng(1).random(shape) < 0.3
    region[shape[0] // 2 :] = False  # a run longer than 65,536 words in the large one
    channels = unpack(pack(region)).reshape(*shape, 4)
    assert np.array_equal(channels, np.repeat(255 * region[..., None], 4, axis=-1))


@pytest.mark.parametrize("length", [2, 3, 4, 5, 63, 64, 65, 16384, 16385, 40000])
def test_label_studio_runs_at_the_limits_of_each_size(length: int) -> None:
    region = np.zeros((1, length + 1), bool)
    region[0, :length] = True
    assert unpack(pack(region)).tolist() == [255] * 4 * length + [0] * 4


def test_label_studio_begins_as_label_studio_itself_writes_it() -> None:
    # the first bytes of a published annotation of a 3332×2527 photo, whose upper part is empty
    published = [
        2,
        1,
        233,
        240,
        57,
        27,
        255,
        255,
        255,
        0,
        255,
        255,
        224,
        31,
        255,
        252,
        3,
        255,
        255,
        128,
        127,
        255,
        240,
    ]
    assert pack(np.zeros((2527, 3332), bool))[: len(published)] == published


def test_label_studio_tasks(tmp_path: Path) -> None:
    done = write_label_studio(
        items(), NAMES, tmp_path / "tasks.json", image_url="http://here/{file}"
    )
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    assert [task["data"]["image"] for task in tasks] == [
        "http://here/a/one.jpeg",
        "http://here/two.jpeg",
    ]
    for task, mask in zip(tasks, MASKS.values(), strict=True):
        drawn = np.zeros(mask.shape, int)
        for result in task["predictions"][0]["result"]:
            assert (result["original_height"], result["original_width"]) == mask.shape
            assert (result["type"], result["from_name"], result["to_name"]) == (
                "brushlabels",
                "tag",
                "image",
            )
            (name,) = result["value"]["brushlabels"]
            alpha = unpack(result["value"]["rle"]).reshape(*mask.shape, 4)[..., 3]
            drawn[alpha == 255] = NAMES.index(name) + 1
        assert np.array_equal(drawn, sure(mask))
    interface = ElementTree.parse(tmp_path / "tasks.xml")
    labels = interface.findall("BrushLabels/Label")
    assert [label.get("value") for label in labels] == list(NAMES)
    assert labels[0].get("background") == "#800000"
    assert "tasks.xml" in done.summary()


def test_label_studio_without_images(tmp_path: Path) -> None:
    write_label_studio([], NAMES, tmp_path / "tasks.json")
    assert json.loads((tmp_path / "tasks.json").read_text()) == []


def read_zip(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def labels_of(png: bytes, colours: dict[tuple[int, ...], int]) -> np.ndarray:
    image = Image.open(io.BytesIO(png))
    assert image.mode == "RGB"
    return np.array([[colours[tuple(pixel)] for pixel in row] for row in np.array(image).tolist()])


def test_cvat_zip(tmp_path: Path) -> None:
    done = write_cvat(items(), NAMES, tmp_path / "masks.zip", pieces=True)
    files = read_zip(tmp_path / "masks.zip")
    assert files["ImageSets/Segmentation/default.txt"].decode() == "a/one\ntwo\n"
    rows = [row for row in files["labelmap.txt"].decode().splitlines() if not row.startswith("#")]
    assert rows == [
        "background:0,0,0::",
        "dog:128,0,0::",
        "sofa & chair:0,128,0::",
        "grass:128,128,0::",
    ]
    colours = {
        tuple(map(int, row.split(":")[1].split(","))): number for number, row in enumerate(rows)
    }
    for name, mask in MASKS.items():
        assert np.array_equal(
            labels_of(files[f"SegmentationClass/{name}.png"], colours), sure(mask)
        )
    every = {tuple(colour): number for number, colour in enumerate(voc_palette().tolist())}
    objects = labels_of(files["SegmentationObject/a/one.png"], every)
    assert objects.tolist() == [[1, 1, 0, 3, 0], [1, 0, 0, 3, 3], [1, 1, 0, 0, 2]]
    assert len(files) == 6
    assert done.unsure == 1
    write_cvat(items(), NAMES, tmp_path / "again.zip", pieces=True)
    assert (tmp_path / "again.zip").read_bytes() == (tmp_path / "masks.zip").read_bytes()


def test_cvat_with_more_pieces_than_colours(tmp_path: Path) -> None:
    board = (np.indices((24, 24)).sum(0) % 2).astype(
        np.uint8
    )  # 288 pixels that touch at corners only
    done = write_cvat([Labelled("board", board)], NAMES, tmp_path / "m.zip", pieces=True)
    assert "1 images have more than 255 pieces" in done.summary()
    every = {tuple(colour): number for number, colour in enumerate(voc_palette().tolist())}
    assert np.array_equal(
        labels_of(read_zip(tmp_path / "m.zip")["SegmentationObject/board.png"], every), board
    )
    with pytest.raises(TagmaskError, match="cannot hold the class 'a:b'"):
        write_cvat([], ["a:b"], tmp_path / "m.zip")


def test_overlays(tmp_path: Path) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (*FIRST.shape, 3)).astype(np.uint8)
    Image.fromarray(picture).save(tmp_path / "photo.png")
    pair = [
        Labelled("a/one", FIRST, tmp_path / "photo.png"),
        Labelled("b", FIRST, None, lambda: picture),
    ]
    write_overlays(pair, NAMES, tmp_path / "out")
    for name in ("a/one", "b"):
        stored = np.array(Image.open(tmp_path / f"out/{name}.png"))
        height, width = FIRST.shape
        assert np.array_equal(stored[:height, :width], mask_overlay(picture, FIRST))
        assert np.array_equal(stored, overlay_with_legend(picture, FIRST, NAMES))
    with pytest.raises(TagmaskError, match='"c" has no image'):
        write_overlays([Labelled("c", FIRST)], NAMES, tmp_path / "out")


def test_masks_of_a_catalog(tmp_path: Path) -> None:
    catalog = Catalog(
        NAMES, ["a/one", "two", "three"], [[0], [1], [2]], images=["/x/1.png", None, None]
    )
    with pytest.raises(TagmaskError, match="holds no mask of these images"):
        list(from_folder(catalog, tmp_path, {}))
    for name, mask in MASKS.items():
        write_mask(tmp_path / f"{name}.png", mask)
    labelled = list(from_folder(catalog, tmp_path, {}))
    assert [item.file for item in labelled] == ["a/one.png", "two.jpg"]
    assert np.array_equal(labelled[1].mask, SECOND)


def test_every_format_of_the_command_has_a_writer() -> None:
    assert set(get_args(get_type_hints(ExportSettings)["format"])) == set(FORMATS)
    fields = {field.name for field in dataclasses.fields(ExportSettings)}
    for format in FORMATS.values():
        assert set(format.options) <= fields & set(inspect.signature(format.write).parameters)


WRITERS = [
    (write_coco, "x.json"),
    (write_voc, "x"),
    (write_label_studio, "x.json"),
    (write_cvat, "x.zip"),
    (write_overlays, "x"),
    (write_indices, "x"),
    (write_ultralytics, "x"),
    (write_yolo_seg, "x"),
    (write_fiftyone, "x"),
    (write_huggingface, "x"),
    (write_xanylabeling, "x"),
]


@pytest.mark.parametrize(("writer", "name"), WRITERS)
def test_labels_without_a_class_are_refused(writer: Any, name: str, tmp_path: Path) -> None:
    wrong = [
        Labelled("odd", np.full((2, 2), 9, np.uint8), None, lambda: np.zeros((2, 2, 3), np.uint8))
    ]
    with pytest.raises(TagmaskError, match='"odd" holds the label 9, but there are only 3 classes'):
        writer(wrong, NAMES, tmp_path / name)
    with pytest.raises(TagmaskError, match='"odd" is float64'):
        writer([Labelled("odd", np.zeros((2, 2)))], NAMES, tmp_path / name)  # type: ignore[arg-type]


@pytest.mark.parametrize(("writer", "name"), [WRITERS[0], WRITERS[2], WRITERS[3]])
def test_a_failure_leaves_the_earlier_file(writer: Any, name: str, tmp_path: Path) -> None:
    def dying() -> Iterator[Labelled]:
        yield items()[0]
        raise KeyboardInterrupt

    writer(items(), NAMES, tmp_path / name)
    before = (tmp_path / name).read_bytes()
    with pytest.raises(KeyboardInterrupt):
        writer(dying(), NAMES, tmp_path / name)
    assert (tmp_path / name).read_bytes() == before
    assert not list(tmp_path.rglob(f"*{PARTIAL}"))
