"""X-AnyLabeling: NAME.json for each image, with a polygon per connected piece and the image's tags.

Put the files beside the images, or open their folder as the output directory. Polygons run through
the centres of the outermost pixels, because X-AnyLabeling fills them with their edge; a hole is
joined to the outline by a slit.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tagmask.exchange.contours import centre_outlines
from tagmask.exchange.items import Exported, Labelled, regions
from tagmask.files import write_json


def write_xanylabeling(
    items: Iterable[Labelled],
    classes: Sequence[str],
    out: Path,
) -> Exported:
    """Write ``out/NAME.json``; unsure pixels belong to no polygon.

    Args:
        items: images with their masks, uint8 (H, W), and tags.
        classes: names of the labels 1, 2, …
        out: the folder.

    Returns:
        Counts and notes about what was written.

    Raises:
        ImageError: a mask is no uint8 (H, W) or has a label without a class.
    """
    done = Exported(out)
    for item in done.checked(items, classes):
        shapes = []
        for label, region in regions(item.mask, pieces=False):
            for corners in centre_outlines(region):
                shapes.append(_shape(classes[label - 1], corners))
        height, width = item.mask.shape
        document = {
            "version": "4.2.1",
            "flags": {},
            "checked": False,
            "shapes": shapes,
            "imagePath": Path(item.file).name,
            "imageData": None,
            "imageHeight": height,
            "imageWidth": width,
            "tags": list(item.tags),
        }
        write_json(out / f"{item.name}.json", document)
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
