"""Masks out, read back by the tools' own packages, pixel for pixel."""

import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tagmask.data.images import Picture
from tagmask.exchange.contours import centre_outlines
from tagmask.exchange.cvat import write_cvat
from tagmask.exchange.datumaro import write_datumaro
from tagmask.exchange.fiftyone import write_fiftyone
from tagmask.exchange.huggingface import write_huggingface
from tagmask.exchange.index import drawn_in_masks
from tagmask.exchange.items import Labelled, unlistable_name
from tagmask.exchange.label_studio import write_label_studio
from tagmask.exchange.labelme import write_labelme
from tagmask.exchange.napari import write_napari
from tagmask.exchange.qupath import write_qupath
from tagmask.exchange.voc import write_voc
from tagmask.exchange.xanylabeling import write_xanylabeling
from tagmask.exchange.yolo import write_ultralytics, write_yolo_seg
from tagmask.labels import Mask
from tests.helpers import fiftyone_with_database

CLASSES = ("dog", 'sofa & "chair": x', "été 🐕\u200d")
NAMES = (
    "plain",
    "day 1/with space #1",
    "étage/日本",
    "new\nline",
    "x" * 200,
    "test/val/images of it",
    "one",
    "large",
)


def masks() -> dict[str, Mask]:
    """Holes, islands in holes, pieces that meet at a corner, unsure pixels, a single pixel, 6,000 pixels."""
    random = np.random.default_rng(3)
    drawn = {name: _shapes(random, 40, 53) for name in NAMES}
    drawn["plain"][:2, :9] = 255
    drawn["one"] = np.array([[3]], np.uint8)
    drawn["large"] = np.kron(_shapes(random, 40, 60), np.ones((100, 100), np.uint8))
    return drawn


def _shapes(random: np.random.Generator, height: int, width: int) -> Mask:
    mask = np.zeros((height, width), np.uint8)
    mask[4:30, 5:40] = 1
    mask[8:20, 10:30] = 0  # a hole
    mask[11:16, 14:22] = 2  # an island in it
    mask[12:14, 16:18] = 1
    noise = random.random((height, width)) < 0.02
    mask[noise] = 3
    return mask


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> list[Labelled]:
    folder = tmp_path_factory.mktemp("photos")
    made = []
    for number, (name, mask) in enumerate(masks().items()):
        image = folder / f"{name}.{'png' if number % 2 else 'jpg'}"
        image.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(photo(mask)).save(image)
        part = "val" if number % 3 == 1 else "train"
        made.append(Labelled(name, mask, image, tags=CLASSES[: 1 + number % 3], part=part))
    return made


def photo(mask: Mask) -> Picture:
    return np.repeat((mask * 60)[..., None], 3, axis=2)


def sure(mask: Mask) -> Mask:
    return np.where(mask == 255, 0, mask).astype(np.uint8)


def test_hugging_face_reads_the_imagefolder(
    items: Sequence[Labelled], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets: Any = pytest.importorskip("datasets", reason="datasets is not installed")
    # it counts how often data sets are opened, even those of a folder
    monkeypatch.setattr(datasets.config, "HF_UPDATE_DOWNLOAD_COUNTS", False)
    write_huggingface(items, CLASSES, tmp_path / "out")
    loaded = datasets.load_dataset(
        "imagefolder", data_dir=str(tmp_path / "out"), cache_dir=str(tmp_path / "cache")
    )
    assert set(loaded) == {"train", "validation"}
    rows = {row["name"]: (part, row) for part in loaded for row in loaded[part]}
    assert rows.keys() == set(NAMES)
    for item in items:
        part, row = rows[item.name]
        assert part == {"train": "train", "val": "validation"}[item.part]
        assert row["mask"].mode == "L"
        assert np.array_equal(np.array(row["mask"]), item.mask)
        assert row["image"].size == item.mask.shape[::-1]
        assert tuple(row["tags"]) == item.tags


def test_fiftyone_reads_the_directory(items: Sequence[Labelled], tmp_path: Path) -> None:
    importers: Any = pytest.importorskip(
        "fiftyone.utils.data.importers", reason="fiftyone is not installed"
    )
    heat = {1: np.arange(12, dtype=np.uint8).reshape(3, 4)}
    write_fiftyone([replace(item, maps=lambda: heat) for item in items], CLASSES, tmp_path)
    found = {}
    with importers.ImageSegmentationDirectoryImporter(
        dataset_dir=str(tmp_path), compute_metadata=True
    ) as samples:
        for image, metadata, label in samples:
            name = str(Path(image).relative_to(tmp_path / "data").with_suffix(""))
            found[name] = (
                label.mask if label.mask is not None else np.array(Image.open(label.mask_path)),
                metadata,
            )
    assert found.keys() == set(NAMES)
    for item in items:
        mask, metadata = found[item.name]
        assert np.array_equal(mask, item.mask)
        assert (metadata.height, metadata.width) == item.mask.shape
        assert np.array_equal(
            np.array(Image.open(tmp_path / f"heatmaps/1/{item.name}.png")), heat[1]
        )
    targets = {
        int(label): name
        for label, name in json.loads((tmp_path / "mask_targets.json").read_text()).items()
    }
    assert targets == {0: "background", 1: CLASSES[0], 2: CLASSES[1], 3: CLASSES[2], 255: "unsure"}


def test_fiftyone_loads_a_data_set_with_heat_maps(
    items: Sequence[Labelled], tmp_path: Path
) -> None:
    """The code of docs/how-to/exchange.md, on FiftyOne's own database."""
    fiftyone_with_database()
    heat = {2: np.arange(12, dtype=np.uint8).reshape(3, 4)}
    write_fiftyone([replace(item, maps=lambda: heat) for item in items[:3]], CLASSES, tmp_path)
    page = (Path(__file__).parents[2] / "docs/how-to/exchange.md").read_text(encoding="utf-8")
    code = (
        page.split("```py\n")[1]
        .split("```")[0]
        .replace('Path("folder")', f"Path({str(tmp_path)!r})")
    )
    names: dict[str, Any] = {}
    exec(compile(code, "docs/how-to/exchange.md", "exec"), names)
    dataset = names["dataset"]
    assert dataset.default_mask_targets[2] == CLASSES[1]
    for item in items[:3]:
        sample = dataset[str(next((tmp_path / "data").glob(f"{item.name}.*")))]
        segmentation = sample["ground_truth"]
        mask = (
            segmentation.mask
            if segmentation.mask is not None
            else np.array(Image.open(segmentation.mask_path))
        )
        assert np.array_equal(mask, item.mask)
        assert np.array_equal(np.array(Image.open(sample["seeds_2"].map_path)), heat[2])


@pytest.fixture
def ultralytics(monkeypatch: pytest.MonkeyPatch) -> Any:
    """AGPL, so not an extra: install it into an environment of its own."""
    monkeypatch.setenv("YOLO_OFFLINE", "true")  # it would ask name servers whether there is a net
    data: Any = pytest.importorskip("ultralytics.data", reason="ultralytics is not installed")
    utils: Any = pytest.importorskip("ultralytics.data.utils")
    monkeypatch.setattr(utils, "check_font", lambda font: None)  # it would be downloaded
    return data


def sizes_of(items: Sequence[Labelled], parts: Sequence[str]) -> list[Labelled]:
    return [item for item in items if item.part in parts]


def flat(item: Labelled) -> str:
    """Return the name of an image in a format without folders."""
    return item.name.replace("/", "_")


def test_ultralytics_reads_masks(
    ultralytics: Any, items: Sequence[Labelled], tmp_path: Path
) -> None:
    from ultralytics.data.dataset import SemanticDataset
    from ultralytics.data.utils import check_det_dataset

    write_ultralytics(items, CLASSES, tmp_path)
    data = check_det_dataset(str(tmp_path / "data.yaml"))
    assert list(data["names"].values())[:3] == ["background", *CLASSES[:2]]
    for part in ("train", "val"):
        dataset = SemanticDataset(
            img_path=data[part], data=data, task="semantic", augment=False, imgsz=64
        )
        files = {
            Path(label["im_file"]).relative_to(tmp_path / "images" / part): n
            for n, label in enumerate(dataset.labels)
        }
        expected = [
            item for item in items if item.part == part and item.name != "one"
        ]  # below 10 pixels it is refused
        assert {str(file.with_suffix("")) for file in files} >= set(map(flat, expected))
        for item in expected:
            number = next(n for file, n in files.items() if str(file.with_suffix("")) == flat(item))
            assert np.array_equal(dataset.load_mask(number), item.mask), item.name


def test_ultralytics_fills_the_polygons(
    ultralytics: Any, items: Sequence[Labelled], tmp_path: Path
) -> None:
    from ultralytics.data.dataset import YOLODataset
    from ultralytics.data.utils import check_det_dataset, polygon2mask
    from ultralytics.utils.ops import resample_segments

    write_yolo_seg(items, CLASSES, tmp_path)
    data = check_det_dataset(str(tmp_path / "data.yaml"))
    assert list(data["names"].values())[:2] == list(CLASSES[:2])
    for part in ("train", "val"):
        dataset = YOLODataset(
            img_path=data[part], data=data, task="segment", augment=False, imgsz=64
        )
        by_name = {str(Path(label["im_file"]).relative_to(tmp_path / "images" / part).with_suffix("")): label
                   for label in dataset.labels}  # fmt: skip
        for item in items:
            if item.part != part or item.name == "one":
                continue
            height, width = item.mask.shape
            label, drawn = by_name[flat(item)], np.zeros((height, width), np.uint8)
            for number, segment in zip(label["cls"].ravel(), label["segments"], strict=True):
                (points,) = resample_segments([segment.copy()], n=max(1000, len(segment) + 1))
                filled = polygon2mask((height, width), [points * (width, height)], color=1)
                drawn[filled == 1] = number + 1
            assert np.array_equal(drawn, sure(item.mask)), item.name


def test_opencv_fills_the_polygons_as_x_anylabeling_does(items: Sequence[Labelled]) -> None:
    cv2: Any = pytest.importorskip("cv2", reason="opencv is not installed")
    random = np.random.default_rng(0)
    noise = [
        random.random(shape) < share for shape in ((31, 44), (80, 80)) for share in (0.2, 0.5, 0.8)
    ]
    for region in [*noise, *(item.mask == 1 for item in items)]:
        drawn = np.zeros(region.shape, np.uint8)
        for polygon in centre_outlines(region):
            cv2.fillPoly(drawn, [np.array([(int(x), int(y)) for x, y in polygon], np.int32)], 1)
        assert np.array_equal(drawn == 1, region)


def test_x_anylabeling_draws_the_masks(items: Sequence[Labelled], tmp_path: Path) -> None:
    converter: Any = pytest.importorskip(
        "anylabeling.views.labeling.label_converter", reason="x-anylabeling-cvhub is not installed"
    )
    write_xanylabeling(items, CLASSES, tmp_path)
    mapping = {
        "type": "grayscale",
        "colors": {name: number for number, name in enumerate(CLASSES, 1)},
    }
    for item in items:
        converter.LabelConverter().custom_to_mask(
            str(tmp_path / f"{item.name}.json"), str(tmp_path / "m.png"), mapping
        )
        assert np.array_equal(np.array(Image.open(tmp_path / "m.png")), sure(item.mask)), item.name


def test_labelme_draws_the_masks(items: Sequence[Labelled], tmp_path: Path) -> None:
    """LabelMe opens each file with its photo, and draws the shapes."""
    pytest.importorskip("labelme", reason="labelme is not installed")
    files: Any = pytest.importorskip("labelme._label_file")
    shapes: Any = pytest.importorskip("labelme.utils.shape")
    write_labelme(items, CLASSES, tmp_path)
    for item in items:
        document = files.LabelFile(str(tmp_path / f"{item.name}.json"))
        with Image.open(io.BytesIO(document.image_data)) as image:
            assert image.size == item.mask.shape[::-1]
        drawn = np.zeros(item.mask.shape, np.uint8)
        for shape in document.shapes:
            region = shapes.shape_to_mask(drawn.shape, shape["points"], shape["shape_type"])
            drawn[region] = CLASSES.index(shape["label"]) + 1
        assert np.array_equal(drawn, sure(item.mask)), item.name


def test_datumaro_reads_its_own_form(items: Sequence[Labelled], tmp_path: Path) -> None:
    dm: Any = pytest.importorskip("datumaro", reason="datumaro is not installed")
    write_datumaro(items, CLASSES, tmp_path)
    dataset = dm.Dataset.import_from(str(tmp_path), "datumaro")
    read = {item.id: item for item in dataset}
    assert read.keys() == {item.name for item in items}
    categories = dataset.categories()[dm.AnnotationType.label]
    assert tuple(label.name for label in categories.items) == CLASSES
    for item in items:
        drawn = np.zeros(item.mask.shape, np.uint8)
        tags = set()
        for annotation in read[item.name].annotations:
            if annotation.type == dm.AnnotationType.mask:
                drawn[annotation.image.astype(bool)] = annotation.label + 1
            else:
                tags.add(CLASSES[annotation.label])
        assert np.array_equal(drawn, sure(item.mask)), item.name
        assert tags == set(item.tags)
        assert read[item.name].media.data.shape[:2] == item.mask.shape


def test_gdal_fills_the_outlines_for_qupath(items: Sequence[Labelled], tmp_path: Path) -> None:
    """GDAL rasterises GeoJSON by the centres of pixels, as QuPath does."""
    features: Any = pytest.importorskip("rasterio.features", reason="rasterio is not installed")
    write_qupath(items, CLASSES, tmp_path)
    for item in items:
        document = json.loads((tmp_path / f"{item.name}.geojson").read_text())
        shapes = []
        for feature in document["features"]:
            label = CLASSES.index(feature["properties"]["classification"]["name"]) + 1
            shapes.append((feature["geometry"], label))
        drawn = features.rasterize(shapes, out_shape=item.mask.shape, dtype="uint8")
        assert np.array_equal(drawn, sure(item.mask)), item.name


def test_napari_labels(items: Sequence[Labelled], tmp_path: Path) -> None:
    """napari reads TIFF by tifffile; what it saves, 32 bits, comes back."""
    tifffile: Any = pytest.importorskip("tifffile", reason="tifffile is not installed")
    write_napari(items, CLASSES, tmp_path)
    for item in items[:5]:
        read = tifffile.imread(tmp_path / f"{item.name}.tif")
        assert np.array_equal(read, item.mask)
        tifffile.imwrite(tmp_path / f"{item.name}.tif", read.astype(np.int32), compression="zlib")
    back = {drawn.file: drawn.regions for drawn in drawn_in_masks(tmp_path, CLASSES)}
    regions = dict(back["plain.tif"])
    assert np.array_equal(regions[CLASSES[1]], items[0].mask == 2)


def test_supervision_reads_every_image(items: Sequence[Labelled], tmp_path: Path) -> None:
    """Its reader lists a single folder, so that images in sub-folders would be lost in silence."""
    supervision: Any = pytest.importorskip("supervision", reason="supervision is not installed")
    small = [item for item in items if item.name != "large"]
    write_yolo_seg(small, CLASSES, tmp_path)
    for part in ("train", "val"):
        expected = {flat(item): item for item in small if item.part == part}
        dataset = supervision.DetectionDataset.from_yolo(
            images_directory_path=str(tmp_path / "images" / part),
            annotations_directory_path=str(tmp_path / "labels" / part),
            data_yaml_path=str(tmp_path / "data.yaml"),
            force_masks=True,
        )
        assert {Path(path).stem for path in dataset.image_paths} == expected.keys()
        for path, _, found in dataset:
            item = expected[Path(path).stem]
            drawn = np.zeros(item.mask.shape, np.uint8)
            for region, label in zip(found.mask, found.class_id, strict=True):
                drawn[region] = label + 1
            # it rounds corners to whole pixels, which single pixels do not survive
            assert (drawn == sure(item.mask)).mean() > 0.8 or item.name == "one"


def test_torchvision_reads_voc(items: Sequence[Labelled], tmp_path: Path) -> None:
    """Sub-folders too; a PNG becomes a JPEG, and names with line breaks cannot be listed."""
    datasets: Any = pytest.importorskip("torchvision.datasets")
    listed = [item for item in items if not unlistable_name(item.name)]
    assert any("/" in item.name for item in listed)
    done = write_voc(listed, CLASSES, tmp_path / "VOCdevkit/VOC2012", split="train")
    assert "were no upright JPEGs" in done.summary()
    dataset = datasets.VOCSegmentation(str(tmp_path), year="2012", image_set="train")
    assert len(dataset) == len(listed)
    for item, (image, mask) in zip(listed, dataset, strict=True):
        assert np.array_equal(np.array(mask), item.mask)
        assert image.size == mask.size
        assert np.abs(np.array(image).astype(int) - photo(item.mask)).mean() < 12


ROTATED = {"voc": "JPEGImages/{}.jpg", "ultralytics": "images/train/{}.png"}


@pytest.mark.parametrize("format", ROTATED)
def test_a_photo_that_exif_turns_is_upright_beside_its_mask(tmp_path: Path, format: str) -> None:
    """Readers that do not heed EXIF would lay the mask over a photo on its side."""
    pixels = np.zeros((40, 60, 3), np.uint8)
    pixels[:, :30] = 255
    exif = Image.Exif()
    exif[274] = 6  # to be turned by a quarter, clockwise
    Image.fromarray(pixels).save(tmp_path / "turned.jpg", exif=exif, quality=95)
    mask = np.zeros((60, 40), np.uint8)
    mask[:30] = 1
    write = write_voc if format == "voc" else write_ultralytics
    write([Labelled("turned", mask, tmp_path / "turned.jpg")], CLASSES, tmp_path / "out")
    with Image.open(tmp_path / "out" / ROTATED[format].format("turned")) as image:
        assert 274 not in image.getexif()
        upright = np.array(image.convert("L"))
    assert upright.shape == mask.shape
    assert np.array_equal(upright > 128, mask == 1)


def test_names_without_folders(tmp_path: Path) -> None:
    mask = np.ones((12, 12), np.uint8)
    names = ["a/b", "a_b", "A_b", "plain"]
    pictures = [Labelled(name, mask, picture=lambda: photo(mask)) for name in names]
    done = write_yolo_seg(pictures, CLASSES, tmp_path)
    stems = sorted(path.stem for path in (tmp_path / "images/train").iterdir())
    assert stems == ["A_b_3", "a_b", "a_b_2", "plain"]
    changed = json.loads((tmp_path / "names.json").read_text())
    assert changed == {"a_b": "a/b", "a_b_2": "a_b", "A_b_3": "A_b"}
    assert "3 images have new names" in done.summary()


def test_label_studio_unpacks_the_brushes(items: Sequence[Labelled], tmp_path: Path) -> None:
    brush: Any = pytest.importorskip(
        "label_studio_sdk.converter.brush", reason="label-studio-sdk is not installed"
    )
    write_label_studio(
        items[:-1], CLASSES, tmp_path / "tasks.json"
    )  # its decoder takes minutes for the large one
    for task, item in zip(json.loads((tmp_path / "tasks.json").read_text()), items, strict=False):
        drawn = np.zeros(item.mask.shape, np.uint8)
        for result in task["predictions"][0]["result"]:
            rgba = brush.decode_rle(result["value"]["rle"]).reshape(*item.mask.shape, 4)
            drawn[rgba[..., 3] > 0] = CLASSES.index(result["value"]["brushlabels"][0]) + 1
        assert np.array_equal(drawn, sure(item.mask))


def test_datumaro_reads_what_goes_to_cvat(items: Sequence[Labelled], tmp_path: Path) -> None:
    """CVAT's own import of "Segmentation mask 1.1" is Datumaro's reader of VOC."""
    dm: Any = pytest.importorskip("datumaro", reason="datumaro is not installed")
    classes = ("dog", "sofa", "été")  # its label map can hold no colon
    chosen = [item for item in items if "\n" not in item.name and item.name != "large"]
    write_cvat(chosen, classes, tmp_path / "masks.zip")
    with zipfile.ZipFile(tmp_path / "masks.zip") as archive:
        archive.extractall(tmp_path / "voc")
    dataset = dm.Dataset.import_from(str(tmp_path / "voc"), "voc_segmentation")
    labels = {
        label.name: number
        for number, label in enumerate(dataset.categories()[dm.AnnotationType.label])
    }
    found = {entry.id: entry for entry in dataset}
    assert found.keys() == {item.name for item in chosen}
    for item in chosen:
        drawn = np.zeros(item.mask.shape, np.uint8)
        for annotation in found[item.name].annotations:
            name = next(name for name, number in labels.items() if number == annotation.label)
            if name in classes:
                drawn[annotation.image > 0] = classes.index(name) + 1
        assert np.array_equal(drawn, sure(item.mask)), item.name
