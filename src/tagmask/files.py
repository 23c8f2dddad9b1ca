"""Reading and writing files safely: what may be written over, whole files or none, and locks.

Every file that tagmask writes goes through ``replacing``. A killed process, a full disk or a power
cut leaves the old file or the new one, never half of one.
"""

import codecs
import errno
import hashlib
import json
import os
import re
import stat
import threading
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from tagmask import layout
from tagmask.errors import OutputError, TagmaskError

if TYPE_CHECKING:
    from filelock import BaseFileLock

PARTIAL = ".partial"  # suffix of a file that is still being written
LOCK = ".tagmask.lock"  # in the folder of a run, while a command works in it
MAX_TEXT = 1 << 30  # bytes of a text or JSON file that is read as a whole
# the names that ``replacing`` writes under: a hash, the process and the thread
_TEMPORARY = re.compile(r"[0-9a-f]{8}\.(\d+)(?:\.\d+)?\.partial")
_SAFETENSORS = re.compile(r"\.tmp[A-Za-z0-9]{6}")  # the names that safetensors writes under
_SHARE = re.compile(r"\.tagmask\.(\d+)\.\d+\.lock")  # one for each process that shares a run
_AT_THE_DOOR = 0.3  # seconds; another process that shares a run passes the lock within them
_SETTLED = 2.0  # seconds after which a change of a file also changes its times, on any disk

is_regular = os.path.isfile  # a file with content: reading a pipe, socket or device may never end
_written: ContextVar[list[Path] | None] = ContextVar("written", default=None)


def unwritable(path: Path) -> str:
    """Say why a file must not be written at ``path``; empty if it may.

    Only an ordinary file is ever replaced. A device or pipe would be lost, and behind a link is a
    file that nobody named.
    """
    try:
        mode = os.lstat(path).st_mode
    except (OSError, ValueError):  # there is none, or opening it says what is wrong
        return ""
    if stat.S_ISLNK(mode):
        return f"{path} is a link; name the file that it leads to, or another place."
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        return f"{path} is a device, pipe or socket, no ordinary file; choose another place."
    return ""


def refuse_links(folder: Path) -> None:
    """Refuse a folder of a run that is a link, or that holds links to folders.

    Args:
        folder: it need not exist.

    Raises:
        TagmaskError: if files in it would be written somewhere else.
    """
    linked = [str(folder)] if folder.is_symlink() else []
    for root, names, _ in os.walk(folder):
        paths = [os.path.join(root, name) for name in names]
        linked += [path for path in paths if os.path.islink(path)]
    if linked:
        raise TagmaskError(
            f"{linked[0]} is a link, and what it leads to is not part of the run; "
            "put a folder of its own there, or remove the link."
        )


@contextmanager
def replacing(path: Path, lasting: bool = False) -> Iterator[Path]:
    """Yield a temporary name beside ``path``; rename it to ``path`` on success, else remove it.

    The content is on the disk before the name is, so that a power cut leaves the old file or the
    new one. If the disk fails, the OSError names ``path``, since a failed write itself names no
    file.

    Args:
        path: the file; its folder is made if it is missing.
        lasting: wait until the name is on the disk too; for notes, which must not come to the disk
            after the files that they describe.

    Raises:
        OutputError: if ``path`` is a link, device, pipe or socket.
    """
    why = unwritable(path)
    if why:
        raise OutputError(why)
    path.parent.mkdir(parents=True, exist_ok=True)
    numbers = f"{os.getpid()}.{threading.get_native_id()}"
    partial = path.with_name(f"{_short_name(path)}.{numbers}{PARTIAL}")
    try:
        yield partial
        # safetensors makes its files private to their owner
        partial.chmod(0o666 & ~_umask())
        _sync(partial)
        os.replace(partial, path)
        if lasting:
            _sync_folder(path.parent)
    except Exception as error:
        number = _system_error(error)
        named = getattr(error, "filename", None)
        if number is None or named not in (None, str(partial)):
            raise
        raise OSError(number, os.strerror(number), str(path)) from error
    finally:
        # the error that led here counts, not a second one
        with suppress(OSError):
            partial.unlink(missing_ok=True)
    collected = _written.get()
    if collected is not None:
        collected.append(path)


@contextmanager
def collecting() -> Iterator[list[Path]]:
    """Yield a list that gets the path of every file that ``replacing`` finishes within."""
    paths: list[Path] = []
    token = _written.set(paths)
    try:
        yield paths
    finally:
        _written.reset(token)


def _short_name(path: Path) -> str:
    """Return 8 digits for a name, which itself may be as long as the file system allows."""
    return f"{zlib.crc32(os.fsencode(path.name)):08x}"


def _sync(path: Path) -> None:
    """Wait until the content of a file is on the disk; not all disks can tell."""
    number = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(number)


def _sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk; not all systems let one."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def remove_temporaries(folder: Path, below: bool = True) -> None:
    """Remove what a kill has left half-written; files of other names are the user's.

    Args:
        folder: where to look; it need not exist. Links are not followed.
        below: look into its sub-folders too, and remove what safetensors left. If False, only
            the files that ``replacing`` left directly in the folder are removed.
    """
    patterns = [_TEMPORARY, _SAFETENSORS] if below else [_TEMPORARY]
    for root, folders, names in os.walk(folder):
        if not below:
            folders.clear()
        for name in names:
            file = Path(root, name)
            is_ours = any(pattern.fullmatch(name) for pattern in patterns)
            if is_ours and file.is_file() and not file.is_symlink():
                file.unlink(missing_ok=True)


def is_temporary(path: Path) -> bool:
    """Return True if a file has a name that ``replacing`` writes under."""
    return _TEMPORARY.fullmatch(path.name) is not None


def remove_temporaries_of(path: Path) -> None:
    """Remove what killed processes have left of a file that they wrote, beside it.

    Args:
        path: the file that they were to write. Nothing else in its folder is touched.
    """
    with suppress(OSError):
        for file in path.parent.glob(f"{_short_name(path)}.*{PARTIAL}"):
            match = _TEMPORARY.fullmatch(file.name)
            if match and is_regular(file) and not file.is_symlink() and not _lives(int(match[1])):
                file.unlink(missing_ok=True)


def _lives(process: int) -> bool:
    """Return True if there is a process of this number, or nobody knows."""
    if os.name == "nt":
        return True  # asking there would end it
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def stamp_of(path: Path | str | None) -> list[int] | None:
    """Return what changes when a file is written: size, times, inode.

    None without a file, and for one that was written so recently that a further change might leave
    its times as they are: only its content tells then.
    """
    if path is None:
        return None
    try:
        status = os.stat(path)
    except OSError:
        return None
    # nobody can set st_ctime, unlike the time of the last change
    if max(status.st_mtime, status.st_ctime) > time.time() - _SETTLED:
        return None
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def takes_for_same(folder: Path) -> bool:
    """Return True if the disk of a folder takes names for the same that differ in case alone."""
    existing = next(place for place in (folder, *folder.resolve().parents) if place.exists())
    for place in (existing.resolve(), *existing.resolve().parents):
        other = place.with_name(place.name.swapcase())
        if other.name != place.name:
            return other.exists() and os.path.samefile(other, place)
    return os.name == "nt"


def content_digest(path: Path | str) -> str:
    """Return a short hash of the content of a file; empty if it cannot be read."""
    if not is_regular(path):
        return ""
    try:
        with open(path, "rb", buffering=0) as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).hexdigest()
    except OSError:
        return ""


def file_size(path: Path | str | None) -> int:
    """Return the size of a file in bytes; -1 if there is none."""
    if not path:
        return -1
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def _umask() -> int:
    """Return the permission bits that new files lack; only setting them briefly reads them."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _system_error(error: Exception) -> int | None:
    """Return the errno of an error; safetensors has it only in its message: "… (os error 28)"."""
    if isinstance(error, OSError):
        return error.errno
    match = re.search(r"\(os error (\d+)\)", str(error))
    return int(match[1]) if match else None


def write_text(path: Path, text: str) -> None:
    """Write a text as UTF-8, replacing the file as a whole.

    Args:
        path: the file; its folder is made if it is missing.
        text: what is written. It may quote file names, which may hold any bytes.
    """
    with replacing(path, lasting=True) as partial:
        partial.write_text(text, encoding="utf-8", errors="surrogateescape")


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, replacing the file as a whole.

    Args:
        path: the file; its folder is made if it is missing.
        value: anything that ``json.dumps`` takes.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False)
    write_text(path, text + "\n")


def read_json(path: Path, remedy: str = "repair it or make it again") -> Any:
    """Parse a JSON file; the error names the file and where in it the fault is.

    Args:
        path: the file.
        remedy: what the error advises.

    Raises:
        TagmaskError: if it is not JSON.
    """
    try:
        return json.loads(read_text(path, errors="surrogateescape"))
    # not JSON, a number of thousands of digits, or nested too deep
    except (ValueError, RecursionError) as error:
        raise TagmaskError(f"{path} is not valid JSON ({error}); {remedy}.") from None


def check_readable(path: Path) -> None:
    """Refuse what is no ordinary file before it is opened: to open a pipe may take for ever.

    Args:
        path: a file that the user named.

    Raises:
        TagmaskError: if there is none, or if it is a folder, pipe, device or broken link.
    """
    if not os.path.lexists(path):
        raise TagmaskError(f"{path} does not exist; check the path.")
    if not is_regular(path):
        raise TagmaskError(
            f"{path} cannot be read (a folder, pipe, device or broken link); check the path."
        )


def read_text(path: Path, errors: str = "strict") -> str:
    """Return the text of a UTF-8 file, one of ours or one of the user's.

    Args:
        path: the file; a byte order mark at its start is left out. One of UTF-16, which
            spreadsheets write, is understood.
        errors: what becomes of bytes that are not UTF-8, as ``open`` takes it; refused by default.

    Raises:
        TagmaskError: if the file is missing, no ordinary file, far too large or not UTF-8.
    """
    check_readable(path)
    if path.stat().st_size > MAX_TEXT:
        raise TagmaskError(f"{path} is larger than {MAX_TEXT / 1e9:g} GB; check the path.")
    try:
        with path.open("rb") as file:
            mark = file.read(2)
        encoding = "utf-16" if mark in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"
        return path.read_text(encoding=encoding, errors=errors)
    except UnicodeError:
        raise TagmaskError(
            f"{path} is not UTF-8 text; save it with the encoding UTF-8 "
            '(in a spreadsheet: "CSV UTF-8").'
        ) from None
    except (OSError, MemoryError) as error:
        why = error.strerror if isinstance(error, OSError) else "there is not enough memory"
        raise TagmaskError(f"{path} cannot be read ({why}); check the path.") from None


def parse_xml(text: str, source: Path | str) -> ElementTree.Element:
    """Return the root of an XML text.

    Args:
        text: the document. Entities of its own are refused: a few lines of them can stand for
            gigabytes.
        source: what an error calls the text, as a rule its file.

    Raises:
        TagmaskError: if the text declares entities or is not valid XML.
    """
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise TagmaskError(
            f"{source} declares a document type or entities, which are not read; remove them."
        )
    try:
        return ElementTree.fromstring(text)
    except (ElementTree.ParseError, LookupError, ValueError, RecursionError) as error:
        raise TagmaskError(
            f"{source} is not valid XML ({error}); repair it or make it again."
        ) from None


def read_object(path: Path, **forms: type | tuple[type, ...]) -> dict[str, Any]:
    """Parse a JSON file that tagmask wrote, and check the keys and types of its object.

    Args:
        path: the file.
        **forms: for each key that the object must have the type, or types, of its value.

    Raises:
        TagmaskError: if the file holds anything else.
    """
    value = read_json(path)
    is_ours = isinstance(value, dict) and all(
        key in value and is_a(value[key], form) for key, form in forms.items()
    )
    if not is_ours:
        raise TagmaskError(f"{path} was not written by tagmask; delete it, and its part is redone.")
    content: dict[str, Any] = value
    return content


def is_a(value: Any, form: Any) -> bool:
    """Return what ``isinstance`` does, but true and false are no numbers, and numbers are finite.

    Args:
        value: a value that was read from JSON.
        form: a type, or a tuple of types.
    """
    forms = form if isinstance(form, tuple) else (form,)
    if isinstance(value, bool):
        return bool in forms
    if not isinstance(value, forms):
        return False
    if isinstance(value, int | float):
        return abs(value) < 1e300
    return True


def write_arrays(path: Path, **arrays: Any) -> None:
    """Write NumPy arrays as a compressed .npz, without pickle.

    Args:
        path: the file; its folder is made if it is missing.
        **arrays: the arrays by the names under which they are read.
    """
    import numpy as np

    with replacing(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, **arrays)


def read_arrays(path: Path, names: Iterable[str], command: str) -> dict[str, Any]:
    """Read arrays of finite numbers from a .npz.

    Args:
        path: the file.
        names: the arrays that it must hold.
        command: the command that writes the file, for the error's remedy.

    Raises:
        TagmaskError: if the file is missing or damaged.
    """
    import numpy as np

    if os.path.lexists(path) and not is_regular(path):
        raise TagmaskError(f"{path} is no ordinary file; delete it and run `{command}` again.")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in names}
        for array in arrays.values():
            if array.dtype.kind not in "iuf" or not np.isfinite(array).all():
                raise ValueError("values that are not numbers")
        return arrays
    except FileNotFoundError:
        raise TagmaskError(f"{path} does not exist; make it with `{command}`.") from None
    # errors of zip, zlib, struct, Python's parser and others
    except Exception as error:
        raise TagmaskError(
            f"{path} is damaged ({error}); delete it and run `{command}` again."
        ) from None


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lock ``folder``: a second process waits until the first has ended or is done."""
    folder.mkdir(parents=True, exist_ok=True)
    with _lock(folder / "lock", timeout=-1):
        yield


@contextmanager
def only_one(folder: Path, shared: bool = False) -> Iterator[None]:
    """Hold the run in ``folder``; refuse at once if another process does.

    The system lets go of it when the process ends, however it ends. What a kill has left
    half-written is removed by the next one that holds the run alone.

    Args:
        folder: the folder of the run; it is made if it is missing, and removed again if it is
            still empty at the end.
        shared: let other processes in that are ``shared`` too.

    Raises:
        TagmaskError: if another process holds the run.
    """
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        if is_new:
            held.callback(_remove_empty, folder)
        door = folder / LOCK
        with ExitStack() as passing:
            passing.enter_context(_lock(door, _AT_THE_DOOR))
            passing.callback(_remove_quietly, door)
            sharers = _living_sharers(folder)
            if shared:
                share = folder / f".tagmask.{os.getpid()}.{time.monotonic_ns()}.lock"
                held.enter_context(_lock(share, timeout=0))
                held.callback(_remove_quietly, share)
            else:
                if sharers:
                    raise _in_use(folder, sharers[0])
                with suppress(OSError):  # Windows lets nobody write a locked file
                    door.write_text(f"{os.getpid()}\n")
                held.enter_context(passing.pop_all())
        check_format(folder)
        for name in (*layout.FOLDERS, layout.CORRECTIONS):
            refuse_links(folder / name)
        if not shared:
            _tidy(folder)
        yield
        if not shared:
            _note_format(folder)


def check_format(folder: Path) -> None:
    """Refuse the folder of a run that a later tagmask has made.

    Args:
        folder: the folder of a run. One without a note is of the first format.

    Raises:
        TagmaskError: if its format is not known here.
    """
    file = folder / layout.FORMAT_NOTE
    if not os.path.lexists(file):
        return
    note = read_object(file, format=int)
    if note["format"] < 1:
        raise TagmaskError(f"{file} is damaged: there is no format {note['format']}; delete it.")
    if note["format"] > layout.FORMAT:
        raise TagmaskError(
            f"{folder} is a run of format {note['format']}, made by a later tagmask; this one "
            f"knows formats up to {layout.FORMAT}: update tagmask, or choose another --out."
        )


def _note_format(folder: Path) -> None:
    """Note the format of a run, once there is something in it."""
    with suppress(OSError, TagmaskError):
        if layout.is_run(folder) and not os.path.lexists(folder / layout.FORMAT_NOTE):
            write_json(folder / layout.FORMAT_NOTE, {"format": layout.FORMAT})


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Share the run in ``folder`` with others that read it; refuse if one writes it.

    A folder that is missing or cannot be written, such as a backup, is read without a lock.

    Args:
        folder: the folder of the run.

    Raises:
        TagmaskError: if another process holds the run alone.
    """
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        yield
        return
    with only_one(folder, shared=True):
        yield


def _tidy(folder: Path) -> None:
    """Remove what a kill has left half-written in a run."""
    remove_temporaries(folder, below=False)
    for name in (*layout.FOLDERS, layout.CORRECTIONS):
        remove_temporaries(folder / name)


def _living_sharers(folder: Path) -> list[str]:
    """Return the processes that share the run; remove what those have left that were killed."""
    living = []
    for path in sorted(folder.glob(".tagmask.*.lock")):
        match = _SHARE.fullmatch(path.name)
        if not match:
            continue
        _refuse_odd_lock(path)
        try:
            with _lock(path, timeout=0):
                _remove_quietly(path)
        except TagmaskError:
            living.append(match[1])
    return living


def _in_use(folder: Path, owner: str) -> TagmaskError:
    """Return the error for a run that another process holds."""
    return TagmaskError(
        f"{folder} is in use by another tagmask (process {owner}); wait for it to end, or stop it."
    )


@contextmanager
def _lock(path: Path, timeout: float) -> Iterator[None]:
    """Hold the lock of a file.

    Args:
        path: the file.
        timeout: seconds to wait for it; below 0: as long as it takes.

    Raises:
        TagmaskError: if another process holds it, or if it is no ordinary file.
    """
    from filelock import FileLock, Timeout

    _refuse_odd_lock(path)
    lock: BaseFileLock = FileLock(path, timeout=timeout, poll_interval=0.02)
    try:
        lock.acquire()
    except Timeout:
        raise _in_use(path.parent, _owner(path)) from None
    try:
        yield
    finally:
        lock.release()


def _refuse_odd_lock(path: Path) -> None:
    """Refuse a lock file that is a link, device, pipe or socket, or that holds something.

    To take a lock empties its file, and a hard link shares its content with another name.
    """
    why = unwritable(path)
    if why:
        raise TagmaskError(f"{why.partition(';')[0]}, and no lock of tagmask; remove it.")
    with suppress(OSError):  # there is none, or Windows lets nobody read a locked file
        with path.open("rb") as file:
            content = file.read(30)
        if not re.fullmatch(rb"[0-9]{0,20}\s{0,2}", content):
            raise TagmaskError(
                f"{path} holds something else, and is no lock of tagmask; move it away."
            )


def _owner(path: Path) -> str:
    """Return the number of the process that a lock file names."""
    try:
        with path.open("rb") as file:
            text = file.read(20).decode("ascii", "ignore")
    except OSError:
        text = ""
    return re.sub(r"[^0-9]", "", text) or "unknown"


def _remove_quietly(file: Path) -> None:
    """Remove a lock file, if the system lets us: Windows keeps files that are open."""
    with suppress(OSError):
        file.unlink(missing_ok=True)


def _remove_empty(folder: Path) -> None:
    """Remove a folder unless something is in it."""
    with suppress(OSError):
        folder.rmdir()
