"""Corrected masks from other tools: they become the corrections of a run, fixed labels for the next learning.

Label Studio  JSON export: brushes and polygons of the last annotation of a task that was not cancelled
CVAT          "CVAT for images 1.1": masks and polygons, the higher z-order on top
COCO          instances: the smaller object on top

What a person has left out of every region is background. A photo without any region counts as not corrected.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np
import numpy.typing as npt
from pycocotools import mask as coco_mask

from tagmask import layout
from tagmask.config import CorrectionSettings, check
from tagmask.data import corrections
from tagmask.data.catalog import Catalog
from tagmask.data.coco import MAX_SIDE, read_coco
from tagmask.data.folder import Tails, normal_path
from tagmask.data.images import strip_suffix
from tagmask.data.open import read_catalog
from tagmask.data.report import Mistakes, missing_note
from tagmask.data.tools import cvat_images, image_of, objects, pick
from tagmask.errors import ImageError, TagmaskError
from tagmask.exchange.label_studio import unpack
from tagmask.files import read_json
from tagmask.labels import Mask
from tagmask.runs.images import list_skipped

Painted = tuple[
    str, list[tuple[str, npt.NDArray[np.bool_]]]
]  # path of an image; class and region (H, W), top last


def import_corrections(settings: CorrectionSettings) -> str:
    """Write the corrections of every photo that has some in the file; returns a summary for the user."""
    check(settings)
    catalog, folder = read_catalog(settings), settings.out / layout.CORRECTIONS
    images = settings.images or Path()
    names = Tails(item.name for item in catalog)
    numbers = {item.name: item.index for item in catalog}
    changes = dict(corrections.read_tags(folder, catalog.classes, catalog.identity) or {})
    damaged: dict[str, str] = {}
    missing: list[str] = []
    done = 0
    for file, painted in _read(settings, catalog):
        found = names.find(strip_suffix(normal_path(file, images)))
        if len(found) != 1:
            missing.append(file)
            continue
        try:
            labels = _labels(painted, catalog, numbers[found[0]])
        except ImageError as error:
            damaged[found[0]] = str(error)
            continue
        corrections.write_labels(folder, found[0], labels)
        changes[found[0]] = _tag_change(labels, catalog, numbers[found[0]])
        done += 1
    if not done:
        raise TagmaskError(
            f"{settings.source} holds no corrected mask of these images; {_why(damaged, missing)}."
        )
    corrections.write_tags(folder, changes, catalog.classes, catalog.identity)
    lines = [*missing_note(missing), *list_skipped(damaged), f"{done} photos corrected in {folder}"]
    return "\n".join([*lines, "`tagmask run` learns from them."])


def _why(damaged: dict[str, str], missing: Sequence[str]) -> str:
    if damaged:
        return next(iter(damaged.values())).rstrip(".")
    return (
        f"the first was looked for as {missing[0]!r}"
        if missing
        else "annotate some and export again"
    )


def _labels(painted: Sequence[tuple[str, npt.NDArray[np.bool_]]], catalog: Catalog, i: int) -> Mask:
    shape = catalog.load_image(i).shape[:2]
    labels = np.zeros(shape, np.uint8)
    for name, region in painted:
        if region.shape != shape:
            raise ImageError(
                f'a region of "{catalog.name(i)}" is for {region.shape[1]}×{region.shape[0]} pixels, the photo has '
                f"{shape[1]}×{shape[0]}; annotate the photo itself."
            )
        labels[region] = (
            corrections.NOT_CORRECTED if name == "" else catalog.classes.index(name) + 1
        )
    return labels


def _tag_change(labels: Mask, catalog: Catalog, i: int) -> corrections.TagChange:
    """Tags follow the corrected mask."""
    seen = {
        catalog.classes[label - 1]
        for label in np.unique(labels).tolist()
        if 0 < label <= len(catalog.classes)
    }
    tags = {catalog.classes[tag] for tag in catalog.tags(i)}
    return corrections.TagChange(
        tuple(sorted(seen - tags)), tuple(sorted(tags - seen)) if seen else ()
    )


def _read(settings: CorrectionSettings, catalog: Catalog) -> Iterator[Painted]:
    """The photos of a file that have regions, all of known classes."""
    source = settings.source
    if source.suffix.lower() in (".xml", ".zip"):
        entries = ((image.get("name"), list(_cvat(image))) for image in cvat_images(source))
    elif isinstance(value := read_json(source), list):
        entries = (
            (image_of(pick(task, dict, "data")), list(_label_studio(task)))
            for task in objects(value)
        )
    else:
        if settings.images is None:
            raise TagmaskError(
                f"{source} is read as COCO, which needs --images; give the folder of the photos."
            )
        del value
        yield from _coco(settings.images, source, catalog)
        return
    mistakes = Mistakes(source)
    number = 0
    try:
        for number, (file, painted) in enumerate(entries, 1):
            _check_names([name for name, _ in painted], catalog, f"image {number}", mistakes)
            if file and painted:
                yield file, painted
    except (KeyError, TypeError, ValueError, OverflowError, IndexError, MemoryError) as error:
        fault = f"a region cannot be drawn ({error})"
        raise TagmaskError(
            f"{source}, image {number + 1}: {fault}; correct it and export again."
        ) from None


def _check_names(names: Sequence[str], catalog: Catalog, place: str, mistakes: Mistakes) -> None:
    for name in names:
        if name not in catalog.classes:
            mistakes.add(
                "class",
                place,
                f'"{name}" is no class of these images: {", ".join(catalog.classes[:8])}',
            )
    mistakes.raise_if_any()


def _coco(images: Path, source: Path, catalog: Catalog) -> Iterator[Painted]:
    objects_of = read_coco(images, source)
    if not objects_of.has_masks:
        raise TagmaskError(f"{source} has boxes only; export outlines or masks.")
    used = [objects_of.classes[c] for c in np.flatnonzero(objects_of.class_counts()).tolist()]
    _check_names(used, catalog, "categories", Mistakes(source))
    for i in range(len(objects_of)):
        mask = objects_of.load_mask(i)
        assert mask is not None
        names = {255: "", **{c + 1: name for c, name in enumerate(objects_of.classes)}}
        yield (
            objects_of.name(i),
            [(names[label], mask == label) for label in np.unique(mask).tolist() if label],
        )


def _label_studio(task: dict[str, Any]) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    kept = [
        entry
        for entry in objects(task.get("annotations"))
        if entry.get("was_cancelled") is not True
    ]
    for result in objects(kept[-1].get("result")) if kept else ():
        kind = pick(result, str, "type")
        if kind not in ("brushlabels", "polygonlabels"):
            continue
        shape = _shape(result.get("original_height"), result.get("original_width"))
        (name,) = result["value"][kind]
        if kind == "brushlabels":
            yield str(name), unpack(result["value"]["rle"], shape)
        else:
            points = (
                np.array(result["value"]["points"], float) / 100 * (shape[1], shape[0])
            )  # they are per cent
            yield str(name), _polygon(points, shape)


def _cvat(image: Element) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    shape = _shape(int(image.get("height", "0")), int(image.get("width", "0")))
    drawn = [shape_ for shape_ in image if shape_.tag in ("mask", "polygon")]
    for entry in sorted(drawn, key=lambda entry: int(entry.get("z_order", "0"))):
        name = entry.get("label", "")
        if entry.tag == "polygon":
            pairs = [point.split(",") for point in entry.get("points", "").split(";")]
            yield name, _polygon(np.array(pairs, float), shape)
            continue
        left, top, width, height = (
            int(entry.get(key, "-1")) for key in ("left", "top", "width", "height")
        )
        runs = np.array([int(run) for run in entry.get("rle", "").split(",")])
        inside = left >= 0 and top >= 0 and left + width <= shape[1] and top + height <= shape[0]
        if not inside or (runs < 0).any() or runs.sum() != width * height:
            raise ValueError("the run lengths of a mask do not fit its box, or the box the image")
        region = np.zeros(shape, bool)
        box = np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(
            height, width
        )  # the first run is outside
        region[top : top + height, left : left + width] = box
        yield name, region


def _polygon(points: npt.NDArray[np.float64], shape: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """The pixels in a polygon with corners (n, 2), x and y."""
    if points.ndim != 2 or len(points) < 3 or not (np.abs(points) <= 10 * MAX_SIDE).all():
        raise ValueError("a polygon needs three corners near the image")
    return (
        np.asarray(coco_mask.decode(coco_mask.frPyObjects([points.ravel().tolist()], *shape)))[
            ..., 0
        ]
        > 0
    )


def _shape(height: Any, width: Any) -> tuple[int, int]:
    if (
        type(height) is not int
        or type(width) is not int
        or not (0 < height <= MAX_SIDE and 0 < width <= MAX_SIDE)
    ):
        raise ValueError(f"the size {width}×{height} is not within 1 to {MAX_SIDE}")
    if height * width > 1 << 28:
        raise ValueError(f"the size {width}×{height} is too large")
    return height, width
