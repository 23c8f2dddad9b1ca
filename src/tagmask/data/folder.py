"""A folder of photos with a tag table, or with one sub-folder per tag.

What would make the result wrong (an unknown class, an empty tag, two images of one name) stops the reading,
with all mistakes in one report. What only makes it smaller (an image that is not there or has no tags) is
left out and told in the catalog's notes.
"""

import os
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tagmask.data.catalog import Catalog
from tagmask.data.listing import strip_suffix, walk
from tagmask.data.report import Mistakes, missing_note, untagged_note
from tagmask.data.table import Row, Table, read_table
from tagmask.errors import TagmaskError

_LAYOUTS = "give a table with the columns file and tags, or one sub-folder per tag"


@dataclass(frozen=True)
class _Found:
    """A row whose image exists."""

    row: Row
    path: str  # relative to the images folder


def read_folder(
    images: Path,
    tags: Path | None,
    *,
    masks: Path | None = None,
    classes: Sequence[str] | None = None,
) -> Catalog:
    """Read a folder of images.

    Args:
        images: the folder; images may lie in sub-folders, at any depth.
        tags: a CSV, TSV, JSON or JSONL table (see ``tagmask.data.table``) with paths relative to ``images``,
            with or without suffix; None if ``images`` has one sub-folder per tag, named after it.
        masks: a folder with a PNG for each image, of the same relative path; 0 is background, 255 ignore,
            and k the k-th class.
        classes: the classes in the order of the labels; without it all tags found, in alphabetical order.
    """
    files = _list_files(images)
    mistakes = Mistakes(tags or images)
    table = read_table(tags, mistakes) if tags else _table_of_folders(files)
    known = _known_classes(table, classes, mistakes)
    found, missing = _locate(table.rows, files, images, mistakes)
    mistakes.raise_if_any()
    if not known:
        raise TagmaskError(f"{tags or images} names no tag at all; {_LAYOUTS}.")
    kept = [one for one in found if one.row.tags]
    _refuse_nothing(kept, missing, images, tags)
    names = [strip_suffix(one.path) for one in kept]
    mask_paths, mask_notes = _find_masks(names, masks)
    numbers = {name: number for number, name in enumerate(known)}
    notes = [
        *missing_note(missing),
        *untagged_note(len(found) - len(kept)),
        *mask_notes,
        *_idle_note(known, kept),
        *_alike_note(known),
    ]
    return Catalog(
        known,
        names,
        ([numbers[tag] for tag in one.row.tags] for one in kept),
        images=(images / one.path for one in kept),
        masks=mask_paths,
        notes=notes,
    )


def _list_files(root: Path) -> dict[str, list[str]]:
    """All files below ``root`` as {path without picture suffix: [paths]}, relative, with "/"."""
    if not root.is_dir():
        raise TagmaskError(f"{root} is not a folder; check the path of the images.")
    files: dict[str, list[str]] = {}
    for path in sorted(walk(root)):
        files.setdefault(strip_suffix(path), []).append(path)
    return files


def _table_of_folders(files: dict[str, list[str]]) -> Table:
    """The first folder of each picture's path as its only tag; pictures beside the folders have none."""
    pictures = (path for paths in files.values() for path in paths if strip_suffix(path) != path)
    return Table([Row(path, path, (path.split("/")[0],) if "/" in path else ()) for path in pictures], ())


def _known_classes(table: Table, classes: Sequence[str] | None, mistakes: Mistakes) -> tuple[str, ...]:
    """The classes in order; with a given list, every other tag is a mistake."""
    if classes is None:
        return tuple(sorted({tag for row in table.rows for tag in row.tags} | set(table.columns)))
    given = tuple(classes)
    for name in table.columns:
        if name not in given:
            mistakes.add("class", "line 1", f'the column "{name}" is no class; known are {_shorten(given)}')
    for row in table.rows:
        for tag in row.tags:
            if tag not in given and tag not in table.columns:
                mistakes.add("class", row.place, f'unknown class "{tag}"; known are {_shorten(given)}')
    return given


def _shorten(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "")


def _locate(
    rows: Iterable[Row], files: dict[str, list[str]], images: Path, mistakes: Mistakes
) -> tuple[list[_Found], list[str]]:
    """Rows whose image exists, and the entries of those whose does not; no name is taken twice."""
    found: list[_Found] = []
    missing: list[str] = []
    owner: dict[str, _Found] = {}
    for row in rows:
        paths = _matches(row.file, files, images)
        if not paths:
            missing.append(row.file)
        elif len(paths) > 1:
            text = f'"{row.file}" may be {" or ".join(paths)}; write the suffix'
            mistakes.add("ambiguous", row.place, text)
        else:
            one = _Found(row, paths[0])
            first = owner.setdefault(strip_suffix(one.path), one)
            if first is not one and first.row.file != row.file:
                twice = f"{one.path} stands already at {first.row.place}; keep one of the two"
                twins = f"{one.path} has the name of {first.path} ({first.row.place}); rename or remove one"
                mistakes.add("duplicate", row.place, twice if one.path == first.path else twins)
            found.append(one)
    return found, missing


def _matches(entry: str, files: dict[str, list[str]], images: Path) -> list[str]:
    """The files that an entry may mean: by exact path, else in any case; without suffix, by stem."""
    path = os.path.normpath(entry.strip().replace("\\", "/"))
    if os.path.isabs(path):
        path = os.path.relpath(path, os.path.abspath(images))
    path = path.replace(os.sep, "/")
    candidates = files.get(strip_suffix(path), [])
    if strip_suffix(path) == path:
        return candidates
    return [one for one in candidates if one == path] or [one for one in candidates if one.lower() == path.lower()]


def _refuse_nothing(kept: list[_Found], missing: list[str], images: Path, tags: Path | None) -> None:
    if kept:
        return
    if missing:
        raise TagmaskError(
            f"none of the {len(missing):,} images in {tags} exists; the first was looked for at "
            f"{images / missing[0]}. Paths in the table are relative to the images folder."
        )
    raise TagmaskError(f"no image in {images} carries a tag; {_LAYOUTS}.")


def _find_masks(names: list[str], masks: Path | None) -> tuple[list[Path | None], list[str]]:
    if masks is None:
        return [None] * len(names), []
    if not masks.is_dir():
        raise TagmaskError(f"{masks} is not a folder; check the path of the masks.")
    there = set(walk(masks))
    paths = [masks / f"{name}.png" if f"{name}.png" in there else None for name in names]
    absent = [name for name, path in zip(names, paths, strict=True) if path is None]
    if len(absent) == len(names):
        first = masks / f"{names[0]}.png"
        raise TagmaskError(f"no image has a mask in {masks}; the first was looked for at {first}.")
    return paths, [f"{len(absent):,} of {len(names):,} images have no mask."] if absent else []


def _alike_note(known: Sequence[str]) -> list[str]:
    """Tags that may be meant to be one."""
    alike: dict[str, list[str]] = {}
    for name in known:
        alike.setdefault(unicodedata.normalize("NFC", name).casefold(), []).append(f'"{name}"')
    shown = [" and ".join(names) for names in alike.values() if len(names) > 1]
    return [f"these tags look alike and are different classes: {'; '.join(shown[:3])}."] if shown else []


def _idle_note(classes: Sequence[str], kept: list[_Found]) -> list[str]:
    used = {tag for one in kept for tag in one.row.tags}
    idle = [name for name in classes if name not in used]
    return [f"no image carries the tags {_shorten(idle)}."] if idle else []
