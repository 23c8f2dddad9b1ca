"""Export: the masks of a run in the formats of other tools, and the segmentation network as ONNX.

To add a format, write its writer and add a row to ``FORMATS``.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tagmask import layout
from tagmask.config import ExportSettings, check
from tagmask.config.base import within
from tagmask.config.exchange import FILES, SPLIT
from tagmask.data.about import read_about
from tagmask.data.catalog import Catalog
from tagmask.data.images import is_heic, is_turned
from tagmask.data.open import open_catalog
from tagmask.data.tiff import is_deep
from tagmask.data.tools import is_list_of_texts
from tagmask.errors import TagmaskError, first_of
from tagmask.exchange.coco import write_coco
from tagmask.exchange.cvat import write_cvat
from tagmask.exchange.datumaro import write_datumaro
from tagmask.exchange.fiftyone import write_fiftyone
from tagmask.exchange.geotiff import write_geotiff
from tagmask.exchange.huggingface import write_huggingface
from tagmask.exchange.index import write_indices
from tagmask.exchange.items import (
    Exported,
    Labelled,
    Probabilities,
    from_folder,
    unlistable_name,
    unlistable_or_unsafe_name,
    unsafe_name,
)
from tagmask.exchange.label_studio import is_interface, write_label_studio
from tagmask.exchange.labelme import write_labelme
from tagmask.exchange.napari import write_napari
from tagmask.exchange.numbers import is_summary, summary_file, write_table
from tagmask.exchange.overlays import write_overlays
from tagmask.exchange.qupath import write_qupath
from tagmask.exchange.split import split_by_tag, tell_split
from tagmask.exchange.voc import voc_files, voc_photos, write_voc, write_voc_submission
from tagmask.exchange.xanylabeling import write_xanylabeling
from tagmask.exchange.yolo import write_ultralytics, write_yolo_seg
from tagmask.files import (
    collecting,
    is_regular,
    is_temporary,
    read_object,
    reading,
    remove_temporaries,
    remove_temporaries_of,
    write_json,
)
from tagmask.labels import Mask
from tagmask.runs.images import list_skipped
from tagmask.runs.record import check_classes, classes_of
from tagmask.stages.predict import open_photos, read_probabilities
from tagmask.stages.seeds import as_float, read_seeds


@dataclass(frozen=True)
class Format:
    """A writer ``(items, classes, path, **options) -> Exported`` and what is to be known of it."""

    write: Callable[..., Exported]
    options: tuple[str, ...] = ()  # settings that the writer takes
    unusable: Callable[[str], str] = lambda _: ""  # why the format cannot hold an image of a name
    own_photos: bool = False  # the tool opens the user's own photos beside the masks
    beside: bool = False  # files of earlier exports stay; otherwise they are removed
    # files that may be there before, besides the file that --to names: (settings, to, names)
    others: Callable[[ExportSettings, Path, list[str]], list[Path]] = lambda *_: []
    # what the writer needs besides masks: (item, settings, folder of the masks)
    complete: Callable[[Labelled, ExportSettings, Path], Labelled] | None = None


def _with_maps(item: Labelled, settings: ExportSettings, _: Path) -> Labelled:
    """Return an item with its seeds, if the run has them."""
    if settings.photos is not None:
        return item
    return replace(item, maps=partial(_maps, settings.out / layout.SEEDS, item.name))


def _with_probabilities(item: Labelled, _: ExportSettings, folder: Path) -> Labelled:
    """Return an item with its probabilities, if the run has kept them."""
    return replace(item, probabilities=partial(_kept, folder, item.name))


FORMATS = {  # value of --format: its writer
    "coco": Format(write_coco, ("polygons", "pieces"), own_photos=True),
    "voc": Format(
        write_voc,
        ("split",),
        unlistable_name,
        beside=True,
        others=lambda settings, to, names: voc_files(to, names, settings.split),
    ),
    "voc-test": Format(write_voc_submission),
    "label-studio": Format(
        write_label_studio,
        ("image_url", "pieces"),
        own_photos=True,
        others=lambda settings, to, names: [to.with_suffix(".xml")],
    ),
    # CVAT reads it by Datumaro
    "cvat": Format(write_cvat, ("pieces",), unlistable_or_unsafe_name, own_photos=True),
    "overlays": Format(
        write_overlays,
        beside=True,
        others=lambda settings, to, names: [layout.label_file(to, name) for name in names],
    ),
    "index": Format(write_indices, own_photos=True),
    "ultralytics": Format(write_ultralytics),
    "yolo-seg": Format(write_yolo_seg),
    "fiftyone": Format(write_fiftyone, complete=_with_maps),
    "huggingface": Format(write_huggingface),
    "xanylabeling": Format(write_xanylabeling, own_photos=True),
    "labelme": Format(write_labelme, own_photos=True),
    "datumaro": Format(write_datumaro, unusable=unsafe_name),
    "qupath": Format(write_qupath, own_photos=True),
    "napari": Format(write_napari, own_photos=True),
    "geotiff": Format(write_geotiff),
    "table": Format(
        write_table,
        ("mm_per_pixel", "about", "by", "decimal_comma"),
        others=lambda settings, to, names: [summary_file(to)],
        complete=_with_probabilities,
    ),
}


def export_run(settings: ExportSettings) -> str:
    """Export masks, the network, or both; returns a summary for the user."""
    check(settings)
    lines = []
    with reading(settings.out):
        if settings.to is not None:
            lines.append(export_masks(settings, settings.to).summary())
        if settings.onnx is not None:
            remove_temporaries_of(settings.onnx)
            lines.append(export_network(settings, settings.onnx))
    return "\n".join(lines)


def export_masks(settings: ExportSettings, to: Path) -> Exported:
    """Write the masks of the run's images to the file or folder ``to``.

    Args:
        settings: Those of the command; ``labels`` defaults to the run's predictions.
        to: The file or folder to write.

    Returns:
        What was written, and which images were left out.

    Raises:
        TagmaskError: There are no masks, or writing would replace something that is not an
            earlier export.
    """
    folder = settings.labels or settings.out / layout.PREDICTIONS
    _refuse_inside(settings, to, folder)
    catalog = _open(settings, folder)
    row = FORMATS[settings.format]
    tags = {
        item.name: tuple(catalog.classes[tag] for tag in item.tags)
        for item in catalog
        if layout.label_file(folder, item.name).is_file() and not row.unusable(item.name)
    }
    _refuse_foreign(settings, to, list(tags))
    damaged: dict[str, str] = {}
    turned: list[str] = []
    uncommon: list[str] = []
    items, notes = _prepared(from_folder(catalog, folder, damaged, row.unusable), settings, tags)
    if row.complete is not None:
        items = (row.complete(item, settings, folder) for item in items)
    if row.own_photos:
        items = _note_odd(items, turned, uncommon)
    options = _options(settings, catalog)
    _remove_leftovers(settings, to, list(tags))
    with _note_on(settings, to, tags):
        done = row.write(items, catalog.classes, to, **options)
    done.notes[:0] = [*list_skipped(damaged), *notes]
    _tell(done, row, list(tags), turned, uncommon)
    missing = len(catalog) - done.images - len(damaged)
    if missing:
        done.notes.insert(
            0, f"{missing} of {len(catalog)} images have no mask in {folder} and are left out."
        )
    return done


def _prepared(
    items: Iterable[Labelled], settings: ExportSettings, tags: Mapping[str, tuple[str, ...]]
) -> tuple[Iterable[Labelled], list[str]]:
    """Return the items with their part of the data, and what is to be told about the parts.

    Args:
        items: images with their masks.
        settings: those of the command.
        tags: names of the images, with the words of their tags.
    """
    if settings.format not in SPLIT:
        return items, []
    fraction = 0.2 if settings.val_fraction is None else settings.val_fraction
    val = split_by_tag(tags, fraction, settings.split_seed)
    notes = tell_split(tags, val, settings.split_seed)
    parted = (replace(item, part="val" if item.name in val else "train") for item in items)
    return parted, notes


def _options(settings: ExportSettings, catalog: Catalog) -> dict[str, Any]:
    """Return what the writer of the format takes besides masks."""
    options = {name: getattr(settings, name) for name in FORMATS[settings.format].options}
    if settings.about is not None:
        photos = settings.photos or settings.images or Path()
        options["about"] = read_about(settings.about, [item.name for item in catalog], photos)
    return options


def _remove_leftovers(settings: ExportSettings, to: Path, names: list[str]) -> None:
    """Remove what exports that were killed have left of the files that are written now."""
    files = [to, to / layout.MADE_BY]
    if settings.format in FILES:
        files += FORMATS[settings.format].others(settings, to, names)
    for file in files:
        remove_temporaries_of(file)


def _note_on(
    settings: ExportSettings, to: Path, names: Iterable[str]
) -> AbstractContextManager[None]:
    """Return a context that notes which files of a folder are written; nothing for a file."""
    if settings.format in FILES:
        return nullcontext()
    new_photos = voc_photos(to, names) if settings.format == "voc" else []
    return _noted(to, settings.format, new_photos)


def _tell(
    done: Exported, row: Format, names: list[str], turned: list[str], uncommon: list[str]
) -> None:
    """Add what other tools may stumble over to the notes of an export."""
    lists_names = row.unusable in (unlistable_name, unlistable_or_unsafe_name)
    spaced = sum(" " in name for name in names)
    if lists_names and spaced:
        done.notes.append(
            f"{spaced} names contain a space; tools that split the list of names "
            "there will miss them."
        )
    if turned:
        done.notes.append(
            f"{len(turned)} photos are turned by an EXIF entry, and their masks are upright; "
            "a tool that shows such a photo lying on its side does not heed the entry."
        )
    if uncommon:
        done.notes.append(
            f"{len(uncommon)} photos are HEIC, or TIFF that is no plain picture: "
            f"{first_of(uncommon)}; if the tool cannot show them, save them as JPEG or PNG "
            "under the same names."
        )


def _refuse_inside(settings: ExportSettings, to: Path, folder: Path) -> None:
    """Refuse to write among the masks that are exported, or among the images."""
    if within(to, folder):
        raise TagmaskError(
            f"--to {to} is inside {folder}, the folder of the masks; choose another place."
        )
    if settings.format in (*FILES, "voc"):
        return
    sources = (settings.images, settings.photos, settings.masks)
    if any(within(to, source) for source in sources if source is not None):
        raise TagmaskError(
            f"--to {to} is among the images or masks themselves; choose another folder."
        )


def _note_odd(
    items: Iterable[Labelled], turned: list[str], uncommon: list[str]
) -> Iterator[Labelled]:
    """Yield items, and note photos that another tool may show otherwise, or not at all.

    Args:
        items: images with their masks.
        turned: gets the names of photos that EXIF turns.
        uncommon: gets the names of photos that few tools read.
    """
    for item in items:
        if item.image is not None:
            if is_turned(item.image):
                turned.append(item.name)
            if is_heic(item.image) or is_deep(item.image):
                uncommon.append(item.name)
        yield item


def _maps(folder: Path, name: str) -> dict[int, Mask]:
    """Return the seeds of an image as 0 … 255, by label; empty if it has none."""
    file = layout.seed_file(folder, name)
    if not file.is_file():
        return {}
    seeds = read_seeds(file)
    values = (255 * as_float(seeds["refined"])).round().astype(np.uint8)  # (k, H, W)
    return {
        label + 1: value for label, value in zip(seeds["classes"].tolist(), values, strict=True)
    }


def _kept(folder: Path, name: str) -> Probabilities | None:
    """Return the probabilities of an image (K, H, W); None if the run has not kept them."""
    file = layout.seed_file(folder, name)
    return read_probabilities(file) if file.is_file() else None


def _refuse_foreign(settings: ExportSettings, to: Path, labelled: list[str]) -> None:
    """Refuse to replace inputs, and files that no earlier export has written."""
    is_folder = settings.format not in FILES
    note = _note_of(to) if is_folder else {}
    is_ours = note.get("export") == settings.format
    others = FORMATS[settings.format].others(settings, to, labelled)
    existing = [file for file in others if os.path.lexists(file)]
    for file in existing:
        if sentence := settings.over_an_input("to", file):
            raise TagmaskError(sentence)
    if not is_folder:
        is_ours = all(is_interface(file) or is_summary(file) for file in existing)
    if existing and not is_ours:
        more = f" and {len(existing) - 1} more" if len(existing) > 1 else ""
        raise TagmaskError(
            f"--to {to} would replace {existing[0]}{more}, which tagmask did not write; "
            "choose another place, or move what is there."
        )
    # a power cut while the note was written leaves half of it
    holds_files = to.is_dir() and not all(map(is_temporary, to.iterdir()))
    if is_folder and not is_ours and holds_files:
        what = "is not empty"
        if note.get("export") in FORMATS:
            what = f"holds an export of the format {note['export']}"
        raise TagmaskError(f"--to {to} {what}; name a new folder, so that nothing is mixed up.")


def _note_of(folder: Path) -> dict[str, Any]:
    """Return the note of an earlier export into a folder; empty if there is none."""
    file = folder / layout.MADE_BY
    return read_object(file) if file.is_file() else {}


@contextmanager
def _noted(to: Path, name: str, planned: Sequence[Path] = ()) -> Iterator[None]:
    """Note which files of a folder an export writes, and whether it has come to its end.

    An export that was stopped can be repeated. Of an earlier one those files are removed that are
    not written again, unless exports of several parts share the folder.

    Args:
        to: the folder.
        name: the format.
        planned: files that the export writes only if they are missing. They are noted before:
            one that is stopped does not write them again.
    """
    file = to / layout.MADE_BY
    noted = _note_of(to).get("files")
    before = list(noted) if is_list_of_texts(noted) else []
    before += [path.relative_to(to).as_posix() for path in planned]
    write_json(file, {"export": name, "complete": False, "files": before})
    remove_temporaries(to)
    with collecting() as written:
        yield
    made = {path.relative_to(to).as_posix() for path in written}
    if FORMATS[name].beside:
        made.update(old for old in before if os.path.lexists(to / old))
    for old in sorted({*before} - made):
        _remove_listed(to, old)
    write_json(file, {"export": name, "complete": True, "files": sorted(made)})


def _remove_listed(folder: Path, name: str) -> None:
    """Remove a file that the note of a folder lists, if it is an ordinary file in it."""
    file = folder / name
    is_inside = within(file.parent, folder) and file.name not in ("", ".", "..")
    if is_inside and is_regular(file) and not file.is_symlink():
        file.unlink(missing_ok=True)


def export_network(settings: ExportSettings, to: Path) -> str:
    """Write the run's segmentation network as ONNX.

    Args:
        settings: Those of the command; ``model`` defaults to the run's segmenter.
        to: The file to write.

    Returns:
        A sentence about the file for the terminal.

    Raises:
        TagmaskError: There is no segmenter, or ONNX is not installed.
    """
    from tagmask.exchange.onnx import write_onnx  # its packages are optional
    from tagmask.models.kinds import load_segmenter

    model = load_segmenter(settings.model or settings.out / layout.SEGMENTER)
    write_onnx(model, to)
    return (
        f"network: {to} (images (N, 3, H, W) in [0, 1] in, probabilities (N, {model.num_classes}, "
        "H, W) out)"
    )


def _open(settings: ExportSettings, folder: Path) -> Catalog:
    """Return the images whose masks are in ``folder``; refuse masks made for other classes."""
    if settings.photos is None:
        catalog = open_catalog(settings, settings.out)
        check_classes(folder, catalog.classes, "masks")
        return catalog
    classes = classes_of(folder)
    if not classes:
        raise TagmaskError(
            f"{folder / layout.MADE_BY} does not name the classes of the masks; "
            "make them with `tagmask predict`."
        )
    return open_photos(settings.photos, tuple(classes))
