"""The built-in scenes: the same everywhere, exactly masked, and hard in the ways they are meant to be."""

import pickle
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from tagmask.data.scenes.catalog import CLASSES, CODES, Layout, Scene, Scenes, draw_scene, lay_out
from tagmask.data.scenes.grounds import noise_table
from tagmask.data.scenes.objects import FAVOURITES, area, disc
from tagmask.errors import TagmaskError


@cache
def layouts() -> tuple[Layout, ...]:
    return tuple(lay_out(index, seed=3) for index in range(600))


@cache
def scenes() -> tuple[Scene, ...]:
    return tuple(draw_scene(index, seed=3) for index in range(200))


def test_same_seed_and_index_give_the_same_bytes() -> None:
    first, again = draw_scene(5, seed=1), draw_scene(5, seed=1)
    assert first.image.tobytes() == again.image.tobytes()
    assert first.mask.tobytes() == again.mask.tobytes()
    assert first.tags == again.tags


def test_another_index_or_seed_gives_another_picture() -> None:
    pictures = {draw_scene(i, seed=s).image.tobytes() for i in range(10) for s in range(3)}
    assert len(pictures) == 30


def test_first_scenes_never_change() -> None:
    names = [[CLASSES[tag] for tag in draw_scene(index).tags] for index in range(4)]
    assert names == [["mushroom"], ["mushroom", "clock"], ["boat"], ["clock"]]


@pytest.mark.slow
def test_types_and_sizes() -> None:
    for scene in scenes()[:20]:
        height, width = scene.mask.shape
        assert scene.image.shape == (height, width, 3)
        assert scene.image.dtype == scene.mask.dtype == np.uint8
        assert max(height, width) == 96
        assert 62 <= min(height, width) <= 96
    shapes = {scene.mask.shape for scene in scenes()}
    assert any(height > width for height, width in shapes)
    assert any(height < width for height, width in shapes)


def test_larger_pictures_keep_their_proportions() -> None:
    scene = draw_scene(0, size=224)
    assert max(scene.mask.shape) == 224
    assert scene.tags == tuple(np.unique(scene.mask)[1:] - 1)


@pytest.mark.slow
def test_tags_are_the_classes_of_the_mask_and_well_visible() -> None:
    for scene in scenes():
        counts = np.bincount(scene.mask.ravel(), minlength=len(CLASSES) + 1)
        assert scene.tags == tuple(np.flatnonzero(counts[1:]))
        assert 1 <= len(scene.tags) <= 3
        assert counts[1:][list(scene.tags)].min() >= 0.015 * scene.mask.size
        assert counts[0] > 0.1 * scene.mask.size


def test_mask_is_the_majority_of_each_pixels_quarters() -> None:
    layout = lay_out(2, seed=3)
    codes, mask = np.asarray(layout.canvas), layout.mask
    labels = [0, *(thing.label + 1 for thing in layout.things)]
    for y, x in np.random.default_rng(0).integers(0, min(mask.shape), size=(300, 2)):
        owners = [
            -(-int(code) // CODES) for code in codes[2 * y : 2 * y + 2, 2 * x : 2 * x + 2].ravel()
        ]
        winner = max(range(len(labels)), key=lambda k: (owners.count(k), k))
        assert mask[y, x] == labels[winner]


def test_mask_fits_the_picture() -> None:
    """Colour changes along the mask's edges, far more than elsewhere."""
    at_edges, elsewhere = [], []
    for scene in scenes()[:50]:
        steps = np.abs(np.diff(scene.image.astype(float), axis=1)).mean(axis=2)  # (H, W - 1)
        edge = np.diff(scene.mask.astype(int), axis=1) != 0
        at_edges.append(steps[edge].mean())
        elsewhere.append(steps[~edge].mean())
    assert np.mean(at_edges) > 2.5 * np.mean(elsewhere)


@pytest.mark.slow
def test_every_class_occurs_about_equally_often() -> None:
    counts = np.bincount(
        [tag for layout in layouts() for tag in layout.tags], minlength=len(CLASSES)
    )
    mean = counts.mean()
    assert 1.4 < mean * len(CLASSES) / len(layouts()) < 2.2
    assert counts.min() > 0.7 * mean
    assert counts.max() < 1.3 * mean


@pytest.mark.slow
@pytest.mark.parametrize("label", range(len(CLASSES)), ids=CLASSES)
def test_class_part_is_small(label: int) -> None:
    shares = []
    for layout in layouts():
        codes, front = np.asarray(layout.canvas), len(layout.things) - 1
        if layout.things[front].label == label:  # the last one is covered by nothing
            inside = (codes > front * CODES) & (codes <= (front + 1) * CODES)
            shares.append((codes[inside] != front * CODES + 1).mean())
    assert len(shares) > 20
    assert 0.1 < np.mean(shares) < 0.28
    assert min(shares) > 0.05
    assert max(shares) < 0.35


def _body_colour_samples() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    colours, labels = [], []
    for layout, scene in zip(layouts(), scenes(), strict=False):
        codes = np.asarray(layout.canvas)[::2, ::2]
        for k, thing in enumerate(layout.things):
            colours.append(scene.image[codes == k * CODES + 1].mean(axis=0))
            labels.append(thing.label)
    return np.array(colours), np.array(labels)


def test_body_colour_hints_at_the_class_but_does_not_tell_it() -> None:
    colours, labels = _body_colour_samples()
    half = len(labels) // 2
    gaps = np.linalg.norm(colours[half:, None] - colours[:half], axis=2)  # 1-nearest neighbour
    right = (labels[:half][gaps.argmin(axis=1)] == labels[half:]).mean()
    assert 0.2 < right < 0.7  # chance is 0.10


def test_a_body_differs_from_what_is_around_it_more_than_from_itself() -> None:
    closer = []
    for layout, scene in zip(layouts(), scenes(), strict=False):
        codes = np.asarray(layout.canvas)[::2, ::2]
        rows, columns = np.nonzero(codes == 1)
        left = columns < np.median(columns)
        halves = [scene.image[rows[side], columns[side]].mean(axis=0) for side in (left, ~left)]
        outside = scene.image[codes == 0].mean(axis=0)
        closer.append(np.linalg.norm(halves[0] - halves[1]) < np.linalg.norm(halves[0] - outside))
    assert np.mean(closer) > 0.9


def test_background_goes_with_the_first_class() -> None:
    bonded = [layout.ground == FAVOURITES[CLASSES[layout.things[0].label]] for layout in layouts()]
    assert 0.31 < np.mean(bonded) < 0.45  # 0.3, and one in nine of the others by chance
    assert len({layout.ground for layout in layouts()}) == 9


def test_objects_cover_each_other() -> None:
    """A later object takes quarters from an earlier one in a good part of the scenes with several."""
    touching = several = 0
    for layout in layouts():
        if len(layout.things) > 1:
            several += 1
            owner = -(-np.asarray(layout.canvas).astype(int) // CODES)
            pairs = np.sort(np.stack([owner[:, 1:].ravel(), owner[:, :-1].ravel()]), axis=0)
            touching += bool(((pairs[0] > 0) & (pairs[0] != pairs[1])).any())
    assert several > 0.5 * len(layouts())
    assert 0.25 < touching / several < 0.95


def test_sometimes_two_objects_share_a_class() -> None:
    repeated = np.mean([len(layout.things) > len(layout.tags) for layout in layouts()])
    assert 0.05 < repeated < 0.3


def test_catalog() -> None:
    catalog = Scenes(12, seed=3)
    assert len(catalog) == 12
    assert catalog.classes == CLASSES
    assert catalog.name(7) == "scene_000007"
    assert catalog.has_masks
    for i in range(12):
        scene = draw_scene(i, seed=3)
        image, mask = catalog.load_pair(i)
        assert catalog.tags(i) == scene.tags
        np.testing.assert_array_equal(image, scene.image)
        np.testing.assert_array_equal(mask, scene.mask)
        np.testing.assert_array_equal(catalog.load_image(i), scene.image)
        np.testing.assert_array_equal(catalog.load_mask(i), scene.mask)


def test_subset_draws_the_right_scenes() -> None:
    part = Scenes(12, seed=3).subset([9, 4])
    np.testing.assert_array_equal(part.load_image(0), draw_scene(9, seed=3).image)
    np.testing.assert_array_equal(part.scene(1).mask, draw_scene(4, seed=3).mask)


def test_catalog_survives_pickling() -> None:
    catalog = Scenes(5, seed=2, size=64)
    again = pickle.loads(pickle.dumps(catalog))
    assert again.fingerprint() == catalog.fingerprint()
    np.testing.assert_array_equal(again.load_image(4), catalog.load_image(4))


def test_fingerprint_knows_seed_and_size() -> None:
    prints = {Scenes(3, seed=s, size=z).fingerprint() for s in (0, 1) for z in (64, 96)}
    assert len(prints) == 4


@pytest.mark.parametrize(
    "arguments", [{"index": -1}, {"index": 0, "seed": -1}, {"index": 0, "size": 16}]
)
def test_impossible_scenes_are_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(TagmaskError, match="at least 32 pixels"):
        draw_scene(**arguments)


def test_an_empty_catalog_is_refused() -> None:
    with pytest.raises(TagmaskError, match="1 or more"):
        Scenes(0)


def test_area_of_a_circle() -> None:
    assert area(disc(3, 4, 2)) == pytest.approx(4 * np.pi, rel=0.02)  # 24 corners: 1.1 % below


def test_noise_is_normal_in_scale_and_has_its_wavelength() -> None:
    table = noise_table(8.0, 8.0, 256)
    assert abs(table.mean()) < 0.02
    assert table.std() == pytest.approx(1, abs=0.05)
    power = np.abs(np.fft.rfft2(table)) ** 2
    frequency = np.hypot(np.fft.fftfreq(256)[:, None], np.fft.rfftfreq(256)[None])
    assert power[frequency > 3 / 8].sum() < 0.02 * power.sum()
