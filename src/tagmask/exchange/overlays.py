"""Plain pictures of masks over their images, one PNG per image."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from tagmask.data.images import write_png
from tagmask.exchange.items import Exported, Labelled, picture_of
from tagmask.show.overlay import overlay_with_legend


def write_overlays(
    items: Iterable[Labelled],
    classes: Sequence[str],
    out: Path,
) -> Exported:
    """Write ``out/NAME.png``, class colours over the image and their names below it.

    Unsure pixels are hatched.

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
        picture = overlay_with_legend(picture_of(item), item.mask, classes)
        write_png(out / f"{item.name}.png", picture)
    return done
