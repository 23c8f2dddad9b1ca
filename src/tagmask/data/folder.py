"""A folder of photos with a tag table, or with one sub-folder per tag.

What would make the result wrong (an empty tag, two images of one name) is an error; all errors are
reported at once. What only makes it smaller (an image that is missing or has no tags) is left out
and counted in the catalog's notes.
"""

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from posixpath import basename

from tagmask.config.base import within
from tagmask.data.camtrap import camtrap_entries, is_camtrap
from tagmask.data.catalog import Catalog, no_collector
from tagmask.data.images import (
    HEIC_REMEDY,
    UNREAD,
    lacks_reader,
    list_files,
    strip_suffix,
    walk,
)
from tagmask.data.keywords import EMBEDDED, EMBEDDED_PATHS, embedded_table
from tagmask.data.report import Mistakes, left_out_notes
from tagmask.data.table import Row, Table, read_table
from tagmask.data.tiff import HIGH, LOW, TIFF, is_deep
from tagmask.errors import TagmaskError, first_of, typed

# Label Studio puts this before the names of uploads
_UPLOAD = re.compile(r"(?<![^/])[0-9a-f]{8}-(?=[^/]*$)")
# a tag on so few photos may be another one misspelt that is on so many times as many
_RARE = 3
_FREQUENT = 4
_MOST_PAIRS = 100_000  # of rare and frequent tags that are compared
_SHORTEST_SLIP = 4  # letters of a tag; shorter ones, such as cat and car, are often words
_TWO_SLIPS = 8  # letters of a tag in which two slips are no other word
# how tables of areas begin that tagmask has exported
EXPORTED = ("photo,file,class,width,", "photo,class,width,height,", "group,value,class,")
_START_OF_TABLE = 20_000  # bytes that tell which of several tables names the photos
_LAYOUTS = "give a table with the columns file and tags, or one sub-folder per tag"
# names of files in which a tool keeps the tags of all images, the first that is there counts
_KNOWN_FILES = (("annotations.xml",), ("samples.json",), ("metadata.jsonl", "metadata.csv"))


@no_collector()
def read_folder(
    images: Path, tags: Path | None, *, masks: Path | None = None, out: Path | None = None
) -> Catalog:
    """Read a folder of images, at any depth; the classes are its tags in alphabetical order.

    Args:
        images: the folder.
        tags: a table (see ``tagmask.data.table``) with paths relative to ``images``, with or
            without suffix; a file or folder of another tool (see ``tagmask.data.tools``);
            ``embedded`` or ``embedded-paths`` for the keywords in the photos; or None if ``images``
            has one sub-folder per tag.
        masks: a folder with a PNG for each image, at the same relative path; None if there are
            no masks.
        out: the folder of the run, for the command that an error suggests; default: "run".

    Raises:
        TagmaskError: if there are mistakes in the tags, or no image with a tag.
    """
    odd: list[str] = []
    files = list_files(images, odd)
    mistakes = Mistakes(tags or images)
    table = _read_tags(tags, images, files, mistakes)
    classes = sorted(_used_tags(table.rows) | set(table.columns))
    photos, missing = _locate(table, files, images, mistakes)
    mistakes.raise_if_any()
    found_notes = []
    if not photos and not table.loose:
        photos = _located_by_ends(table, files, images)
        if photos:
            found_notes = [_ends_note(missing[0], photos)]
            missing = []
    capital_notes = [] if table.loose or found_notes else _capitals_note(table, photos, images)
    tagged = [photo for photo in photos if photo.tags]
    _check_any(images, tags, out, classes, tagged, missing, files)
    unlisted_notes = _unlisted_note(tags, files, photos)
    untagged = len(photos) - len(tagged)
    tagged, unread_notes = _readable(images, tagged)
    names = [strip_suffix(photo.file) for photo in tagged]
    mask_paths, mask_notes = _find_masks(names, masks)
    notes = [
        *table.notes,
        *found_notes,
        *capital_notes,
        *left_out_notes(missing, odd, untagged),
        *_untagged_note(untagged),
        *unlisted_notes,
        *unread_notes,
        *mask_notes,
        *_unused_note(classes, tagged),
        *_deep_note(images, tagged),
        *_alike_note(classes),
        *_misspelt_note(tagged),
        *_comma_note(classes),
    ]
    numbers = {name: number for number, name in enumerate(classes)}
    known: dict[tuple[str, ...], list[int]] = {}  # a million photos share a few lists of tags
    tag_numbers = []
    for photo in tagged:
        if photo.tags not in known:
            known[photo.tags] = [numbers[tag] for tag in photo.tags]
        tag_numbers.append(known[photo.tags])
    paths = (os.path.join(images, photo.file) for photo in tagged)
    return Catalog(classes, names, tag_numbers, images=paths, masks=mask_paths, notes=notes)


def _used_tags(rows: Iterable[Row]) -> set[str]:
    """Return the tags that at least one row has."""
    used: set[str] = set()
    for row in rows:
        used.update(row.tags)
    return used


def _check_any(
    images: Path,
    tags: Path | None,
    out: Path | None,
    classes: list[str],
    tagged: list[Row],
    missing: list[str],
    files: Sequence[str],
) -> None:
    """Refuse data without a tag, without an image, or without an image that has a tag."""
    if not classes:
        _refuse_unread(images)
        source = images if tags in (None, EMBEDDED, EMBEDDED_PATHS) else tags
        hint = _where_tags_may_be(images, out, files) if tags is None else ""
        raise TagmaskError(f"{source} contains no tags; {_LAYOUTS}.{hint}")
    if tagged:
        return
    if missing:
        raise TagmaskError(
            f"none of the {len(missing):,} images in {tags} exists; the first was looked for at "
            f"{images / missing[0]}. Paths in the table are relative to the images folder."
            f"{_other_suffix(missing[0], files)}{_no_photos(files)}"
        )
    raise TagmaskError(f"no image in {images} carries a tag; {_LAYOUTS}.")


def _readable(images: Path, photos: list[Row]) -> tuple[list[Row], list[str]]:
    """Return the photos for which there is a reader, and a note on the others.

    They are left out here, and not photo by photo in every stage, so that a run sees that its
    photos have changed when the reader is installed.
    """
    unread = [photo.file for photo in photos if lacks_reader(photo.file)]
    if not unread:
        return photos, []
    if len(unread) == len(photos):
        raise TagmaskError(f"{images / unread[0]} is a photo in HEIC, like all; {HEIC_REMEDY}.")
    remedy = HEIC_REMEDY.replace(" it", " them")
    readable = [photo for photo in photos if not lacks_reader(photo.file)]
    shown = first_of(unread)
    return readable, [f"{len(unread):,} photos in HEIC were left out: {shown}; {remedy}."]


def _unlisted_note(tags: Path | None, files: Sequence[str], photos: Sequence[Row]) -> list[str]:
    """Return a note on photos of the folder that a table does not list, if there are any."""
    if tags is None or tags in (EMBEDDED, EMBEDDED_PATHS):
        return []
    listed = {photo.file for photo in photos}
    others = [file for file in files if file not in listed and strip_suffix(file) != file]
    if not others:
        return []
    verb = "photo is" if len(others) == 1 else "photos are"
    return [f"{len(others):,} {verb} not in {tags.name} and left out: {first_of(others)}."]


def _untagged_note(untagged: int) -> list[str]:
    """Return a note on how photos without tags can be used, if there are any."""
    if not untagged:
        return []
    return [
        "nothing is learned from photos without a tag; if they show none of your things, give them "
        "a tag for what they show, such as tree."
    ]


def _where_tags_may_be(images: Path, out: Path | None, files: Sequence[str]) -> str:
    """Return a sentence on how to get tags for photos without any."""
    if _no_photos(files):
        return _no_photos(files)
    tables = [images / file for file in files if file.lower().endswith((".csv", ".tsv"))]
    for suffix in ("*.csv", "*.tsv"):
        tables += sorted(images.absolute().parent.glob(suffix))
    known = {name for file in files for name in (basename(file), strip_suffix(basename(file)))}
    named = {table: _photos_named(table, known) for table in tables}
    foreign = [table for table, count in named.items() if count is not None]
    if foreign:
        best = max(foreign, key=lambda table: named[table] or 0)
        table = os.path.relpath(best)
        command = typed("tagmask", "run", images, table, "--out", out or "run")
        return f" Is {table} the table? Then name it: `{command}`."
    return f" `{typed('tagmask', 'studio', images)}` tags photos in the browser."


def _photos_named(table: Path, known: set[str]) -> int | None:
    """Return how many photos the beginning of a table names; None if it was exported here.

    Args:
        table: a CSV or TSV file.
        known: names of the photos, with and without suffix.
    """
    try:
        with table.open("rb") as file:
            start = file.read(_START_OF_TABLE)
    except OSError:
        return None
    encoding = "utf-16" if start[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    lines = start.decode(encoding, "replace").splitlines()
    if lines and re.sub("[\t;]", ",", lines[0]).startswith(EXPORTED):
        return None
    found: set[str] = set()
    for line in lines:
        cells = [cell.strip(" \"'") for cell in re.split("[,;\t]", line)]
        found.update(basename(cell.replace("\\", "/")) for cell in cells)
    return len(found & known)


def _no_photos(files: Sequence[str]) -> str:
    """Return a sentence if there is no photo among files, with what is there instead."""
    if any(strip_suffix(file) != file for file in files):
        return ""
    archives = [file for file in files if file.lower().endswith((".zip", ".tar", ".gz", ".7z"))]
    if archives:
        return f" The folder holds archives and no photos; unpack {first_of(archives, 2)} first."
    return " There are no photos in the folder."


def _other_suffix(missing: str, files: Sequence[str]) -> str:
    """Return a sentence if a missing image is there with another suffix."""
    stem = _composed(strip_suffix(missing.strip().replace("\\", "/")))
    for file in files:
        if file != stem and _composed(strip_suffix(file)) == stem:
            return f" {file} is there: correct the suffixes in the table, or leave them out."
    return ""


def _refuse_unread(images: Path) -> None:
    """Refuse a folder that holds nothing but photos of formats that cannot be read."""
    suffixes = [file.suffix.lower() for file in images.rglob("*") if file.suffix]
    unread = [suffix for suffix in suffixes if suffix in UNREAD]
    if unread:
        kinds = ", ".join(sorted(set(unread)))
        raise TagmaskError(
            f"{images} holds {len(unread):,} photos that cannot be read ({kinds}); "
            "export them as JPEG first (phones and photo programs can), and use that folder."
        )


def _read_tags(tags: Path | None, images: Path, files: list[str], mistakes: Mistakes) -> Table:
    """Read the tags, wherever they are."""
    if tags is None:
        return _table_of_folders(files)
    if tags in (EMBEDDED, EMBEDDED_PATHS):
        return embedded_table(images, files, whole_paths=tags == EMBEDDED_PATHS)
    folder = tags.parent if tags.name == "datapackage.json" else tags
    if is_camtrap(folder):
        entries = camtrap_entries(folder)
        return Table([Row(place, file, tuple(names)) for place, file, names in entries], (), True)
    if tags.is_dir():
        return _table_of_tool(tags, images)
    table = read_table(tags, mistakes)
    if table.loose:
        return Table(_below(tags, images, tags.parent, table), (), loose=True)
    return table


def _table_of_folders(files: list[str]) -> Table:
    """Make the table of a folder with one sub-folder per tag.

    The first folder of a picture's path is its only tag; pictures beside the folders have none.
    """
    rows = []
    for path in files:
        if strip_suffix(path) == path:  # no picture
            continue
        tags = (path.split("/")[0],) if "/" in path else ()
        rows.append(Row(path, path, tags))
    return Table(rows, ())


def _table_of_tool(folder: Path, images: Path) -> Table:
    """Read the tags in a folder that another tool has written."""
    rows: list[Row] = []
    for path in _tag_files(folder):
        mistakes = Mistakes(path)
        table = read_table(path, mistakes)
        if not table.loose:  # no file of a tool
            continue
        mistakes.raise_if_any()
        file = os.path.relpath(path, folder)
        for row in _below(path, images, folder, table):
            rows.append(replace(row, place=f"{file}, {row.place}"))
    if not rows:
        raise TagmaskError(
            f"{folder} holds no tags of a tool that is known here; "
            "name the file with the tags itself."
        )
    return Table(rows, (), loose=True)


def _tag_files(folder: Path) -> list[Path]:
    """Return a tool's files in a folder: one for all images, for each part, or for each image."""
    paths = [folder / path for path in sorted(walk(folder))]
    for known in _KNOWN_FILES:
        found = [path for path in paths if path.name in known]
        if found:
            return found
    return [path for path in paths if path.suffix.lower() == ".json"]


def _below(path: Path, images: Path, root: Path, table: Table) -> list[Row]:
    """Return the rows of a tool's file, with paths from ``images`` if the file lies there.

    Otherwise paths are from ``root``.
    """
    start = images if within(path, images) else root
    real_start = os.path.realpath(start)
    folder = os.path.relpath(os.path.realpath(path.parent), real_start)
    rows = []
    for row in table.rows:
        file = os.path.normpath(os.path.join(folder, row.file))
        rows.append(replace(row, file=file))
    return rows


def _locate(
    table: Table, files: list[str], images: Path, mistakes: Mistakes
) -> tuple[list[Row], list[str]]:
    """Return the rows whose image exists, with its path, and the entries whose image is missing.

    Names must be unique.
    """
    photos: list[Row] = []
    missing: list[str] = []
    owners: dict[str, Row] = {}  # name: the first row whose photo has that name
    find: Callable[[str], list[str]]
    if table.loose:
        find = Tails(files).find
        remedy = "rename one"
    else:
        find = _Files(files).find
        remedy = "write the suffix"
    for row in table.rows:
        paths = find(normal_path(row.file, images))
        if not paths:
            missing.append(row.file)
            continue
        if len(paths) > 1:
            fault = f'"{row.file}" may be {" or ".join(paths)}; {remedy}'
            mistakes.add("ambiguous", row.place, fault)
            continue
        photo = row if row.file == paths[0] else replace(row, file=paths[0])
        first = owners.setdefault(strip_suffix(photo.file), row)
        if first is not row and first.file != row.file:
            (of_first,) = find(normal_path(first.file, images))
            fault = _duplicate(photo, replace(first, file=of_first))
            mistakes.add("duplicate", row.place, fault)
        photos.append(photo)
    return photos, missing


def _located_by_ends(table: Table, files: list[str], images: Path) -> list[Row]:
    """Return the rows of a table whose paths are from another folder or machine, with the images.

    Images are known by how their paths end; unless that is clear for all of them, none is found.
    """
    mistakes = Mistakes(images)
    photos, missing = _locate(replace(table, loose=True), files, images, mistakes)
    return [] if missing or mistakes else photos


def _ends_note(entry: str, photos: Sequence[Row]) -> str:
    """Return a note on paths that are from another folder."""
    return (
        "paths in the table are from another folder; images were found by how their paths end, "
        f"{photos[0].file} for {entry}."
    )


def _capitals_note(table: Table, photos: Sequence[Row], images: Path) -> list[str]:
    """Return a note on photos that the table writes with other capitals, if there are any."""
    if len(photos) == 0:
        return []
    places = {row.place: row.file for row in table.rows}
    shown = []
    for photo in photos:
        stem = strip_suffix(normal_path(places[photo.place], images))
        if _composed(stem) == _composed(strip_suffix(photo.file)):
            continue
        shown.append(f"{photo.file} for {places[photo.place]}")
    if not shown:
        return []
    return [
        f"{len(shown):,} names in the table differ from their photos in capitals alone and were "
        f"taken for them: {first_of(shown, 3)}."
    ]


def _duplicate(photo: Row, first: Row) -> str:
    """Return a sentence about a photo that has the name of an earlier one."""
    if photo.file == first.file:
        return f"{photo.file} is already listed at {first.place}; keep one of the two"
    return f"{photo.file} has the name of {first.file} ({first.place}); rename or remove one"


def _grouped(values: Iterable[str], key: Callable[[str], str]) -> dict[str, list[str]]:
    """Group values by their key."""
    groups: dict[str, list[str]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return groups


def normal_path(entry: str, images: Path) -> str:
    """Return an entry as a path below the images, with "/".

    Args:
        entry: a path as a table has it, relative or absolute, with "/" or backslashes.
        images: the folder of the images.
    """
    path = os.path.normpath(entry.strip().replace("\\", "/"))
    if os.path.isabs(path):
        path = os.path.relpath(path, os.path.abspath(images))
    return path.replace(os.sep, "/")


class _Files:
    """Finds the files that a path in a table may mean."""

    def __init__(self, files: list[str]) -> None:
        self._files = files
        self._present = set(files)

    @cached_property
    def _stems(self) -> dict[str, list[str]]:
        """Return the files by their paths without suffix, for tables that are less exact."""
        return _grouped(self._files, lambda file: _composed(strip_suffix(file)))

    @cached_property
    def _folded(self) -> dict[str, list[str]]:
        """Return the files by their paths in small letters, without suffix."""
        return _grouped(self._files, lambda file: _composed(strip_suffix(file)).casefold())

    def find(self, path: str) -> list[str]:
        """Return the files that a path may mean: the exact one, else ignoring case.

        A path without suffix means all files of that stem.
        """
        found = self._find(path)
        if found:
            return found
        stem = strip_suffix(path)
        alike = self._folded.get(_composed(stem).casefold(), [])
        if stem != path:
            wanted = _composed(path).casefold()
            alike = [file for file in alike if _composed(file).casefold() == wanted]
        # of several that differ in capitals alone, none is meant more than another
        return alike if len(alike) == 1 else []

    def _find(self, path: str) -> list[str]:
        """Return the files that a path may mean; only its suffix may differ in capitals."""
        stem = strip_suffix(path)
        if stem != path and path in self._present:
            return [path]
        candidates = self._stems.get(_composed(stem), [])
        same_stem = [file for file in candidates if strip_suffix(file) == stem]
        candidates = same_stem or candidates
        if stem == path:
            return candidates
        wanted = _composed(path).lower()
        return [file for file in candidates if _composed(file).lower() == wanted]


def _composed(name: str) -> str:
    """Return a name with accents as tables write them; macOS keeps letters and accents apart."""
    return unicodedata.normalize("NFC", name)


class Tails:
    """Finds files that a tool knows by a longer path, from its own root, or by a shorter one.

    Label Studio renames uploads: "Żółw kot.jpg" becomes "320d2528-Żółw_kot.jpg". Such a name
    means every file that would have been renamed so.
    """

    def __init__(self, files: Iterable[str]) -> None:
        known = list(files)
        self._same_name = _grouped(known, basename)
        self._same_upload = _grouped(known, lambda file: _uploaded_name(basename(file)))

    def find(self, path: str) -> list[str]:
        """Return the files that a path may mean.

        That is the exact file, else the longest path that ``path`` ends with, else all that end
        with ``path``.
        """
        original = _UPLOAD.sub("", path)
        for known in (path, original):
            files = self._same_name.get(basename(known), [])
            shorter = [file for file in files if f"/{known}".endswith(f"/{file}")]
            if shorter:
                return [max(shorter, key=len)]
            longer = [file for file in files if file.endswith(f"/{known}")]
            if longer:
                return longer
        if original == path:
            return []
        return self._same_upload.get(_uploaded_name(basename(original)), [])


def _uploaded_name(name: str) -> str:
    """Return the name of a file after an upload, without what is put before it.

    As Django does it: blanks become underscores, and only letters, digits, "-", "_" and "." stay.
    """
    composed = unicodedata.normalize("NFC", name.strip())
    return re.sub(r"[^-\w.]", "", composed.replace(" ", "_"))


def _find_masks(names: list[str], masks: Path | None) -> tuple[list[Path | None], list[str]]:
    """Return the mask file of each image, if there is one, and a note on images without."""
    if masks is None:
        return [None] * len(names), []
    if not masks.is_dir():
        raise TagmaskError(f"{masks} is not a folder; check the path of the masks.")
    present = set(walk(masks))
    paths: list[Path | None] = []
    for name in names:
        file = f"{name}.png"
        paths.append(masks / file if file in present else None)
    absent = paths.count(None)
    if absent == len(names):
        first = masks / f"{names[0]}.png"
        raise TagmaskError(f"no image has a mask in {masks}; the first was looked for at {first}.")
    if not absent:
        return paths, []
    return paths, [f"{absent:,} of {len(names):,} images have no mask."]


def _alike_note(classes: Sequence[str]) -> list[str]:
    """Return a note on tags that may be meant to be the same, if there are any."""
    alike = _grouped(classes, lambda name: unicodedata.normalize("NFC", name).casefold())
    shown = []
    for names in alike.values():
        if len(names) > 1:
            shown.append(" and ".join(f'"{name}"' for name in names))
    if not shown:
        return []
    remedy = "if they are meant to be the same, write them alike"
    return [f"these tags look alike and are different classes: {'; '.join(shown[:3])}; {remedy}."]


def _misspelt_note(tagged: Iterable[Row]) -> list[str]:
    """Return a note on rare tags that are spelt almost like a frequent one, if there are any."""
    counts: Counter[str] = Counter()
    for photo in tagged:
        counts.update(photo.tags)
    rare = sorted(name for name in counts if counts[name] <= _RARE)
    frequent = [name for name in counts if counts[name] >= _FREQUENT]
    if len(rare) * len(frequent) > _MOST_PAIRS:
        # no vocabulary that a person has typed
        return []
    shown = []
    for name in rare:
        count = counts[name]
        often = [other for other in frequent if counts[other] >= _FREQUENT * count]
        near = [other for other in often if _is_slip(name, other)]
        if near:
            best = max(near, key=lambda other: counts[other])
            photos = "1 photo" if count == 1 else f"{count} photos"
            shown.append(f'"{name}" ({photos}) may be "{best}" ({counts[best]:,}) misspelt')
    if not shown:
        return []
    return [f"{first_of(shown, 3)}; if so, correct it: each spelling is a class of its own."]


def _is_slip(name: str, other: str) -> bool:
    """Return True if two tags differ in one slip of the hand, or in two if they are long.

    A slip is a letter too many, too few, another one, or two that have changed places. Tags that
    differ in digits, such as plot 1 and plot 2, are different on purpose.
    """
    first, second = (unicodedata.normalize("NFC", tag).casefold() for tag in (name, other))
    shorter = min(len(first), len(second))
    if first == second or shorter < _SHORTEST_SLIP:
        return False
    if abs(len(first) - len(second)) > 2:
        return False
    if re.sub(r"\d", "", first) == re.sub(r"\d", "", second):
        return False
    return _slips(first, second) <= (2 if shorter >= _TWO_SLIPS else 1)


def _slips(first: str, second: str) -> int:
    """Return the distance of Damerau and Levenshtein between two texts."""
    before: list[int] = []
    row = list(range(len(second) + 1))
    for i, mark in enumerate(first, 1):
        above_before, before, row = before, row, [i]
        for j, other in enumerate(second, 1):
            cost = before[j - 1] + (mark != other)
            least = min(cost, before[j] + 1, row[j - 1] + 1)
            is_swapped = i > 1 and j > 1 and mark == second[j - 2] and first[i - 2] == other
            if is_swapped:
                least = min(least, above_before[j - 2] + 1)
            row.append(least)
    return row[-1]


def _comma_note(classes: Sequence[str]) -> list[str]:
    """Return a note on tags with a comma, which may be meant to be several tags."""
    commas = [name for name in classes if "," in name]
    if not commas:
        return []
    return [f'"{commas[0]}" is one tag; several tags of a photo are separated by ";".']


def _deep_note(images: Path, photos: Iterable[Row]) -> list[str]:
    """Return a note on photos whose values are stretched to be seen, if there are any."""
    count = 0
    for photo in photos:
        if photo.file.lower().endswith(tuple(TIFF)):
            count += is_deep(images / photo.file)
    if not count:
        return []
    return [
        f"{count:,} TIFF photos have more than 8 bits or other bands; "
        f"three bands of each are used, stretched from their {LOW}nd to their {HIGH}th percentile "
        "(docs/how-to/exchange.md)."
    ]


def _unused_note(classes: Sequence[str], tagged: list[Row]) -> list[str]:
    """Return a note on tags that no image has, if there are any."""
    used = _used_tags(tagged)
    unused = [name for name in classes if name not in used]
    if not unused:
        return []
    return [f"no image carries the tags {first_of(unused, 8)}."]
