"""Tags in files that the tools' own packages wrote.

The packages are in the extra `exchange`: see docs/how-to/exchange.md.
"""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from PIL import Image

from tagmask.data.catalog import Catalog
from tagmask.data.folder import read_folder
from tagmask.data.keywords import keywords
from tests.helpers import fiftyone_with_database

TAGS = {"a": ("dog", "sofa"), "day 1/b #2": ("cat",), "été": ("Straße & Weg", "dog")}


@pytest.fixture
def images(tmp_path: Path) -> Path:
    for name in TAGS:
        path = tmp_path / f"photos/{name}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 3)).save(path)
    return tmp_path / "photos"


def content(catalog: Catalog) -> dict[str, tuple[str, ...]]:
    return {item.name: tuple(catalog.classes[tag] for tag in item.tags) for item in catalog}


@pytest.mark.parametrize("kinds", [("iptc",), ("xmp",), ("iptc", "xmp")])
def test_keywords_written_by_exiv2(images: Path, kinds: tuple[str, ...]) -> None:
    """Exiv2 is what digiKam writes with."""
    exiv2: Any = pytest.importorskip("pyexiv2", reason="pyexiv2 is not installed")
    for name, tags in TAGS.items():
        with exiv2.Image(str(images / f"{name}.jpg")) as image:
            if "iptc" in kinds:
                image.modify_iptc({"Iptc.Application2.Keywords": list(tags)})
            if "xmp" in kinds:
                image.modify_xmp({"Xmp.dc.subject": list(tags), "Xmp.dc.title": "no tag"})
    assert content(read_folder(images, Path("embedded"))) == TAGS


LONG = "Schifffahrtsgesellschaftskapitänsmützenabzeichensammlungsvitrine 日本語"


def exiv2_image(path: Path) -> Any:
    exiv2: Any = pytest.importorskip("pyexiv2", reason="pyexiv2 is not installed")
    exiv2.registerNs("http://ns.adobe.com/lightroom/1.0/", "lr")
    exiv2.registerNs("http://www.digikam.org/ns/1.0/", "digiKam")
    if not path.exists():
        Image.new("RGB", (4, 3)).save(path)
    return exiv2.Image(str(path))


def test_a_keyword_that_several_places_say_is_one(tmp_path: Path) -> None:
    """IPTC in Latin-2, IPTC's cut at 64 bytes, and Windows' own field, beside XMP."""
    path = tmp_path / "a.jpg"
    words = ["żółw", LONG, "dog"]
    with exiv2_image(path) as image:
        image.modify_xmp({"Xmp.dc.subject": words})
        image.modify_exif({"Exif.Image.XPKeywords": "dog;extra ü"})
    write_iptc(path, ["żółw".encode("iso8859-2"), LONG.encode()[:64], "źdźbło".encode("iso8859-2")])
    # the known words show the set of characters of the one that XMP lacks
    assert keywords(path) == (*words, "extra ü", "źdźbło")


def write_iptc(path: Path, values: list[bytes]) -> None:
    """Put keywords into a JPEG's IPTC block byte for byte, as no library does any more."""
    fields = b"".join(b"\x1c\x02\x19" + len(v).to_bytes(2, "big") + v for v in values)
    fields += b"\0" * (len(fields) % 2)
    block = b"Photoshop 3.0\x008BIM\x04\x04\0\0" + len(fields).to_bytes(4, "big") + fields
    content = path.read_bytes()
    segment = b"\xff\xed" + (len(block) + 2).to_bytes(2, "big") + block
    path.write_bytes(content[:2] + segment + content[2:])


def test_a_cut_keyword_alone_keeps_whole_characters(tmp_path: Path) -> None:
    Image.new("RGB", (4, 3)).save(tmp_path / "a.jpg")
    write_iptc(tmp_path / "a.jpg", [("x" + "é" * 40).encode()[:64], b"caf\xe9"])
    assert keywords(tmp_path / "a.jpg") == ("x" + "é" * 31, "café")


def test_hierarchies(tmp_path: Path) -> None:
    """Lightroom lists every part in dc:subject, digiKam the last one; the leaf or its path counts."""
    with exiv2_image(tmp_path / "lightroom.jpg") as image:
        image.modify_xmp(
            {
                "Xmp.dc.subject": ["animal", "dog", "holiday"],
                "Xmp.lr.hierarchicalSubject": ["animal", "animal|dog"],
            }
        )
    with exiv2_image(tmp_path / "digikam.jpg") as image:
        image.modify_xmp(
            {
                "Xmp.dc.subject": ["cat", "holiday"],
                "Xmp.digiKam.TagsList": ["animal/cat", "holiday"],
            }
        )
    leaves = {"lightroom": ("dog", "holiday"), "digikam": ("cat", "holiday")}
    assert content(read_folder(tmp_path, Path("embedded"))) == leaves
    paths = {"lightroom": ("animal/dog", "holiday"), "digikam": ("animal/cat", "holiday")}
    assert content(read_folder(tmp_path, Path("embedded-paths"))) == paths


@pytest.mark.parametrize("name", ["a.jpg.xmp", "a.xmp", "a.JPG.XMP"])
def test_sidecars_written_by_exiv2(tmp_path: Path, name: str) -> None:
    with exiv2_image(tmp_path / "other.jpg") as image:
        image.modify_xmp({"Xmp.dc.subject": ["dog", "été"]})
        packet = image.read_raw_xmp()
    Image.new("RGB", (4, 3)).save(tmp_path / "a.jpg")
    (tmp_path / name).write_text(packet, encoding="utf-8")
    assert content(read_folder(tmp_path, Path("embedded")))["a"] == ("dog", "été")


@pytest.mark.parametrize("suffix", [".png", ".webp", ".tif"])
def test_keywords_in_other_kinds_of_photos(tmp_path: Path, suffix: str) -> None:
    exiv2: Any = pytest.importorskip("pyexiv2", reason="pyexiv2 is not installed")
    Image.new("RGB", (4, 3)).save(tmp_path / f"a{suffix}")
    with exiv2.Image(str(tmp_path / f"a{suffix}")) as image:
        image.modify_xmp({"Xmp.dc.subject": ["dog", "été"]})
    assert set(keywords(tmp_path / f"a{suffix}")) == {"dog", "été"}


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_metadata_written_by_datasets(images: Path, suffix: str) -> None:
    datasets: Any = pytest.importorskip("datasets", reason="datasets is not installed")
    rows = datasets.Dataset.from_list(
        [{"file_name": f"{n}.jpg", "tags": list(t), "i": 1} for n, t in TAGS.items()]
    )
    if suffix == "jsonl":
        rows.to_json(images / "metadata.jsonl")
    else:
        rows.map(lambda row: {"tags": json.dumps(row["tags"])}).to_csv(
            images / "metadata.csv", index=False
        )
    assert content(read_folder(images, images)) == TAGS


def test_a_task_made_by_label_studio(images: Path, tmp_path: Path) -> None:
    interface: Any = pytest.importorskip(
        "label_studio_sdk.label_interface", reason="label-studio-sdk is not installed"
    )
    choices = "".join(
        f'<Choice value="{tag}"/>' for tag in ("cat", "dog", "sofa", "Straße &amp; Weg")
    )
    made = interface.LabelInterface(
        '<View><Image name="image" value="$image"/>'
        f'<Choices name="tag" toName="image" choice="multiple">{choices}</Choices></View>'
    )
    tasks, expected = [], {}
    for name in TAGS:
        # the sample is random, and at times empty
        samples = (made.generate_sample_annotation() for _ in range(100))
        annotation = next(sample for sample in samples if sample["result"])
        assert made.validate_annotation(annotation)
        expected[name] = tuple(sorted(annotation["result"][0]["value"]["choices"]))
        address = f"/data/local-files/?d=photos/{quote(name)}.jpg"
        tasks.append({"data": {"image": address}, "annotations": [annotation]})
    (tmp_path / "export.json").write_text(json.dumps(tasks))
    assert content(read_folder(images, tmp_path / "export.json")) == expected


def test_an_export_of_fiftyone(images: Path, tmp_path: Path) -> None:
    fo = fiftyone_with_database()
    samples = []
    for name, tags in TAGS.items():
        labels = fo.Classifications(classifications=[fo.Classification(label=tag) for tag in tags])
        samples.append(
            fo.Sample(filepath=str(images / f"{name}.jpg"), weather=labels, tags=["train"])
        )
    dataset = fo.Dataset()
    dataset.add_samples(samples)
    dataset.export(
        export_dir=str(tmp_path / "out"), dataset_type=fo.types.FiftyOneDataset, rel_dir=str(images)
    )
    assert content(read_folder(images, tmp_path / "out")) == TAGS
    assert content(read_folder(tmp_path / "out/data", tmp_path / "out")) == TAGS


def test_an_xml_for_cvat_by_datumaro(images: Path, tmp_path: Path) -> None:
    dm: Any = pytest.importorskip("datumaro", reason="datumaro is not installed")
    names = sorted({tag for tags in TAGS.values() for tag in tags})
    items = [
        dm.DatasetItem(name, media=dm.Image.from_file(str(images / f"{name}.jpg")),
                       annotations=[dm.Label(names.index(tag)) for tag in tags])
        for name, tags in TAGS.items()
    ]  # fmt: skip
    dm.Dataset.from_iterable(items, categories=names).export(
        str(tmp_path / "out"), "cvat", save_media=False
    )
    (file,) = (tmp_path / "out").rglob("*.xml")
    assert content(read_folder(images, file)) == TAGS


def test_files_that_x_anylabeling_saved(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QT_QPA_PLATFORM", "offscreen")
    module: Any = pytest.importorskip(
        "anylabeling.views.labeling.label_file", reason="x-anylabeling-cvhub is not installed"
    )
    for name, tags in TAGS.items():
        file = images / f"{name}.jpg"
        module.LabelFile().save(
            str(file.with_suffix(".json")),
            [],
            file.name,
            3,
            4,
            None,
            {"tags": list(tags), "description": ""},
        )
    assert content(read_folder(images, images)) == TAGS
