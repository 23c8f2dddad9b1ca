"""Numbers: how much of each photo each class covers, as a table for a spreadsheet or a program.

areas.csv           a row for each class of each photo that has pixels there or is a tag of it
areas.summary.csv   a row for each class: over all photos, and over those of each group of --by

pixels        of the class
share         of the photo's pixels, unsure ones included
pieces        connected over pixel sides
left … bottom the box around all pieces, in pixels; the last row and column are inside
centre_x, _y  mean of the pixels' centres, in pixels from the upper left corner
certainty     mean probability of the class over its pixels, if the run has kept probabilities
corrected     yes if a person has corrected the photo
area_mm2      pixels times the area of one, if a scale is given

The ending of the file decides: .csv, .tsv or .parquet. In CSV, a text that a spreadsheet would take
for a formula begins with an apostrophe.
"""

import csv
import importlib
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import ndimage

from tagmask.data.about import SCALE, About
from tagmask.errors import TagmaskError
from tagmask.exchange.items import Exported, Labelled
from tagmask.files import is_regular, replacing, write_text
from tagmask.labels import Mask

Cell = str | int | float | None
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a formula may begin with
COLUMNS = (
    *("photo", "class", "width", "height", "pixels", "share", "pieces"),
    *("left", "top", "right", "bottom", "centre_x", "centre_y", "certainty", "corrected"),
)
AREA = "area_mm2"
_SUMMARY = (
    "group",
    "value",
    "class",
    "photos",
    "photos_with_it",
    "pixels",
    "mean_share",
    "share_of_all",
)


@dataclass
class _Group:
    """Sums over the photos of a group."""

    photos: int = 0
    all_pixels: int = 0
    with_it: dict[str, int] = field(default_factory=dict)  # by class
    pixels: dict[str, int] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    areas: dict[str, float] = field(default_factory=dict)
    without_scale: int = 0  # photos


def write_table(
    items: Iterable[Labelled],
    classes: Sequence[str],
    path: Path,
    *,
    mm_per_pixel: float | None = None,
    about: About | None = None,
    by: Sequence[str] = (),
) -> Exported:
    """Write the table and its summary.

    Args:
        items: images with their masks, uint8 (H, W), tags, and perhaps probabilities.
        classes: names of the labels 1, 2, …
        path: the file of the table; its ending decides its form.
        mm_per_pixel: the size of a pixel, where the table about the photos does not say it.
        about: further columns of each photo.
        by: columns of ``about`` by which the summary is grouped.

    Returns:
        Counts and notes about what was written.

    Raises:
        ImageError: a mask is no uint8 (H, W) or has a label without a class.
        TagmaskError: a column is unknown or has a name of ours, or a package is missing.
    """
    about = about or About()
    _check_columns(about, by)
    has_scale = mm_per_pixel is not None or SCALE in about.columns
    header = [*COLUMNS, *([AREA] if has_scale else []), *about.columns]
    done = Exported(path, holds_unsure=True)
    groups: dict[tuple[str, str], _Group] = {}
    rows: list[list[Cell]] = []
    for item in done.checked(items, classes):
        scale = about.scale(item.name) or mm_per_pixel
        measured = list(measure(item, classes))
        cells = about.row(item.name)
        for row in measured:
            area = [] if not has_scale else [_area(row, scale)]
            rows.append([*row, *area, *cells])
        keys = [("all", "")]
        keys += [(name, cells[about.columns.index(name)]) for name in by]
        for key in keys:
            _add(groups.setdefault(key, _Group()), item, measured, scale)
    summary = summary_file(path)
    _write(path, header, rows)
    _write(summary, *_summary(groups, classes, has_scale))
    done.notes += _notes(groups[("all", "")], classes, has_scale)
    done.notes.append(f"the summary by class: {summary}")
    return done


def summary_file(path: Path) -> Path:
    """Return where the summary of a table is written."""
    return path.with_name(f"{path.stem}.summary{path.suffix}")


def is_summary(path: Path) -> bool:
    """Return True if a file is a summary that was written here."""
    if not is_regular(path):
        return False
    start = ",".join(_SUMMARY).encode()
    try:
        with path.open("rb") as file:
            head = file.read(len(start)).replace(b"\t", b",")
    except OSError:
        return False
    return head == start or (head[:4] == b"PAR1" and path.name.endswith(".summary.parquet"))


def _check_columns(about: About, by: Sequence[str]) -> None:
    """Refuse columns that are not there, and those that have a name of ours."""
    for name in by:
        if name not in about.columns:
            known = ", ".join(about.columns) or "none, since there is no --about"
            raise TagmaskError(f"--by {name} is no column of --about; its columns are {known}.")
    taken = [name for name in about.columns if name in (*COLUMNS, AREA)]
    if taken:
        raise TagmaskError(f'--about has a column "{taken[0]}", as the table itself; rename it.')


def measure(item: Labelled, classes: Sequence[str]) -> Iterator[list[Cell]]:
    """Yield the cells of ``COLUMNS`` for each class that a photo has or is tagged with.

    Args:
        item: the image with its mask.
        classes: names of the labels 1, 2, …
    """
    mask = item.mask
    height, width = mask.shape
    counts = np.bincount(mask.ravel(), minlength=256)  # (256,)
    probabilities = item.probabilities() if item.probabilities is not None else None
    corrected = "yes" if item.corrected else "no"
    for label, name in enumerate(classes, start=1):
        pixels = int(counts[label])
        if not pixels and name not in item.tags:
            continue
        start: list[Cell] = [item.name, name, width, height, pixels, pixels / mask.size]
        if not pixels:
            yield [*start, 0, *[None] * 7, corrected]
            continue
        where = _where(mask, label)
        certainty = None
        if probabilities is not None and probabilities.shape[1:] == mask.shape:
            certainty = float(probabilities[label][mask == label].mean(dtype=np.float64))
        yield [*start, *where, certainty, corrected]


def _where(mask: Mask, label: int) -> list[Cell]:
    """Return the number of pieces of a class, its box and its centre."""
    region = mask == label  # (H, W)
    _, pieces = ndimage.label(region)
    rows = np.flatnonzero(region.any(axis=1))
    columns = np.flatnonzero(region.any(axis=0))
    in_columns = region.sum(axis=0)  # (W,)
    in_rows = region.sum(axis=1)  # (H,)
    total = int(in_rows.sum())
    centre_x = float(in_columns @ (np.arange(mask.shape[1]) + 0.5)) / total
    centre_y = float(in_rows @ (np.arange(mask.shape[0]) + 0.5)) / total
    box = [int(columns[0]), int(rows[0]), int(columns[-1]), int(rows[-1])]
    return [int(pieces), *box, centre_x, centre_y]


def _area(row: Sequence[Cell], scale: float | None) -> float | None:
    """Return the area of a row's pixels in square millimetres; None without a scale."""
    pixels = row[COLUMNS.index("pixels")]
    return None if scale is None else float(pixels or 0) * scale**2


def _add(
    group: _Group, item: Labelled, measured: Sequence[Sequence[Cell]], scale: float | None
) -> None:
    """Add a photo to the sums of a group."""
    group.photos += 1
    group.all_pixels += item.mask.size
    group.without_scale += scale is None
    for row in measured:
        name = str(row[1])
        pixels = int(row[COLUMNS.index("pixels")] or 0)
        group.pixels[name] = group.pixels.get(name, 0) + pixels
        group.with_it[name] = group.with_it.get(name, 0) + (pixels > 0)
        group.shares[name] = group.shares.get(name, 0.0) + pixels / item.mask.size
        group.areas[name] = group.areas.get(name, 0.0) + (_area(row, scale) or 0.0)


def _summary(
    groups: dict[tuple[str, str], _Group], classes: Sequence[str], has_scale: bool
) -> tuple[list[str], list[list[Cell]]]:
    """Return header and rows of the summary: every class in every group."""
    header = [*_SUMMARY, *([AREA] if has_scale else [])]
    rows: list[list[Cell]] = []
    for (name, value), group in sorted(groups.items(), key=lambda pair: pair[0]):
        for label in classes:
            pixels = group.pixels.get(label, 0)
            row: list[Cell] = [
                name,
                value,
                label,
                group.photos,
                group.with_it.get(label, 0),
                pixels,
            ]
            row += [group.shares.get(label, 0.0) / group.photos, pixels / group.all_pixels]
            if has_scale:
                # a sum over some of the photos would look like one over all
                row.append(None if group.without_scale else group.areas.get(label, 0.0))
            rows.append(row)
    return header, rows


def _notes(group: _Group, classes: Sequence[str], has_scale: bool) -> list[str]:
    """Return sentences for the terminal: the mean share of the largest classes."""
    shares = {name: group.shares.get(name, 0.0) / group.photos for name in classes}
    largest = sorted(classes, key=lambda name: -shares[name])[:8]
    listed = ", ".join(f"{name} {100 * shares[name]:.1f} %" for name in largest)
    notes = [f"mean share of a photo: {listed}"]
    if has_scale and group.without_scale:
        notes.append(
            f"{group.without_scale} photos have no scale; "
            "their areas, and sums with them, are empty."
        )
    return notes


def _write(path: Path, header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Write a table in the form that the ending of its name says."""
    if path.suffix.lower() == ".parquet":
        _write_parquet(path, header, rows)
        return
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
    writer.writerow([harmless(name) for name in header])
    for row in rows:
        writer.writerow([_text(cell) for cell in row])
    write_text(path, buffer.getvalue())


def _text(cell: Cell) -> str | int:
    """Return a cell as CSV has it; numbers with six digits, which is finer than a pixel."""
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.6g}"
    return harmless(cell) if isinstance(cell, str) else cell


def harmless(text: str) -> str:
    """Put an apostrophe before a text that a spreadsheet would take for a formula."""
    begins_as_formula = text.lstrip(" ").startswith(_FORMULA) or text.startswith(_FORMULA)
    return f"'{text}" if begins_as_formula else text


def _write_parquet(path: Path, header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Write a Parquet file: texts, whole numbers and numbers in columns of their types."""
    try:
        arrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise TagmaskError(
            f"{path} needs the package pyarrow; install it with: pip install 'tagmask[table]', "
            "or name a .csv file."
        ) from None
    columns = {}
    for number, name in enumerate(header):
        values = [row[number] for row in rows]
        kinds = {type(value) for value in values if value is not None}
        form = arrow.string()
        if kinds == {int}:
            form = arrow.int64()
        elif kinds and kinds <= {int, float}:
            form = arrow.float64()
        columns[name] = arrow.array(values, form)
    with replacing(path) as partial:
        parquet.write_table(arrow.table(columns), str(partial))
