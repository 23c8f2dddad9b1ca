"""Write COCO's ``instances.json``.

The format: https://cocodataset.org/#format-data

Category ids are the labels of the masks, 1 for the first class. Unsure pixels (255) belong to no
annotation.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pycocotools import mask as coco_mask

from tagmask.exchange.contours import outlines
from tagmask.exchange.items import Exported, Labelled, Region, regions
from tagmask.files import replacing


def write_coco(
    items: Iterable[Labelled],
    classes: Sequence[str],
    path: Path,
    *,
    polygons: bool = False,
    pieces: bool = False,
) -> Exported:
    """Write one JSON file with every mask, as run lengths or as polygons.

    Both cover exactly the same pixels.

    Args:
        items: images with their masks, uint8 (H, W).
        classes: names of the labels 1, 2, …
        path: the JSON file.
        polygons: write polygons instead of run lengths.
        pieces: write an annotation for each connected part of a class. By default each class of an
            image is one annotation.

    Returns:
        Counts and notes about what was written.

    Raises:
        ImageError: a mask is no uint8 (H, W) or has a label without a class.
    """
    done = Exported(path)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for item in done.checked(items, classes):
        height, width = item.mask.shape
        image_id = len(images) + 1
        images.append(
            {
                "id": image_id,
                "file_name": item.file,
                "height": height,
                "width": width,
            }
        )
        for label, region in regions(item.mask, pieces):
            ids = {
                "id": len(annotations) + 1,
                "image_id": image_id,
                "category_id": label,
            }
            annotations.append({**ids, **describe(region, polygons)})
    categories = [{"id": number, "name": name} for number, name in enumerate(classes, start=1)]
    document = {
        "info": {"description": "made by tagmask"},
        "licenses": [],
        "images": images,
        "annotations": annotations,
        "categories": categories,
    }
    with replacing(path) as partial, partial.open("w", encoding="utf-8") as file:
        json.dump(document, file, ensure_ascii=False)
    return done


def describe(region: Region, polygons: bool) -> dict[str, Any]:
    """Return an annotation's outline, area, box and crowd mark.

    Args:
        region: the pixels of the annotation, bool (H, W).
        polygons: give the outline as polygons instead of run lengths.

    Returns:
        The fields of COCO's annotation without its ids; the box is x, y, width, height.
    """
    runs = coco_mask.encode(np.asfortranarray(region, dtype=np.uint8))
    segmentation: Any
    if polygons:
        segmentation = outlines(region)
    else:
        segmentation = {
            "size": list(region.shape),
            "counts": runs["counts"].decode("ascii"),
        }
    return {
        "segmentation": segmentation,
        "area": int(coco_mask.area(runs)),
        "bbox": [float(value) for value in coco_mask.toBbox(runs)],
        "iscrowd": 0,
    }
