"""Plain class numbers, for readers that turn a palette into colours: 8-bit grey PNGs and the names of the numbers."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from tagmask.data.images import write_png
from tagmask.export.items import Exported, Labelled
from tagmask.files import write_json
from tagmask.labels import UNSURE


def write_indices(items: Iterable[Labelled], classes: Sequence[str], out: Path) -> Exported:
    """Write ``out/masks/NAME.png``, mode L, and ``out/classes.json``, {"0": "background", …, "255": "unsure"}."""
    done = Exported(out, holds_unsure=True)
    for item in done.checked(items, classes):
        write_png(out / "masks" / f"{item.name}.png", item.mask)
    write_json(out / "classes.json", class_names(classes))
    return done


def class_names(classes: Sequence[str]) -> dict[str, str]:
    """What the numbers in a mask mean."""
    return {str(label): name for label, name in enumerate(("background", *classes))} | {
        str(UNSURE): "unsure"
    }
