"""Writing files so that a killed process or a full disk leaves no half-written file."""

import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO
from xml.etree import ElementTree

from tagmask.errors import TagmaskError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PARTIAL = ".partial"  # suffix of a file that is still being written
LOCK = ".tagmask.lock"  # in the folder of a run, while a command works in it
MAX_TEXT = 1 << 30  # bytes of a text or JSON file that is read as a whole
_TEMPORARY = re.compile(r"[0-9a-f]{8}\.\d+\.partial")  # the names that ``replacing`` writes under
_SAFETENSORS = re.compile(r"\.tmp[A-Za-z0-9]{6}")  # the names that safetensors writes under

is_regular = os.path.isfile  # a file with content: reading a pipe, socket or device may never end


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside ``path``; rename it to ``path`` on success, else remove it.

    If the disk fails, the OSError names ``path``, since a failed write itself names no file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # a short name, since that of the file may already be as long as the file system allows
    short = zlib.crc32(os.fsencode(path.name))
    partial = path.with_name(f"{short:08x}.{os.getpid()}{PARTIAL}")
    try:
        yield partial
        # safetensors makes its files private to their owner
        partial.chmod(0o666 & ~_umask())
        os.replace(partial, path)
    except Exception as error:
        number = _system_error(error)
        named = getattr(error, "filename", None)
        if number is None or named not in (None, str(partial)):
            raise
        raise OSError(number, os.strerror(number), str(path)) from error
    finally:
        partial.unlink(missing_ok=True)


def remove_temporaries(folder: Path, below: bool = True) -> None:
    """Remove what a kill has left half-written; files of other names are the user's.

    Args:
        folder: where to look; it need not exist.
        below: look into its sub-folders too, and remove what safetensors left. If False, only
            the files that ``replacing`` left directly in the folder are removed.
    """
    files: Iterator[Path]
    patterns = [_TEMPORARY]
    if below:
        files = folder.rglob("*")
        patterns.append(_SAFETENSORS)
    elif folder.is_dir():
        files = folder.iterdir()
    else:
        return
    for file in files:
        is_ours = any(pattern.fullmatch(file.name) for pattern in patterns)
        if is_ours and file.is_file() and not file.is_symlink():
            file.unlink(missing_ok=True)


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
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="surrogateescape")


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, replacing the file as a whole.

    Args:
        path: the file; its folder is made if it is missing.
        value: anything that ``json.dumps`` takes.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False)
    write_text(path, text + "\n")


def read_json(path: Path) -> Any:
    """Parse a JSON file; the error names the file and where in it the fault is."""
    try:
        return json.loads(read_text(path, errors="surrogateescape"))
    # not JSON, a number of thousands of digits, or nested too deep
    except (ValueError, RecursionError) as error:
        raise TagmaskError(
            f"{path} is not valid JSON ({error}); repair it or make it again."
        ) from None


def read_text(path: Path, errors: str = "strict") -> str:
    """Return the text of a UTF-8 file, one of ours or one of the user's.

    Args:
        path: the file; a byte order mark at its start is left out.
        errors: what becomes of bytes that are not UTF-8, as ``open`` takes it; refused by default.

    Raises:
        TagmaskError: if the file is missing, no ordinary file, far too large or not UTF-8.
    """
    if not os.path.lexists(path):
        raise TagmaskError(f"{path} does not exist; check the path.")
    if not is_regular(path):
        raise TagmaskError(
            f"{path} cannot be read (a folder, pipe, device or broken link); check the path."
        )
    if path.stat().st_size > MAX_TEXT:
        raise TagmaskError(f"{path} is larger than {MAX_TEXT / 1e9:g} GB; check the path.")
    try:
        return path.read_text(encoding="utf-8-sig", errors=errors)
    except UnicodeDecodeError:
        raise TagmaskError(f"{path} is not UTF-8 text; save it with the encoding UTF-8.") from None
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
    """Lock ``folder``: a second process waits. Windows has no such locks."""
    folder.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released when the file is closed, also by a kill
        yield


@contextmanager
def only_one(folder: Path, shared: bool = False) -> Iterator[None]:
    """Hold the run in ``folder``; refuse at once if another process does.

    The system lets go of it when the process ends, however it ends. Windows has no such locks.

    Args:
        folder: the folder of the run; it is made if it is missing, and removed again if it is
            still empty at the end.
        shared: let other processes in that are ``shared`` too.

    Raises:
        TagmaskError: if another process holds the run.
    """
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    path = folder / LOCK
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    with _locked(path, kind) as file:
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        try:
            yield
        finally:
            # it fails if others still share the lock, or if a new folder is not empty
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink(missing_ok=True)
                if is_new:
                    folder.rmdir()


@contextmanager
def _locked(path: Path, kind: int) -> Iterator[TextIO]:
    """Yield the lock file, once it is locked; a sentence says who has it otherwise."""
    while True:
        with path.open("a+") as file:
            try:
                fcntl.flock(file, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                owner = re.sub(r"[^0-9]", "", file.read(20)) or "unknown"
                raise TagmaskError(
                    f"{path.parent} is in use by another tagmask (process {owner}); "
                    "wait for it to end, or stop it."
                ) from None
            if _leads_to(path, file.fileno()):  # otherwise its last holder has just removed it
                yield file
                return


def _leads_to(path: Path, number: int) -> bool:
    """Return True if a path is still that of the open file with this number."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(number))
    except FileNotFoundError:
        return False
