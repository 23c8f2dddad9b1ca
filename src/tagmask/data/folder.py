"""A folder of photos with a tag table, or with one sub-folder per tag.

What would make the result wrong (an empty tag, two images of one name) is an error; all errors are reported at once.
What only makes it smaller (an image that is missing or has no tags) is left out and counted in the catalog's notes.
"""

import os
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tagmask.data.catalog import Catalog
from tagmask.data.images import strip_suffix, walk
from tagmask.data.report import Mistakes, missing_note, odd_note, untagged_note
from tagmask.data.table import Row, Table, read_table
from tagmask.errors import TagmaskError

_LAYOUTS = "give a table with the columns file and tags, or one sub-folder per tag"


@dataclass(frozen=True)
class _Photo:
    """A row whose image exists."""

    row: Row
    path: str  # relative to the images folder


def read_folder(images: Path, tags: Path | None, *, masks: Path | None = None) -> Catalog:
    """Read a folder of images; the classes are its tags in alphabetical order.

    Args:
        images: the folder; images may lie in sub-folders, at any depth.
        tags: a CSV, TSV, JSON or JSONL table (see ``tagmask.data.table``) with paths relative to ``images``,
            with or without suffix; None if ``images`` has one sub-folder per tag, named after it.
        masks: a folder with a PNG for each image, at the same relative path; 0 is background, 255 unsure,
            and k the k-th class.
    """
    odd: list[str] = []
    files = _list_files(images, odd)
    mistakes = Mistakes(tags or images)
    table = read_table(tags, mistakes) if tags else _table_of_folders(files)
    classes = sorted({tag for row in table.rows for tag in row.tags} | set(table.columns))
    photos, missing = _locate(table.rows, files, images, mistakes)
    mistakes.raise_if_any()
    if not classes:
        raise TagmaskError(f"{tags or images} contains no tags; {_LAYOUTS}.")
    tagged = [photo for photo in photos if photo.row.tags]
    _refuse_nothing(tagged, missing, images, tags)
    names = [strip_suffix(photo.path) for photo in tagged]
    mask_paths, mask_notes = _find_masks(names, masks)
    numbers = {name: number for number, name in enumerate(classes)}
    notes = [
        *missing_note([file for file in missing if file not in odd]),
        *odd_note(odd),
        *untagged_note(len(photos) - len(tagged)),
        *mask_notes,
        *_unused_note(classes, tagged),
        *_alike_note(classes),
    ]
    return Catalog(
        classes,
        names,
        ([numbers[tag] for tag in photo.row.tags] for photo in tagged),
        images=(images / photo.path for photo in tagged),
        masks=mask_paths,
        notes=notes,
    )


def _list_files(root: Path, odd: list[str]) -> dict[str, list[str]]:
    """All files below ``root`` as {path without picture suffix: [paths]}, relative, with "/"."""
    if not root.is_dir():
        raise TagmaskError(f"{root} is not a folder; check the path of the images.")
    files: dict[str, list[str]] = {}
    for path in sorted(walk(root, odd)):
        files.setdefault(strip_suffix(path), []).append(path)
    return files


def _table_of_folders(files: dict[str, list[str]]) -> Table:
    """The first folder of each picture's path as its only tag; pictures beside the folders have none."""
    pictures = (path for paths in files.values() for path in paths if strip_suffix(path) != path)
    return Table([Row(path, path, (path.split("/")[0],) if "/" in path else ()) for path in pictures], ())


def _locate(
    rows: Iterable[Row], files: dict[str, list[str]], images: Path, mistakes: Mistakes
) -> tuple[list[_Photo], list[str]]:
    """The rows whose image exists, and the entries of those whose image is missing; names must be unique."""
    photos: list[_Photo] = []
    missing: list[str] = []
    owners: dict[str, _Photo] = {}
    for row in rows:
        paths = _matches(row.file, files, images)
        if not paths:
            missing.append(row.file)
        elif len(paths) > 1:
            mistakes.add("ambiguous", row.place, f'"{row.file}" may be {" or ".join(paths)}; write the suffix')
        else:
            photo = _Photo(row, paths[0])
            first = owners.setdefault(strip_suffix(photo.path), photo)
            if first is not photo and first.row.file != row.file:
                repeated = f"{photo.path} is already listed at {first.row.place}; keep one of the two"
                same_name = f"{photo.path} has the name of {first.path} ({first.row.place}); rename or remove one"
                mistakes.add("duplicate", row.place, repeated if photo.path == first.path else same_name)
            photos.append(photo)
    return photos, missing


def _matches(entry: str, files: dict[str, list[str]], images: Path) -> list[str]:
    """The files that an entry may mean: by exact path, else ignoring case; without suffix, by stem."""
    path = os.path.normpath(entry.strip().replace("\\", "/"))
    if os.path.isabs(path):
        path = os.path.relpath(path, os.path.abspath(images))
    path = path.replace(os.sep, "/")
    candidates = files.get(strip_suffix(path), [])
    if strip_suffix(path) == path:
        return candidates
    exact = [file for file in candidates if file == path]
    return exact or [file for file in candidates if file.lower() == path.lower()]


def _refuse_nothing(tagged: list[_Photo], missing: list[str], images: Path, tags: Path | None) -> None:
    if tagged:
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
    present = set(walk(masks))
    paths = [masks / f"{name}.png" if f"{name}.png" in present else None for name in names]
    absent = [name for name, path in zip(names, paths, strict=True) if path is None]
    if len(absent) == len(names):
        first = masks / f"{names[0]}.png"
        raise TagmaskError(f"no image has a mask in {masks}; the first was looked for at {first}.")
    return paths, [f"{len(absent):,} of {len(names):,} images have no mask."] if absent else []


def _alike_note(classes: Sequence[str]) -> list[str]:
    """A note on tags that may be meant to be the same."""
    alike: dict[str, list[str]] = {}
    for name in classes:
        alike.setdefault(unicodedata.normalize("NFC", name).casefold(), []).append(f'"{name}"')
    shown = [" and ".join(names) for names in alike.values() if len(names) > 1]
    return [f"these tags look alike and are different classes: {'; '.join(shown[:3])}."] if shown else []


def _unused_note(classes: Sequence[str], tagged: list[_Photo]) -> list[str]:
    used = {tag for photo in tagged for tag in photo.row.tags}
    unused = [name for name in classes if name not in used]
    shown = ", ".join(unused[:8]) + (", …" if len(unused) > 8 else "")
    return [f"no image carries the tags {shown}."] if unused else []
