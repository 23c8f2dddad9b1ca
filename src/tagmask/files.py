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
_TEMPORARY = re.compile(r"[0-9a-f]{8}\.\d+\.partial")  # the names that ``replacing`` writes under
_SAFETENSORS = re.compile(r"\.tmp[A-Za-z0-9]{6}")  # those that safetensors writes under
is_regular = os.path.isfile  # a file with content: reading a pipe, socket or device may never end
MAX_TEXT = 1 << 30  # bytes of a text or JSON file that is read as a whole


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside ``path``; rename it to ``path`` on success, remove it on failure.

    If the disk fails, the OSError names ``path``, since a failed write itself names no file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    short = zlib.crc32(
        os.fsencode(path.name)
    )  # the name may already be as long as the file system allows
    partial = path.with_name(f"{short:08x}.{os.getpid()}{PARTIAL}")
    try:
        yield partial
        partial.chmod(0o666 & ~_umask())  # safetensors makes its files private to their owner
        os.replace(partial, path)
    except Exception as error:
        number = _system_error(error)
        if number is None or getattr(error, "filename", None) not in (None, str(partial)):
            raise
        raise OSError(number, os.strerror(number), str(path)) from error
    finally:
        partial.unlink(missing_ok=True)


def remove_temporaries(folder: Path, below: bool = True) -> None:
    """Remove what a kill has left half-written in a folder, and below it; files of other names are the user's."""
    for file in folder.rglob("*") if below else folder.iterdir() if folder.is_dir() else ():
        is_ours = _TEMPORARY.fullmatch(file.name) or (below and _SAFETENSORS.fullmatch(file.name))
        if is_ours and file.is_file() and not file.is_symlink():
            file.unlink(missing_ok=True)


def file_size(path: Path | str | None) -> int:
    """Bytes of a file; -1 if there is none."""
    try:
        return os.stat(path).st_size if path else -1
    except OSError:
        return -1


def _umask() -> int:
    """The permission bits that new files lack; they can only be read by setting them briefly."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _system_error(error: Exception) -> int | None:
    """The errno of an error; safetensors gives it only in its message: "… (os error 28)"."""
    if isinstance(error, OSError):
        return error.errno
    match = re.search(r"\(os error (\d+)\)", str(error))
    return int(match[1]) if match else None


def write_text(path: Path, text: str) -> None:
    with replacing(path) as partial:
        partial.write_text(
            text, encoding="utf-8", errors="surrogateescape"
        )  # file names may hold any bytes


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Parse a JSON file; the error names the file and the place."""
    try:
        return json.loads(read_text(path, errors="surrogateescape"))
    except (
        ValueError,
        RecursionError,
    ) as error:  # not JSON, a number of thousands of digits, or nested too deep
        raise TagmaskError(
            f"{path} is not valid JSON ({error}); repair it or make it again."
        ) from None


def read_text(path: Path, errors: str = "strict") -> str:
    """The text of a file of ours or the user's; a sentence if it is missing, no ordinary file, or far too large."""
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
    """The root of an XML text. Entities of its own are refused: a few lines of them can stand for gigabytes."""
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
    """Parse a JSON file that tagmask wrote: an object with these keys, whose values have these types."""
    value = read_json(path)
    if not isinstance(value, dict) or not all(
        key in value and is_a(value[key], form) for key, form in forms.items()
    ):
        raise TagmaskError(f"{path} was not written by tagmask; delete it, and its part is redone.")
    return value


def is_a(value: Any, form: Any) -> bool:
    """``isinstance``, but true and false are no numbers, and numbers are finite."""
    forms = form if isinstance(form, tuple) else (form,)
    if isinstance(value, bool):
        return bool in forms
    return isinstance(value, forms) and (not isinstance(value, int | float) or abs(value) < 1e300)


def write_arrays(path: Path, **arrays: Any) -> None:
    """Write NumPy arrays as a compressed .npz, without pickle."""
    import numpy as np

    with replacing(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, **arrays)


def read_arrays(path: Path, names: Iterable[str], command: str) -> dict[str, Any]:
    """The arrays ``names`` of a .npz that ``command`` writes; a sentence if the file is missing or damaged."""
    import numpy as np

    if os.path.lexists(path) and not is_regular(path):
        raise TagmaskError(f"{path} is no ordinary file; delete it and run `{command}` again.")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in names}
        if any(
            array.dtype.kind not in "iuf" or not np.isfinite(array).all()
            for array in arrays.values()
        ):
            raise ValueError("values that are not numbers")
        return arrays
    except FileNotFoundError:
        raise TagmaskError(f"{path} does not exist; make it with `{command}`.") from None
    except Exception as error:  # of zip, zlib, struct, Python's parser and others
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


LOCK = ".tagmask.lock"  # in the folder of a run, while a command works in it


@contextmanager
def only_one(folder: Path, shared: bool = False) -> Iterator[None]:
    """Hold the run in ``folder``; refuse at once if another process does, unless both are ``shared``.

    The system lets go of it when the process ends, however it ends. Windows has no such locks.
    """
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    path = folder / LOCK
    with _locked(path, fcntl.LOCK_SH if shared else fcntl.LOCK_EX) as file:
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        try:
            yield
        finally:
            with suppress(
                OSError
            ):  # others share it still, or a folder that was here before is not empty
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink(missing_ok=True)
                if is_new:
                    folder.rmdir()


@contextmanager
def _locked(path: Path, how: int) -> Iterator[TextIO]:
    """The lock file, once it is locked; a sentence on who has it otherwise."""
    while True:
        with path.open("a+") as file:
            try:
                fcntl.flock(file, how | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                owner = re.sub(r"[^0-9]", "", file.read(20)) or "unknown"
                raise TagmaskError(
                    f"{path.parent} is in use by another tagmask (process {owner}); wait for it to end, or stop it."
                ) from None
            if _leads_to(path, file.fileno()):  # otherwise its last holder has just removed it
                yield file
                return


def _leads_to(path: Path, number: int) -> bool:
    """Whether a path is still that of an open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(number))
    except FileNotFoundError:
        return False
