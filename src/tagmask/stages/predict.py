"""Predictions: one palette PNG per image of a catalog or a folder of photos, resumable.

Labels are those of the catalog, 0 for background and c+1 for its class c; for a folder of photos,
the model's. With ``probabilities`` a file NAME.npz beside each mask holds ``probabilities`` (K, H,
W) as float16; no pickle. At the end: the mask of one photo.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as Pillow

from tagmask import layout
from tagmask.config import (
    DeepLabSettings,
    HeadSettings,
    MaskSettings,
    PredictPhotoSettings,
    PredictSettings,
    SegmentSettings,
    check,
    settings_from,
)
from tagmask.data.catalog import Catalog
from tagmask.data.corrections import fix
from tagmask.data.images import UNREAD, read_image, strip_suffix, walk, write_mask
from tagmask.data.report import odd_note
from tagmask.errors import TagmaskError, enough_memory, first_of, typed
from tagmask.features.cache import TokenStore
from tagmask.files import read_arrays, write_arrays
from tagmask.inference.photo_mask import memory_at_once, photo_mask, photo_probabilities
from tagmask.labels import Mask, Picture
from tagmask.layout import label_file, seed_file
from tagmask.masks.tiles import AT_ONCE
from tagmask.models.classifier import Classifier
from tagmask.models.device import chosen_device, on_device
from tagmask.models.head import HeadSegmenter
from tagmask.models.kinds import Segmenter, load_segmenter
from tagmask.notes import Parts
from tagmask.runs import record
from tagmask.runs.images import (
    Made,
    each_image,
    is_current,
    is_readable,
    match_classes,
    share_of,
    split_tags,
    tell_own_network,
)
from tagmask.runs.memory import of_pool
from tagmask.runs.processes import count_processes, few_threads, launched_shard
from tagmask.runs.run import Run
from tagmask.runs.timing import Probe, timed
from tagmask.runs.tokens import open_together
from tagmask.stages.found import FoundTags, describe, not_found, shares_in
from tagmask.stages.seeds import pixels

_THINNED = 4  # every so many pixels are looked at first, to see how long a mask takes
_LONG = 4.0  # seconds of a mask beyond which they are only projected
_SMALLER = "add --crf-size 1024, or make the photo smaller."


def made_from(run: Run, settings: PredictSettings) -> Parts:
    """Return what the masks are made from.

    Args:
        run: The run.
        settings: Those of the stage.
    """
    segmenter = settings.model or run.out / layout.SEGMENTER
    return record.made_from(settings, {"segmenter": segmenter})


def predict_catalog(run: Run, settings: PredictSettings) -> Made:
    """Predict the mask of every image that has none yet.

    Args:
        run: The run.
        settings: Those of the stage.

    Returns:
        How many masks were made, and which images were skipped.

    Raises:
        TagmaskError: The segmenter is missing or does not know a class, or the folder holds masks
            that were made with other settings.
    """
    model = load_for_masks(settings.model or run.out / layout.SEGMENTER, settings)
    if settings.photos is not None:
        catalog = open_photos(settings.photos, model.classes)
    else:
        catalog = run.catalog
    numbers = match_classes(catalog.classes, model)
    shard, indices = share_of(settings, catalog)
    notes = (*catalog.notes, *_ruled_out(model, numbers))
    done = Made("masks", run.out / layout.PREDICTIONS, notes=notes)
    masks = {i: label_file(done.folder, catalog.name(i)) for i in indices}
    parts = run.made_from("predict", settings)
    parts.pop("probabilities")  # they are other files
    probability_files = {i: seed_file(done.folder, catalog.name(i)) for i in indices}
    files = [*masks.values(), *probability_files.values()]
    with run.team.first_goes_first():
        masks_record = record.Record(done.folder, "**/*.png")
        masks_record.claim(parts, catalog, "masks", settings.restart, files)
    if shard[0] == 0:
        run.keep(settings)
    todo = [i for i, file in masks.items() if not is_current(file, catalog, i)]
    if settings.probabilities:
        unreadable = []
        for i, file in probability_files.items():
            if not is_readable(read_probabilities, file):
                unreadable.append(i)
        todo = sorted({*todo, *unreadable})
    done.kept = len(indices) - len(todo)
    store = None
    if isinstance(model, HeadSegmenter) and settings.photos is None:
        store = TokenStore.features_of(
            model.classifier, model.blocks, model.size, run.out, run.settings.tokens_limit
        )
    open_together(run.team, store)
    work = partial(_predict_image, catalog, model, numbers, settings, store, done.folder)
    processes = _processes(settings, model, len(catalog))
    found = FoundTags(catalog.classes, settings.use_tags)

    def take(i: int, shares: dict[int, float]) -> None:
        found.add(shares, catalog.tags(i))

    quiet = shard[0] > 0
    with few_threads(len(catalog)):
        done.skipped = each_image(work, catalog, todo, processes, "predict", quiet, take)
    done.made = len(todo) - len(done.skipped)
    together = FoundTags(catalog.classes, settings.use_tags)
    for part in run.team.gather(found.to_json()):
        together.merge(part)
    done.found = together.line()
    done.finish(run.team, shard, catalog)
    tell_own_network(run.out, settings, MaskSettings, layout.SEGMENTER, shard)
    return done


def _processes(settings: PredictSettings, model: Classifier | Segmenter, images: int) -> int:
    """Return how many processes predict; by default one for each core, but one on a GPU."""
    is_alone = model.mean.device.type != "cpu" or launched_shard()[1] > 1
    return settings.processes or (1 if is_alone else count_processes(None, images))


def _predict_image(
    catalog: Catalog,
    model: Segmenter,
    numbers: list[int],
    settings: PredictSettings,
    store: TokenStore | None,
    folder: Path,
    i: int,
) -> dict[int, float]:
    """Write the mask of item ``i``; returns the share of the photo by class."""
    image = catalog.load_image(i)
    tokens = store.get(catalog, i) if store else None
    allowed = [numbers[c] for c in catalog.tags(i)] if settings.use_tags else numbers
    name = catalog.name(i)
    with enough_memory(name, _SMALLER):
        if settings.probabilities:
            probabilities = photo_probabilities(model, image, allowed, settings, tokens)
            known = [0, *(number + 1 for number in numbers)]
            dense = probabilities.dense(model.num_classes)[known]
            write_arrays(seed_file(folder, name), probabilities=dense.astype(np.float16))
            found = probabilities.mask()
        else:
            found = photo_mask(model, image, allowed, settings, tokens)
        # from the labels of the model to those of the catalog
        own = np.zeros(model.num_classes, np.uint8)
        for c, number in enumerate(numbers):
            own[number + 1] = c + 1
        mask = own[found]
        mask = fix(mask, catalog.load_correction(i), name, unsure=False)
        # it comes last, because it marks the image as done
        write_mask(label_file(folder, name), mask, correction=catalog.correction_digest(i))
        return shares_in(mask, len(catalog.classes))


def open_photos(folder: Path, classes: Sequence[str]) -> Catalog:
    """Return all pictures below a folder as a catalog without tags.

    Args:
        folder: The folder.
        classes: Names of the classes that masks may have.
    """
    odd: list[str] = []
    paths = sorted(walk(folder, odd))
    files: dict[str, str] = {}  # name of the mask: photo
    notes = odd_note(odd)
    for path in paths:
        name = strip_suffix(path)
        if name != path and files.setdefault(name, path) != path:
            notes.append(
                f"{path} would have the same mask as {files[name]} and is left out; rename it."
            )
    if not files:
        raise TagmaskError(f"{folder} contains no pictures; give a folder of photos.")
    unread = [path for path in paths if path.lower().endswith(UNREAD)]
    if unread:
        shown = first_of(unread, 3)
        notes.append(
            f"{len(unread)} pictures of kinds that cannot be read are left out ({shown}); "
            "save them as JPEG."
        )
    return Catalog(
        classes,
        list(files),
        [()] * len(files),
        images=[folder / path for path in files.values()],
        notes=notes,
    )


def read_probabilities(path: Path) -> np.ndarray[Any, np.dtype[np.float16]]:
    """Return the probabilities (K, H, W) of a file; raise TagmaskError if it is damaged."""
    arrays = read_arrays(path, ["probabilities"], "tagmask predict --probabilities")
    probabilities: np.ndarray[Any, np.dtype[np.float16]] = arrays["probabilities"]
    return probabilities


def estimate(probe: Probe) -> float:
    """Return the seconds of an image."""
    settings = probe.run.of(PredictSettings)
    segment = probe.run.of(SegmentSettings)
    if isinstance(segment, HeadSettings):
        kept = probe.head_tokens  # by the stage before
        return timed(
            lambda: photo_mask(probe.head, probe.image, probe.classes, settings, tokens=kept)
        )
    assert isinstance(segment, DeepLabSettings)
    model = probe.segmenter.eval()
    probe.unseen.append(probe.shared["segmenter"])
    small = np.ascontiguousarray(probe.image[::_THINNED, ::_THINNED])
    seconds = _THINNED**2 * timed(lambda: photo_mask(model, small, probe.classes, settings))
    if seconds > _LONG and model.mean.device.type == "cpu":
        labels = len(probe.classes)
        whole = memory_at_once(model, probe.image.shape[:2], labels, settings)
        probe.unseen.append(min(whole, AT_ONCE))
        return seconds
    return timed(lambda: photo_mask(model, probe.image, probe.classes, settings))


def memory(probe: Probe, one: float) -> float:
    """Return the bytes of the stage.

    Args:
        probe: Settings and an image.
        one: Bytes of a process that predicts a photo.
    """
    settings = probe.run.of(PredictSettings)
    return of_pool(one, _processes(settings, probe.task.classifier, len(probe.catalog)))


def load_for_masks(folder: Path, settings: MaskSettings) -> Segmenter:
    """Return the segmenter of a folder, if it can do what is asked for.

    Args:
        folder: That of a segmenter.
        settings: How masks are predicted.

    Raises:
        TagmaskError: There is no segmenter, or it cannot be used so.
    """
    model = on_device(load_segmenter(folder))
    chosen_device(settings.device)
    if isinstance(model, HeadSegmenter) and settings.tile is not None:
        raise TagmaskError(
            "--tile is for DeepLabV2; a head sees every photo at the same size, leave it out."
        )
    return model


def _ruled_out(model: Segmenter, numbers: list[int]) -> tuple[str, ...]:
    absent = [name for number, name in enumerate(model.classes) if number not in numbers]
    note = (
        f"{len(absent)} classes of the model are not classes of these images and were ruled out: "
        f"{first_of(absent)}"
    )
    return (note,) if absent else ()


def predict(
    model: Any,
    photo: str | Path | Pillow.Image | Picture,
    tags: Sequence[str] | None = None,
    **settings: Any,
) -> Mask:
    """Return the mask of one photo at its own size, uint8 (H, W).

    It is 0 for background and c + 1 for the model's class c.

    Args:
        model: what ``tagmask.load`` returns, or a segmenter.
        photo: a path, a PIL image, or uint8 (H, W, 3).
        tags: what is on the photo; the other classes are ruled out. Default: all may occur.
        settings: those of ``tagmask.config.MaskSettings``, e.g. ``scales=(1.0,)``; by default what
            the run decided that trained the model.
    """
    model = getattr(model, "segmenter", model)
    options = settings_from(MaskSettings, model.use, settings)
    allowed = match_classes(tags, model) if tags is not None else None
    return photo_mask(model, pixels(photo), allowed, options)


def predict_photo(settings: PredictPhotoSettings) -> str:
    """Predict the mask of a photo for the command line, and return what to print."""
    check(settings)
    model = load_for_masks(settings.model, settings)
    image = read_image(settings.photo)
    names = split_tags(settings.tags)
    allowed = None
    if names is not None:
        allowed = match_classes(names, model)
        names = [model.classes[number] for number in allowed]
    with enough_memory(str(settings.photo), _SMALLER):
        mask = photo_mask(model, image, allowed, settings)
    shares = shares_in(mask, len(model.classes))
    lines = [describe(shares, model.classes)]
    missing = not_found(shares, names or [], model.classes)
    if missing:
        lines.append(missing)
        folder = settings.model.parent
        if (folder / layout.CLASSIFIER / layout.MODEL).is_file():
            words = ("seeds", folder, settings.photo, "--tags", ",".join(names or []))
            maps = typed("tagmask", *words, "--show", "maps.png")
            lines.append(f"where each tag was looked for: `{maps}`")
    written = []
    if settings.mask is not None:
        write_mask(settings.mask, mask)
        written.append(f"mask: {settings.mask}")
    if settings.show is not None:
        _show(settings.show, image, mask, model)
        written.append(f"picture: {settings.show}")
    if not written:
        written.append(
            "nothing was written; add --show out.png for a picture, "
            "or --mask mask.png for the mask."
        )
    return "\n".join([*lines, *written])


def _show(path: Path, image: Picture, mask: Mask, model: Segmenter) -> None:
    """Draw the photo and, beside it, the mask over it; the colours are named below."""
    from tagmask.show.overlay import legend, names_in
    from tagmask.show.seeds import shown_mask
    from tagmask.show.sheet import resize, save_picture, sheet, shown_size

    names = names_in(mask, model.classes)
    small = resize(image, shown_size(*image.shape[:2]))
    title = "mask" if names else "mask: all background"
    picture = sheet([[("photo", small), (title, shown_mask(image, mask))]])
    if names:
        picture = np.vstack([picture, legend(names, width=picture.shape[1])])
    save_picture(path, picture)
