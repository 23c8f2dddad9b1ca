"""Masks as GeoTIFF, at the place of their photos: for QGIS and other programs of maps.

out/NAME.tif        class numbers, 8 bits; 0 is background, 255 is marked as missing
    classes.json    what the numbers mean

A photo without a place gives a mask without one. Needs rasterio, an extra.
"""

import importlib
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tagmask.data.images import is_turned
from tagmask.data.tiff import TIFF, package
from tagmask.errors import TagmaskError
from tagmask.exchange.index import class_names
from tagmask.exchange.items import Exported, Labelled
from tagmask.files import replacing, write_json
from tagmask.labels import UNSURE, voc_palette


def write_geotiff(
    items: Iterable[Labelled],
    classes: Sequence[str],
    out: Path,
) -> Exported:
    """Write ``out/NAME.tif`` with the georeference of each photo.

    Args:
        items: images with their masks, uint8 (H, W).
        classes: names of the labels 1, 2, …
        out: the folder.

    Returns:
        Counts and notes about what was written.

    Raises:
        ImageError: a mask is no uint8 (H, W) or has a label without a class.
        TagmaskError: rasterio is missing.
    """
    try:
        rasterio: Any = importlib.import_module("rasterio")
    except ImportError:
        raise TagmaskError(
            "--format geotiff needs the package rasterio; install it with: "
            "pip install 'tagmask[geo]'"
        ) from None
    colours = voc_palette().tolist()
    colormap = {label: tuple(colour) for label, colour in enumerate(colours)}
    done = Exported(out, holds_unsure=True)
    without_place = 0
    for item in done.checked(items, classes):
        height, width = item.mask.shape
        place = place_of(item)
        without_place += not place
        polynomials = place.pop("rpcs", None)
        with replacing(out / f"{item.name}.tif") as partial, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a mask has no place
            with rasterio.open(
                partial,
                "w",
                driver="GTiff",
                width=width,
                height=height,
                count=1,
                dtype="uint8",
                nodata=UNSURE,
                compress="deflate",
                **place,
            ) as file:
                file.write(item.mask, 1)
                if polynomials is not None:
                    file.rpcs = polynomials
                file.write_colormap(1, colormap)
                file.update_tags(
                    1, **{f"class_{n}": name for n, name in class_names(classes).items()}
                )
    write_json(out / "classes.json", class_names(classes))
    if without_place:
        done.notes.append(
            f"{without_place} photos have no place on a map, or are turned by an EXIF entry; "
            "their masks have none."
        )
    return done


def place_of(item: Labelled) -> dict[str, Any]:
    """Return the coordinate system and the position of a photo, as rasterio takes them.

    Args:
        item: the image with its mask.

    Returns:
        Empty if the photo has none, if it has another size than its mask, or if it is turned, since
        places are those of the pixels as they are stored.
    """
    if item.image is None or item.image.suffix.lower() not in TIFF or is_turned(item.image):
        return {}
    rasterio = package(item.image)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a photo has no place
            with rasterio.open(item.image, driver="GTiff") as file:
                if (file.height, file.width) != item.mask.shape:
                    return {}
                place: dict[str, Any] = {}
                points, system = file.gcps
                if points:
                    place = {"gcps": points, "crs": system}
                elif file.crs is not None or not file.transform.is_identity:
                    place = {"crs": file.crs, "transform": file.transform}
                if file.rpcs is not None:  # the polynomials of a satellite's camera
                    place["rpcs"] = file.rpcs
                return place
    except rasterio.errors.RasterioError:
        return {}
