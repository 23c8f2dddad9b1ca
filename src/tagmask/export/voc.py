"""PASCAL VOC: palette PNGs with lists, and the archive that its test server takes.

out/SegmentationClass/ID.png
    ImageSets/Segmentation/SPLIT.txt
    labels.txt                          background and the classes, one per line in the order of the labels

results.tgz: results/VOC2012/Segmentation/comp6_test_cls/ID.png
"""

import io
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from PIL import Image

from tagmask.data.images import write_mask
from tagmask.data.voc import CLASSES
from tagmask.errors import TagmaskError
from tagmask.export.items import Exported, Labelled, Mask, checked, has_unsure
from tagmask.files import replacing, write_text
from tagmask.labels import voc_palette


def write_voc(items: Iterable[Labelled], classes: Sequence[str], out: Path, *, split: str = "train") -> Exported:
    """Write masks and the list that names them; unsure pixels stay 255, as in VOC."""
    done = Exported(out)
    names = []
    for item in checked(items, classes):
        write_mask(out / "SegmentationClass" / f"{item.name}.png", item.mask)
        names.append(item.name)
        done.images += 1
    write_text(out / "labels.txt", "".join(f"{name}\n" for name in ("background", *classes)))
    write_text(out / "ImageSets" / "Segmentation" / f"{split}.txt", "".join(f"{name}\n" for name in names))
    return done


def write_voc_submission(
    items: Iterable[Labelled], classes: Sequence[str], path: Path, *, competition: int = 6, split: str = "test"
) -> Exported:
    """Write the archive for the VOC 2012 server; competition 6 allows, 5 forbids other training data than VOC's.

    The server knows no unsure pixels and only VOC's own 20 classes in their order.
    """
    if tuple(classes) != CLASSES:
        raise TagmaskError(
            f"the VOC server takes its own {len(CLASSES)} classes only, from {CLASSES[0]} to {CLASSES[-1]} in that "
            f"order; these are {len(classes)}, beginning with {classes[0]!r}."
        )
    if competition not in (5, 6):
        raise TagmaskError(f"there is no segmentation competition {competition}; give 5 or 6.")
    done = Exported(path)
    folder = f"results/VOC2012/Segmentation/comp{competition}_{split}_cls"
    compressed = path.suffix in (".tgz", ".gz")
    with replacing(path) as partial, tarfile.open(partial, "w:gz" if compressed else "w") as archive:
        for item in checked(items, classes):
            if has_unsure(item.mask):
                raise TagmaskError(
                    f'the mask of "{item.name}" has unsure pixels (255), which the VOC server refuses; '
                    "send predictions, not pseudo labels."
                )
            content = _png(item.mask)
            entry = tarfile.TarInfo(f"{folder}/{item.name}.png")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
            done.images += 1
    return done


def _png(mask: Mask) -> bytes:
    image = Image.fromarray(mask)
    image.putpalette(voc_palette().tobytes())
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()
