"""Outlines of regions along pixel edges, so that a polygon covers exactly its region's pixels.

Vertices are pixel corners: the pixel in row r and column c spans x from c to c+1 and y from r to r+1. COCO takes the
union of polygons and has no holes, so a hole is joined to its outline by a slit of zero width.
"""

import numpy as np
from scipy import ndimage

from tagmask.export.items import Region

Point = tuple[int, int]  # x, y


def outlines(region: Region) -> list[list[int]]:
    """One polygon x, y, x, y, … per part of the region that is connected over pixel sides."""
    pieces, _ = ndimage.label(region)
    polygons = []
    for number, window in enumerate(ndimage.find_objects(pieces), start=1):
        y, x = window[0].start, window[1].start
        outline = _simplify(_with_holes(trace(pieces[window] == number)))
        polygons.append([value for point in outline for value in (point[0] + x, point[1] + y)])
    return polygons


def centre_outlines(region: Region) -> list[list[tuple[float, float]]]:
    """Outlines through the centres of the outermost pixels, for tools that fill a polygon with its edge.

    Each corner moves half a pixel inwards from both of its edges; the inside is on the right of each edge.
    """
    moved = []
    for polygon in outlines(region):
        corners = list(zip(polygon[::2], polygon[1::2], strict=True))
        around = zip([corners[-1], *corners[:-1]], corners, [*corners[1:], corners[0]], strict=True)
        moved.append([_inwards(before, here, after) for before, here, after in around])
    return moved


def _inwards(before: Point, here: Point, after: Point) -> tuple[float, float]:
    steps = ((here[0] - before[0], here[1] - before[1]), (after[0] - here[0], after[1] - here[1]))
    x, y = here
    for dx, dy in steps:  # one of the two is 0; right of (dx, dy) is (-dy, dx)
        x, y = x - (dy > 0) / 2 + (dy < 0) / 2, y + (dx > 0) / 2 - (dx < 0) / 2  # type: ignore[assignment]
    return float(x), float(y)


def trace(piece: Region) -> list[list[Point]]:
    """The closed outlines of a piece, corner by corner: clockwise on the screen, but counter-clockwise around holes."""
    ahead = _edges(piece)
    loops = []
    while ahead:
        start = next(iter(ahead))
        loop, here, step = [], start, (0, 0)
        while here in ahead:
            loop.append(here)
            steps = ahead[here]
            turn = (-step[1], step[0])  # right: where two pixels touch only at a corner, stay with the same one
            step = turn if turn in steps else next(iter(steps))
            steps.remove(step)
            if not steps:
                del ahead[here]
            here = (here[0] + step[0], here[1] + step[1])
            if here == start and (-step[1], step[0]) not in ahead.get(here, ()):
                break  # with a step to the right, the outline passes its start a second time
        loops.append(loop)
    return loops


def _edges(piece: Region) -> dict[Point, set[Point]]:
    """For each corner on the outline, the unit steps that leave it with the piece on their right."""
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
    """All outlines of a piece as one: each hole, from left to right, gets a slit to the left of its first corner."""
    outer = max(loops, key=doubled_area)
    merged, corners = list(outer), set(outer)
    for hole in sorted((loop for loop in loops if loop is not outer), key=min):
        first = hole.index(min(hole))
        x, y = hole[first]
        while (x, y) not in corners:
            x -= 1  # ends at the outline or at a hole that has been joined
        at = merged.index((x, y))
        around = [*hole[first:], *hole[:first], hole[first]]
        merged[at : at + 1] = [(x, y), *around, (x, y)]
        corners.update(hole)
    return merged


def doubled_area(loop: list[Point]) -> int:
    """Twice the area inside, positive if clockwise on the screen."""
    corners = zip(loop, [*loop[1:], loop[0]], strict=True)
    return sum(x * next_y - next_x * y for (x, y), (next_x, next_y) in corners)


def _simplify(loop: list[Point]) -> list[Point]:
    """Without the vertices on straight lines; the turning points of a slit stay."""
    kept = []
    for before, here, after in zip([loop[-1], *loop[:-1]], loop, [*loop[1:], loop[0]], strict=True):
        came, goes = (here[0] - before[0], here[1] - before[1]), (after[0] - here[0], after[1] - here[1])
        cross, along = came[0] * goes[1] - came[1] * goes[0], came[0] * goes[0] + came[1] * goes[1]
        if cross or along < 0:
            kept.append(here)
    return kept
