"""Training AffinityNet: samples, learning, resuming, broken and missing regions."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from tagmask.config import AffinitySettings
from tagmask.data.catalog import Catalog
from tagmask.data.datasets import RegionDataset, to_tensor
from tagmask.data.images import write_mask
from tagmask.data.scenes.catalog import Scenes
from tagmask.errors import TagmaskError
from tagmask.masks.pairs import pair_labels
from tagmask.masks.walk import edge_affinities
from tagmask.models.affinity_net import AffinityNet
from tagmask.stages.affinity import train_affinity
from tagmask.stages.pseudo import net_walk
from tagmask.training.affinity import AffinityTask, build_net
from tagmask.training.loop import Loop
from tagmask.training.optim import build_optimizer

BLACK = (0.0, 0.0, 0.0)


def small(**changes: Any) -> AffinitySettings:
    """A training of a few steps."""
    options = {
        "backbone": "test_resnet",
        "size": 48,
        "batch": 4,
        "steps": 4,
        "log_every": 1,
        "radius": 3.0,
    }
    return AffinitySettings(**{**options, **changes})


def scene_regions(folder: Path, count: int = 8) -> Scenes:
    """Scenes and their true masks as regions, unsure in a frame of six pixels."""
    scenes = Scenes(count, 0)
    for i in range(count):
        mask = scenes.load_pair(i)[1]
        assert mask is not None
        mask = mask.copy()
        mask[:6], mask[-6:], mask[:, :6], mask[:, -6:] = 255, 255, 255, 255
        write_mask(folder / f"{scenes.name(i)}.png", mask)
    return scenes


def photos(folder: Path, count: int, size: tuple[int, int] = (40, 56)) -> Catalog:
    """Pictures whose red channel is ten times the label; labels change every eight pixels."""
    labels = (np.add.outer(np.arange(size[0]) // 8, np.arange(size[1]) // 8) % 4).astype(np.uint8)
    for i in range(count):
        (folder / "images").mkdir(parents=True, exist_ok=True)
        picture = np.stack(
            [labels * 10, np.full(size, 30 + i, np.uint8), np.full(size, 90, np.uint8)], axis=-1
        )
        Image.fromarray(picture).save(folder / f"images/{i}.png")
        write_mask(folder / f"regions/{i}.png", labels)
    files = [folder / f"images/{i}.png" for i in range(count)]
    return Catalog(["a", "b", "c"], [str(i) for i in range(count)], [[0]] * count, images=files)


@pytest.mark.parametrize("size", [24, 64])
@pytest.mark.parametrize("scales", [(1.0, 1.0), (0.5, 2.0)])
def test_labels_stay_on_their_pixels(
    tmp_path: Path, size: int, scales: tuple[float, float]
) -> None:
    catalog = photos(tmp_path, 3)
    data = RegionDataset(
        catalog, tmp_path / "regions", small(size=size, scales=scales, jitter=0.0), BLACK
    )
    flips = set()
    for position in range(12):
        sample = data[position, position % 3]
        assert sample["images"].shape == (3, size, size)
        red, blue = (sample["images"][c, ::8, ::8] * 255 for c in (0, 2))  # (size/8, size/8)
        labels = sample["labels"]
        assert ((blue == 0) == (labels == 255)).all()  # outside the image, and only there
        inside = labels < 255
        if scales == (1.0, 1.0):
            assert torch.equal((red[inside] / 10).round().long(), labels[inside])
        else:  # bilinear pixels beside nearest labels: equal but for the edges
            assert ((red[inside] / 10).round().long() == labels[inside]).float().mean() > 0.6
        flips.add(bool(blue[0, 0] == 0))
    assert inside.any()
    assert size == 24 or len(flips) == 2  # the padding is at the right, or by a flip at the left


def edges(folder: Path, count: int, size: tuple[int, int] = (72, 104)) -> tuple[Catalog, list[Any]]:
    """Pictures of a dark and a bright part that meet at any column (even numbers) or row (odd), and their labels."""
    generator, masks = np.random.default_rng(0), []
    (folder / "images").mkdir()
    for i in range(count):
        mask = np.ones(size, np.uint8)  # background is 0
        side = size[(i + 1) % 2]
        place = int(generator.integers(24, side - 24))
        mask[(slice(None), slice(place)) if i % 2 == 0 else slice(place)] = 0
        noise = generator.normal(0, 12, (*size, 3))
        picture = np.where(mask[..., None] == 0, (60, 70, 50), (180, 150, 170)) + noise
        Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(folder / f"images/{i}.png")
        write_mask(folder / f"regions/{i}.png", mask)
        masks.append(mask)
    names = [str(i) for i in range(count)]
    return Catalog(
        ["a"], names, [[0]] * count, images=[folder / f"images/{i}.png" for i in range(count)]
    ), masks


def test_the_walk_leaves_edges_where_they_are(tmp_path: Path) -> None:
    catalog, masks = edges(tmp_path, 32)
    settings = small(
        steps=50,
        batch=4,
        size=64,
        optimizer="adamw",
        lr=2e-3,
        head_lr=1.0,
        jitter=0.0,
        scales=(1.0, 1.0),
    )
    trained = train_affinity(catalog, tmp_path / "regions", settings, tmp_path / "net")
    net = AffinityNet.load(trained.folder)
    moved: tuple[list[float], list[float]] = [], []
    for i, mask in enumerate(masks):
        maps = (mask == 1).astype(np.float32)[None]
        spread = net_walk(catalog.load_image(i), maps, net=net, radius=3.0, beta=8.0, steps=64)[0]
        other = mask.shape[i % 2]  # pixels along the edge
        moved[i % 2].append(((mask == 1).sum() - (spread > 0.5).sum()) / other)
    for shifts in moved:
        assert abs(np.mean(shifts)) < 1.2  # pixels; half a cell is 4
        assert np.mean(np.abs(shifts)) < 3


def test_samples_depend_on_seed_and_position_alone(tmp_path: Path) -> None:
    catalog = photos(tmp_path, 2)
    data = RegionDataset(catalog, tmp_path / "regions", small(size=24), BLACK)
    sample, _, again = data[5, 0], data[6, 0], data[5, 0]
    assert torch.equal(sample["images"], again["images"])
    assert torch.equal(sample["labels"], again["labels"])
    assert any(not torch.equal(sample["images"], data[p, 0]["images"]) for p in range(6, 10))


def test_paper_defaults_and_rates() -> None:
    settings = AffinitySettings()
    assert (settings.batch, settings.epochs, settings.lr, settings.head_lr) == (8, 5, 0.01, 10)
    assert (settings.optimizer, settings.weight_decay, settings.size, settings.radius) == (
        "sgd",
        5e-4,
        448,
        5,
    )
    task_net = build_net(small())
    module = torch.nn.Module()
    module.net = task_net
    rates = {
        id(p): group["lr"]
        for group in build_optimizer(module, settings, AffinityTask.new_layers).param_groups
        for p in group["params"]
    }
    fast = {name for name, p in module.named_parameters() if rates[id(p)] == pytest.approx(0.1)}
    assert fast == {
        "net.narrow.0.weight",
        "net.narrow.1.weight",
        "net.narrow.2.weight",
        "net.join.weight",
    }


def test_training_learns_affinity(tmp_path: Path) -> None:
    scenes = scene_regions(tmp_path / "regions", 8)
    settings = small(
        steps=24, batch=4, size=64, optimizer="adamw", lr=2e-3, head_lr=1.0, jitter=0.0
    )
    trained = train_affinity(scenes, tmp_path / "regions", settings, tmp_path / "net")
    rows = [json.loads(line) for line in (tmp_path / "net/log.jsonl").read_text().splitlines()]
    first = rows[0]
    parts = first["background"] / 4 + first["foreground"] / 4 + first["negative"] / 2
    assert first["loss"] == pytest.approx(parts, rel=1e-5)
    assert np.mean([row["loss"] for row in rows[-5:]]) < 0.8 * np.mean(
        [row["loss"] for row in rows[:3]]
    )
    assert "affinity network:" in trained.summary()
    alike, unlike = mean_affinities(AffinityNet.load(trained.folder), scenes)
    assert alike > unlike + 0.1


def mean_affinities(net: AffinityNet, scenes: Scenes) -> tuple[float, float]:
    """Of neighbouring positions with equal and with different true labels."""
    equal, different = [], []
    for i in range(len(scenes)):
        image, mask = scenes.load_pair(i)
        assert mask is not None
        height, width = (side // 8 * 8 for side in mask.shape)
        with torch.no_grad():
            features = net(net.normalize(to_tensor(image[:height, :width])[None] / 255))[0].numpy()
        affinities = edge_affinities(features, 3)
        pairs = pair_labels(torch.from_numpy(mask[4:height:8, 4:width:8].astype(np.int64)), 3)
        equal.append(affinities[(pairs.background | pairs.foreground).numpy()])
        different.append(affinities[pairs.negative.numpy()])
    return float(np.concatenate(equal).mean()), float(np.concatenate(different).mean())


def test_stopped_after_any_step_and_resumed_is_bit_identical(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenes = scene_regions(tmp_path / "regions", 4)
    train_affinity(scenes, tmp_path / "regions", small(), tmp_path / "whole")
    plain = Loop._one_step
    dies_at = [1, 3]

    def dying(self: Loop, step: int, batches: Any) -> dict[str, float]:
        if step in dies_at:
            dies_at.remove(step)
            raise KeyboardInterrupt
        return plain(self, step, batches)

    monkeypatch.setattr(Loop, "_one_step", dying)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            train_affinity(scenes, tmp_path / "regions", small(save_every=1), tmp_path / "parts")
    train_affinity(scenes, tmp_path / "regions", small(save_every=1), tmp_path / "parts")
    whole, parts = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    for name in whole:
        assert torch.equal(whole[name], parts[name]), name
    start = build_net(small()).state_dict()
    assert not torch.equal(start["join.weight"], whole["join.weight"])


def test_broken_and_missing_regions(tmp_path: Path) -> None:
    catalog = photos(tmp_path, 6)
    (tmp_path / "regions/1.png").unlink()
    (tmp_path / "regions/2.png").write_bytes(b"half a file")
    write_mask(
        tmp_path / "regions/4.png", np.zeros((5, 5), np.uint8)
    )  # another size than its image
    trained = train_affinity(
        catalog, tmp_path / "regions", small(steps=5, size=24), tmp_path / "net"
    )
    assert trained.broken == ["2", "4"]
    assert json.loads((tmp_path / "net/broken_images.json").read_text()) == ["2", "4"]
    assert "1 of 6 images have no confident regions" in trained.summary()
    assert "2 images could not be used and were skipped: 2, 4" in trained.summary()


def test_nothing_to_train_on(tmp_path: Path) -> None:
    catalog = photos(tmp_path, 2)
    with pytest.raises(TagmaskError, match="holds no regions of these images"):
        train_affinity(catalog, tmp_path / "nowhere", small(), tmp_path / "net")
    for i in range(2):
        (tmp_path / f"regions/{i}.png").write_bytes(b"")
    with pytest.raises(TagmaskError, match="in a row cannot be used"):
        train_affinity(catalog, tmp_path / "regions", small(), tmp_path / "net")


def test_other_regions_do_not_mix_with_an_earlier_training(tmp_path: Path) -> None:
    catalog = photos(tmp_path, 4)
    train_affinity(catalog, tmp_path / "regions", small(steps=1, size=24), tmp_path / "net")
    write_mask(tmp_path / "regions/0.png", np.zeros((40, 56), np.uint8))
    with pytest.raises(TagmaskError, match=r"regions changed.*--restart"):
        train_affinity(catalog, tmp_path / "regions", small(steps=1, size=24), tmp_path / "net")


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    wrong = small(
        size=30,
        scales=(2.0, 1.0),
        jitter=2.0,
        radius=1.0,
        weights=tmp_path / "none.pth",
        pretrained=True,
    )
    with pytest.raises(TagmaskError) as raised:
        train_affinity(photos(tmp_path, 1), tmp_path / "regions", wrong, tmp_path / "net")
    message = str(raised.value)
    for part in (
        "--size 30",
        "--scales 2.0 1.0",
        "--jitter 2.0",
        "--radius 1.0",
        "none.pth does not exist",
        "exclude",
    ):
        assert part in message


@pytest.mark.parametrize(("chosen", "frozen"), [(None, False), (True, True)])
def test_norms_are_trained_from_scratch_unless_told(chosen: bool | None, frozen: bool) -> None:
    assert build_net(small(freeze_norm=chosen)).freeze_norm is frozen
