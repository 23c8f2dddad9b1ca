"""A look at the tags before anything is trained: how many photos each has, and what cannot be learnt from them."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from tagmask.data.catalog import Catalog

FEW = 10  # photos of a tag below which its maps are poor
COLUMNS = 4  # tags beside each other in the table
SHOWN = 3  # examples in a sentence
_HEAD = 4096  # bytes that nearly always tell two photos apart


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
    paths = {catalog.name(i): path for i in range(len(catalog)) if (path := catalog.item(i).image) is not None}
    groups: Iterable[list[str]] = [list(paths)]
    for key in (_size, _hash_head, _hash):
        groups = [group for names in groups for group in _split(names, paths, key)]
    return sorted(groups)


def _split(names: list[str], paths: dict[str, Path], key: Callable[[Path], Any]) -> list[list[str]]:
    """Groups of two or more names that have the same key."""
    groups = defaultdict(list)
    for name in names:
        try:
            groups[key(paths[name])].append(name)
        except OSError:
            continue  # reported when it is read
    return [group for group in groups.values() if len(group) > 1]


def _size(path: Path) -> int:
    return path.stat().st_size


def _hash_head(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.blake2b(file.read(_HEAD)).digest()


def _hash(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").digest()


def _first(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
