"""Datumaro's own form, from which its programs convert to all others.

out/annotations/default.json        categories, and the masks of each image as run lengths
    images/default/NAME.jpg         copies of the images
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tagmask.exchange.coco import describe
from tagmask.exchange.items import Exported, Labelled, put_image, regions
from tagmask.files import replacing


def write_datumaro(
    items: Iterable[Labelled],
    classes: Sequence[str],
    out: Path,
) -> Exported:
    """Write images and masks; unsure pixels belong to no mask.

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
    listed: list[dict[str, Any]] = []
    for item in done.checked(items, classes):
        image = put_image(item, out / "images" / "default" / item.name)
        annotations = [_label(classes.index(tag)) for tag in item.tags]
        for number, (label, region) in enumerate(regions(item.mask, pieces=False), start=1):
            runs = describe(region, polygons=False)["segmentation"]
            shared = {"id": number, "group": 0, "z_order": 0, "attributes": {}}
            annotations.append(shared | {"type": "mask", "label_id": label - 1, "rle": runs})
        path = image.relative_to(out / "images" / "default").as_posix()
        size = list(item.mask.shape)
        listed.append(
            {"id": item.name, "annotations": annotations, "image": {"path": path, "size": size}}
        )
    labels = [{"name": name, "parent": "", "attributes": []} for name in classes]
    document = {
        "info": {"description": "made by tagmask"},
        "categories": {"label": {"labels": labels, "attributes": []}},
        "items": listed,
    }
    file = out / "annotations" / "default.json"
    with replacing(file) as partial, partial.open("w", encoding="utf-8") as opened:
        json.dump(document, opened, ensure_ascii=False)
    return done


def _label(number: int) -> dict[str, Any]:
    """Return the annotation of a tag."""
    return {"id": 0, "type": "label", "attributes": {}, "group": 0, "label_id": number}
