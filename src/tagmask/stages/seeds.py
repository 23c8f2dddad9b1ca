"""Seeds: one .npz of localisation maps per image of a catalog, resumable.

A file holds ``classes`` (k,) int64, ``plain`` and ``refined`` (k, H, W) as uint8 (255 = 1) or
float16, and ``size`` (H, W); no pickle. At the end: the maps of one photo.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image as Pillow

from tagmask import layout
from tagmask.acr.localize import affinity as sum_affinity
from tagmask.config import (
    MapSettings,
    PhotoSettings,
    SeedSettings,
    check,
    settings_from,
)
from tagmask.config.run import Place
from tagmask.config.seeds import MAP_METHODS
from tagmask.data.catalog import Catalog
from tagmask.data.images import read_image
from tagmask.errors import ImageError, TagmaskError, enough_memory
from tagmask.features.cache import TokenStore
from tagmask.features.photo import photo_tokens, whole_patches
from tagmask.files import read_arrays, write_arrays
from tagmask.inference.maps import (
    PhotoMaps,
    block_range,
    make_maps,
    object_maps,
    photo_maps,
    predicted_classes,
    shows_objects,
    takes_tokens,
    token_maps,
)
from tagmask.labels import Picture
from tagmask.layout import seed_file
from tagmask.methods import method_for
from tagmask.models.classifier import Classifier
from tagmask.models.device import on_device
from tagmask.models.kinds import load_classifier
from tagmask.notes import Parts
from tagmask.progress import Bar
from tagmask.runs import record
from tagmask.runs.images import Made, match_classes, share_of, split_tags, tell_own_network
from tagmask.runs.memory import Watch, of_pool, resident
from tagmask.runs.processes import count_processes, each, few_threads, launched_shard
from tagmask.runs.run import Run
from tagmask.runs.timing import Probe, timed
from tagmask.runs.tokens import open_together

Loaded = TypeVar("Loaded")
_SMALLER = "use a smaller --size or --batch, or make the photo smaller."
_LONG = 4.0  # seconds of the maps of a photo beyond which they are only projected
SECONDS_OF_OBJECT_MAPS = 0.02  # of one photo, from kept tokens
_BYTES_OF_MAPS = 24  # of each pixel and tag: two maps, while they are enlarged and stored
_AT_ONCE = {"cpu": 16, "other": 64}  # images held in memory while they are sorted by shape


def made_from(run: Run, settings: SeedSettings) -> Parts:
    """Return what the maps are made from; ``batch`` changes only their last digits.

    Args:
        run: The run.
        settings: Those of the stage.
    """
    classifier = settings.model or run.out / layout.CLASSIFIER
    return record.made_from(settings, {"classifier": classifier}, unused=["batch"])


def seed_catalog(run: Run, settings: SeedSettings) -> Made:
    """Make the maps of every tagged image that has none yet.

    Args:
        run: The run.
        settings: Those of the stage.

    Returns:
        How many maps were made, and which images were skipped.

    Raises:
        TagmaskError: The classifier is missing or does not know a class, or the folder holds maps
            that were made with other settings.
    """
    model = on_device(load_classifier(settings.model or run.out / layout.CLASSIFIER))
    catalog = run.catalog
    numbers = match_classes(catalog.classes, model)
    window = _AT_ONCE["cpu" if model.mean.device.type == "cpu" else "other"]
    shard, indices = share_of(settings, catalog, window)
    done = Made("seeds", run.out / layout.SEEDS)
    files = {i: seed_file(done.folder, catalog.name(i)) for i in indices}
    parts = {**run.made_from("seeds", settings), "layers": settings.layers or model.map_layers}
    with run.team.first_goes_first():
        record.Record(done.folder, "**/*.npz").claim(
            parts, catalog, "maps", settings.restart, files.values()
        )
    if shard[0] == 0:
        run.keep(settings)
    todo = {i for i in indices if not _is_whole(files[i], catalog.tags(i))}
    done.kept = len(indices) - len(todo)
    work = _Work(model, numbers, catalog, settings, run.settings)
    items = []
    for start in range(0, len(indices), window):
        together = indices[start : start + window]
        if not todo.isdisjoint(together):
            items.append((together, todo.intersection(together)))
    open_together(run.team, work.store)
    quiet = shard[0] > 0
    with (
        Bar(len(indices), "seeds", initial=done.kept, quiet=quiet) as bar,
        few_threads(len(catalog)),
    ):
        processes = work.processes(len(catalog))
        results: Iterable[Made] = (work.write(item, bar) for item in items)
        if processes > 1:
            results = each(work.write, items, processes)
        for part in results:
            done.made += part.made
            done.skipped |= part.skipped
            done.notes += tuple(note for note in part.notes if note not in done.notes)
            bar.update(part.made if processes > 1 else 0)
    done.finish(run.team, shard, catalog)
    tell_own_network(run.out, settings, MapSettings, layout.CLASSIFIER, shard)
    return done


class _Work:
    """Maps of images by one classifier: sent to each process once."""

    def __init__(
        self,
        model: Classifier,
        numbers: list[int],
        catalog: Catalog,
        settings: SeedSettings,
        place: Place,
    ) -> None:
        self.model = model
        self.numbers = numbers
        self.catalog = catalog
        self.settings = settings
        self.folder = place.out / layout.SEEDS
        self.shows_objects = shows_objects(model, settings)
        self.store = _store(model, settings, place)

    def processes(self, images: int) -> int:
        """Return how many processes make maps, of so many images in all.

        By default it is one for each core, but one on a GPU or where tokens are still to be kept.
        It depends on all images, not on those left: the last digits of maps depend on the number of
        threads. A map method that is not built in is called in this process, where it is known.
        """
        if self.settings.processes:
            return self.settings.processes
        is_alone = self.model.mean.device.type != "cpu" or launched_shard()[1] > 1
        is_alone |= self.settings.method not in MAP_METHODS
        is_fresh = self.store is not None and not self.store.is_current
        return 1 if is_alone or is_fresh else count_processes(None, images)

    def write(self, item: tuple[Sequence[int], set[int]], bar: Any = None) -> Made:
        """Write the maps of the images of a window that are to do.

        Args:
            item: The window, and the indices in it whose maps are missing.
            bar: Counts the images one by one.

        Returns:
            How many were written, and which images were skipped.
        """
        window, todo = item
        done = Made("seeds", self.folder)
        for i, maps in _all_maps(self, window, todo, done):
            file = seed_file(done.folder, self.catalog.name(i))
            write_seeds(
                file, PhotoMaps(self.catalog.tags(i), maps.plain, maps.refined), self.settings.dtype
            )
            done.made += i in todo
            if bar is not None:
                bar.update(i in todo)
        return done


def _store(model: Classifier, settings: SeedSettings, place: Place) -> TokenStore | None:
    """Return the feature cache that maps are made from; None if photos are seen in another way."""
    if shows_objects(model, settings):
        assert model.finder is not None
        return TokenStore.features_of(
            model, model.finder.blocks, model.finder.size, place.out, place.tokens_limit
        )
    if takes_tokens(model, settings):
        return TokenStore.of(model, place.out, place.tokens_limit, place.tokens)
    return None


def _all_maps(
    work: _Work, window: Sequence[int], todo: set[int], done: Made
) -> Iterator[tuple[int, PhotoMaps]]:
    """Yield the maps of all images that are to do, from kept tokens where there are any."""
    model = work.model
    numbers = work.numbers
    catalog = work.catalog
    settings = work.settings
    store = work.store
    if store is None:
        batch = settings.batch if method_for(model, settings.method).batched else 1
        for group in _groups(catalog, window, todo, done.skipped, batch):
            classes = [[numbers[c] for c in catalog.tags(i)] for i, _ in group]
            try:
                with enough_memory(catalog.name(group[0][0]), _SMALLER):
                    made = make_maps(model, [image for _, image in group], classes, settings)
            except ImageError as error:
                done.skipped |= {catalog.name(i): str(error) for i, _ in group}
                continue
            yield from zip([i for i, _ in group], made, strict=True)
        return
    make = object_maps if work.shows_objects else partial(token_maps, settings=settings)
    for i, tokens in _tagged(catalog, sorted(todo), partial(store.get, catalog), done.skipped):
        yield i, make(model, tokens, [numbers[c] for c in catalog.tags(i)])
    done.notes += tuple(store.notes)


def write_seeds(path: Path, maps: PhotoMaps, dtype: str) -> None:
    """Write the maps of an image.

    Args:
        path: The file, ``.npz``.
        maps: From 0 to 1.
        dtype: How they are stored: "uint8" in 255 steps, or "float16".
    """
    write_arrays(path, **seed_arrays(maps, dtype))


def seed_arrays(maps: PhotoMaps, dtype: str) -> dict[str, Any]:
    """Return what a seed file holds.

    Args:
        maps: From 0 to 1.
        dtype: How they are stored: "uint8" in 255 steps, or "float16".
    """
    size = np.array(maps.plain.shape[1:], dtype=np.int64)
    arrays: dict[str, Any] = {"classes": np.array(maps.classes, dtype=np.int64), "size": size}
    for kind, values in (("plain", maps.plain), ("refined", maps.refined)):
        arrays[kind] = (
            np.rint(values * 255).astype(np.uint8)
            if dtype == "uint8"
            else values.astype(np.float16)
        )
    return arrays


def read_seeds(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of a seed file, maps as stored; raise TagmaskError if it is damaged."""
    seeds = read_arrays(path, ("classes", "size", "plain", "refined"), "tagmask seeds")
    whole = all(seeds[name].dtype.kind in "iu" for name in ("classes", "size"))
    if not whole or seeds["classes"].ndim != 1 or seeds["size"].shape != (2,):
        raise TagmaskError(
            f"{path} is damaged (no classes or size); delete it and run `tagmask seeds` again."
        )
    expected = (len(seeds["classes"]), *seeds["size"])
    if seeds["plain"].shape != expected or seeds["refined"].shape != expected:
        raise TagmaskError(
            f"{path} is damaged (maps are not {expected}); delete it and run `tagmask seeds` again."
        )
    return seeds


def check_seeds(seeds: Mapping[str, Any], catalog: Catalog) -> None:
    """Refuse maps of classes that the images do not have.

    Args:
        seeds: What ``read_seeds`` returned.
        catalog: The images.

    Raises:
        TagmaskError: A map is of another class.
    """
    wrong = [
        number for number in seeds["classes"].tolist() if not 0 <= number < len(catalog.classes)
    ]
    if wrong:
        raise TagmaskError(
            f"the seeds are of class {wrong[0]}, but there are {len(catalog.classes)}; "
            "run `tagmask seeds` again."
        )


def as_float(maps: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return stored maps as numbers from 0 to 1."""
    return maps.astype(np.float32) / np.float32(255 if maps.dtype == np.uint8 else 1)


def estimate(probe: Probe) -> float:
    """Return the seconds of an image."""
    settings = probe.run.of(SeedSettings)
    model = probe.task.classifier.eval()
    probe.unseen.append(probe.shared["classifier"])
    if probe.training.objects and settings.objects is not False:
        return SECONDS_OF_OBJECT_MAPS
    if takes_tokens(model, settings) and model.fixed_views is not None:
        size, first = model.fixed_views
        kept = photo_tokens(model, first, size, probe.image)  # by the training
        return timed(lambda: token_maps(model, kept, probe.classes, settings))
    half = tuple(scale / 2 for scale in settings.scales)
    small = dataclasses.replace(settings, scales=half)
    before = resident()
    with Watch() as watch:
        seconds = 4 * timed(lambda: make_maps(model, [probe.image], [probe.classes], small))
    if seconds > _LONG and model.mean.device.type == "cpu":
        probe.unseen.append(3.0 * (watch.highest - before))
        return seconds
    return timed(lambda: make_maps(model, [probe.image], [probe.classes], settings))


def memory(probe: Probe, one: float) -> float:
    """Return the bytes of the stage.

    Args:
        probe: Settings and an image.
        one: Bytes of a process that makes the maps of a photo.
    """
    settings = probe.run.of(SeedSettings)
    is_alone = probe.task.classifier.mean.device.type != "cpu" or launched_shard()[1] > 1
    default = 1 if is_alone else count_processes(None, len(probe.catalog))
    values = probe.image[..., 0].size * max(1, len(probe.classes))
    return of_pool(one + values * _BYTES_OF_MAPS, settings.processes or default)


def _is_whole(path: Path, classes: Sequence[int]) -> bool:
    """Return True if the maps of exactly these classes are there."""
    with suppress(TagmaskError):
        return path.exists() and bool(read_seeds(path)["classes"].tolist() == list(classes))
    return False


def _groups(
    catalog: Catalog, window: Sequence[int], todo: set[int], skipped: dict[str, str], batch: int
) -> Iterator[list[tuple[int, Picture]]]:
    """Yield readable, tagged images of a window in groups of equal shape, ``batch`` at most.

    The groups do not depend on what is left to do: the last digits of a map depend on the images in
    its batch, and a stage that was stopped must end with the same files. If any image of a group is
    left, the whole group is made.
    """
    shapes: dict[tuple[int, ...], list[tuple[int, Picture]]] = {}
    for i, image in _tagged(catalog, window, catalog.load_image, skipped):
        shapes.setdefault(image.shape, []).append((i, image))
    for same in shapes.values():
        groups = (same[first : first + batch] for first in range(0, len(same), batch))
        yield from (group for group in groups if not todo.isdisjoint(i for i, _ in group))


def _tagged(
    catalog: Catalog, indices: Iterable[int], load: Callable[[int], Loaded], skipped: dict[str, str]
) -> Iterator[tuple[int, Loaded]]:
    """Yield items with tags and what ``load`` gives for them; others go into ``skipped``."""
    for i in indices:
        try:
            if not catalog.tags(i):
                raise ImageError("it has no tags; add tags to make maps.")
            loaded = load(i)
        except ImageError as error:
            skipped[catalog.name(i)] = str(error)
        else:
            yield i, loaded


def localize(
    model: Any,
    photo: str | Path | Pillow.Image | Picture,
    tags: Sequence[str] | None = None,
    *,
    affinity: bool = True,
    **settings: Any,
) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    """Return localisation maps of one photo at its own size, by class name: (H, W) in [0, 1].

    Args:
        model: what ``tagmask.load`` returns, or a classifier.
        photo: a path, a PIL image, or uint8 (H, W, 3).
        tags: class names to localise; default: those the model itself sees.
        affinity: refined by patch affinity (ACR) or not (ACR*).
        settings: those of ``tagmask.config.MapSettings``, e.g. ``scales=(0.75, 1.0)``; by default
            what the run decided that trained the model.
    """
    model = getattr(model, "classifier", model)
    image = pixels(photo)
    options = settings_from(MapSettings, model.use, settings)
    classes = (
        match_classes(tags, model) if tags is not None else predicted_classes(model, image, options)
    )
    maps = photo_maps(model, image, classes, options)
    values = maps.refined if affinity else maps.plain
    return {model.classes[c]: values[k] for k, c in enumerate(classes)}


def pixels(photo: str | Path | Pillow.Image | Picture) -> Picture:
    """Return a photo as uint8 (H, W, 3), from a path, a PIL image or such an array."""
    if isinstance(photo, (str, Path)):
        return read_image(Path(photo))
    array = np.asarray(photo.convert("RGB")) if isinstance(photo, Pillow.Image) else photo
    if array.ndim != 3 or array.shape[2] != 3 or array.dtype != np.uint8:
        raise TagmaskError(
            f"the photo is {array.dtype} {array.shape}; "
            "give a path, a PIL image, or uint8 (H, W, 3)."
        )
    return array


def seed_photo(settings: PhotoSettings) -> str:
    """Make the maps of a photo for the command line, and return what to print."""
    check(settings)
    model = on_device(load_classifier(settings.model))
    image = read_image(settings.photo)
    names = split_tags(settings.tags)
    classes = (
        match_classes(names, model)
        if names is not None
        else predicted_classes(model, image, settings)
    )
    with enough_memory(str(settings.photo), _SMALLER):
        maps = photo_maps(model, image, classes, settings)
    lines = [f"classes: {', '.join(model.classes[c] for c in classes)}"]
    if names is None:
        lines[0] += " (seen by the model; name them with --tags)"
    if settings.out is not None:
        write_seeds(settings.out, maps, "float16")
        lines.append(f"maps: {settings.out}")
    if settings.show is not None:
        from tagmask.show.seeds import seed_sheet
        from tagmask.show.sheet import save_picture

        shown = [model.classes[c] for c in classes]
        save_picture(settings.show, seed_sheet(image, shown, maps.plain, maps.refined))
        lines.append(f"picture: {settings.show}")
    if settings.show_affinity is not None:
        _show_affinity(settings.show_affinity, image, maps, model, settings)
        lines.append(f"affinity: {settings.show_affinity}")
    if len(lines) == 1:
        lines.append(
            "nothing was written; add --show out.png for a picture, or --out maps.npz for the maps."
        )
    return "\n".join(lines)


def patch_affinity(
    model: Classifier, image: Picture, settings: MapSettings
) -> tuple[np.ndarray[Any, Any], tuple[int, int]]:
    """Return the affinity (n, n) that refines maps, and its grid, of a photo.

    Args:
        model: The classifier.
        image: uint8 (H, W, 3); it is squeezed to whole patches.
        settings: Size, and the blocks whose attention is taken.
    """
    picture, grid = whole_patches(model, settings.size or model.crop_size, image)
    with torch.no_grad():
        _, attention = model.attend(picture, block_range(settings.affinity_blocks))
    return sum_affinity(attention, model.class_tokens)[0].cpu().numpy(), grid


def _show_affinity(
    path: Path, image: Picture, maps: PhotoMaps, model: Classifier, settings: MapSettings
) -> None:
    """Draw what chosen source pixels attend to (red crosses), and the affinity matrix."""
    from tagmask.show.affinity import affinity_matrix, affinity_of_pixels, default_points
    from tagmask.show.sheet import save_picture, sheet

    matrix, grid = patch_affinity(model, image, settings)
    sources = affinity_of_pixels(image, matrix, grid, default_points(maps.refined))
    save_picture(
        path,
        sheet(
            [
                [("affinity of source pixels", sources)],
                [("affinity matrix", affinity_matrix(matrix))],
            ]
        ),
    )
