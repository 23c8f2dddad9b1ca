"""FiftyOne's ImageSegmentationDirectory, and the seeds as heat maps.

out/data/NAME.jpg               copies of the images
    labels/NAME.png             class numbers, 8-bit grey
    mask_targets.json           what the numbers mean
    heatmaps/LABEL/NAME.png     seeds of the class with that number, 0 … 255, if the run has them
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from tagmask.data.images import write_png
from tagmask.exchange.index import class_names
from tagmask.exchange.items import Exported, Labelled, put_image
from tagmask.files import write_json


def write_fiftyone(
    items: Iterable[Labelled],
    classes: Sequence[str],
    out: Path,
) -> Exported:
    """Write images, masks and heat maps; docs/how-to/exchange.md shows how FiftyOne loads them.

    Args:
        items: images with their masks, uint8 (H, W), and perhaps maps.
        classes: names of the labels 1, 2, …
        out: the folder.

    Returns:
        Counts and notes about what was written.

    Raises:
        ImageError: a mask is no uint8 (H, W) or has a label without a class.
    """
    done = Exported(out, holds_unsure=True)
    with_heat_maps = 0
    for item in done.checked(items, classes):
        file = f"{item.name}.png"
        put_image(item, out / "data" / item.name)
        write_png(out / "labels" / file, item.mask)
        if item.maps is None:
            continue
        maps = item.maps()
        for label, values in maps.items():
            write_png(out / "heatmaps" / str(label) / file, values)
        if maps:
            with_heat_maps += 1
    write_json(out / "mask_targets.json", class_names(classes))
    if with_heat_maps:
        done.notes.append(f"heat maps of {with_heat_maps} images.")
    else:
        done.notes.append("no heat maps, since the run has no seeds.")
    return done
