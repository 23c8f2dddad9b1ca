"""Maps of whole photos: nothing is shifted, views are undone, values are stretched."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import tagmask.inference.maps as module
from tagmask.acr.localize import Maps as ToyMaps
from tagmask.acr.localize import localize_both
from tagmask.config import MapSettings
from tagmask.inference.maps import make_maps, predicted_classes, stretch
from tagmask.methods import METHODS, Method
from tagmask.models.classifier import Classifier
from tests.helpers import tiny_classifier


class Bright:
    """Stands in for a classifier: the map of a class is the mean brightness of each patch."""

    patch_size, crop_size, mean, fixed_views = 8, 64, torch.zeros(3, 1, 1), None

    def normalize(self, images: Tensor) -> Tensor:
        return images


def bright_maps(
    model: Any, images: Tensor, classes: Any, **_: Any
) -> tuple[list[Tensor], list[Tensor]]:
    means = torch.nn.functional.avg_pool2d(images.mean(1, keepdim=True), 8)  # (B, 1, h, w)
    maps = [mean.expand(len(one), -1, -1) for mean, one in zip(means, classes, strict=True)]
    return maps, maps


@pytest.fixture
def bright(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(module, "localize_both", bright_maps)
    return Bright()


def square(height: int, width: int, top: int, left: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    image = np.zeros((height, width, 3), np.uint8)
    image[top : top + 8, left : left + 8] = 255
    return image


def centre(map_: np.ndarray[Any, Any]) -> tuple[float, float]:
    rows, columns = np.indices(map_.shape)
    return float((rows * map_).sum() / map_.sum()), float((columns * map_).sum() / map_.sum())


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("shape", [(64, 48), (61, 45)])
def test_a_square_moved_by_a_patch_moves_the_map_by_a_patch(
    bright: Any, shape: tuple[int, int], flip: bool
) -> None:
    settings = MapSettings(size=max(shape), flip=flip)
    places = []
    for top, left in ((16, 16), (16, 24), (24, 24)):
        image = square(*shape, top, left)
        map_ = make_maps(bright, [image], [[0]], settings)[0].plain[0]
        assert map_.shape == shape
        places.append(centre(map_))
    if (
        not flip or shape[1] % 8 == 0
    ):  # the mirrored grid starts at the other edge of a ragged image
        assert places[0] == pytest.approx((19.5, 19.5), abs=1e-4)
    assert places[1][1] - places[0][1] == pytest.approx(8, abs=1e-3)
    assert places[1][0] - places[0][0] == pytest.approx(0, abs=1e-3)
    assert places[2][0] - places[1][0] == pytest.approx(8, abs=1e-3)


def test_enlarged_image_keeps_the_place(bright: Any) -> None:
    image = square(64, 48, 24, 16)
    for size, scales in ((128, (1.0,)), (64, (1.0, 2.0)), (96, (0.5, 1.0))):
        map_ = make_maps(bright, [image], [[0]], MapSettings(size=size, scales=scales))[0].plain[0]
        row, column = centre(np.clip(map_ - 0.3, 0, None))
        assert row == pytest.approx(27.5, abs=0.6)
        assert column == pytest.approx(19.5, abs=0.6)


def test_views_are_added_and_stretched(bright: Any) -> None:
    image = square(32, 32, 8, 16)
    maps = make_maps(bright, [image], [[0]], MapSettings(size=32, scales=(1.0, 0.5)))[0]
    assert maps.plain.min() == 0
    assert maps.plain.max() == 1


def test_stretch_by_hand() -> None:
    maps = torch.tensor([[[1.0, 3.0, 5.0]], [[2.0, 2.0, 2.0]]])
    assert stretch(maps).tolist() == [[[0, 0.5, 1]], [[0, 0, 0]]]


def test_batched_images_equal_single_ones() -> None:
    model = tiny_classifier(classes=4).eval()
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (37, 50, 3), dtype=np.uint8) for _ in range(3)]
    classes = [[0], [1, 3], [2]]
    settings = MapSettings(size=48)
    together = make_maps(model, images, classes, settings)
    for image, one, maps in zip(images, classes, together, strict=True):
        alone = make_maps(model, [image], [one], settings)[0]
        assert maps.classes == tuple(one)
        np.testing.assert_allclose(maps.refined, alone.refined, atol=2e-4)
        np.testing.assert_allclose(maps.plain, alone.plain, atol=2e-4)


def test_a_toy_method_needs_the_registry_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def toy(model: Classifier, images: Tensor, classes: Tensor, blocks: range) -> ToyMaps:
        """Patch i of class c has the value (c + 1)·i; each patch attends to its left neighbour, the first to itself."""
        patches = images.shape[-2] * images.shape[-1] // 64
        ramp = torch.arange(float(patches))
        moved = torch.zeros(len(images), 1 + patches, 1 + patches)
        moved[:, range(1, 1 + patches), [1, *range(1, patches)]] = 1
        return ToyMaps((classes + 1).unsqueeze(-1) * ramp, [moved for _ in blocks])

    monkeypatch.setitem(METHODS, "toy", Method(toy))
    settings = MapSettings(method="toy", size=32, flip=False, affinity_steps=2)
    maps = make_maps(tiny_classifier(), [np.zeros((8, 32, 3), np.uint8)], [[1]], settings)[0]
    assert maps.plain[0, 4, [0, -1]].tolist() == [0, 1]  # patches 0, 1, 2, 3
    inner = maps.refined[0, 4, [3, 11, 19, 27]]  # patches 0, 0, 0, 1 after two steps to the right
    assert inner.tolist() == pytest.approx([0, 0, 0, 1], abs=0.07)


def test_default_size_follows_the_training_crops(
    bright: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def spy(model: Any, images: Tensor, classes: Any, **options: Any) -> Any:
        seen.append(tuple(images.shape[-2:]))
        return bright_maps(model, images, classes)

    monkeypatch.setattr(module, "localize_both", spy)
    make_maps(bright, [square(50, 100, 8, 8)], [[0]], MapSettings(flip=False))
    assert seen == [(40, 80)]  # 1.25 × 64 on the long side


def test_predicted_classes() -> None:
    model = tiny_classifier(classes=3).eval()
    with torch.no_grad():
        model.vit.head.weight.zero_()
        model.vit.head.bias.copy_(torch.tensor([2.0, -1.0, 1.0]))
    image = np.zeros((32, 40, 3), np.uint8)
    assert predicted_classes(model, image, MapSettings()) == [0, 2]
    assert predicted_classes(model, image, MapSettings(), above=0.95) == [0]
    assert isinstance(model, Classifier)


def test_a_square_shape_squeezes_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[tuple[int, ...]] = []

    def keep(
        model: Any, images: Tensor, classes: Any, **_: Any
    ) -> tuple[list[Tensor], list[Tensor]]:
        sizes.append(tuple(images.shape[-2:]))
        return bright_maps(model, images, classes)

    monkeypatch.setattr("tagmask.inference.maps.localize_both", keep)
    image = square(32, 64, top=0, left=16)
    for shape in (None, "square"):
        settings = MapSettings(size=64, flip=False, scales=(1.0, 0.5), shape=shape)
        made = make_maps(tiny_classifier(), [image], [[0]], settings)[0]
        assert made.plain.shape == (1, 32, 64)
    assert sizes == [(32, 64), (16, 32), (64, 64), (32, 32)]


@pytest.mark.parametrize(
    "changes",
    [
        {"layers": 1},
        {"centre": True},
        {"transpose": True},
        {"affinity_steps": 2},
        {"affinity_blocks": (1, 2)},
        {"method": "generic"},
    ],
    ids=str,
)
def test_every_setting_reaches_the_localisation(changes: dict[str, Any]) -> None:
    """Maps of an image of whole patches are those of the localisation, stretched; and the setting changes them."""
    model = tiny_classifier()
    image = np.random.default_rng(0).integers(0, 256, (32, 40, 3), np.uint8)
    tensor = model.normalize(torch.from_numpy(image).permute(2, 0, 1)[None].float() / 255)
    options: dict[str, Any] = dict(changes)
    if "affinity_blocks" in options:
        options["affinity_blocks"] = range(1, 3)
    if "method" in options:
        options["method"] = METHODS["generic"].maps
    settings = MapSettings(size=40, flip=False)
    default = make_maps(model, [image], [[0, 2]], settings)[0].refined
    made = make_maps(model, [image], [[0, 2]], dataclasses.replace(settings, **changes))[0]
    for maps, expected in zip(
        (made.plain, made.refined), localize_both(model, tensor, [[0, 2]], **options), strict=True
    ):
        pixels = torch.nn.functional.interpolate(
            expected[0][None].detach(), (32, 40), mode="bilinear"
        )[0]
        np.testing.assert_allclose(maps, stretch(pixels).numpy(), atol=1e-5)
    assert np.abs(made.refined - default).max() > 0.01


@pytest.mark.parametrize("shape", [(40, 64), (24, 17)])
def test_photos_at_their_own_size(shape: tuple[int, int]) -> None:
    """MCTformer's way: nothing is resized, and the padding to whole patches is at right and bottom."""
    height, width = shape
    picture = torch.rand(1, 3, height, width)
    settings = MapSettings(shape="own", flip=False)
    (view,) = module.views(Bright(), picture, settings)  # type: ignore[arg-type]
    assert view.inner == shape
    torch.testing.assert_close(view.images[..., :height, :width], picture)
    assert view.images.shape[-2:] == (-(-height // 8) * 8, -(-width // 8) * 8)
    assert not view.images[..., height:, :].any()
    assert not view.images[..., width:].any()
    twice = MapSettings(shape="own", scales=(2.0,), flip=False)
    (larger,) = module.views(Bright(), picture, twice)  # type: ignore[arg-type]
    assert larger.inner == (2 * height, 2 * width)
    assert MapSettings(shape="own", size=64).mistakes() == [
        "--shape own sees photos at their own size; leave out --size 64."
    ]
