"""Tag tables: CSV, JSON and JSON Lines, read into rows of (place, file, tags).

CSV     file,tags            with tags separated by ";" or "|"
        file,cat,dog,…       one column per class with 0 or 1, or with x and nothing
JSON    {"a.jpg": ["dog"]}   or [{"file": "a.jpg", "tags": ["dog"]}, …]
JSONL   {"file": "a.jpg", "tags": ["dog"]} on each line

All mistakes are collected. Files of other tools are known by what they contain: see
``tagmask.data.tools``.
"""

import ast
import csv
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tagmask.data.images import SUFFIXES
from tagmask.data.report import Mistakes
from tagmask.data.tools import (
    TAG_COLUMNS,
    Entry,
    cvat_entries,
    is_list_of_texts,
    json_entries,
    line_entries,
)
from tagmask.errors import TagmaskError, first_of
from tagmask.files import read_text

FILE_HEADERS = (
    "file",
    "filename",
    "file_name",
    "filepath",
    "file_path",
    "image",
    "image_path",
    "img",
    "name",
    "path",
    "photo",
    "image_name",
    "photo_name",
    "picture",
    "bild",
    "bildname",
    "foto",
    "datei",
    "dateiname",
    "imagen",
    "archivo",
    "fichier",
    "immagine",
)
# what a column of tags may be called; "(s)" and blanks in a header do not count
_TAG_HEADERS = (
    *("tag", "class", "category", "keyword", *TAG_COLUMNS),
    *("species", "animal", "animals", "plant", "plants", "taxon", "object", "objects"),
    *("klasse", "klassen", "kategorie", "art", "arten", "tier", "tiere", "pflanze", "pflanzen"),
    *("schlagwort", "schlagwörter", "especie", "especies", "etiqueta", "etiquetas", "clase"),
    *("espèce", "espèces", "étiquette", "étiquettes", "classe", "specie", "etichetta"),
)
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_MOST_KNOWN = 100_000  # cells whose tags are remembered
LONGEST_TAG = 60  # characters, of one that is typed
_BITS = {"0": False, "1": True, "0.0": False, "1.0": True, "0,0": False, "1,0": True}
# marks of a table without numbers, in which an empty cell means no
_YES = ("x", "yes", "true", "ja", "wahr", "oui", "vrai", "sí", "si", "sì", "sim", "verdadero")
_NO = ("", "no", "false", "nein", "falsch", "non", "faux", "não", "nao", "falso")
_WORDS = {**dict.fromkeys(_YES, True), **dict.fromkeys(_NO, False)}
# the separator of the cells, which Excel reads from a line of its own
_SEPARATOR = re.compile(r"\s*sep=(?P<mark>[,;\t|])[ \t]*(?=[\r\n])", re.IGNORECASE)
_SPREADSHEETS = (".xlsx", ".xls", ".ods", ".numbers")
_MOST_COUNTED = 999  # things of a class on a photo; larger numbers are something else
_LOOKED_AT = 100  # rows that tell a table of words from one of marks


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table: where it is ("line 3"), the file as written there, and its tags."""

    place: str
    file: str
    tags: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """What a file of tags says."""

    rows: list[Row]
    columns: tuple[str, ...]  # classes named by the header; empty if the rows list their tags
    loose: bool = False  # made by a tool that may know the images by longer or shorter paths
    notes: tuple[str, ...] = ()  # how it was read, if it is not as the documentation writes it


class _Object(dict[str, Any]):
    """A JSON object with all its pairs, so that repeated keys are seen."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs


def clean_tag(text: str) -> str:
    """Return a tag as it is kept.

    Args:
        text: What was typed.

    Raises:
        TagmaskError: A table or a mask cannot hold it.
    """
    tag = " ".join(text.split())
    if not tag or len(tag) > LONGEST_TAG:
        raise TagmaskError(f"a tag has 1 to {LONGEST_TAG} characters; this one has {len(tag)}.")
    if any(mark in tag for mark in ";|,[]") or any(
        unicodedata.category(mark) in ("Cc", "Cs") for mark in tag
    ):
        raise TagmaskError(f"the tag {tag!r} contains a mark that tables use; leave out ; | , [ ].")
    if tag.casefold() == "background":
        raise TagmaskError("what has no tag is the background; give the tag another name.")
    return tag


def read_table(path: Path, mistakes: Mistakes) -> Table:
    """Read a tag table by its suffix.

    Args:
        path: the file.
        mistakes: gets what is wrong with the content.

    Raises:
        TagmaskError: if the file cannot be read as a table at all.
    """
    readers: dict[str, Callable[[Path, str, Mistakes], Table]] = {
        ".csv": _read_csv,
        ".tsv": _read_csv,
        ".json": _read_json,
        ".jsonl": _read_jsonl,
        ".ndjson": _read_jsonl,
        ".xml": _read_cvat,
        ".zip": _read_cvat,
        ".txt": _read_csv,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        remedy = ""
        if path.suffix.lower() in _SPREADSHEETS:
            remedy = ' Save the spreadsheet as "CSV UTF-8" first.'
        raise TagmaskError(
            f"{path} has no known suffix; tags are read from {', '.join(readers)} files.{remedy}"
        )
    # CVAT's file may be a zip, which its reader opens itself
    text = "" if reader is _read_cvat else read_text(path)
    table = reader(path, text, mistakes)
    _check_rows(table.rows, mistakes)
    return table


def _read_csv(path: Path, text: str, mistakes: Mistakes) -> Table:
    """Read a table with a column of tags, or with one column per class."""
    separator = _SEPARATOR.match(text)
    if separator is None:
        first_line = text.lstrip().split("\n", 1)[0]
        delimiter = next((mark for mark in (",", "\t", ";") if mark in first_line), ",")
    else:
        # its line stays, empty, so that lines keep their numbers
        text = text[separator.end() :]
        delimiter = separator["mark"]
    reader = csv.reader(_lines(text), delimiter=delimiter, strict=True)
    lines = _numbered(path, reader)
    place, cells = next(lines, ("line 1", []))
    header = [name.strip() for name in cells]
    metadata = _metadata_columns(header)
    notes: list[str] = []
    if metadata is None and _needs_a_look(header):
        numbered = list(lines)
        header, notes = _by_content(header, numbered)
        lines = iter(numbered)
    if header and not header[-1]:
        numbered = list(lines)
        _drop_empty_columns(header, numbered)
        lines = iter(numbered)
    names_tags = len(header) == 2 and _is_tag_header(header[1])
    if names_tags and header[1].lower() != "tags":
        numbered = list(lines)
        lines = iter(numbered)
        # a class may be called "label", too: then its column holds 0 and 1, or x
        marked = {row[-1].strip().lower() for _, row in numbered}
        if not marked <= _BITS.keys() and not marked <= {"x", ""}:
            header[1] = "tags"
    classes = () if metadata else _class_columns(header, delimiter, place, mistakes)
    file_column, tags_column = metadata or (0, 1)
    marks: Mapping[str, bool] = {}
    if classes:
        numbered = list(lines)
        lines = iter(numbered)
        marks, count_notes = _marks(classes, delimiter, numbered, place, mistakes)
        notes += count_notes
    rows = []
    is_separated = False  # tags are separated by something else than a comma
    known: dict[str, tuple[str, ...]] = {}  # cells of a million rows say the same few things
    for place, row in lines:
        if len(row) != len(header):
            fault = (
                f"{len(row)} cells, but the header has {len(header)}; "
                f"quote cells that contain {delimiter!r}"
            )
            if not classes:
                fault += ', and write several tags of a photo as "dog;cat"'
            mistakes.add("cells", place, fault)
        elif classes:
            tags = _marked(row, classes, marks, place, mistakes)
            rows.append(Row(place, row[0], tags))
        else:
            cell = row[tags_column]
            own = known.get(cell)
            if own is None:
                words = split_tags_of_cell(cell)
                is_separated = is_separated or re.search(r"[;|\[]", cell) is not None
                own = _clean(words, place, mistakes)
                # a mistake is reported wherever it is
                if len(own) == len(words) and len(known) < _MOST_KNOWN:
                    known[cell] = own
            rows.append(Row(place, row[file_column], own))
    if not classes and not is_separated:
        rows, comma_notes = _split_at_commas(rows)
        notes += comma_notes
    return Table(rows, classes, loose=metadata is not None, notes=tuple(notes))


def _by_content(
    header: list[str], rows: Sequence[tuple[str, list[str]]]
) -> tuple[list[str], list[str]]:
    """Find the columns of files and tags in a table with other names or more columns.

    Args:
        header: Names of the columns.
        rows: Places and cells, which are changed to hold the file and its tags alone.

    Returns:
        The header as it should be and a note, or the same header if anything is in doubt.
    """
    if not rows or any(len(row) != len(header) for _, row in rows):
        return header, []
    if _is_file_header(header[0]) and not _has_words(rows[:_LOOKED_AT]):
        # one column per class
        return header, []
    columns = [[row[number].strip() for _, row in rows] for number in range(len(header))]
    filled = [number for number, cells in enumerate(columns) if any(cells)]
    file_column = _file_column(header, columns, filled)
    if file_column is None or Path(header[file_column]).suffix.lower() in SUFFIXES:
        # in doubt, or there is no header
        return header, []
    others = [number for number in filled if number != file_column]
    tags_column = _tags_column(header, columns, others)
    if tags_column is None:
        return header, []
    chosen = (file_column, tags_column)
    left_out = [f'"{header[number]}"' for number in others if number != tags_column]
    left_out = [name for name in left_out if name != '""']
    for _, row in rows:
        row[:] = [row[number] for number in chosen]
    are_known = _is_file_header(header[file_column]) and _is_tag_header(header[tags_column])
    if chosen == (0, 1) and are_known and not left_out:
        return ["file", "tags"], []
    names = [f'"{header[number]}"' for number in chosen]
    note = f"the columns {' and '.join(names)} were read as file and tags"
    if left_out:
        note += f"; not read: {first_of(left_out)}"
    return ["file", "tags"], [f"{note}."]


def _file_column(
    header: Sequence[str], columns: Sequence[Sequence[str]], filled: Sequence[int]
) -> int | None:
    """Return the number of the column that names photos; None if that is in doubt."""
    photos = [number for number in filled if _are_photos(columns[number])]
    if len(photos) == 1:
        return photos[0]
    named = [number for number in photos or filled if _is_file_header(header[number])]
    return named[0] if len(named) == 1 else None


def _tags_column(
    header: Sequence[str], columns: Sequence[Sequence[str]], others: Sequence[int]
) -> int | None:
    """Return the number of the column that holds the tags; None if that is in doubt.

    Args:
        header: Names of the columns.
        columns: Cells of each column.
        others: Numbers of the columns beside the photos that are not empty.
    """
    worded = [number for number in others if _hold_words(columns[number])]
    # "tag1" and "tag2" are two columns of tags
    named = [number for number in worded if _is_tag_header(header[number].rstrip(" _0123456789"))]
    if named:
        return named[0] if len(named) == 1 else None
    if len(worded) != 1:
        return None
    if others == worded:
        return worded[0]
    cells = [cell for cell in columns[worded[0]] if cell]
    is_repeated = len(set(cells)) < len(cells)
    is_marked = any(_hold_marks(columns[number]) for number in others)
    return worded[0] if is_repeated and not is_marked else None


def _needs_a_look(header: Sequence[str]) -> bool:
    """Return True if the header alone does not say which columns hold files and tags."""
    if len(header) < 2:
        return False
    if len(header) > 2 or not _is_file_header(header[0]):
        return True
    return not _is_tag_header(header[1])


def _is_file_header(name: str) -> bool:
    """Return True if a header is one that columns of photos have."""
    return _bare(name) in _BARE_FILES


def _is_tag_header(name: str) -> bool:
    """Return True if a header is one that columns of tags have."""
    return _bare(name) in _BARE_TAGS


def _bare(name: str) -> str:
    """Return a header in small letters without blanks, lines, and "(s)" at its end."""
    composed = unicodedata.normalize("NFC", name).casefold()
    return re.sub(r"[\s_-]+|\(\w+\)$", "", composed)


_BARE_FILES = frozenset(map(_bare, FILE_HEADERS))
_BARE_TAGS = frozenset(map(_bare, _TAG_HEADERS))


def _has_words(rows: Sequence[tuple[str, list[str]]]) -> bool:
    """Return True if a cell beside the files is no mark and no number."""
    for _, row in rows:
        for cell in row[1:]:
            if _hold_words([cell]):
                return True
    return False


def _hold_marks(cells: Iterable[str]) -> bool:
    """Return True if cells say yes and no, as those of a column for a class do."""
    found = {cell.strip().lower() for cell in cells}
    for marks in (_BITS, _WORDS):
        if found <= marks.keys() and {marks[cell] for cell in found} == {True, False}:
            return True
    return False


def _hold_words(cells: Iterable[str]) -> bool:
    """Return True if cells hold words that are no marks such as 1, x or yes."""
    filled = {cell.strip().lower() for cell in cells} - {""}
    marks = _BITS.keys() | _WORDS.keys()
    if not filled or filled & marks:
        return False
    # numbers, dates and times have no letters
    return not any(map(_is_number, filled)) and any(re.search(r"[^\W\d_]", cell) for cell in filled)


def _are_photos(cells: Sequence[str]) -> bool:
    """Return True if the cells of a column name photos, but for a few."""
    photos = [cell for cell in cells if Path(cell).suffix.lower() in SUFFIXES]
    return 2 * len(photos) > len(cells)


def _split_at_commas(rows: list[Row]) -> tuple[list[Row], list[str]]:
    """Split tags at commas, in a table that has no other separator, and say so."""
    split = []
    first = ""
    for row in rows:
        if any("," in tag for tag in row.tags):
            first = first or ";".join(row.tags)
            words = ",".join(row.tags).split(",")
            tags = dict.fromkeys(word.strip() for word in words if word.strip())
            row = replace(row, tags=tuple(tags))
        split.append(row)
    if not first:
        return rows, []
    return split, [f'"{first}" was read as several tags; a tag itself has no comma.']


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of a text with their ends; a list would take more than the text."""
    for line in _LINE.finditer(text):
        yield line.group()


def _drop_empty_columns(header: list[str], rows: Sequence[tuple[str, list[str]]]) -> None:
    """Remove the last columns if they are empty, as spreadsheets write them."""
    while len(header) > 2 and not header[-1]:
        last = len(header) - 1
        if any(len(row) != last + 1 or row[last].strip() for _, row in rows):
            return
        header.pop()
        for _, row in rows:
            row.pop()


def _metadata_columns(header: list[str]) -> tuple[int, int] | None:
    """Return where Hugging Face's metadata.csv has files and tags; None for another table."""
    if "file_name" not in header:
        return None
    for name in TAG_COLUMNS:
        if name in header:
            return header.index("file_name"), header.index(name)
    return None


def split_tags_of_cell(cell: str) -> Sequence[str]:
    """Return the tags of a cell: separated by ; or |, or a list as JSON or Python writes it."""
    if not cell.strip():
        return ()
    if cell.strip().startswith("["):
        for read in (json.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                value = read(cell)
                if is_list_of_texts(value):
                    return value
    return re.split("[;|]", cell)


def _numbered(path: Path, reader: Any) -> Iterator[tuple[str, list[str]]]:
    """Yield the rows that are not blank, each with the line on which it begins."""
    line = 1
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                yield f"line {line}", row
            line = reader.line_num + 1
    except csv.Error as error:
        raise TagmaskError(
            f"{path} is not valid CSV from line {line} on ({error}); correct the quotes there."
        ) from None


def _class_columns(
    header: list[str], delimiter: str, place: str, mistakes: Mistakes
) -> tuple[str, ...]:
    """Return the class names in the header, or () if it has a column of tags.

    An unusable header is an error.
    """
    plain = delimiter.join(("file", "tags"))
    wanted = f'the header must be "{plain}", or "file" and one column per class'
    if len(header) < 2 or not _is_file_header(header[0]):
        first = delimiter.join(header)
        hint = ""
        if len(header) > 2:
            hint = '; call the columns of photos and tags "file" and "tags", or delete the others'
        if header and Path(header[0]).suffix.lower() in SUFFIXES:
            hint = f'; this line looks like a photo: add the line "{plain}" above it'
        elif len(header) > 1 and not header[0]:
            hint = "; remove the first column, which has no name"
        elif len(header) == 2 and _is_file_header(header[1]):
            hint = "; swap the columns"
        mistakes.add("header", place, f'{wanted}, not "{first}"{hint}')
    elif header[1].lower() == "tags":
        for name in header[2:]:
            mistakes.add(
                "header", place, f'unknown column "{name}" beside "tags"; remove it: {wanted}'
            )
        return ()
    else:
        seen: set[str] = set()
        for number, name in enumerate(header[1:], 2):
            if not name:
                mistakes.add("header", place, f"column {number} has no name; {wanted}")
            elif name in seen:
                mistakes.add("header", place, f'the column "{name}" is given twice; keep one')
            seen.add(name)
    mistakes.raise_if_any()
    return tuple(header[1:])


def _marks(
    classes: tuple[str, ...],
    delimiter: str,
    rows: Sequence[tuple[str, list[str]]],
    place: str,
    mistakes: Mistakes,
) -> tuple[Mapping[str, bool], list[str]]:
    """Return what the cells of a table with one column per class mean: marks, or counts.

    Columns of other words are one mistake, not one for each cell. Of counts there is a note.
    """
    found: list[set[str]] = [set() for _ in classes]
    for _, row in rows:
        for own, cell in zip(found, row[1:], strict=False):
            own.add(cell.strip().lower())
    cells = set().union(*found)
    if cells <= _WORDS.keys() and any(_WORDS[cell] for cell in cells):
        return _WORDS, []
    worded = [f'"{name}"' for name, own in zip(classes, found, strict=True) if _hold_words(own)]
    if worded:
        shown = first_of(worded, 3)
        fault = f"the column {shown} holds words, not 0 and 1"
        if len(worded) > 1:
            fault = f"the columns {shown} hold words, not 0 and 1"
        if len(classes) > 1:
            fault += '; call the one with the tags "tags", and the others are not read'
        plain = delimiter.join(("file", "tags"))
        example = delimiter.join(("001.jpg", "dog|cat" if delimiter == ";" else "dog;cat"))
        fault += (
            f'; write several tags of a photo in one column: the header "{plain}", then "{example}"'
        )
        mistakes.add("header", place, fault)
        mistakes.raise_if_any()
    if not cells <= _BITS.keys() and _are_counts(cells):
        shown = first_of([f'"{name}"' for name in classes], 3)
        largest = max(map(int, cells))
        note = f"the columns {shown} hold counts up to {largest}; above 0 a photo has the tag."
        return {cell: int(cell) > 0 for cell in cells}, [note]
    return _BITS, []


def _are_counts(cells: Iterable[str]) -> bool:
    """Return True if cells can be the numbers of things on photos, some of them 0."""
    numbers = set()
    for cell in cells:
        if not (cell.isascii() and cell.isdecimal() and len(cell) < 9):
            return False
        numbers.add(int(cell))
    return bool(numbers) and min(numbers) == 0 and max(numbers) <= _MOST_COUNTED


def _is_number(cell: str) -> bool:
    return cell.replace(",", ".", 1).replace(".", "", 1).lstrip("+-").isdecimal()


def _marked(
    row: list[str],
    classes: tuple[str, ...],
    marks: Mapping[str, bool],
    place: str,
    mistakes: Mistakes,
) -> tuple[str, ...]:
    """Return the classes whose column holds a mark that means yes."""
    tags = []
    for name, cell in zip(classes, row[1:], strict=True):
        mark = marks.get(cell.strip().lower())
        if mark is None:
            mistakes.add("value", place, f'"{cell}" in the column "{name}"; write 0 or 1')
        elif mark:
            tags.append(name)
    return tuple(tags)


def _clean(tags: Sequence[str], place: str, mistakes: Mistakes) -> tuple[str, ...]:
    """Return tags without blanks at their ends; an empty one is a mistake."""
    stripped = [tag.strip() for tag in tags]
    if not all(stripped):
        mistakes.add("empty", place, f'an empty tag in "{";".join(tags)}"; remove it or name it')
    return tuple(tag for tag in stripped if tag)


def _parse(path: Path, text: str, line: int = 0) -> Any:
    """Parse JSON; ``line`` is where in the file the text is, if it is one line of it."""
    try:
        return json.loads(text, object_pairs_hook=_Object)
    except RecursionError:
        raise TagmaskError(
            f"{path} has lists within lists, too deep to read; write a row for each image."
        ) from None
    except json.JSONDecodeError as error:
        place = f"line {line or error.lineno}, column {error.colno}"
        raise TagmaskError(
            f"{path} is not valid JSON at {place} ({error.msg}); correct it there."
        ) from None
    except ValueError:
        raise TagmaskError(
            f"{path} has a number of thousands of digits; write a row for each image."
        ) from None


def _read_json(path: Path, text: str, mistakes: Mistakes) -> Table:
    """Read a JSON file, of a tool or of the user."""
    value = _parse(path, text)
    entries = json_entries(path, value)
    if entries is not None:
        return _table(entries, mistakes, loose=True)
    if isinstance(value, _Object):
        pairs = enumerate(value.pairs, 1)
        entries = [(f"entry {number}", file, tags) for number, (file, tags) in pairs]
        return _table(entries, mistakes)
    if isinstance(value, list):
        entries = [_entry(f"entry {number}", item) for number, item in enumerate(value, 1)]
        return _table(entries, mistakes)
    raise TagmaskError(
        f'{path} must hold {{"file": ["tag", …], …}} or a list of objects with "file" and "tags".'
    )


def _read_jsonl(path: Path, text: str, mistakes: Mistakes) -> Table:
    """Read JSON Lines, of Hugging Face or of the user."""
    lines = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            lines.append((f"line {number}", _parse(path, line, number)))
    entries = line_entries(path, lines)
    if entries is not None:
        return _table(entries, mistakes, loose=True)
    return _table([_entry(place, value) for place, value in lines], mistakes)


def _read_cvat(path: Path, _: str, mistakes: Mistakes) -> Table:
    """Read the XML or zip of CVAT."""
    return _table(cvat_entries(path), mistakes, loose=True)


def _entry(place: str, value: Any) -> Entry:
    """Return the entry of an object with "file" and "tags"; what is missing is None.

    Both may have the other names that columns may have.
    """
    fields = value if isinstance(value, _Object) else {}
    file = next((fields[name] for name in FILE_HEADERS if name in fields), None)
    tags = next((fields[name] for name in ("tags", *_TAG_HEADERS) if name in fields), None)
    return place, file, tags


def _table(entries: Sequence[Entry], mistakes: Mistakes, loose: bool = False) -> Table:
    """Return the table of entries whose file is a text and whose tags are a list of texts."""
    # a tool has other names for them
    file_name = "the path of an image" if loose else '"file"'
    tags_name = "tags" if loose else '"tags"'
    fault = f"an entry needs {file_name} (a string) and {tags_name} (a list of strings)"
    rows = []
    for place, file, tags in entries:
        if isinstance(file, str) and is_list_of_texts(tags):
            rows.append(Row(place, file, _clean(tags, place, mistakes)))
        else:
            hint = ""
            if isinstance(tags, str):
                hint = f"; write [{json.dumps(tags, ensure_ascii=False)}]"
            mistakes.add("object", place, fault + hint)
    return Table(rows, (), loose)


def _check_rows(rows: list[Row], mistakes: Mistakes) -> None:
    """Note rows without a file, and files that are listed twice."""
    first: dict[str, Row] = {}  # file: the row that lists it first
    for row in rows:
        if not row.file.strip():
            mistakes.add("file", row.place, "no file name; name the image or remove the entry")
        elif row.file in first:
            earlier = first[row.file]
            remedy = "keep one of the two"
            both = list(dict.fromkeys((*earlier.tags, *row.tags)))
            if both != list(earlier.tags):
                remedy = f'keep one of the two, with all tags: "{";".join(both)}"'
            text = f'"{row.file}" is already listed at {earlier.place}; {remedy}'
            mistakes.add("duplicate", row.place, text)
        first.setdefault(row.file, row)
