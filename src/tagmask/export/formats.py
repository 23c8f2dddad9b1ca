"""The table of formats: to add one, write its writer and add a row."""

from collections.abc import Callable
from dataclasses import dataclass

from tagmask.export.coco import write_coco
from tagmask.export.cvat import write_cvat
from tagmask.export.items import Exported
from tagmask.export.label_studio import write_label_studio
from tagmask.export.overlays import write_overlays
from tagmask.export.voc import write_voc, write_voc_submission


@dataclass(frozen=True)
class Format:
    """A writer ``(items, classes, path, **options) -> Exported`` and the settings it takes as keywords."""

    write: Callable[..., Exported]
    options: tuple[str, ...] = ()


FORMATS = {  # value of --format: its writer
    "coco": Format(write_coco, ("polygons", "pieces")),
    "voc": Format(write_voc, ("split",)),
    "voc-test": Format(write_voc_submission),
    "label-studio": Format(write_label_studio, ("image_url", "pieces")),
    "cvat": Format(write_cvat, ("pieces",)),
    "overlays": Format(write_overlays),
}
