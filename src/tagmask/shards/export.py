"""Shards of masks as other tools read them: a file for each shard."""

import dataclasses
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

from tagmask.config.shards import ExportShardsSettings
from tagmask.data.images import Picture, read_mask, strip_suffix, walk
from tagmask.data.tools import is_list_of_texts
from tagmask.errors import ImageError, TagmaskError
from tagmask.exchange.export import FORMATS
from tagmask.exchange.items import Labelled
from tagmask.notes import Parts
from tagmask.runs import record
from tagmask.shards.samples import Failures, Sample, ShardError
from tagmask.shards.source import Shard, open_shards
from tagmask.shards.storage import CHUNK
from tagmask.shards.tars import TarShard, TarWriter
from tagmask.shards.tasks import ELSEWHERE, Tell
from tagmask.shards.work import read_note

_FILES = {"coco": "masks.json", "table": "areas.csv"}  # the others write folders


class ExportTask:
    """Write the masks of a shard in one of the formats of ``tagmask export``.

    Args:
        settings: those of the command.
        classes: names of the labels 1, 2, …
        photos: the shards of the photos by name, if the format shows them.
    """

    def __init__(
        self, settings: ExportShardsSettings, classes: Sequence[str], photos: dict[str, Shard]
    ) -> None:
        self.settings = settings
        self.classes = list(classes)
        self.photos = photos
        self.what = f"{settings.format} files"
        self.suffix = ".json" if settings.format == "coco" else ".tar"

    def made_from(self) -> Parts:
        """Return the settings that the files depend on."""
        parts = record.made_from(self.settings, unused=ELSEWHERE)
        return {**parts, "classes": self.classes}

    def prepare(self) -> None:
        """Load nothing."""

    def about(self) -> dict[str, Any]:
        """Return the names of the labels."""
        return {"classes": self.classes}

    def check(self, shard: Shard) -> None:
        """Refuse a shard that is not finished, or whose masks are of other classes.

        Raises:
            ShardError: it cannot be exported.
        """
        if mask_classes(shard) != self.classes:
            raise ShardError(f"{shard} holds masks of other classes; export it by itself.")

    def write(
        self, name: str, samples: Iterator[Sample], failed: Failures, file: IO[bytes], tell: Tell
    ) -> int:
        """Write the masks of a shard.

        Args:
            name: that of the shard.
            samples: its masks.
            failed: gets those that cannot be used.
            file: where to write.
            tell: called after each mask.

        Returns:
            How many masks were used.

        Raises:
            ShardError: there are no photos to go with the masks.
        """
        form = self.settings.format
        writer = FORMATS[form]
        known = {field.name for field in dataclasses.fields(self.settings)}
        options = {key: getattr(self.settings, key) for key in writer.options if key in known}
        with tempfile.TemporaryDirectory(prefix="tagmask-") as folder:
            target = Path(folder, _FILES.get(form, "files"))
            items = self._labelled(name, samples, failed, tell)
            done = writer.write(items, self.classes, target, **options)
            if self.suffix == ".tar":
                _pack(target if target.is_dir() else target.parent, file)
            else:
                with target.open("rb") as source:
                    shutil.copyfileobj(source, file, CHUNK)
        return done.images

    def _labelled(
        self, name: str, samples: Iterator[Sample], failed: Failures, tell: Tell
    ) -> Iterator[Labelled]:
        """Yield the masks of a shard, with the photos if the format shows them."""
        photos = self._photos_of(name)
        for sample in samples:
            tell()
            try:
                mask = read_mask(Path(f"{sample.key}.png"), len(self.classes), sample.content)
                picture = None if photos is None else _photo_of(sample.key, photos)
            except ImageError as error:
                failed.add_error(sample.key, error)
                continue
            file = sample.file()
            tags = tuple(tag for tag in sample.known_tags() if tag in self.classes)
            show = None if picture is None else partial(_same, picture)
            yield Labelled(strip_suffix(file), mask, Path(file), show, tags)

    def _photos_of(self, name: str) -> Iterator[Sample] | None:
        """Return the photos that the masks of a shard were made from, in order."""
        if self.settings.photos is None:
            return None
        if name not in self.photos:
            raise ShardError(f"there is no shard {name} of photos; check --photos.")
        return self.photos[name].samples(Failures())


def _photo_of(key: str, photos: Iterator[Sample]) -> Picture:
    """Return the photo of a mask; masks are in the order of their photos."""
    for photo in photos:
        if photo.key == key:
            return photo.picture()
    raise ImageError("its photo is not in the shard of photos.")


def _same(picture: Picture) -> Picture:
    return picture


def _pack(folder: Path, file: IO[bytes]) -> None:
    """Write all files of a folder into a tar, by name."""
    writer = TarWriter(file)
    for name in sorted(walk(folder)):
        writer.add(name, (folder / name).read_bytes())
    writer.close()


def mask_classes(shard: Shard) -> list[str]:
    """Return the names of the labels of a finished shard of masks.

    Raises:
        ShardError: it is not finished, or no shard of masks.
    """
    if not isinstance(shard, TarShard):
        raise ShardError(f"{shard} is no shard of masks; name the folder that predict wrote to.")
    note = read_note(shard.folder, shard.name)
    classes = note.get("classes")
    if note.get("what") != "masks" or not is_list_of_texts(classes):
        raise ShardError(f"{shard} is no shard of masks; name the folder that predict wrote to.")
    if note.get("bytes") != shard.stored.size:
        raise ShardError(f"{shard} is not what its note vouches for; make it again.")
    return classes


def export_task(settings: ExportShardsSettings, shards: Sequence[Shard]) -> ExportTask:
    """Return the task of an export.

    Args:
        settings: those of the command.
        shards: shards of masks, with the notes of whoever made them.

    Raises:
        TagmaskError: none of them is a finished shard of masks.
    """
    why = ""
    for shard in shards:
        try:
            classes = mask_classes(shard)
            break
        except ShardError as error:
            why = why or str(error)
    else:
        raise TagmaskError(why)
    photos: dict[str, Shard] = {}
    if settings.photos is not None:
        photos = {photo.name: photo for photo in open_shards(settings.photos, settings)}
    return ExportTask(settings, classes, photos)
