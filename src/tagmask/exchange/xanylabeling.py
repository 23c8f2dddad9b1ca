"""X-AnyLabeling: NAME.json for each image, with a polygon per connected piece and the image's tags.

Put the files beside the images, or open their folder as the output directory. The form is that of
LabelMe with more fields: see ``labelme``.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tagmask.exchange.items import Exported, Labelled
from tagmask.exchange.labelme import polygons
from tagmask.files import write_json

_MORE: dict[str, Any] = {"score": None, "difficult": False, "attributes": {}, "kie_linking": []}


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
        shapes = [shape | _MORE for shape in polygons(item.mask, classes)]
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
