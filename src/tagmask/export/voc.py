"""PASCAL VOC: palette PNGs with lists, and the archive for its test server.

out/SegmentationClass/ID.png
    ImageSets/Segmentation/SPLIT.txt
    labels.txt                          background and the classes, one per line in the order of the labels

results.tgz: results/VOC2012/Segmentation/comp6_test_cls/ID.png
"""

import io
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from tagmask.data.images import palette_image, write_mask
from tagmask.data.voc import CLASSES
from tagmask.errors import TagmaskError
from tagmask.export.items import Exported, Labelled, png
from tagmask.files import replacing, write_text
from tagmask.labels import UNSURE

_SUBMISSION = "results/VOC2012/Segmentation/comp6_test_cls"


def write_voc(
    items: Iterable[Labelled], classes: Sequence[str], out: Path, *, split: str = "train"
) -> Exported:
    """Write masks and their list, named after ``split`` (a name or a list file); unsure pixels are 255, as in VOC."""
    done = Exported(out, holds_unsure=True)
    names = []
    for item in done.checked(items, classes):
        write_mask(_mask_file(out, item.name), item.mask)
        names.append(item.name)
    labels, listed = voc_files(out, (), split)
    write_text(labels, "".join(f"{name}\n" for name in ("background", *classes)))
    write_text(listed, "".join(f"{name}\n" for name in names))
    return done


def voc_files(out: Path, names: Iterable[str], split: str) -> list[Path]:
    """The files that ``write_voc`` writes: the names of the classes, the list, and the masks."""
    listed = out / "ImageSets" / "Segmentation" / f"{Path(split).stem}.txt"
    return [out / "labels.txt", listed, *(_mask_file(out, name) for name in names)]


def _mask_file(out: Path, name: str) -> Path:
    return out / "SegmentationClass" / f"{name}.png"


def write_voc_submission(items: Iterable[Labelled], classes: Sequence[str], path: Path) -> Exported:
    """Write the archive for the VOC 2012 server, competition 6: any training data are allowed.

    The server accepts no unsure pixels and only VOC's own 20 classes in their order.
    """
    if tuple(classes) != CLASSES:
        raise TagmaskError(
            f"the VOC server accepts its own {len(CLASSES)} classes only, from {CLASSES[0]} to {CLASSES[-1]} in that "
            f"order; these are {len(classes)}, beginning with {classes[0]!r}."
        )
    done = Exported(path)
    compressed = path.suffix in (".tgz", ".gz")
    with (
        replacing(path) as partial,
        tarfile.open(partial, "w:gz" if compressed else "w") as archive,
    ):
        for item in done.checked(items, classes):
            if (item.mask == UNSURE).any():
                raise TagmaskError(
                    f'the mask of "{item.name}" has unsure pixels (255), which the VOC server refuses; '
                    "send predictions, not pseudo labels."
                )
            content = png(palette_image(item.mask))
            entry = tarfile.TarInfo(f"{_SUBMISSION}/{item.name}.png")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return done
