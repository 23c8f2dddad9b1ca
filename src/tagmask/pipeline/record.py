"""What the stages of a run were made from, so that a finished one is skipped only while that is still so.

A stage that has begun leaves begun.json in its folder, and done.json when it is finished: every setting and the hash
of every input, by name. Files of images are told apart by name and size, networks by their content.
"""

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tagmask.config import TrainSettings, to_plain
from tagmask.config.run import DATA, NOT_IN_A_RUN, RunSettings
from tagmask.data.catalog import Catalog
from tagmask.files import PARTIAL, read_object, write_json
from tagmask.stages.resume import file_digest

MODEL = "model.safetensors"
_NO_DIFFERENCE = {"workers", "processes", "log_every", "save_every", "tensorboard"}  # to what a stage makes
_SAFETENSORS = ".tmp??????"  # names that safetensors writes under before it renames
Parts = dict[str, Any]


@dataclass(frozen=True)
class Record:
    """Where a stage notes what it is made from, and which files it makes."""

    folder: Path
    products: str  # pattern below the folder
    prefix: str = ""  # of the two notes, where the folder is the run itself

    @property
    def done(self) -> Path:
        return self.folder / f"{self.prefix}done.json"

    @property
    def begun(self) -> Path:
        return self.folder / f"{self.prefix}begun.json"

    def files(self) -> str:
        """A hash of the names and sizes of what is there."""
        found = sorted(file for file in self.folder.glob(self.products) if file.is_file())
        return _digest(f"{file.relative_to(self.folder).as_posix()} {file.stat().st_size}" for file in found)

    def stamp(self) -> str:
        """A hash of what made the files and of what is there."""
        made = read_object(self.done, "made_from")["made_from"] if self.done.is_file() else "unknown"
        return _digest([str(made), self.files()])

    def begin(self, parts: Parts) -> None:
        self.done.unlink(missing_ok=True)
        write_json(self.begun, parts)

    def finish(self, parts: Parts) -> None:
        write_json(self.done, {"made_from": parts, "files": self.files()})
        self.begun.unlink(missing_ok=True)

    def discard(self) -> None:
        """Put aside what is there: at once, so that a kill in between leaves no half of it."""
        if self.prefix:  # the folder is not the stage's own
            self.done.unlink(missing_ok=True)
            self.begun.unlink(missing_ok=True)
            return
        self.clean()
        if self.folder.is_symlink():
            self.folder.unlink()  # what it leads to is the user's
        elif self.folder.exists():
            os.replace(self.folder, self._aside)

    def restore(self) -> None:
        """Take back what was put aside, if nothing was made in its place."""
        made = [file for file in self.folder.rglob("*") if file.is_file() and file != self.begun]
        if not self.prefix and self._aside.exists() and not made:
            shutil.rmtree(self.folder, ignore_errors=True)
            os.replace(self._aside, self.folder)

    def clean(self) -> None:
        """Remove what was put aside, and what a kill has left behind."""
        if not self.prefix and self._aside.exists():
            shutil.rmtree(self._aside)
        for left in (f"*{PARTIAL}",) if self.prefix else (f"**/*{PARTIAL}", f"**/{_SAFETENSORS}"):
            for file in self.folder.glob(left):
                file.unlink(missing_ok=True)

    @property
    def _aside(self) -> Path:
        return self.folder.with_name(f".{self.folder.name}.discarded")


@dataclass(frozen=True)
class Standing:
    """How far a stage is, and why it is not simply skipped."""

    state: Literal["new", "goes on", "anew", "done"]
    why: tuple[str, ...] = ()


def standing(record: Record, parts: Parts, where: Parts, restart: bool = False) -> Standing:
    """Whether a stage is done, goes on, or has to be done anew; ``where`` counts only until it is done."""
    if restart and record.folder.exists():
        return Standing("anew", ("--restart",))
    if record.done.is_file():
        before = read_object(record.done, "made_from", "files")
        changed = differences(before["made_from"], parts)
        if changed:
            return Standing("anew", changed)
        if before["files"] == record.files():
            return Standing("done")
        told = (f"files in {record.folder} have changed since it was done",)
        return Standing("anew" if record.products == MODEL else "goes on", told)
    if record.begun.is_file():
        changed = differences(read_object(record.begun), {**parts, **where})
        return Standing("anew", changed) if changed else Standing("goes on")
    return Standing("goes on" if record.folder.is_dir() and not record.prefix else "new")


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """A clause for everything that has changed, inputs by name and settings with both values."""
    names = [*now, *(name for name in before if name not in now)]
    changed = [name for name in names if before.get(name) != now.get(name)]
    return tuple(
        f"{name[6:]} changed"
        if name.startswith("input ")
        else f"{name} was {before.get(name)} and is now {now.get(name)}"
        for name in changed
    )


def setting_parts(stage: str, section: Any, leave_out: Iterable[str] = ()) -> tuple[Parts, Parts]:
    """The settings of a stage that make a difference to its files, and those that say where things are."""
    without = {*_NO_DIFFERENCE, *NOT_IN_A_RUN}
    parts: Parts = {}
    where: Parts = {}
    for name, value in _flat(to_plain(section)).items():
        last = name.rpartition(".")[2]
        if last == "weights":
            where[name], parts[f"input file of {name}"] = value, file_digest(Path(value))
        elif name in DATA:
            where[name] = value
        elif last not in without and not name.startswith(tuple(leave_out)):
            parts[name] = value
    if parts.get("kind") == TrainSettings.kind:
        del parts["kind"]  # runs of the usual kind do not record it
    return parts, where


def _flat(values: Mapping[str, Any], prefix: str = "") -> Parts:
    found: Parts = {}
    for name, value in values.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return found


def image_parts(catalog: Catalog) -> Parts:
    """Names and tags, and the images themselves."""
    sizes = _sizes(catalog.item(i).image for i in range(len(catalog)))
    return {"input names and tags": catalog.fingerprint(), "input images": sizes}


def mask_parts(settings: RunSettings, catalog: Catalog) -> Parts:
    """The masks that stages are scored against."""
    files = [catalog.item(i).mask for i in range(len(catalog))]
    return {"input masks": _sizes([settings.annotations, *files])}


def _sizes(files: Iterable[Path | None]) -> str:
    return _digest(str(_size(file)) for file in files)


def _size(file: Path | None) -> int:
    try:
        return -1 if file is None else file.stat().st_size
    except OSError:
        return -1


def _digest(lines: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode("utf-8", "surrogateescape") + b"\n")
    return digest.hexdigest()[:16]
