"""Training a segmenter: crops, the loss, resuming, and pseudo labels that cannot be used."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tagmask.config import SegmentSettings
from tagmask.data.datasets import PseudoDataset, crop_pair
from tagmask.data.images import write_mask
from tagmask.data.scenes.catalog import Scenes
from tagmask.errors import TagmaskError
from tagmask.models.deeplab import DeepLabV2
from tagmask.scoring.confusion import confusion, iou
from tagmask.training.loop import Loop
from tagmask.training.segmenter import PixelLoss, predict_labels
from tests.alone import alone, train_segmenter

COUNT = 8


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Pseudo labels that are the truth, unsure along the upper rim."""
    scenes = Scenes(COUNT, 0)
    for i in range(COUNT):
        mask = scenes.load_mask(i)
        assert mask is not None
        mask = mask.copy()
        mask[:4] = 255
        write_mask(tmp_path / f"4_pseudo/{scenes.name(i)}.png", mask)
    return tmp_path


def settings(out: Path, **changes: Any) -> Any:
    small: dict[str, Any] = {
        "count": COUNT,
        "backbone": "test_resnet",
        "size": 49,
        "batch": 2,
        "steps": 4,
    }
    small |= {"log_every": 1, "val_every": 100.0, "val_fraction": 0.25, "lr": 0.01, "pseudo": None}
    return alone(SegmentSettings, out=out, **{**small, **changes})


def final(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "5_segmenter/model.safetensors")


def ramp(height: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """An image whose value is its label: 10 · row + column."""
    label = (10 * torch.arange(height)[:, None] + torch.arange(width)).to(torch.uint8)
    return label.expand(3, -1, -1).clone(), label


def test_crops_by_hand() -> None:
    image, label = ramp(6, 9)
    fill = torch.zeros(3, 1, 1)
    picture, labels = crop_pair(image, label, 4, (1.0, 1.0), fill, [0.0, 0.9, 0.99, 0.5])
    assert labels.tolist() == [[10 * y + x for x in range(3, 7)] for y in range(2, 6)]
    assert torch.equal((picture * 255).round().long()[0], labels)
    _, mirrored = crop_pair(image, label, 4, (1.0, 1.0), fill, [0.0, 0.1, 0.99, 0.5])
    assert mirrored.tolist() == [[10 * y + 8 - x for x in range(3, 7)] for y in range(2, 6)]


def test_padding_is_mean_colour_and_unsure() -> None:
    image, label = ramp(2, 3)
    fill = torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1)
    picture, labels = crop_pair(image, label, 4, (1.0, 1.0), fill, [0.0, 0.9, 0.9, 0.9])
    assert labels.tolist() == [[0, 1, 2, 255], [10, 11, 12, 255], [255] * 4, [255] * 4]
    torch.testing.assert_close(picture[:, 3], fill[:, 0].expand(3, 4))


def test_scaling_keeps_image_and_label_together() -> None:
    image, label = ramp(5, 5)
    picture, labels = crop_pair(
        image, label, 10, (1.0, 3.0), torch.zeros(3, 1, 1), [0.5, 0.9, 0.0, 0.0]
    )  # twice
    assert torch.equal(labels, label.long().repeat_interleave(2, 0).repeat_interleave(2, 1))
    assert (
        picture[0] * 255 - labels
    ).abs().max() <= 5.5  # bilinear stays within half a row of the label


def test_samples_depend_on_seed_and_position_alone(run: Path) -> None:
    def sample(seed: int, position: int) -> torch.Tensor:
        data = PseudoDataset(
            Scenes(COUNT, 0), run / "4_pseudo", 33, (0.5, 1.5), (0.5, 0.5, 0.5), seed
        )
        return data[(position, 2)]["images"]

    torch.manual_seed(1)
    first = sample(0, 5)
    torch.manual_seed(2)
    assert torch.equal(first, sample(0, 5))
    assert not torch.equal(first, sample(0, 6))
    assert not torch.equal(first, sample(1, 5))


@pytest.mark.parametrize("multi_scale", [False, True])
def test_loss_is_the_mean_over_labelled_pixels(multi_scale: bool) -> None:
    torch.manual_seed(0)
    model = DeepLabV2("test_resnet", 3, multi_scale=multi_scale).eval()
    images, labels = torch.rand(2, 3, 33, 41), torch.randint(0, 3, (2, 33, 41))
    labels[0, :20] = 255
    loss = PixelLoss(model)(images, labels)["loss"]
    expected = torch.zeros(())
    for logits in model.all_logits(model.normalize(images)):
        chances = model.upsample(logits, (33, 41)).softmax(1)
        right = chances.gather(1, labels.clamp(max=2)[:, None])[:, 0]
        expected = expected - right[labels != 255].log().mean()
    torch.testing.assert_close(loss, expected)


def test_a_batch_that_is_unsure_all_over_gives_no_gradient() -> None:
    model = DeepLabV2("test_resnet", 3)
    loss = PixelLoss(model)(torch.rand(1, 3, 33, 33), torch.full((1, 33, 33), 255))["loss"]
    loss.backward()
    assert loss.item() == 0
    assert all((p.grad == 0).all() for p in model.parameters() if p.grad is not None)


def test_training_learns_and_leaves_its_files(run: Path) -> None:
    done = train_segmenter(
        settings(run, steps=24, lr=0.05, batch=4, head_lr=1.0, scales=(1.0, 1.0))
    )
    rows = [json.loads(line) for line in (done.folder / "log.jsonl").read_text().splitlines()]
    losses = [row["loss"] for row in rows if "loss" in row]
    assert np.mean(losses[-5:]) < 0.7 * losses[0]
    names = {file.name for file in done.folder.iterdir()}
    assert names == {"model.safetensors", "config.json", "log.jsonl", "resume.safetensors", "best"}
    assert "[segment]" in (run / "config.toml").read_text()
    assert "mIoU against held-out pseudo labels" in done.summary()
    model = DeepLabV2.load(done.folder)
    assert (model.crop_size, model.classes) == (49, Scenes(1, 0).classes)
    assert done.metrics["miou"] == pytest.approx(validated(model))


def placed(cells: np.ndarray[Any, Any], side: int) -> Any:
    return np.interp(np.arange(side), 8 * np.arange(len(cells)), cells)


def validated(model: DeepLabV2) -> float:
    _, val = Scenes(COUNT, 0).split(0.25, 0)
    assert len(val) == 2
    total = np.zeros((model.num_classes, model.num_classes + 1), np.int64)
    for i in range(2):
        image, mask = val.load_pair(i)
        assert mask is not None
        picture = torch.from_numpy(image).permute(2, 0, 1)[None] / 255
        logits = model(model.normalize(picture))[0].detach().numpy()  # (K, h, w)
        for axis, side in (
            (1, mask.shape[0]),
            (2, mask.shape[1]),
        ):  # cell i lies on pixel 8 i; beyond the last it stays
            logits = np.apply_along_axis(placed, axis, logits, side)
        guess = logits.argmax(0).astype(np.uint8)
        np.testing.assert_array_equal(guess, predict_labels(model, image))
        label = mask.copy()
        label[:4] = 255
        total += confusion(guess, label, model.num_classes)
    return iou(total).miou_present


@pytest.mark.parametrize(
    "options", [{}, {"ema": 0.9, "accumulate": 2, "freeze_norm": True, "multi_scale": True}]
)
def test_stopped_and_resumed_is_bit_identical(
    run: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    labels = run / "4_pseudo"
    train_segmenter(settings(run / "whole", pseudo=labels, **options))
    plain, dies_at = Loop._one_step, [1, 3]

    def dying(self: Loop, step: int, batches: Any) -> dict[str, float]:
        if step in dies_at:
            dies_at.remove(step)
            raise KeyboardInterrupt
        return plain(self, step, batches)

    monkeypatch.setattr(Loop, "_one_step", dying)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            train_segmenter(settings(run / "parts", pseudo=labels, save_every=1, **options))
    train_segmenter(settings(run / "parts", pseudo=labels, save_every=1, **options))
    whole, parts = final(run / "whole"), final(run / "parts")
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_other_pseudo_labels_do_not_mix_with_an_earlier_training(run: Path) -> None:
    train_segmenter(settings(run, steps=1))
    write_mask(
        run / "4_pseudo/scene_000000.png", np.zeros(Scenes(1, 0).load_image(0).shape[:2], np.uint8)
    )
    with pytest.raises(TagmaskError, match=r"labels changed.*--restart"):
        train_segmenter(settings(run, steps=1))


def test_images_without_a_label_are_left_out_and_told(run: Path) -> None:
    for i in (1, 4):
        (run / f"4_pseudo/scene_{i:06}.png").unlink()
    done = train_segmenter(settings(run, steps=1))
    assert "2 of 8 images have no pseudo label" in done.summary()
    assert "scene_000001, scene_000004" in done.summary()


def test_no_label_at_all(tmp_path: Path) -> None:
    with pytest.raises(
        TagmaskError, match="4_pseudo contains no pseudo labels of these images; make them with"
    ):
        train_segmenter(settings(tmp_path))


def test_labels_that_are_unsure_everywhere_are_skipped(run: Path) -> None:
    for i in range(3):
        write_mask(
            run / f"4_pseudo/scene_{i:06}.png",
            np.full(Scenes(3, 0).load_image(i).shape[:2], 255, np.uint8),
        )
    done = train_segmenter(settings(run, steps=4, val_fraction=0.0))
    assert done.broken == [f"scene_{i:06}" for i in range(3)]
    assert "3 images could not be read or are unsure (255) everywhere" in done.summary()
    assert json.loads((done.folder / "broken_images.json").read_text()) == done.broken
    for i in range(3, COUNT):
        write_mask(
            run / f"4_pseudo/scene_{i:06}.png",
            np.full(Scenes(COUNT, 0).load_image(i).shape[:2], 255, np.uint8),
        )
    with pytest.raises(
        TagmaskError, match=r"8 images in a row cannot be used.*unsure \(255\) all over"
    ):
        train_segmenter(settings(run, steps=1, val_fraction=0.0, restart=True))


def test_labels_of_other_classes_stop_the_training(run: Path) -> None:
    for file in (run / "4_pseudo").iterdir():
        write_mask(file, np.full((96, 96), 99, np.uint8))
    classes = len(Scenes(1, 0).classes)
    with pytest.raises(
        TagmaskError, match=f"holds the label 99, but there are only {classes} classes"
    ):
        train_segmenter(settings(run, val_fraction=0.0))


def test_labels_of_another_size_are_skipped(run: Path) -> None:
    write_mask(run / "4_pseudo/scene_000000.png", np.zeros((5, 7), np.uint8))
    done = train_segmenter(settings(run, steps=4, val_fraction=0.0))
    assert done.broken == ["scene_000000"]


def test_settings_that_cannot_be_used(tmp_path: Path) -> None:
    wrong = settings(
        tmp_path,
        size=8,
        scales=(1.5, 0.5),
        val_fraction=1.0,
        weights=tmp_path / "none",
        pretrained=True,
    )
    with pytest.raises(TagmaskError) as raised:
        train_segmenter(wrong)
    for part in (
        "--size 8",
        "--scales 1.5 0.5",
        "--val-fraction 1.0",
        "--weights",
        "exclude each other",
    ):
        assert part in str(raised.value)
