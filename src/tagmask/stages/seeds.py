"""Seeds: one .npz of localisation maps per image of a catalog, resumable and shareable between processes.

A file holds ``classes`` (k,) int64, ``plain`` and ``refined`` (k, H, W) as uint8 (255 = 1) or float16, and ``size``
(H, W); no pickle.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from tqdm import tqdm

from tagmask.config import MapSettings, SeedSettings, check, parse_shard, write_section
from tagmask.data.catalog import Catalog
from tagmask.data.open import open_catalog
from tagmask.errors import ImageError, TagmaskError
from tagmask.files import DAMAGED, replacing, write_json
from tagmask.methods import method_for
from tagmask.models.classifier import Classifier
from tagmask.models.device import on_device
from tagmask.models.kinds import load_classifier
from tagmask.stages.maps import Image, Maps, make_maps
from tagmask.stages.resume import check_identity, drawn_identity, file_digest, launched_shard, told_skipped
from tagmask.training.classifier import FOLDER as CLASSIFIER_FOLDER

FOLDER = "2_seeds"
_AT_ONCE = 64  # images held in memory while they are sorted by shape


@dataclass
class Seeded:
    """What the stage did."""

    folder: Path
    made: int
    kept: int
    skipped: dict[str, str]  # name: why

    def summary(self) -> str:
        return "\n".join(
            [*told_skipped(self.skipped), f"seeds: {self.made} made, {self.kept} were there already, in {self.folder}"]
        )


def seed_catalog(settings: SeedSettings) -> Seeded:
    """Make the maps of every tagged image that has none yet."""
    check(settings)
    folder = settings.out / FOLDER
    model_folder = settings.model or settings.out / CLASSIFIER_FOLDER
    model = on_device(load_classifier(model_folder))
    catalog = open_catalog(settings)
    numbers = match_classes(catalog.classes, model)
    shard = (parse_shard(settings.shard) if settings.shard else None) or launched_shard()
    own = range(shard[0], len(catalog), shard[1])
    identity = {**_identity(settings, model, model_folder), "classes": list(catalog.classes)}
    files = (seed_file(folder, catalog.name(i)) for i in own)
    check_identity(folder, identity, settings.restart, "maps", files)
    if shard[0] == 0:
        write_section(settings.out / "config.toml", "seeds", settings)
    todo = {i for i in own if not _is_whole(seed_file(folder, catalog.name(i)), catalog.tags(i))}
    done = Seeded(folder, 0, len(own) - len(todo), {})
    with tqdm(total=len(own), initial=done.kept, desc="seeds", unit="image", disable=shard[0] > 0) as bar:
        batch = settings.batch if method_for(model, settings.method).batched else 1
        for group in _groups(catalog, own, todo, done.skipped, batch):
            images = [image for _, image in group]
            classes = [[numbers[c] for c in catalog.tags(i)] for i, _ in group]
            for (i, _), maps in zip(group, make_maps(model, images, classes, settings), strict=True):
                own_classes = Maps(catalog.tags(i), maps.plain, maps.refined)
                write_seeds(seed_file(folder, catalog.name(i)), own_classes, settings.dtype)
            made = sum(i in todo for i, _ in group)
            done.made += made
            bar.update(made)
    if done.skipped:
        write_json(folder / f"skipped_{shard[0]}_of_{shard[1]}.json", done.skipped)
    return done


class HasClasses(Protocol):
    """A network that names its classes."""

    @property
    def classes(self) -> Sequence[str]: ...


def match_classes(names: Iterable[str], model: HasClasses) -> list[int]:
    """For each class of a catalog its number in the model, by name."""
    known = {name: number for number, name in enumerate(model.classes)}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise TagmaskError(
            f"the model does not know the class {unknown[0]!r}"
            + (f" and {len(unknown) - 1} more" if len(unknown) > 1 else "")
            + f"; it was trained on: {', '.join(model.classes)}."
        )
    return [known[name] for name in names]


def seed_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.npz"


def write_seeds(path: Path, maps: Maps, dtype: str) -> None:
    """Write one image's maps; the file appears whole or not at all."""
    store = _to_uint8 if dtype == "uint8" else _to_float16
    size = np.array(maps.plain.shape[1:], dtype=np.int64)
    arrays: dict[str, Any] = {"classes": np.array(maps.classes, dtype=np.int64), "size": size}
    arrays |= {"plain": store(maps.plain), "refined": store(maps.refined)}
    with replacing(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, **arrays)


def read_seeds(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a seed file, maps as stored; a sentence where the file is missing or damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in ("classes", "size", "plain", "refined")}
    except FileNotFoundError:
        raise TagmaskError(f"{path} does not exist; make it with `tagmask seeds`.") from None
    except DAMAGED as error:
        raise TagmaskError(f"{path} is damaged ({error}); delete it and run `tagmask seeds` again.") from None
    if found["classes"].ndim != 1 or found["size"].shape != (2,):
        raise TagmaskError(f"{path} is damaged (no classes or size); delete it and run `tagmask seeds` again.")
    expected = (len(found["classes"]), *found["size"])
    if found["plain"].shape != expected or found["refined"].shape != expected:
        raise TagmaskError(f"{path} is damaged (maps are not {expected}); delete it and run `tagmask seeds` again.")
    return found


def _to_uint8(maps: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    rounded: np.ndarray[Any, Any] = np.rint(maps * 255).astype(np.uint8)
    return rounded


def _to_float16(maps: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return maps.astype(np.float16)


def _is_whole(path: Path, classes: Sequence[int]) -> bool:
    """Whether the maps of just these classes are there."""
    if not path.exists():
        return False
    try:
        return bool(read_seeds(path)["classes"].tolist() == list(classes))
    except TagmaskError:
        return False


def _groups(
    catalog: Catalog, own: range, todo: set[int], skipped: dict[str, str], batch: int
) -> Iterator[list[tuple[int, Image]]]:
    """Readable, tagged images in groups of equal shape, at most ``batch`` each; few are in memory at a time.

    The groups do not depend on what is still to do: the last digits of a map depend on the images beside it, and a
    stage that was stopped must end with the same files. A group with something to do is made whole.
    """
    for start in range(0, len(own), _AT_ONCE):
        together = own[start : start + _AT_ONCE]
        if todo.isdisjoint(together):
            continue
        shapes: dict[tuple[int, ...], list[tuple[int, Image]]] = {}
        for i in together:
            try:
                if not catalog.tags(i):
                    raise ImageError("it has no tags; add some to make maps of.")
                image = catalog.load_image(i)
            except ImageError as error:
                skipped[catalog.name(i)] = str(error)
                continue
            shapes.setdefault(image.shape, []).append((i, image))
        for same in shapes.values():
            groups = (same[first : first + batch] for first in range(0, len(same), batch))
            yield from (group for group in groups if not todo.isdisjoint(i for i, _ in group))


def _identity(settings: SeedSettings, model: Classifier, model_folder: Path) -> dict[str, Any]:
    """What makes these maps: the weights and every setting that changes a value."""
    changing = {name: getattr(settings, name) for name in MapSettings.__dataclass_fields__ if name != "batch"}
    changing["layers"] = settings.layers or model.map_layers
    listed = {name: list(value) if isinstance(value, tuple) else value for name, value in changing.items()}
    model_digest = file_digest(model_folder / "model.safetensors")
    return {"model": model_digest, "dtype": settings.dtype, **listed, **drawn_identity(settings)}
