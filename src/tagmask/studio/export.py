"""Exports from the page: every format of `tagmask export`."""

import dataclasses
import os
import shutil
import zipfile
from collections.abc import Set
from pathlib import Path
from typing import Any

from tagmask import layout
from tagmask.config import ExportSettings
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
# what a card says about a format; one without words has a card all the same
_WORDS = {
    "table": "A line per photo and class: pixels, cover, pieces, certainty. For spreadsheets.",
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
}
CARDS = {name: _WORDS.get(name, f"Masks for {name}.") for name in FORMATS}


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
        if checked is not None:
            _link_some(source, labels, checked)
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


def _link_some(source: Path, target: Path, names: Set[str]) -> None:
    """Put the masks of some photos, and the note of who made them, into another folder."""
    target.mkdir(parents=True, exist_ok=True)
    note = source / layout.MADE_BY
    if note.is_file():
        shutil.copy2(note, target / note.name)
    for name in names:
        file = layout.label_file(source, name)
        if file.is_file():
            place = layout.label_file(target, name)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, place)


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
