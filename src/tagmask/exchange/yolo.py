"""Ultralytics: semantic masks, or polygons of objects, with a split into train and val.

out/data.yaml                   folders and names of the classes
    images/train/NAME.jpg       copies of the images; images/val likewise
    masks/train/NAME.png        ultralytics: class numbers, 0 for background, 255 ignored
    labels/train/NAME.txt       yolo-seg: class and polygon of one connected piece per line, 0 to 1

    names.json                  {new name: name} of images whose names were changed

Images lie in one folder, since some readers list no others. A polygon runs through the centres of
its outermost pixels, because Ultralytics fills it with its edge.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from tagmask.data.images import write_png
from tagmask.exchange.contours import centre_outlines
from tagmask.exchange.items import Exported, FlatNames, Labelled, put_image, regions
from tagmask.files import write_text
from tagmask.labels import Mask


def write_ultralytics(
    items: Iterable[Labelled],
    classes: Sequence[str],
    out: Path,
) -> Exported:
    """Write a data set for ``yolo semantic train``.

    Args:
        items: images with their masks, uint8 (H, W), and part (train or val).
        classes: names of the labels 1, 2, …
        out: the folder.

    Returns:
        Counts and notes about what was written.

    Raises:
        ImageError: a mask is no uint8 (H, W) or has a label without a class.
    """
    done = Exported(out, holds_unsure=True)
    names = FlatNames()
    for item in done.checked(items, classes):
        name = names(item.name)
        put_image(item, out / "images" / item.part / name)
        write_png(out / "masks" / item.part / f"{name}.png", item.mask)
    names.write(out / "names.json", done)
    _write_yaml(out, ("background", *classes), "masks_dir: masks\n")
    return done


def write_yolo_seg(
    items: Iterable[Labelled],
    classes: Sequence[str],
    out: Path,
) -> Exported:
    """Write a data set for ``yolo segment train``.

    Args:
        items: images with their masks, uint8 (H, W), and part (train or val).
        classes: names of the labels 1, 2, …
        out: the folder.

    Returns:
        Counts and notes about what was written.

    Raises:
        ImageError: a mask is no uint8 (H, W) or has a label without a class.
    """
    done = Exported(out)
    names = FlatNames()
    for item in done.checked(items, classes):
        name = names(item.name)
        put_image(item, out / "images" / item.part / name)
        label_file = out / "labels" / item.part / f"{name}.txt"
        write_text(label_file, polygon_lines(item.mask))
    names.write(out / "names.json", done)
    _write_yaml(out, classes)
    return done


def polygon_lines(mask: Mask) -> str:
    """Return a line for each connected piece of a mask (H, W).

    It holds the class, counted from 0, and the corners x y x y … as shares of width and height.
    """
    height, width = mask.shape
    lines = []
    for label, region in regions(mask, pieces=False):
        for corners in centre_outlines(region):
            numbers = [str(label - 1)]
            for x, y in corners:
                numbers.append(f"{x / width:.6f}")
                numbers.append(f"{y / height:.6f}")
            lines.append(" ".join(numbers) + "\n")
    return "".join(lines)


def _write_yaml(out: Path, names: Sequence[str], more: str = "") -> None:
    """Write data.yaml without ``path``.

    Ultralytics then looks in the folder of the file, so that the folder can be moved.
    """
    has_val = (out / "images" / "val").is_dir()
    val = "val" if has_val else "train"
    text = f"train: images/train\nval: images/{val}\n{more}names:\n"
    for number, name in enumerate(names):
        text += f"  {number}: {yaml_text(name)}\n"
    write_text(out / "data.yaml", text)


def yaml_text(text: str) -> str:
    """Put a text in double quotes, and escape characters that cannot be printed as YAML does it."""
    quoted = ""
    for mark in json.dumps(text, ensure_ascii=False):
        quoted += mark if mark.isprintable() else f"\\U{ord(mark):08x}"
    return quoted
