"""Comparison methods through the ordinary views and files, against a direct computation."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tagmask.acr.localize import localize, localize_both
from tagmask.config import MapSettings, TrainSettings
from tagmask.inference.maps import PhotoMaps, make_maps
from tagmask.methods import METHODS
from tagmask.reproduction.bench import by_method
from tagmask.reproduction.computation import map_speeds, mean_classes, per_class
from tagmask.reproduction.seed_tables import METHODS as TITLES
from tests.helpers import tiny_classifier
from tests.reproduction.small import small


def maps_by(
    model: Any, method: str, image: np.ndarray[Any, Any], classes: list[int], settings: MapSettings
) -> PhotoMaps:
    return make_maps(model, [image], [classes], by_method(settings, method))[0]


def picture(height: int, width: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def by_hand(
    name: str, image: np.ndarray[Any, Any], classes: list[int], affinity: bool, blocks: range | None
) -> Any:
    """The method itself on the image at its own size, enlarged, and stretched to [0, 1] by numpy."""
    model = tiny_classifier()
    tensor = torch.from_numpy(image).permute(2, 0, 1)[None].float() / 255
    with torch.no_grad():
        normal = model.normalize(tensor)
    options = {"affinity_blocks": blocks} if affinity else {}
    maps = localize(model, normal, [classes], METHODS[name].maps, affinity=affinity, **options)[0]
    large = (
        F.interpolate(maps[None], image.shape[:2], mode="bilinear", align_corners=False)[0]
        .detach()
        .numpy()
    )
    low, high = large.min((1, 2), keepdims=True), large.max((1, 2), keepdims=True)
    return (large - low) / np.maximum(high - low, 1e-30)


@pytest.mark.parametrize("name", TITLES)
@pytest.mark.parametrize("blocks", [None, (0, 1)])
def test_maps_are_those_of_the_method(name: str, blocks: tuple[int, int] | None) -> None:
    image, classes = picture(24, 40), [2, 0]  # 3 × 5 patches
    settings = MapSettings(size=40, flip=False, affinity_blocks=blocks)
    maps = maps_by(tiny_classifier(), name, image, classes, settings)
    chosen = range(blocks[0], blocks[1] + 1) if blocks else None
    np.testing.assert_allclose(maps.plain, by_hand(name, image, classes, False, None), atol=2e-4)
    np.testing.assert_allclose(maps.refined, by_hand(name, image, classes, True, chosen), atol=2e-4)


def test_mirrored_views_are_added(tmp_path: Path) -> None:
    image = picture(24, 40)
    model = tiny_classifier()
    straight = maps_by(model, "cam", image, [1], MapSettings(size=40))
    turned = maps_by(model, "cam", image[:, ::-1].copy(), [1], MapSettings(size=40))
    np.testing.assert_allclose(turned.plain, straight.plain[:, :, ::-1], atol=1e-5)


def test_settings_of_gradients_are_left_out_with_other_methods() -> None:
    settings = MapSettings(size=40, layers=3, centre=True)
    assert by_method(settings, "generic") == MapSettings(size=40, method="generic")
    assert by_method(settings, "acr") == settings


def test_one_backward_per_class_gives_the_same_maps() -> None:
    model = tiny_classifier().eval()
    images = torch.rand(1, 3, 24, 40)
    maps = per_class(model, images, [0, 2])
    _, refined = localize_both(model, images, [[0, 2]])
    torch.testing.assert_close(maps, refined[0].flatten(1), rtol=1e-4, atol=1e-7)
    assert all(parameter.grad is None for parameter in model.parameters())  # nothing is left behind


@pytest.mark.parametrize("layers", [1, 3])
def test_one_backward_per_class_uses_the_models_blocks(layers: int) -> None:
    model = tiny_classifier().eval()
    model.map_layers = layers
    images = torch.rand(1, 3, 24, 40)
    _, refined = localize_both(model, images, [[1]])
    maps = per_class(model, images, [1])
    torch.testing.assert_close(maps, refined[0].flatten(1), rtol=1e-4, atol=1e-7)


def test_speeds_are_of_three_ways(tmp_path: Path) -> None:
    from tagmask.data.scenes.catalog import Scenes

    settings = small(tmp_path, "computation").run(tmp_path, changes={"freeze": 2}).of(TrainSettings)
    threads = torch.get_num_threads()
    measured = map_speeds(settings, Scenes(2), 3)
    assert measured["size"] == 32
    speeds = measured["images_per_second"]
    assert speeds["ACR"] > speeds["ACR, one backward per class"] > 0
    assert speeds["MCTformer"] > 0
    assert torch.get_num_threads() == threads


def test_mean_number_of_classes() -> None:
    from tagmask.data.catalog import Catalog

    assert mean_classes(Catalog(["a", "b", "c"], ["x", "y"], [(0, 1, 2), (0, 1)])) == 2
    assert mean_classes(Catalog(["a", "b"], ["x", "y"], [(), ()])) == 1
