"""What the user knows about photos besides tags: a CSV table with one row per photo.

    file,site,date,mm_per_pixel
    day 1/a.jpg,north,2026-05-01,0.42

The first column is the photo, as in a tag table; the others may have any names.
"""

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tagmask.data.folder import Tails, normal_path
from tagmask.data.images import strip_suffix
from tagmask.data.report import Mistakes
from tagmask.errors import TagmaskError, first_of
from tagmask.files import read_text

SCALE = "mm_per_pixel"  # the column with the size of a pixel


@dataclass(frozen=True)
class About:
    """Columns of a table, and the cells of each photo by its name."""

    columns: tuple[str, ...] = ()
    cells: dict[str, tuple[str, ...]] | None = None

    def row(self, name: str) -> tuple[str, ...]:
        """Return the cells of a photo; empty texts if the table does not have it."""
        return (self.cells or {}).get(name, ("",) * len(self.columns))

    def scale(self, name: str) -> float | None:
        """Return the millimetres of a pixel of a photo; None if the table does not say it."""
        if SCALE not in self.columns:
            return None
        cell = self.row(name)[self.columns.index(SCALE)]
        return float(cell) if cell else None

    def check_columns(self, by: Iterable[str]) -> None:
        """Refuse names that are no columns.

        Raises:
            TagmaskError: one is unknown.
        """
        for name in by:
            if name not in self.columns:
                known = ", ".join(self.columns) or "none, since there is no --about"
                raise TagmaskError(f"--by {name} is no column of --about; its columns are {known}.")


def read_about(path: Path, names: Iterable[str], images: Path) -> About:
    """Read a table about photos.

    Args:
        path: the CSV or TSV file.
        names: the names of the photos that are asked for; rows of others are left out.
        images: the folder of the photos, for absolute paths.

    Raises:
        TagmaskError: the file has mistakes, or none of its rows is about these photos.
    """
    text = read_text(path)
    first_line = text.split("\n", 1)[0]
    delimiter = next((mark for mark in (",", "\t", ";") if mark in first_line), ",")
    mistakes = Mistakes(path)
    try:
        lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise TagmaskError(f"{path} is not valid CSV ({error}); correct its quotes.") from None
    header = [cell.strip() for cell in lines[0]] if lines else []
    _check_header(path, header)
    known = Tails(names)
    cells: dict[str, tuple[str, ...]] = {}
    unknown = []
    for number, line in enumerate(lines[1:], start=2):
        if not any(cell.strip() for cell in line):
            continue
        place = f"line {number}"
        if len(line) != len(header):
            mistakes.add("cells", place, f"{len(line)} cells, but the header has {len(header)}")
            continue
        found = known.find(strip_suffix(normal_path(line[0], images)))
        if len(found) != 1:
            unknown.append(line[0])
            continue
        if found[0] in cells:
            mistakes.add("duplicate", place, f'"{line[0]}" is listed twice; keep one')
        cells[found[0]] = tuple(cell.strip() for cell in line[1:])
        _check_scale(header[1:], cells[found[0]], place, mistakes)
    mistakes.raise_if_any()
    if not cells:
        raise TagmaskError(
            f"{path} is about none of these photos; its first rows are {first_of(unknown, 3)}. "
            "The first column must hold their paths in the folder of the photos."
        )
    return About(tuple(header[1:]), cells)


def _check_header(path: Path, header: list[str]) -> None:
    """Refuse a header without columns, with an empty name or with one twice."""
    if len(header) < 2 or not all(header) or len(set(header)) < len(header):
        raise TagmaskError(
            f'{path} needs a header such as "file,site,date", each name once and none empty.'
        )


def _check_scale(
    columns: list[str], cells: tuple[str, ...], place: str, mistakes: Mistakes
) -> None:
    """Note a size of a pixel that is no number above 0."""
    if SCALE not in columns:
        return
    cell = cells[columns.index(SCALE)]
    try:
        is_usable = not cell or 0 < float(cell) < 1e9
    except ValueError:
        is_usable = False
    if not is_usable:
        mistakes.add("scale", place, f'{SCALE} is "{cell}"; write a number above 0, or nothing')
