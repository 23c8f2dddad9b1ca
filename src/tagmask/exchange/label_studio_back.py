"""Label Studio's JSON export: the regions that people drew.

Of several annotations of a task the one that was edited last counts, cancelled ones apart. Brushes,
bitmasks, polygons, rectangles and ellipses are read; other kinds (key points, boxes of a video, …)
and regions without a class are counted as left out. Coordinates are per cent of the photo.
"""

import base64
import io
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from PIL import Image

from tagmask.data.tools import image_of, objects, pick
from tagmask.exchange.drawn import Drawn, checked_shape, ellipse, polygon, rectangle
from tagmask.exchange.items import Region
from tagmask.exchange.label_studio import unpack

Shape = tuple[int, int]  # (H, W)
_PNG = "data:image/png;base64,"
# results that are no regions: tags, texts, ratings, and relations between regions
_NO_REGIONS = ("choices", "textarea", "rating", "taxonomy", "number", "datetime", "relation", "")


def drawn_in_tasks(tasks: list[Any]) -> Iterator[Drawn]:
    """Yield what was drawn on the photo of each task.

    Args:
        tasks: the tasks of the export.

    Raises:
        ValueError, KeyError, TypeError: a region cannot be drawn.
    """
    for task in objects(tasks):
        file = image_of(pick(task, dict, "data"))
        if not file:
            continue
        annotation = _edited_last(task)
        yield _drawn(file, list(objects(annotation.get("result"))))


def _edited_last(task: dict[str, Any]) -> dict[str, Any]:
    """Return the annotation that counts; an empty one if there is none."""
    last: dict[str, Any] = {}
    edited = ""
    for annotation in objects(task.get("annotations")):
        if annotation.get("was_cancelled") is True:
            continue
        # times are written the same way, so that their texts are in their order
        time = pick(annotation, str, "updated_at") or pick(annotation, str, "created_at")
        if time >= edited:
            last = annotation
            edited = time
    return last


def _drawn(file: str, results: list[dict[str, Any]]) -> Drawn:
    """Return the regions of an annotation's results."""
    regions: list[tuple[str, Region]] = []
    left_out: Counter[str] = Counter()
    names = _names_by_region(results)
    for result in results:
        kind = pick(result, str, "type")
        read = _READERS.get(kind.removesuffix("labels"))
        if read is None:
            if kind not in (*_NO_REGIONS, "labels"):
                left_out[f'"{kind}"'] += 1
            continue
        name = names.get(result.get("id")) or _name(result)
        if not name:
            left_out[f'"{kind}" without a class'] += 1
            continue
        if result.get("image_rotation") not in (None, 0):
            why = (
                "it was turned in Label Studio, so that its regions lie elsewhere; "
                "turn it back there and export again."
            )
            return Drawn(file, [], refused=why)
        shape = checked_shape(result.get("original_height"), result.get("original_width"))
        regions.append((name, read(result["value"], shape)))
    return Drawn(file, regions, left_out)


def _names_by_region(results: list[dict[str, Any]]) -> dict[Any, str]:
    """Return the classes that stand beside their regions, by the id that both have.

    An interface with <Brush> and <Labels> writes them so.
    """
    names = {}
    for result in results:
        if pick(result, str, "type") == "labels" and isinstance(result.get("id"), str):
            names[result["id"]] = _name(result)
    return names


def _name(result: dict[str, Any]) -> str:
    """Return the class of a region; empty if it has none, or several."""
    value = result["value"]
    if not isinstance(value, dict):
        raise TypeError("its value is no object")
    for key in (pick(result, str, "type"), "labels"):
        found = value.get(key)
        if isinstance(found, list) and len(found) == 1:
            return str(found[0])
    return ""


def _brush(value: dict[str, Any], shape: Shape) -> Region:
    return unpack(value["rle"], shape)


def _bitmask(value: dict[str, Any], shape: Shape) -> Region:
    """Return the pixels of a PNG in the text that are not transparent."""
    text = value["imageDataURL"]
    if not text.startswith(_PNG):
        raise ValueError("a bitmask is no PNG")
    content = base64.b64decode(text.removeprefix(_PNG), validate=True)
    try:
        with Image.open(io.BytesIO(content), formats=("PNG",)) as image:
            if (image.height, image.width) != shape:
                raise ValueError("a bitmask has another size than its photo")
            if not image.has_transparency_data:
                raise ValueError("a bitmask has no transparent pixels")
            alpha = np.array(image.convert("RGBA"))[..., 3]  # (H, W)
    except (OSError, SyntaxError) as error:
        raise ValueError(f"a bitmask is damaged: {error}") from None
    inside: Region = alpha > 0
    return inside


def _polygon(value: dict[str, Any], shape: Shape) -> Region:
    height, width = shape
    points = np.array(value["points"], float) / 100 * (width, height)  # (n, 2)
    return polygon(points, shape)


def _rectangle(value: dict[str, Any], shape: Shape) -> Region:
    height, width = shape
    corner = (value["x"] / 100 * width, value["y"] / 100 * height)
    size = (value["width"] / 100 * width, value["height"] / 100 * height)
    return rectangle(corner, size, value.get("rotation", 0), shape)


def _ellipse(value: dict[str, Any], shape: Shape) -> Region:
    height, width = shape
    centre = (value["x"] / 100 * width, value["y"] / 100 * height)
    radii = (value["radiusX"] / 100 * width, value["radiusY"] / 100 * height)
    return ellipse(centre, radii, value.get("rotation", 0), shape)


# by the type of a result without "labels"
_READERS: dict[str, Callable[[dict[str, Any], Shape], Region]] = {
    "brush": _brush,
    "bitmask": _bitmask,
    "polygon": _polygon,
    "rectangle": _rectangle,
    "ellipse": _ellipse,
}
