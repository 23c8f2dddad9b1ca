"""Work on one file per image: which images this process has, and what was done."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tagmask.config import Settings, parse_shard, use_of
from tagmask.data.catalog import Catalog
from tagmask.data.corrections import digest_in
from tagmask.data.images import read_mask
from tagmask.errors import OutputError, TagmaskError, enough_memory
from tagmask.files import write_json
from tagmask.layout import skipped_file
from tagmask.models.classifier import Classifier
from tagmask.models.kinds import Segmenter
from tagmask.models.storage import write_network_use
from tagmask.progress import track
from tagmask.runs.processes import count_processes, each, launched_shard
from tagmask.runs.team import Team

_SHOWN = 10  # skipped images that are listed


@dataclass
class Made:
    """Files that a stage has made."""

    what: str  # in the plural
    folder: Path
    made: int = 0
    kept: int = 0
    skipped: dict[str, str] = field(default_factory=dict)  # name: why
    notes: tuple[str, ...] = ()
    found: str = ""  # a line on what the files hold

    def summary(self) -> str:
        """Return lines for the terminal: notes, skipped images, counts, and what was found."""
        counts = f"{self.what}: {self.made} made, {self.kept} already there, in {self.folder}"
        found = [self.found] if self.found else []
        return "\n".join([*self.notes, *list_skipped(self.skipped), counts, *found])

    def finish(self, team: Team, shard: tuple[int, int], catalog: Catalog) -> None:
        """Write the skipped images into a file, if there are any.

        The processes of a whole run first add up what each of them has done.

        Args:
            team: The processes of the run.
            shard: Part i of n that this process has had.
            catalog: All images.
        """
        if team.count > 1:
            self.made = sum(team.gather(self.made))
            self.kept = sum(team.gather(self.kept))
            skipped: dict[str, str] = {}
            for part in team.gather(self.skipped):
                skipped |= part
            notes: dict[str, None] = {}
            for words in team.gather(list(self.notes)):
                notes |= dict.fromkeys(words)
            names = (catalog.name(i) for i in range(len(catalog)))
            self.skipped = {name: skipped[name] for name in names if name in skipped}
            self.notes = tuple(notes)
            shard = (0, 1)
        if self.skipped and team.is_first:
            write_json(skipped_file(self.folder, shard), self.skipped)


def list_skipped(skipped: Mapping[str, str]) -> list[str]:
    """Return lines on the images that were skipped and why, the first ten of them."""
    if not skipped:
        return []
    lines = [f"{len(skipped)} images were skipped:"]
    for name, why in list(skipped.items())[:_SHOWN]:
        lines.append(f"  {name}: {why}")
    if len(skipped) > _SHOWN:
        lines.append(f"  … and {len(skipped) - _SHOWN} more")
    return lines


def share_of(settings: Any, catalog: Catalog, piece: int = 1) -> tuple[tuple[int, int], list[int]]:
    """Return which part of the images this process has.

    Args:
        settings: Settings of a stage; without a ``shard`` the launcher's processes share the work.
        catalog: All images.
        piece: So many images that follow each other stay together, from the first one on; what is
            made of images at once is then the same with any number of parts.

    Returns:
        Part i of n as (i, n), and the indices of its images.
    """
    shard = parse_shard(settings.shard) if settings.shard else None
    first, count = shard or launched_shard()
    indices: list[int] = []
    for start in range(first * piece, len(catalog), count * piece):
        indices += range(start, min(start + piece, len(catalog)))
    return (first, count), indices


def tell_own_network(
    out: Path, settings: Any, kind: type[Settings], folder: str, shard: tuple[int, int]
) -> None:
    """Tell the network that a stage has used how it is to be used, if it is the run's own.

    Args:
        out: the folder of the run.
        settings: those of the stage.
        kind: the base class of those that the network is told.
        folder: where the network is in the run.
        shard: part i of n that this process has; the first one tells.
    """
    own = out / folder
    is_own = settings.model is None or settings.model.resolve() == own.resolve()
    if is_own and shard[0] == 0:
        write_network_use(own, use_of(kind, settings))


def match_classes(names: Iterable[str], model: Classifier | Segmenter) -> list[int]:
    """Return the model's number of each class of a catalog, or of each tag of a photo, by name.

    A name that differs from one class in capitals alone means that class.

    Args:
        names: Names of the classes.
        model: Network with the names of its classes.

    Returns:
        One number per name.

    Raises:
        TagmaskError: If the model does not know a class.
    """
    names = list(names)
    numbers = {name: number for number, name in enumerate(model.classes)}
    for name in [name for name in names if name not in numbers]:
        alike = [number for number, own in enumerate(model.classes) if _is_same_word(name, own)]
        # two names for one class would hide a mistake
        if len(alike) == 1 and not any(numbers.get(other) == alike[0] for other in names):
            numbers[name] = alike[0]
    unknown = [name for name in names if name not in numbers]
    if unknown:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        known = ", ".join(model.classes)
        raise TagmaskError(
            f"the model does not know the class {unknown[0]!r}{more}; it was trained on: {known}."
        )
    return [numbers[name] for name in names]


def _is_same_word(first: str, second: str) -> bool:
    """Return True if two names differ in capitals alone."""
    return first.casefold() == second.casefold()


def is_readable(read: Callable[..., Any], path: Path, *arguments: Any) -> bool:
    """Return True if a file that an earlier run may have left can be read.

    Args:
        read: Reads the file, or raises TagmaskError.
        path: The file.
        *arguments: Further arguments of ``read``.
    """
    try:
        read(path, *arguments)
    except TagmaskError:
        return False
    return True


def is_current(file: Path, catalog: Catalog, i: int) -> bool:
    """Return True if a mask is there, and made with what a person has corrected in it.

    Args:
        file: The mask.
        catalog: Images and corrections.
        i: Index of the image in the catalog.
    """
    if not is_readable(read_mask, file, len(catalog.classes)):
        return False
    return digest_in(file) == catalog.correction_digest(i)


def split_tags(tags: str | None, flag: str = "--tags") -> list[str] | None:
    """Return the names in a list such as dog,sofa or dog;sofa; None if there is no list.

    Args:
        tags: The list as it was typed.
        flag: The flag that it was typed after, for messages.
    """
    if tags is None:
        return None
    names = [tag.strip() for tag in re.split("[,;]", tags)]
    if not all(names):
        raise TagmaskError(f"{flag} {tags!r} contains an empty tag; write, for example, dog,sofa.")
    return names


def each_image(
    work: Callable[[int], Any],
    catalog: Catalog,
    todo: Sequence[int],
    processes: int | None,
    title: str,
    quiet: bool,
    take: Callable[[int, Any], None] | None = None,
) -> dict[str, str]:
    """Do the work of a stage for each image.

    Args:
        work: Does it for one image, by its index; processes are sent it.
        catalog: Images, for their names.
        todo: Indices of the images.
        processes: Number of processes; None leaves the choice to ``count_processes``.
        title: Title of the progress bar.
        quiet: Show no progress bar.
        take: Called with the index of each image that did not fail, and what ``work`` returned.

    Returns:
        Names of the images that failed, with the reason.
    """
    count = count_processes(processes, len(todo))
    results = each(partial(_attempt, work), todo, count, chunksize=8)
    bar = track(results, title, len(todo), quiet=quiet)
    skipped: dict[str, str] = {}
    for i, (why, result) in zip(todo, bar, strict=True):
        if why:
            skipped[catalog.name(i)] = why
        elif take is not None:
            take(i, result)
    return skipped


def _attempt(work: Callable[[int], Any], i: int) -> tuple[str, Any]:
    """Do the work for item ``i``; return why it failed, empty if it did not, and its result."""
    try:
        with enough_memory(f"image {i}", "use --crf-size 1024, or make the photo smaller."):
            return "", work(i)
    except OutputError:
        # without its file the stage would look done, and the next ones would learn from less
        raise
    except TagmaskError as error:
        return str(error), None
