"""Exports from the page: every format of `tagmask export`, with what a person has corrected."""

import dataclasses
import os
import shutil
import zipfile
from collections.abc import Set
from pathlib import Path
from typing import Any

from tagmask import layout
from tagmask.config import ExportSettings
from tagmask.data.corrections import fix
from tagmask.data.images import write_mask
from tagmask.errors import TagmaskError
from tagmask.exchange.export import FORMATS, export_run
from tagmask.files import replacing
from tagmask.studio.versions import current_version
from tagmask.studio.view import RunView

FOLDER = "exports"
_SUFFIX = {
    "coco": ".json",
    "label-studio": ".json",
    "voc-test": ".tgz",
    "cvat": ".zip",
    "table": ".csv",
}
# groups of cards: their title, and formats with a title each
_GROUPS = {
    "To look at and to count": {"table": "Table", "overlays": "Pictures", "index": "Plain masks"},
    "To train networks": {
        "coco": "COCO",
        "voc": "Pascal VOC",
        "yolo-seg": "YOLO polygons",
        "ultralytics": "Ultralytics",
        "huggingface": "Hugging Face",
        "voc-test": "VOC server",
    },
    "To go on in another tool": {
        "label-studio": "Label Studio",
        "cvat": "CVAT",
        "labelme": "LabelMe",
        "xanylabeling": "X-AnyLabeling",
        "fiftyone": "FiftyOne",
        "datumaro": "Datumaro",
        "qupath": "QuPath",
        "napari": "napari",
        "geotiff": "GeoTIFF",
    },
}
# what a card says about a format; one without words has a card all the same
_WORDS = {
    "table": "A line per photo and class: pixels, cover, pieces, box, certainty. For spreadsheets.",
    "coco": "COCO instances, one file; read by most training code.",
    "voc": "Pascal VOC folders with palette PNGs.",
    "voc-test": "The archive that the VOC server takes.",
    "overlays": "Photos with their masks drawn in, to look at or to show.",
    "index": "PNGs whose pixel value is the class.",
    "ultralytics": "A data set for Ultralytics' semantic segmentation.",
    "yolo-seg": "Polygons for YOLO's instance segmentation.",
    "cvat": "Masks that CVAT imports.",
    "label-studio": "Tasks with brush masks for Label Studio.",
    "fiftyone": "A data set for FiftyOne, with maps.",
    "huggingface": "An imagefolder for Hugging Face datasets.",
    "xanylabeling": "Files beside the photos for X-AnyLabeling.",
    "geotiff": "GeoTIFFs with the place of the photos, for maps.",
    "labelme": "Files beside the photos for LabelMe.",
    "datumaro": "A data set that Datumaro turns into many other formats.",
    "qupath": "GeoJSON outlines for QuPath.",
    "napari": "Label images for napari.",
}
CARDS = {name: _WORDS.get(name, f"Masks for {name}.") for name in FORMATS}


def groups() -> list[dict[str, Any]]:
    """Return groups of cards: a title, and format, title and text of each card."""
    found = []
    left = dict(CARDS)
    for title, formats in _GROUPS.items():
        cards = [(name, text, left.pop(name)) for name, text in formats.items() if name in left]
        found.append({"title": title, "cards": cards})
    if left:
        found.append({"title": "Others", "cards": [(name, name, left[name]) for name in left]})
    return found


def export(view: RunView, format: str, checked: Set[str] | None) -> Path:
    """Write the masks of a run into its folder ``exports``.

    Args:
        view: The run.
        format: A key of ``CARDS``.
        checked: Names of the photos to export; None: all.

    Returns:
        The file or folder; its name tells the version of the run.

    Raises:
        TagmaskError: There is no such format, or nothing to export.
    """
    if format not in CARDS:
        raise TagmaskError(f"there is no format {format!r}; choose from {', '.join(CARDS)}.")
    out = view.run.out
    if checked is not None and not checked:
        raise TagmaskError("no photo is checked yet; export all, or check some first.")
    version = current_version(out)
    part = "all" if checked is None else "checked"
    target = _free_name(out / FOLDER / f"{format}-version{version}-{part}", _SUFFIX.get(format, ""))
    labels = out / FOLDER / ".labels"
    shutil.rmtree(labels, ignore_errors=True)
    try:
        source = out / layout.PREDICTIONS
        corrected = view.names_in(layout.CORRECTIONS)
        if checked is not None or corrected:
            _gather(view, source, labels, checked)
            source = labels
        target.parent.mkdir(parents=True, exist_ok=True)
        data = {
            field.name: getattr(view.run, field.name)
            for field in dataclasses.fields(ExportSettings)
            if hasattr(view.run, field.name)
        }
        values: dict[str, Any] = {**data, "out": out, "to": target, "labels": source}
        export_run(ExportSettings(**{**values, "format": format}))
    finally:
        shutil.rmtree(labels, ignore_errors=True)
    return target


def _free_name(path: Path, suffix: str) -> Path:
    """Return the path with its suffix, and with a number if that is taken."""
    number = 1
    place = path.with_name(path.name + suffix)
    while os.path.lexists(place):
        number += 1
        place = path.with_name(f"{path.name}-{number}{suffix}")
    return place


def _gather(view: RunView, source: Path, target: Path, names: Set[str] | None) -> None:
    """Put masks as the page shows them, with corrected pixels, into another folder.

    Args:
        view: The run.
        source: Folder of its masks.
        target: The other folder.
        names: Photos to take; None: all.
    """
    target.mkdir(parents=True, exist_ok=True)
    note = source / layout.MADE_BY
    if note.is_file():
        shutil.copy2(note, target / note.name)
    for i in range(len(view.catalog)):
        name = view.catalog.name(i)
        if names is not None and name not in names:
            continue
        for file in (layout.label_file(source, name), layout.seed_file(source, name)):
            if file.is_file():
                place = target / file.relative_to(source)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, place)
        correction = view.catalog.load_correction(i)
        mask = view.layer("mask", i)
        if mask is not None and correction is not None:
            fixed = fix(mask, correction, name, unsure=False)
            write_mask(layout.label_file(target, name), fixed)


def packed(path: Path) -> Path:
    """Return a file for download: the export itself, or its folder as a .zip beside it."""
    if path.is_file():
        return path
    target = path.with_name(f"{path.name}.zip")
    if not target.is_file():
        with replacing(target) as partial, zipfile.ZipFile(partial, "w") as archive:
            for file in sorted(path.rglob("*")):
                if file.is_file():
                    archive.write(file, file.relative_to(path.parent))
    return target
