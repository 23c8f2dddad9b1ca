"""Predictions: probabilities by other paths, tiles, and the files of a catalog."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn

from tagmask.config import PredictSettings
from tagmask.data.scenes.catalog import CLASSES, Scenes
from tagmask.errors import TagmaskError
from tagmask.inference.probabilities import predict_probabilities, sharpen
from tagmask.labels import as_percent
from tagmask.masks.crf import SEGMENTATION, dense_crf
from tagmask.models.deeplab import ASPP, DeepLabV2
from tagmask.stages import predict as predict_stage
from tagmask.stages.predict import read_probabilities
from tests.alone import alone, predict_catalog

PHOTO = np.random.default_rng(0).integers(0, 256, (61, 90, 3)).astype(np.uint8)


def tiny(classes: tuple[str, ...] = ("a", "b", "c"), seed: int = 0) -> DeepLabV2:
    """Weights large enough that the probabilities are far from even."""
    torch.manual_seed(seed)
    model = DeepLabV2("test_resnet", len(classes) + 1, classes=classes).eval()
    for parameter in model.aspp.parameters():
        nn.init.normal_(parameter, std=1.0)
    return model


class Near(nn.Module):
    """An encoder that sees no farther than 7 pixels."""

    num_features = 6

    def __init__(self) -> None:
        super().__init__()
        sizes = [3, 4, 5, 6]
        self.layers = nn.Sequential(*(nn.Conv2d(sizes[i], sizes[i + 1], 3, 2, 1) for i in range(3)))

    def forward_features(self, images: torch.Tensor) -> Any:
        return self.layers(images)


def near_sighted() -> DeepLabV2:
    """Looks 7 pixels through the encoder, 16 through the head and 7 by interpolation: 30 in all."""
    model = tiny()
    model.encoder, model.aspp = Near(), ASPP(6, 4, rates=(1, 2))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model


def one_view(model: DeepLabV2, picture: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        logits = model(model.normalize(picture))
        return model.upsample(logits, (picture.shape[-2], picture.shape[-1])).softmax(1)


def test_views_are_averaged() -> None:
    model = tiny()
    picture = torch.from_numpy(PHOTO).permute(2, 0, 1)[None] / 255
    half = F.interpolate(picture, (30, 45), mode="bilinear", antialias=True)
    expected = one_view(model, picture) + one_view(model, picture.flip(-1)).flip(-1)
    for small in (one_view(model, half), one_view(model, half.flip(-1)).flip(-1)):
        expected = expected + F.interpolate(small, (61, 90), mode="bilinear")
    found = predict_probabilities(model, PHOTO, scales=(1.0, 0.5))
    np.testing.assert_allclose(found, expected[0].numpy() / 4, atol=1e-6)
    np.testing.assert_allclose(found.sum(0), 1, atol=1e-5)
    assert found.max() > 0.4
    assert found.dtype == np.float32


def test_untagged_classes_are_ruled_out() -> None:
    model = tiny()
    free = predict_probabilities(model, PHOTO, flip=False)
    bound = predict_probabilities(model, PHOTO, flip=False, tags=[0, 2])
    assert (bound[2] == 0).all()
    rest = free[[0, 1, 3]]
    np.testing.assert_allclose(bound[[0, 1, 3]], rest / rest.sum(0), atol=1e-5)
    assert (predict_probabilities(model, PHOTO, tags=[])[0] == 1).all()


@pytest.mark.parametrize("size", [(200, 150), (129, 257), (64, 70)])
def test_tiles_with_enough_halo_equal_the_whole(size: tuple[int, int]) -> None:
    model = near_sighted()
    image = np.random.default_rng(1).integers(0, 256, (*size, 3)).astype(np.uint8)
    whole = predict_probabilities(model, image, scales=(1.0, 0.7))
    tiled = predict_probabilities(model, image, scales=(1.0, 0.7), tile=48, halo=32)
    np.testing.assert_allclose(tiled, whole, atol=1e-5)
    short = predict_probabilities(model, image, scales=(1.0, 0.7), tile=48, halo=8)
    assert np.abs(short - whole).max() > 1e-3  # the test above can fail


def test_a_tile_that_covers_the_image_is_the_whole() -> None:
    model = tiny()
    tiled = predict_probabilities(model, PHOTO, tile=96, halo=8)
    np.testing.assert_array_equal(tiled, predict_probabilities(model, PHOTO))


@pytest.mark.parametrize(
    ("image", "options", "message"),
    [
        (PHOTO[..., 0], {}, "uint8 of shape"),
        (PHOTO / 255, {}, "float64 of shape"),
        (PHOTO, {"scales": ()}, "scales are"),
        (PHOTO, {"scales": (9.0,)}, "above 0 and at most 4"),
        (
            PHOTO,
            {"tile": 100},
            "tile is 100 and halo 256 pixels; both must be multiples of the network's stride 8",
        ),
        (PHOTO, {"tile": 64, "halo": 0}, "halo 0"),
        (PHOTO, {"tags": [3]}, "the tag 3 is no class of the model; it has classes 0 to 2"),
    ],
)
def test_bad_arguments(image: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TagmaskError, match=message):
        predict_probabilities(tiny(), image, **options)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    tiny(CLASSES).save(tmp_path / "5_segmenter")
    return tmp_path


def settings(run: Path, **changes: Any) -> Any:
    return alone(
        PredictSettings, **{"out": run, "count": 5, "scales": (1.0,), "crf": False, **changes}
    )


def masks(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*.png")}


def test_files_hold_the_likeliest_class(run: Path) -> None:
    done = predict_catalog(settings(run, probabilities=True))
    assert (done.made, done.kept, done.skipped, done.notes) == (5, 0, {}, ())
    model, scenes = DeepLabV2.load(run / "5_segmenter"), Scenes(5, 0)
    for i in (0, 3):
        expected = predict_probabilities(model, scenes.load_image(i))
        stored = Image.open(run / f"6_predictions/{scenes.name(i)}.png")
        assert stored.mode == "P"
        assert np.array_equal(np.array(stored), expected.argmax(0))
        chances = read_probabilities(run / f"6_predictions/{scenes.name(i)}.npz")
        assert chances.dtype == np.float16
        np.testing.assert_allclose(chances, expected, atol=1e-3)
    assert "[predict]" in (run / "config.toml").read_text()


def test_tags_rule_out_classes(run: Path) -> None:
    predict_catalog(settings(run, use_tags=True))
    scenes = Scenes(5, 0)
    for i in range(5):
        labels = set(
            np.unique(np.array(Image.open(run / f"6_predictions/{scenes.name(i)}.png"))).tolist()
        )
        assert labels <= {0, *(tag + 1 for tag in scenes.tags(i))}

    with pytest.raises(
        TagmaskError,
        match=r"made with other settings or inputs \(use_tags was True and is now False.*--restart",
    ):
        predict_catalog(settings(run))


@pytest.mark.parametrize("processes", [1, 2])
def test_the_last_line_counts_what_was_found(run: Path, processes: int) -> None:
    """Counted again from the files; masks that are there already are not counted twice."""
    scenes = Scenes(5, 0)
    predict_catalog(settings(run, use_tags=True, count=3))
    done = predict_catalog(settings(run, use_tags=True, processes=processes))
    assert (done.made, done.kept) == (2, 3)
    for tag in {*scenes.tags(3), *scenes.tags(4)}:
        shares = []
        for i in (3, 4):
            mask = np.array(Image.open(run / f"6_predictions/{scenes.name(i)}.png"))
            if tag in scenes.tags(i):
                shares.append(float((mask == tag + 1).mean()))
        found = [share for share in shares if share]
        words = f"{CLASSES[tag]} on {len(found)} of its {len(shares)} photos"
        if found:
            where = as_percent(sum(found) / len(found))
            words += f" (where it is found: {where} of the photo; "
        assert words in done.summary().splitlines()[-1]
    again = predict_catalog(settings(run, use_tags=True))
    assert "found" not in again.summary()


def test_the_crf_sharpens_what_the_network_found(run: Path) -> None:
    predict_catalog(settings(run, count=1, crf=True))
    scenes, model = Scenes(1, 0), DeepLabV2.load(run / "5_segmenter")
    image = scenes.load_image(0)
    chances = predict_probabilities(model, image)
    sharp = sharpen(image, chances)
    np.testing.assert_allclose(sharp.sum(0), 1, atol=1e-5)
    np.testing.assert_allclose(
        sharp, dense_crf(image, chances, SEGMENTATION), atol=0.02
    )  # all classes at once
    mask = np.array(Image.open(run / "6_predictions/scene_000000.png"))
    assert np.array_equal(mask, sharp.argmax(0))
    assert np.abs(sharp - chances).max() > 0.1
    with pytest.raises(TagmaskError, match=r"crf was True and is now False.*--restart"):
        predict_catalog(settings(run, count=1))


def test_the_crf_leaves_impossible_classes_out() -> None:
    chances = np.zeros((4, *PHOTO.shape[:2]), np.float32)
    chances[2] = 1.0
    assert (sharpen(PHOTO, chances)[2] == 1).all()  # a single class: nothing to decide
    chances[2], chances[0], chances[3] = 0.6, 0.395, 0.005
    sharp = sharpen(PHOTO, chances)
    assert (sharp[[1, 3]] == 0).all()
    np.testing.assert_allclose(sharp.sum(0), 1, atol=1e-5)


def test_resume_and_shards(run: Path) -> None:
    twin = run / "twin"
    assert predict_catalog(settings(twin, model=run / "5_segmenter", shard="0/2")).made == 3
    assert predict_catalog(settings(twin, model=run / "5_segmenter", shard="1/2")).made == 2
    predict_catalog(settings(run))
    before = masks(run / "6_predictions")
    assert before == masks(twin / "6_predictions")
    victim = run / "6_predictions/scene_000003.png"
    victim.write_bytes(victim.read_bytes()[:50])
    (run / "6_predictions/scene_000004.png").unlink()
    done = predict_catalog(settings(run))
    assert (done.made, done.kept) == (2, 3)
    assert masks(run / "6_predictions") == before
    assert (
        predict_catalog(settings(run, probabilities=True)).made == 5
    )  # the masks are there, the rest is not
    assert predict_catalog(settings(run, probabilities=True)).kept == 5


def test_masks_of_two_models_are_not_mixed(run: Path) -> None:
    predict_catalog(settings(run, count=1))
    with pytest.raises(TagmaskError, match=r"flip was True and is now False.*--restart"):
        predict_catalog(settings(run, count=1, flip=False))
    tiny(CLASSES, seed=1).save(run / "5_segmenter")
    with pytest.raises(TagmaskError, match="segmenter changed"):
        predict_catalog(settings(run, count=1))
    assert predict_catalog(settings(run, count=1, restart=True)).made == 1


def test_a_stopped_restart_leaves_no_masks_of_before(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predict_catalog(settings(run))
    with monkeypatch.context() as patch:
        patch.setattr(
            predict_stage, "write_mask", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            predict_catalog(settings(run, flip=False, restart=True))
    assert not masks(run / "6_predictions")
    assert predict_catalog(settings(run, flip=False)).made == 5


def test_photos_that_are_left_out_are_told(run: Path) -> None:
    folder = run / "photos"
    folder.mkdir()
    for name in ("a.jpg", "a.png", "b.png"):
        Image.fromarray(PHOTO).save(folder / name)
    (folder / "c.CR2").write_bytes(b"x")
    done = predict_catalog(settings(run, photos=folder))
    assert done.made == 2
    assert "a.png would have the same mask as a.jpg and is left out; rename it." in done.summary()
    assert (
        "1 pictures of kinds that cannot be read are left out (c.CR2); save them as JPEG."
        in done.summary()
    )


def test_photos_without_tags(run: Path) -> None:
    (run / "photos/sub").mkdir(parents=True)
    Image.fromarray(PHOTO).save(run / "photos/sub/one.png")
    (run / "photos/bad.jpg").write_bytes(b"nothing")
    (run / "photos/notes.txt").write_text("not a picture")
    done = predict_catalog(settings(run, photos=run / "photos"))
    assert (done.made, list(done.skipped)) == (1, ["bad"])
    assert "bad.jpg" in done.summary()
    assert done.summary().splitlines()[-1].startswith("found on 1 photos: ")
    assert list(json.loads((run / "6_predictions/skipped_0_of_1.json").read_text())) == ["bad"]
    assert np.array(Image.open(run / "6_predictions/sub/one.png")).shape == PHOTO.shape[:2]
    (run / "empty").mkdir()
    with pytest.raises(TagmaskError, match="empty contains no pictures"):
        predict_catalog(
            settings(run, photos=run / "empty", out=run / "other", model=run / "5_segmenter")
        )


def test_classes_in_another_order_and_fewer(run: Path) -> None:
    folder = run / "photos"
    folder.mkdir()
    Image.fromarray(PHOTO).save(folder / "one.png")
    first, second = CLASSES[5], CLASSES[2]  # the catalog sorts by name
    (folder / "tags.csv").write_text(f"file,tags\none.png,{first} {second}\n".replace(" ", ";"))
    known = sorted([first, second])
    done = predict_catalog(
        settings(run, data="folder", images=folder, tags=folder / "tags.csv", flip=False)
    )
    assert (
        f"{len(CLASSES) - 2} classes of the model are not classes of these images" in done.summary()
    )
    numbers = [CLASSES.index(name) for name in known]
    model = DeepLabV2.load(run / "5_segmenter")
    expected = predict_probabilities(model, PHOTO, flip=False, tags=numbers)[
        [0, numbers[0] + 1, numbers[1] + 1]
    ]
    assert np.array_equal(np.array(Image.open(run / "6_predictions/one.png")), expected.argmax(0))
    # capitals do not matter, but two names for one class do
    (folder / "tags.csv").write_text(f"file,tags\none.png,{first.upper()}\n")
    predict_catalog(
        settings(run, data="folder", images=folder, tags=folder / "tags.csv", restart=True)
    )
    (folder / "tags.csv").write_text(f"file,tags\none.png,{first.upper()};{first}\n")
    with pytest.raises(TagmaskError, match=f"does not know the class '{first.upper()}'"):
        predict_catalog(settings(run, data="folder", images=folder, tags=folder / "tags.csv"))
    (folder / "tags.csv").write_text("file,tags\none.png,unicorn\n")
    with pytest.raises(TagmaskError, match="does not know the class 'unicorn'"):
        predict_catalog(settings(run, data="folder", images=folder, tags=folder / "tags.csv"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shard": "2/2"}, "--shard 2/2 must be i/n"),
        ({"scales": (0.0,)}, "--scales 0.0"),
        ({"photos": Path("nowhere")}, "--photos nowhere is not a folder"),
        ({"photos": Path(__file__).parent, "use_tags": True}, "leave out --use-tags"),
        ({"model": Path("nowhere")}, "nowhere/config.json does not exist"),
        ({"tile": 100}, "--tile 100 must be a multiple of 8"),
    ],
)
def test_bad_settings(run: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TagmaskError, match=message):
        predict_catalog(settings(run, **changes))


def test_damaged_probabilities_are_told(run: Path) -> None:
    with pytest.raises(TagmaskError, match="does not exist; make it with"):
        read_probabilities(run / "none.npz")
    (run / "half.npz").write_bytes(b"half")
    with pytest.raises(TagmaskError, match=r"half\.npz is damaged"):
        read_probabilities(run / "half.npz")
