"""The seeds of one image on a sheet: its maps without and with affinity, and the labels they lead to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from tagmask.errors import TagmaskError
from tagmask.show.overlay import (
    UNSURE,
    Mask,
    Palette,
    check_map,
    check_mask,
    check_same_size,
    heat_overlay,
    legend,
    mask_overlay,
)
from tagmask.show.sheet import Picture, check_picture, font_size, resize, sheet, shown_size

Maps = npt.NDArray[np.floating[Any]] | npt.NDArray[np.uint8]  # (k, H, W) in [0, 1]; uint8 v means v/255
Cell = tuple[str, Picture]

PER_ROW = 5  # classes beside each other


def seed_sheet(
    image: Picture,
    class_names: Sequence[str],
    maps_plain: Maps,
    maps_refined: Maps | None = None,
    mask: Mask | None = None,
    palette: Palette | None = None,
    threshold: float | tuple[float, float] | None = None,
    labels: Sequence[int] | None = None,
    title: str = "",
) -> Picture:
    """One sheet (H', W', 3): the image, each class's map without affinity, below it the one with affinity.

    image: (H, W, 3). class_names: of the k maps. maps_plain, maps_refined: (k, H, W) in [0, 1].
    mask: the truth (H, W), shown if given. palette: (labels, 3), by default PASCAL VOC's.
    threshold: of the background; with it the label maps are shown, too. Two numbers: without, with affinity.
    labels: of the classes in `mask` and `palette`, e.g. class id + 1; by default 1 … k.
    """
    picture = check_picture(image)
    numbers = _check_labels(class_names, labels)
    kinds = [("", maps_plain)] if maps_refined is None else [("", maps_plain), (" + affinity", maps_refined)]
    heats, answers = [], []
    for (kind, maps), limit in zip(kinds, _limits(threshold), strict=False):
        _check_maps(picture, maps, len(class_names), kind)
        heats.append([(name + kind, shown_heat(picture, map)) for name, map in zip(class_names, maps, strict=True)])
        if limit is not None:
            guess = label_at(maps, numbers, limit)
            answers.append((f"labels{kind} at {limit:g}", shown_mask(picture, guess, palette)))
    truth = [] if mask is None else [("truth", shown_mask(picture, mask, palette))]
    size = shown_size(*picture.shape[:2])
    rows = _arranged([("image", resize(picture, size)), *truth], heats, answers)
    body = sheet(rows, title)
    if not truth and not answers:
        return body
    names = dict(zip(numbers, class_names, strict=True))
    if mask is not None and (mask == UNSURE).any():
        names[UNSURE] = "unsure"
    return np.vstack([body, legend(names, palette, width=body.shape[1], size=font_size(size[0]))])


def label_at(maps: Maps, labels: Sequence[int], threshold: float) -> Mask:
    """(k, H, W) -> (H, W): the label of the highest map where it exceeds the threshold, else 0."""
    if not 0 <= threshold <= 1:
        raise TagmaskError(f"the threshold is {threshold}; give a value in 0 … 1, as the maps have.")
    values = check_map(maps, "maps")  # (k, H, W)
    winner = np.asarray(labels, np.uint8)[values.argmax(axis=0)]  # (H, W)
    return np.where(values.max(axis=0) > threshold, winner, np.uint8(0))


def shown_heat(image: Picture, map: npt.NDArray[Any]) -> Picture:
    """The heat overlay at the size at which pictures are shown; the map is interpolated between pixel centres."""
    check_same_size(image, map, "map")
    size = shown_size(*image.shape[:2])
    return heat_overlay(resize(image, size), resize_map(check_map(map), size))


def shown_mask(image: Picture, mask: Mask, palette: Palette | None = None) -> Picture:
    """The mask overlay at the size at which pictures are shown, so that outlines stay thin."""
    check_same_size(image, mask, "mask")
    size = shown_size(*image.shape[:2])
    enlarged = Image.fromarray(check_mask(mask)).resize(size[::-1], Image.Resampling.NEAREST)
    return mask_overlay(resize(image, size), np.asarray(enlarged), palette)


def resize_map(map: npt.NDArray[np.float64], size: tuple[int, int]) -> npt.NDArray[np.float64]:
    """(h, w) in [0, 1] -> size = (H, W), bilinear, borders aligned with borders."""
    resized = Image.fromarray(map.astype(np.float32)).resize(size[::-1], Image.Resampling.BILINEAR)
    return np.clip(np.asarray(resized, np.float64), 0, 1)


def _arranged(first: list[Cell], heats: list[list[Cell]], answers: list[Cell]) -> list[list[Cell]]:
    """Rows whose columns are: the image (below it the truth), one per class, the labels; wrapped after PER_ROW classes.

    heats: per kind, one cell per class. answers: per kind, the labels, or none.
    """
    blank = ("", np.full_like(first[0][1], 255))
    if len(heats) == 1:  # nothing stands below the image: the truth goes to the end, beside the labels
        first, answers = first[:1], [*answers, *first[1:]]
    heads = iter(first)
    rows = [
        [next(heads, blank), *cells[start : start + PER_ROW]]
        for start in range(0, len(heats[0]), PER_ROW)
        for cells in heats
    ]
    if len(heats) == 1:
        rows[-1] += answers
    else:
        for row, answer in zip(rows[-2:], answers, strict=False):
            row.append(answer)
    return rows


def _limits(threshold: float | tuple[float, float] | None) -> tuple[float | None, float | None]:
    if isinstance(threshold, tuple):
        return threshold
    return threshold, threshold


def _check_labels(class_names: Sequence[str], labels: Sequence[int] | None) -> list[int]:
    count = len(class_names)
    numbers = list(range(1, count + 1)) if labels is None else [int(label) for label in labels]
    if count == 0:
        raise TagmaskError("there is no class to show; give at least one name with its map.")
    if len(numbers) != count or len(set(numbers)) < count or not all(0 < label < UNSURE for label in numbers):
        raise TagmaskError(f"labels {numbers} for {count} classes; give each class its own label in 1 … 254.")
    return numbers


def _check_maps(image: Picture, maps: Maps, count: int, kind: str) -> None:
    wanted = (count, *image.shape[:2])
    if np.shape(maps) != wanted:
        raise TagmaskError(
            f"the maps{kind} have shape {np.shape(maps)}; for {count} class name(s) and this image give {wanted}: "
            "one map per name, resized to the image."
        )
    check_map(maps, f"maps{kind}")
