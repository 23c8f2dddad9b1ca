"""What stages that write one file per image share: who made a folder, and which part of the work is this process's."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tagmask.config import DataSettings
from tagmask.data.made_by import IDENTITY
from tagmask.errors import TagmaskError
from tagmask.files import read_object, write_json

_LAUNCH = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def check_identity(
    folder: Path, identity: Mapping[str, Any], restart: bool, what: str, files: Iterable[Path] = ()
) -> None:
    """Note in ``folder`` what makes its files; refuse to mix ``what`` (in the plural) of two models or settings.

    On a restart ``files`` are removed before that: stopped at any time, what is there was made by what is noted.
    """
    file = folder / IDENTITY
    if restart:
        for one in files:
            one.unlink(missing_ok=True)
    if file.exists() and not restart:
        before = read_object(file)  # what an earlier version did not note yet is taken to be the same
        changed = [
            f"{name} was {value!r} and is now {identity.get(name)!r}"
            for name, value in sorted(before.items())
            if value != identity.get(name)
        ]
        if changed:
            raise TagmaskError(
                f"{folder} holds {what} made otherwise ({', '.join(changed[:5])}); "
                "choose another --out, or add --restart to make all anew."
            )
        if identity.keys() <= before.keys():
            return
    write_json(file, dict(identity))


def drawn_identity(settings: DataSettings) -> dict[str, int]:
    """What tells scenes of one seed from those of another: their names are the same."""
    return {"scene_seed": settings.scene_seed} if settings.data == "scenes" else {}


def maker(folder: Path) -> str:
    """A short hash of what made the files of ``folder``, to tell whether those made from them are still of today."""
    return file_digest(folder / IDENTITY) if (folder / IDENTITY).is_file() else "unknown"


def file_digest(path: Path) -> str:
    """A short hash of a file's content."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except FileNotFoundError:
        raise TagmaskError(f"{path} does not exist; check the path.") from None


def told_skipped(skipped: Mapping[str, str]) -> list[str]:
    """Lines on the images that were skipped and why, the first ten of them."""
    lines = [f"{len(skipped)} images were skipped:"] if skipped else []
    lines += [f"  {name}: {why}" for name, why in list(skipped.items())[:10]]
    return lines + ([f"  … and {len(skipped) - 10} more"] if len(skipped) > 10 else [])


def launched_shard() -> tuple[int, int]:
    """This process's share under `accelerate launch` or torchrun; all of it otherwise."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def single_process() -> Iterator[None]:
    """For what one of several launched processes does alone: the others are not waited for."""
    hidden = {name: os.environ.pop(name) for name in _LAUNCH if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)
