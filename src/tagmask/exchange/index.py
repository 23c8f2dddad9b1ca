"""Plain class numbers, for readers that turn a palette into colours.

out/masks/NAME.png      class numbers, 8-bit grey
    classes.json        {"0": "background", …, "255": "unsure"}
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from tagmask.data.images import write_png
from tagmask.exchange.items import Exported, Labelled
from tagmask.files import write_json
from tagmask.labels import UNSURE


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
    write_json(out / "classes.json", class_names(classes))
    return done


def class_names(classes: Sequence[str]) -> dict[str, str]:
    """Return what the numbers in a mask mean, background and unsure pixels included."""
    names = {"0": "background"}
    for label, name in enumerate(classes, start=1):
        names[str(label)] = name
    names[str(UNSURE)] = "unsure"
    return names
