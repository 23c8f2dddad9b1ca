"""CVAT's "Segmentation mask 1.1": https://docs.cvat.ai/docs/dataset_management/formats/format-smask

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
from tagmask.export.items import Exported, Labelled, png, regions
from tagmask.files import replacing
from tagmask.labels import UNSURE, Mask, voc_palette

_MAX_OBJECTS = 255  # colours for objects in VOC's palette


def write_cvat(
    items: Iterable[Labelled], classes: Sequence[str], path: Path, *, pieces: bool = False
) -> Exported:
    """Write a zip to import into a task whose labels are ``classes``; ``pieces`` makes each part an object."""
    if unusable := [
        name for name in classes if ":" in name or "\n" in name or name.startswith("#")
    ]:
        raise TagmaskError(
            f"CVAT's label map cannot hold the class {unusable[0]!r}; rename it without a colon or #."
        )
    done = Exported(path)
    names, crowded = [], []
    with replacing(path) as partial, zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "labelmap.txt", label_map(classes).encode())
        for item in done.checked(items, classes):
            sure = np.where(item.mask == UNSURE, 0, item.mask).astype(np.uint8)
            objects, complete = number_objects(item.mask, pieces)
            crowded += [] if complete else [item.name]
            _add(archive, f"SegmentationClass/{item.name}.png", _colours(sure))
            _add(archive, f"SegmentationObject/{item.name}.png", _colours(objects))
            names.append(item.name)
        _add(
            archive,
            "ImageSets/Segmentation/default.txt",
            "".join(f"{name}\n" for name in names).encode(),
        )
    if crowded:
        done.notes.append(
            f"{len(crowded)} images have more than {_MAX_OBJECTS} pieces, more than the format can number; in these "
            f"each class is one object: {first_of(crowded)}"
        )
    return done


def label_map(classes: Sequence[str]) -> str:
    """The text of labelmap.txt."""
    colours = voc_palette().tolist()
    rows = [
        f"{name}:{','.join(map(str, colours[n]))}::"
        for n, name in enumerate(("background", *classes))
    ]
    return "\n".join(["# label:color_rgb:parts:actions", *rows, ""])


def number_objects(mask: Mask, pieces: bool) -> tuple[Mask, bool]:
    """Numbers of the objects, shape (H, W), 0 outside; and whether there are enough for all ``pieces``."""
    objects = list(regions(mask, pieces))
    complete = len(objects) <= _MAX_OBJECTS
    numbers = np.zeros(mask.shape, np.uint8)
    for number, (_, region) in enumerate(
        objects if complete else regions(mask, pieces=False), start=1
    ):
        numbers[region] = number
    return numbers, complete


def _colours(labels: Mask) -> bytes:
    """An RGB PNG in the palette's colours, by which CVAT distinguishes labels."""
    return png(Image.fromarray(voc_palette()[labels]))


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name)  # dated 1980: equal masks give equal files
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)
