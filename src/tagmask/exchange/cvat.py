"""CVAT's "Segmentation mask 1.1".

https://docs.cvat.ai/docs/dataset_management/formats/format-smask

labelmap.txt                          name:r,g,b:parts:actions
ImageSets/Segmentation/default.txt    names without suffix
SegmentationClass/NAME.png            colours of the classes
SegmentationObject/NAME.png           colours of the objects, numbered from 1 in each image
"""

import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from tagmask.errors import TagmaskError, first_of
from tagmask.exchange.items import Exported, Labelled, png, regions
from tagmask.files import replacing
from tagmask.labels import UNSURE, Mask, voc_palette

_MAX_OBJECTS = 255  # colours for objects in VOC's palette


def write_cvat(
    items: Iterable[Labelled],
    classes: Sequence[str],
    path: Path,
    *,
    pieces: bool = False,
) -> Exported:
    """Write a zip to import into a task whose labels are ``classes``.

    Args:
        items: images with their masks, uint8 (H, W).
        classes: names of the labels 1, 2, …
        path: the zip file.
        pieces: make each connected part of a class an object. By default each class of an image is
            one object.

    Returns:
        Counts and notes about what was written.

    Raises:
        TagmaskError: CVAT's label map cannot hold the name of a class.
        ImageError: a mask is no uint8 (H, W) or has a label without a class.
    """
    _check_names(classes)
    done = Exported(path)
    names = []
    crowded = []
    with replacing(path) as partial, zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "labelmap.txt", label_map(classes).encode())
        for item in done.checked(items, classes):
            labels = item.mask.copy()  # (H, W)
            labels[labels == UNSURE] = 0
            objects, complete = number_objects(item.mask, pieces)
            if not complete:
                crowded.append(item.name)
            _add(archive, f"SegmentationClass/{item.name}.png", _coloured_png(labels))
            _add(archive, f"SegmentationObject/{item.name}.png", _coloured_png(objects))
            names.append(item.name)
        listed = "".join(f"{name}\n" for name in names)
        _add(archive, "ImageSets/Segmentation/default.txt", listed.encode())
    if crowded:
        done.notes.append(
            f"{len(crowded)} images have more than {_MAX_OBJECTS} pieces, more than the format can "
            f"number; in these each class is one object: {first_of(crowded)}"
        )
    return done


def _check_names(classes: Sequence[str]) -> None:
    """Refuse names that would be read as something else in a label map."""
    for name in classes:
        if ":" in name or "\n" in name or name.startswith("#"):
            raise TagmaskError(
                f"CVAT's label map cannot hold the class {name!r}; rename it without a colon or #."
            )


def label_map(classes: Sequence[str]) -> str:
    """Return the text of labelmap.txt."""
    colours = voc_palette().tolist()
    lines = ["# label:color_rgb:parts:actions"]
    for label, name in enumerate(("background", *classes)):
        colour = ",".join(map(str, colours[label]))
        lines.append(f"{name}:{colour}::")
    return "\n".join([*lines, ""])


def number_objects(mask: Mask, pieces: bool) -> tuple[Mask, bool]:
    """Give the objects of a mask numbers from 1.

    Args:
        mask: uint8 labels (H, W).
        pieces: make each connected part of a class an object, if there are numbers enough;
            otherwise each class is one object.

    Returns:
        The numbers, uint8 (H, W), 0 outside; and False if there are too few for all pieces.
    """
    objects = list(regions(mask, pieces))
    complete = len(objects) <= _MAX_OBJECTS
    if not complete:
        objects = list(regions(mask, pieces=False))
    numbers = np.zeros(mask.shape, np.uint8)  # (H, W)
    for number, (_, region) in enumerate(objects, start=1):
        numbers[region] = number
    return numbers, complete


def _coloured_png(labels: Mask) -> bytes:
    """Return an RGB PNG in the palette's colours, by which CVAT distinguishes labels."""
    colours = voc_palette()[labels]  # (H, W, 3)
    return png(Image.fromarray(colours))


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    # an entry without a date is dated 1980, so that equal masks give equal files
    entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)
