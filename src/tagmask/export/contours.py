"""Outlines of regions along pixel edges, so that a polygon covers exactly its region's pixels.

Vertices are pixel corners: the pixel in row r and column c spans x from c to c+1 and y from r to r+1. COCO takes the
union of polygons and has no holes, so a hole is joined to its outline by a slit of zero width.
"""

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from tagmask.export.items import Region

Point = tuple[int, int]  # x, y
Corners = npt.NDArray[np.int64]  # (n, 2): x, y


def outlines(region: Region) -> list[list[int]]:
    """One polygon x, y, x, y, … per part of the region that is connected over pixel sides."""
    pieces, _ = ndimage.label(region)
    polygons = []
    for number, (rows, columns) in enumerate(ndimage.find_objects(pieces), start=1):
        corners = np.array(_with_holes(trace(pieces[rows, columns] == number)))
        came, goes = _directions(corners)
        turns = corners[(came != goes).any(axis=1)]  # the ends of a slit are turns, too
        turns += (columns.start, rows.start)
        polygons.append(turns.ravel().tolist())
    return polygons


def centre_outlines(region: Region) -> list[list[tuple[float, float]]]:
    """Outlines through the centres of the outermost pixels, for tools that fill a polygon with its edge.

    Each corner moves half a pixel inwards from both of its edges; right of an edge (dx, dy) is (-dy, dx).
    """
    moved = []
    for polygon in outlines(region):
        corners = np.array(polygon).reshape(-1, 2)
        came, goes = _directions(corners)
        inwards = (came + goes)[:, ::-1] * (-0.5, 0.5)
        moved.append([(x, y) for x, y in (corners + inwards).tolist()])
    return moved


def _directions(corners: Corners) -> tuple[Corners, Corners]:
    """How a closed outline comes to each corner and how it goes on: -1, 0 or 1 along x and y."""
    came = np.sign(corners - np.roll(corners, 1, axis=0))
    return came, np.roll(came, -1, axis=0)


def trace(piece: Region) -> list[list[Point]]:
    """The closed outlines of a piece, corner by corner: clockwise on the screen, but counter-clockwise around holes."""
    edges = _edges(piece)
    ahead = dict.fromkeys(edges)  # in order, without those that have been passed
    known, loops = set(edges), []
    while ahead:
        edge, loop = next(iter(ahead)), []
        while edge in ahead:
            del ahead[edge]
            (x, y), (dx, dy) = edge
            loop.append((x, y))
            turns = (
                (-dy, dx),
                (dx, dy),
                (dy, -dx),
            )  # right first: of two pixels that touch at a corner, stay with one
            edge = next(turned for turn in turns if (turned := ((x + dx, y + dy), turn)) in known)
        loops.append(loop)
    return loops


def _edges(piece: Region) -> list[tuple[Point, Point]]:
    """The sides of pixels on the outline: a corner, and the unit step that leaves it with the piece on its right."""
    framed = np.pad(piece, 1)
    edges: list[tuple[Point, Point]] = []
    height, width = piece.shape
    corners, steps = (
        ((0, 0), (1, 0), (1, 1), (0, 1)),
        ((1, 0), (0, 1), (-1, 0), (0, -1)),
    )  # of a pixel, clockwise
    for (x, y), (dx, dy) in zip(corners, steps, strict=True):
        beside = framed[
            1 - dx : 1 - dx + height, 1 + dy : 1 + dy + width
        ]  # each pixel's neighbour left of the step
        edges += [
            ((column + x, row + y), (dx, dy))
            for row, column in np.argwhere(piece & ~beside).tolist()
        ]
    return edges


def _with_holes(loops: list[list[Point]]) -> list[Point]:
    """All outlines of a piece as one: each hole, from left to right, gets a slit to the left of its first corner."""
    outer, *holes = sorted(loops, key=min)
    merged, corners = list(outer), set(outer)
    for hole in holes:
        first = hole.index(min(hole))
        x, y = hole[first]
        while (x, y) not in corners:
            x -= 1  # ends at the outline or at a hole that has been joined
        at = merged.index((x, y))
        around = [*hole[first:], *hole[:first], hole[first]]
        merged[at : at + 1] = [(x, y), *around, (x, y)]
        corners.update(hole)
    return merged
