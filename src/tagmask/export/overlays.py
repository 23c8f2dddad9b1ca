"""Plain pictures of masks over their images, one PNG per image."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from tagmask.data.images import write_png
from tagmask.export.items import Exported, Labelled, picture_of
from tagmask.show.overlay import mask_overlay


def write_overlays(items: Iterable[Labelled], classes: Sequence[str], out: Path) -> Exported:
    """Write ``out/NAME.png``, class colours over the image; unsure pixels are hatched."""
    done = Exported(out, holds_unsure=True)
    for item in done.checked(items, classes):
        write_png(out / f"{item.name}.png", mask_overlay(picture_of(item), item.mask))
    return done
