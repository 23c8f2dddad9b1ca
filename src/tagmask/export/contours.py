"""Outlines of regions along pixel edges, so that a polygon covers exactly its region's pixels.

Vertices are pixel corners: the pixel in row r and column c spans x from c to c+1 and y from r to r+1. COCO adds up
polygons and knows no holes, therefore a hole is joined to its outline by a slit of no width, walked to and fro.
"""

from collections.abc import Iterator

import numpy as np
from scipy import ndimage

from tagmask.export.items import Region

Point = tuple[int, int]  # x, y


def polygons(region: Region) -> list[list[int]]:
    """One polygon x, y, x, y, … per piece of the region that hangs together over pixel sides; holes are slit in."""
    pieces, _ = ndimage.label(region)
    found = []
    for number, window in enumerate(ndimage.find_objects(pieces), start=1):
        y, x = window[0].start, window[1].start
        outline = _simplify(_with_holes(trace(pieces[window] == number)))
        found.append([value for point in outline for value in (point[0] + x, point[1] + y)])
    return found


def trace(piece: Region) -> list[list[Point]]:
    """The closed outlines of a piece, corner by corner: clockwise on the screen around it, the other way in holes."""
    ahead = _edges(piece)
    loops = []
    while ahead:
        start = next(iter(ahead))
        loop, here, step = [], start, (0, 0)
        while here in ahead:
            loop.append(here)
            steps = ahead[here]
            turn = (-step[1], step[0])  # right: where two pixels meet at a corner only, stay with the same one
            step = turn if turn in steps else next(iter(steps))
            steps.remove(step)
            if not steps:
                del ahead[here]
            here = (here[0] + step[0], here[1] + step[1])
            if here == start and not _goes_on(ahead, here, step):
                break
        loops.append(loop)
    return loops


def _goes_on(ahead: dict[Point, set[Point]], here: Point, step: Point) -> bool:
    """Whether an outline that is back at its start passes it a second time: to its right there is another step."""
    return (-step[1], step[0]) in ahead.get(here, ())


def _edges(piece: Region) -> dict[Point, set[Point]]:
    """For each corner on the outline the unit steps that leave it with the piece to their right."""
    framed = np.pad(piece, 1)
    ahead: dict[Point, set[Point]] = {}
    sides = (  # neighbour (dy, dx), corner of the pixel (dx, dy) where its edge begins, step
        ((-1, 0), (0, 0), (1, 0)),
        ((0, 1), (1, 0), (0, 1)),
        ((1, 0), (1, 1), (-1, 0)),
        ((0, -1), (0, 1), (0, -1)),
    )
    height, width = piece.shape
    for (dy, dx), corner, step in sides:
        beside = framed[1 + dy : 1 + dy + height, 1 + dx : 1 + dx + width]
        for row, column in np.argwhere(piece & ~beside).tolist():
            ahead.setdefault((column + corner[0], row + corner[1]), set()).add(step)
    return ahead


def _with_holes(loops: list[list[Point]]) -> list[Point]:
    """All outlines of a piece as one: from each hole, beginning at the left, a slit goes left from its first corner."""
    outer = max(loops, key=doubled_area)
    merged, corners = list(outer), set(outer)
    for hole in sorted((loop for loop in loops if loop is not outer), key=min):
        first = hole.index(min(hole))
        x, y = hole[first]
        while (x, y) not in corners:
            x -= 1  # ends at the outline or at a hole further left, which has been joined already
        at = merged.index((x, y))
        around = [*hole[first:], *hole[:first], hole[first]]
        merged[at : at + 1] = [(x, y), *around, (x, y)]
        corners.update(hole)
    return merged


def doubled_area(loop: list[Point]) -> int:
    """Twice the area inside, positive if clockwise on the screen."""
    return sum(x * next_y - next_x * y for (x, y), (next_x, next_y) in _pairs(loop))


def _pairs(loop: list[Point]) -> Iterator[tuple[Point, Point]]:
    return zip(loop, [*loop[1:], loop[0]], strict=True)


def _simplify(loop: list[Point]) -> list[Point]:
    """Without the corners where the outline goes straight on; turning back, as a slit does, is a corner."""
    kept = []
    for before, here, after in zip([loop[-1], *loop[:-1]], loop, [*loop[1:], loop[0]], strict=True):
        came, goes = (here[0] - before[0], here[1] - before[1]), (after[0] - here[0], after[1] - here[1])
        cross, along = came[0] * goes[1] - came[1] * goes[0], came[0] * goes[0] + came[1] * goes[1]
        if cross or along < 0:
            kept.append(here)
    return kept
