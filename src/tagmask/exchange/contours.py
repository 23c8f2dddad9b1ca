"""Outlines of regions along pixel edges, so that a polygon covers exactly its region's pixels.

Vertices are pixel corners: the pixel in row r and column c spans x from c to c+1 and y from r to
r+1. COCO takes the union of polygons and has no holes, so a hole is joined to its outline by a slit
of zero width.
"""

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from tagmask.exchange.items import Region

Point = tuple[int, int]  # x, y
Corners = npt.NDArray[np.int64]  # (n, 2): x, y
_Edge = tuple[Point, Point]  # a corner, and the unit step that leaves it


def outlines(region: Region) -> list[list[int]]:
    """Return a polygon x, y, x, y, … for each part of the region that is connected over sides."""
    pieces, _ = ndimage.label(region)  # (H, W)
    polygons = []
    for number, (rows, columns) in enumerate(ndimage.find_objects(pieces), start=1):
        piece = pieces[rows, columns] == number
        loops = trace(piece)
        corners = np.array(_join_holes(loops))  # (n, 2)
        before, after = _directions(corners)
        # only corners where the outline turns are needed; the ends of a slit are turns, too
        is_turn = (before != after).any(axis=1)  # (n,)
        turns = corners[is_turn]
        turns += (columns.start, rows.start)
        polygons.append(turns.ravel().tolist())
    return polygons


def centre_outlines(region: Region) -> list[list[tuple[float, float]]]:
    """Return outlines through the centres of the outermost pixels.

    They are for tools that fill a polygon with its edge. Each corner moves half a pixel inwards
    from both of its edges; right of an edge (dx, dy) is (-dy, dx).
    """
    moved = []
    for polygon in outlines(region):
        corners = np.array(polygon).reshape(-1, 2)
        before, after = _directions(corners)
        inwards = (before + after)[:, ::-1] * (-0.5, 0.5)  # (n, 2)
        centres = corners + inwards
        moved.append([(x, y) for x, y in centres.tolist()])
    return moved


def _directions(corners: Corners) -> tuple[Corners, Corners]:
    """Return the direction before and after each corner of a closed outline.

    Both are (n, 2) with -1, 0 or 1 along x and y.
    """
    before = np.sign(corners - np.roll(corners, 1, axis=0))
    after = np.roll(before, -1, axis=0)
    return before, after


def trace(piece: Region) -> list[list[Point]]:
    """Return the closed outlines of a piece, corner by corner.

    They run clockwise on the screen, but counter-clockwise around holes.
    """
    edges = _edges(piece)
    known = set(edges)
    # a dictionary keeps the order of the edges; those that have been passed are deleted
    ahead = dict.fromkeys(edges)
    loops = []
    while ahead:
        edge = next(iter(ahead))
        loop = []
        while edge in ahead:
            del ahead[edge]
            (x, y), (dx, dy) = edge
            loop.append((x, y))
            end = (x + dx, y + dy)
            # right first: of two pixels that touch at a corner, stay with one
            turns = ((-dy, dx), (dx, dy), (dy, -dx))
            for turn in turns:
                edge = (end, turn)
                if edge in known:
                    break
        loops.append(loop)
    return loops


def _edges(piece: Region) -> list[_Edge]:
    """Return the sides of pixels on the outline, each with the piece on its right."""
    framed = np.pad(piece, 1)
    height, width = piece.shape
    # of a pixel, clockwise on the screen: the corner where a side begins, and the step along it
    sides = (
        ((0, 0), (1, 0)),
        ((1, 0), (0, 1)),
        ((1, 1), (-1, 0)),
        ((0, 1), (0, -1)),
    )
    edges: list[_Edge] = []
    for (x, y), (dx, dy) in sides:
        # a side is on the outline if the pixel's neighbour left of the step is outside
        top = 1 - dx
        left = 1 + dy
        neighbour = framed[top : top + height, left : left + width]
        for row, column in np.argwhere(piece & ~neighbour).tolist():
            corner = (column + x, row + y)
            edges.append((corner, (dx, dy)))
    return edges


def _join_holes(loops: list[list[Point]]) -> list[Point]:
    """Return all outlines of a piece as one.

    Each hole, from left to right, gets a slit to the left of its first corner.
    """
    outer, *holes = sorted(loops, key=min)
    merged = list(outer)
    corners = set(outer)
    for hole in holes:
        first = hole.index(min(hole))
        x, y = hole[first]
        # the slit ends at the outline or at a hole that has been joined
        while (x, y) not in corners:
            x -= 1
        end = merged.index((x, y))
        around = [*hole[first:], *hole[:first], hole[first]]
        detour = [(x, y), *around, (x, y)]
        merged[end : end + 1] = detour
        corners.update(hole)
    return merged
