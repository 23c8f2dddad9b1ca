"""A look at the tags before anything is trained.

How many photos each tag has, and what cannot be learned from them.
"""

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tagmask.data.catalog import Catalog
from tagmask.files import file_size

FEW = 10  # photos of a tag below which its maps are poor
COLUMNS = 4  # tags beside each other in the table
SHOWN = 3  # examples in a sentence
# bytes at the end that nearly always tell two photos apart; the first ones are often the same
_TAIL = 4096
_T = TypeVar("_T")
_File = TypeVar("_File", str, Path)


def tag_table(catalog: Catalog) -> list[str]:
    """Return the lines of a table of all tags with the number of their photos, most first."""
    counts = catalog.class_counts()  # (C,)
    order = np.argsort(-counts, kind="stable")  # (C,)
    width = max(len(name) for name in catalog.classes)
    cells = []
    for c in order:
        cells.append(f"{catalog.classes[c]:{width}} {counts[c]:>6}")
    lines = []
    for start in range(0, len(cells), COLUMNS):
        lines.append("   ".join(cells[start : start + COLUMNS]))
    return lines


def tag_notes(catalog: Catalog) -> list[str]:
    """Return a sentence for everything in the tags that a classifier cannot learn from.

    Each says what to do about it.
    """
    counts = catalog.class_counts()  # (C,)
    names = catalog.classes
    notes = []
    for c in np.flatnonzero(counts == len(catalog)):
        notes.append(
            f'every photo is tagged "{names[c]}": there is nothing to tell it from. '
            "Add photos without it, tagged with what is on them."
        )
    together = catalog.together()  # (C, C)
    for group in _always_together(together):
        tags = " and ".join(f'"{names[c]}"' for c in group)
        notes.append(
            f"{tags} always come together, so they cannot be told apart. "
            "Add photos with only one of them, or use one tag for both."
        )
    for inner, outer in _always_with_another(together, len(catalog)):
        notes.append(
            f'every photo tagged "{names[inner]}" is also tagged "{names[outer]}", so their masks '
            f'may be mixed up. Add photos of "{names[inner]}" alone.'
        )
    if _exclude_each_other(catalog):
        notes.append(
            "every photo has exactly one of the tags, so they could be told apart by their "
            "surroundings alone. Photos with several of them help; so does looking at the "
            "self-check at the end."
        )
    few = []
    for c in np.flatnonzero(counts < FEW):
        few.append(f'"{names[c]}" ({counts[c]})')
    if few:
        verb = "has" if len(few) == 1 else "have"
        notes.append(
            f"{_first(few)} {verb} fewer than {FEW} photos; their masks may be poor. "
            "Add photos, or leave the tags out."
        )
    copies = _copies(catalog)
    if copies:
        count = sum(len(group) - 1 for group in copies)
        examples = [" = ".join(group[:SHOWN]) for group in copies]
        notes.append(
            f"{count} photos are copies of others ({_first(examples)}). Delete them: "
            "copies count twice, and with different tags they contradict each other."
        )
    return notes


def _always_together(together: npt.NDArray[np.int64]) -> list[list[int]]:
    """Return groups of tags that are on exactly the same photos."""
    photos = np.diag(together)  # (C,)
    groups = []
    grouped: set[int] = set()
    for tag in np.flatnonzero(photos > 0).tolist():
        is_same = (together[tag] == photos[tag]) & (photos == photos[tag])  # (C,)
        group = np.flatnonzero(is_same).tolist()
        if len(group) > 1 and tag not in grouped:
            groups.append(group)
            grouped.update(group)
    return groups


def _always_with_another(together: npt.NDArray[np.int64], everywhere: int) -> list[tuple[int, int]]:
    """Return pairs of tags of which the first never comes without the second, but not reversed.

    Args:
        together: (C, C), how many photos have two tags.
        everywhere: How many photos there are.
    """
    photos = np.diag(together)  # (C,)
    pairs = []
    for inner in np.flatnonzero(photos > 1).tolist():
        for outer in np.flatnonzero(together[inner] == photos[inner]).tolist():
            # a tag on every photo has a note of its own
            is_larger = photos[inner] < photos[outer] < everywhere
            if outer != inner and is_larger:
                pairs.append((inner, outer))
    return pairs


def _exclude_each_other(catalog: Catalog) -> bool:
    """Return True if there are several tags and every photo has exactly one of them."""
    used = int((catalog.class_counts() > 0).sum())
    if used < 2:
        return False
    return all(len(catalog.tags(i)) == 1 for i in range(len(catalog)))


def _copies(catalog: Catalog) -> list[list[str]]:
    """Return the names of photos whose files are the same, byte by byte."""
    names = {path: name for name, path in catalog.files("images").items()}
    named = []
    for group in copies_of(names):
        named.append([names[path] for path in group])
    return sorted(named)


def copies_of(paths: Iterable[_File]) -> list[list[_File]]:
    """Return groups of two or more files that are the same, byte by byte.

    Args:
        paths: the files.
    """
    groups = [list(paths)]
    # the cheapest question first: the next one is only asked within a group
    for key in (file_size, _hash_of_tail, _hash):
        finer = []
        for group in groups:
            finer += _alike(group, key)
        groups = finer
    return groups


def _alike(items: Iterable[_T], key: Callable[[_T], Any]) -> list[list[_T]]:
    """Return groups of two or more items that have the same key."""
    groups = defaultdict(list)
    for item in items:
        with suppress(OSError):  # reported when it is read
            groups[key(item)].append(item)
    return [group for group in groups.values() if len(group) > 1]


def _hash_of_tail(path: str | Path) -> bytes:
    """Return a hash of the last bytes of a file."""
    with open(path, "rb", buffering=0) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
        return hashlib.blake2b(file.read(_TAIL)).digest()


def _hash(path: str | Path) -> bytes:
    """Return a hash of a file."""
    with open(path, "rb", buffering=0) as file:
        return hashlib.file_digest(file, "blake2b").digest()


def _first(names: list[str]) -> str:
    """Join the first names for a sentence, and say how many more there are."""
    shown = ", ".join(names[:SHOWN])
    more = len(names) - SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
