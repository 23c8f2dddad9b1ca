"""COCO's ``instances*.json``.

Decisions:

- classes are the categories in the order of their ids, without gaps;
- tags are the categories of an image's objects; crowd regions give none;
- images without tags are left out and counted (702 of 82,783 in train2014);
- in a mask the object with the smaller area is on top; crowd pixels that no object covers are 255,
  and so are the boxes of objects without an outline.
"""

import os
import struct
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from pycocotools import mask as coco_mask

from tagmask.data.catalog import Catalog, no_collector
from tagmask.data.folder import Tails, normal_path
from tagmask.data.images import list_files, opened, strip_suffix
from tagmask.data.json_stream import stream_lists
from tagmask.data.outlines import OutlineBuilder, Outlines
from tagmask.data.report import Mistakes, left_out_notes
from tagmask.errors import ImageError, TagmaskError
from tagmask.labels import UNSURE, Mask

_LARGE = 50_000_000  # pixels
MAX_SIDE = 65_535  # pixels; JPEG's own limit
# what a malformed entry of the file can cause
_ENTRY_FAULTS = (KeyError, TypeError, ValueError, AttributeError, OverflowError, struct.error)
_T = TypeVar("_T")


class CocoCatalog(Catalog):
    """A catalog that draws its masks from outlines on demand."""

    def __init__(
        self,
        classes: Sequence[str],
        names: Sequence[str],
        tags: Sequence[Sequence[int]],
        *,
        images: Sequence[str],
        notes: Sequence[str],
        sizes: npt.NDArray[np.int32],
        owners: npt.NDArray[np.int64],
        labels: Mask,
        outlines: Outlines,
    ) -> None:
        """Store the columns of a catalog and the outlines of its objects.

        Args:
            classes: the names of the classes.
            names: for each item its name.
            tags: for each item its classes, 0-based.
            images: for each item its file.
            notes: sentences for the user.
            sizes: (items, 2), height and width.
            owners: (objects,), the row of each object's image, -1 if it was left out.
            labels: (objects,), what each object is drawn as.
            outlines: those of the objects.
        """
        super().__init__(classes, names, tags, images=images, notes=notes)
        self._sizes = sizes
        self._labels = labels
        self._outlines = outlines
        self._order = np.argsort(owners, kind="stable").astype(np.int32)  # objects, grouped by row
        rows = np.arange(len(sizes) + 1)
        self._starts = np.searchsorted(owners[self._order], rows)  # row → its first in the order
        self._outlined = bool((labels != UNSURE).any())

    @property
    def has_masks(self) -> bool:
        """Return True if at least one item has a mask."""
        return len(self) > 0 and self._outlined

    def load_mask(self, i: int) -> Mask | None:
        """Draw the mask of item ``i``, shape (H, W); None if no object has an outline."""
        if not self._outlined:
            return None
        row = self.row(i)
        height, width = self._sizes[row].tolist()
        try:
            if height * width > _LARGE:
                _check_size(self._images[row], height, width)
            return self._draw(row, height, width)
        except (ValueError, MemoryError) as error:
            raise ImageError(
                f'the outlines of "{self._names[row]}" cannot be drawn ({error}); '
                "correct them or leave it out."
            ) from None

    def _draw(self, row: int, height: int, width: int) -> Mask:
        """Draw the objects of a row, the largest first."""
        mask = np.zeros((height, width), dtype=np.uint8, order="F")  # pycocotools stores columns
        drawable = []
        start, end = self._starts[row : row + 2]
        for number in self._order[start:end].tolist():
            runs = self._outlines.runs(number, height, width)
            if runs is not None:
                drawable.append((number, runs))
        drawable.sort(key=lambda pair: -int(coco_mask.area(pair[1])))  # the largest first
        for number, runs in drawable:
            label = self._labels[number]
            inside = coco_mask.decode(runs) > 0  # (H, W)
            if label == UNSURE:
                inside = inside & (mask == 0)
            mask[inside] = label
        return np.ascontiguousarray(mask)


def _check_size(path: str, height: int, width: int) -> None:
    """Refuse a size that is not the image's.

    A size in the file costs nothing; before much memory is taken for it, the image must have it.
    """
    with opened(Path(path)) as image:
        real = image.size
    if real != (width, height):
        raise ValueError(
            f"the file says {width}×{height} pixels, the image has {real[0]}×{real[1]}"
        )


class _Raw:
    """The columns of the file before ids are resolved."""

    def __init__(self, source: Path) -> None:
        self.mistakes = Mistakes(source)
        self.files: list[str] = []
        self.image_ids = array("q")
        self.sizes = array("i")  # height, width, height, width, …
        self.categories: dict[int, str] = {}
        self.object_images = array("q")
        self.object_categories = array("q")
        self.crowd = bytearray()  # 1 for objects that are crowds
        self.boxed = bytearray()  # 1 for objects without an outline
        self.outlines = OutlineBuilder()
        self._read(source)

    def _read(self, source: Path) -> None:
        """Read the file entry by entry; all mistakes in it are reported at once."""
        add = {
            "images": self.add_image,
            "categories": self.add_category,
            "annotations": self.add_object,
        }
        numbers = dict.fromkeys(add, 0)
        for key, entry in stream_lists(source, add):
            numbers[key] += 1
            try:
                add[key](entry)
            except _ENTRY_FAULTS as error:
                fault = f"lacks {error}" if isinstance(error, KeyError) else str(error)
                self.mistakes.add(key, f"{key}, entry {numbers[key]}", fault)
        absent = [key for key, number in numbers.items() if not number]
        if absent:
            raise TagmaskError(
                f"{source} has no {' and no '.join(absent)}; give a COCO instances file."
            )
        self.mistakes.raise_if_any()

    def add_image(self, entry: dict[str, Any]) -> None:
        """Append an image to the columns."""
        identity = _typed(entry, "id", int)
        file = _typed(entry, "file_name", str)
        height = _typed(entry, "height", int)
        width = _typed(entry, "width", int)
        if not (0 < height <= MAX_SIDE and 0 < width <= MAX_SIDE):
            raise ValueError(f"the size {width}×{height} is not within 1 to {MAX_SIDE}")
        self.image_ids.append(identity)
        self.files.append(file.replace("\\", "/").removeprefix("./"))
        self.sizes.extend((height, width))

    def add_category(self, entry: dict[str, Any]) -> None:
        """Note the name of a category."""
        # an array raises OverflowError if the id does not fit 64 bits
        (number,) = array("q", [_typed(entry, "id", int)])
        if number in self.categories:
            raise ValueError(f"the id {number} is given twice")
        self.categories[number] = _typed(entry, "name", str).strip()

    def add_object(self, entry: dict[str, Any]) -> None:
        """Append an object to the columns."""
        outline = entry.get("segmentation")
        image = _typed(entry, "image_id", int)
        category = _typed(entry, "category_id", int)
        crowd = entry.get("iscrowd", 0)
        if not isinstance(crowd, int) or crowd not in (0, 1):  # false and true are 0 and 1
            raise ValueError(f"iscrowd is {crowd!r}; it must be 0 or 1")
        self.outlines.add(outline or _box(entry.get("bbox")))
        self.object_images.append(image)
        self.object_categories.append(category)
        self.crowd.append(crowd)
        self.boxed.append(not outline)


@no_collector()
def read_coco(images: Path, annotations: Path, *, loose: bool = False) -> Catalog:
    """Read an instances file.

    Args:
        images: the folder of the images.
        annotations: the file, whose ``file_name`` entries are relative to ``images``.
        loose: find images by how their paths end, too, as other tools' exports need it.

    Raises:
        TagmaskError: if there are mistakes in the file, or no image with an object.
    """
    odd: list[str] = []
    present = set(list_files(images, odd))
    raw = _Raw(annotations)
    if loose:
        raw.files = _found_by_ends(raw.files, sorted(present), images)
    category_ids = sorted(raw.categories)
    owners = _positions(raw.object_images, raw.image_ids)  # (objects,) image of each, -1 unknown
    labels = _positions(raw.object_categories, category_ids)  # (objects,)
    _check_ids(raw, labels)
    crowd = np.array(raw.crowd, dtype=bool)  # (objects,)
    unsure = crowd | np.array(raw.boxed, dtype=bool)  # (objects,)

    is_tag = ~crowd & (owners >= 0)  # (objects,)
    tags: list[list[int]] = [[] for _ in raw.files]
    tag_owners = owners[is_tag].tolist()
    tag_labels = labels[is_tag].tolist()
    for image, label in zip(tag_owners, tag_labels, strict=True):
        tags[image].append(label)
    kept = []
    missing = []
    for i, file in enumerate(raw.files):
        if file not in present:
            missing.append(file)
        elif tags[i]:
            kept.append(i)
    _check_any(images, annotations, len(raw.files), kept, missing)

    rows = np.full(len(raw.files) + 1, -1, dtype=np.int64)  # the last entry is for owner -1
    rows[kept] = np.arange(len(kept))
    sizes = np.array(raw.sizes, dtype=np.int32).reshape(-1, 2)  # (images, 2)
    classes = [raw.categories[identity] for identity in category_ids]
    files = [raw.files[i] for i in kept]
    paths = [os.path.join(images, file) for file in files]
    names = [strip_suffix(file) for file in files]
    kept_tags = [tags[i] for i in kept]
    untagged = len(raw.files) - len(kept) - len(missing)
    notes = left_out_notes(missing, odd, untagged)
    notes += _object_notes(owners, crowd, unsure)
    return CocoCatalog(
        classes,
        names,
        kept_tags,
        images=paths,
        notes=notes,
        sizes=sizes[kept],
        owners=rows[owners],
        labels=np.where(unsure, UNSURE, labels + 1).astype(np.uint8),
        outlines=raw.outlines.build(),
    )


def _found_by_ends(entries: Sequence[str], present: Sequence[str], images: Path) -> list[str]:
    """Return the image that each entry means; an entry that means none, or several, stays."""
    tails = Tails(present)
    files = []
    for entry in entries:
        found = tails.find(normal_path(entry, images))
        files.append(found[0] if len(found) == 1 else entry)
    return files


def _check_any(
    images: Path, annotations: Path, count: int, kept: list[int], missing: list[str]
) -> None:
    """Refuse a file none of whose images exists, or none of whose images has an object."""
    if len(missing) == count:
        first = images / missing[0]
        raise TagmaskError(
            f"none of the {count:,} images of {annotations} exists; "
            f"the first was looked for at {first}."
        )
    if not kept:
        raise TagmaskError(
            f"no image of {annotations} in {images} has an object; give another file."
        )


def _typed(entry: dict[str, Any], name: str, form: type[_T]) -> _T:
    """Return a text or a whole number of an entry.

    JSON's 1.9, "1" and true are no whole numbers.
    """
    value: _T = entry[name]
    if type(value) is not form:
        wanted = "a text" if form is str else "a whole number"
        raise ValueError(f"{name} is {value!r}; it must be {wanted}")
    return value


def _box(box: Any) -> list[list[float]]:
    """Return a bounding box (x, y, width, height) as a polygon; nothing if there is no box."""
    if not box:
        return []
    x, y, width, height = box
    right = x + width
    below = y + height
    return [[x, y, right, y, right, below, x, below]]


def _positions(values: Iterable[int], ids: Iterable[int]) -> npt.NDArray[np.int64]:
    """Return for each value its index in ``ids``, or -1."""
    positions = {identity: index for index, identity in enumerate(ids)}
    return np.array([positions.get(value, -1) for value in values], dtype=np.int64)


def _check_ids(raw: _Raw, labels: npt.NDArray[np.int64]) -> None:
    """Refuse objects of an unknown category, and images with the same id."""
    for index in np.flatnonzero(labels < 0).tolist():
        text = f"the category {raw.object_categories[index]} is not among the categories"
        raw.mistakes.add("category", f"annotations, entry {index + 1}", text)
    ids, counts = np.unique(np.array(raw.image_ids), return_counts=True)
    for identity in ids[counts > 1].tolist():
        raw.mistakes.add("image", f"image {identity}", "the id is given twice")
    raw.mistakes.raise_if_any()


def _object_notes(
    owners: npt.NDArray[np.int64], crowd: npt.NDArray[np.bool_], unsure: npt.NDArray[np.bool_]
) -> list[str]:
    """Return sentences about objects that are left out or drawn as 255."""
    count = f"{len(owners):,}"
    stray = int((owners < 0).sum())
    crowds = int(crowd.sum())
    boxed = int((unsure & ~crowd).sum())
    notes = []
    if stray:
        notes.append(f"{stray:,} of {count} objects belong to no listed image and were left out.")
    if crowds:
        notes.append(
            f"{crowds:,} of {count} objects are crowds: they give no tag and are 255 in masks."
        )
    if boxed:
        notes.append(f"{boxed:,} of {count} objects have no outline: their boxes are 255 in masks.")
    return notes
