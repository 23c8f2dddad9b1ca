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
from tagmask.layout import label_file
from tagmask.scoring.sweep import StoredMaps
from tagmask.show.overlay import check_map, check_mask, check_same_size, heat_overlay, mask_overlay
from tagmask.show.sheet import (
    Cell,
    Picture,
    check_picture,
    in_rows,
    resize,
    save_picture,
    sheet,
    shown_size,
)

PER_ROW = 5  # classes side by side


def seed_sheet(
    image: Picture,
    class_names: Sequence[str],
    plain: StoredMaps,
    refined: StoredMaps,
) -> Picture:
    """Draw a sheet: the image, each class's map without affinity, below it the one with affinity.

    Args:
        image: uint8 (H, W, 3).
        class_names: k names, at least one.
        plain: maps without affinity, (k, H, W) in [0, 1].
        refined: maps with affinity, (k, H, W) in [0, 1].

    Returns:
        The sheet, uint8 (H', W', 3).

    Raises:
        TagmaskError: there is no class, or an argument has another form or size.
    """
    picture = check_picture(image)
    if not class_names:
        raise TagmaskError("there is no class to show; give at least one name with its map.")
    height, width, _ = picture.shape
    expected = (len(class_names), height, width)
    kinds = {"": plain, " + affinity": refined}
    for kind, maps in kinds.items():
        if np.shape(maps) != expected:
            raise TagmaskError(
                f"the maps{kind} have shape {np.shape(maps)}; for {len(class_names)} class name(s) "
                f"and this image give {expected}: one map per name, resized to the image."
            )
        check_map(maps, f"maps{kind}")
    small = resize(picture, shown_size(height, width))
    blank = np.full_like(small, 255)
    rows: list[list[Cell]] = []
    for start in range(0, len(class_names), PER_ROW):
        end = start + PER_ROW
        names = class_names[start:end]
        for kind, maps in kinds.items():
            row = [("", blank) if rows else ("image", small)]
            for name, map in zip(names, maps[start:end], strict=True):
                row.append((name + kind, shown_heat(picture, map)))
            rows.append(row)
    return sheet(rows)


def show_regions(
    catalog: Catalog,
    folder: Path,
    path: Path,
    count: int = 8,
) -> None:
    """Write a sheet of images beside their confident regions; nothing if there are none.

    Args:
        catalog: the images with their tags.
        folder: the regions, in the layout of pseudo labels.
        path: the PNG file.
        count: how many images to show, the first that can be read.
    """
    cells: list[Cell] = []
    for i in range(len(catalog)):
        try:
            image = catalog.load_image(i)
            file = label_file(folder, catalog.name(i))
            labels = read_mask(file, len(catalog.classes))
        except TagmaskError:
            continue
        names = ", ".join(catalog.classes[tag] for tag in catalog.tags(i))
        cells.append((names, image))
        cells.append(("confident", mask_overlay(image, labels)))
        if len(cells) == 2 * count:
            break
    if cells:
        save_picture(path, sheet(in_rows(cells, 4)))


def label_at(maps: StoredMaps, labels: Sequence[int], threshold: float) -> Mask:
    """Return the label of the highest map where it exceeds the threshold, else 0.

    Args:
        maps: (k, H, W) in [0, 1].
        labels: the label of each map, k numbers.
        threshold: 0 … 1.

    Returns:
        The labels, uint8 (H, W).

    Raises:
        TagmaskError: the threshold or the maps have another range.
    """
    if not 0 <= threshold <= 1:
        raise TagmaskError(
            f"the threshold is {threshold}; give a value in 0 … 1, as the maps have."
        )
    values = check_map(maps, "maps")  # (k, H, W)
    winner = np.asarray(labels, np.uint8)[values.argmax(axis=0)]  # (H, W)
    is_class = values.max(axis=0) > threshold
    return np.where(is_class, winner, np.uint8(0))


def shown_heat(
    image: Picture,
    map: npt.NDArray[Any],
    size: tuple[int, int] | None = None,
) -> Picture:
    """Lay a map over its image at the size at which it is shown.

    Args:
        image: uint8 (H, W, 3).
        map: (H, W) in [0, 1], or uint8 for 0 … 255.
        size: (height, width) of the result; by default that of pictures on a sheet.

    Returns:
        The picture, uint8 (height, width, 3).

    Raises:
        TagmaskError: the map has another form, size or range.
    """
    check_same_size(image, map, "map")
    size = size or shown_size(*image.shape[:2])
    values = resize_map(check_map(map), size)
    return heat_overlay(resize(image, size), values)


def shown_mask(
    image: Picture,
    mask: Mask,
    size: tuple[int, int] | None = None,
) -> Picture:
    """Lay a mask over its image at the size at which it is shown, so that outlines stay thin.

    Args:
        image: uint8 (H, W, 3).
        mask: uint8 labels (H, W).
        size: (height, width) of the result; by default that of pictures on a sheet.

    Returns:
        The picture, uint8 (height, width, 3).

    Raises:
        TagmaskError: the mask has another form or size.
    """
    check_same_size(image, mask, "mask")
    size = size or shown_size(*image.shape[:2])
    labels = Image.fromarray(check_mask(mask))
    resized = labels.resize(size[::-1], Image.Resampling.NEAREST)
    return mask_overlay(resize(image, size), np.asarray(resized))


def resize_map(map: npt.NDArray[np.float64], size: tuple[int, int]) -> npt.NDArray[np.float64]:
    """Resize a map bilinearly, borders aligned with borders.

    Args:
        map: (h, w) in [0, 1].
        size: (H, W) of the result.

    Returns:
        The map, (H, W) in [0, 1].
    """
    values = Image.fromarray(map.astype(np.float32))
    resized = values.resize(size[::-1], Image.Resampling.BILINEAR)
    return np.clip(np.asarray(resized, np.float64), 0, 1)
