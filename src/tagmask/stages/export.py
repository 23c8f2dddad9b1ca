"""Export: masks of a run as other tools read them, and the segmentation network as ONNX."""

from collections.abc import Iterator
from pathlib import Path

from tagmask.config import ExportSettings, check
from tagmask.data.catalog import Catalog
from tagmask.data.made_by import IDENTITY, check_classes
from tagmask.data.open import open_catalog
from tagmask.errors import TagmaskError
from tagmask.export.items import Exported, Labelled, from_folder
from tagmask.files import read_json
from tagmask.stages.predict import FOLDER, open_photos
from tagmask.stages.resume import told_skipped
from tagmask.training.segmenter import FOLDER as SEGMENTER_FOLDER


def export_run(settings: ExportSettings) -> str:
    """Write what is asked for; returns what to tell the user."""
    check(settings)
    told = []
    if settings.to is not None:
        told.append(export_masks(settings, settings.to).summary())
    if settings.onnx is not None:
        told.append(export_network(settings, settings.onnx))
    return "\n".join(told)


def export_masks(settings: ExportSettings, to: Path) -> Exported:
    """Write the masks of the run's images to the file or folder ``to``."""
    folder = settings.labels or settings.out / FOLDER
    if to.resolve() == folder.resolve() or folder.resolve() in to.resolve().parents:
        raise TagmaskError(f"--to {to} is in {folder}, where the masks are; choose another place.")
    sources = [one.resolve() for one in (settings.images, settings.photos) if one is not None]
    if settings.format == "overlays" and to.resolve() in sources:
        raise TagmaskError(f"--to {to} holds the images themselves; choose another folder.")
    catalog = _catalog(settings, folder)
    damaged: dict[str, str] = {}
    done = _write(settings, from_folder(catalog, folder, damaged), catalog.classes, to)
    done.notes[:0] = told_skipped(damaged)
    lacking = len(catalog) - done.images - len(damaged)
    if lacking:
        done.notes.insert(0, f"{lacking} of {len(catalog)} images have no mask in {folder} and are left out.")
    return done


def export_network(settings: ExportSettings, to: Path) -> str:
    """Write the run's segmentation network as ONNX."""
    from tagmask.export.onnx import write_onnx
    from tagmask.models.deeplab import DeepLabV2

    model = DeepLabV2.load(settings.model or settings.out / SEGMENTER_FOLDER)
    write_onnx(model, to)
    return f"network: {to} (images (N, 3, H, W) in [0, 1] in, probabilities (N, {model.num_classes}, H, W) out)"


def _write(settings: ExportSettings, items: Iterator[Labelled], classes: tuple[str, ...], to: Path) -> Exported:
    """In the format asked for; each writer is imported only when it is used."""
    if settings.format == "coco":
        from tagmask.export.coco import write_coco

        return write_coco(items, classes, to, outline="polygon" if settings.polygons else "rle", split=settings.pieces)
    if settings.format == "label-studio":
        from tagmask.export.label_studio import write_label_studio

        return write_label_studio(items, classes, to, image_url=settings.image_url, split=settings.pieces)
    if settings.format == "cvat":
        from tagmask.export.cvat import write_cvat

        return write_cvat(items, classes, to, split=settings.pieces)
    if settings.format == "overlays":
        from tagmask.export.overlays import write_overlays

        return write_overlays(items, classes, to)
    from tagmask.export.voc import write_voc, write_voc_submission

    if settings.format == "voc":
        return write_voc(items, classes, to, split=Path(settings.split).stem)
    return write_voc_submission(items, classes, to)


def _catalog(settings: ExportSettings, folder: Path) -> Catalog:
    """The images whose masks ``folder`` holds; its masks must have been made for the same classes."""
    file = folder / IDENTITY
    told = read_json(file) if file.exists() else {}
    made_for = told.get("classes") if isinstance(told, dict) else None
    if settings.photos is not None:
        if not made_for:
            raise TagmaskError(f"{file} does not tell the classes of the masks; make them with `tagmask predict`.")
        return open_photos(settings.photos, tuple(made_for))
    catalog = open_catalog(settings)
    check_classes(folder, catalog.classes, "masks")
    return catalog
