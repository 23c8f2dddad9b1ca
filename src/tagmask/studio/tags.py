"""The table of tags that a person works on: ``tags.csv`` in the folder of the run."""

import csv
import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tagmask.data.folder import read_folder
from tagmask.data.report import Mistakes
from tagmask.data.table import clean_tag, read_table
from tagmask.errors import TagmaskError
from tagmask.files import write_text
from tagmask.studio.photos import Photo

TABLE = "tags.csv"
# what the last run was made from: masks and classes belong to it
TABLE_OF_RUN = "tags_of_run.csv"


def digest(tags: Iterable[str]) -> str:
    """Return a short hash of the tags of a photo, whatever their order."""
    text = "\0".join(sorted(tags))
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def tags_of_folders(photos: Iterable[Photo]) -> dict[str, str]:
    """Return the tags that the folders of photos stand for, by the name of the folder.

    As on the command line it is the first folder of a photo's path. A name that cannot be a tag is
    left out.
    """
    tags = {}
    for photo in photos:
        folder, slash, _ = photo.file.partition("/")
        if slash and folder not in tags:
            with suppress(TagmaskError):
                tags[folder] = clean_tag(folder)
    return tags


class TagTable:
    """Tags by photo, written to a file after every change.

    Args:
        file: The table; it is read if it is there.
        photos: All photos.
    """

    def __init__(self, file: Path, photos: Sequence[Photo]) -> None:
        self.file = file
        self._photos = photos
        self._tags: list[tuple[str, ...]] = [()] * len(photos)
        if file.is_file():
            self._read()

    def __getitem__(self, i: int) -> tuple[str, ...]:
        return self._tags[i]

    def _read(self) -> None:
        mistakes = Mistakes(self.file)
        table = read_table(self.file, mistakes)
        mistakes.raise_if_any()
        rows = {row.file: row.tags for row in table.rows}
        self._tags = [tuple(sorted(rows.get(photo.file, ()))) for photo in self._photos]

    def take_over(self, images: Path, tags: Path | None) -> None:
        """Take the tags that are there already, as the command line reads them.

        Args:
            images: Folder of the photos.
            tags: A table or a tool's file; None: one sub-folder per tag.
        """
        catalog = read_folder(images, tags)
        known = {}
        for item in catalog:
            known[item.name] = tuple(catalog.classes[tag] for tag in item.tags)
        self._tags = [known.get(photo.name, ()) for photo in self._photos]
        self.write()

    def change(self, changes: Mapping[int, Iterable[str]]) -> None:
        """Replace the tags of some photos, and write the table.

        Args:
            changes: Tags by the index of the photo.
        """
        before = self._tags
        self._tags = [*before]
        for i, tags in changes.items():
            self._tags[i] = tuple(sorted({clean_tag(tag) for tag in tags}))
        try:
            self.write()
        except OSError:
            self._tags = before
            raise

    def write(self, file: Path | None = None) -> None:
        """Write the table: a line for each photo.

        Args:
            file: Another file; default: the table itself.
        """
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(["file", "tags"])
        for photo, tags in zip(self._photos, self._tags, strict=True):
            lines.writerow([photo.file, ";".join(tags)])
        write_text(file or self.file, text.getvalue())

    def counts(self) -> dict[str, int]:
        """Return how many photos have each tag."""
        counts: dict[str, int] = {}
        for tags in self._tags:
            for tag in tags:
                counts[tag] = counts.get(tag, 0) + 1
        return counts
