"""Large pictures in tiles: each is computed with what lies around it, so that no seam shows."""

from collections.abc import Iterator
from dataclasses import dataclass

AT_ONCE = 1.5e9  # bytes; a picture that needs more is done in tiles


@dataclass(frozen=True)
class Window:
    """A tile of a picture, and what is seen around it."""

    rows: slice  # what is seen, in pixels of the picture
    columns: slice
    top: int  # the tile itself, in pixels of the picture
    left: int
    height: int
    width: int

    @property
    def shape(self) -> tuple[int, int]:
        """Return height and width of what is seen."""
        return self.rows.stop - self.rows.start, self.columns.stop - self.columns.start

    @property
    def seen(self) -> tuple[slice, slice]:
        """Return where what is seen lies in the picture."""
        return self.rows, self.columns

    @property
    def tile(self) -> tuple[slice, slice]:
        """Return where the tile lies in the picture."""
        return slice(self.top, self.top + self.height), slice(self.left, self.left + self.width)

    @property
    def inner(self) -> tuple[slice, slice]:
        """Return where the tile lies in what is seen."""
        y = self.top - self.rows.start
        x = self.left - self.columns.start
        return slice(y, y + self.height), slice(x, x + self.width)


def windows(height: int, width: int, tile: int | None, halo: int) -> Iterator[Window]:
    """Yield the tiles of a picture; the whole if it is not larger than one.

    Args:
        height: Of the picture, in pixels.
        width: Of the picture, in pixels.
        tile: Side of the tiles; None: the picture is one.
        halo: Pixels that are seen around each tile, as far as there are any.
    """
    if tile is None or max(height, width) <= tile:
        yield Window(slice(0, height), slice(0, width), 0, 0, height, width)
        return
    for top in range(0, height, tile):
        for left in range(0, width, tile):
            bottom = min(top + tile, height)
            right = min(left + tile, width)
            rows = slice(max(0, top - halo), min(height, bottom + halo))
            columns = slice(max(0, left - halo), min(width, right + halo))
            yield Window(rows, columns, top, left, bottom - top, right - left)
