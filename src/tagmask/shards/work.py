"""The work on shards: each one is done when its note is there and fits input, settings and weights.

The data of a shard are written first, its note last. So whatever ends a process, and wherever, a
shard is seen as done only if it is whole; done again, it has the same bytes.
"""

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Protocol

from tagmask import layout
from tagmask.errors import TagmaskError
from tagmask.notes import Parts, differences, shorten
from tagmask.shards.samples import Failures, Sample, ShardError
from tagmask.shards.source import Shard
from tagmask.shards.storage import Folder, child, digest_of, shown

NOTE = ".note.json"


class Task(Protocol):
    """What is done with a shard."""

    @property
    def what(self) -> str:
        """Return what comes out, in the plural."""

    @property
    def suffix(self) -> str:
        """Return the suffix of the file that comes out."""

    def prepare(self) -> None:
        """Load what is needed once."""

    def about(self) -> dict[str, Any]:
        """Return what a note says besides what all notes say."""

    def check(self, shard: Shard) -> None:
        """Refuse a shard that the task is not for."""

    def write(
        self, name: str, samples: Iterator[Sample], failed: Failures, file: IO[bytes], tell: Any
    ) -> int:
        """Write what is made from a shard of this name, and return from how many images.

        Args:
            name: Of the shard.
            samples: Its images.
            failed: Gets those that cannot be used.
            file: What is written to.
            tell: Called after each image.
        """


@dataclass
class Outcome:
    """What became of a shard."""

    name: str
    images: int = 0
    failed: int = 0
    why: dict[str, str] = field(default_factory=dict)  # of some of the images that failed
    kept: bool = False  # it was done before
    error: str = ""  # why the whole shard cannot be used


@dataclass(frozen=True)
class Job:
    """A task on shards; processes and actors are sent it.

    Args:
        task: what is done.
        shards: with what.
        to: where the results go.
        parts: the settings and weights that the results depend on.
        restart: do shards again that are done.
    """

    task: Task
    shards: Sequence[Shard]
    to: Folder
    parts: Parts
    restart: bool = False

    def claim(self) -> None:
        """Refuse to mix what is made with files that are there; note what is made.

        Raises:
            TagmaskError: the folder holds files of another kind, or made with other settings.
        """
        parts = _plain(self.parts)
        note = self.to.read_json(layout.MADE_BY)
        if note is None:
            here = self.to.list()
            names = [name for shard in self.shards for name in self._files(shard)]
            foreign = [name for name in names if name in here]
            if foreign or layout.MADE_BY in here:
                first = foreign[0] if foreign else layout.MADE_BY
                raise TagmaskError(
                    f"--to {self.to} holds {first}, which `tagmask` did not write there; "
                    "choose another folder."
                )
        elif note.get("shards") != self.task.what:
            raise TagmaskError(
                f"--to {self.to} holds {note.get('shards', 'other files')}, not "
                f"{self.task.what}; choose another folder."
            )
        elif not self.restart:
            changed = differences(note.get("made_from", {}), parts)
            if changed:
                raise TagmaskError(
                    f"--to {self.to} holds {self.task.what} made with other settings or inputs "
                    f"({shorten(changed, 5)}); choose another folder, or add --restart."
                )
        value = {"shards": self.task.what, "made_from": parts}
        if note != value:
            self.to.put_json(layout.MADE_BY, value)

    def _files(self, shard: Shard) -> tuple[str, str]:
        """Return the data and the note of a shard."""
        return shard.name + self.task.suffix, shard.name + NOTE

    def do(self, number: int, tell: Any = lambda: None) -> Outcome:
        """Do one shard, unless it is done.

        Args:
            number: which.
            tell: called after each image.

        Returns:
            What became of it; a damaged shard is told, not raised.
        """
        shard = self.shards[number]
        try:
            return self._attempt(shard, tell)
        except ShardError as error:
            return Outcome(shard.name, error=str(error))

    def _attempt(self, shard: Shard, tell: Any) -> Outcome:
        data, note_file = self._files(shard)
        note = self.to.read_json(note_file)
        if note is not None and not self.restart and self._fits(note, shard):
            return Outcome(shard.name, note["images"], note["failed"], kept=True)
        failed = Failures()
        with tempfile.TemporaryFile() as file:
            self.task.check(shard)
            with shard.opened(failed) as (identity, samples):
                images = self.task.write(shard.name, samples, failed, file, tell)
            if not images:
                first = next(iter(failed.why.items()), ("", "it is empty"))
                raise ShardError(f"{shard} holds no image that can be used ({': '.join(first)})")
            digest = digest_of(file)
            file.seek(0, 2)
            size = file.tell()
            # an old note must not vouch for new data
            if self.to.find(note_file) is not None:
                self.to.remove(note_file)
            self.to.put(data, file)
        value = {
            "shard": shard.name,
            "what": self.task.what,
            "images": images,
            "failed": failed.count,
            "why": failed.why,
            **self.task.about(),
            "bytes": size,
            "sha256": digest,
            "input": identity,
            "made_from": _plain(self.parts),
        }
        self.to.put_json(note_file, value)
        return Outcome(shard.name, images, failed.count, failed.why)

    def _fits(self, note: dict[str, Any], shard: Shard) -> bool:
        """Return True if a note vouches for what would be made."""
        stored = self.to.find(self._files(shard)[0])
        numbers = (note.get("images"), note.get("failed"), note.get("bytes"))
        if stored is None or not all(isinstance(number, int) for number in numbers):
            return False
        if stored.size != note["bytes"] or note.get("made_from") != _plain(self.parts):
            return False
        return shard.fits(note.get("input"))


def read_note(folder: Folder, name: str) -> dict[str, Any]:
    """Return the note of a shard that is done.

    Args:
        folder: where it is.
        name: that of the shard.

    Raises:
        ShardError: there is no note, or its data are not those that it vouches for.
    """
    note = folder.read_json(name + NOTE)
    place = shown(child(folder.address, name))
    if note is None:
        raise ShardError(f"{place}{NOTE} is missing: the shard is not finished; make it first.")
    return note


def _plain(parts: Parts) -> Parts:
    """Return parts as JSON gives them back."""
    plain: Parts = json.loads(json.dumps(parts, default=str))
    return plain
