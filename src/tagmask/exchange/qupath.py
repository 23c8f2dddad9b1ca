"""QuPath's GeoJSON: NAME.geojson for each image, to import on it with File, Import objects.

Each connected piece of a class is an annotation: a polygon with its holes, along pixel edges, in
pixels from the upper left corner. QuPath fills it to exactly the same pixels.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from scipy import ndimage

from tagmask.exchange.contours import Point, trace
from tagmask.exchange.items import Exported, Labelled, Region, regions
from tagmask.files import write_json
from tagmask.labels import voc_palette

Ring = list[list[int]]  # corners x, y, the first again at the end


def write_qupath(
    items: Iterable[Labelled],
    classes: Sequence[str],
    out: Path,
) -> Exported:
    """Write ``out/NAME.geojson``; unsure pixels belong to no annotation.

    Args:
        items: images with their masks, uint8 (H, W).
        classes: names of the labels 1, 2, …
        out: the folder.

    Returns:
        Counts and notes about what was written.

    Raises:
        ImageError: a mask is no uint8 (H, W) or has a label without a class.
    """
    done = Exported(out)
    for item in done.checked(items, classes):
        features = []
        for label, region in regions(item.mask, pieces=False):
            colour = voc_palette()[label].tolist()
            for rings in polygons(region):
                classification = {"name": classes[label - 1], "color": colour}
                features.append(_feature(rings, classification))
        document = {"type": "FeatureCollection", "features": features}
        write_json(out / f"{item.name}.geojson", document)
    return done


def polygons(region: Region) -> list[list[Ring]]:
    """Return for each connected piece of a region its outline and then its holes.

    Args:
        region: bool (H, W).
    """
    numbers, _ = ndimage.label(region)  # (H, W)
    found = []
    for number, (rows, columns) in enumerate(ndimage.find_objects(numbers), start=1):
        loops = trace(numbers[rows, columns] == number)
        # the outline has the leftmost corner
        ordered = sorted(loops, key=min)
        found.append([_ring(loop, columns.start, rows.start) for loop in ordered])
    return found


def _ring(loop: Sequence[Point], left: int, top: int) -> Ring:
    """Return the corners at which an outline turns, closed."""
    turns = []
    for number, corner in enumerate(loop):
        before = loop[number - 1]
        after = loop[(number + 1) % len(loop)]
        is_straight = before[0] == corner[0] == after[0] or before[1] == corner[1] == after[1]
        if not is_straight:
            turns.append([corner[0] + left, corner[1] + top])
    return [*turns, turns[0]]


def _feature(rings: list[Ring], classification: dict[str, Any]) -> dict[str, Any]:
    """Return an annotation of QuPath."""
    return {
        "type": "Feature",
        "geometry": {"type": "Polygon", "coordinates": rings},
        "properties": {"objectType": "annotation", "classification": classification},
    }
