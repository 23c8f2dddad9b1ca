"""Folders on this disk or in object storage: list, read, put, with patience and clear errors.

A folder is whatever fsspec can open: s3://, gs://, memory:// or a plain path. On this disk files
are replaced as a whole; in object storage an object appears when its last byte has arrived.
Addresses that do not answer are asked again with growing waits; a copy that is shorter than its
original is made again.
"""

import hashlib
import importlib
import json
import os
import random
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, TypeVar

from tagmask.errors import TagmaskError, message_of
from tagmask.files import is_regular, replacing
from tagmask.progress import logger

Result = TypeVar("Result")
ATTEMPTS = 6
FIRST_WAIT = 0.5  # seconds; each further wait is twice as long, half a minute in all
CHUNK = 1 << 20  # bytes that are copied at a time
MAX_NOTE = 64 << 20  # bytes of a note
EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
# what object stores tell about the content of a file, the most telling first
_STAMPS = (
    *("ETag", "etag", "md5Hash", "crc32c", "generation", "content_md5"),
    *("mtime", "ino", "LastModified", "created"),
)
_NO_CREDENTIALS = (
    *("NoCredentialsError", "PartialCredentialsError", "TokenRetrievalError"),
    *("DefaultCredentialsError", "RefreshError", "UnauthorizedSSOTokenError"),
)
# mistakes of a program, which do not go away
_BUGS = (TypeError, AttributeError, NameError, AssertionError, KeyError, IndexError)


@dataclass(frozen=True)
class Stored:
    """A file that a listing names."""

    size: int
    stamp: tuple[tuple[str, str], ...]  # what changes when it is written again


def is_address(text: str) -> bool:
    """Return True if a text is an address such as s3://bucket/folder, and no path."""
    return re.match(r"[a-z][a-z0-9+.-]+://", text) is not None


def shown(address: str) -> str:
    """Return an address without the password in it."""
    return re.sub(r"(://)[^/@]*@", r"\1…@", address)


def child(address: str, name: str) -> str:
    """Return the address of a file in a folder.

    Args:
        address: That of the folder.
        name: That of the file.
    """
    return f"{address.rstrip('/')}/{name}" if is_address(address) else os.path.join(address, name)


def split_address(address: str) -> tuple[str, str]:
    """Return the folder of an address, and the name in it."""
    if not is_address(address):
        folder, name = os.path.split(os.path.abspath(address))
        return folder, name
    folder, _, name = address.rstrip("/").rpartition("/")
    return folder, name


@dataclass(frozen=True)
class Folder:
    """A folder at an address; processes can be sent it.

    Args:
        address: a path, or anything that fsspec knows.
    """

    address: str

    def __str__(self) -> str:
        return shown(self.address)

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        """Return the file system and the path in it."""
        return self.patiently(lambda: _open(self.address), "opening it")

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the connection: another process has its own."""
        return {"address": self.address}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    @cached_property
    def is_local(self) -> bool:
        """Return True for a folder of this machine's disks."""
        return not is_address(self.address) or self.address.startswith(("file://", "local://"))

    @property
    def is_shared(self) -> bool:
        """Return True if another process finds the same files there."""
        return not self.address.startswith("memory://")

    @property
    def path(self) -> Path:
        """Return the path of a local folder."""
        return Path(re.sub("^(file|local)://", "", self.address)).absolute()

    def list(self, suffix: str = "") -> dict[str, Stored]:
        """Return the files below the folder that end in a suffix, by their relative path.

        A folder that does not exist is empty.
        """
        if self.is_local:
            return self._list_disk(suffix)
        system, root = self._opened
        found = self.patiently(lambda: _find(system, root), "listing it")
        files: dict[str, Stored] = {}
        for path, info in sorted(found.items()):
            name = path.lstrip("/").removeprefix(root.strip("/")).lstrip("/")
            if name.endswith(suffix) and info.get("type", "file") == "file":
                files[name] = _stored(info)
        return files

    def _list_disk(self, suffix: str) -> dict[str, Stored]:
        """Return the files below a folder of the disk; hidden ones are left out."""
        from tagmask.data.images import walk

        files: dict[str, Stored] = {}
        for name in sorted(walk(self.path)):
            if name.endswith(suffix):
                files[name] = _stored_on_disk(self.path / name)
        return files

    def find(self, name: str) -> Stored | None:
        """Return what is known about a file; None if there is none."""
        if self.is_local:
            file = self.path / name
            return _stored_on_disk(file) if is_regular(file) else None
        system, root = self._opened

        def look() -> Any:
            try:
                return system.info(f"{root.rstrip('/')}/{name}")
            except FileNotFoundError:
                return None

        info = self.patiently(look, f"looking for {name}")
        return _stored(info) if info is not None and info.get("type") != "directory" else None

    def copy(self, name: str) -> IO[bytes]:
        """Return a file of a folder for reading: itself from this disk, else a temporary copy.

        The copy has no name, so nothing is left of it however the process ends.

        Raises:
            TagmaskError: it is missing, or cannot be read as a whole.
        """
        if self.is_local:
            return self._open_on_disk(name)
        expected = self.find(name)
        if expected is None:
            raise self._missing(name)
        system, root = self._opened
        path = f"{root.rstrip('/')}/{name}"
        size = expected.size

        def fetch() -> IO[bytes]:
            target = tempfile.TemporaryFile()  # noqa: SIM115  the caller closes it
            try:
                with system.open(path, "rb", cache_type="readahead") as source:
                    shutil.copyfileobj(source, target, CHUNK)
                if target.tell() != size:
                    raise OSError(f"{target.tell():,} of {size:,} bytes arrived")
            except BaseException:
                target.close()
                raise
            target.seek(0)
            return target

        return self.patiently(fetch, f"reading {name}")

    def _open_on_disk(self, name: str) -> IO[bytes]:
        file = self.path / name
        if not is_regular(file):
            raise self._missing(name)
        try:
            return file.open("rb")
        except OSError as error:
            raise TagmaskError(f"{file} cannot be read ({error.strerror}).") from None

    def _missing(self, name: str) -> TagmaskError:
        return TagmaskError(f"{shown(child(self.address, name))} does not exist; check the path.")

    def read(self, name: str, most: int) -> bytes:
        """Return the content of a small file.

        Args:
            name: the file.
            most: bytes; a larger one is refused.
        """
        known = self.find(name)
        if known is None:
            raise self._missing(name)
        if known.size > most:
            raise TagmaskError(
                f"{shown(child(self.address, name))} has {known.size:,} bytes, "
                f"more than {most:,}; check it."
            )
        if self.is_local:
            with self.copy(name) as file:
                return file.read()
        system, root = self._opened

        def fetch() -> bytes:
            content: bytes = system.cat_file(f"{root.rstrip('/')}/{name}")
            if len(content) != known.size:
                raise OSError(f"{len(content):,} of {known.size:,} bytes arrived")
            return content

        return self.patiently(fetch, f"reading {name}")

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Return a note; None if there is none, or none that can be read."""
        if self.find(name) is None:
            return None
        try:
            value = json.loads(self.read(name, MAX_NOTE))
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    def put(self, name: str, source: IO[bytes]) -> None:
        """Write a file as a whole.

        Args:
            name: its relative path.
            source: the content, read from its start.
        """
        source.seek(0, os.SEEK_END)
        size = source.tell()
        if self.is_local:
            source.seek(0)
            with replacing(self.path / name, lasting=True) as partial, partial.open("wb") as file:
                shutil.copyfileobj(source, file, CHUNK)
            return
        system, root = self._opened
        path = f"{root.rstrip('/')}/{name}"

        def send() -> None:
            source.seek(0)
            target = system.open(path, "wb", block_size=16 << 20)
            try:
                shutil.copyfileobj(source, target, CHUNK)
            except BaseException:
                # closing it would publish the half that has arrived
                with suppress(Exception):
                    target.discard()
                raise
            target.close()
            system.invalidate_cache()
            arrived = int(system.info(path)["size"])
            if arrived != size:
                raise OSError(f"{arrived:,} of {size:,} bytes arrived")

        self.patiently(send, f"writing {name}")

    def put_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Write a note.

        Args:
            name: Of the file.
            value: What it says.
        """
        text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
        with tempfile.TemporaryFile() as file:
            file.write(text.encode("utf-8", "surrogateescape"))
            self.put(name, file)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        if self.is_local:
            (self.path / name).unlink(missing_ok=True)
            return
        system, root = self._opened

        def remove() -> None:
            with suppress(FileNotFoundError):
                system.rm_file(f"{root.rstrip('/')}/{name}")

        self.patiently(remove, f"removing {name}")

    def patiently(self, action: Callable[[], Result], what: str) -> Result:
        """Return the result of an action on the storage; try again what may pass by itself.

        Args:
            action: it can be repeated.
            what: says in an error what was tried.

        Raises:
            TagmaskError: it cannot be done, or not after several attempts.
        """
        wait = FIRST_WAIT
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return action()
            except (TagmaskError, *_BUGS):
                raise
            except Exception as error:
                lasting = _lasting_fault(error, self.address)
                if lasting:
                    raise TagmaskError(lasting) from None
                why = message_of(error) or type(error).__name__
                if attempt == ATTEMPTS:
                    raise TagmaskError(
                        f"{self}: {what} failed {ATTEMPTS} times ({why}); check the connection, "
                        "and type the same command again to resume."
                    ) from None
                logger.debug("%s: %s failed (%s); trying again", self, what, why)
            time.sleep(wait * random.uniform(0.5, 1))
            wait *= 2
        raise AssertionError("the last attempt returns or raises")


def _open(address: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path in it."""
    core: Any = importlib.import_module("fsspec.core")
    # other processes write there too: what was listed before is not asked again
    system, path = core.url_to_fs(address, use_listings_cache=False)
    return system, str(path)


def _find(system: Any, root: str) -> dict[str, dict[str, Any]]:
    """Return all files below a path; none if it does not exist."""
    system.invalidate_cache()
    try:
        found: dict[str, dict[str, Any]] = system.find(root, detail=True)
    except FileNotFoundError:
        return {}
    return found


def _stored(info: Mapping[str, Any]) -> Stored:
    stamp = [(name, str(info[name])) for name in _STAMPS if info.get(name) is not None]
    return Stored(int(info.get("size") or 0), tuple(stamp))


def _stored_on_disk(file: Path) -> Stored:
    try:
        status = os.stat(file)
    except OSError:
        return Stored(-1, ())
    # nobody can set the time of the last change of status
    stamp = (("mtime", str(status.st_mtime_ns)), ("ctime", str(status.st_ctime_ns)))
    return Stored(status.st_size, stamp)


def _lasting_fault(error: Exception, address: str) -> str:
    """Return a sentence for an error that waiting does not mend; empty for others."""
    place = shown(address)
    kind = address.partition("://")[0]
    name = type(error).__name__
    text = message_of(error)
    if isinstance(error, ImportError):
        extra = EXTRAS.get(kind)
        remedy = f"pip install 'tagmask[{extra}]'" if extra else "install what it names"
        return f"{place} needs a package that is not installed ({text}); {remedy}."
    if isinstance(error, ValueError) and "rotocol" in text:
        return f"{place}: {kind}:// is no address that is known here; s3:// and gs:// are."
    if name in _NO_CREDENTIALS or (isinstance(error, OSError) and "credentials" in text.lower()):
        return (
            f"{place}: there are no credentials ({text}); log in with the tool of the storage "
            f"({_login(kind)}), and try again."
        )
    if isinstance(error, PermissionError):
        return (
            f"{place}: access is denied ({text}); check the credentials ({_login(kind)}), and "
            "that they may list, read and write there."
        )
    if isinstance(error, FileNotFoundError):
        return f"{place} does not exist ({text}); check the names of bucket and folder."
    if isinstance(error, (IsADirectoryError, NotADirectoryError, NotImplementedError)):
        return f"{place} cannot be used ({text or name}); name a folder that can be written."
    return ""


def _login(kind: str) -> str:
    """Return where a storage keeps its credentials."""
    if kind in ("s3", "s3a"):
        return "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or `aws configure`"
    if kind in ("gs", "gcs"):
        return "`gcloud auth application-default login`"
    return "see the documentation of its fsspec package"


def digest_of(file: IO[bytes]) -> str:
    """Return the SHA-256 of a file, and leave it at its start."""
    file.seek(0)
    digest = hashlib.sha256()
    while chunk := file.read(CHUNK):
        digest.update(chunk)
    file.seek(0)
    return digest.hexdigest()
