"""COCO's ``instances*.json``.

Decisions:

- classes are the categories in the order of their ids, without gaps;
- tags are the categories of an image's objects; crowd regions give none;
- images without tags are left out and counted (702 of 82,783 in train2014);
- in a mask the object with the smaller area is on top; crowd pixels that no object covers are 255, and so are the
  boxes of objects without an outline.
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

from tagmask.data.catalog import Catalog
from tagmask.data.images import list_files, opened, strip_suffix
from tagmask.data.json_stream import stream_lists
from tagmask.data.outlines import OutlineBuilder, Outlines
from tagmask.data.report import Mistakes, left_out_notes
from tagmask.errors import ImageError, TagmaskError
from tagmask.labels import UNSURE, Mask

_LARGE = 50_000_000  # pixels
MAX_SIDE = 65_535  # pixels; JPEG's own limit
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
        sizes: npt.NDArray[np.int32],  # (items, 2) height, width
        owners: npt.NDArray[
            np.int64
        ],  # (objects,) row of each object's image, -1 if it was left out
        labels: Mask,  # (objects,) what each object is drawn as
        outlines: Outlines,
    ) -> None:
        super().__init__(classes, names, tags, images=images, notes=notes)
        self._sizes, self._labels, self._outlines = sizes, labels, outlines
        self._order = np.argsort(owners, kind="stable").astype(np.int32)  # objects, grouped by row
        self._starts = np.searchsorted(owners[self._order], np.arange(len(sizes) + 1))
        self._outlined = bool((labels != UNSURE).any())

    @property
    def has_masks(self) -> bool:
        return len(self) > 0 and self._outlined

    def load_mask(self, i: int) -> Mask | None:
        if not self._outlined:
            return None
        row = self.row(i)
        height, width = self._sizes[row].tolist()
        try:
            if height * width > _LARGE:
                _check_size(self._images[row], height, width)
            return self._draw(row, height, width)
        except (ValueError, MemoryError) as error:
            text = f'the outlines of "{self._names[row]}" cannot be drawn ({error}); correct them or leave it out.'
            raise ImageError(text) from None

    def _draw(self, row: int, height: int, width: int) -> Mask:
        mask = np.zeros((height, width), dtype=np.uint8, order="F")  # pycocotools stores columns
        numbers = self._order[self._starts[row] : self._starts[row + 1]].tolist()
        outlined = ((number, self._outlines.runs(number, height, width)) for number in numbers)
        drawable = [(number, runs) for number, runs in outlined if runs is not None]
        drawable.sort(key=lambda pair: -int(coco_mask.area(pair[1])))  # the largest first
        for number, runs in drawable:
            label, inside = self._labels[number], coco_mask.decode(runs) > 0
            mask[inside & (mask == 0) if label == UNSURE else inside] = label
        return np.ascontiguousarray(mask)


def _check_size(path: str, height: int, width: int) -> None:
    """A size in the file costs nothing; before much memory is taken for it, the image must have it."""
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
        self.image_ids, self.sizes = (
            array("q"),
            array("i"),
        )  # sizes: height, width, height, width, …
        self.categories: dict[int, str] = {}
        self.object_images, self.object_categories = array("q"), array("q")
        self.crowd, self.boxed = bytearray(), bytearray()
        self.outlines = OutlineBuilder()
        self._read(source)

    def _read(self, source: Path) -> None:
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
            except (
                KeyError,
                TypeError,
                ValueError,
                AttributeError,
                OverflowError,
                struct.error,
            ) as error:
                fault = f"lacks {error}" if isinstance(error, KeyError) else str(error)
                self.mistakes.add(key, f"{key}, entry {numbers[key]}", fault)
        if absent := [key for key, number in numbers.items() if not number]:
            raise TagmaskError(
                f"{source} has no {' and no '.join(absent)}; give a COCO instances file."
            )
        self.mistakes.raise_if_any()

    def add_image(self, entry: dict[str, Any]) -> None:
        identity, file = _typed(entry, "id", int), _typed(entry, "file_name", str)
        height, width = _typed(entry, "height", int), _typed(entry, "width", int)
        if not (0 < height <= MAX_SIDE and 0 < width <= MAX_SIDE):
            raise ValueError(f"the size {width}×{height} is not within 1 to {MAX_SIDE}")
        self.image_ids.append(identity)
        self.files.append(file.replace("\\", "/").removeprefix("./"))
        self.sizes.extend((height, width))

    def add_category(self, entry: dict[str, Any]) -> None:
        number = array("q", [_typed(entry, "id", int)])[
            0
        ]  # OverflowError if it does not fit 64 bits
        if number in self.categories:
            raise ValueError(f"the id {number} is given twice")
        self.categories[number] = _typed(entry, "name", str).strip()

    def add_object(self, entry: dict[str, Any]) -> None:
        outline = entry.get("segmentation")
        image, category = _typed(entry, "image_id", int), _typed(entry, "category_id", int)
        crowd = entry.get("iscrowd", 0)
        if not isinstance(crowd, int) or crowd not in (0, 1):  # false and true are 0 and 1
            raise ValueError(f"iscrowd is {crowd!r}; it must be 0 or 1")
        self.outlines.add(outline or _box(entry.get("bbox")))
        self.object_images.append(image)
        self.object_categories.append(category)
        self.crowd.append(crowd)
        self.boxed.append(not outline)


def read_coco(images: Path, annotations: Path) -> Catalog:
    """Read an instances file, whose ``file_name`` entries are relative to the folder ``images``."""
    odd: list[str] = []
    present = set(list_files(images, odd))
    raw = _Raw(annotations)
    category_ids = sorted(raw.categories)
    owners = _positions(
        raw.object_images, raw.image_ids
    )  # (objects,) image of each object, -1 unknown
    labels = _positions(raw.object_categories, category_ids)  # (objects,)
    _check_ids(raw, labels)
    crowd = np.array(raw.crowd, dtype=bool)  # (objects,)
    counted = ~crowd & (owners >= 0)
    tags: list[list[int]] = [[] for _ in raw.files]
    for place, label in zip(owners[counted].tolist(), labels[counted].tolist(), strict=True):
        tags[place].append(label)
    kept = [place for place, file in enumerate(raw.files) if tags[place] and file in present]
    missing = [file for file in raw.files if file not in present]
    if len(missing) == len(raw.files):
        first, count = images / missing[0], f"{len(missing):,}"
        raise TagmaskError(
            f"none of the {count} images of {annotations} exists; the first was looked for at {first}."
        )
    if not kept:
        raise TagmaskError(
            f"no image of {annotations} in {images} has an object; give another file."
        )
    rows = np.full(len(raw.files) + 1, -1, dtype=np.int64)  # the last entry is for owner -1
    rows[kept] = np.arange(len(kept))
    unsure = crowd | np.array(raw.boxed, dtype=bool)
    return CocoCatalog(
        [raw.categories[identity] for identity in category_ids],
        [strip_suffix(raw.files[place]) for place in kept],
        [tags[place] for place in kept],
        images=[os.path.join(images, raw.files[place]) for place in kept],
        notes=[
            *left_out_notes(missing, odd, len(raw.files) - len(kept) - len(missing)),
            *_object_notes(owners, crowd, unsure),
        ],
        sizes=np.array(raw.sizes, dtype=np.int32).reshape(-1, 2)[kept],
        owners=rows[owners],
        labels=np.where(unsure, UNSURE, labels + 1).astype(np.uint8),
        outlines=raw.outlines.build(),
    )


def _typed(entry: dict[str, Any], name: str, form: type[_T]) -> _T:
    """A text or a whole number of an entry; JSON's 1.9, "1" and true are no whole numbers."""
    value: _T = entry[name]
    if type(value) is not form:
        raise ValueError(
            f"{name} is {value!r}; it must be {'a text' if form is str else 'a whole number'}"
        )
    return value


def _box(box: Any) -> list[list[float]]:
    """A bounding box (x, y, width, height) as a polygon; nothing if there is no box."""
    if not box:
        return []
    x, y, width, height = box
    return [[x, y, x + width, y, x + width, y + height, x, y + height]]


def _positions(values: Iterable[int], ids: Iterable[int]) -> npt.NDArray[np.int64]:
    """For each value its index in ``ids``, or -1."""
    places = {identity: place for place, identity in enumerate(ids)}
    return np.array([places.get(value, -1) for value in values], dtype=np.int64)


def _check_ids(raw: _Raw, labels: npt.NDArray[np.int64]) -> None:
    for place in np.flatnonzero(labels < 0).tolist():
        text = f"the category {raw.object_categories[place]} is not among the categories"
        raw.mistakes.add("category", f"annotations, entry {place + 1}", text)
    ids, counts = np.unique(np.array(raw.image_ids), return_counts=True)
    for identity in ids[counts > 1].tolist():
        raw.mistakes.add("image", f"image {identity}", "the id is given twice")
    raw.mistakes.raise_if_any()


def _object_notes(
    owners: npt.NDArray[np.int64], crowd: npt.NDArray[np.bool_], unsure: npt.NDArray[np.bool_]
) -> list[str]:
    stray, crowds, boxed = int((owners < 0).sum()), int(crowd.sum()), int((unsure & ~crowd).sum())
    notes = {
        f"{stray:,} of {len(owners):,} objects belong to no listed image and were left out.": stray,
        f"{crowds:,} of {len(owners):,} objects are crowds: they give no tag and are 255 in masks.": crowds,
        f"{boxed:,} of {len(owners):,} objects have no outline: their boxes are 255 in masks.": boxed,
    }
    return [note for note, count in notes.items() if count]
