"""COCO's ``instances.json``: https://cocodataset.org/#format-data

Category ids are the labels of the masks: 1 for the first class. Each class of an image is one annotation, or with
``split`` each connected piece. Unsure pixels (255) belong to no annotation.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pycocotools import mask as coco_mask

from tagmask.export.contours import polygons
from tagmask.export.items import Exported, Labelled, Region, checked, has_unsure, regions
from tagmask.files import replacing

Outline = Literal["rle", "polygon"]


def write_coco(
    items: Iterable[Labelled], classes: Sequence[str], path: Path, *, outline: Outline = "rle", split: bool = False
) -> Exported:
    """Write one JSON file with every mask, as run lengths or as polygons; both give back each pixel."""
    done = Exported(path)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for item in checked(items, classes):
        height, width = item.mask.shape
        images.append({"id": len(images) + 1, "file_name": item.file, "height": height, "width": width})
        for label, region in regions(item.mask, split):
            own = {"id": len(annotations) + 1, "image_id": len(images), "category_id": label}
            annotations.append({**own, **describe(region, outline)})
        done.images += 1
        done.unsure += has_unsure(item.mask)
    categories = [{"id": number, "name": name} for number, name in enumerate(classes, start=1)]
    whole = {"info": {"description": "made by tagmask"}, "licenses": [], "images": images}
    with replacing(path) as partial, partial.open("w", encoding="utf-8") as file:
        json.dump({**whole, "annotations": annotations, "categories": categories}, file, ensure_ascii=False)
    return done


def describe(region: Region, outline: Outline) -> dict[str, Any]:
    """An annotation's outline, area, box (x, y, width, height) and crowd mark."""
    runs = coco_mask.encode(np.asfortranarray(region, dtype=np.uint8))
    if outline == "rle":
        shape: Any = {"size": list(region.shape), "counts": runs["counts"].decode("ascii")}
    else:
        shape = polygons(region)
    box = [float(value) for value in coco_mask.toBbox(runs)]
    return {"segmentation": shape, "area": int(coco_mask.area(runs)), "bbox": box, "iscrowd": 0}
