"""The one table of images, tags and masks that every stage reads.

Everything lives in a few flat buffers instead of one Python object per item: data-loader workers that are
forked then share the memory for good (nothing is reference-counted), and spawned ones receive it quickly.
"""

import copy
import hashlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tagmask.data.images import check_same_size, read_image, read_mask
from tagmask.errors import ImageError, TagmaskError

MAX_CLASSES = 254  # masks are 8-bit: 0 is background, 255 is ignore
Indices = Sequence[int] | npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Item:
    """One image: its place in the catalog, its name (the stem of all output files) and what belongs to it."""

    index: int
    name: str
    tags: tuple[int, ...]
    image: Path | None
    mask: Path | None


class Strings:
    """An immutable list of strings, kept as one bytes object and an array of offsets."""

    def __init__(self, values: Iterable[str]) -> None:
        encoded = [value.encode("utf-8", "surrogateescape") for value in values]
        self._bytes = b"".join(encoded)
        self._starts = np.zeros(len(encoded) + 1, dtype=np.int64)
        np.cumsum([len(code) for code in encoded], out=self._starts[1:])
        self._sums: npt.NDArray[np.uint32] | None = None
        self._order: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, row: int) -> str:
        return self.raw(row).decode("utf-8", "surrogateescape")

    def raw(self, row: int) -> bytes:
        return self._bytes[self._starts[row] : self._starts[row + 1]]

    def lengths(self) -> npt.NDArray[np.int64]:
        return np.diff(self._starts)

    def find(self, value: str) -> int:
        """The row that holds ``value``, or -1; by binary search over checksums that are made at first use."""
        if self._sums is None or self._order is None:
            sums = np.fromiter((zlib.crc32(self.raw(row)) for row in range(len(self))), np.uint32, len(self))
            self._order = np.argsort(sums, kind="stable")
            self._sums = sums[self._order]
        code = value.encode("utf-8", "surrogateescape")
        first, last = (np.searchsorted(self._sums, np.uint32(zlib.crc32(code)), side) for side in ("left", "right"))
        return next((row for row in self._order[first:last].tolist() if self.raw(row) == code), -1)


class Catalog:
    """Images with their tags and, where known, masks. Items are numbered 0 … len-1.

    A subclass that makes its pictures otherwise than from files overrides ``_image_at`` and ``_mask_at`` (and
    ``has_masks``). They receive the *row* of the full table, which stays the same in every subset and split.
    """

    def __init__(
        self,
        classes: Sequence[str],
        names: Iterable[str],
        tags: Iterable[Iterable[int]],
        *,
        images: Iterable[str | Path | None] | None = None,
        masks: Iterable[str | Path | None] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        """Store the columns; ``images`` and ``masks`` are files, None where there is none.

        Args:
            classes: names of the classes, without background; at most 254, no two alike.
            names: relative paths without suffix, no two alike; outputs are stored under them.
            tags: for each item its classes, 0-based; order and repetition do not matter.
            notes: sentences for the user on what the reader counted or left out.
        """
        self.classes = tuple(classes)
        self.notes = tuple(notes)
        self._names = Strings(names)
        count = len(self._names)
        self._images = Strings(_text(path) for path in (images if images is not None else [None] * count))
        self._masks = Strings(_text(path) for path in (masks if masks is not None else [None] * count))
        self._tag_starts, self._tag_values = _compress(tags)
        self._rows = np.arange(count, dtype=np.int64)
        self._check()

    def _check(self) -> None:
        lengths = {len(self._names), len(self._images), len(self._masks), len(self._tag_starts) - 1}
        if len(lengths) > 1:
            raise TagmaskError(f"names, tags, images and masks differ in length {sorted(lengths)}; give one per item.")
        _check_classes(self.classes)
        _check_names(self._names)
        values = self._tag_values
        if values.size and not (values.min() >= 0 and values.max() < len(self.classes)):
            limit = len(self.classes) - 1
            raise TagmaskError(f"tags span {values.min()} to {values.max()}; they must lie in 0 to {limit}.")

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Item]:
        return (self.item(i) for i in range(len(self)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} items, {len(self.classes)} classes)"

    def row(self, i: int) -> int:
        """The row of item ``i`` in the full table that this catalog is a view of."""
        return int(self._rows[i])

    def name(self, i: int) -> str:
        return self._names[self.row(i)]

    def tags(self, i: int) -> tuple[int, ...]:
        """The classes of item ``i``, 0-based and ascending."""
        row = self.row(i)
        return tuple(self._tag_values[self._tag_starts[row] : self._tag_starts[row + 1]].tolist())

    def item(self, i: int) -> Item:
        row = self.row(i)
        image, mask = self._images[row], self._masks[row]
        return Item(i, self.name(i), self.tags(i), Path(image) if image else None, Path(mask) if mask else None)

    def index(self, name: str) -> int:
        """The number of the item called ``name``."""
        found = np.flatnonzero(self._rows == self._names.find(name))
        if not found.size:
            raise TagmaskError(f'no image is called "{name}"; names look like "{self.name(0) if len(self) else ""}".')
        return int(found[0])

    def targets(self, indices: Indices) -> npt.NDArray[np.float32]:
        """Multi-hot tags of the items, shape (len(indices), C)."""
        result = np.zeros((len(indices), len(self.classes)), dtype=np.float32)  # (B, C)
        for place, i in enumerate(indices):
            result[place, list(self.tags(int(i)))] = 1
        return result

    def class_counts(self) -> npt.NDArray[np.int64]:
        """How many items carry each class, shape (C,)."""
        return np.bincount(self._gather_tags(), minlength=len(self.classes)).astype(np.int64)

    def load_image(self, i: int) -> npt.NDArray[np.uint8]:
        """Item ``i`` as RGB, shape (H, W, 3), upright; ImageError names the file if it cannot be used."""
        return self._image_at(self.row(i))

    def load_mask(self, i: int) -> npt.NDArray[np.uint8] | None:
        """The mask of item ``i``, shape (H, W): 0 background, c+1 for class c, 255 ignore; or None."""
        return self._mask_at(self.row(i))

    def load_pair(self, i: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8] | None]:
        """Image and mask of item ``i``; ImageError if their sizes differ."""
        image, mask = self.load_image(i), self.load_mask(i)
        if mask is not None:
            check_same_size(image, mask, self.name(i))
        return image, mask

    @property
    def has_masks(self) -> bool:
        """Whether at least one item has a mask."""
        return bool((self._masks.lengths()[self._rows] > 0).any())

    @property
    def identity(self) -> dict[str, int]:
        """What distinguishes catalogs of the same names and tags that make their own pictures; nothing for files."""
        return {}

    def subset(self, indices: Indices) -> Self:
        """A view of the items ``indices``, in that order; nothing is copied but the row numbers."""
        chosen = np.asarray(indices, dtype=np.int64)
        if chosen.size and not (chosen.min() >= 0 and chosen.max() < len(self)):
            span = f"{chosen.min()} to {chosen.max()}"
            raise TagmaskError(f"a subset asks for items {span}; the catalog has items 0 to {len(self) - 1}.")
        if len(np.unique(chosen)) < chosen.size:
            raise TagmaskError("a subset names an item twice; give each index once.")
        view = copy.copy(self)
        view._rows = self._rows[chosen]
        return view

    def split(self, fraction: float, seed: int) -> tuple[Self, Self]:
        """Two disjoint views, the second with ``fraction`` of the items: (train, val).

        Each name is ranked by a hash of itself and ``seed``, so the split depends neither on the order of the
        items nor on library versions. With ``fraction`` > 0 and two or more items, no part is empty.
        """
        if not 0 <= fraction < 1:
            raise TagmaskError(f"the validation fraction is {fraction}; it must be at least 0 and below 1.")
        count = round(len(self) * fraction)
        if fraction > 0 and len(self) > 1:
            count = min(max(count, 1), len(self) - 1)
        key = str(seed).encode()
        ranks = [hashlib.blake2b(self._names.raw(row), key=key).digest() for row in self._rows.tolist()]
        order = sorted(range(len(self)), key=ranks.__getitem__)
        return self.subset(sorted(order[count:])), self.subset(sorted(order[:count]))

    def fingerprint(self) -> str:
        """A hash of classes, names and tags, in order; it does not depend on where the files lie."""
        digest = hashlib.sha256()
        digest.update("\0".join(self.classes).encode() + b"\0\0")
        digest.update(b"\0".join(self._names.raw(row) for row in self._rows.tolist()) + b"\0\0")
        digest.update(np.diff(self._tag_starts)[self._rows].astype("<i4").tobytes())
        digest.update(self._gather_tags().astype("<i4").tobytes())
        return digest.hexdigest()[:32]

    def _image_at(self, row: int) -> npt.NDArray[np.uint8]:
        path = self._images[row]
        if not path:
            raise ImageError(f'"{self._names[row]}" has no image file; leave it out of the catalog.')
        return read_image(Path(path))

    def _mask_at(self, row: int) -> npt.NDArray[np.uint8] | None:
        path = self._masks[row]
        return read_mask(Path(path), len(self.classes)) if path else None

    def _gather_tags(self) -> npt.NDArray[np.int32]:
        """The tags of all items of this view, one after the other."""
        counts: npt.NDArray[np.int64] = np.diff(self._tag_starts)[self._rows]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        places: npt.NDArray[np.int64] = np.repeat(self._tag_starts[self._rows], counts) + within
        return self._tag_values[places]


def _text(path: str | Path | None) -> str:
    return "" if path is None else str(path)


def _compress(tags: Iterable[Iterable[int]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Lists of tags as (starts, values), each list ascending and without repetition."""
    lists = [sorted(set(one)) for one in tags]
    starts = np.zeros(len(lists) + 1, dtype=np.int64)
    np.cumsum([len(one) for one in lists], out=starts[1:])
    return starts, np.fromiter((tag for one in lists for tag in one), np.int32, int(starts[-1]))


def _check_classes(classes: tuple[str, ...]) -> None:
    if not 1 <= len(classes) <= MAX_CLASSES:
        raise TagmaskError(f"there are {len(classes)} classes; give 1 to {MAX_CLASSES}, for masks are 8-bit files.")
    twice = sorted({one for one in classes if classes.count(one) > 1})
    if twice or not all(one.strip() for one in classes):
        fault = f'the class "{twice[0]}" is given twice' if twice else "a class has an empty name"
        raise TagmaskError(f"{fault}; name each class once.")


def _check_names(names: Strings) -> None:
    seen: set[bytes] = set()
    for row in range(len(names)):
        code = names.raw(row)
        if code in seen:
            raise TagmaskError(f'two images are called "{names[row]}"; rename one, for outputs go by that name.')
        if b"\0" in code or {b"", b".", b".."} & set(code.split(b"/")):
            raise TagmaskError(f'"{names[row]}" cannot name an output; use a relative path without "." and "..".')
        seen.add(code)
