"""X-AnyLabeling: NAME.json for each image, with a polygon for each connected piece and the image's tags.

Put the files beside the images, or open their folder as the output directory. Polygons run through the centres of the
outermost pixels, because X-AnyLabeling fills them with their edge; a hole is joined to the outline by a slit.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tagmask.export.contours import centre_outlines
from tagmask.export.items import Exported, Labelled, regions
from tagmask.files import write_json


def write_xanylabeling(items: Iterable[Labelled], classes: Sequence[str], out: Path) -> Exported:
    """Write ``out/NAME.json``; unsure pixels belong to no polygon."""
    done = Exported(out)
    for item in done.checked(items, classes):
        shapes = [
            _shape(classes[label - 1], corners)
            for label, region in regions(item.mask, pieces=False)
            for corners in centre_outlines(region)
        ]
        height, width = item.mask.shape
        size = {"imageHeight": height, "imageWidth": width}
        file = {
            "imagePath": Path(item.file).name,
            "imageData": None,
            **size,
            "tags": list(item.tags),
        }
        head = {"version": "4.2.1", "flags": {}, "checked": False, "shapes": shapes}
        write_json(out / f"{item.name}.json", head | file)
    return done


def _shape(label: str, corners: Sequence[tuple[float, float]]) -> dict[str, Any]:
    return {
        "label": label,
        "score": None,
        "points": [list(point) for point in corners],
        "group_id": None,
        "description": "",
        "difficult": False,
        "shape_type": "polygon",
        "flags": {},
        "attributes": {},
        "kie_linking": [],
    }
