"""Outlines of many objects (polygons and run lengths, as in COCO files) in a few flat buffers.

As Python lists each number would take about 30 bytes; here it takes 2 if all coordinates are
multiples of 1/100 up to 655.35, as in COCO, 4 if some are larger, and 8 otherwise. In any case, the
numbers that come out are exactly those that went in.
"""

import struct
from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pycocotools import mask as coco_mask

from tagmask.data.catalog import Strings

_FARTHEST = 1e6  # pixels; drawing takes time and memory in proportion to an outline's length
_BLOCK = 1 << 20  # numbers that are packed at a time
_SIZE = struct.Struct("<II")  # height and width before each run-length code


@dataclass(frozen=True)
class Outlines:
    """Objects 0 … len-1, each a set of polygons or one run-length code."""

    numbers: npt.NDArray[Any]  # coordinates x, y, x, y, …: float64, or whole hundredths
    polygon_starts: npt.NDArray[np.int64]  # polygon → its first number
    object_starts: npt.NDArray[np.int64]  # object → its first polygon
    codes: Strings  # object → its run-length code, empty if it has polygons

    def __len__(self) -> int:
        return len(self.object_starts) - 1

    def runs(self, number: int, height: int, width: int) -> Any:
        """Return the run lengths of an object for pycocotools; None for an empty outline.

        Args:
            number: the object.
            height: pixels of the image.
            width: pixels of the image.

        Raises:
            ValueError: if the outline does not fit the image.
        """
        code = self.codes.raw(number)
        if code:
            return _checked_runs(code, height, width)
        first, end = self.object_starts[number : number + 2]
        polygons = [self.polygon(index) for index in range(first, end)]
        if not polygons:
            return None
        return coco_mask.merge(coco_mask.frPyObjects(polygons, height, width))

    def polygon(self, number: int) -> npt.NDArray[np.float64]:
        """Return the corners x, y, x, y, … of a polygon."""
        start, end = self.polygon_starts[number : number + 2]
        corners = _as_pixels(self.numbers[start:end])
        if not (np.abs(corners) <= _FARTHEST).all():  # also false for NaN
            raise ValueError("a corner lies far outside the image")
        return corners


class OutlineBuilder:
    """Collects outlines one object at a time."""

    def __init__(self) -> None:
        self._unpacked = array("d")
        self._blocks: list[npt.NDArray[Any]] = []
        self._packed = 0  # numbers in the blocks
        self._codes: list[bytes] = []
        self._polygon_starts = array("q", [0])
        self._object_starts = array("q", [0])

    def add(self, segmentation: Any) -> None:
        """Append an object: polygons or a run-length dict.

        Raises:
            ValueError, TypeError: if it is malformed.
        """
        code = b""
        if isinstance(segmentation, dict):
            code = _compress(segmentation)
        else:
            for polygon in segmentation:
                self._add_polygon(polygon)
        self._codes.append(code)
        self._object_starts.append(len(self._polygon_starts) - 1)

    def build(self) -> Outlines:
        """Return the outlines in their compact form; the builder cannot be used after it."""
        self._pack()
        return Outlines(
            self._joined(),
            np.array(self._polygon_starts, np.int64),
            np.array(self._object_starts, np.int64),
            Strings(self._codes),
        )

    def _add_polygon(self, polygon: list[float]) -> None:
        """Append a polygon, corners x, y, x, y, …, to the current object."""
        if len(polygon) % 2:
            raise ValueError("a polygon has an odd number of coordinates")
        # two corners enclose nothing, and pycocotools would take them for a box
        if len(polygon) < 6:
            return
        self._unpacked.fromlist(polygon)
        self._polygon_starts.append(self._packed + len(self._unpacked))
        if len(self._unpacked) >= _BLOCK:
            self._pack()

    def _joined(self) -> npt.NDArray[Any]:
        """Return the numbers of all blocks, each of which is let go once it is copied."""
        kind = np.result_type(*[block.dtype for block in self._blocks])
        numbers = np.empty(self._packed, kind)
        end = self._packed
        while self._blocks:
            block = self._blocks.pop()
            values = _as_pixels(block) if kind == np.float64 else block
            numbers[end - len(block) : end] = values
            end -= len(block)
        return numbers

    def _pack(self) -> None:
        """Move the numbers collected so far to a block, as hundredths if that is exact."""
        numbers = np.array(self._unpacked)
        with np.errstate(over="ignore"):
            hundredths = np.rint(numbers * 100)
        is_exact = np.array_equal(hundredths / 100, numbers)
        lowest = hundredths.min(initial=0)
        highest = hundredths.max(initial=0)
        if is_exact and lowest >= 0 and highest < 2**16:
            self._blocks.append(hundredths.astype(np.uint16))
        elif is_exact and max(-lowest, highest) < 2**31:
            self._blocks.append(hundredths.astype(np.int32))
        else:
            self._blocks.append(numbers)
        self._packed += len(numbers)
        self._unpacked = array("d")


def _as_pixels(numbers: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return numbers of a block in pixels."""
    if numbers.dtype == np.float64:
        return numbers
    return numbers.astype(np.float64) / 100


def _compress(segmentation: dict[str, Any]) -> bytes:
    """Return a run-length object of COCO, plain or compressed, as its size and compressed form."""
    height, width = segmentation["size"]
    counts = segmentation["counts"]
    if isinstance(counts, list):
        if min(counts, default=0) < 0 or sum(counts) != height * width:
            raise ValueError(f"run lengths do not add up to the size {height}×{width}")
        counts = coco_mask.frPyObjects(segmentation, height, width)["counts"]
    size = _SIZE.pack(height, width)
    if isinstance(counts, str):
        counts = counts.encode("ascii")
    code: bytes = size + counts
    return code


def _checked_runs(code: bytes, height: int, width: int) -> dict[str, Any]:
    """Return the run lengths of a code for pycocotools; ValueError if they are of another size."""
    size = _SIZE.unpack_from(code)
    if size != (height, width):
        raise ValueError(f"run lengths are for {size} (height, width)")
    counts = code[_SIZE.size :]
    total = _run_total(counts)
    if total != height * width:  # pycocotools would leave the rest uninitialised
        raise ValueError(f"run lengths cover {total} of {height * width} pixels")
    return {"size": [height, width], "counts": counts}


def _run_total(code: bytes) -> int:
    """Return how many pixels a compressed run-length code covers; -1 if it is malformed.

    A run is a signed number in groups of 5 bits, lowest first, each stored as a character from "0"
    up, with bit 5 set if more follow; from the fourth run on it is the difference from the run
    before the last.
    """
    groups = np.frombuffer(code, dtype=np.uint8).astype(np.int64) - 48
    is_last = (groups & 32) == 0
    if not groups.size or not is_last[-1]:
        return -1
    if groups.min() < 0 or groups.max() > 63:
        return -1
    ends = np.flatnonzero(is_last)  # (runs,) the last group of each run
    starts = np.concatenate([[0], ends[:-1] + 1])  # (runs,)
    lengths = ends - starts + 1  # (runs,)
    if lengths.max() > 7:  # more than 35 bits
        return -1
    within_run = np.arange(groups.size) - np.repeat(starts, lengths)  # (groups,) 0, 1, …
    values = (groups & 31) << (5 * within_run)  # (groups,)
    runs = np.add.reduceat(values, starts)  # (runs,)
    is_negative = groups[ends] & 16  # (runs,)
    runs -= np.where(is_negative, 1 << (5 * lengths), 0)
    runs[1::2] = np.cumsum(runs[1::2])
    runs[2::2] = np.cumsum(runs[2::2])
    return int(runs.sum()) if runs.min() >= 0 else -1
