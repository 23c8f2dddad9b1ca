"""Plain pictures of masks over their images, one PNG per image."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from PIL import Image

from tagmask.data.images import Picture, read_image
from tagmask.errors import TagmaskError
from tagmask.export.items import Exported, Labelled
from tagmask.files import replacing
from tagmask.show.overlay import mask_overlay


def write_overlays(items: Iterable[Labelled], classes: Sequence[str], out: Path) -> Exported:
    """Write ``out/NAME.png``, class colours over the image; unsure pixels are hatched."""
    done = Exported(out, holds_unsure=True)
    for item in done.checked(items, classes):
        picture = mask_overlay(_picture(item), item.mask)
        with replacing(out / f"{item.name}.png") as partial:
            Image.fromarray(picture).save(partial, format="PNG")
    return done


def _picture(item: Labelled) -> Picture:
    if item.picture is not None:
        return item.picture()
    if item.image is None:
        raise TagmaskError(f'"{item.name}" has no image to lay its mask over; give its file.')
    return read_image(item.image)
