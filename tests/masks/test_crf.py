"""Dense CRF: against brute force over all pairs, against pydensecrf on photos, and by its symmetries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from tagmask.errors import TagmaskError
from tagmask.masks import crf, lattice
from tagmask.masks.crf import FINE, PRESETS, SEEDS, SEGMENTATION, CrfSettings, dense_crf
from tests.helpers import SHARED

PHOTOS = SHARED / "data" / "voc" / "JPEGImages"
Pixels = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def smooth_maps(labels: int, height: int, width: int, seed: int = 0) -> Floats:
    """(K, H, W) probabilities with a few soft areas."""
    rng = np.random.default_rng(seed)
    coarse = rng.normal(0, 2, (labels, 5, 6)).astype(np.float32)
    bicubic = Image.Resampling.BICUBIC
    scores = np.stack(
        [np.asarray(Image.fromarray(field).resize((width, height), bicubic)) for field in coarse]
    )
    return softmax(scores).astype(np.float32)


def softmax(scores: npt.NDArray[Any]) -> npt.NDArray[Any]:
    powers = np.exp(scores - scores.max(axis=0))
    return np.asarray(powers / powers.sum(axis=0))


def picture(height: int, width: int, seed: int = 0) -> Pixels:
    """A disc on a shaded ground, with noise."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:height, :width]
    inside = np.hypot(rows - height * 0.45, columns - width * 0.55) < min(height, width) * 0.3
    ground = np.stack([60 + 2 * columns % 90, 90 + rows, np.full_like(rows, 130)], axis=-1)
    image = np.where(inside[..., None], (210, 80, 60), ground) + rng.normal(
        0, 5, (height, width, 3)
    )
    return image.clip(0, 255).astype(np.uint8)


def photo(index: int, longest: int | None) -> Pixels:
    """The index-th photo, reduced to the longest side; None keeps its size."""
    if not PHOTOS.is_dir():
        pytest.skip(f"no photos at {PHOTOS}")
    file = sorted(PHOTOS.glob("*.jpg"))[37 * index]
    with Image.open(file) as opened:
        image = opened.convert("RGB")
    if longest:
        image.thumbnail((longest, longest))
    return np.array(image)


def by_pydensecrf(image: Pixels, probabilities: Floats, settings: CrfSettings) -> Floats:
    """The C++ answer."""
    peer = pytest.importorskip(
        "pydensecrf.densecrf", reason="pydensecrf2 is not installed (extra: oracle)"
    )
    labels, height, width = probabilities.shape
    model = peer.DenseCRF2D(width, height, labels)
    model.setUnaryEnergy(
        np.ascontiguousarray(-np.log(probabilities.clip(1e-5, 1))).reshape(labels, -1)
    )
    model.addPairwiseGaussian(sxy=settings.gaussian_sxy, compat=settings.gaussian_weight)
    model.addPairwiseBilateral(
        sxy=settings.bilateral_sxy,
        srgb=settings.bilateral_srgb,
        rgbim=image,
        compat=settings.bilateral_weight,
    )
    return np.array(model.inference(settings.iterations)).reshape(probabilities.shape)


def by_brute_force(
    image: Pixels, probabilities: Floats, settings: CrfSettings
) -> npt.NDArray[np.float64]:
    """Mean field with the kernels written out for all pairs, in float64."""
    labels, height, width = probabilities.shape
    places = np.indices((height, width)).reshape(2, -1).T.astype(np.float64)  # (N, 2)
    colours = image.reshape(-1, 3).astype(np.float64)  # (N, 3)
    near = square_distances(places)  # (N, N)
    kernel = settings.gaussian_weight * normalised(np.exp(-near / (2 * settings.gaussian_sxy**2)))
    alike = (
        near / settings.bilateral_sxy**2 + square_distances(colours) / settings.bilateral_srgb**2
    )
    kernel += settings.bilateral_weight * normalised(np.exp(-alike / 2))
    evidence = np.log(probabilities.reshape(labels, -1).astype(np.float64).clip(1e-5, 1))  # (K, N)
    refined = softmax(evidence)
    for _ in range(settings.iterations):
        refined = softmax(evidence + refined @ kernel)
    return refined.reshape(probabilities.shape)


def square_distances(points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.asarray(((points[:, None] - points[None]) ** 2).sum(axis=-1))


def normalised(kernel: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    sums = kernel.sum(axis=1)
    return np.asarray(kernel / np.sqrt(sums[:, None] * sums[None]))


@pytest.mark.parametrize("labels", [2, 4])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("sxy", "srgb"), [(80, 13), (12, 30)])
def test_brute_force_on_a_small_picture(sxy: float, srgb: float, seed: int, labels: int) -> None:
    """With weights so moderate that mean field has one solution.

    Under the presets' own, areas of doubtful labels can tip over as a whole, and the lattice is an approximation:
    there brute force and lattice, ours like pydensecrf's, may part in more than 10 % of so few pixels.
    """
    settings = CrfSettings(10, 3, 1, sxy, srgb, 2)
    image, probabilities = picture(24, 32, seed), smooth_maps(labels, 24, 32, seed)
    refined, expected = (
        dense_crf(image, probabilities, settings),
        by_brute_force(image, probabilities, settings),
    )
    assert (refined.argmax(axis=0) == expected.argmax(axis=0)).mean() >= 0.98
    assert np.abs(refined - expected).mean() <= 0.01


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("index", range(20))
def test_same_labels_as_pydensecrf_on_photos(index: int, preset: str) -> None:
    image = photo(index, longest=120 + 2 * index)
    probabilities = smooth_maps(2 + index % 3, image.shape[0], image.shape[1], seed=index)
    refined, expected = (
        solve(image, probabilities, PRESETS[preset]) for solve in (dense_crf, by_pydensecrf)
    )
    assert (refined.argmax(axis=0) == expected.argmax(axis=0)).mean() >= 0.999
    assert np.abs(refined - expected).mean() < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS)
def test_same_labels_as_pydensecrf_on_a_whole_photo(preset: str) -> None:
    image = photo(21, longest=None)
    probabilities = smooth_maps(3, *image.shape[:2])
    refined, expected = (
        solve(image, probabilities, PRESETS[preset]) for solve in (dense_crf, by_pydensecrf)
    )
    assert (refined.argmax(axis=0) == expected.argmax(axis=0)).mean() >= 0.999


def test_hard_and_many_labels_agree_with_pydensecrf() -> None:
    """21 labels, probabilities of 0 and 1: both ways clip alike."""
    image, soft = picture(60, 80), smooth_maps(21, 60, 80)
    hard = (soft == soft.max(axis=0)).astype(np.float32)
    for probabilities in (soft, hard):
        refined, expected = (
            solve(image, probabilities, SEEDS) for solve in (dense_crf, by_pydensecrf)
        )
        assert (refined.argmax(axis=0) == expected.argmax(axis=0)).mean() >= 0.999


def test_labels_follow_the_edge_of_the_image() -> None:
    """A map 4 pixels off the edge of two plain halves is put right, and the sum stays 1."""
    image = np.full((40, 60, 3), 50, np.uint8)
    image[:, 30:] = 200
    left = np.where(np.arange(60) < 34, 0.7, 0.3) * np.ones((40, 1))
    refined = dense_crf(image, np.stack([left, 1 - left]))
    assert refined.dtype == np.float32
    np.testing.assert_array_equal(refined.argmax(axis=0)[20], np.arange(60) >= 30)
    np.testing.assert_allclose(refined.sum(axis=0), 1, atol=1e-6)


@pytest.mark.parametrize("labels", [2, 5, 21])
def test_order_of_labels_does_not_matter(labels: int) -> None:
    image, probabilities = picture(30, 44), smooth_maps(labels, 30, 44)
    order = np.random.default_rng(1).permutation(labels)
    np.testing.assert_allclose(
        dense_crf(image, probabilities[order]), dense_crf(image, probabilities)[order], atol=1e-4
    )


def test_no_kernel_leaves_the_normalised_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    """And builds none."""
    monkeypatch.setattr(
        crf, "gaussian_kernel", lambda *_: pytest.fail("a kernel of weight 0 was built")
    )
    image, probabilities = picture(12, 15), smooth_maps(3, 12, 15) / 2
    for settings in (
        CrfSettings(gaussian_weight=0, bilateral_weight=0),
        replace(SEEDS, iterations=0),
    ):
        np.testing.assert_allclose(
            dense_crf(image, probabilities, settings), probabilities * 2, rtol=1e-4
        )


@pytest.mark.parametrize("name", ["gaussian_weight", "bilateral_weight"])
def test_a_kernel_of_weight_0_is_the_limit_of_small_weights(name: str) -> None:
    image, probabilities = picture(20, 26), smooth_maps(3, 20, 26)
    weights: list[dict[str, Any]] = [{name: 0.0}, {name: 1e-5}]
    none, little = (dense_crf(image, probabilities, replace(SEEDS, **weight)) for weight in weights)
    np.testing.assert_allclose(none, little, atol=1e-3)
    assert np.abs(none - dense_crf(image, probabilities)).max() > 0.01


def test_one_iteration_by_hand() -> None:
    """Two pixels far apart: each hears only itself, and the kernel's diagonal is its weight."""
    image = np.array([[[0, 0, 0], [255, 255, 255]]], np.uint8)
    settings = CrfSettings(
        1, gaussian_weight=0, bilateral_sxy=0.01, bilateral_srgb=1, bilateral_weight=2
    )
    p = np.array([0.8, 0.3])
    odds = p / (1 - p) * np.exp(2 * (p - (1 - p)))
    refined = dense_crf(image, np.stack([p, 1 - p])[:, None], settings)
    np.testing.assert_allclose(refined[0, 0], odds / (1 + odds), rtol=1e-4)


def test_plain_image_smooths_by_place_alone() -> None:
    """A colour that is everywhere alike does not count: any plain image gives the same, and noise goes away."""
    noisy = np.full((30, 40), 0.7)
    noisy[10, 10] = 0.2
    probabilities = np.stack([noisy, 1 - noisy])
    refined = [
        dense_crf(np.full((30, 40, 3), value, np.uint8), probabilities) for value in (0, 128)
    ]
    assert (refined[0].argmax(axis=0) == 0).all()
    np.testing.assert_allclose(refined[0], refined[1], atol=0.02)
    alone = dense_crf(
        np.zeros((30, 40, 3), np.uint8), probabilities, replace(SEEDS, gaussian_weight=0)
    )
    assert np.isfinite(alone).all()


@pytest.mark.parametrize("shape", [(1, 1), (1, 37), (37, 1), (2, 3)])
@pytest.mark.parametrize("labels", [1, 2, 7])
def test_any_size_and_number_of_labels(shape: tuple[int, int], labels: int) -> None:
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (*shape, 3), np.uint8)
    probabilities = rng.dirichlet(np.ones(labels), shape).transpose(2, 0, 1)
    refined = dense_crf(image, probabilities)
    assert refined.shape == (labels, *shape)
    np.testing.assert_allclose(refined.sum(axis=0), 1, atol=1e-6)
    if labels > 1:
        expected = by_brute_force(image, probabilities.astype(np.float32), SEEDS)
        assert np.abs(refined - expected).mean() < 0.03


def test_grey_is_three_equal_channels() -> None:
    grey, probabilities = picture(20, 30)[..., 0], smooth_maps(2, 20, 30)
    coloured = np.stack([grey] * 3, axis=-1)
    np.testing.assert_array_equal(
        dense_crf(grey, probabilities), dense_crf(coloured, probabilities)
    )


def test_same_input_same_bits() -> None:
    image, probabilities = picture(40, 50), smooth_maps(6, 40, 50)
    image.flags.writeable = probabilities.flags.writeable = False
    first = dense_crf(image, probabilities)
    crf._smoothness.cache_clear()
    np.testing.assert_array_equal(dense_crf(image, probabilities), first)
    np.testing.assert_array_equal(dense_crf(np.asfortranarray(image), probabilities), first)


IMAGE, MAPS = np.zeros((4, 5, 3), np.uint8), np.full((2, 4, 5), 0.5, np.float32)


@pytest.mark.parametrize(
    ("image", "probabilities", "message"),
    [
        (IMAGE.astype(np.float32), MAPS, r"image is float32 of shape \(4, 5, 3\); give uint8"),
        (
            np.zeros((4, 5, 4), np.uint8),
            MAPS,
            r"shape \(4, 5, 4\); give uint8 of shape \(H, W, 3\)",
        ),
        (IMAGE, MAPS[:, :3], r"shape \(2, 3, 5\) and the image \(4, 5, 3\)"),
        (IMAGE, MAPS[0], r"give \(labels, H, W\)"),
        (IMAGE, MAPS[:0], "at least one label"),
        (IMAGE, MAPS * 6, "between 3.0 and 3.0; give numbers from 0 to 1"),
        (IMAGE, MAPS * np.nan, "between nan and nan"),
        (IMAGE, -MAPS, "between -0.5 and -0.5"),
    ],
)
def test_bad_input_is_refused(image: Any, probabilities: Any, message: str) -> None:
    with pytest.raises(TagmaskError, match=message):
        dense_crf(image, probabilities)


@pytest.mark.parametrize(("shape", "labels"), [((23, 37), 2), ((40, 17), 5), ((9, 31), 12)])
@pytest.mark.parametrize("preset", PRESETS)
def test_torch_gives_the_same(shape: tuple[int, int], labels: int, preset: str) -> None:
    image, maps = picture(*shape), smooth_maps(labels, *shape)
    expected, refined = (
        dense_crf(image, maps, replace(PRESETS[preset], device=device)) for device in (None, "cpu")
    )
    np.testing.assert_allclose(refined, expected, atol=2e-5)
    assert refined.dtype == np.float32


def test_bad_settings_are_reported_all_at_once() -> None:
    with pytest.raises(TagmaskError) as caught:
        CrfSettings(iterations=-1, gaussian_sxy=0, bilateral_weight=-2, bilateral_srgb=float("nan"))
    for part in (
        "iterations is -1",
        "gaussian_sxy is 0",
        "bilateral_weight is -2",
        "bilateral_srgb is nan",
    ):
        assert part in str(caught.value)


def test_deviations_too_small_to_count_are_refused() -> None:
    with pytest.raises(TagmaskError, match="give larger deviations"):
        dense_crf(
            picture(20, 20),
            smooth_maps(2, 20, 20),
            replace(SEEDS, bilateral_sxy=1e-3, bilateral_srgb=1e-3),
        )


def test_presets_are_those_of_the_field() -> None:
    assert CrfSettings(10, 3, 3, 80, 13, 10) == SEEDS == PRESETS["seeds"]
    assert CrfSettings(10, 3, 3, 67, 3, 4) == SEGMENTATION == PRESETS["segmentation"]
    assert CrfSettings(10, 1, 3, 67, 3, 4) == FINE == PRESETS["fine"]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_corners_surround_their_point(size: int) -> None:
    """Shares are a partition, and the corners so weighted meet in the point: checked in plain coordinates."""
    features = np.random.default_rng(size).normal(0, 3, (size, 500)).astype(np.float32)
    cells, rank, rest = lattice._simplices(features)
    assert (np.sort(rank, axis=0) == np.arange(size + 1)[:, None]).all()
    assert (cells.sum(axis=0) == 0).all()
    shares, _ = lattice._shares(rank, rest)  # (N, d+1)
    assert shares.min() > -1e-5
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-5)
    met = np.zeros(cells.shape)
    for remainder in range(size + 1):
        corner = cells * (size + 1) + remainder - (size + 1) * (rank > size - remainder)  # (d+1, N)
        assert (corner.sum(axis=0) == 0).all()
        met += corner * shares[:, remainder]
    np.testing.assert_allclose(met, lattice._lift(features), atol=1e-4)


def test_numbers_of_keys_are_those_of_unique() -> None:
    """Also where key and place do not fit into one integer."""
    rng = np.random.default_rng(0)
    for highest in (50, 2**40, 2**62):
        keys = rng.integers(0, highest, 300)[rng.integers(0, 300, 2000)]
        number, distinct = lattice._ranked(keys)
        expected, inverse = np.unique(keys, return_inverse=True)
        np.testing.assert_array_equal(distinct, expected)
        np.testing.assert_array_equal(number, inverse)


def test_neighbours_on_the_lattice_are_found_by_their_coordinates() -> None:
    """The blur of 3 features against a dictionary of coordinates."""
    size = 3
    features = np.random.default_rng(2).normal(0, 1.5, (size, 200)).astype(np.float32)
    cells, rank, rest = lattice._simplices(features)
    strides = lattice._strides(cells)
    shares, axes = lattice._shares(rank, rest)
    number, vertices = lattice._numbered(
        lattice._keys(cells, axes, strides), shares.shape
    )  # (N, d+1), (M,)
    places: dict[tuple[int, ...], int] = {}
    for remainder in range(size + 1):
        corner = cells * (size + 1) + remainder - (size + 1) * (rank > size - remainder)
        places.update(
            zip(map(tuple, corner.T.tolist()), number[:, remainder].tolist(), strict=True)
        )
    assert sorted(places.values()) == list(range(len(vertices)))
    for axis in range(size + 1):
        step = np.full(size + 1, -1)
        step[axis] = size
        expected = np.eye(len(vertices))
        for place, row in places.items():
            for other in (
                tuple((np.array(place) + step).tolist()),
                tuple((np.array(place) - step).tolist()),
            ):
                if other in places:
                    expected[row, places[other]] = 0.5
        np.testing.assert_array_equal(lattice._blur(vertices, strides, axis).toarray(), expected)
