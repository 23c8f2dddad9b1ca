"""A folder of photos with a tag table, or with one sub-folder per tag.

What would make the result wrong (an empty tag, two images of one name) is an error; all errors are reported at once.
What only makes it smaller (an image that is missing or has no tags) is left out and counted in the catalog's notes.
"""

import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from posixpath import basename

from tagmask.config.base import within
from tagmask.data.catalog import Catalog
from tagmask.data.images import list_files, strip_suffix, walk
from tagmask.data.keywords import EMBEDDED, embedded_table
from tagmask.data.report import Mistakes, left_out_notes
from tagmask.data.table import Row, Table, read_table
from tagmask.errors import TagmaskError, first_of

_UPLOAD = re.compile(
    r"(?<![^/])[0-9a-f]{8}-(?=[^/]*$)"
)  # Label Studio puts this before the names of uploads
_LAYOUTS = "give a table with the columns file and tags, or one sub-folder per tag"


def read_folder(images: Path, tags: Path | None, *, masks: Path | None = None) -> Catalog:
    """Read a folder of images, at any depth; the classes are its tags in alphabetical order.

    ``tags`` is a table (see ``tagmask.data.table``) with paths relative to ``images``, with or without suffix; a file
    or folder of another tool (see ``tagmask.data.tools``); ``embedded`` for the keywords in the photos; or None if
    ``images`` has one sub-folder per tag. ``masks`` holds a PNG for each image, at the same relative path.
    """
    odd: list[str] = []
    files = list_files(images, odd)
    mistakes = Mistakes(tags or images)
    table = _read_tags(tags, images, files, mistakes)
    classes = sorted({tag for row in table.rows for tag in row.tags} | set(table.columns))
    photos, missing = _locate(table, files, images, mistakes)
    mistakes.raise_if_any()
    if not classes:
        raise TagmaskError(
            f"{images if tags in (None, EMBEDDED) else tags} contains no tags; {_LAYOUTS}."
        )
    tagged = [photo for photo in photos if photo.tags]
    if missing and not tagged:
        raise TagmaskError(
            f"none of the {len(missing):,} images in {tags} exists; the first was looked for at "
            f"{images / missing[0]}. Paths in the table are relative to the images folder."
        )
    if not tagged:
        raise TagmaskError(f"no image in {images} carries a tag; {_LAYOUTS}.")
    names = [strip_suffix(photo.file) for photo in tagged]
    mask_paths, mask_notes = _find_masks(names, masks)
    numbers = {name: number for number, name in enumerate(classes)}
    notes = [
        *left_out_notes(missing, odd, len(photos) - len(tagged)),
        *mask_notes,
        *_unused_note(classes, tagged),
        *_alike_note(classes),
    ]
    return Catalog(
        classes,
        names,
        ([numbers[tag] for tag in photo.tags] for photo in tagged),
        images=(images / photo.file for photo in tagged),
        masks=mask_paths,
        notes=notes,
    )


def _read_tags(tags: Path | None, images: Path, files: list[str], mistakes: Mistakes) -> Table:
    if (
        tags is None
    ):  # the first folder of a picture's path is its only tag; pictures beside the folders have none
        pictures = (path for path in files if strip_suffix(path) != path)
        return Table(
            [Row(path, path, (path.split("/")[0],) if "/" in path else ()) for path in pictures], ()
        )
    if tags == EMBEDDED:
        return embedded_table(images, files)
    if not tags.is_dir():
        table = read_table(tags, mistakes)
        return (
            Table(_below(tags, images, tags.parent, table), (), loose=True)
            if table.loose
            else table
        )
    rows: list[Row] = []
    for path in _tag_files(tags):
        of_file = Mistakes(path)
        if (table := read_table(path, of_file)).loose:  # others are no files of a tool
            of_file.raise_if_any()
            place = os.path.relpath(path, tags)
            rows += [
                Row(f"{place}, {row.place}", row.file, row.tags)
                for row in _below(path, images, tags, table)
            ]
    if not rows:
        raise TagmaskError(
            f"{tags} holds no tags of a tool that is known here; name the file with the tags itself."
        )
    return Table(rows, (), loose=True)


def _tag_files(folder: Path) -> list[Path]:
    """The files of a tool in a folder: one for all images, one for each part, or one for each image."""
    paths = [folder / path for path in sorted(walk(folder))]
    for known in (("annotations.xml",), ("samples.json",), ("metadata.jsonl", "metadata.csv")):
        if found := [path for path in paths if path.name in known]:
            return found
    return [path for path in paths if path.suffix.lower() == ".json"]


def _below(path: Path, images: Path, root: Path, table: Table) -> list[Row]:
    """The rows of a tool's file, with paths from ``images`` if the file lies there, else from ``root``."""
    start = images if within(path, images) else root
    folder = os.path.relpath(os.path.realpath(path.parent), os.path.realpath(start))
    return [
        Row(row.place, os.path.normpath(os.path.join(folder, row.file)), row.tags)
        for row in table.rows
    ]


def _locate(
    table: Table, files: list[str], images: Path, mistakes: Mistakes
) -> tuple[list[Row], list[str]]:
    """The rows whose image exists, with its path, and the entries whose image is missing; names must be unique."""
    photos: list[Row] = []
    missing: list[str] = []
    owners: dict[str, tuple[Row, str]] = {}
    find = (
        Tails(files).find if table.loose else partial(_matches, stems=_grouped(files, strip_suffix))
    )
    for row in table.rows:
        paths = find(normal_path(row.file, images))
        if not paths:
            missing.append(row.file)
        elif len(paths) > 1:
            remedy = "rename one" if table.loose else "write the suffix"
            mistakes.add(
                "ambiguous", row.place, f'"{row.file}" may be {" or ".join(paths)}; {remedy}'
            )
        else:
            photo = replace(row, file=paths[0])
            first, entry = owners.setdefault(strip_suffix(photo.file), (photo, row.file))
            if first is not photo and entry != row.file:
                repeated = f"{photo.file} is already listed at {first.place}; keep one of the two"
                same_name = f"{photo.file} has the name of {first.file} ({first.place}); rename or remove one"
                mistakes.add(
                    "duplicate", row.place, repeated if photo.file == first.file else same_name
                )
            photos.append(photo)
    return photos, missing


def _grouped(values: Iterable[str], key: Callable[[str], str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return groups


def normal_path(entry: str, images: Path) -> str:
    """An entry as a path below the images, with "/"."""
    path = os.path.normpath(entry.strip().replace("\\", "/"))
    if os.path.isabs(path):
        path = os.path.relpath(path, os.path.abspath(images))
    return path.replace(os.sep, "/")


def _matches(path: str, stems: dict[str, list[str]]) -> list[str]:
    """The files that a path may mean: the exact one, else ignoring case; without suffix, by stem."""
    candidates = stems.get(strip_suffix(path), [])
    if strip_suffix(path) == path:
        return candidates
    exact = [file for file in candidates if file == path]
    return exact or [file for file in candidates if file.lower() == path.lower()]


class Tails:
    """Finds files of which a tool knows a longer path, from its own root, or a shorter one, without folders."""

    def __init__(self, files: Iterable[str]) -> None:
        self._same_name = _grouped(files, basename)

    def find(self, path: str) -> list[str]:
        """The exact file, else the longest path that ``path`` ends with, else all that end with ``path``."""
        for known in (path, _UPLOAD.sub("", path)):
            files = self._same_name.get(basename(known), [])
            shorter = [file for file in files if f"/{known}".endswith(f"/{file}")]
            if shorter:
                return [max(shorter, key=len)]
            if longer := [file for file in files if file.endswith(f"/{known}")]:
                return longer
        return []


def _find_masks(names: list[str], masks: Path | None) -> tuple[list[Path | None], list[str]]:
    if masks is None:
        return [None] * len(names), []
    if not masks.is_dir():
        raise TagmaskError(f"{masks} is not a folder; check the path of the masks.")
    present = set(walk(masks))
    paths = [masks / f"{name}.png" if f"{name}.png" in present else None for name in names]
    absent = [name for name, path in zip(names, paths, strict=True) if path is None]
    if len(absent) == len(names):
        first = masks / f"{names[0]}.png"
        raise TagmaskError(f"no image has a mask in {masks}; the first was looked for at {first}.")
    return paths, [f"{len(absent):,} of {len(names):,} images have no mask."] if absent else []


def _alike_note(classes: Sequence[str]) -> list[str]:
    """A note on tags that may be meant to be the same."""
    alike = _grouped(classes, lambda name: unicodedata.normalize("NFC", name).casefold()).values()
    shown = [" and ".join(f'"{name}"' for name in names) for names in alike if len(names) > 1]
    return (
        [f"these tags look alike and are different classes: {'; '.join(shown[:3])}."]
        if shown
        else []
    )


def _unused_note(classes: Sequence[str], tagged: list[Row]) -> list[str]:
    used = {tag for photo in tagged for tag in photo.tags}
    unused = [name for name in classes if name not in used]
    return [f"no image carries the tags {first_of(unused, 8)}."] if unused else []
