"""The catalog: columns in, items out; views, splits, fingerprints."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tagmask.data import catalog as catalog_module
from tagmask.data.catalog import Catalog, Item, Strings
from tagmask.data.images import write_mask
from tagmask.errors import ImageError, TagmaskError

CLASSES = ("cat", "dog", "sofa")


def small() -> Catalog:
    return Catalog(
        CLASSES, ["a", "b", "sub/c", "d"], [[0], [2, 1, 1], [], [1]], notes=["one note."]
    )


def many(count: int) -> Catalog:
    return Catalog(
        CLASSES,
        [f"image {number}" for number in range(count)],
        [[number % 3] for number in range(count)],
    )


def test_items_come_back_as_they_were_given() -> None:
    catalog = Catalog(
        CLASSES,
        ["a", "sub/ü"],
        [[2, 0], [1]],
        images=["x/a.jpg", None],
        masks=[None, Path("m.png")],
    )
    assert catalog.item(0) == Item(0, "a", (0, 2), Path("x/a.jpg"), None)
    assert catalog.item(1) == Item(1, "sub/ü", (1,), None, Path("m.png"))
    assert [item.name for item in catalog] == ["a", "sub/ü"]
    assert len(catalog) == 2
    assert catalog.classes == CLASSES


def test_tags_are_sorted_and_counted_once() -> None:
    catalog = small()
    assert [catalog.tags(i) for i in range(4)] == [(0,), (1, 2), (), (1,)]
    assert catalog.class_counts().tolist() == [1, 2, 1]


def test_targets_are_multi_hot_in_the_order_asked() -> None:
    targets = small().targets([1, 2, 0])
    assert targets.dtype == np.float32
    assert targets.tolist() == [[0, 1, 1], [0, 0, 0], [1, 0, 0]]
    assert small().targets([]).shape == (0, 3)


def test_classes_that_come_together_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_module, "_AT_ONCE", 2)  # several parts
    tags = [[0, 1], [1], [0, 1, 2], [2], []]
    catalog = Catalog(["a", "b", "c"], list("pqrst"), tags)
    assert catalog.together().tolist() == [[2, 2, 1], [2, 3, 1], [1, 1, 2]]
    assert catalog.subset([0, 3]).together().tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]


def test_files_are_listed_by_name_without_those_of_none() -> None:
    catalog = Catalog(["a"], ["x", "y", "z"], [[0], [0], [0]], images=["X.jpg", None, "Z.jpg"])
    assert catalog.files("images") == {"x": "X.jpg", "z": "Z.jpg"}
    assert catalog.subset([1, 2]).files("images") == {"z": "Z.jpg"}
    assert catalog.files("masks") == {}


def test_subset_is_a_view_in_the_given_order() -> None:
    catalog = many(1000)
    view = catalog.subset([7, 3, 500]).subset([2, 0])
    assert [view.name(i) for i in range(2)] == ["image 500", "image 7"]
    assert view.tags(0) == (500 % 3,)
    assert view.row(1) == 7
    assert view.item(1).index == 1
    assert view._names is catalog._names
    assert view.class_counts().tolist() == [0, 1, 1]
    assert len(catalog) == 1000


@pytest.mark.parametrize(
    ("indices", "text"), [([0, 4], "items 0 to 4"), ([-1], "items -1 to -1"), ([1, 1], "twice")]
)
def test_subset_refuses(indices: list[int], text: str) -> None:
    with pytest.raises(TagmaskError, match=text):
        small().subset(indices)


@given(count=st.integers(0, 60), fraction=st.floats(0, 0.99), seed=st.integers(0, 2**63))
def test_split_is_disjoint_complete_and_repeatable(count: int, fraction: float, seed: int) -> None:
    catalog = many(count)
    train, val = catalog.split(fraction, seed)
    names = [item.name for item in train], [item.name for item in val]
    assert sorted(names[0] + names[1]) == sorted(item.name for item in catalog)
    if count > 1 and fraction > 0:
        assert len(val) == min(max(round(count * fraction), 1), count - 1)
    again = catalog.split(fraction, seed)
    assert [item.name for item in again[1]] == names[1]


def test_split_depends_on_seed_and_names_but_not_on_order() -> None:
    catalog = many(100)
    val = {item.name for item in catalog.split(0.2, seed=1)[1]}
    shuffled = {item.name for item in catalog.subset(np.arange(99, -1, -1)).split(0.2, seed=1)[1]}
    assert len(val) == 20
    assert val == shuffled
    assert val != {item.name for item in catalog.split(0.2, seed=2)[1]}


def test_split_is_the_same_on_every_machine() -> None:
    _, val = many(10).split(0.3, seed=0)
    assert [item.name for item in val] == ["image 2", "image 4", "image 9"]


@pytest.mark.parametrize("fraction", [-0.1, 1.0, 1.5])
def test_split_refuses_fractions(fraction: float) -> None:
    with pytest.raises(TagmaskError, match="at least 0 and below 1"):
        small().split(fraction, 0)


def test_fingerprint_sees_classes_names_tags_and_order_but_not_paths() -> None:
    base = Catalog(CLASSES, ["a", "b"], [[0], [1]], images=["x/a.jpg", "x/b.jpg"])
    same = Catalog(CLASSES, ["a", "b"], [[0], [1]], images=["y/a.png", "y/b.png"])
    others = [
        Catalog(("cat", "dog", "bus"), ["a", "b"], [[0], [1]]),
        Catalog(CLASSES, ["a", "c"], [[0], [1]]),
        Catalog(CLASSES, ["a", "b"], [[0], [2]]),
        Catalog(CLASSES, ["a", "b"], [[0, 1], []]),
        base.subset([1, 0]),
        base.subset([0]),
    ]
    assert base.fingerprint() == same.fingerprint()
    prints = {catalog.fingerprint() for catalog in [base, *others]}
    assert len(prints) == len(others) + 1
    whole = Catalog(CLASSES, ["z", "a", "b"], [[2], [0], [1]])
    assert whole.subset([1, 2]).fingerprint() == base.fingerprint()


def test_a_catalog_travels_to_a_spawned_worker() -> None:
    view = small().subset([1, 3])
    copy = pickle.loads(pickle.dumps(view))
    assert [copy.item(i) for i in range(2)] == [view.item(i) for i in range(2)]
    assert copy.notes == ("one note.",)


def test_memory_per_item_is_a_few_dozen_bytes() -> None:
    catalog = Catalog(
        CLASSES,
        (f"COCO_train2014_{number:012d}" for number in range(20_000)),
        ([number % 3, 2] for number in range(20_000)),
        images=(f"images/COCO_train2014_{number:012d}.jpg" for number in range(20_000)),
    )
    assert len(pickle.dumps(catalog)) < 20_000 * 150


@given(st.lists(st.text()))
def test_strings_round_trip(values: list[str]) -> None:
    values = [value for value in values if value.isprintable()]
    strings = Strings(values)
    assert [strings[row] for row in range(len(strings))] == values


def test_names_that_are_no_utf8_survive() -> None:
    name = b"caf\xe9".decode("utf-8", "surrogateescape")
    assert Catalog(CLASSES, [name], [[0]]).name(0) == name


@pytest.mark.parametrize(
    ("classes", "names", "tags", "text"),
    [
        (CLASSES, ["a", "b", "a"], [[0], [0], [0]], 'two images are called "a"'),
        (CLASSES, ["../a"], [[0]], "cannot name an output"),
        (CLASSES, ["/etc/a"], [[0]], "cannot name an output"),
        (CLASSES, [""], [[0]], "cannot name an output"),
        (CLASSES, ["a"], [[3]], "0 to 2"),
        (CLASSES, ["a"], [[-1]], "0 to 2"),
        (CLASSES, ["a", "b"], [[0]], "differ in length"),
        ((), ["a"], [[]], "there are 0 classes"),
        ([f"c{number}" for number in range(255)], ["a"], [[0]], "there are 255 classes"),
        (("cat", "dog", "cat"), ["a"], [[0]], '"cat" is given twice'),
        (("cat", " "), ["a"], [[0]], "empty name"),
    ],
)
def test_columns_that_cannot_be_meant(
    classes: tuple[str, ...], names: list[str], tags: list[list[int]], text: str
) -> None:
    with pytest.raises(TagmaskError, match=text):
        Catalog(classes, names, tags)


def test_images_and_masks_are_loaded_by_view_position(tmp_path: Path) -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    Image.fromarray(pixels).save(tmp_path / "b.png")
    write_mask(tmp_path / "m.png", np.array([[0, 1, 2, 255]] * 2, np.uint8))
    catalog = Catalog(
        CLASSES,
        ["a", "b"],
        [[0], [1]],
        images=[None, tmp_path / "b.png"],
        masks=[None, tmp_path / "m.png"],
    )
    image, mask = catalog.subset([1]).load_pair(0)
    assert np.array_equal(image, pixels)
    assert mask is not None
    assert mask.tolist() == [[0, 1, 2, 255]] * 2
    assert catalog.load_mask(0) is None
    assert catalog.has_masks
    assert not catalog.subset([0]).has_masks
    with pytest.raises(ImageError, match='"a" has no image file'):
        catalog.load_image(0)


def test_a_mask_of_another_size_is_named(tmp_path: Path) -> None:
    Image.new("RGB", (4, 3)).save(tmp_path / "a.png")
    write_mask(tmp_path / "m.png", np.zeros((3, 5), np.uint8))
    catalog = Catalog(
        CLASSES, ["a"], [[0]], images=[tmp_path / "a.png"], masks=[tmp_path / "m.png"]
    )
    with pytest.raises(ImageError, match='the mask of "a" is 5×3 pixels but its image is 4×3'):
        catalog.load_pair(0)
