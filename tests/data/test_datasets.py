"""What all datasets share; the samples themselves are tested with the networks that train on them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tagmask.config import AffinitySettings
from tagmask.data.catalog import Catalog
from tagmask.data.datasets import PseudoDataset, RegionDataset, SquareDataset, TagDataset
from tagmask.data.images import write_mask
from tagmask.errors import TagmaskError

GREY = (0.5, 0.5, 0.5)


def photos(folder: Path, count: int = 5) -> Catalog:
    """White 20×16 photos, number 1 broken, each with a label that is class 1 all over."""
    files = [folder / f"{i}.png" for i in range(count)]
    for i, file in enumerate(files):
        Image.new("RGB", (20, 16), "white").save(file)
        write_mask(folder / f"labels/{i}.png", np.ones((16, 20), np.uint8))
    files[1].write_bytes(b"not a photo")
    return Catalog(["a"], [str(i) for i in range(count)], [[0]] * count, images=files)


def datasets(catalog: Catalog, folder: Path) -> list[Any]:
    labels = folder / "labels"
    settings = AffinitySettings(pretrained=False, size=24, seed=7)
    return [
        TagDataset(catalog, 8, 0.5, seed=7),
        PseudoDataset(catalog, labels, 24, (0.5, 1.5), GREY, seed=7),
        RegionDataset(catalog, labels, settings, GREY),
    ]


def test_a_broken_image_is_replaced_by_the_next_and_reported(tmp_path: Path) -> None:
    for data in datasets(photos(tmp_path), tmp_path):
        assert len(data) == 5
        assert [int(data[(0, i)]["broken"]) for i in range(5)] == [-1, 1, -1, -1, -1]
        for name, value in data[(9, 1)].items():
            assert name == "broken" or torch.equal(value, data[(9, 2)][name])
    square = SquareDataset(photos(tmp_path), 8)
    assert [int(square[i]["broken"]) for i in range(3)] == [-1, 1, -1]
    assert [float(square[i]["images"].mean()) for i in range(3)] == [1, 0, 1]


def test_nothing_usable_is_an_error_that_names_the_first_reason(tmp_path: Path) -> None:
    catalog = photos(tmp_path).subset([1])
    for data in datasets(catalog, tmp_path):
        with pytest.raises(
            TagmaskError, match=r"1 images in a row cannot be used; the first error: .*1\.png"
        ):
            data[(0, 0)]


def test_one_fixed_scale_is_applied(tmp_path: Path) -> None:
    settings = AffinitySettings(pretrained=False, size=24, scales=(0.5, 0.5), jitter=0.0)
    sample = RegionDataset(photos(tmp_path), tmp_path / "labels", settings, GREY)[(0, 0)]
    assert int((sample["images"][0] == 1).sum()) == 10 * 8  # half of 20×16
