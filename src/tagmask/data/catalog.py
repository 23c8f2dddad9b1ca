"""The one table of images, tags and masks that every stage reads.

The columns are a few flat buffers instead of one Python object per item: forked data-loader workers
then share their memory (nothing is reference-counted), and spawned ones receive them quickly.
"""

import copy
import ctypes
import gc
import hashlib
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from posixpath import dirname, splitext
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from tagmask import layout
from tagmask.data import corrections
from tagmask.data.images import Picture, check_same_size, read_image, read_mask
from tagmask.errors import CONTROLS, ImageError, TagmaskError
from tagmask.files import file_size, takes_for_same
from tagmask.labels import MAX_CLASSES, Mask

_NOTES = (layout.BEGUN, layout.DONE, layout.MADE_BY, layout.BACKGROUND)
_AT_ONCE = 4096  # items whose tags are looked at together
_OUTPUTS = (".png", ".npz", ".safetensors")
Indices = Sequence[int] | npt.NDArray[np.integer[Any]]


@contextmanager
def no_collector() -> Iterator[None]:
    """Leave Python's search for unused cycles out while millions of small objects are made.

    It would look at all of them again and again, and tables have no cycles. What the objects took
    is given back to the system at the end.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
        give_back()


def give_back() -> None:
    """Give memory that was freed back to the system, where the C library keeps it for later."""
    trim = getattr(ctypes.pythonapi, "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)


@dataclass(frozen=True)
class Item:
    """One image: its index in the catalog, its name, tags and files.

    Outputs are stored under the name.
    """

    index: int
    name: str
    tags: tuple[int, ...]
    image: Path | None
    mask: Path | None


class Strings:
    """An immutable list of strings, or of their bytes, as one bytes object and offsets.

    Args:
        values: texts, paths or bytes; None is an empty text.
    """

    def __init__(self, values: Iterable[str | bytes | Path | None]) -> None:
        encoded = []
        for value in values:
            if isinstance(value, bytes):
                encoded.append(value)
            else:
                encoded.append(str(value or "").encode("utf-8", "surrogateescape"))
        self._bytes = b"".join(encoded)
        self._starts = np.zeros(len(encoded) + 1, dtype=np.int64)
        lengths = [len(code) for code in encoded]
        np.cumsum(lengths, out=self._starts[1:])

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, row: int) -> str:
        return self.raw(row).decode("utf-8", "surrogateescape")

    def raw(self, row: int) -> bytes:
        """Return the bytes of a string."""
        start = self._starts[row]
        end = self._starts[row + 1]
        return self._bytes[start:end]


class Catalog:
    """Images with their tags and, where known, masks. Items are numbered 0 … len-1.

    A subclass whose pictures or masks do not come from files overrides ``load_image``, or
    ``load_mask`` and ``has_masks``. It knows an item by its ``row``, which is the same in every
    subset and split.
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
        """Store the columns.

        Args:
            classes: the names of the classes.
            names: for each item a relative path without suffix, under which outputs are stored.
            tags: for each item its classes, 0-based; their order does not matter.
            images: for each item its file, or None (default: no item has one).
            masks: for each item its file, or None (default: no item has one).
            notes: sentences for the user about what the reader counted or left out.

        Raises:
            TagmaskError: if classes, names or tags cannot be used.
        """
        self.classes = tuple(classes)
        _check_classes(self.classes)
        self.notes = tuple(notes)
        self._names = Strings(names)
        count = len(self._names)
        self._images = Strings([None] * count if images is None else images)
        self._masks = Strings([None] * count if masks is None else masks)
        self._tags = Strings(_tag_codes(tags, len(self.classes)))
        self._rows = np.arange(count, dtype=np.int64)
        self.corrections: Path | None = None  # folder of what a person has corrected
        lengths = {count, len(self._images), len(self._masks), len(self._tags)}
        if len(lengths) > 1:
            raise TagmaskError(
                f"names, tags, images and masks differ in length {sorted(lengths)}; "
                "give one per item."
            )
        _check_names([self._names[row] for row in range(count)])

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Item]:
        return (self.item(i) for i in range(len(self)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} items, {len(self.classes)} classes)"

    def row(self, i: int) -> int:
        """Return the row of item ``i`` in the full table that this catalog is a view of."""
        return int(self._rows[i])

    def name(self, i: int) -> str:
        """Return the name of item ``i``, under which its outputs are stored."""
        return self._names[self.row(i)]

    def tags(self, i: int) -> tuple[int, ...]:
        """Return the classes of item ``i``, 0-based and ascending."""
        return tuple(self._tags.raw(self.row(i)))

    def item(self, i: int) -> Item:
        """Return what is known about item ``i``."""
        row = self.row(i)
        image_file = self._images[row]
        mask_file = self._masks[row]
        image = Path(image_file) if image_file else None
        mask = Path(mask_file) if mask_file else None
        return Item(i, self._names[row], self.tags(i), image, mask)

    def files(self, column: Literal["images", "masks"]) -> dict[str, str]:
        """Return the image or mask file of each item by the item's name, without those of none."""
        paths = self._images if column == "images" else self._masks
        found = {}
        for row in self._rows.tolist():
            path = paths[row]
            if path:
                found[self._names[row]] = path
        return found

    def file_sizes(self, column: Literal["images", "masks"]) -> list[int]:
        """Return the bytes of each item's image or mask file; -1 for those without."""
        paths = self._images if column == "images" else self._masks
        return [file_size(paths[row]) for row in self._rows.tolist()]

    def targets(self, indices: Indices) -> npt.NDArray[np.float32]:
        """Return the multi-hot tags of the items, shape (len(indices), C)."""
        shape = (len(indices), len(self.classes))
        result = np.zeros(shape, dtype=np.float32)  # (B, C)
        for row, i in enumerate(indices):
            tags = list(self.tags(int(i)))
            result[row, tags] = 1
        return result

    def class_counts(self) -> npt.NDArray[np.int64]:
        """Return how many items carry each class, shape (C,)."""
        codes = b"".join(self._tags.raw(row) for row in self._rows.tolist())
        tags = np.frombuffer(codes, np.uint8)
        counts = np.bincount(tags, minlength=len(self.classes))  # (C,)
        return counts.astype(np.int64)

    def together(self) -> npt.NDArray[np.int64]:
        """Return how many items carry both of two classes, shape (C, C)."""
        count = len(self.classes)
        result = np.zeros((count, count), dtype=np.int64)
        for start in range(0, len(self), _AT_ONCE):
            part = range(start, min(start + _AT_ONCE, len(self)))
            targets = self.targets(part).astype(np.float64)  # (n, C)
            result += (targets.T @ targets).astype(np.int64)
        return result

    def load_image(self, i: int) -> Picture:
        """Read item ``i`` as RGB, shape (H, W, 3), upright; ImageError if that cannot be."""
        path = self._images[self.row(i)]
        if not path:
            raise ImageError(f'"{self.name(i)}" has no image file; leave it out.')
        return read_image(Path(path))

    def load_mask(self, i: int) -> Mask | None:
        """Read the mask of item ``i``, shape (H, W); None if it has none.

        Labels are 0 for background, c + 1 for class c, and 255 for unsure.
        """
        path = self._masks[self.row(i)]
        if not path:
            return None
        return read_mask(Path(path), len(self.classes))

    def load_pair(self, i: int) -> tuple[Picture, Mask | None]:
        """Read image and mask of item ``i``; ImageError if their sizes differ."""
        image = self.load_image(i)
        mask = self.load_mask(i)
        if mask is not None:
            check_same_size(image.shape, mask, self.name(i))
        return image, mask

    def load_correction(self, i: int) -> Mask | None:
        """Read what a person has corrected in item ``i``, shape (H, W); None if nothing.

        See ``data.corrections`` for the labels.
        """
        if self.corrections is None:
            return None
        return corrections.read_labels(self.corrections, self.name(i), len(self.classes))

    def correction_digest(self, i: int) -> str:
        """Return a short hash of what a person has corrected in item ``i``; empty if nothing."""
        return corrections.digest(self.corrections, self.name(i))

    def corrected(self, folder: Path) -> Self:
        """Return a view with the corrections in ``folder``.

        Tags are corrected now, labels of pixels when they are asked for.
        """
        changes = corrections.read_tags(folder, self.classes, self.identity)
        if changes is None:
            return self
        view = copy.copy(self)
        view.corrections = folder
        if not changes:
            return view
        corrected: list[Iterable[int]] = []
        for row in range(len(self._names)):
            tags = self._tags.raw(row)
            change = changes.get(self._names[row])
            if change is None:
                corrected.append(tags)
            else:
                corrected.append(change.apply(tags, self.classes))
        view._tags = Strings(_tag_codes(corrected, len(self.classes)))
        return view

    @property
    def has_masks(self) -> bool:
        """Return True if at least one item has a mask."""
        return any(self._masks.raw(row) for row in self._rows.tolist())

    @property
    def identity(self) -> dict[str, int]:
        """Return what distinguishes catalogs of the same names that make their own pictures.

        It is empty for pictures in files.
        """
        return {}

    def subset(self, indices: Indices) -> Self:
        """Return a view of the items ``indices``, in that order; only row numbers are copied."""
        chosen = np.asarray(indices, dtype=np.int64)
        lowest = chosen.min(initial=0)
        highest = chosen.max(initial=-1)
        if lowest < 0 or highest >= len(self):
            raise TagmaskError(
                f"a subset asks for items {chosen.min()} to {chosen.max()}; "
                f"the catalog has items 0 to {len(self) - 1}."
            )
        if len(np.unique(chosen)) < chosen.size:
            raise TagmaskError("a subset names an item twice; give each index once.")
        view = copy.copy(self)
        view._rows = self._rows[chosen]
        return view

    def split(self, fraction: float, seed: int) -> tuple[Self, Self]:
        """Return two disjoint views: (train, val).

        Names are ranked by a hash of name and ``seed``, so the split depends neither on the order
        of the items nor on library versions.

        Args:
            fraction: the share of the items in the second view, at least 0 and below 1. If it is
                above 0 and there are two or more items, neither part is empty.
            seed: another one gives another split.
        """
        if not 0 <= fraction < 1:
            raise TagmaskError(
                f"the validation fraction is {fraction}; it must be at least 0 and below 1."
            )
        count = round(len(self) * fraction)
        if fraction > 0 and len(self) > 1:
            count = min(max(count, 1), len(self) - 1)
        key = str(seed).encode()
        ranks = []
        for row in self._rows.tolist():
            name = self._names.raw(row)
            ranks.append(hashlib.blake2b(name, key=key).digest())
        order = sorted(range(len(self)), key=ranks.__getitem__)
        train = sorted(order[count:])
        val = sorted(order[:count])
        return self.subset(train), self.subset(val)

    def fingerprint(self) -> str:
        """Return a hash of classes, names and tags, in order.

        It does not depend on where the files are.
        """
        rows = self._rows.tolist()
        names = b"\0".join(self._names.raw(row) for row in rows)
        tags = [self._tags.raw(row) for row in rows]
        counts = np.array([len(codes) for codes in tags], "<i4")
        numbers = np.frombuffer(b"".join(tags), np.uint8).astype("<i4")
        digest = hashlib.sha256()
        digest.update("\0".join(self.classes).encode() + b"\0\0")
        digest.update(names + b"\0\0")
        digest.update(counts.tobytes())
        digest.update(numbers.tobytes())
        return digest.hexdigest()[:32]


def _tag_codes(tags: Iterable[Iterable[int]], count: int) -> Iterator[bytes]:
    """Yield the tags of each item as bytes, ascending and without repetition.

    ``count`` is the number of classes.
    """
    for classes in tags:
        values = sorted(set(classes))
        if values and not 0 <= values[0] <= values[-1] < count:
            raise TagmaskError(
                f"tags span {values[0]} to {values[-1]}; they must lie in 0 to {count - 1}."
            )
        yield bytes(map(int, values))


def _check_classes(classes: tuple[str, ...]) -> None:
    """Refuse too many classes, and names that are empty, repeated or cannot be written."""
    if not 1 <= len(classes) <= MAX_CLASSES:
        raise TagmaskError(
            f"there are {len(classes)} classes; give 1 to {MAX_CLASSES}, "
            "since masks are 8-bit files."
        )
    repeated = sorted({name for name in classes if classes.count(name) > 1})
    if repeated:
        raise TagmaskError(f'the class "{repeated[0]}" is given twice; name each class once.')
    if not all(name.strip() for name in classes):
        raise TagmaskError("a class has an empty name; name each class once.")
    for name in classes:
        if name.strip().casefold() == "background":
            raise TagmaskError(
                f"a class is called {name!r}, but label 0 is the background; give it another name."
            )
        if any(unicodedata.category(mark) in CONTROLS for mark in name):
            raise TagmaskError(
                f"the class {name!r} contains a line break or control character; rename it."
            )


def refuse_clashes(names: Sequence[str], folder: Path) -> None:
    """Refuse names that the disk of a folder takes for the same, as Windows and macOS do.

    Args:
        names: the names of images, under which outputs are stored.
        folder: where they are stored; it may be missing.

    Raises:
        TagmaskError: if one image's output would replace another's.
    """
    first: dict[str, str] = {}
    for name in names:
        key = unicodedata.normalize("NFC", name).casefold()
        other = first.setdefault(key, name)
        if other != name and takes_for_same(folder):
            raise TagmaskError(
                f'"{other}" and "{name}" are the same name for the disk of {folder}; rename one of '
                "the images, or choose an --out on another disk."
            )


def _check_names(names: Sequence[str]) -> None:
    """Refuse names that are repeated, are no relative paths, or clash with files of a run."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise TagmaskError(
                f'two images are called "{name}"; rename one, since outputs are named after it.'
            )
        parts = name.split("/")
        if "\0" in name or "" in parts or "." in parts or ".." in parts:
            raise TagmaskError(
                f'"{name}" cannot name an output; use a relative path without "." and "..".'
            )
        seen.add(name)
    innermost_folders = {dirname(name) for name in names}
    for innermost in innermost_folders:
        for folder in (innermost, *map(str, PurePosixPath(innermost).parents)):
            stem, suffix = splitext(folder)
            if folder in _NOTES or (suffix in _OUTPUTS and stem in seen):
                raise TagmaskError(
                    f'images in a folder called "{folder}" would clash with files of a run; '
                    "rename the folder."
                )
