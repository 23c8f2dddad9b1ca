"""From settings to a catalog."""

from pathlib import Path

from tagmask import layout
from tagmask.config import DataSettings
from tagmask.data.catalog import Catalog
from tagmask.errors import TagmaskError


def open_catalog(settings: DataSettings, out: Path | None = None) -> Catalog:
    """Open the catalog that the settings describe.

    Args:
        settings: Where images and tags come from.
        out: Folder of a run, whose corrections are taken over; default: none are.
    """
    catalog = read_catalog(settings, out)
    if out is None:
        return catalog
    corrections = out / layout.CORRECTIONS
    if not corrections.is_dir():
        return catalog
    return catalog.corrected(corrections)


def read_catalog(settings: DataSettings, out: Path | None = None) -> Catalog:
    """Read the catalog as the data have it; readers are imported on demand.

    Args:
        settings: Where images and tags come from.
        out: Folder of a run, for the command that an error suggests.
    """
    if settings.data == "scenes":
        from tagmask.data.scenes.catalog import Scenes

        return Scenes(settings.count, settings.scene_seed)
    if settings.data == "folder" and settings.images is not None:
        from tagmask.data.folder import read_folder

        return read_folder(settings.images, settings.tags, masks=settings.masks, out=out)
    if settings.data == "voc" and settings.root is not None:
        from tagmask.data.voc import read_voc

        return read_voc(settings.root, settings.split)
    if settings.data == "coco" and settings.images is not None and settings.annotations is not None:
        from tagmask.data.coco import read_coco

        return read_coco(settings.images, settings.annotations)
    raise TagmaskError("\n".join(settings.mistakes()))
