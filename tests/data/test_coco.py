"""COCO files: ids, tags, masks against independent drawings, and a big file in little memory."""

import json
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO

from tagmask.data import outlines
from tagmask.data.catalog import Catalog
from tagmask.data.coco import read_coco
from tagmask.data.outlines import OutlineBuilder
from tagmask.errors import ImageError, TagmaskError

REAL = Path(__file__).parents[2].parent / "shared" / "data" / "coco"
Mask = npt.NDArray[np.uint8]
CATEGORIES = [
    {"id": 90, "name": "toothbrush"},
    {"id": 1, "name": "person"},
    {"id": 18, "name": "dog"},
]


def box(left: int, top: int, right: int, bottom: int) -> list[float]:
    return [left, top, right, top, right, bottom, left, bottom]


def thing(image: int, category: int, segmentation: Any, **more: Any) -> dict[str, Any]:
    return {
        "image_id": image,
        "category_id": category,
        "segmentation": segmentation,
        "iscrowd": 0,
        **more,
    }


def coco(
    root: Path,
    objects: list[dict[str, Any]],
    files: tuple[str, ...] = ("a.jpg", "b.jpg"),
    **parts: Any,
) -> Path:
    """A COCO data set of 8×6 images with the ids 11, 12, …"""
    images = []
    for number, file in enumerate(files, 11):
        (root / "images" / file).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 6)).save(root / "images" / file)
        images.append({"id": number, "file_name": file, "height": 6, "width": 8})
    value = {
        "info": {"year": 2014},
        "images": images,
        "annotations": objects,
        "categories": CATEGORIES,
        **parts,
    }
    (root / "instances.json").write_text(json.dumps(value))
    return root / "instances.json"


def drawn(root: Path, objects: list[dict[str, Any]]) -> Mask:
    return mask_of(read_coco(root / "images", coco(root, objects, ("a.jpg",))), 0)


def mask_of(catalog: Catalog, i: int) -> Mask:
    mask = catalog.load_mask(i)
    assert mask is not None
    return mask


def filled(*boxes: tuple[int, int, int, int, int]) -> Mask:
    """Boxes (left, top, right, bottom, label) painted one over the other."""
    mask = np.zeros((6, 8), np.uint8)
    for left, top, right, bottom, label in boxes:
        mask[top:bottom, left:right] = label
    return mask


def runs(mask: Mask) -> list[int]:
    """Column-major run lengths, beginning with zeros."""
    flat = mask.ravel(order="F") > 0
    changes = np.flatnonzero(np.diff(flat)) + 1
    lengths: list[int] = np.diff([0, *changes, flat.size]).tolist()
    return [0, *lengths] if flat[0] else lengths


def test_gaps_in_the_ids_vanish_in_the_order_of_the_ids(tmp_path: Path) -> None:
    objects = [
        thing(12, 90, [box(0, 0, 2, 2)]),
        thing(11, 18, [box(0, 0, 2, 2)]),
        thing(12, 1, [box(3, 3, 5, 5)]),
    ]
    objects.append(thing(12, 90, [box(5, 0, 6, 2)]))
    catalog = read_coco(tmp_path / "images", coco(tmp_path, objects))
    assert catalog.classes == ("person", "dog", "toothbrush")
    assert [(item.name, item.tags) for item in catalog] == [("a", (1,)), ("b", (0, 2))]
    assert catalog.has_masks
    assert catalog.notes == ()
    mask = mask_of(catalog.subset([1]), 0)
    assert np.array_equal(mask, filled((0, 0, 2, 2, 3), (3, 3, 5, 5, 1), (5, 0, 6, 2, 3)))


def test_images_without_label_are_dropped_and_counted_and_missing_ones_listed(
    tmp_path: Path,
) -> None:
    crowd = {"size": [6, 8], "counts": [0, 48]}
    files = ("train/a.jpg", "bare.jpg", "crowd.jpg", "gone.jpg")
    objects = [
        thing(11, 1, [box(0, 0, 2, 2)]),
        thing(13, 1, crowd, iscrowd=1),
        thing(14, 1, [box(0, 0, 2, 2)]),
    ]
    objects.append(thing(99, 1, [box(0, 0, 2, 2)]))
    source = coco(tmp_path, objects, files)
    (tmp_path / "images" / "gone.jpg").unlink()
    catalog = read_coco(tmp_path / "images", source)
    assert [item.name for item in catalog] == ["train/a"]
    assert catalog.notes == (
        "1 image was listed but not found and left out: gone.jpg.",
        "2 images were without any label and left out.",
        "1 of 4 objects belong to no listed image and were left out.",
        "1 of 4 objects are crowds: they give no tag and are 255 in masks.",
    )


def test_polygons_of_several_parts(tmp_path: Path) -> None:
    mask = drawn(tmp_path, [thing(11, 18, [box(0, 0, 2, 3), box(5, 4, 8, 6)])])
    assert np.array_equal(mask, filled((0, 0, 2, 3, 2), (5, 4, 8, 6, 2)))


def test_run_lengths_plain_and_compressed(tmp_path: Path) -> None:
    shape = filled((1, 0, 4, 5, 1), (6, 3, 8, 6, 1))
    plain = {"size": [6, 8], "counts": runs(shape)}
    code = coco_mask.encode(np.asfortranarray(shape))
    compressed = {"size": [6, 8], "counts": code["counts"].decode()}
    for segmentation in (plain, compressed):
        assert np.array_equal(drawn(tmp_path, [thing(11, 90, segmentation)]), shape * 3)


@pytest.mark.parametrize("turn", [1, -1])
def test_the_smaller_object_lies_on_top_whatever_the_order(tmp_path: Path, turn: int) -> None:
    objects = [
        thing(11, 1, [box(0, 0, 6, 6)]),
        thing(11, 18, [box(2, 2, 5, 5)]),
        thing(11, 90, [box(3, 3, 4, 4)]),
    ]
    mask = drawn(tmp_path, objects[::turn])
    assert np.array_equal(mask, filled((0, 0, 6, 6, 1), (2, 2, 5, 5, 2), (3, 3, 4, 4, 3)))


def test_crowds_are_ignored_where_no_object_lies(tmp_path: Path) -> None:
    crowd = {"size": [6, 8], "counts": runs(filled((0, 0, 8, 3, 1)))}
    objects = [thing(11, 1, crowd, iscrowd=1), thing(11, 18, [box(2, 1, 4, 5)])]
    assert np.array_equal(drawn(tmp_path, objects), filled((0, 0, 8, 3, 255), (2, 1, 4, 5, 2)))


def test_objects_without_outline_give_a_tag_and_an_ignored_box(tmp_path: Path) -> None:
    objects = [thing(11, 1, [], bbox=[1, 2, 3, 4]), thing(11, 18, [box(0, 0, 2, 3)])]
    source = coco(tmp_path, objects, ("a.jpg",))
    catalog = read_coco(tmp_path / "images", source)
    assert catalog.tags(0) == (0, 1)
    assert np.array_equal(mask_of(catalog, 0), filled((1, 2, 4, 6, 255), (0, 0, 2, 3, 2)))
    assert catalog.notes == ("1 of 2 objects have no outline: their boxes are 255 in masks.",)
    boxes_only = read_coco(tmp_path / "images", coco(tmp_path, objects[:1], ("a.jpg",)))
    assert not boxes_only.has_masks
    assert boxes_only.load_mask(0) is None


def test_outlines_of_two_corners_are_not_taken_for_boxes(tmp_path: Path) -> None:
    objects = [thing(11, 1, [[1, 1, 5, 5]]), thing(11, 18, [box(0, 0, 2, 2)])]
    assert np.array_equal(drawn(tmp_path, objects), filled((0, 0, 2, 2, 2)))


def test_masks_survive_the_way_to_a_worker(tmp_path: Path) -> None:
    source = coco(tmp_path, [thing(11, 18, [box(0, 0, 2, 3)])], ("a.jpg",))
    catalog = pickle.loads(pickle.dumps(read_coco(tmp_path / "images", source)))
    assert np.array_equal(mask_of(catalog, 0), filled((0, 0, 2, 3, 2)))


def test_an_image_of_another_size_than_the_file_says(tmp_path: Path) -> None:
    source = coco(tmp_path, [thing(11, 18, [box(0, 0, 2, 3)])], ("a.jpg",))
    Image.new("RGB", (6, 8)).save(tmp_path / "images" / "a.jpg")
    with pytest.raises(ImageError, match='mask of "a" is 8×6 pixels but its image is 6×8'):
        read_coco(tmp_path / "images", source).load_pair(0)


@pytest.mark.parametrize(
    "segmentation",
    [
        {"size": [8, 6], "counts": [48]},
        {"size": [6, 8], "counts": "0"},
        {"size": [6, 8], "counts": "zzzzzz"},
        [[0, 0, float("nan"), 1, 1, 1]],
        [[0, 0, 1e12, 1, 1, 1]],
    ],
)
def test_outlines_that_cannot_be_drawn_name_their_image(tmp_path: Path, segmentation: Any) -> None:
    objects = [thing(11, 1, segmentation), thing(12, 1, [box(0, 0, 2, 2)])]
    catalog = read_coco(tmp_path / "images", coco(tmp_path, objects))
    with pytest.raises(ImageError, match='outlines of "a" cannot be drawn'):
        catalog.load_mask(0)
    assert np.array_equal(mask_of(catalog, 1), filled((0, 0, 2, 2, 1)))


@pytest.mark.parametrize(
    ("objects", "parts", "text"),
    [
        (
            [thing(11, 7, [])],
            {},
            "annotations, entry 1: the category 7 is not among the categories",
        ),
        (
            [thing(11, 1, [[0, 0, 1, 1, 2]])],
            {},
            "entry 1: a polygon has an odd number of coordinates",
        ),
        ([thing(11, 1, [["0", 0, 1, 1, 2, 2]])], {}, "annotations, entry 1: must be real number"),
        (
            [thing(11, 1, {"size": [6, 8], "counts": [47]})],
            {},
            "entry 1: run lengths do not add up",
        ),
        ([{"image_id": 11}], {}, "annotations, entry 1: lacks 'category_id'"),
        ([3], {}, "annotations, entry 1"),
        ([thing(11, 1, [])], {"images": [{"id": 11}]}, "images, entry 1: lacks 'file_name'"),
        (
            [thing(11, 1, [])],
            {"categories": CATEGORIES * 2},
            "categories, entry 4: the id 90 is given twice",
        ),
        (
            [thing(11, 1, [])],
            {"categories": [{"id": 2**70, "name": "a"}]},
            "categories, entry 1: int too big",
        ),
        ([thing(11, 1, {"size": [-1, 8], "counts": "x"})], {}, "annotations, entry 1"),
        ([], {}, "has no annotations; give a COCO instances file"),
        ([thing(12, 1, [], iscrowd=1)], {}, "has an object; give another file"),
    ],
)
def test_mistakes_in_the_file(
    tmp_path: Path, objects: list[Any], parts: dict[str, Any], text: str
) -> None:
    with pytest.raises(TagmaskError) as caught:
        read_coco(tmp_path / "images", coco(tmp_path, objects, **parts))
    assert text in str(caught.value)
    assert "instances.json" in str(caught.value)


def test_a_file_of_lists_within_lists(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text('{"images": ' + "[" * 200_000 + "]" * 200_000 + "}")
    with pytest.raises(TagmaskError, match=r"deep\.json is not valid JSON .*too deep to read"):
        read_coco(tmp_path, tmp_path / "deep.json")


def test_images_given_twice(tmp_path: Path) -> None:
    image = {"id": 11, "file_name": "a.jpg", "height": 6, "width": 8}
    source = coco(tmp_path, [thing(11, 1, [])], images=[image, image])
    with pytest.raises(TagmaskError, match="image 11: the id is given twice"):
        read_coco(tmp_path / "images", source)
    source = coco(
        tmp_path, [thing(11, 1, []), thing(12, 1, [])], images=[image, {**image, "id": 12}]
    )
    with pytest.raises(TagmaskError, match='two images are called "a"'):
        read_coco(tmp_path / "images", source)


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    source = coco(tmp_path, [thing(11, 1, [])])
    with pytest.raises(TagmaskError, match="nowhere is not a folder"):
        read_coco(tmp_path / "nowhere", source)
    with pytest.raises(TagmaskError, match=r"none\.json cannot be read"):
        read_coco(tmp_path / "images", tmp_path / "none.json")
    (tmp_path / "other").mkdir()
    with pytest.raises(TagmaskError, match=r"none of the 2 images .* looked for at .*other/a\.jpg"):
        read_coco(tmp_path / "other", source)


@given(data=st.data())
def test_run_totals_are_those_of_the_reference_encoder(data: st.DataObject) -> None:
    height, width = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40))
    seed, density = data.draw(st.integers(0, 99)), data.draw(st.floats(0, 1))
    mask = (np.random.default_rng(seed).random((height, width)) < density).astype(np.uint8)
    code = coco_mask.encode(np.asfortranarray(mask))["counts"]
    assert outlines._run_total(code) == height * width


@pytest.mark.parametrize(
    ("digits", "last", "kind"),
    [(2, 640, np.uint16), (2, 6400, np.int32), (2, -640, np.int32), (12, 640, np.float64)],
)
def test_coordinates_come_back_exactly(
    digits: int, last: float, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlines, "_BLOCK", 50)  # several blocks, of two kinds
    numbers = np.random.default_rng(0).random((40, 12)) * 640
    numbers[-5:] *= last / 640
    polygons = [
        [round(x, digits if row > 20 else 2) for x in line]
        for row, line in enumerate(numbers.tolist())
    ]
    builder = OutlineBuilder()
    for polygon in polygons:
        builder.add([polygon])
    packed = builder.build()
    assert [packed.polygon(number).tolist() for number in range(40)] == polygons
    assert packed.numbers.dtype == kind
    assert len(packed) == 40


def test_a_big_file_opens_in_little_memory(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    count, per_image = 2000, 8
    for number in range(count):
        (tmp_path / "images" / f"{number}.jpg").touch()
    images = [
        {"id": 7 * number, "file_name": f"{number}.jpg", "height": 480, "width": 640}
        for number in range(count)
    ]
    shape = [round(100 + x, 2) for x in np.random.default_rng(0).random(40) * 99]
    objects = [
        thing(7 * (number % count), 18, [shape], id=number) for number in range(count * per_image)
    ]
    source = tmp_path / "instances.json"
    source.write_text(
        json.dumps({"images": images, "annotations": objects, "categories": CATEGORIES})
    )
    del images, objects
    tracemalloc.start()
    catalog = read_coco(tmp_path / "images", source)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(catalog) == count
    assert kept < count * per_image * (40 * 4 + 80)  # 4 bytes a coordinate; as Python lists 40 · 32


@pytest.mark.skipif(not REAL.is_dir(), reason="the COCO photos are not at hand")
def test_the_real_photos_against_the_coco_api(capsys: pytest.CaptureFixture[str]) -> None:
    source = REAL / "annotations" / "instances.json"
    catalog = read_coco(REAL / "images", source)
    api = COCO(source)
    capsys.readouterr()
    assert "5 of 525 objects are crowds" in " ".join(catalog.notes)
    assert len(api.imgs) == 60
    assert len(catalog.classes) == 80
    place = {identity: number for number, identity in enumerate(sorted(api.cats))}
    names = [item.name for item in catalog]
    labelled = 0
    for image in api.imgs.values():
        objects = api.imgToAnns[image["id"]]
        tags = sorted({place[item["category_id"]] for item in objects if not item["iscrowd"]})
        if not tags:
            continue
        labelled += 1
        i = names.index(Path(image["file_name"]).stem)
        assert catalog.tags(i) == tuple(tags)
        assert catalog.load_pair(i)[0].shape == (image["height"], image["width"], 3)
        assert np.array_equal(mask_of(catalog, i), _by_api(api, objects, place))
    assert labelled == len(catalog)


def _by_api(api: COCO, objects: list[dict[str, Any]], place: dict[int, int]) -> Mask:
    """Every pixel goes to the smallest object that covers it."""
    layers = np.stack([api.annToMask(item) > 0 for item in objects])  # (objects, H, W)
    areas = np.array(
        [
            np.inf if item["iscrowd"] else layer.sum()
            for item, layer in zip(objects, layers, strict=True)
        ]
    )
    labels = np.array(
        [255 if item["iscrowd"] else place[item["category_id"]] + 1 for item in objects]
    )
    order = np.argsort(areas, kind="stable")
    mask = np.zeros(layers.shape[1:], np.uint8)
    for number in order:
        mask[layers[number] & (mask == 0)] = labels[number]
    return mask
