"""Predictions: one palette PNG per image of a catalog or a folder of photos, resumable and shareable.

Labels are those of the catalog, 0 for background and c+1 for its class c; for a folder of photos, the model's. With
``probabilities`` a file NAME.npz beside each mask holds ``probabilities`` (K, H, W) as float16; no pickle.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from tagmask.config import MaskSettings, PredictSettings, check, parse_shard, write_section
from tagmask.data.catalog import Catalog
from tagmask.data.images import read_mask, strip_suffix, walk, write_mask
from tagmask.data.open import open_catalog
from tagmask.errors import ImageError, TagmaskError
from tagmask.files import DAMAGED, replacing, write_json
from tagmask.models.deeplab import DeepLabV2
from tagmask.models.device import on_device
from tagmask.stages.probabilities import Probabilities, predict_probabilities, sharpen
from tagmask.stages.resume import check_identity, drawn_identity, file_digest, launched_shard, told_skipped
from tagmask.stages.seeds import match_classes
from tagmask.training.segmenter import FOLDER as SEGMENTER_FOLDER

FOLDER = "6_predictions"
UNREAD = (".heic", ".heif", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".psd", ".svg")  # pictures without a reader here


@dataclass
class Predicted:
    """What the stage did."""

    folder: Path
    made: int
    kept: int
    skipped: dict[str, str] = field(default_factory=dict)  # name: why
    notes: tuple[str, ...] = ()

    def summary(self) -> str:
        lines = [*self.notes, *told_skipped(self.skipped)]
        return "\n".join([*lines, f"masks: {self.made} made, {self.kept} were there already, in {self.folder}"])


def predict_catalog(settings: PredictSettings) -> Predicted:
    """Predict the mask of every image that has none yet."""
    check(settings)
    folder = settings.out / FOLDER
    model_folder = settings.model or settings.out / SEGMENTER_FOLDER
    model = on_device(DeepLabV2.load(model_folder))
    catalog = open_photos(settings.photos, model.classes) if settings.photos is not None else open_catalog(settings)
    numbers = match_classes(catalog.classes, model)
    identity = {**_identity(settings, model_folder), "classes": list(catalog.classes)}
    shard = (parse_shard(settings.shard) if settings.shard else None) or launched_shard()
    own = range(shard[0], len(catalog), shard[1])
    files = (folder / f"{catalog.name(i)}{ending}" for i in own for ending in (".png", ".npz"))
    check_identity(folder, identity, settings.restart, "masks", files)
    if shard[0] == 0:
        write_section(settings.out / "config.toml", "predict", settings)
    todo = [i for i in own if not _is_whole(folder, catalog, i, settings.probabilities)]
    done = Predicted(folder, 0, len(own) - len(todo), notes=(*catalog.notes, *_ruled_out(model, numbers)))
    for i in tqdm(todo, desc="predict", unit="image", disable=shard[0] > 0):
        try:
            image = catalog.load_image(i)
        except ImageError as error:
            done.skipped[catalog.name(i)] = str(error)
            continue
        allowed = [numbers[c] for c in catalog.tags(i)] if settings.use_tags else numbers
        chances = predict_probabilities(model, image, tags=allowed, **views_of(settings))
        chances = chances[[0, *(number + 1 for number in numbers)]]  # in the catalog's order
        _write(folder, catalog.name(i), sharpen(image, chances) if settings.crf else chances, settings.probabilities)
        done.made += 1
    if done.skipped:
        write_json(folder / f"skipped_{shard[0]}_of_{shard[1]}.json", done.skipped)
    return done


def open_photos(folder: Path, classes: Sequence[str]) -> Catalog:
    """All pictures below a folder as a catalog without tags."""
    whole = sorted(walk(folder))
    files: dict[str, str] = {}  # name of the mask: photo
    notes = []
    for path in whole:
        name = strip_suffix(path)
        if name != path and files.setdefault(name, path) != path:
            notes.append(f"{path} would have the same mask as {files[name]} and is left out; rename it.")
    if not files:
        raise TagmaskError(f"{folder} holds no picture; give a folder of photos.")
    unread = [path for path in whole if path.lower().endswith(UNREAD)]
    if unread:
        shown = ", ".join(unread[:3]) + (", …" if len(unread) > 3 else "")
        notes.append(f"{len(unread)} pictures of kinds that cannot be read are left out ({shown}); save them as JPEG.")
    return Catalog(
        classes, list(files), [()] * len(files), images=[folder / path for path in files.values()], notes=notes
    )


def read_probabilities(path: Path) -> np.ndarray[Any, np.dtype[np.float16]]:
    """The probabilities (K, H, W) of a file; a sentence where it is missing or damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            found: np.ndarray[Any, np.dtype[np.float16]] = file["probabilities"]
            return found
    except FileNotFoundError:
        raise TagmaskError(f"{path} does not exist; make it with `tagmask predict --probabilities`.") from None
    except DAMAGED as error:
        raise TagmaskError(f"{path} is damaged ({error}); delete it and run `tagmask predict` again.") from None


def views_of(settings: MaskSettings) -> dict[str, Any]:
    """The settings that ``predict_probabilities`` takes."""
    return {name: getattr(settings, name) for name in ("scales", "flip", "tile", "halo")}


def _write(folder: Path, name: str, chances: Probabilities, keep: bool) -> None:
    """The mask last, since a mask is what marks an image as done."""
    if keep:
        with replacing(folder / f"{name}.npz") as partial, partial.open("wb") as file:
            np.savez_compressed(file, probabilities=chances.astype(np.float16))
    write_mask(folder / f"{name}.png", chances.argmax(0).astype(np.uint8))


def _is_whole(folder: Path, catalog: Catalog, i: int, probabilities: bool) -> bool:
    mask = folder / f"{catalog.name(i)}.png"
    if not mask.exists():
        return False
    try:
        read_mask(mask, len(catalog.classes))
        if probabilities:
            read_probabilities(mask.with_name(f"{mask.name.removesuffix('.png')}.npz"))
    except TagmaskError:
        return False
    return True


def _identity(settings: PredictSettings, model_folder: Path) -> dict[str, Any]:
    """What makes these masks: the weights and every setting that changes a value."""
    from tagmask.masks.crf import SEGMENTATION

    views = {**views_of(settings), "scales": list(settings.scales), "use_tags": settings.use_tags}
    crf = dataclasses.asdict(SEGMENTATION) if settings.crf else None
    drawn = drawn_identity(settings) if settings.photos is None else {}
    return {"model": file_digest(model_folder / "model.safetensors"), **views, "crf": crf, **drawn}


def _ruled_out(model: DeepLabV2, numbers: list[int]) -> tuple[str, ...]:
    absent = [name for number, name in enumerate(model.classes) if number not in numbers]
    shown = ", ".join(absent[:5]) + (" …" if len(absent) > 5 else "")
    told = f"{len(absent)} classes of the model are not among those of the images and were ruled out: {shown}"
    return (told,) if absent else ()
