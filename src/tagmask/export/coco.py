"""COCO's ``instances.json``: https://cocodataset.org/#format-data

Category ids are the labels of the masks, 1 for the first class. Unsure pixels (255) belong to no annotation.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pycocotools import mask as coco_mask

from tagmask.export.contours import outlines
from tagmask.export.items import Exported, Labelled, Region, regions
from tagmask.files import replacing


def write_coco(
    items: Iterable[Labelled],
    classes: Sequence[str],
    path: Path,
    *,
    polygons: bool = False,
    pieces: bool = False,
) -> Exported:
    """Write one JSON file with every mask, as run lengths or as polygons; both cover exactly the same pixels.

    Each class of an image is one annotation, or with ``pieces`` each connected part of it.
    """
    done = Exported(path)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for item in done.checked(items, classes):
        height, width = item.mask.shape
        images.append(
            {"id": len(images) + 1, "file_name": item.file, "height": height, "width": width}
        )
        for label, region in regions(item.mask, pieces):
            ids = {"id": len(annotations) + 1, "image_id": len(images), "category_id": label}
            annotations.append({**ids, **describe(region, polygons)})
    categories = [{"id": number, "name": name} for number, name in enumerate(classes, start=1)]
    header = {"info": {"description": "made by tagmask"}, "licenses": [], "images": images}
    with replacing(path) as partial, partial.open("w", encoding="utf-8") as file:
        json.dump(
            {**header, "annotations": annotations, "categories": categories},
            file,
            ensure_ascii=False,
        )
    return done


def describe(region: Region, polygons: bool) -> dict[str, Any]:
    """An annotation's outline, area, box (x, y, width, height) and crowd mark."""
    runs = coco_mask.encode(np.asfortranarray(region, dtype=np.uint8))
    shape: Any = {"size": list(region.shape), "counts": runs["counts"].decode("ascii")}
    box = [float(value) for value in coco_mask.toBbox(runs)]
    area = int(coco_mask.area(runs))
    return {
        "segmentation": outlines(region) if polygons else shape,
        "area": area,
        "bbox": box,
        "iscrowd": 0,
    }
