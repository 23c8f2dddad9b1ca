"""PASCAL VOC: palette PNGs with lists, and the archive for its test server.

out/SegmentationClass/ID.png
    JPEGImages/ID.jpg                   the photos; a file that is there already is left as it is
    ImageSets/Segmentation/SPLIT.txt
    labels.txt                          background and the classes, one per line, ordered by label

In a folder called VOCdevkit/VOC2012, torchvision's VOCSegmentation reads it.

results.tgz: results/VOC2012/Segmentation/comp6_test_cls/ID.png
"""

import io
import shutil
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from PIL import Image

from tagmask.data.images import is_plain, palette_image, write_mask
from tagmask.data.voc import CLASSES
from tagmask.errors import TagmaskError
from tagmask.exchange.items import Exported, Labelled, picture_of, png
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
    """Write photos, masks and their list; unsure pixels are 255, as in VOC.

    A photo that is no upright JPEG is written as one, at quality 95; images without a file and
    without a picture are left out, as with a list of masks alone.

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
    converted = 0
    for item in done.checked(items, classes):
        write_mask(_mask_file(out, item.name), item.mask)
        converted += _put_jpeg(item, _photo_file(out, item.name))
        names.append(item.name)
    if converted:
        done.notes.append(
            f"{converted} photos were no upright JPEGs, as VOC has them, and were saved as such."
        )
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


def voc_photos(out: Path, names: Iterable[str]) -> list[Path]:
    """List the photos that ``write_voc`` writes because they are not there yet.

    Args:
        out: the folder.
        names: names of the images.
    """
    photos = [_photo_file(out, name) for name in names]
    return [photo for photo in photos if not photo.exists()]


def _put_jpeg(item: Labelled, path: Path) -> bool:
    """Put the photo of an image where VOC has it; return True if it had to be converted."""
    has_none = item.image is None and item.picture is None
    if has_none or path.exists():
        return False
    file = item.image
    if file is not None and file.suffix.lower() in (".jpg", ".jpeg") and is_plain(file):
        with replacing(path) as partial:
            shutil.copyfile(file, partial)
        return False
    picture = Image.fromarray(picture_of(item))
    with replacing(path) as partial:
        picture.save(partial, format="JPEG", quality=95, subsampling=0)
    return True


def _photo_file(out: Path, name: str) -> Path:
    return out / "JPEGImages" / f"{name}.jpg"


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
