"""Shards as tar files in WebDataset's layout: KEY.jpg, and KEY.json with tags; read and written.

A tar may come from anywhere. Nothing of it is unpacked to a path: images are read into memory one
by one, within bounds. Links, devices and sparse members, names that lead out of a folder, and keys
that occur twice are named and left out; a tar that ends early or is garbled is refused as a whole.
"""

import io
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

from tagmask.errors import TagmaskError
from tagmask.shards.samples import (
    MAX_IMAGE,
    MAX_JSON,
    Failures,
    Sample,
    ShardError,
    fault_of_key,
    is_image_suffix,
    split_name,
)
from tagmask.shards.storage import CHUNK, Folder, Stored, digest_of

MAX_MEMBERS = 1_000_000  # of a shard
MAX_HEADER = 4 * CHUNK  # bytes that a reader may ask for at once; headers that want more are bombs
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE)


@dataclass(frozen=True)
class TarShard:
    """A tar file in a folder.

    Args:
        folder: where it is.
        file: its relative path.
        stored: its size and stamp, as they were listed.
    """

    folder: Folder
    file: str
    stored: Stored

    @property
    def name(self) -> str:
        """Return the relative path without suffix; files made from the shard are named after it."""
        return self.file.removesuffix(".tar")

    @contextmanager
    def opened(self, failed: Failures) -> Iterator[tuple[dict[str, Any], Iterator[Sample]]]:
        """Yield what a note says about the shard, and its images; it is fetched once.

        Args:
            failed: gets the images that cannot be used.
        """
        with self.folder.copy(self.file) as file:
            stamp = dict(self.stored.stamp)
            digest = digest_of(file)
            identity = {"bytes": self.stored.size, "stamp": stamp, "sha256": digest}
            yield identity, read_tar(file, str(self), failed)

    def fits(self, noted: Any) -> bool:
        """Return True if a note was made from this shard; it is read only if its stamp changed."""
        if not isinstance(noted, dict) or noted.get("bytes") != self.stored.size:
            return False
        if self.stored.stamp and noted.get("stamp") == dict(self.stored.stamp):
            return True
        with self.folder.copy(self.file) as file:
            return bool(noted.get("sha256") == digest_of(file))

    def samples(self, failed: Failures, chosen: set[str] | None = None) -> Iterator[Sample]:
        """Yield the images in order.

        Args:
            failed: gets those that cannot be used.
            chosen: keys of those to yield; default: all.

        Raises:
            ShardError: the shard cannot be read to its end.
        """
        with self.opened(failed) as (_, samples):
            for sample in samples:
                if chosen is None or sample.key in chosen:
                    yield sample

    def tagged_keys(self, failed: Failures) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the keys of the images, with their tags."""
        for sample in self.samples(failed):
            yield sample.key, sample.known_tags()

    def __str__(self) -> str:
        return f"{self.folder}/{self.file}"


class _Bounded(io.RawIOBase):
    """A file from which nobody reads much at once.

    A header of a tar may claim to be of any size; the reader would ask for all of it.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        """Read so many bytes; refuse too many."""
        if not 0 <= size <= MAX_HEADER:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a position.

        Args:
            offset: How far.
            whence: 0 from the beginning, 1 from here, 2 from the end.
        """
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the position."""
        return self._file.tell()

    def seekable(self) -> bool:
        """Return True."""
        return True

    def readable(self) -> bool:
        """Return True."""
        return True


@dataclass
class _Gathered:
    """The members of one key."""

    key: str
    suffix: str = ""
    content: bytes | None = None
    is_second_choice: bool = False  # an image with an ending such as ".seg.png"
    about: bytes | None = None
    fault: str = ""

    def sample(self, failed: Failures) -> Sample | None:
        """Return the sample; None, and a reason in ``failed``, if it has no image."""
        if self.fault:
            failed.add(self.key, self.fault)
            return None
        if self.content is None:
            failed.add(self.key, "it has no image, only other files.")
            return None
        return Sample(self.key, self.suffix, self.content, self.about)


def read_tar(file: IO[bytes], name: str, failed: Failures) -> Iterator[Sample]:
    """Yield the images of a tar in order.

    Args:
        file: the tar, not compressed.
        name: what an error calls it.
        failed: gets the images that cannot be used.

    Raises:
        ShardError: it is no tar, is garbled, or ends early.
    """
    seen: set[str] = set()
    current: _Gathered | None = None
    try:
        with tarfile.open(fileobj=_Bounded(file), mode="r:") as archive:
            for member in _members(archive, name):
                key, ending = split_name(member.name)
                if current is None or current.key != key:
                    if current is not None and (sample := current.sample(failed)):
                        yield sample
                    current = _Gathered(key, fault=fault_of_key(key))
                    if key in seen:
                        current.fault = "its key occurs twice in the shard; the first one counts."
                    seen.add(key)
                _gather(current, archive, member, ending.lower())
            if current is not None and (sample := current.sample(failed)):
                yield sample
            _check_end(file, archive.offset)
    except (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError) as error:
        raise ShardError(
            f"{name} is damaged, or no uncompressed tar ({error}); copy or make it again."
        ) from None


def _members(archive: tarfile.TarFile, name: str) -> Iterator[tarfile.TarInfo]:
    """Yield the members that are no folders; their number is bounded."""
    count = 0
    while (member := archive.next()) is not None:
        # the archive would keep all of them
        archive.members.clear()  # type: ignore[attr-defined]
        count += 1
        if count > MAX_MEMBERS:
            raise ShardError(
                f"{name} has more than {MAX_MEMBERS:,} members; a shard holds about 10,000 images."
            )
        if not member.isdir():
            yield member


def _gather(
    current: _Gathered, archive: tarfile.TarFile, member: tarfile.TarInfo, ending: str
) -> None:
    """Take a member into its sample."""
    if current.fault:
        return
    if member.type not in _PLAIN or member.sparse is not None:
        current.fault = "it is a link, device, pipe or sparse file."
        return
    last = f".{ending.rpartition('.')[2]}"
    is_image = is_image_suffix(last)
    is_first_choice = is_image and last == ending
    if ending == ".json":
        if member.size > MAX_JSON:
            current.fault = f"its .json has {member.size:,} bytes, more than {MAX_JSON:,}."
            return
        current.about = _content(archive, member)
    elif is_first_choice and (current.content is None or current.is_second_choice):
        _take_image(current, archive, member, ending)
        current.is_second_choice = False
    elif is_image and not is_first_choice and current.content is None:
        _take_image(current, archive, member, last)
        current.is_second_choice = True


def _take_image(
    current: _Gathered, archive: tarfile.TarFile, member: tarfile.TarInfo, suffix: str
) -> None:
    if member.size > MAX_IMAGE:
        current.fault = f"its file has {member.size:,} bytes, more than {MAX_IMAGE:,}."
        return
    current.content = _content(archive, member)
    current.suffix = suffix


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """Return the bytes of a member; an early end is an error."""
    file = archive.extractfile(member)
    assert file is not None
    parts = []
    while part := file.read(CHUNK):
        parts.append(part)
    content = b"".join(parts)
    if len(content) != member.size:
        raise tarfile.ReadError("unexpected end of data")
    return content


def _check_end(file: IO[bytes], offset: int) -> None:
    """Refuse a tar without its end mark.

    Python's reader takes garbage after the first member for the end.
    """
    file.seek(offset)
    mark = file.read(tarfile.BLOCKSIZE)
    if len(mark) < tarfile.BLOCKSIZE or any(mark):
        raise tarfile.ReadError("it has no end mark: it was cut off, or is garbled there")


class TarWriter:
    """Write a tar whose bytes depend on nothing but its content.

    Args:
        file: where to write.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._archive = tarfile.TarFile(fileobj=file, mode="w", format=tarfile.PAX_FORMAT)

    def add(self, name: str, content: bytes) -> None:
        """Add a member.

        Args:
            name: Its path in the archive.
            content: Its bytes.
        """
        member = tarfile.TarInfo(name)
        member.size = len(content)
        member.mode = 0o644
        self._archive.addfile(member, io.BytesIO(content))

    def close(self) -> None:
        """Write the end mark."""
        self._archive.close()


def tar_shards(folder: Folder, only: str | None = None) -> Sequence[TarShard]:
    """Return the tar files of a folder, by name.

    Args:
        folder: where to look, at any depth.
        only: the name of a single one; default: all.

    Raises:
        TagmaskError: there is none.
    """
    if only is not None:
        stored = folder.find(only)
        files = {} if stored is None else {only: stored}
    else:
        files = folder.list(".tar")
    if not files:
        place = folder if only is None else f"{folder}/{only}"
        raise TagmaskError(
            f"there are no shards (.tar) at {place}; check the address, or make some with "
            "`tagmask shard PHOTOS --to ADDRESS`."
        )
    return [TarShard(folder, name, stored) for name, stored in files.items()]
