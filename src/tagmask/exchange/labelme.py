"""LabelMe, and X-AnyLabeling, which has its form: NAME.json for each image, masks out and back.

Out, each connected piece of a class is a polygon through the centres of its outermost pixels,
because both tools fill a polygon with its edge; a hole is joined to the outline by a slit.

Back, shapes are drawn as LabelMe draws them. Polygons, rectangles, turned rectangles, circles and
masks are read; points and lines have no area and are counted as left out. Later shapes are on top.
"""

import base64
import io
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from tagmask.data.coco import MAX_SIDE
from tagmask.data.images import strip_suffix, walk
from tagmask.data.tools import objects, pick
from tagmask.errors import TagmaskError
from tagmask.exchange.contours import centre_outlines
from tagmask.exchange.drawn import Drawn, checked_shape
from tagmask.exchange.items import Exported, Labelled, Region, put_image, regions
from tagmask.files import read_json, write_json
from tagmask.labels import Mask

_NO_AREA = ("point", "points", "line", "linestrip")
_POLYGONS = ("polygon", "rotation", "oriented_rectangle", "quadrilateral")


def write_labelme(
    items: Iterable[Labelled],
    classes: Sequence[str],
    out: Path,
) -> Exported:
    """Write ``out/NAME.json``, which names its photo by a path from there.

    Unsure pixels belong to no polygon. An image without a file is written beside its JSON.

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
        file = out / f"{item.name}.json"
        image = item.image
        if image is None:
            image = put_image(item, out / item.name)
        document = {
            "version": "6.3.1",
            "flags": {},
            "shapes": polygons(item.mask, classes),
            "imagePath": _path_from(file.parent, image),
            "imageData": None,
            "imageHeight": item.mask.shape[0],
            "imageWidth": item.mask.shape[1],
        }
        write_json(file, document)
    return done


def polygons(mask: Mask, classes: Sequence[str]) -> list[dict[str, Any]]:
    """Return a shape for each connected piece of a mask.

    Args:
        mask: uint8 labels (H, W).
        classes: names of the labels 1, 2, …
    """
    shapes: list[dict[str, Any]] = []
    for label, region in regions(mask, pieces=False):
        for corners in centre_outlines(region):
            shapes.append(
                {
                    "label": classes[label - 1],
                    "points": [list(point) for point in corners],
                    "group_id": None,
                    "description": "",
                    "shape_type": "polygon",
                    "flags": {},
                }
            )
    return shapes


def _path_from(folder: Path, image: Path) -> str:
    """Return the path of an image from a folder, with "/"."""
    try:
        path = os.path.relpath(os.path.abspath(image), os.path.abspath(folder))
    except ValueError:  # on another drive of Windows
        path = os.path.abspath(image)
    return path.replace(os.sep, "/")


def is_labelme(value: Any) -> bool:
    """Return True if the content of a JSON file has LabelMe's form."""
    return bool(pick(value, str, "imagePath")) and isinstance(value.get("shapes"), list)


def labelme_files(folder: Path) -> list[Path]:
    """Return the files of LabelMe in a folder, sorted; other JSON files are left out."""
    files = []
    for path in sorted(walk(folder)):
        if path.lower().endswith(".json") and is_labelme(read_json(folder / path)):
            files.append(folder / path)
    return files


def drawn_in_labelme(folder: Path, files: Sequence[Path]) -> Iterator[Drawn]:
    """Yield what was drawn on the photo of each file.

    Args:
        folder: where the files are. If a file names no photo that exists, its own path from there
            stands for the photo.
        files: LabelMe's files.

    Raises:
        TagmaskError: a shape cannot be drawn; the sentence names its file.
    """
    for file in files:
        value = read_json(file)
        image = file.parent / value["imagePath"].replace("\\", "/")
        if image.is_file():
            name = os.path.abspath(image)
        else:
            is_picture = strip_suffix(image.name) != image.name
            suffix = image.suffix if is_picture else ""
            name = os.path.relpath(file.with_suffix(suffix), folder)
        try:
            yield _drawn(name, value)
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise TagmaskError(
                f"{file}: a shape cannot be drawn ({error}); correct it and save it again."
            ) from None


def _drawn(name: str, value: dict[str, Any]) -> Drawn:
    """Return the regions of a file."""
    shape = checked_shape(value.get("imageHeight"), value.get("imageWidth"))
    found: list[tuple[str, Region]] = []
    left_out: Counter[str] = Counter()
    for entry in objects(value["shapes"]):
        kind = entry.get("shape_type") or "polygon"
        if kind in _NO_AREA:
            left_out[f'"{kind}"'] += 1
            continue
        region = _mask(entry, shape) if kind == "mask" else _outlined(entry, str(kind), shape)
        found.append((str(entry["label"]), region))
    return Drawn(name, found, left_out)


def _points(entry: dict[str, Any]) -> list[tuple[float, float]]:
    """Return the corners of a shape."""
    corners = np.array(entry["points"], float)  # (n, 2)
    if corners.ndim != 2 or corners.shape[1] != 2:
        raise ValueError("a shape needs corners of two numbers")
    if not (np.abs(corners) <= 10 * MAX_SIDE).all():
        raise ValueError("a shape has corners far from the image")
    return [(x, y) for x, y in corners.tolist()]


def _outlined(entry: dict[str, Any], kind: str, shape: tuple[int, int]) -> Region:
    """Return the pixels of a shape with its edge."""
    corners = _points(entry)
    height, width = shape
    picture = Image.new("1", (width, height))
    draw = ImageDraw.Draw(picture)
    if kind == "rectangle" and len(corners) == 2:
        (left, right), (top, bottom) = (sorted(values) for values in zip(*corners, strict=True))
        draw.rectangle((left, top, right, bottom), fill=1, outline=1)
    elif kind == "circle" and len(corners) == 2:
        (x, y), (edge_x, edge_y) = corners
        radius = float(np.hypot(edge_x - x, edge_y - y))
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=1, outline=1)
    elif kind in (*_POLYGONS, "rectangle") and len(corners) >= 3:
        draw.polygon(corners, fill=1, outline=1)
    else:
        raise ValueError(f"{kind!r} with {len(corners)} points is not known")
    return np.array(picture)


def _mask(entry: dict[str, Any], shape: tuple[int, int]) -> Region:
    """Return the pixels of a mask: a PNG in the text, in a box of the photo."""
    (left, top), (right, bottom) = np.array(_points(entry)).astype(int).tolist()
    content = base64.b64decode(entry["mask"], validate=True)
    try:
        with Image.open(io.BytesIO(content), formats=("PNG",)) as image:
            size = (image.height, image.width)
            if size != (bottom - top + 1, right - left + 1):
                raise ValueError("a mask does not fit its box")
            inside = np.array(image.convert("L")) > 0
    except (OSError, SyntaxError) as error:
        raise ValueError(f"a mask is damaged: {error}") from None
    height, width = shape
    if min(left, top) < 0 or right >= width or bottom >= height:
        raise ValueError("the box of a mask is not within the image")
    region = np.zeros(shape, bool)
    region[top : bottom + 1, left : right + 1] = inside
    return region
