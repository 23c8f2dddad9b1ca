"""FiftyOne's ImageSegmentationDirectory, and the seeds as heat maps.

out/data/NAME.jpg               copies of the images
    labels/NAME.png             class numbers, 8-bit grey
    mask_targets.json           what the numbers mean
    heatmaps/LABEL/NAME.png     seeds of the class with that number, 0 … 255, if the run has them
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from tagmask.data.images import write_png
from tagmask.export.index import class_names
from tagmask.export.items import Exported, Labelled, put_image
from tagmask.files import write_json


def write_fiftyone(items: Iterable[Labelled], classes: Sequence[str], out: Path) -> Exported:
    """Write images, masks and heat maps; docs/exchange.md shows how FiftyOne loads them."""
    done, heated = Exported(out, holds_unsure=True), 0
    for item in done.checked(items, classes):
        put_image(item, out / "data" / item.name)
        write_png(out / "labels" / f"{item.name}.png", item.mask)
        maps = item.maps() if item.maps is not None else {}
        for label, values in maps.items():
            write_png(out / "heatmaps" / str(label) / f"{item.name}.png", values)
        heated += bool(maps)
    write_json(out / "mask_targets.json", class_names(classes))
    done.notes.append(
        f"heat maps of {heated} images." if heated else "no heat maps, since the run has no seeds."
    )
    return done
