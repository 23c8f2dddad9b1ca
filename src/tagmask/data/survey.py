"""A look at the tags before anything is trained: how many photos each has, and what cannot be learnt from them."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tagmask.data.catalog import Catalog
from tagmask.files import file_size

FEW = 10  # photos of a tag below which its maps are poor
COLUMNS = 4  # tags beside each other in the table
SHOWN = 3  # examples in a sentence
_TAIL = 4096  # bytes at the end that nearly always tell two photos apart; the first ones are often the same
_T = TypeVar("_T")


def tag_table(catalog: Catalog) -> list[str]:
    """All tags with the number of their photos, most first, some beside each other."""
    counts = catalog.class_counts()
    order = np.argsort(-counts, kind="stable")
    width = max(len(name) for name in catalog.classes)
    cells = [f"{catalog.classes[c]:{width}} {counts[c]:>6}" for c in order]
    return ["   ".join(cells[start : start + COLUMNS]) for start in range(0, len(cells), COLUMNS)]


def tag_notes(catalog: Catalog) -> list[str]:
    """A sentence for everything in the tags that a classifier cannot learn from, with what to do about it."""
    counts, names = catalog.class_counts(), catalog.classes
    notes = [
        f'every photo is tagged "{names[c]}": there is nothing to tell it from. Add photos without it, tagged with '
        "what is on them."
        for c in np.flatnonzero(counts == len(catalog))
    ]
    for group in _always_together(catalog):
        tags = " and ".join(f'"{names[c]}"' for c in group)
        notes.append(
            f"{tags} always come together, so they cannot be told apart. Add photos with only one of them, or use one "
            "tag for both."
        )
    if few := [f'"{names[c]}" ({counts[c]})' for c in np.flatnonzero(counts < FEW)]:
        notes.append(
            f"{_first(few)} {'has' if len(few) == 1 else 'have'} fewer than {FEW} photos; their masks will be poor. "
            "Add photos, or leave the tags out."
        )
    if copies := _copies(catalog):
        pairs = [" = ".join(group[:SHOWN]) for group in copies]
        notes.append(
            f"{sum(len(group) - 1 for group in copies)} photos are copies of others ({_first(pairs)}). Delete them: "
            "copies count twice, and with different tags they contradict each other."
        )
    return notes


def _always_together(catalog: Catalog) -> list[list[int]]:
    """Groups of tags that are on exactly the same photos."""
    photos: dict[int, list[int]] = defaultdict(list)  # tag: its photos
    for i in range(len(catalog)):
        for tag in catalog.tags(i):
            photos[tag].append(i)
    return _alike(sorted(photos), lambda tag: tuple(photos[tag]))


def _copies(catalog: Catalog) -> list[list[str]]:
    """Names of photos whose files are the same, byte by byte."""
    names = {item.image: item.name for item in catalog if item.image is not None}
    groups = [list(names)]
    for key in (file_size, _tail, _hash):
        groups = [alike for group in groups for alike in _alike(group, key)]
    return sorted([names[path] for path in group] for group in groups)


def _alike(items: Iterable[_T], key: Callable[[_T], Any]) -> list[list[_T]]:
    """Groups of two or more items that have the same key."""
    groups = defaultdict(list)
    for item in items:
        with suppress(OSError):  # reported when it is read
            groups[key(item)].append(item)
    return [group for group in groups.values() if len(group) > 1]


def _tail(path: Path) -> bytes:
    with path.open("rb", buffering=0) as file:
        file.seek(max(0, path.stat().st_size - _TAIL))
        return hashlib.blake2b(file.read(_TAIL)).digest()


def _hash(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").digest()


def _first(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (
        f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    )
