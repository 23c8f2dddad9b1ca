"""A look at the tags before anything is trained: how many photos each has, and what cannot be learnt from them."""

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from tagmask.data.catalog import Catalog

FEW = 10  # photos of a tag below which its maps are poor
COLUMNS = 4  # tags beside each other in the table
SHOWN = 3  # examples in a sentence
_TAIL = 4096  # bytes at the end that nearly always tell two photos apart; the first ones are often the same


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
    few = [f'"{names[c]}" ({counts[c]})' for c in np.flatnonzero(counts < FEW)]
    if few:
        notes.append(
            f"{_first(few)} {'has' if len(few) == 1 else 'have'} fewer than {FEW} photos; their masks will be poor. "
            "Add photos, or leave the tags out."
        )
    copies = _copies(catalog)
    if copies:
        pairs = [" = ".join(group[:SHOWN]) for group in copies]
        notes.append(
            f"{sum(len(group) - 1 for group in copies)} photos are copies of others ({_first(pairs)}). Delete them: "
            "copies count twice, and with different tags they contradict each other."
        )
    return notes


def _always_together(catalog: Catalog) -> list[list[int]]:
    """Groups of tags that are on exactly the same photos."""
    tags = [catalog.tags(i) for i in range(len(catalog))]
    starts = np.cumsum([0, *(len(numbers) for numbers in tags)])
    values = np.fromiter((tag for numbers in tags for tag in numbers), np.int64, int(starts[-1]))
    table = sparse.csr_array((np.ones(len(values), np.int64), values, starts), shape=(len(tags), len(catalog.classes)))
    together = (table.T @ table).toarray()  # (C, C)
    counts = together.diagonal()
    same = (together == counts[:, None]) & (together == counts[None, :]) & (counts > 0)[:, None]
    groups = {tuple(np.flatnonzero(row).tolist()) for row in same if row.sum() > 1}
    return [list(group) for group in sorted(groups)]


def _copies(catalog: Catalog) -> list[list[str]]:
    """Names of photos whose files are the same, byte by byte."""
    sizes = catalog.file_sizes("images")
    groups = [[i for i, size in enumerate(sizes) if size >= 0]]
    for key in (sizes.__getitem__, partial(_tail, catalog), partial(_hash, catalog)):
        groups = [alike for group in groups for alike in _alike(group, key)]
    return sorted([catalog.name(i) for i in group] for group in groups)


def _alike(items: list[int], key: Callable[[int], Any]) -> list[list[int]]:
    """Groups of two or more items that have the same key."""
    groups = defaultdict(list)
    for i in items:
        with suppress(OSError):  # reported when it is read
            groups[key(i)].append(i)
    return [group for group in groups.values() if len(group) > 1]


def _tail(catalog: Catalog, i: int) -> bytes:
    with open(catalog.image_file(i), "rb", buffering=0) as file:
        file.seek(max(0, os.stat(file.fileno()).st_size - _TAIL))
        return hashlib.blake2b(file.read(_TAIL)).digest()


def _hash(catalog: Catalog, i: int) -> bytes:
    with open(catalog.image_file(i), "rb") as file:
        return hashlib.file_digest(file, "blake2b").digest()


def _first(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
