"""Label layers for napari: TIFF files of class numbers, and back as corrections (see ``index``).

out/NAME.tif        class numbers, 8 bits; napari opens it with the layer type "labels"
    classes.json    what the numbers mean
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from PIL import Image

from tagmask.exchange.index import CLASSES_FILE, class_names
from tagmask.exchange.items import Exported, Labelled
from tagmask.files import replacing, write_json


def write_napari(
    items: Iterable[Labelled],
    classes: Sequence[str],
    out: Path,
) -> Exported:
    """Write ``out/NAME.tif``; unsure pixels are 255.

    Args:
        items: images with their masks, uint8 (H, W).
        classes: names of the labels 1, 2, …
        out: the folder.

    Returns:
        Counts and notes about what was written.

    Raises:
        ImageError: a mask is no uint8 (H, W) or has a label without a class.
    """
    done = Exported(out, holds_unsure=True)
    for item in done.checked(items, classes):
        with replacing(out / f"{item.name}.tif") as partial:
            Image.fromarray(item.mask).save(
                partial, format="TIFF", compression="tiff_adobe_deflate"
            )
    write_json(out / CLASSES_FILE, class_names(classes))
    return done
