"""The preset own-photos with few photos: masks show the objects, and not what surrounds them."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tagmask.config import TrainSettings, preset_of
from tagmask.data import catalog, images
from tagmask.data.images import read_mask, write_mask
from tagmask.models.classifier import Classifier
from tagmask.runs.run import run_images
from tagmask.runs.summary import RunSummary
from tagmask.stages.train import Fitted
from tests.alone import alone, train
from tests.helpers import SHARED

VOC = SHARED / "data/voc"
WEIGHTS = SHARED / "weights/vit_small_patch14_dinov2.saliency.safetensors"
VOC_CLASSES = {"cat": 8, "dog": 12}  # their numbers in VOC's masks


def draw_cats_and_dogs(folder: Path, each: int, seed: int = 0) -> None:
    """Link photos of cats alone and of dogs alone; write their tags and masks beside them."""
    (folder / "photos").mkdir()
    names = (VOC / "ImageSets/Segmentation/train.txt").read_text().split()
    random.Random(seed).shuffle(names)
    rows = dict.fromkeys(VOC_CLASSES, 0)
    table = ["file,tags"]
    for name in names:
        mask = np.asarray(Image.open(VOC / f"SegmentationClassAug/{name}.png"))
        shown = set(np.unique(mask).tolist()) - {0, 255}
        for label, (tag, number) in enumerate(VOC_CLASSES.items(), start=1):
            if shown != {number} or rows[tag] == each:
                continue
            rows[tag] += 1
            table.append(f"{name}.jpg,{tag}")
            (folder / f"photos/{name}.jpg").symlink_to(VOC / f"JPEGImages/{name}.jpg")
            relabelled = np.where(mask == number, label, mask).astype(np.uint8)
            write_mask(folder / f"masks/{name}.png", relabelled)
    assert set(rows.values()) == {each}
    (folder / "tags.csv").write_text("\n".join(table) + "\n")


def verdicts(out: Path) -> dict[str, str]:
    tags = json.loads((out / "check.json").read_text())["tags"]
    return {tag: verdict["level"] for tag, verdict in tags.items()}


def run_folder(folder: Path, **sections: Any) -> RunSummary:
    return run_images(
        preset="own-photos",
        images=str(folder / "photos"),
        tags=str(folder / "tags.csv"),
        masks=str(folder / "masks"),
        out=str(folder / "run"),
        estimate=False,
        **sections,
    )


@pytest.mark.skipif(
    not (VOC.is_dir() and WEIGHTS.is_file()), reason=f"there are no photos and weights in {SHARED}"
)
def test_sixteen_cats_and_dogs(tmp_path: Path) -> None:
    """Tags that exclude each other: a trained classifier told them by the surroundings."""
    draw_cats_and_dogs(tmp_path, each=8)
    done = run_folder(
        tmp_path,
        train={
            "pretrained": False,
            "backbone": "vit_small_patch14_dinov2",
            "weights": str(WEIGHTS),
            "size": 280,
            "object_size": 280,
        },
        segment={"size": 280, "steps": 100},
    )
    assert done.scores["predictions"]["miou_present"] >= 0.6
    levels = verdicts(tmp_path / "run")
    assert levels.keys() == VOC_CLASSES.keys()
    assert "probably the surroundings" not in levels.values()


SIZE = 96
SMALL: dict[str, Any] = {  # own-photos, scaled down to the pictures below
    "train": {
        "backbone": "tagmask_tiny",
        "freeze": 2,
        "size": SIZE,
        "object_blocks": (1, 3),
        "object_size": SIZE,
    },
    "seeds": {"affinity_blocks": (2, 3)},
    "segment": {"size": SIZE, "head_blocks": (1, 3), "steps": 100},
}
TAGS = ("disc", "square")
GROUNDS = ((70, 140, 60), (60, 90, 170))  # of discs: green, of squares: blue


def draw_shape(i: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return a picture and its mask: a striped shape on a ground whose colour gives it away.

    Of eight shapes seven keep away from the border; the eighth touches it.
    """
    rng = np.random.default_rng([1, i])
    height, width = (72, SIZE) if i % 3 else (SIZE, 80)
    kind = i % 2
    radius = rng.uniform(0.22, 0.3) * min(height, width)
    y = rng.uniform(radius + 10, height - radius - 10)
    x = rng.uniform(radius + 10, width - radius - 10)
    if i % 8 == 7:
        x = radius / 2
    rows, columns = np.mgrid[:height, :width]
    if kind == 0:
        inside = (rows - y) ** 2 + (columns - x) ** 2 < radius**2
    else:
        inside = np.maximum(abs(rows - y), abs(columns - x)) < 0.9 * radius
    turn = rng.uniform(0, np.pi)
    wave = np.sin((np.cos(turn) * rows + np.sin(turn) * columns) * rng.uniform(0.6, 1.0))
    colours = rng.uniform(0, 255, size=(2, 3)) * [[1, 0.5, 0.5], [1, 0.7, 0.3]] + [40, 0, 0]
    stripes = np.where((wave > 0)[..., None], colours[0], colours[1])  # (H, W, 3)
    ground = np.array(GROUNDS[kind]) + rng.normal(scale=8, size=3)
    picture = np.where(inside[..., None], stripes, ground) + rng.normal(scale=4, size=stripes.shape)
    mask = inside.astype(np.uint8) * (kind + 1)
    return np.clip(picture, 0, 255).astype(np.uint8), mask


def draw_shapes(folder: Path, count: int) -> None:
    (folder / "photos").mkdir()
    table = ["file,tags"]
    for i in range(count):
        picture, mask = draw_shape(i)
        Image.fromarray(picture).save(folder / f"photos/{i}.png")
        write_mask(folder / f"masks/{i}.png", mask)
        table.append(f"{i}.png,{TAGS[i % 2]}")
    (folder / "tags.csv").write_text("\n".join(table) + "\n")


def foreground_iou(found: Any, truth: Any) -> float:
    return float((found & truth).sum() / max(1, (found | truth).sum()))


def test_shapes_whose_ground_gives_them_away(tmp_path: Path) -> None:
    """A green ground always has a disc and a blue one a square: the ground tells the tag."""
    count = 24
    draw_shapes(tmp_path, count)
    done = run_folder(tmp_path, **SMALL)
    covered, inverted = [], []
    for i in range(count):
        truth = draw_shape(i)[1] > 0
        found = read_mask(tmp_path / f"run/6_predictions/{i}.png", 2) > 0
        covered.append(foreground_iou(found, truth))
        inverted.append(foreground_iou(found, ~truth))
    assert np.mean(covered) > 0.4
    assert np.mean(covered) > 3 * np.mean(inverted)
    assert done.scores["predictions"]["miou_present"] >= 0.4
    assert "self-check:" in done.summary()
    assert verdicts(tmp_path / "run").keys() == set(TAGS)


def fit_preset(folder: Path, **changes: Any) -> Any:
    """Run the training stage of the preset, scaled down, on the pictures in a folder."""
    data = {"data": "folder", "images": folder / "photos", "tags": folder / "tags.csv"}
    values = {**preset_of("own-photos", "train"), **data, **SMALL["train"], **changes}
    return train(alone(TrainSettings, out=folder / "run", **values))


def test_with_few_photos_the_preset_does_not_train(tmp_path: Path) -> None:
    """The weights of the backbone are the published ones, and the summary says why."""
    draw_shapes(tmp_path, 6)
    done = fit_preset(tmp_path, train_from=7)
    assert isinstance(done, Fitted)
    assert "no training: 6 photos are fewer than 7" in done.summary()
    assert not (tmp_path / "run/1_classifier/resume.safetensors").exists()
    untouched = Classifier("tagmask_tiny", 2, img_size=SIZE, pretrained=True).vit.state_dict()
    fitted = Classifier.load(tmp_path / "run/1_classifier").vit.state_dict()
    assert fitted.keys() == untouched.keys()
    for name, value in untouched.items():
        assert torch.equal(fitted[name], value) != name.startswith("head."), name


def test_with_enough_photos_it_tries(tmp_path: Path) -> None:
    draw_shapes(tmp_path, 6)
    loop = {"steps": 1, "batch": 2, "val_fraction": 0.3}
    done = fit_preset(tmp_path, train_from=6, **loop)
    assert not isinstance(done, Fitted)
    assert (tmp_path / "run/1_classifier/earned.json").is_file()
    assert "photos held out" in done.summary()


def test_the_preset_asks_for_many_photos_before_it_trains() -> None:
    values = preset_of("own-photos", "train")
    assert values["train_from"] >= 500
    assert values["objects"]
    assert values["earn"]


def test_a_photo_is_decoded_at_most_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for its tokens and once for its mask; labels and head read what is kept."""
    draw_shapes(tmp_path, 6)
    (tmp_path / "masks").rename(tmp_path / "not-given")
    decoded: Counter[str] = Counter()
    read = images.read_image

    def counting(path: Path) -> Any:
        decoded[path.name] += 1
        return read(path)

    monkeypatch.setattr(catalog, "read_image", counting)
    run_images(
        preset="own-photos",
        images=str(tmp_path / "photos"),
        tags=str(tmp_path / "tags.csv"),
        out=str(tmp_path / "run"),
        estimate=False,
        rows=0,  # the report's pictures are drawn from the photos
        **{**SMALL, "predict": {"processes": 1}, "pseudo": {"processes": 1}},
    )
    assert len(decoded) == 6
    assert max(decoded.values()) <= 2
