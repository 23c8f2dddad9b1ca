"""Hugging Face's imagefolder, with a split into train and validation.

out/classes.json                what the numbers in a mask mean
    train/metadata.jsonl        {"file_name": "1.jpg", "mask_file_name": "masks/1.png",
                                 "name": NAME, "tags": […]}
    train/1.jpg, masks/1.png    copies of the images and class numbers, 8-bit grey
    validation                  likewise

Files are numbered, because ``datasets`` takes folders called "test" or "val" for splits wherever
they are.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from tagmask.data.images import write_png
from tagmask.exchange.index import class_names
from tagmask.exchange.items import Exported, Labelled, put_image
from tagmask.files import write_json, write_text

_FOLDERS = {"train": "train", "val": "validation"}


def write_huggingface(
    items: Iterable[Labelled],
    classes: Sequence[str],
    out: Path,
) -> Exported:
    """Write a data set for ``datasets.load_dataset("imagefolder", data_dir=out)``.

    Args:
        items: images with their masks, uint8 (H, W), tags and part (train or val).
        classes: names of the labels 1, 2, …
        out: the folder.

    Returns:
        Counts and notes about what was written.

    Raises:
        ImageError: a mask is no uint8 (H, W) or has a label without a class.
    """
    done = Exported(out, holds_unsure=True)
    lines: dict[str, list[str]] = {}
    for item in done.checked(items, classes):
        folder = _FOLDERS[item.part]
        number = done.images
        mask_file = f"masks/{number}.png"
        image = put_image(item, out / folder / str(number))
        write_png(out / folder / mask_file, item.mask)
        row = {
            "file_name": image.name,
            "mask_file_name": mask_file,
            "name": item.name,
            "tags": list(item.tags),
        }
        line = json.dumps(row, ensure_ascii=False) + "\n"
        lines.setdefault(folder, []).append(line)
    for folder, rows in lines.items():
        write_text(out / folder / "metadata.jsonl", "".join(rows))
    write_json(out / "classes.json", class_names(classes))
    return done
