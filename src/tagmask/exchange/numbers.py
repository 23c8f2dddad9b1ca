"""Numbers: how much of each photo each class covers, as a table for a spreadsheet or a program.

areas.csv           a row for each class of each photo that has pixels there or is a tag of it
areas.summary.csv   a row for each class: over all photos, and over those of each group of --by

photo         its name, the path below the photos without suffix; masks are stored under it
file          the same with the suffix, as tables of tags and COCO name the photo
pixels        of the class
share         of the photo's pixels, unsure ones included: a fraction from 0 to 1
percent_of_photo    the same from 0 to 100
pieces        connected over pixel sides
left … bottom the box around all pieces, in pixels; the last row and column are inside
centre_x, _y  mean of the pixels' centres, in pixels from the upper left corner
certainty     mean probability of the class over its pixels, if the run has kept probabilities
corrected     yes if a person has corrected the photo
area_mm2      pixels times the area of one, if a scale is given

In the summary, percent_where_found is the mean over the photos that show the class, and
mean_percent_of_photo the mean over all photos, those without it counted as 0.

The ending of the file decides: .csv, .tsv or .parquet. In CSV, what a spreadsheet would take for a
formula begins with an apostrophe. With --decimal-comma, numbers have a comma, and a semicolon ends
a cell, as spreadsheets of many countries expect it; cells of --about stay as they are.
"""

import csv
import importlib
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from scipy import ndimage

from tagmask.data.about import SCALE, About
from tagmask.errors import TagmaskError
from tagmask.exchange.items import Exported, Labelled
from tagmask.files import is_regular, replacing, write_text
from tagmask.labels import Mask, cover_words

Cell = str | int | float | None
# Where a formula may begin: at the start of a text, or after what a spreadsheet may take for the
# end of a cell, since some separate cells by semicolons. Some also heed the wide characters.
_FORMULA = re.compile(r"""^(?=[\t\r\n])|(?:^|(?<=[,;\t\r\n]))(?=["\s]*[-=+@＝＋－＠])""")
_NUMBER = re.compile(r"[-+]?[0-9]+(?:[.,][0-9]+)?(?:[eE][-+]?[0-9]+)?")
COLUMNS = (
    *("photo", "file", "class", "width", "height", "pixels", "share", "percent_of_photo", "pieces"),
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
# from 0 to 100: the last two, and the mean over the photos that show the class
_PERCENTAGES = ("mean_percent_of_photo", "percent_of_all_pixels", "percent_where_found")


@dataclass
class Group:
    """Sums over the photos of a group."""

    photos: int = 0
    all_pixels: int = 0
    with_it: dict[str, int] = field(default_factory=dict)  # by class
    pixels: dict[str, int] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    areas: dict[str, float] = field(default_factory=dict)  # in mm²
    without_scale: int = 0  # photos

    def add(self, mask: Mask, names: Mapping[int, str], scale: float | None) -> None:
        """Add a photo.

        Args:
            mask: uint8 labels (H, W).
            names: the classes by their labels.
            scale: millimetres of a pixel; None if they are not known.
        """
        self.photos += 1
        self.all_pixels += mask.size
        self.without_scale += scale is None
        counts = np.bincount(mask.ravel(), minlength=256)  # (256,)
        for label in np.flatnonzero(counts).tolist():
            if label not in names:
                continue
            name = names[label]
            pixels = int(counts[label])
            self.with_it[name] = self.with_it.get(name, 0) + 1
            self.pixels[name] = self.pixels.get(name, 0) + pixels
            self.shares[name] = self.shares.get(name, 0.0) + pixels / mask.size
            area = pixels * (scale or 0.0) ** 2
            self.areas[name] = self.areas.get(name, 0.0) + area

    def mean_share(self, name: str) -> float:
        """Return the mean share of a photo that a class covers; photos without it count as 0."""
        return self.shares.get(name, 0.0) / max(1, self.photos)

    def share_where_found(self, name: str) -> float | None:
        """Return the mean share of the photos that show a class; None if none does."""
        found = self.with_it.get(name, 0)
        return self.shares[name] / found if found else None

    def share_of_all(self, name: str) -> float:
        """Return the share of a class in the pixels of all photos together."""
        return self.pixels.get(name, 0) / max(1, self.all_pixels)

    def area(self, name: str) -> float | None:
        """Return the area of a class in mm²; None if the scale of a photo is not known.

        A sum over some of the photos would look like one over all.
        """
        return None if self.without_scale else self.areas.get(name, 0.0)


class Summary:
    """How much each class covers: over all photos, and over those with each value of a column.

    Args:
        classes: names of the labels 1, 2, …
        mm_per_pixel: the size of a pixel, where ``about`` does not say it.
        about: further columns of each photo.
        by: columns of ``about`` whose values make groups.

    Raises:
        TagmaskError: a column is unknown.
    """

    def __init__(
        self,
        classes: Sequence[str],
        mm_per_pixel: float | None = None,
        about: About | None = None,
        by: Sequence[str] = (),
    ) -> None:
        self.classes = tuple(classes)
        self.by = tuple(by)
        self.everything = Group()
        self.groups: dict[tuple[str, str], Group] = {}  # by column and value
        self._about = about or About()
        self._mm_per_pixel = mm_per_pixel
        self._names = dict(enumerate(self.classes, start=1))
        self.has_scale = mm_per_pixel is not None or SCALE in self._about.columns
        self._about.check_columns(by)

    def scale(self, name: str) -> float | None:
        """Return the millimetres of a pixel of a photo; None if they are not known."""
        return self._about.scale(name) or self._mm_per_pixel

    def add(self, name: str, mask: Mask) -> None:
        """Add a photo.

        Args:
            name: of the photo.
            mask: uint8 labels (H, W).
        """
        scale = self.scale(name)
        self.everything.add(mask, self._names, scale)
        cells = dict(zip(self._about.columns, self._about.row(name), strict=True))
        for column in self.by:
            group = self.groups.setdefault((column, cells[column]), Group())
            group.add(mask, self._names, scale)

    def of_column(self, column: str) -> dict[str, Group]:
        """Return the groups of a column by its values, in order."""
        found = {value: group for (name, value), group in self.groups.items() if name == column}
        return dict(sorted(found.items()))

    def largest(self, count: int) -> list[str]:
        """Return the classes with the largest mean share, at most ``count`` of them."""
        order = sorted(self.classes, key=lambda name: -self.everything.mean_share(name))
        return order[:count]


def write_table(
    items: Iterable[Labelled],
    classes: Sequence[str],
    path: Path,
    *,
    mm_per_pixel: float | None = None,
    about: About | None = None,
    by: Sequence[str] = (),
    decimal_comma: bool = False,
) -> Exported:
    """Write the table and its summary.

    Args:
        items: images with their masks, uint8 (H, W), tags, and perhaps probabilities.
        classes: names of the labels 1, 2, …
        path: the file of the table; its ending decides its form.
        mm_per_pixel: the size of a pixel, where the table about the photos does not say it.
        about: further columns of each photo.
        by: columns of ``about`` by which the summary is grouped.
        decimal_comma: write numbers with a comma, and semicolons between the cells of a .csv.

    Returns:
        Counts and notes about what was written.

    Raises:
        ImageError: a mask is no uint8 (H, W) or has a label without a class.
        TagmaskError: a column is unknown or has a name of ours, or a package is missing.
    """
    about = about or About()
    summary = Summary(classes, mm_per_pixel, about, by)
    taken = [name for name in about.columns if name in (*COLUMNS, AREA)]
    if taken:
        raise TagmaskError(f'--about has a column "{taken[0]}", as the table itself; rename it.')
    header = [*COLUMNS, *([AREA] if summary.has_scale else []), *about.columns]
    done = Exported(path, holds_unsure=True)
    rows: list[list[Cell]] = []
    for item in done.checked(items, classes):
        scale = summary.scale(item.name)
        for row in measure(item, classes):
            area = [_area(row, scale)] if summary.has_scale else []
            rows.append([*row, *area, *about.row(item.name)])
        summary.add(item.name, item.mask)
    _write(path, header, rows, decimal_comma)
    _write(summary_file(path), *_summary_rows(summary), decimal_comma)
    done.notes += _notes(summary)
    done.notes.append(f"the summary by class: {summary_file(path)}")
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
            head = file.read(len(start)).replace(b"\t", b",").replace(b";", b",")
    except OSError:
        return False
    return head == start or (head[:4] == b"PAR1" and path.name.endswith(".summary.parquet"))


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
    # drawn scenes have no file
    file = "" if item.image is None else item.file
    for label, name in enumerate(classes, start=1):
        pixels = int(counts[label])
        if not pixels and name not in item.tags:
            continue
        share = pixels / mask.size
        start: list[Cell] = [item.name, file, name, width, height, pixels, share, 100 * share]
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


def _summary_rows(summary: Summary) -> tuple[list[str], list[list[Cell]]]:
    """Return header and rows of the summary: every class in every group."""
    header = [*_SUMMARY, *_PERCENTAGES, *([AREA] if summary.has_scale else [])]
    groups = [(("all", ""), summary.everything), *sorted(summary.groups.items(), key=itemgetter(0))]
    rows: list[list[Cell]] = []
    for (column, value), group in groups:
        for name in summary.classes:
            with_it = group.with_it.get(name, 0)
            pixels = group.pixels.get(name, 0)
            row: list[Cell] = [column, value, name, group.photos, with_it, pixels]
            shares = [group.mean_share(name), group.share_of_all(name)]
            row += [*shares, *(100 * share for share in shares)]
            where_found = group.share_where_found(name)
            row.append(None if where_found is None else 100 * where_found)
            if summary.has_scale:
                row.append(group.area(name))
            rows.append(row)
    return header, rows


def _notes(summary: Summary) -> list[str]:
    """Return sentences for the terminal: how much the largest classes cover."""
    group = summary.everything
    parts = []
    for name in summary.largest(8):
        covered = cover_words(group.share_where_found(name), group.mean_share(name))
        found = group.with_it.get(name, 0)
        parts.append(f"{name} on {found} of {group.photos} photos ({covered})")
    notes = [f"found: {', '.join(parts)}"]
    if summary.has_scale and group.without_scale:
        notes.append(
            f"{group.without_scale} photos have no scale; "
            "their areas, and sums with them, are empty."
        )
    return notes


def _write(
    path: Path, header: Sequence[str], rows: Sequence[Sequence[Cell]], decimal_comma: bool
) -> None:
    """Write a table in the form that the ending of its name says."""
    if path.suffix.lower() == ".parquet":
        _write_parquet(path, header, rows)
        return
    buffer = io.StringIO(newline="")
    delimiter = ";" if decimal_comma else ","
    if path.suffix.lower() == ".tsv":
        delimiter = "\t"
    writer = csv.writer(buffer, delimiter=delimiter)
    writer.writerow([harmless(name) for name in header])
    for row in rows:
        writer.writerow([_text(cell, decimal_comma) for cell in row])
    write_text(path, buffer.getvalue())


def _text(cell: Cell, decimal_comma: bool) -> str | int:
    """Return a cell as CSV has it; numbers with ten digits, finer than a pixel of any photo."""
    if cell is None:
        return ""
    if isinstance(cell, float):
        number = f"{cell:.10g}"
        return number.replace(".", ",") if decimal_comma else number
    return harmless(cell) if isinstance(cell, str) else cell


def harmless(text: str) -> str:
    """Put an apostrophe before what a spreadsheet would take for a formula; numbers stay."""
    return text if _NUMBER.fullmatch(text) else _FORMULA.sub("'", text)


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
