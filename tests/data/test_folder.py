"""A folder of photos with a table of tags, in all its forms and with all its mistakes."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tagmask.data.catalog import Catalog
from tagmask.data.folder import read_folder
from tagmask.data.images import write_mask
from tagmask.errors import ImageError, TagmaskError


def photos(root: Path, *names: str) -> Path:
    for name in names:
        path = root / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 3)).save(path)
    return root / "photos"


def table(root: Path, text: str, name: str = "tags.csv", encoding: str = "utf-8") -> Path:
    (root / name).write_text(text, encoding=encoding)
    return root / name


def content(catalog: Catalog) -> dict[str, tuple[str, ...]]:
    return {item.name: tuple(catalog.classes[tag] for tag in item.tags) for item in catalog}


UNTAGGED = (
    "nothing is learned from photos without a tag; if they show none of your things, give them "
    "a tag for what they show, such as tree."
)
EXPECTED = {"a": ("dog", "sofa"), "sub/b": ("cat",), "c.v2": ("dog",)}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "file,tags\na.jpg,dog;sofa\nsub/b.png,cat\nc.v2.jpg,dog\n"),
        ("t.csv", "file,tags\r\na,sofa|dog\r\nsub/b,cat\r\nc.v2,dog"),
        ("t.csv", '"file","tags"\n\n./a.JPG, dog ; sofa \nsub\\b.png,cat;cat\nc.v2,"dog"\n\n'),
        ("t.csv", "File,Tags\na,dog;sofa\nsub/b,cat\nc.v2,dog\n"),
        ("t.csv", "file;tags\na;dog|sofa\nsub/b;cat\nc.v2;dog\n"),
        ("t.tsv", "file\ttags\na\tdog;sofa\nsub/b\tcat\nc.v2\tdog\n"),
        ("t.csv", "file,sofa,dog,cat\na.jpg,1,1,0\nsub/b.png,0,0,1\nc.v2.jpg,0, 1.0,0\n"),
        ("t.json", '{"a.jpg": ["dog", "sofa"], "sub/b": ["cat"], "c.v2": ["dog"]}'),
        ("t.json", '[{"file": "a", "tags": ["sofa", "dog"]}, {"file": "sub/b.png", "tags": ["cat"]},'
                   ' {"tags": ["dog"], "file": "c.v2.jpg", "by": "me"}]'),
        ("t.jsonl", '{"file": "a", "tags": ["dog", "sofa"]}\n\n{"file": "sub/b", "tags": ["cat"]}\n'
                    '{"file": "c.v2", "tags": ["dog"]}\n'),
    ],
)  # fmt: skip
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_every_form_of_table_gives_the_same_catalog(
    tmp_path: Path, name: str, text: str, encoding: str
) -> None:
    images = photos(tmp_path, "a.jpg", "sub/b.png", "c.v2.jpg", "unlisted.jpg")
    catalog = read_folder(images, table(tmp_path, text, name, encoding))
    assert content(catalog) == EXPECTED
    assert catalog.classes == ("cat", "dog", "sofa")
    assert catalog.item(1).image == images / "sub/b.png"
    assert catalog.load_image(0).shape == (3, 4, 3)
    assert catalog.notes == (f"1 photo is not in {name} and left out: unlisted.jpg.",)
    assert not catalog.has_masks


def test_one_sub_folder_per_tag(tmp_path: Path) -> None:
    images = photos(
        tmp_path, "dog/a.jpg", "dog/2021/b.jpg", "cat/a.jpg", "loose.jpg", "dog/.hidden.jpg"
    )
    (images / "dog" / "readme.txt").write_text("no picture")
    (images / "empty").mkdir()
    catalog = read_folder(images, None)
    assert content(catalog) == {"cat/a": ("cat",), "dog/2021/b": ("dog",), "dog/a": ("dog",)}
    assert catalog.classes == ("cat", "dog")
    assert catalog.notes == ("1 image was without any label and left out.", UNTAGGED)


def test_absolute_paths_below_the_folder_are_understood(tmp_path: Path) -> None:
    images = photos(tmp_path, "sub/a.jpg")
    catalog = read_folder(images, table(tmp_path, f"file,tags\n{images / 'sub' / 'a.jpg'},dog\n"))
    assert content(catalog) == {"sub/a": ("dog",)}


def test_linked_folders_are_followed_but_not_for_ever(tmp_path: Path) -> None:
    images = photos(tmp_path, "dog/a.jpg")
    os.symlink(images, images / "dog" / "loop")
    (tmp_path / "elsewhere").mkdir()
    Image.new("RGB", (4, 3)).save(tmp_path / "elsewhere" / "c.jpg")
    os.symlink(tmp_path / "elsewhere", images / "cat")
    assert content(read_folder(images, None)) == {"cat/c": ("cat",), "dog/a": ("dog",)}


def test_tags_that_look_alike_are_told(tmp_path: Path) -> None:
    images = photos(tmp_path, "a.jpg", "b.jpg", "c.jpg")
    catalog = read_folder(images, table(tmp_path, "file,tags\na.jpg,Dog\nb.jpg,dog\nc.jpg,cat\n"))
    (note,) = catalog.notes
    assert note.startswith('these tags look alike and are different classes: "Dog" and "dog"; if')
    assert catalog.classes == ("Dog", "cat", "dog")


def test_missing_images_are_skipped_and_listed(tmp_path: Path) -> None:
    images = photos(tmp_path, "a.jpg")
    lines = "".join(f"gone{number}.jpg,cat\n" for number in range(7))
    catalog = read_folder(images, table(tmp_path, f"file,tags\na.jpg,dog\n{lines}../a.jpg,dog\n"))
    assert content(catalog) == {"a": ("dog",)}
    note, idle = catalog.notes
    assert note.startswith(
        "8 images were listed but not found and left out: gone0.jpg, gone1.jpg, "
    )
    assert note.endswith("gone4.jpg, ….")
    assert idle == "no image carries the tags cat."


def test_all_images_missing_shows_the_first_path_tried(tmp_path: Path) -> None:
    images = photos(tmp_path, "a.jpg")
    with pytest.raises(TagmaskError, match="none of the 2 images") as caught:
        read_folder(images, table(tmp_path, "file,tags\nphotos/a.jpg,dog\nphotos/b.jpg,dog\n"))
    assert str(images / "photos" / "a.jpg") in str(caught.value)


def test_an_unreadable_image_is_told_when_it_is_loaded_and_harms_no_other(tmp_path: Path) -> None:
    images = photos(tmp_path, "a.jpg", "b.jpg")
    (images / "a.jpg").write_bytes(b"not a picture")
    catalog = read_folder(images, table(tmp_path, "file,tags\na.jpg,dog\nb.jpg,dog\n"))
    with pytest.raises(ImageError, match=r"a\.jpg is not a picture"):
        catalog.load_image(0)
    assert catalog.load_image(1).shape == (3, 4, 3)


def test_images_without_tags_are_counted(tmp_path: Path) -> None:
    images = photos(tmp_path, "a.jpg", "b.jpg", "c.jpg")
    catalog = read_folder(images, table(tmp_path, "file,tags\na,dog\nb,\nc, \n"))
    assert content(catalog) == {"a": ("dog",)}
    assert catalog.notes == ("2 images were without any label and left out.", UNTAGGED)


def test_masks_by_name(tmp_path: Path) -> None:
    images = photos(tmp_path, "a.jpg", "sub/b.jpg", "c.jpg")
    write_mask(tmp_path / "masks" / "a.png", np.array([[0, 1, 2, 255]] * 3, np.uint8))
    write_mask(tmp_path / "masks" / "sub" / "b.png", np.zeros((5, 5), np.uint8))
    tags = table(tmp_path, "file,tags\na,dog\nsub/b,cat\nc,dog\n")
    catalog = read_folder(images, tags, masks=tmp_path / "masks")
    assert [item.name for item in catalog] == ["a", "sub/b", "c"]
    mask = catalog.load_mask(0)
    assert mask is not None
    assert mask.tolist() == [[0, 1, 2, 255]] * 3
    assert catalog.load_mask(2) is None
    assert catalog.has_masks
    assert catalog.notes == ("1 of 3 images have no mask.",)
    with pytest.raises(ImageError, match='mask of "sub/b" is 5×5 pixels but its image is 4×3'):
        catalog.load_pair(1)


def test_masks_that_match_nothing(tmp_path: Path) -> None:
    images = photos(tmp_path, "a.jpg")
    tags = table(tmp_path, "file,tags\na,dog\n")
    (tmp_path / "masks").mkdir()
    with pytest.raises(TagmaskError, match=r"no image has a mask .*a\.png"):
        read_folder(images, tags, masks=tmp_path / "masks")
    with pytest.raises(TagmaskError, match="is not a folder"):
        read_folder(images, tags, masks=tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("t.csv", "file,tags\na,dog;;cat\n", 'line 2: an empty tag in "dog;;cat"'),
        ("t.csv", "file,tags\na,dog;\n", 'line 2: an empty tag in "dog;"'),
        ("t.json", '{"a": ["dog", ""]}', 'entry 1: an empty tag in "dog;"'),
        ("t.csv", "file,tags\na,dog\nb,dog\na,cat\n", 'line 4: "a" is already listed at line 2'),
        (
            "t.csv",
            "file,tags\na,dog\na.jpg,cat\n",
            "line 3: a.jpg is already listed at line 2; keep one of the two",
        ),
        (
            "t.csv",
            "file,tags\ntwin.jpg,dog\ntwin.png,dog\n",
            "line 3: twin.png has the name of twin.jpg (line 2)",
        ),
        (
            "t.csv",
            "file,tags\ntwin,dog\n",
            'line 2: "twin" may be twin.jpg or twin.png; write the suffix',
        ),
        ("t.json", '{"a": ["dog"], "a": ["cat"]}', 'entry 2: "a" is already listed at entry 1'),
        ("t.csv", "file,cat,dog\na,1,yes\n", 'line 2: "yes" in the column "dog"; write 0 or 1'),
        ("t.csv", "file,cat,dog\na,1,\n", 'line 2: "" in the column "dog"; write 0 or 1'),
        ("t.csv", "file,cat,dog\na,1\n", "line 2: 2 cells, but the header has 3"),
        (
            "t.csv",
            "subject,kind\na,dog\n",
            'line 1: the header must be "file,tags", or "file" and one column per class',
        ),
        ("t.csv", "", "the header must be"),
        ("t.csv", "file,tags,label\na,dog,cat\n", 'line 1: unknown column "label" beside "tags"'),
        ("t.csv", "file,cat,cat\na,1,0\n", 'line 1: the column "cat" is given twice'),
        ("t.csv", "file,cat,\na,1,0\n", "line 1: column 3 has no name"),
        ("t.csv", "file,tags\n,dog\n", "line 2: no file name"),
        ("t.csv", 'file,tags\n"a\nb",dog;\nc,dog;\n', "line 4: an empty tag"),
        (
            "t.json",
            '{"a": "dog"}',
            'entry 1: an entry needs "file" (a string) and "tags" (a list of strings)',
        ),
        ("t.json", '[{"file": "a"}, 3]', "entry 2: an entry needs"),
        (
            "t.jsonl",
            '{"file": "a", "tags": ["dog"]}\n{"tags": ["dog"]}\n',
            "line 2: an entry needs",
        ),
    ],
)
def test_mistakes_are_named_with_their_place(
    tmp_path: Path, name: str, text: str, expected: str
) -> None:
    images = photos(tmp_path, "a.jpg", "b.jpg", "twin.jpg", "twin.png")
    with pytest.raises(TagmaskError) as caught:
        read_folder(images, table(tmp_path, text, name))
    assert expected in str(caught.value)
    assert name in str(caught.value)


def test_all_mistakes_are_reported_at_once_ten_of_each_kind(tmp_path: Path) -> None:
    images = photos(tmp_path, "a.jpg")
    lines = [f"x{number},horse,1" for number in range(13)] + ["a,dog;;dog", "a,cat"]
    with pytest.raises(TagmaskError) as caught:
        read_folder(images, table(tmp_path, "\n".join(["file,tags", *lines])))
    report = str(caught.value)
    assert "tags.csv has 15 mistakes" in report
    assert report.count("3 cells, but the header has 2") == 10
    assert "and 3 more of this kind" in report
    assert "line 15: an empty tag" in report
    assert 'line 16: "a" is already listed at line 15' in report


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("t.csv", "file,tags\na,caf\xe9\n".encode("latin-1"), "save it with the encoding UTF-8"),
        ("t.csv", b'file,tags\na,"dog\n', "not valid CSV from line 2 on"),
        ("t.json", b'{"a": [', "not valid JSON at line 1, column"),
        ("t.json", b'"a"', "must hold"),
        ("t.jsonl", b'{"file": "a", "tags": []}\n{"file"\n', "not valid JSON at line 2, column"),
        ("t.xlsx", b"", "has no known suffix; tags are read from .csv, .tsv, .json, .jsonl"),
        ("t.csv", b"file,tags\na,\n", "contains no tags"),
    ],
)
def test_tables_that_cannot_be_read(tmp_path: Path, name: str, data: bytes, expected: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(TagmaskError) as caught:
        read_folder(photos(tmp_path, "a.jpg"), tmp_path / name)
    assert expected in str(caught.value)


def test_paths_that_do_not_exist(tmp_path: Path) -> None:
    with pytest.raises(TagmaskError, match="nowhere is not a folder"):
        read_folder(tmp_path / "nowhere", None)
    with pytest.raises(TagmaskError, match=r"none\.csv does not exist"):
        read_folder(photos(tmp_path, "a.jpg"), tmp_path / "none.csv")


def test_folders_per_tag_have_mistakes_too(tmp_path: Path) -> None:
    images = photos(tmp_path, "dog/a.jpg", "dog/a.png")
    with pytest.raises(TagmaskError) as caught:
        read_folder(images, None)
    assert "dog/a.png has the name of dog/a.jpg" in str(caught.value)
    (tmp_path / "bare").mkdir()
    with pytest.raises(TagmaskError, match="contains no tags"):
        read_folder(tmp_path / "bare", None)


def test_thousands_of_images(tmp_path: Path) -> None:
    images = tmp_path / "photos"
    images.mkdir()
    for number in range(2000):
        (images / f"{number}.jpg").touch()
    entries = {f"{number}": [f"class {number % 30}"] for number in range(2000)}
    catalog = read_folder(images, table(tmp_path, json.dumps(entries), "t.json"))
    assert len(catalog) == 2000
    assert catalog.class_counts().sum() == 2000
