"""Seeds of a catalog: files, resuming, shards, and what goes wrong."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

import tagmask
from tagmask.acr.localize import localize
from tagmask.cli import main
from tagmask.config import MapSettings, PhotoSettings, ScoreSettings, SeedSettings
from tagmask.data.scenes.catalog import CLASSES, draw_scene
from tagmask.errors import TagmaskError
from tagmask.inference.maps import make_maps
from tagmask.methods import METHODS
from tagmask.models.mct import MctClassifier
from tagmask.stages import seeds as seeds_stage
from tagmask.stages.score import SeedScores, count_piece
from tagmask.stages.seeds import read_seeds, seed_photo
from tests.alone import alone, score_seeds, seed_catalog
from tests.helpers import forkserver, kill_once, silent_command, tiny_classifier


@pytest.fixture
def run(tmp_path: Path) -> Path:
    model = tiny_classifier(classes=len(CLASSES))
    model.classes = CLASSES
    model.crop_size = 40
    model.save(tmp_path / "1_classifier")
    return tmp_path


def settings(run: Path, **changes: Any) -> Any:
    return alone(SeedSettings, **{"out": run, "count": 8, "flip": False, **changes})


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*.npz")}


def test_files_hold_the_maps_of_the_method(run: Path) -> None:
    """Against the localisation itself, with padding, enlarging and stretching done again by another path."""
    done = seed_catalog(settings(run, dtype="float16", size=48))
    assert (done.made, done.kept, done.skipped) == (8, 0, {})
    model = tagmask.Classifier.load(run / "1_classifier")
    for i, (height, width) in (
        (0, (96, 84)),
        (7, (64, 96)),
    ):  # halved, the first is padded from 42 to 48 pixels
        scene = draw_scene(i)
        seeds = read_seeds(run / f"2_seeds/scene_{i:06}.npz")
        assert tuple(seeds["classes"]) == scene.tags
        assert tuple(seeds["size"]) == scene.mask.shape == (height, width)
        tensor = torch.from_numpy(scene.image).permute(2, 0, 1)[None] / 255
        half = model.normalize(
            F.interpolate(tensor, (height // 2, width // 2), mode="bilinear", antialias=True)
        )
        padded = F.pad(half, (0, 48 - width // 2))
        for affinity, kind in ((False, "plain"), (True, "refined")):
            maps = localize(model, padded, [scene.tags], affinity=affinity)[0]
            pixels = F.interpolate(maps[None], padded.shape[-2:], mode="bilinear")[
                ..., : width // 2
            ]
            whole = F.interpolate(pixels, (height, width), mode="bilinear")[0].detach().numpy()
            for stored, map in zip(seeds[kind], whole, strict=True):
                expected = (map - map.min()) / (map.max() - map.min())
                np.testing.assert_allclose(stored, expected, atol=2e-3)
                assert (stored.min(), stored.max()) == (0, 1)
    assert "[seeds]" in (run / "config.toml").read_text()


def test_uint8_is_rounded(run: Path) -> None:
    seed_catalog(settings(run, count=1))
    seed_catalog(settings(run, count=1, dtype="float16", restart=True, out=_twin(run)))
    small = read_seeds(run / "2_seeds/scene_000000.npz")["plain"]
    fine = read_seeds(_twin(run) / "2_seeds/scene_000000.npz")["plain"].astype(np.float64)
    assert small.dtype == np.uint8
    assert np.abs(small / 255 - fine).max() < 0.6 / 255 + 1e-3


def _twin(run: Path) -> Path:
    twin = run / "twin"
    if not twin.exists():
        tagmask.Classifier.load(run / "1_classifier").save(twin / "1_classifier")
    return twin


def test_shards_together_equal_the_whole(run: Path) -> None:
    seed_catalog(settings(run))
    twin = _twin(run)
    # images that go through the network together are not divided
    made = [seed_catalog(settings(twin, shard=f"{part}/2")).made for part in range(2)]
    assert sum(made) == 8
    whole, parts = run / "2_seeds", twin / "2_seeds"
    assert contents(whole).keys() == contents(parts).keys()
    for name in contents(whole):
        one, two = read_seeds(whole / name), read_seeds(parts / name)
        for key in one:
            np.testing.assert_allclose(one[key].astype(float), two[key].astype(float), atol=1)


def test_finished_files_are_kept_and_damaged_ones_made_again(run: Path) -> None:
    seed_catalog(settings(run, batch=1))
    before = contents(run / "2_seeds")
    victim = run / "2_seeds/scene_000003.npz"
    victim.write_bytes(victim.read_bytes()[:100])
    (run / "2_seeds/scene_000004.npz").unlink()
    done = seed_catalog(settings(run, batch=1))
    assert (done.made, done.kept) == (2, 6)
    assert contents(run / "2_seeds") == before


def test_killed_and_resumed_gives_identical_files(run: Path) -> None:
    twin = _twin(run)
    seed_catalog(settings(run, count=40, batch=1))
    words = ["seeds", "--count", "40", "--batch", "1", "--no-flip", "--out", str(twin)]
    kill_once(lambda: len(list(twin.glob("2_seeds/*.npz"))) >= 5, silent_command, words)
    assert 5 <= len(list(twin.glob("2_seeds/*.npz"))) < 40
    seed_catalog(settings(twin, count=40, batch=1))
    assert contents(run / "2_seeds") == contents(twin / "2_seeds")


def test_maps_of_two_models_are_not_mixed(run: Path) -> None:
    seed_catalog(settings(run, count=2))
    with pytest.raises(TagmaskError, match=r"layers was 2 and is now 3.*--restart"):
        seed_catalog(settings(run, count=2, layers=3))
    other = tiny_classifier(classes=len(CLASSES), seed=1)
    other.classes = CLASSES
    other.save(run / "1_classifier")
    with pytest.raises(TagmaskError, match="holds maps made with other settings or inputs"):
        seed_catalog(settings(run, count=2))
    assert seed_catalog(settings(run, count=2, restart=True)).made == 2


def stop_after(monkeypatch: pytest.MonkeyPatch, stage: Any, name: str, files: int) -> None:
    """Let the stage end as by Ctrl-C once it has written so many files."""
    write, count = getattr(stage, name), [0]

    def stopping(*arguments: Any) -> None:
        if count[0] == files:
            raise KeyboardInterrupt
        count[0] += 1
        write(*arguments)

    monkeypatch.setattr(stage, name, stopping)


def test_a_stopped_restart_leaves_no_maps_of_before(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed_catalog(settings(run, batch=1))
    with monkeypatch.context() as patch:
        stop_after(patch, seeds_stage, "write_seeds", 3)
        with pytest.raises(KeyboardInterrupt):
            seed_catalog(settings(run, batch=1, layers=3, restart=True))
    assert len(contents(run / "2_seeds")) == 3
    done = seed_catalog(settings(run, batch=1, layers=3))
    assert (done.made, done.kept) == (5, 3)


def tagged(folder: Path, tags: str) -> Path:
    (folder / "photos").mkdir(parents=True, exist_ok=True)
    for i in range(3):
        Image.fromarray(draw_scene(i).image).save(folder / f"photos/{i}.png")
    (folder / "tags.csv").write_text(f"file,tags\n{tags}")
    return folder


def test_other_tags_make_other_maps(run: Path) -> None:
    folder = tagged(run / "data", "0.png,cow\n1.png,boat\n2.png,car\n")
    own = {"data": "folder", "images": folder / "photos", "tags": folder / "tags.csv"}
    assert seed_catalog(settings(run, **own)).made == 3
    tagged(folder, "0.png,boat\n1.png,boat\n2.png,car;cow\n")
    done = seed_catalog(settings(run, **own))
    assert (done.made, done.kept) == (2, 1)
    assert len(read_seeds(run / "2_seeds/2.npz")["classes"]) == 2
    tagged(folder, "0.png,boat\n1.png,boat\n2.png,car\n")  # no cow: the others have other numbers
    with pytest.raises(TagmaskError, match=r"classes was \[.*cow.*--restart"):
        seed_catalog(settings(run, **own))


def test_any_damage_is_told_and_mended(run: Path) -> None:
    seed_catalog(settings(run, count=1))
    file = run / "2_seeds/scene_000000.npz"
    whole = file.read_bytes()
    for place in range(0, len(whole), max(1, len(whole) // 300)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        with contextlib.suppress(
            TagmaskError
        ):  # a sentence, or damage that does not show; nothing else
            read_seeds(file)
    file.write_bytes(whole[: len(whole) // 2])
    assert seed_catalog(settings(run, count=1)).made == 1
    assert file.read_bytes() == whole


def test_names_of_any_bytes_and_length(run: Path) -> None:
    folder = run / "data/cow"
    folder.mkdir(parents=True)
    names = [os.fsdecode(b"caf\xe9.png"), "é" * 120 + ".png"]
    for name in names:
        Image.fromarray(draw_scene(0).image).save(folder / name)
    assert seed_catalog(settings(run, data="folder", images=run / "data")).made == 2
    (folder / names[0]).write_bytes(b"broken now")
    done = seed_catalog(settings(run, data="folder", images=run / "data", restart=True))
    assert (done.made, len(done.skipped)) == (1, 1)  # and its name was written into a file


def test_other_scenes_have_the_same_names(run: Path) -> None:
    seed_catalog(settings(run, count=2))
    with pytest.raises(TagmaskError, match="scene_seed was 0 and is now 1"):
        seed_catalog(settings(run, count=2, scene_seed=1))


@pytest.mark.parametrize("method", ["acr", "generic"])
def test_blocks_that_do_not_exist(run: Path, method: str) -> None:
    with pytest.raises(TagmaskError, match=r"blocks range\(0, 90\) do not exist"):
        seed_catalog(settings(run, method=method, affinity_blocks=(0, 89)))
    with pytest.raises(TagmaskError, match="--affinity-blocks -1 2 must be"):
        seed_catalog(settings(run, method=method, affinity_blocks=(-1, 2)))


def test_maps_by_another_method(run: Path) -> None:
    seed_catalog(settings(run, method="generic", dtype="float16", batch=3))
    model = tagmask.Classifier.load(run / "1_classifier")
    scene = draw_scene(2)
    expected = make_maps(
        model, [scene.image], [scene.tags], MapSettings(flip=False, method="generic")
    )[0]
    of_acr = make_maps(model, [scene.image], [scene.tags], MapSettings(flip=False))[0]
    seeds = read_seeds(run / "2_seeds/scene_000002.npz")
    np.testing.assert_allclose(seeds["plain"], expected.plain, atol=1e-3)
    np.testing.assert_allclose(seeds["refined"], expected.refined, atol=1e-3)
    assert np.abs(expected.refined - of_acr.refined).max() > 0.1
    with pytest.raises(TagmaskError, match="method was generic and is now cam"):
        seed_catalog(settings(run, method="cam", dtype="float16"))


def test_an_mctformer_has_its_own_maps_only(run: Path) -> None:
    MctClassifier("tagmask_tiny", len(CLASSES), img_size=32, classes=CLASSES).save(
        run / "1_classifier"
    )
    with pytest.raises(TagmaskError, match="train one with --kind acr"):
        seed_catalog(settings(run, method="generic"))


def test_unknown_class_and_broken_image(run: Path) -> None:
    photos = run / "photos"
    photos.mkdir()
    Image.new("RGB", (50, 40)).save(photos / "good.png")
    (photos / "bad.png").write_bytes(b"nothing")
    (photos / "tags.csv").write_text("file,tags\ngood.png,car\nbad.png,car\n")
    folder: dict[str, Any] = {"data": "folder", "images": photos, "tags": photos / "tags.csv"}
    done = seed_catalog(settings(run, **folder))
    assert done.made == 1
    assert list(done.skipped) == ["bad"]
    assert "bad.png" in done.summary()
    assert list(json.loads((run / "2_seeds/skipped_0_of_1.json").read_text())) == ["bad"]
    seeds = read_seeds(run / "2_seeds/good.npz")
    assert seeds["classes"].tolist() == [0]  # the catalog's own numbering
    (photos / "tags.csv").write_text("file,tags\ngood.png,unicorn\n")
    with pytest.raises(
        TagmaskError, match="does not know the class 'unicorn'; it was trained on: cow"
    ):
        seed_catalog(settings(run, **folder))


def test_a_method_of_your_own_makes_maps_in_one_process(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other processes may not know it; it is weighted gradients under another name."""

    def typed(*words: str) -> int:
        fixed = ["seeds", str(run), "--data", "scenes", "--count", "8", "--no-flip", *words]
        with pytest.raises(SystemExit) as ended:
            main(fixed)
        return int(ended.value.code or 0)

    assert typed("--method", "mine", "--layers", "1") == 1
    assert "--method mine is no map method; choose from acr," in capsys.readouterr().err
    monkeypatch.setattr(seeds_stage, "count_processes", lambda *_: 2)
    monkeypatch.setattr(seeds_stage, "each", lambda *_: pytest.fail("a pool was started"))
    monkeypatch.setitem(METHODS, "mine", METHODS["weighted"])
    assert typed("--method", "mine", "--layers", "1") == 0
    mine = contents(run)
    monkeypatch.setattr(seeds_stage, "count_processes", lambda *_: 1)
    assert typed("--method", "weighted", "--layers", "1", "--restart") == 0
    assert contents(run) == mine
    assert len(mine) == 8


OWN_FILE = """
from tagmask.cli import main
from tagmask.methods import METHODS

METHODS["mine"] = METHODS["weighted"]

if __name__ == "__main__":
    main()
"""


def test_a_file_of_your_own_stands_for_tagmask(run: Path) -> None:
    """Each process of a pool registers the method again."""
    file = run / "mine.py"
    file.write_text(OWN_FILE)
    words = "seeds RUN --data scenes --count 8 --method mine --no-flip --processes 2"
    command = [sys.executable, str(file), *words.replace("RUN", str(run)).split()]
    subprocess.run(command, check=True, capture_output=True)
    mine = contents(run)
    seed_catalog(settings(run, method="weighted", restart=True))
    assert contents(run) == mine
    assert len(mine) == 8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shard": "2/2"}, "--shard 2/2 must be i/n"),
        ({"scales": (0.0,)}, "--scales 0.0"),
        (
            {"method": "cam", "centre": True},
            "--centre is about the class gradients of --method acr",
        ),
        ({"method": "cam", "layers": 2}, "--layers is about the class gradients of --method acr"),
        ({"layers": 9}, "choose 1 to 4"),
        ({"affinity_blocks": (3, 8)}, "blocks 0 to 3"),
        ({"model": Path("nowhere")}, "nowhere/config.json does not exist"),
    ],
)
def test_bad_settings(run: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TagmaskError, match=message):
        seed_catalog(settings(run, **changes))


def test_score_reads_each_file_once_and_writes_its_files(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed_catalog(settings(run))
    scores = score_seeds(alone(ScoreSettings, out=run, count=8))
    assert scores.images == 8
    saved = json.loads((run / "scores.json").read_text())["seeds"]
    best = saved["refined"]["thresholds"]["oracle"]
    assert best["miou_present"] == pytest.approx(
        max(saved["refined"]["curve"]["miou_present"]), abs=1e-6
    )
    assert set(saved["plain"]["thresholds"]) == {"oracle", "otsu", "cross_entropy"}
    assert Image.open(run / "scores.png").size[0] > 300
    table = scores.table()
    assert "oracle" in table
    assert f"{100 * best['miou_present']:6.1f}" in table
    monkeypatch.setattr("tagmask.runs.processes.get_context", forkserver)
    two = score_seeds(alone(ScoreSettings, out=run, count=8, processes=2))
    np.testing.assert_array_equal(
        two.curves["plain"].miou_present, scores.curves["plain"].miou_present
    )
    assert two.chosen == scores.chosen


def test_score_tells_what_is_missing(run: Path) -> None:
    with pytest.raises(TagmaskError, match="run `tagmask seeds"):
        score_seeds(alone(ScoreSettings, out=run, count=8))
    seed_catalog(settings(run))
    (run / "2_seeds/scene_000002.npz").unlink()
    victim = run / "2_seeds/scene_000003.npz"
    victim.write_bytes(victim.read_bytes()[:60])
    scores = score_seeds(alone(ScoreSettings, out=run, count=8))
    assert scores.images == 6
    assert "scene_000002.npz does not exist" in scores.missing["scene_000002"]
    assert "is damaged" in scores.missing["scene_000003"]
    assert "2 images were left out" in scores.summary(run)


def test_masks_that_do_not_fit(run: Path) -> None:
    photos, masks = run / "photos", run / "masks"
    photos.mkdir()
    masks.mkdir()
    rows = ["file,tags"]
    for name in ("one", "two", "three"):
        Image.new("RGB", (50, 40), (90, 60, 30)).save(photos / f"{name}.png")
        rows.append(f"{name}.png,car")
    (photos / "tags.csv").write_text("\n".join(rows))
    Image.fromarray(np.ones((40, 50), np.uint8)).save(masks / "one.png")
    Image.fromarray(np.ones((20, 50), np.uint8)).save(masks / "two.png")
    folder: dict[str, Any] = {"data": "folder", "images": photos, "tags": photos / "tags.csv"}
    seed_catalog(settings(run, **folder))
    with pytest.raises(TagmaskError, match="no masks to compare with"):
        score_seeds(alone(ScoreSettings, out=run, **folder))
    scores = score_seeds(alone(ScoreSettings, out=run, masks=masks, **folder))
    assert scores.images == 1
    assert "two" in scores.missing["two"]
    assert "has no mask" in scores.missing["three"]


def test_one_photo_by_command(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photo = run / "photo.png"
    Image.fromarray(draw_scene(1).image).save(photo)
    flags = [str(photo), "--model", str(run / "1_classifier"), "--tags", "cow,fish"]
    pictures = [
        "--show",
        str(run / "o.png"),
        "--show-affinity",
        str(run / "a.png"),
        "--out",
        str(run / "m.npz"),
    ]
    with pytest.raises(SystemExit) as ended:
        main(["seeds", *flags, *pictures])
    assert ended.value.code == 0
    assert "classes: cow, fish" in capsys.readouterr().out
    assert Image.open(run / "o.png").size[0] > 200
    assert Image.open(run / "a.png").size[0] > 200
    assert read_seeds(run / "m.npz")["refined"].shape[0] == 2


def test_one_photo_without_tags_and_with_wrong_ones(run: Path) -> None:
    photo = run / "photo.png"
    Image.fromarray(draw_scene(1).image).save(photo)
    options: dict[str, Any] = {"photo": photo, "model": run / "1_classifier"}
    assert "seen by the model" in seed_photo(PhotoSettings(**options))
    with pytest.raises(TagmaskError, match="does not know the class 'unicorn'"):
        seed_photo(PhotoSettings(tags="unicorn", **options))
    with pytest.raises(TagmaskError, match="empty tag"):
        seed_photo(PhotoSettings(tags="cow,,fish", **options))


def test_easy_door(run: Path) -> None:
    model = tagmask.Classifier.load(run / "1_classifier")
    scene = draw_scene(2)
    maps = tagmask.localize(model, scene.image, ["fish"])
    assert maps["fish"].shape == scene.mask.shape
    again = tagmask.localize(
        model, Image.fromarray(scene.image), ["fish"], affinity=False, scales=(1.0, 1.5)
    )
    assert again["fish"].max() == 1
    with pytest.raises(TagmaskError, match="give a path, a PIL image"):
        tagmask.localize(model, scene.mask, ["fish"])


def test_pieces_add_up(run: Path) -> None:
    from tagmask.data.scenes.catalog import Scenes

    seed_catalog(settings(run))
    scenes = Scenes(8)
    whole = count_piece(SeedScores, scenes, run / "2_seeds", range(8))
    parts = count_piece(SeedScores, scenes, run / "2_seeds", range(3))
    parts.merge(count_piece(SeedScores, scenes, run / "2_seeds", range(3, 8)))
    np.testing.assert_array_equal(whole.sweeps["refined"].counts, parts.sweeps["refined"].counts)


def test_two_processes_make_the_same_files(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tagmask.runs.processes.get_context", forkserver)
    monkeypatch.setitem(seeds_stage._AT_ONCE, "cpu", 4)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as each of the two has
    try:
        seed_catalog(settings(run, processes=1))
        alone = contents(run / "2_seeds")
        done = seed_catalog(settings(run, processes=2, restart=True))
    finally:
        torch.set_num_threads(threads)
    assert (done.made, done.skipped) == (8, {})
    assert contents(run / "2_seeds") == alone
