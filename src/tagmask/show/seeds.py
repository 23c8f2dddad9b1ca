"""Maps and masks at the size at which pictures are shown, and the seeds of one image on a sheet."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from tagmask.data.catalog import Catalog
from tagmask.data.images import read_mask
from tagmask.errors import TagmaskError
from tagmask.labels import Mask
from tagmask.pipeline.layout import label_file
from tagmask.show.overlay import check_map, check_mask, check_same_size, heat_overlay, mask_overlay
from tagmask.show.sheet import Picture, check_picture, resize, save_picture, sheet, shown_size

Maps = (
    npt.NDArray[np.floating[Any]] | npt.NDArray[np.uint8]
)  # (k, H, W) in [0, 1]; uint8 v means v/255

PER_ROW = 5  # classes side by side


def seed_sheet(image: Picture, class_names: Sequence[str], plain: Maps, refined: Maps) -> Picture:
    """One sheet (H', W', 3): the image, each class's map without affinity, below it the one with affinity.

    image: (H, W, 3). class_names: (k,). plain, refined: maps without and with affinity, (k, H, W) in [0, 1].
    """
    picture = check_picture(image)
    if not class_names:
        raise TagmaskError("there is no class to show; give at least one name with its map.")
    kinds, expected = {"": plain, " + affinity": refined}, (len(class_names), *picture.shape[:2])
    for kind, maps in kinds.items():
        if np.shape(maps) != expected:
            raise TagmaskError(
                f"the maps{kind} have shape {np.shape(maps)}; for {len(class_names)} class name(s) and this image give "
                f"{expected}: one map per name, resized to the image."
            )
        check_map(maps, f"maps{kind}")
    small = resize(picture, shown_size(*picture.shape[:2]))
    corner, blank = ("image", small), ("", np.full_like(small, 255))
    rows: list[list[tuple[str, Picture]]] = []
    for start in range(0, len(class_names), PER_ROW):
        for kind, maps in kinds.items():
            names = class_names[start : start + PER_ROW]
            heats = [shown_heat(picture, map) for map in maps[start : start + PER_ROW]]
            cells = [(name + kind, heat) for name, heat in zip(names, heats, strict=True)]
            rows.append([corner if not rows else blank, *cells])
    return sheet(rows)


def show_regions(catalog: Catalog, folder: Path, path: Path, count: int = 8) -> None:
    """Write the first ``count`` images that have confident regions, each beside them; nothing if there are none."""
    cells: list[tuple[str, Picture]] = []
    for i in range(len(catalog)):
        try:
            image = catalog.load_image(i)
            labels = read_mask(label_file(folder, catalog.name(i)), len(catalog.classes))
        except TagmaskError:
            continue
        names = ", ".join(catalog.classes[c] for c in catalog.tags(i))
        cells += [(names, image), ("confident", mask_overlay(image, labels))]
        if len(cells) == 2 * count:
            break
    if cells:
        save_picture(path, sheet([cells[start : start + 4] for start in range(0, len(cells), 4)]))


def label_at(maps: Maps, labels: Sequence[int], threshold: float) -> Mask:
    """(k, H, W) -> (H, W): the label of the highest map where it exceeds the threshold, else 0."""
    if not 0 <= threshold <= 1:
        raise TagmaskError(
            f"the threshold is {threshold}; give a value in 0 … 1, as the maps have."
        )
    values = check_map(maps, "maps")  # (k, H, W)
    winner = np.asarray(labels, np.uint8)[values.argmax(axis=0)]  # (H, W)
    return np.where(values.max(axis=0) > threshold, winner, np.uint8(0))


def shown_heat(
    image: Picture, map: npt.NDArray[Any], size: tuple[int, int] | None = None
) -> Picture:
    """The heat overlay at ``size`` = (height, width), by default that of pictures on a sheet."""
    check_same_size(image, map, "map")
    size = size or shown_size(*image.shape[:2])
    return heat_overlay(resize(image, size), resize_map(check_map(map), size))


def shown_mask(image: Picture, mask: Mask, size: tuple[int, int] | None = None) -> Picture:
    """The mask overlay at ``size`` = (height, width), by default that of pictures on a sheet; outlines stay thin."""
    check_same_size(image, mask, "mask")
    size = size or shown_size(*image.shape[:2])
    enlarged = Image.fromarray(check_mask(mask)).resize(size[::-1], Image.Resampling.NEAREST)
    return mask_overlay(resize(image, size), np.asarray(enlarged))


def resize_map(map: npt.NDArray[np.float64], size: tuple[int, int]) -> npt.NDArray[np.float64]:
    """(h, w) in [0, 1] -> size = (H, W), bilinear, borders aligned with borders."""
    resized = Image.fromarray(map.astype(np.float32)).resize(size[::-1], Image.Resampling.BILINEAR)
    return np.clip(np.asarray(resized, np.float64), 0, 1)
