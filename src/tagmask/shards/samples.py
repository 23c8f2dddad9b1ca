"""One image of a shard: its key, its bytes and its tags, and why others cannot be used."""

import json
import os
import tempfile
import unicodedata
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tagmask.data.images import Picture, read_image, strip_suffix
from tagmask.data.tiff import TIFF
from tagmask.data.tools import is_list_of_texts
from tagmask.errors import CONTROLS, ImageError, TagmaskError, message_of, printable

MAX_IMAGE = 512 << 20  # bytes of the file of an image
MAX_JSON = 1 << 20  # bytes of its tags
MAX_KEY = 512  # characters
LISTED = 1000  # images of a shard that are listed with the reason why they failed


class ShardError(TagmaskError):
    """One shard cannot be used; the others can."""


@dataclass(frozen=True)
class Sample:
    """An image of a shard."""

    key: str  # a relative path without suffix, the same in the shards that are made from it
    suffix: str  # of the image, with its dot
    content: bytes  # of the image's file
    about: bytes | None = None  # the content of KEY.json

    def picture(self) -> Picture:
        """Return the pixels, uint8 (H, W, 3), upright.

        Raises:
            ImageError: they cannot be read.
        """
        name = Path(self.key + self.suffix)
        if self.suffix.lower() not in TIFF:
            return read_image(name, self.content)
        # the readers of scientific TIFF want a file
        with tempfile.TemporaryDirectory(prefix="tagmask-") as folder:
            file = Path(folder, f"image{self.suffix}")
            file.write_bytes(self.content)
            try:
                return read_image(file)
            except ImageError as error:
                raise ImageError(str(error).replace(str(file), str(name))) from None

    def tags(self) -> tuple[str, ...]:
        """Return the tags of the image; none if it has none.

        Raises:
            ImageError: KEY.json is damaged.
        """
        if self.about is None:
            return ()
        try:
            value = json.loads(self.about)
        except (ValueError, RecursionError) as error:
            raise ImageError(f"{self.key}.json is not valid JSON ({error}).") from None
        tags = value.get("tags", []) if isinstance(value, dict) else None
        if not is_list_of_texts(tags):
            raise ImageError(f'{self.key}.json must hold {{"tags": ["dog", …]}}.')
        return tuple(dict.fromkeys(tag.strip() for tag in tags if tag.strip()))

    def known_tags(self) -> tuple[str, ...]:
        """Return the tags of the image; none if KEY.json is missing or damaged."""
        try:
            return self.tags()
        except ImageError:
            return ()

    def file(self) -> str:
        """Return the path of the original file, as KEY.json tells it; else the key."""
        name = self.key + self.suffix
        if self.about is None:
            return name
        with suppress(ValueError, RecursionError):
            value = json.loads(self.about)
            file = value.get("file") if isinstance(value, dict) else None
            if isinstance(file, str) and not fault_of_key(file):
                return file
        return name


@dataclass
class Failures:
    """Images of a shard that cannot be used, and why; the first thousand are listed."""

    count: int = 0
    why: dict[str, str] = field(default_factory=dict)

    def add(self, key: str, reason: str) -> None:
        """Count an image, and list it if there is room.

        Args:
            key: Its name in the shard.
            reason: Why it failed.
        """
        self.count += 1
        if len(self.why) < LISTED:
            self.why.setdefault(printable(key[:MAX_KEY]), printable(reason[:MAX_KEY]))

    def add_error(self, key: str, error: Exception) -> None:
        """Count an image by its error.

        Args:
            key: Its name in the shard.
            error: Why it failed.
        """
        self.add(key, message_of(error))


def fault_of_key(key: str) -> str:
    """Return why a name in a shard cannot be used; empty if it can.

    A key becomes a path when somebody unpacks a shard, so it must stay below the folder.
    """
    if not key or len(key) > MAX_KEY:
        return f"its name is empty, or longer than {MAX_KEY} characters."
    if key.startswith("/") or "\\" in key or (len(key) > 1 and key[1] == ":"):
        return "its name is an absolute path, or has a backslash."
    parts = key.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return 'its name has an empty part, "." or "..".'
    if any(unicodedata.category(mark) in CONTROLS for mark in key):
        return "its name has a line break or a control character."
    return ""


def split_name(path: str) -> tuple[str, str]:
    """Return the key and the ending of a member, as WebDataset has them: cut at the first dot.

    Args:
        path: as the shard has it; "./" before it is left out.
    """
    folder, _, name = path.removeprefix("./").rpartition("/")
    stem, dot, ending = name.partition(".")
    key = f"{folder}/{stem}" if folder else stem
    return key, dot + ending


def is_image_suffix(suffix: str) -> bool:
    """Return True for the ending of a picture, e.g. ".jpg"."""
    return strip_suffix(f"x{suffix}") != f"x{suffix}"


def key_of(path: str) -> str:
    """Return the key of a file: its path without suffix, and without dots in its name.

    WebDataset cuts names at the first dot, so that "a.1.jpg" and "a.2.jpg" would be one sample.
    """
    stem = PurePosixPath(strip_suffix(path))
    name = stem.name.replace(".", "_")
    return str(stem.with_name(name)) if name else str(stem)


def suffix_of(path: str) -> str:
    """Return the suffix of a file, with its dot."""
    return os.path.splitext(path)[1]
