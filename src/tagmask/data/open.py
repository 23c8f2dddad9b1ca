"""From settings to a catalog."""

from pathlib import Path

from tagmask.config import DataSettings
from tagmask.data.catalog import Catalog
from tagmask.errors import TagmaskError
from tagmask.pipeline import layout


def open_catalog(settings: DataSettings) -> Catalog:
    """The catalog that ``settings`` describe, with the corrections in the folder of its run."""
    catalog = read_catalog(settings)
    out: Path | None = getattr(settings, "out", None)
    folder = out / layout.CORRECTIONS if out is not None else None
    return catalog.corrected(folder) if folder is not None and folder.is_dir() else catalog


def read_catalog(settings: DataSettings) -> Catalog:
    """The catalog as the data have it; readers are imported on demand."""
    if settings.data == "scenes":
        from tagmask.scenes.catalog import Scenes

        return Scenes(settings.count, settings.scene_seed)
    if settings.data == "folder" and settings.images is not None:
        from tagmask.data.folder import read_folder

        return read_folder(settings.images, settings.tags, masks=settings.masks)
    if settings.data == "voc" and settings.root is not None:
        from tagmask.data.voc import read_voc

        return read_voc(settings.root, settings.split)
    if settings.data == "coco" and settings.images is not None and settings.annotations is not None:
        from tagmask.data.coco import read_coco

        return read_coco(settings.images, settings.annotations)
    raise TagmaskError("\n".join(settings.mistakes()))
