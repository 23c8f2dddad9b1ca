"""Work that is done once: a result is kept in a file and found again, whoever asks for it."""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tagmask.errors import TagmaskError
from tagmask.files import read_json, write_json

LOCK = "lock"


def key(settings: Mapping[str, Any]) -> str:
    """A short name for settings: the same for the same values in any order, another for any other value."""
    text = json.dumps(settings, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def once(file: Path, settings: Mapping[str, Any], work: Callable[[], Any]) -> Any:
    """The result of ``work`` as JSON, from ``file`` where it was done before; ``settings`` are noted beside it."""
    with alone(file.parent):
        if file.is_file():
            return _kept(file)["result"]
        began = time.monotonic()
        result = work()
        seconds = round(time.monotonic() - began, 1)
        write_json(file, {"settings": dict(settings), "seconds": seconds, "result": result})
        return _kept(file)["result"]  # as it will be found again


def seconds_of(file: Path) -> float:
    """How long it took."""
    return float(_kept(file)["seconds"])


def _kept(file: Path) -> dict[str, Any]:
    found = read_json(file)
    if not isinstance(found, dict) or not {"result", "seconds"} <= found.keys():
        raise TagmaskError(f"{file} is not as `tagmask paper` writes it; delete it, and its work is done again.")
    return found


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """No other process works in ``folder`` meanwhile; a second table that needs the same run waits for it.

    Only where the system has such locks (not on Windows).
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:
        yield
        return
    with (folder / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # given back when the file is closed, also by a kill
        yield
