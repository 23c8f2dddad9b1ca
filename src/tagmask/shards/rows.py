"""Shards as rows of a manifest (CSV or Parquet) or of a list of files; images lie by themselves.

A manifest is never held in memory: one pass finds where each shard begins and what identifies its
rows; a shard reads its own rows. Its paths stay below its root.
"""

import csv
import hashlib
import importlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import PurePosixPath
from typing import IO, Any

from tagmask.data.table import FILE_HEADERS, split_tags_of_cell
from tagmask.errors import TagmaskError
from tagmask.files import file_size
from tagmask.shards.samples import (
    MAX_IMAGE,
    Failures,
    Sample,
    fault_of_key,
    is_image_suffix,
    key_of,
    suffix_of,
)
from tagmask.shards.storage import Folder, is_address, shown

MANIFESTS = (".csv", ".tsv", ".parquet")
FILE_COLUMNS = (*FILE_HEADERS, "url", "uri", "key")
_MAX_LINE = 1 << 20  # characters of a row
_DIGITS = 6  # of the number of a shard


@dataclass(frozen=True)
class Entry:
    """An image: its path below the root, and its tags."""

    file: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class RowShard:
    """Consecutive rows.

    Args:
        table: what they are rows of; it can read them.
        root: the folder that their paths are relative to.
        number: counted from 0.
        first: where they begin, as the table counts.
        count: how many they are.
        digest: of their text.
    """

    table: "Manifest | Listing"
    root: Folder
    number: int
    first: int
    count: int
    digest: str

    @property
    def name(self) -> str:
        """Return the name of the files made from the shard."""
        return f"{self.table.name}-{self.number:0{_DIGITS}}"

    def identity(self) -> dict[str, Any]:
        """Return what a note says about the shard.

        Photos on this disk are known by name and size, those in object storage by name.
        """
        digest = hashlib.sha256(self.digest.encode())
        if self.root.is_local:
            for row in self.table.rows(self.first, self.count):
                digest.update(b"%d\n" % file_size(str(self.root.path / row.file)))
        return {"rows": self.count, "sha256": digest.hexdigest()}

    @contextmanager
    def opened(self, failed: Failures) -> Iterator[tuple[dict[str, Any], Iterator[Sample]]]:
        """Yield what a note says about the shard, and its images.

        Args:
            failed: gets the images that cannot be used.
        """
        yield self.identity(), self.samples(failed)

    def fits(self, noted: Any) -> bool:
        """Return True if a note was made from these rows."""
        return bool(noted == self.identity())

    def tagged_keys(self, failed: Failures) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the keys of the images, with their tags."""
        for key, row in self._usable(failed):
            yield key, row.tags

    def samples(self, failed: Failures, chosen: set[str] | None = None) -> Iterator[Sample]:
        """Yield the images in order; they are read one by one.

        Args:
            failed: gets those that cannot be used.
            chosen: keys of those to read; default: all.
        """
        for key, row in self._usable(failed):
            if chosen is not None and key not in chosen:
                continue
            try:
                content = self.root.read(row.file, MAX_IMAGE)
            except (TagmaskError, OSError) as error:
                failed.add_error(key, error)
                continue
            about = json.dumps({"file": row.file, "tags": list(row.tags)}, ensure_ascii=False)
            yield Sample(key, suffix_of(row.file).lower(), content, about.encode())

    def _usable(self, failed: Failures) -> Iterator[tuple[str, Entry]]:
        """Yield the rows whose path and suffix can be used, with their keys."""
        seen: set[str] = set()
        for row in self.table.rows(self.first, self.count):
            key = key_of(row.file)
            fault = fault_of_key(row.file)
            if not fault and not is_image_suffix(suffix_of(row.file)):
                fault = "its suffix is not that of a picture that can be read."
            if not fault and key in seen:
                fault = "its key occurs twice in the shard; the first one counts."
            if fault:
                failed.add(row.file, fault)
                continue
            seen.add(key)
            yield key, row

    def __str__(self) -> str:
        last = self.first + self.count
        return f"{self.table}, shard {self.number} of rows ({self.count:,}, up to {last:,})"


@dataclass(frozen=True)
class Listing:
    """A list of files in memory.

    Args:
        name: what shards of it are called.
        files: the rows.
    """

    name: str
    files: Sequence[Entry]

    def rows(self, first: int, count: int) -> Iterator[Entry]:
        """Yield rows from a position on.

        Args:
            first: The position.
            count: How many rows.
        """
        return iter(self.files[first : first + count])

    def shards(self, root: Folder, size: int) -> list[RowShard]:
        """Return the shards of so many rows each.

        Args:
            root: The folder that the files lie in.
            size: Rows of a shard.
        """
        shards: list[RowShard] = []
        for first in range(0, len(self.files), size):
            rows = self.files[first : first + size]
            digest = _digest(rows)
            shards.append(RowShard(self, root, len(shards), first, len(rows), digest))
        return shards

    def __str__(self) -> str:
        return self.name


class Manifest:
    """A table of images, CSV or Parquet; processes can be sent it.

    Args:
        folder: where it is.
        file: its name there.
        root: the folder of its images; paths that are whole addresses must lie in it.
    """

    def __init__(self, folder: Folder, file: str, root: Folder) -> None:
        self.folder = folder
        self.file = file
        self.root = root
        self.name = os.path.splitext(file)[0]

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the open file: another process opens its own."""
        return {name: getattr(self, name) for name in ("folder", "file", "root", "name")}

    def __str__(self) -> str:
        return f"{self.folder}/{self.file}"

    @cached_property
    def _reader(self) -> "_Csv | _Parquet":
        if self.file.lower().endswith(".parquet"):
            return _Parquet(self.folder.copy(self.file), str(self))
        return _Csv(self.folder.copy(self.file), str(self))

    def rows(self, first: int, count: int) -> Iterator[Entry]:
        """Yield rows from a position on, as the table counts: bytes of a CSV, rows of Parquet.

        Args:
            first: The position.
            count: How many rows.
        """
        cells = islice(self._reader.cells(first), count)
        return (self._row(file, tags) for file, tags, _ in cells)

    def shards(self, size: int) -> list[RowShard]:
        """Return the shards of so many rows each, after one pass over the manifest."""
        shards: list[RowShard] = []
        cells = self._reader.cells(self._reader.first)
        begin = self._reader.first
        while True:
            digest = hashlib.sha256()
            count = 0
            after = begin
            for file, tags, end in islice(cells, size):
                _add_row(digest, self._row(file, tags))
                count += 1
                after = end
            if not count:
                break
            shard = RowShard(self, self.root, len(shards), begin, count, digest.hexdigest())
            shards.append(shard)
            begin = after
        if not shards:
            raise TagmaskError(f"{self} has no rows; add a row for each image.")
        return shards

    @cached_property
    def _roots(self) -> tuple[str, ...]:
        """Return what whole addresses and paths of images may begin with."""
        root = f"{self.root.address.rstrip('/')}/"
        return (root, f"{self.root.path.as_posix()}/") if self.root.is_local else (root,)

    def _row(self, file: str, tags: tuple[str, ...]) -> Entry:
        """Return a row with its path relative to the root."""
        for root in self._roots:
            if file.startswith(root):
                return Entry(file.removeprefix(root), tags)
        if is_address(file):
            # it is refused with its address when its turn comes
            return Entry(f"/{shown(file)}", tags)
        if "\\" in file or "./" in file or "//" in file:
            file = str(PurePosixPath(file.replace("\\", "/")))
        return Entry(file, tags)


def _digest(rows: Iterable[Entry]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        _add_row(digest, row)
    return digest.hexdigest()


def _add_row(digest: Any, row: Entry) -> None:
    text = "\0".join([row.file, *row.tags])
    digest.update(text.encode("utf-8", "surrogateescape") + b"\n")


Cells = tuple[str, tuple[str, ...], int]  # file, tags, where the next row begins


class _Csv:
    """Rows of a CSV from any byte on at which one begins."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file = file
        self._name = name
        header = _decoded(file.readline(_MAX_LINE), name).lstrip("\ufeff")
        marks = [mark for mark in (",", "\t", ";") if mark in header]
        self._delimiter = marks[0] if marks else ","
        cells = next(csv.reader([header], delimiter=self._delimiter), [])
        self._file_column, self._tags_column = _columns(cells, name)
        self._count = len(cells)
        self.first = file.tell()

    def cells(self, start: int) -> Iterator[Cells]:
        """Yield the cells of rows that begin at a byte or after it."""
        self._file.seek(start)
        position = start

        def lines() -> Iterator[str]:
            nonlocal position
            while line := self._file.readline(_MAX_LINE):
                position += len(line)
                yield _decoded(line, self._name)

        reader = csv.reader(lines(), delimiter=self._delimiter, strict=True)
        try:
            for cells in reader:
                if not any(cell.strip() for cell in cells):
                    continue
                if len(cells) != self._count:
                    raise TagmaskError(
                        f"{self._name}: the row before byte {position:,} has {len(cells)} cells, "
                        f"but the header has {self._count}; quote cells that contain "
                        f"{self._delimiter!r}."
                    )
                tags: tuple[str, ...] = ()
                if self._tags_column is not None:
                    tags = _tags_in(cells[self._tags_column])
                yield cells[self._file_column].strip(), tags, position
        except csv.Error as error:
            raise TagmaskError(
                f"{self._name} is not valid CSV before byte {position:,} ({error}); correct it."
            ) from None


class _Parquet:
    """Rows of a Parquet file from any row on."""

    first = 0

    def __init__(self, file: IO[bytes], name: str) -> None:
        try:
            pyarrow: Any = importlib.import_module("pyarrow")
            parquet: Any = importlib.import_module("pyarrow.parquet")
        except ImportError:
            raise TagmaskError(
                f"{name} is Parquet; to read it, install pyarrow: pip install 'tagmask[table]', "
                "or save it as CSV."
            ) from None
        try:
            self._table = parquet.ParquetFile(file)
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise TagmaskError(f"{name} is no Parquet file ({error}); make it again.") from None
        self._name = name
        header = list(self._table.schema_arrow.names)
        file_column, tags_column = _columns(header, name)
        self._file = header[file_column]
        self._tags = None if tags_column is None else header[tags_column]

    def cells(self, start: int) -> Iterator[Cells]:
        """Yield the cells of rows from a number on."""
        columns = [self._file] if self._tags is None else [self._file, self._tags]
        number = 0
        groups: list[int] = []
        # row groups before the first row need not be read
        for group in range(self._table.num_row_groups):
            count = self._table.metadata.row_group(group).num_rows
            if number + count <= start and not groups:
                number += count
            else:
                groups.append(group)
        for batch in self._table.iter_batches(8192, row_groups=groups, columns=columns):
            if number + batch.num_rows <= start:
                number += batch.num_rows
                continue
            for row in batch.to_pylist():
                number += 1
                if number > start:
                    tags = _tags_of(row[self._tags]) if self._tags is not None else ()
                    yield str(row[self._file] or "").strip(), tags, number


def _decoded(line: bytes, name: str) -> str:
    if len(line) >= _MAX_LINE:
        raise TagmaskError(f"{name} has a line of more than {_MAX_LINE:,} bytes; is it a table?")
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise TagmaskError(f"{name} is not UTF-8 text; save it with the encoding UTF-8.") from None


def _columns(header: Sequence[str], name: str) -> tuple[int, int | None]:
    """Return the columns of files and of tags; the latter may be missing."""
    names = [cell.strip().lower() for cell in header]
    files = [names.index(known) for known in FILE_COLUMNS if known in names]
    if not files:
        raise TagmaskError(
            f'{name} has no column of files: call it "file"; it has {", ".join(names[:8])}.'
        )
    return files[0], names.index("tags") if "tags" in names else None


@lru_cache(maxsize=4096)
def _tags_in(cell: str) -> tuple[str, ...]:
    """Return the tags in a text with ; or |; many rows have the same."""
    return _clean(split_tags_of_cell(cell))


def _clean(tags: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(tag.strip() for tag in tags if tag.strip()))


def _tags_of(value: Any) -> tuple[str, ...]:
    """Return the tags in a cell of Parquet: a list, or a text with ; or |."""
    if isinstance(value, list):
        return _clean(str(tag) for tag in value if tag is not None)
    return _tags_in(str(value or ""))
