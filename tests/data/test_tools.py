"""Tags in the files of other tools, and in the photos: as the tools write them, and as nobody should."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tagmask.config import DataSettings, check
from tagmask.data.catalog import Catalog
from tagmask.data.folder import read_folder
from tagmask.data.keywords import keywords
from tagmask.data.open import open_catalog
from tagmask.errors import ImageError, TagmaskError

NAMES = ("a.jpg", "day 1/b #2.png", "day 1/été.jpg")
TAGS = {"a": ("dog", "sofa"), "day 1/b #2": ("cat",), "day 1/été": ("dog",)}


@pytest.fixture
def images(tmp_path: Path) -> Path:
    for name in NAMES:
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 3)).save(path)
    return tmp_path / "photos"


def content(catalog: Catalog) -> dict[str, tuple[str, ...]]:
    return {item.name: tuple(catalog.classes[tag] for tag in item.tags) for item in catalog}


def written(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def pairs() -> list[tuple[str, list[str]]]:
    return [(name, list(TAGS[name[:-4]])) for name in NAMES]


def task(address: str, *results: list[str], **more: Any) -> dict[str, Any]:
    """A task as Label Studio exports it; each list of choices is an annotation of its own."""
    annotations = [
        {
            "result": [
                {
                    "type": "choices",
                    "from_name": "tag",
                    "to_name": "image",
                    "value": {"choices": list(names)},
                }
            ]
        }
        for names in results
    ]
    return {"id": 1, "data": {"image": address}, "annotations": annotations, **more}


def label_studio() -> list[dict[str, Any]]:
    return [
        task("/data/local-files/?d=photos/a.jpg", ["dog"], ["sofa", "dog"]),
        task("/data/local-files/?d=photos/day%201/b%20%232.png", ["cat"]),
        task("/data/upload/3/0a1b2c3d-%C3%A9t%C3%A9.jpg", ["dog"], drafts=[]),
    ]


def fiftyone() -> dict[str, Any]:
    labels = {
        name: [{"_cls": "Classification", "label": tag} for tag in tags] for name, tags in pairs()
    }
    return {
        "samples": [
            {
                "filepath": f"data/{n}",
                "tags": ["train"],
                "weather": {"_cls": "Classifications", "classifications": v},
            }
            for n, v in labels.items()
        ]
    }


def cvat() -> str:
    rows = "".join(
        f'<image id="{number}" name="photos/{name}" width="4" height="3">'
        + "".join(f'<tag label="{tag}" source="manual"></tag>' for tag in tags)
        + "</image>"
        for number, (name, tags) in enumerate(pairs())
    )
    return f'<?xml version="1.0" encoding="utf-8"?><annotations><version>1.1</version><meta/>{rows}</annotations>'


def test_label_studio(images: Path, tmp_path: Path) -> None:
    tags = written(tmp_path / "export.json", label_studio())
    assert content(read_folder(images, tags)) == TAGS
    cancelled = label_studio()
    cancelled[0]["annotations"][0]["was_cancelled"] = True
    cancelled[0]["annotations"][1]["result"] += [
        {"type": "rating", "value": {"rating": 3}},
        None,
        7,
    ]
    assert content(read_folder(images, written(tags, cancelled))) == TAGS
    with pytest.raises(TagmaskError, match="short form JSON-MIN; export the project as JSON"):
        read_folder(
            images, written(tags, [{"image": "a.jpg", "choice": "dog", "annotation_id": 1}])
        )


def test_fiftyone(images: Path, tmp_path: Path) -> None:
    tags = written(tmp_path / "export/samples.json", fiftyone())
    assert content(read_folder(images, tags)) == TAGS
    assert content(read_folder(images, tags.parent)) == TAGS
    samples = fiftyone()["samples"]
    for sample in samples:
        sample["guess"] = {"_cls": "Classifications", "classifications": []}
    with pytest.raises(TagmaskError, match='has several: weather, guess; call it "ground_truth"'):
        read_folder(images, written(tags, {"samples": samples}))
    with pytest.raises(TagmaskError, match="one field of Classifications, and has none"):
        read_folder(images, written(tags, {"samples": [{"filepath": "a.jpg"}]}))
    single = {
        "samples": [
            {"filepath": "a.jpg", "ground_truth": {"_cls": "Classification", "label": "dog"}}
        ]
    }
    assert content(read_folder(images, written(tags, single))) == {"a": ("dog",)}


@pytest.mark.parametrize("zipped", [False, True])
def test_cvat(images: Path, tmp_path: Path, zipped: bool) -> None:
    tags = written(tmp_path / "annotations.xml", cvat())
    if zipped:
        with zipfile.ZipFile(tmp_path / "task.zip", "w") as archive:
            archive.write(tags, "annotations.xml")
        tags = tmp_path / "task.zip"
    assert content(read_folder(images, tags)) == TAGS


@pytest.mark.parametrize("inside", [False, True])
def test_hugging_face(images: Path, tmp_path: Path, inside: bool) -> None:
    rows = [
        {"file_name": name, "text": "x", "tags": tags or None, "box": [1, 2]}
        for name, tags in pairs()
    ]
    folder = images if inside else tmp_path / "elsewhere"
    lines = written(folder / "metadata.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert content(read_folder(images, lines)) == TAGS
    assert content(read_folder(images, folder)) == TAGS
    lines.unlink()
    table = "text,file_name,labels\n" + "".join(
        f'"x, y","{name}","{cell}"\n'
        for (name, tags), cell in zip(pairs(), ["['dog', 'sofa']", '[""cat""]', "dog"], strict=True)
    )
    assert content(read_folder(images, written(folder / "metadata.csv", table))) == TAGS


def test_hugging_face_parts_in_sub_folders(images: Path) -> None:
    written(images / "metadata.jsonl", '{"file_name": "a.jpg", "objects": ["dog", "sofa"]}\n')
    rows = [{"file_name": name.split("/")[1], "objects": tags} for name, tags in pairs()[1:]]
    written(images / "day 1/metadata.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert content(read_folder(images, images)) == TAGS
    written(images / "metadata.jsonl", '{"file_name": "a.jpg", "x": ["dog"], "y": ["sofa"]}\n')
    with pytest.raises(
        TagmaskError,
        match='needs one column of lists of tags, and has several: x, y; call it "tags"',
    ):
        read_folder(images, images)
    written(images / "metadata.jsonl", '{"file_name": "a.jpg", "label": 3}\n')
    with pytest.raises(TagmaskError, match="needs one column of lists of tags, and has none"):
        read_folder(images, images)


@pytest.mark.parametrize("inside", [False, True])
def test_x_anylabeling(images: Path, tmp_path: Path, inside: bool) -> None:
    folder = images if inside else tmp_path / "labels"
    for name, tags in pairs():
        value = {
            "version": "4.2.1",
            "shapes": [],
            "imagePath": name.split("/")[-1],
            "tags": [*tags, None, " "],
        }
        written(folder / f"{name[:-4]}.json", value)
    written(folder / "classes.json", {"not": {"a": "label file"}})
    assert content(read_folder(images, folder)) == TAGS
    assert content(read_folder(images, folder / "a.json")) == {"a": ("dog", "sofa")}
    written(folder / "a.json", '{"imagePath": ')
    with pytest.raises(TagmaskError, match=r"a\.json is not valid JSON"):
        read_folder(images, folder)


def test_a_folder_without_tags_is_refused(images: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(TagmaskError, match=r"empty holds no tags of a tool that is known here"):
        read_folder(images, tmp_path / "empty")


def test_a_name_without_its_folder_must_be_unique(images: Path, tmp_path: Path) -> None:
    tags = written(tmp_path / "t.json", [task("/data/upload/1/été.jpg", ["dog"])])
    assert content(read_folder(images, tags)) == {"day 1/été": ("dog",)}
    (images / "day 2").mkdir()
    Image.new("RGB", (4, 3)).save(images / "day 2/été.jpg")
    with pytest.raises(
        TagmaskError, match=r'"été.jpg" may be day 1/été.jpg or day 2/été.jpg; rename one'
    ):
        read_folder(images, written(tags, [task("été.jpg", ["dog"])]))
    other = written(
        tags, [task("/data/local-files/?d=day 3/été.jpg", ["cat"]), task("a.jpg", ["dog"])]
    )
    catalog = read_folder(images, other)  # in a folder of another name it is another photo
    assert content(catalog) == {"a": ("dog",)}
    assert "1 image was listed but not found" in catalog.notes[0]


BOMB = '<!DOCTYPE a [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><annotations><image name="&b;"/></annotations>'
DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.xml", BOMB, "declares a document type or entities"),
        ("x.xml", "<annotations><image", "is not valid XML"),
        ("x.xml", "<annotations/>", 'lists no images; export the task from CVAT as "CVAT for images 1.1"'),
        ("x.xml", '<annotations><image/></annotations>', "image 1: an entry needs the path of an image"),
        ("x.xml", '<annotations><image name="a.jpg"><tag/></image></annotations>', "and tags (a list of strings)"),
        ("x.zip", "no zip", "File is not a zip file"),
        ("x.json", '[{"data": ' + DEEP, "too deep to read"),
        ("x.json", '[{"data": {}}]', "task 1: an entry needs the path of an image"),
        ("x.json", '[{"data": {"image": 3}, "annotations": {"result": 7}}]', "task 1: an entry needs"),
        ("x.json", '[{"data": {"image": "http://[x/a.jpg"}}]', "contains no tags"),
        ("x.json", '{"samples": [{"x": {"_cls": "Classification", "label": 3}, "filepath": "a.jpg"}]}', "sample 1: "),
        ("x.json", '{"imagePath": "a.jpg", "shapes": [], "tags": "dog"}', "contains no tags"),
        ("x.json", '{"imagePath": "a.jpg", "shapes": [], "tags": ["\\ud800"]}', "line break or control character"),
        ("x.json", '{"imagePath": "a.jpg", "shapes": [], "tags": ["Background"]}', "label 0 is the background"),
        ("x.jsonl", '{"file_name": 3, "tags": ["dog"]}', "line 1: an entry needs the path of an image"),
        ("x.jsonl", '{"file_name": "../../a.jpg", "tags": ["dog"]}', ""),
    ],
)  # fmt: skip
def test_hostile_files(images: Path, tmp_path: Path, name: str, text: str, message: str) -> None:
    if not message:
        assert content(read_folder(images, written(tmp_path / name, text))) == {"a": ("dog",)}
        return
    with pytest.raises(TagmaskError) as caught:
        read_folder(images, written(tmp_path / name, text))
    assert message in str(caught.value)


def test_three_hundred_tags_are_refused(images: Path, tmp_path: Path) -> None:
    tags = written(tmp_path / "x.json", [task("a.jpg", [f"tag {number}" for number in range(300)])])
    with pytest.raises(TagmaskError, match="there are 300 classes; give 1 to 254"):
        read_folder(images, tags)


def xmp(*words: str) -> bytes:
    items = "".join(f"<rdf:li>{word}</rdf:li>" for word in words)
    return (
        '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?><x:xmpmeta xmlns:x="adobe:ns:meta/">'
        '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description '
        f'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:subject><rdf:Bag>{items}</rdf:Bag></dc:subject>'
        "<dc:title><rdf:Alt><rdf:li>no tag</rdf:li></rdf:Alt></dc:title></rdf:Description></rdf:RDF></x:xmpmeta>"
        '<?xpacket end="w"?>'
    ).encode()


def test_keywords_in_the_photos(images: Path) -> None:
    Image.new("RGB", (4, 3)).save(images / "a.jpg", xmp=xmp("dog", " sofa ", "dog", ""))
    Image.new("RGB", (4, 3)).save(images / "w.webp", xmp=xmp("Straße &amp; Weg"))
    (images / "broken.jpg").write_bytes(b"no picture")
    assert keywords(images / "a.jpg") == ("dog", "sofa")
    with pytest.raises(ImageError):
        keywords(images / "broken.jpg")
    settings = DataSettings(data="folder", images=images, tags=Path("embedded"))
    check(settings)
    catalog = open_catalog(settings)
    assert content(catalog) == {"a": ("dog", "sofa"), "w": ("Straße & Weg",)}
    assert catalog.notes[0] == "3 images were without any label and left out."
    assert catalog.notes[1].startswith("nothing is learned from photos without a tag")


@pytest.mark.parametrize(
    "packet", [b"<x", BOMB.encode(), b"\xff\xfe\x00", b"\0" * 100, xmp("a")[:300]]
)
def test_a_garbled_packet_says_nothing(images: Path, packet: bytes) -> None:
    Image.new("RGB", (4, 3)).save(images / "a.jpg", xmp=packet)
    assert keywords(images / "a.jpg") == ()


def test_photos_without_keywords_are_refused(images: Path) -> None:
    with pytest.raises(TagmaskError, match="contains no tags"):
        read_folder(images, Path("embedded"))
