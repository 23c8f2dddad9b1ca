"""PASCAL VOC: palette PNGs with lists, and the archive for its test server.

out/SegmentationClass/ID.png
    ImageSets/Segmentation/SPLIT.txt
    labels.txt                          background and the classes, one per line, ordered by label

results.tgz: results/VOC2012/Segmentation/comp6_test_cls/ID.png
"""

import io
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from tagmask.data.images import palette_image, write_mask
from tagmask.data.voc import CLASSES
from tagmask.errors import TagmaskError
from tagmask.exchange.items import Exported, Labelled, png
from tagmask.files import replacing, write_text
from tagmask.labels import UNSURE

_SUBMISSION = "results/VOC2012/Segmentation/comp6_test_cls"


def write_voc(
    items: Iterable[Labelled],
    classes: Sequence[str],
    out: Path,
    *,
    split: str = "train",
) -> Exported:
    """Write masks and their list; unsure pixels are 255, as in VOC.

    Args:
        items: images with their masks, uint8 (H, W).
        classes: names of the labels 1, 2, …
        out: the folder.
        split: a name, or a list file whose name the new list gets.

    Returns:
        Counts and notes about what was written.

    Raises:
        ImageError: a mask is no uint8 (H, W) or has a label without a class.
    """
    done = Exported(out, holds_unsure=True)
    names = []
    for item in done.checked(items, classes):
        write_mask(_mask_file(out, item.name), item.mask)
        names.append(item.name)
    labels, listed = voc_files(out, (), split)
    write_text(labels, _one_per_line(("background", *classes)))
    write_text(listed, _one_per_line(names))
    return done


def voc_files(out: Path, names: Iterable[str], split: str) -> list[Path]:
    """List the files that ``write_voc`` writes.

    Args:
        out: the folder.
        names: names of the images.
        split: a name, or a list file whose name the new list gets.

    Returns:
        The names of the classes, the list, and the masks.
    """
    listed = out / "ImageSets" / "Segmentation" / f"{Path(split).stem}.txt"
    masks = [_mask_file(out, name) for name in names]
    return [out / "labels.txt", listed, *masks]


def _mask_file(out: Path, name: str) -> Path:
    return out / "SegmentationClass" / f"{name}.png"


def _one_per_line(names: Iterable[str]) -> str:
    return "".join(f"{name}\n" for name in names)


def write_voc_submission(
    items: Iterable[Labelled],
    classes: Sequence[str],
    path: Path,
) -> Exported:
    """Write the archive for the VOC 2012 server, competition 6: any training data are allowed.

    The server accepts no unsure pixels and only VOC's own 20 classes in their order.

    Args:
        items: images with their masks, uint8 (H, W) without 255.
        classes: names of the labels 1, 2, …, which must be those of VOC.
        path: the archive; it is compressed if its suffix is .tgz or .gz.

    Returns:
        Counts and notes about what was written.

    Raises:
        TagmaskError: the classes are not those of VOC, or a mask has unsure pixels.
        ImageError: a mask is no uint8 (H, W) or has a label without a class.
    """
    if tuple(classes) != CLASSES:
        raise TagmaskError(
            f"the VOC server accepts its own {len(CLASSES)} classes only, from {CLASSES[0]} to "
            f"{CLASSES[-1]} in that order; these are {len(classes)}, beginning with {classes[0]!r}."
        )
    done = Exported(path)
    is_compressed = path.suffix in (".tgz", ".gz")
    with (
        replacing(path) as partial,
        tarfile.open(partial, "w:gz" if is_compressed else "w") as archive,
    ):
        for item in done.checked(items, classes):
            if (item.mask == UNSURE).any():
                raise TagmaskError(
                    f'the mask of "{item.name}" has unsure pixels (255), which the VOC server '
                    "refuses; send predictions, not pseudo labels."
                )
            content = png(palette_image(item.mask))
            entry = tarfile.TarInfo(f"{_SUBMISSION}/{item.name}.png")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return done
