"""Pseudo labels of a catalog by each route: labels, resuming, shards, processes, and what goes wrong."""

import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tagmask.config import (
    AffinitySettings,
    ExportSettings,
    PseudoSettings,
    ScoreSettings,
    SegmentSettings,
)
from tagmask.data.images import read_mask, write_mask
from tagmask.data.open import open_catalog
from tagmask.data.scenes.catalog import CLASSES, Scenes, draw_scene
from tagmask.errors import TagmaskError
from tagmask.exchange.export import export_run
from tagmask.inference.maps import PhotoMaps
from tagmask.layout import label_file, seed_file
from tagmask.masks.grid import to_cells, to_pixels
from tagmask.masks.labels import confident_regions, label_pixels
from tagmask.masks.walk import from_attention, transition
from tagmask.models.affinity_net import AffinityNet
from tagmask.stages import pseudo as stage
from tagmask.stages.affinity import write_regions
from tagmask.stages.pseudo import attention_walk, label_image, net_walk, sure_labels
from tagmask.stages.seeds import as_float, read_seeds, write_seeds
from tests.alone import alone, make_pseudo, score_run, train_segmenter
from tests.helpers import forkserver, kill_once, tiny_classifier

SMALL_NET = AffinitySettings(
    backbone="test_resnet", size=48, batch=2, steps=2, lr=1e-3, head_lr=1.0, log_every=1
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with seeds: blurred masks with noise, so that labels can be right or wrong."""
    rng = np.random.default_rng(0)
    for i in range(6):
        scene = draw_scene(i)
        own = np.stack([(scene.mask == c + 1).astype(np.float32) for c in scene.tags])
        noisy = (0.4 * own + 0.6 * rng.random(own.shape)).astype(np.float32)
        write_seeds(
            seed_file(tmp_path / "2_seeds", f"scene_{i:06}"),
            PhotoMaps(scene.tags, noisy * 0.9, noisy),
            "uint8",
        )
    return tmp_path


def settings(run: Path, **changes: Any) -> Any:
    return alone(
        PseudoSettings,
        **{"out": run, "count": 6, "method": "crf", "affinity": SMALL_NET, **changes},
    )


def labels(run: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (run / "4_pseudo").glob("*.png")}


def test_the_crf_cleans_noisy_maps(run: Path) -> None:
    done = make_pseudo(settings(run, background=0.5))
    assert (done.made, done.kept, done.skipped) == (6, 0, {})
    scores = score_run(alone(ScoreSettings, out=run, count=6))
    assert scores.labels["pseudo"].scores.miou_present > 0.9
    assert scores.seeds is not None
    assert (
        scores.labels["pseudo"].scores.miou_present
        > scores.seeds.curves["refined"].at(0.5).miou_present
    )
    assert "pseudo labels" in scores.summary()


def test_the_background_is_chosen_without_masks_and_kept(run: Path) -> None:
    first = make_pseudo(settings(run, crf=False))
    assert first.background is not None
    assert 0.3 < first.background < 0.65  # noise up to 0.6, objects from 0.4
    before = labels(run)
    (run / "4_pseudo/scene_000003.png").unlink()
    again = make_pseudo(settings(run, crf=False))
    assert (again.made, again.kept, again.background) == (1, 5, first.background)
    assert labels(run) == before


def test_labels_equal_the_pure_function(run: Path) -> None:
    make_pseudo(settings(run, background=0.4, crf=False, maps="plain"))
    scene = draw_scene(2)
    found = read_mask(label_file(run / "4_pseudo", "scene_000002"), len(CLASSES))
    with np.load(run / "2_seeds/scene_000002.npz") as seeds:
        maps = seeds["plain"].astype(np.float32) / np.float32(255)
    assert (found == label_pixels(scene.image, scene.tags, maps, 0.4)).all()


def test_processes_and_shards_change_nothing(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tagmask.runs.processes.get_context", forkserver)
    make_pseudo(settings(run, background=0.5))
    whole = labels(run)
    make_pseudo(settings(run, background=0.5, processes=2, restart=True))
    assert labels(run) == whole
    for file in (run / "4_pseudo").glob("*.png"):
        file.unlink()
    for part in ("1/2", "0/2"):
        make_pseudo(settings(run, background=0.5, shard=part))
    assert labels(run) == whole


def test_unsure_where_the_maps_differ(run: Path) -> None:
    make_pseudo(settings(run, background=0.55, crf=False, unsure=True))
    assert b"".join(labels(run).values())
    found = [read_mask(file, len(CLASSES)) for file in sorted((run / "4_pseudo").glob("*.png"))]
    assert any((mask == 255).any() for mask in found)


def test_regions_and_walk_follow_their_settings(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walks = []

    def note(*arguments: Any, **options: Any) -> Any:
        walks.append({name: options[name] for name in ("radius", "beta", "steps")})
        return net_walk(*arguments, **options)

    monkeypatch.setattr(stage, "net_walk", note)
    changes: dict[str, Any] = {"alpha_low": 1.5, "alpha_high": 20.0, "beta": 5.0, "steps": 3}
    make_pseudo(settings(run, method="walk", **changes))
    assert walks
    assert all(
        walk == {"radius": settings(run).affinity.radius, "beta": 5.0, "steps": 3} for walk in walks
    )
    differing = 0
    for i in range(6):
        seeds, image = read_seeds(seed_file(run / "2_seeds", f"scene_{i:06}")), draw_scene(i).image
        maps, classes = as_float(seeds["plain"]), seeds["classes"].tolist()
        regions = read_mask(label_file(run / "3_affinity/regions", f"scene_{i:06}"), len(CLASSES))
        np.testing.assert_array_equal(regions, confident_regions(image, classes, maps, 1.5, 20.0))
        differing += int((regions != confident_regions(image, classes, maps, 4.0, 32.0)).sum())
    assert differing > 100


def test_walk_trains_a_network_once_and_labels(run: Path) -> None:
    done = make_pseudo(settings(run, method="walk"))
    assert done.made == 6
    assert (run / "3_affinity/model.safetensors").is_file()
    assert (run / "3_affinity/regions.png").is_file()
    sure = [read_mask(file, len(CLASSES)) for file in (run / "3_affinity/regions").glob("*.png")]
    assert len(sure) == 6
    assert {0, 255} <= set(np.unique(np.concatenate([mask.ravel() for mask in sure])))
    before = labels(run)
    again = make_pseudo(settings(run, method="walk"))
    assert (again.made, again.kept) == (0, 6)
    assert labels(run) == before


def test_other_shards_need_the_network(run: Path) -> None:
    with pytest.raises(TagmaskError, match="let shard 0/2 train it first"):
        make_pseudo(settings(run, method="walk", shard="1/2"))


def test_labels_of_other_classes_are_not_used(run: Path, tmp_path: Path) -> None:
    make_pseudo(settings(run))
    other = run / "4_pseudo/made_by.json"
    other.write_text(other.read_text().replace('"cow"', '"calf"'))
    with pytest.raises(TagmaskError, match="holds pseudo labels made with other settings"):
        make_pseudo(settings(run))
    with pytest.raises(
        TagmaskError, match=r"the pseudo labels in .* were made for 10 classes \(calf"
    ):
        train_segmenter(
            alone(
                SegmentSettings, out=run, count=6, backbone="test_resnet", size=33, steps=1, batch=2
            )
        )
    with pytest.raises(
        TagmaskError, match=r"the pseudo labels in .* were made for 10 classes \(calf"
    ):
        score_run(alone(ScoreSettings, out=run, count=6))
    with pytest.raises(TagmaskError, match=r"the masks in .* were made for 10 classes \(calf"):
        export_run(
            ExportSettings(out=run, count=6, labels=run / "4_pseudo", to=tmp_path / "x.json")
        )


def test_a_damaged_mask_is_left_out_of_an_export(run: Path, tmp_path: Path) -> None:
    make_pseudo(settings(run))
    (run / "4_pseudo/scene_000002.png").write_bytes(b"half")
    printed = export_run(
        ExportSettings(out=run, count=6, labels=run / "4_pseudo", to=tmp_path / "x.json")
    )
    assert "1 images were skipped:\n  scene_000002: " in printed
    assert "5 masks in" in printed


@pytest.mark.parametrize("format", ["coco", "label-studio", "cvat", "voc", "overlays"])
def test_names_that_other_tools_cannot_read(format: Any, tmp_path: Path) -> None:
    for name in (b"a/caf\xe9", b"a/one"):
        for place, ending in (("photos", b".jpg"), ("masks", b".png")):
            file = tmp_path / place / os.fsdecode(name + ending)
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (8, 6), 1).save(file)
    data: Any = {"data": "folder", "images": tmp_path / "photos", "labels": tmp_path / "masks"}
    printed = export_run(ExportSettings(out=tmp_path, format=format, to=tmp_path / "to", **data))
    assert "file name is not UTF-8" in printed
    assert "1 masks in" in printed


def test_a_restart_redoes_regions_network_and_labels(run: Path) -> None:
    make_pseudo(settings(run, method="walk"))
    with pytest.raises(TagmaskError, match=r"low was 4.0 and is now 2.0.*--restart"):
        make_pseudo(settings(run, method="walk", alpha_low=2.0))
    assert make_pseudo(settings(run, method="walk", alpha_low=2.0, restart=True)).made == 6


def test_a_launch_labels_with_the_network_of_one_process(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = {
        "WORLD_SIZE": "2",
        "RANK": "0",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
    }
    with monkeypatch.context() as patch:
        for name, value in launch.items():
            patch.setenv(name, value)
        with pytest.raises(
            TagmaskError, match="AffinityNet is trained by a single process; run `tagmask pseudo`"
        ):
            make_pseudo(settings(run, method="walk"))
    make_pseudo(settings(run, method="walk"))
    for file in (run / "4_pseudo").glob("*.png"):
        file.unlink()
    for name, value in launch.items():
        monkeypatch.setenv(name, value)
    assert make_pseudo(settings(run, method="walk")).made == 3  # its half, and it waited for nobody
    assert os.environ["WORLD_SIZE"] == "2"
    monkeypatch.setenv("RANK", "1")
    assert make_pseudo(settings(run, method="walk")).made == 3


def test_attention_route(run: Path) -> None:
    model = tiny_classifier(classes=len(CLASSES))
    model.classes, model.crop_size = CLASSES, 40
    model.save(run / "1_classifier")
    assert make_pseudo(settings(run, method="attention", affinity_blocks=(0, 1))).made == 6
    for changes in ({"affinity_blocks": (1, 1)}, {"affinity_blocks": (0, 1), "size": 64}):
        with pytest.raises(
            TagmaskError, match=r"(affinity_blocks|size) was .* and is now .*--restart"
        ):
            make_pseudo(settings(run, method="attention", **changes))
    tiny_classifier(classes=len(CLASSES), seed=1).save(run / "1_classifier")
    with pytest.raises(TagmaskError, match="classifier changed"):
        make_pseudo(settings(run, method="attention", affinity_blocks=(0, 1)))
    with pytest.raises(TagmaskError, match=r"do not exist; .* has blocks 0 to"):
        make_pseudo(settings(run, method="attention", affinity_blocks=(0, 70), restart=True))


def test_attention_walk_by_matrix_power() -> None:
    model = tiny_classifier().eval()
    model.crop_size = 32  # long side 40: five patches of 8
    views = settings(Path(), size=40, affinity_blocks=(0, 1)).map_settings()
    image = np.random.default_rng(0).integers(0, 256, (24, 40, 3), dtype=np.uint8)
    maps = np.repeat(np.repeat(np.random.default_rng(1).random((2, 3, 5)), 8, 1), 8, 2).astype(
        np.float32
    )
    with torch.no_grad():
        picture = model.normalize(torch.from_numpy(image).permute(2, 0, 1)[None] / 255)
        _, attention = model.attend(picture, range(2))
    matrix = from_attention(sum(a[0, 1:, 1:] for a in attention).numpy(), 2.0).toarray()  # type: ignore[union-attr]
    walked = (np.linalg.matrix_power(matrix, 3) @ maps[:, ::8, ::8].reshape(2, 15).T).T.reshape(
        2, 3, 5
    )
    maps_at_pixels = attention_walk(image, maps, model=model, settings=views, beta=2.0, steps=3)
    spread = (walked - walked.min((1, 2), keepdims=True)) / np.ptp(
        walked, axis=(1, 2), keepdims=True
    )
    # the brightest cell and the order of cells survive the way to pixels and back
    cells = maps_at_pixels[:, 4::8, 4::8]
    assert (cells.reshape(2, -1).argmax(1) == spread.reshape(2, -1).argmax(1)).all()
    assert np.corrcoef(cells.ravel(), spread.ravel())[0, 1] > 0.98


@pytest.mark.parametrize("size", [(5, 30), (24, 3), (9, 17)])
def test_small_images_walk(size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    net = AffinityNet("test_resnet").eval()
    maps = np.random.default_rng(0).random((1, *size)).astype(np.float32)
    walked = net_walk(np.zeros((*size, 3), np.uint8), maps, net=net, radius=5, beta=36.0, steps=4)
    assert walked.shape == maps.shape
    assert (walked.min(), walked.max()) == (0, 1)  # stretched: neither constant nor infinite


def label_slowly(settings: PseudoSettings) -> None:
    """In a process of its own that is killed in between."""

    def write_slowly(*arguments: Any, **notes: Any) -> None:
        time.sleep(0.1)
        write_mask(*arguments, **notes)

    pytest.MonkeyPatch().setattr(stage, "write_mask", write_slowly)
    torch.set_num_threads(1)
    make_pseudo(settings)


def test_a_kill_and_a_second_start_end_alike(run: Path) -> None:
    make_pseudo(settings(run, background=0.5))
    whole = labels(run)
    for file in (run / "4_pseudo").glob("*"):
        file.unlink()
    kill_once(lambda: len(labels(run)) >= 2, label_slowly, settings(run, background=0.5))
    assert 2 <= len(labels(run)) < 6
    again = make_pseudo(settings(run, background=0.5))
    assert again.kept >= 2
    assert labels(run) == whole


def test_bad_images_are_listed_and_the_others_done(run: Path) -> None:
    scene = draw_scene(0)
    wrong = np.zeros((len(scene.tags), 5, 7), np.float32)
    write_seeds(
        seed_file(run / "2_seeds", "scene_000000"), PhotoMaps(scene.tags, wrong, wrong), "uint8"
    )
    seed_file(run / "2_seeds", "scene_000001").unlink()
    done = make_pseudo(settings(run))
    assert done.made == 4
    assert "the maps are 5×7 and the image is" in done.skipped["scene_000000"]
    assert "scene_000001.npz" in done.skipped["scene_000001"]
    assert "2 images were skipped" in done.summary()


def test_an_image_missing_since_the_seeds_were_made(tmp_path: Path) -> None:
    (tmp_path / "tags.csv").write_text("file,tags\na.png,cow\nb.png,cow\ngrey.png,cow\n")
    for name, mode in (("a", "RGB"), ("b", "RGB"), ("grey", "L")):
        Image.new(mode, (30, 1 if name == "grey" else 20), 90).save(tmp_path / f"{name}.png")
        maps = (
            np.random.default_rng(0).random((1, 1 if name == "grey" else 20, 30)).astype(np.float32)
        )
        write_seeds(seed_file(tmp_path / "run/2_seeds", name), PhotoMaps((0,), maps, maps), "uint8")
    options: dict[str, Any] = {
        "data": "folder",
        "images": tmp_path,
        "tags": tmp_path / "tags.csv",
        "method": "crf",
    }
    whole = alone(PseudoSettings, out=tmp_path / "run", background=0.5, **options)
    assert make_pseudo(whole).made == 3  # also the grey one, a single row of pixels
    (tmp_path / "run/4_pseudo/a.png").unlink()
    catalog = open_catalog(whole.run)
    (tmp_path / "a.png").unlink()
    with pytest.raises(TagmaskError, match=r"a\.png"):
        label_image(whole.out, catalog, whole.own, 0.5, 0)


def test_mistakes_are_told_before_any_work(run: Path, tmp_path: Path) -> None:
    with pytest.raises(TagmaskError, match="run `tagmask seeds"):
        make_pseudo(settings(tmp_path / "empty"))
    with pytest.raises(TagmaskError, match=r"background 2\.0 must be at least 0 and at most 1"):
        make_pseudo(settings(run, background=2.0))
    make_pseudo(settings(run, background=0.5))
    with pytest.raises(
        TagmaskError,
        match=r"pseudo labels made with other settings or inputs \(background was 0\.5 and is now 0\.6\)",
    ):
        make_pseudo(settings(run, background=0.6))


def test_scores_of_labels(tmp_path: Path) -> None:
    scenes = Scenes(3)
    for i in range(3):
        mask = draw_scene(i).mask.copy()
        mask[0, 0] = 255
        write_mask(tmp_path / f"4_pseudo/{scenes.name(i)}.png", mask)
    found = score_run(alone(ScoreSettings, out=tmp_path, count=3))
    assert found.seeds is None
    assert found.labels["pseudo"].scores.miou_present > 0.99
    assert found.labels["pseudo"].counts[:, -1].sum() == 3
    (tmp_path / "4_pseudo/scene_000001.png").unlink()
    assert list(
        score_run(alone(ScoreSettings, out=tmp_path, count=3)).labels["pseudo"].missing
    ) == ["scene_000001"]


def test_stages_of_other_images_are_left_out_of_the_scores(tmp_path: Path) -> None:
    """Labels of the training list, masks of the validation list, as papers have them."""
    (tmp_path / "2_seeds").mkdir()
    write_mask(tmp_path / "4_pseudo/another.png", draw_scene(0).mask)
    for i in range(2):
        write_mask(tmp_path / f"6_predictions/{Scenes(2).name(i)}.png", draw_scene(i).mask)
    found = score_run(alone(ScoreSettings, out=tmp_path, count=2))
    assert found.seeds is None
    assert list(found.labels) == ["predictions"]
    assert found.labels["predictions"].scores.miou_present == 1
    assert "seeds: none of these images, left out.\npseudo labels: none of" in found.summary()
    shutil.rmtree(tmp_path / "6_predictions")
    with pytest.raises(
        TagmaskError,
        match=r"nothing in .*2_seeds could be scored; the first reason: .*scene_000000",
    ):
        score_run(alone(ScoreSettings, out=tmp_path, count=2))


def test_the_background_walks_along_as_in_psa(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against one step of all k + 1 maps by a dense matrix, and the highest of them."""
    make_pseudo(settings(run, method="walk", background_power=1.15, beta=2.0, steps=1, crf=False))
    net = AffinityNet.load(run / "3_affinity")
    scene = draw_scene(1)
    seeds = np.load(run / "2_seeds/scene_000001.npz")
    maps = seeds["refined"].astype(np.float32) / 255
    stacked = np.concatenate([(1 - maps.max(0))[None] ** 1.15, maps])  # (k + 1, H, W)
    picture = torch.from_numpy(scene.image).permute(2, 0, 1)[None].float() / 255
    with torch.inference_mode():
        features = net(net.normalize(picture))[0].numpy()
    matrix = transition(features, SMALL_NET.radius, 2.0).toarray()
    cells = to_cells(stacked, 8)
    walked = (matrix @ cells.reshape(len(cells), -1).T).T.reshape(cells.shape)
    highest = to_pixels(walked, maps.shape[1:], 8).argmax(0)
    expected = np.array([0, *(seeds["classes"] + 1)])[highest]
    written = read_mask(run / "4_pseudo/scene_000001.png", len(CLASSES))
    assert (written == expected).mean() > 0.999
    assert 0 < (written > 0).mean() < 1
    assert not (run / "4_pseudo/background.json").exists()


def test_raw_maps_are_lower_than_stretched_ones(run: Path) -> None:
    image, maps = draw_scene(0).image, np.full((1, *draw_scene(0).mask.shape), 0.2, np.float32)
    maps[0, :30] = 0.6
    torch.manual_seed(0)
    net = AffinityNet("test_resnet")
    raw, stretched = (
        net_walk(image, maps, net=net, radius=3.0, beta=1.0, steps=2, stretched=stretched)
        for stretched in (False, True)
    )
    assert (stretched.min(), stretched.max()) == (0, 1)
    assert 0.2 - 1e-6 < raw.min() < raw.max() < 0.6 + 1e-6
    np.testing.assert_allclose(stretched, (raw - raw.min()) / (raw.max() - raw.min()), atol=1e-5)


def test_settings_of_the_background_exclude_each_other(run: Path) -> None:
    with pytest.raises(
        TagmaskError, match="--background and --background-power exclude each other"
    ):
        make_pseudo(settings(run, background=0.5, background_power=16.0))
    with pytest.raises(TagmaskError, match="a background that walks along; leave out one"):
        make_pseudo(settings(run, stretch=True, background_power=16.0))
    assert settings(run).stretches()
    assert not settings(run, stretch=False).stretches()
    assert not settings(run, background_power=16.0).stretches()


def test_regions_of_maps_with_affinity(run: Path) -> None:
    """What the paper advises against: AffinityNet's regions from the maps with affinity."""
    asked = settings(run, method="walk", regions="refined")
    write_regions(run, Scenes(6), asked.own, 0)
    seeds = read_seeds(seed_file(run / "2_seeds", "scene_000000"))
    scene = draw_scene(0)
    low, high = asked.alpha_low, asked.alpha_high
    for kind, is_used in (("refined", True), ("plain", False)):
        maps = as_float(seeds[kind])
        expected = confident_regions(scene.image, seeds["classes"].tolist(), maps, low, high)
        made = read_mask(label_file(run / "3_affinity/regions", "scene_000000"), len(CLASSES))
        assert np.array_equal(made, expected) == is_used
    assert settings(run, regions="refined", method="crf").mistakes() == [
        "--regions is about AffinityNet; leave it out with --method crf."
    ]


def test_a_class_that_would_be_lost_keeps_its_labels() -> None:
    labels = np.array([[0, 1, 1, 2], [0, 1, 2, 2]], np.uint8)
    other = np.array([[0, 1, 0, 0], [1, 0, 0, 1]], np.uint8)
    # of class 1 a third is sure, of class 2 nothing
    expected = [[0, 1, 255, 2], [255, 255, 2, 2]]
    maps = np.full((2, 2, 4), 0.2, np.float32)
    assert sure_labels(labels, other, maps).tolist() == expected


def test_background_that_no_map_claims_stays_background() -> None:
    """The other maps call every pixel the tag's, as evidence does that lies on the ground."""
    labels = np.array([[0, 0, 1, 0]], np.uint8)
    other = np.ones((1, 4), np.uint8)
    maps = np.array([[[0.0, 0.019, 0.9, 0.021]]], np.float32)
    assert sure_labels(labels, other, maps).tolist() == [[0, 0, 1, 255]]
