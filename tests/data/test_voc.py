"""The VOC layout: lists, tags from annotations and masks, and what may be missing."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tagmask.data.catalog import Catalog
from tagmask.data.images import write_mask
from tagmask.data.voc import CLASSES, read_voc
from tagmask.errors import TagmaskError

REAL = Path(__file__).parents[2].parent / "shared" / "data" / "voc"
DOG, SOFA, PERSON = (CLASSES.index(name) for name in ("dog", "sofa", "person"))


def add(
    root: Path, name: str, labels: list[int] | None, folder: str = "SegmentationClassAug"
) -> None:
    """An image, with a mask of those labels if any are given."""
    (root / "JPEGImages").mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (len(labels or [0]), 2)).save(root / "JPEGImages" / f"{name}.jpg")
    if labels is not None:
        write_mask(root / folder / f"{name}.png", np.array([labels] * 2, np.uint8))


def annotate(root: Path, name: str, *objects: str) -> None:
    (root / "Annotations").mkdir(exist_ok=True)
    parts = "".join(
        f"<object><name>{name}</name><difficult>1</difficult><part><name>head</name></part></object>"
        for name in objects
    )
    (root / "Annotations" / f"{name}.xml").write_text(
        f"<annotation><filename>x</filename>{parts}</annotation>"
    )


def split(root: Path, name: str, text: str) -> None:
    folder = root / "ImageSets" / "Segmentation"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.txt").write_text(text)


def content(catalog: Catalog) -> dict[str, tuple[int, ...]]:
    return {item.name: item.tags for item in catalog}


def test_tags_from_masks_without_background_and_ignore(tmp_path: Path) -> None:
    add(tmp_path, "2007_1", [0, DOG + 1, 255, SOFA + 1])
    add(tmp_path, "2007_2", [255, 20, 20])
    split(tmp_path, "train", "2007_2\n\n2007_1\n")
    catalog = read_voc(tmp_path, "train")
    assert content(catalog) == {"2007_2": (19,), "2007_1": (DOG, SOFA)}
    assert catalog.classes[0] == "aeroplane"
    assert catalog.classes[19] == "tvmonitor"
    assert len(catalog.classes) == 20
    mask = catalog.load_mask(1)
    assert mask is not None
    assert mask.tolist() == [[0, DOG + 1, 255, SOFA + 1]] * 2
    assert catalog.load_image(1).shape == (2, 4, 3)
    assert catalog.notes == ()


def test_annotations_come_before_masks_and_parts_are_no_objects(tmp_path: Path) -> None:
    add(tmp_path, "a", [0, DOG + 1])
    add(tmp_path, "b", [0, DOG + 1])
    add(tmp_path, "c", None)
    annotate(tmp_path, "a", "person", "dog", "person")
    annotate(tmp_path, "c", "sofa")
    split(tmp_path, "train_aug", "a\nb\nc\n")
    catalog = read_voc(tmp_path)
    assert content(catalog) == {"a": (DOG, PERSON), "b": (DOG,), "c": (SOFA,)}
    assert catalog.load_mask(2) is None
    assert catalog.has_masks


def test_lists_of_paths_and_any_list_file(tmp_path: Path) -> None:
    add(tmp_path, "a", [DOG + 1])
    add(tmp_path, "b", [SOFA + 1])
    write_mask(tmp_path / "Other" / "b.png", np.array([[PERSON + 1], [0]], np.uint8))
    listing = tmp_path / "my list.txt"
    listing.write_text(
        "/JPEGImages/a.jpg /SegmentationClassAug/a.png\n  \n/JPEGImages/b.jpg /Other/b.png\n"
    )
    assert content(read_voc(tmp_path, listing)) == {"a": (DOG,), "b": (PERSON,)}
    assert content(read_voc(tmp_path, str(listing))) == {"a": (DOG,), "b": (PERSON,)}


def test_the_plain_mask_folder_serves_where_the_augmented_has_none(tmp_path: Path) -> None:
    add(tmp_path, "a", [DOG + 1], folder="SegmentationClass")
    add(tmp_path, "b", [DOG + 1], folder="SegmentationClass")
    add(tmp_path, "b", [SOFA + 1], folder="SegmentationClassAug")
    split(tmp_path, "val", "a\nb\n")
    assert content(read_voc(tmp_path, "val")) == {"a": (DOG,), "b": (SOFA,)}


def test_a_missing_split_lists_the_others(tmp_path: Path) -> None:
    add(tmp_path, "a", [1])
    split(tmp_path, "val", "a\n")
    split(tmp_path, "train", "a\n")
    with pytest.raises(
        TagmaskError, match=r'no split "train_aug": .* has train, val; name one of these'
    ):
        read_voc(tmp_path)


def test_missing_untagged_and_broken_images_are_left_out_and_told(tmp_path: Path) -> None:
    add(tmp_path, "good", [DOG + 1])
    add(tmp_path, "empty", [0, 255])
    add(tmp_path, "wrong", [21])
    add(tmp_path, "torn", [1])
    annotate(tmp_path, "torn")
    (tmp_path / "Annotations" / "torn.xml").write_text("<annotation><object>")
    split(tmp_path, "train", "good\nempty\nwrong\ntorn\ngone\n")
    catalog = read_voc(tmp_path, "train")
    assert content(catalog) == {"good": (DOG,)}
    missing, untagged, broken = catalog.notes
    assert missing == "1 image was listed but not found and left out: gone.jpg."
    assert untagged == "1 image was without any label and left out."
    assert broken.startswith("2 images were left out because of a label file that cannot be read")
    assert "wrong.png holds the labels 21" in broken
    assert "torn.xml is not valid XML" in broken


def test_entities_of_an_annotation_are_not_expanded(tmp_path: Path) -> None:
    """A few lines of them can stand for gigabytes; the other images are read."""
    for name in ("good", "bomb", "accent"):
        add(tmp_path, name, [DOG + 1])
        annotate(tmp_path, name, "dog")
    entities = (
        '<!DOCTYPE a [<!ENTITY b "dog">]><annotation><object><name>&b;</name></object></annotation>'
    )
    (tmp_path / "Annotations" / "bomb.xml").write_text(entities)
    accent = "<annotation><owner>Zo\xeb</owner><object><name>dog</name></object></annotation>"
    (tmp_path / "Annotations" / "accent.xml").write_bytes(accent.encode("latin-1"))
    split(tmp_path, "train", "good\nbomb\naccent\n")
    catalog = read_voc(tmp_path, "train")
    assert content(catalog) == {"good": (DOG,), "accent": (DOG,)}
    assert "bomb.xml declares a document type or entities" in " ".join(catalog.notes)


def test_a_test_split_without_labels_is_refused(tmp_path: Path) -> None:
    add(tmp_path, "a", None)
    split(tmp_path, "test", "a\n")
    with pytest.raises(TagmaskError, match="have neither mask nor annotation, for example a;"):
        read_voc(tmp_path, "test")


def test_other_mistakes(tmp_path: Path) -> None:
    with pytest.raises(TagmaskError, match="holds no folder JPEGImages"):
        read_voc(tmp_path)
    add(tmp_path, "a", [1])
    split(tmp_path, "twice", "a\na\n")
    with pytest.raises(TagmaskError, match='line 2: "a" is listed twice'):
        read_voc(tmp_path, "twice")
    split(tmp_path, "gone", "x\ny\n")
    with pytest.raises(TagmaskError, match="none of the 2 images"):
        read_voc(tmp_path, "gone")
    split(tmp_path, "bare", "\n")
    with pytest.raises(TagmaskError, match=r"bare\.txt lists no image"):
        read_voc(tmp_path, "bare")
    annotate(tmp_path, "a", "unicorn")
    split(tmp_path, "odd", "a\n")
    with pytest.raises(TagmaskError, match=r'a\.xml: unknown class "unicorn"'):
        read_voc(tmp_path, "odd")


@pytest.mark.skipif(not REAL.is_dir(), reason="the VOC photos are not at hand")
@pytest.mark.parametrize(
    ("name", "count", "expected"),
    [
        ("train", 1600, [512, 424, 367, 307, 215, 209, 105, 91, 69, 59, 46, 40]),
        ("val", 300, [80, 72, 67, 50, 43, 51, 18, 20, 8, 7, 5, 6]),
    ],
)
def test_counts_of_the_real_photos(name: str, count: int, expected: list[int]) -> None:
    catalog = read_voc(REAL, name)
    order = "dog person cat horse sheep cow chair sofa car pottedplant bottle tvmonitor".split()  # noqa: SIM905
    counts = dict(zip(catalog.classes, catalog.class_counts().tolist(), strict=True))
    assert len(catalog) == count
    assert [counts.pop(name) for name in order] == expected
    assert all(1 <= rest <= 20 for rest in counts.values())
    for i in range(0, count, count // 10):
        image, mask = catalog.load_pair(i)
        assert mask is not None
        assert set(np.unique(mask)) - {0, 255} == {tag + 1 for tag in catalog.tags(i)}
        assert max(image.shape) == 400
