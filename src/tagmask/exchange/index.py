"""Plain class numbers, for readers that turn a palette into colours; out, and back as corrections.

out/masks/NAME.png      class numbers, 8-bit grey
    classes.json        {"0": "background", …, "255": "unsure"}

Back, classes.json says what the numbers mean; without it they are those of the run. 255 leaves what
the program says.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from tagmask.data.images import read_mask, walk, write_png
from tagmask.errors import ImageError, TagmaskError
from tagmask.exchange.drawn import BACKGROUND, NOT_TOUCHED, Drawn
from tagmask.exchange.items import Exported, Labelled
from tagmask.files import read_object, write_json
from tagmask.labels import MAX_CLASSES, UNSURE

CLASSES_FILE = "classes.json"
_SUFFIXES = (".png", ".tif", ".tiff")


def write_indices(
    items: Iterable[Labelled],
    classes: Sequence[str],
    out: Path,
) -> Exported:
    """Write the masks as grey PNGs, and the names of the numbers.

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
        write_png(out / "masks" / f"{item.name}.png", item.mask)
    write_json(out / CLASSES_FILE, class_names(classes))
    return done


def class_names(classes: Sequence[str]) -> dict[str, str]:
    """Return what the numbers in a mask mean, background and unsure pixels included."""
    names = {"0": "background"}
    for label, name in enumerate(classes, start=1):
        names[str(label)] = name
    names[str(UNSURE)] = "unsure"
    return names


def drawn_in_masks(folder: Path, classes: Sequence[str]) -> Iterator[Drawn]:
    """Yield the labels of each PNG or TIFF in a folder as regions.

    A mask that cannot be read is yielded as refused.

    Args:
        folder: the masks at any depth, palette or grey, and perhaps classes.json.
        classes: names of the labels 1, 2, … if there is no classes.json.

    Raises:
        TagmaskError: the folder holds no mask, or classes.json lacks a name.
    """
    names = _names_in(folder, classes)
    paths = [path for path in sorted(walk(folder)) if path.lower().endswith(_SUFFIXES)]
    if not paths:
        raise TagmaskError(
            f"{folder} holds no masks (PNG or TIFF) and no files of LabelMe; "
            "name the folder with them."
        )
    for path in paths:
        try:
            mask = read_mask(folder / path, MAX_CLASSES)  # (H, W)
        except ImageError as error:
            yield Drawn(path, [], refused=str(error))
            continue
        labels = np.unique(mask).tolist()
        unknown = [label for label in labels if label not in names]
        if unknown:
            why = (
                f"it holds the label {unknown[0]}; the labels are 0 to {len(names) - 2}, "
                f"or {UNSURE}."
            )
            yield Drawn(path, [], refused=why)
            continue
        # the background is a region too, so that a mask without any object is a correction
        yield Drawn(path, [(names[label], mask == label) for label in labels])


def _names_in(folder: Path, classes: Sequence[str]) -> dict[int, str]:
    """Return what the numbers in the masks of a folder mean."""
    file = folder / CLASSES_FILE
    names = class_names(classes)
    if file.is_file():
        names = read_object(file)
    meaning = {0: BACKGROUND, UNSURE: NOT_TOUCHED}
    for number, name in names.items():
        if number not in ("0", str(UNSURE)):
            if not number.isdecimal() or not 0 < int(number) < UNSURE or not isinstance(name, str):
                raise TagmaskError(
                    f"{file} must give each number from 1 to {MAX_CLASSES} a name; correct it."
                )
            meaning[int(number)] = name
    return meaning
