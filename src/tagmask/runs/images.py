"""Shared by the stages that write one file per image: which images this process has, and what was done."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from tagmask.config import Settings, parse_shard, use_of
from tagmask.data.catalog import Catalog
from tagmask.data.corrections import digest_in
from tagmask.data.images import read_mask
from tagmask.errors import TagmaskError, enough_memory
from tagmask.files import write_json
from tagmask.layout import skipped_file
from tagmask.models.classifier import Classifier
from tagmask.models.kinds import Segmenter
from tagmask.models.storage import write_network_use
from tagmask.runs.processes import count_processes, each, launched_shard

Image = np.ndarray[Any, np.dtype[np.uint8]]  # (H, W, 3)


@dataclass
class Made:
    """What a stage has made."""

    what: str  # in the plural
    folder: Path
    made: int = 0
    kept: int = 0
    skipped: dict[str, str] = field(default_factory=dict)  # name: why
    notes: tuple[str, ...] = ()

    def summary(self) -> str:
        counts = f"{self.what}: {self.made} made, {self.kept} already there, in {self.folder}"
        return "\n".join([*self.notes, *list_skipped(self.skipped), counts])

    def write_skipped(self, shard: tuple[int, int]) -> None:
        if self.skipped:
            write_json(skipped_file(self.folder, shard), self.skipped)


def list_skipped(skipped: Mapping[str, str]) -> list[str]:
    """Lines on the images that were skipped and why, the first ten of them."""
    lines = [f"{len(skipped)} images were skipped:"] if skipped else []
    lines += [f"  {name}: {why}" for name, why in list(skipped.items())[:10]]
    return lines + ([f"  … and {len(skipped) - 10} more"] if len(skipped) > 10 else [])


def share_of(settings: Any, catalog: Catalog) -> tuple[tuple[int, int], range]:
    """Part i of n that this process has, and its images."""
    shard = (parse_shard(settings.shard) if settings.shard else None) or launched_shard()
    return shard, range(shard[0], len(catalog), shard[1])


def tell_own_network(
    settings: Any, kind: type[Settings], folder: str, shard: tuple[int, int]
) -> None:
    """Tell the network that a stage has used how it is to be used, if it is the run's own.

    Args:
        settings: those of the stage.
        kind: the base class of those that the network is told.
        folder: where the network is in the run.
        shard: part i of n that this process has; the first one tells.
    """
    own = settings.out / folder
    is_own = settings.model is None or settings.model.resolve() == own.resolve()
    if is_own and shard[0] == 0:
        write_network_use(own, use_of(kind, settings))


def match_classes(names: Iterable[str], model: Classifier | Segmenter) -> list[int]:
    """For each class of a catalog its number in the model, by name."""
    numbers = {name: number for number, name in enumerate(model.classes)}
    unknown = [name for name in names if name not in numbers]
    if unknown:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        known = ", ".join(model.classes)
        raise TagmaskError(
            f"the model does not know the class {unknown[0]!r}{more}; it was trained on: {known}."
        )
    return [numbers[name] for name in names]


def is_readable(read: Callable[..., Any], path: Path, *arguments: Any) -> bool:
    """Whether ``read`` can read the file that an earlier run may have left."""
    try:
        read(path, *arguments)
    except TagmaskError:
        return False
    return True


def is_current(file: Path, catalog: Catalog, i: int) -> bool:
    """Whether the mask of item ``i`` is there, and made with what a person has corrected in it."""
    return is_readable(read_mask, file, len(catalog.classes)) and digest_in(
        file
    ) == catalog.correction_digest(i)


def split_tags(tags: str | None) -> list[str] | None:
    """The names in a list such as dog,sofa."""
    names = [tag.strip() for tag in tags.split(",")] if tags is not None else None
    if names is not None and not all(names):
        raise TagmaskError(f"--tags {tags!r} contains an empty tag; write, for example, dog,sofa.")
    return names


def each_image(
    work: Callable[[int], None],
    catalog: Catalog,
    todo: Sequence[int],
    processes: int | None,
    title: str,
    quiet: bool,
) -> dict[str, str]:
    """Do ``work`` for each image; returns those that failed, with the reason."""
    skipped: dict[str, str] = {}
    results = each(
        partial(_attempt, work), todo, count_processes(processes, len(todo)), chunksize=8
    )
    for i, why in zip(
        todo, tqdm(results, title, len(todo), unit="image", disable=quiet), strict=True
    ):
        if why:
            skipped[catalog.name(i)] = why
    return skipped


def _attempt(work: Callable[[int], None], i: int) -> str:
    """Why item ``i`` failed; empty if it did not."""
    try:
        with enough_memory(f"image {i}", "use --crf-size 1024, or make the photo smaller."):
            work(i)
    except TagmaskError as error:
        return str(error)
    return ""
