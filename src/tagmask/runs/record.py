"""What was made from what: the one mechanism behind skip, redo, resume and refusal.

``made_from`` lists every setting that affects the files of a stage, and a hash of every input. The stage itself writes
it to made_by.json and to a training's resume point, a run to begun.json and done.json, the paper's tables into the
names of their folders; ``tagmask.notes`` compares two such lists. Images are identified by name and size, networks by
their content.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tagmask import layout
from tagmask.config import DataSettings, to_plain
from tagmask.config.run import DATA, NOT_IN_A_RUN
from tagmask.data.catalog import Catalog
from tagmask.errors import TagmaskError, first_of
from tagmask.files import (
    PARTIAL,
    alone,
    file_size,
    is_a,
    read_object,
    read_text,
    remove_temporaries,
    write_json,
)
from tagmask.notes import INPUT, Parts, differences, refuse_changes

_QUICK_BYTES = 256e6  # so much is hashed at every start
CORRECTIONS = f"{INPUT}corrections"
IMAGES = (f"{INPUT}names and tags", f"{INPUT}images")
NO_DIFFERENCE = {  # settings that change nothing in the files of a stage
    *("workers", "processes", "log_every", "save_every", "tensorboard", "estimate", "device"),
    *NOT_IN_A_RUN,
}
_BESIDE = {  # files that belong to the products of a stage; the others have notes
    layout.MODEL: (
        layout.MODEL_CONFIG,
        f"{layout.BEST}/{layout.MODEL}",
        f"{layout.BEST}/{layout.MODEL_CONFIG}",
    ),
    layout.SCORES: (layout.CURVE,),
    layout.REPORT: (),
    layout.CHECK: (),
}


def made_from(
    settings: Any, inputs: Mapping[str, Path] | None = None, unused: Iterable[str] = ()
) -> Parts:
    """What a stage with these settings is made from; settings whose names begin with one of ``unused`` do not count.

    ``inputs`` are folders of networks, or folders of files with a made_by.json.
    """
    parts: Parts = {}
    for name, value in _flat(to_plain(settings)).items():
        last = name.rpartition(".")[2]
        if last == "weights":
            parts[f"{INPUT}file of {name}"] = file_digest(Path(value))
        elif last not in NO_DIFFERENCE and not name.startswith(tuple(unused)):
            parts[name] = value
    return parts | {f"{INPUT}{title}": _digest_of(path) for title, path in (inputs or {}).items()}


def places(settings: Any) -> Parts:
    """Where the images and weights of a stage are; this counts only until the stage is done."""
    values = _flat(to_plain(settings))
    return {
        name: value
        for name, value in values.items()
        if name in DATA or name.rpartition(".")[2] == "weights"
    }


def image_parts(catalog: Catalog) -> Parts:
    """Names and tags, and the images themselves."""
    sizes = digest(map(str, catalog.file_sizes("images")))
    return dict(zip(IMAGES, (catalog.fingerprint(), sizes), strict=True))


def correction_parts(catalog: Catalog) -> Parts:
    """The pixels that a person has corrected; nothing if there are none."""
    digests = {
        catalog.name(i): catalog.correction_digest(i)
        for i in range(len(catalog) if catalog.corrections else 0)
    }
    lines = [f"{name} {sha}" for name, sha in sorted(digests.items()) if sha]
    return {CORRECTIONS: digest(lines)} if lines else {}


def mask_parts(settings: DataSettings, catalog: Catalog) -> Parts:
    """The masks that stages are scored against."""
    sizes = [file_size(settings.annotations), *catalog.file_sizes("masks")]
    return {f"{INPUT}masks": digest(map(str, sizes))}


@dataclass(frozen=True)
class Status:
    """How far a stage is, and why it is not simply skipped."""

    state: Literal["new", "resume", "redo", "done"]
    why: tuple[str, ...] = ()


@dataclass(frozen=True)
class Record:
    """The notes in a stage's folder, and the files that the stage makes."""

    folder: Path
    products: str  # pattern below the folder
    prefix: str = ""  # of the notes, if the folder is the run itself

    @property
    def done(self) -> Path:
        return self.folder / f"{self.prefix}{layout.DONE}"

    @property
    def begun(self) -> Path:
        return self.folder / f"{self.prefix}{layout.BEGUN}"

    def files(self) -> str:
        """A hash of the names and sizes of what is there."""
        return files_of(self.folder, self.products)

    def contents(self) -> str:
        """A hash of the content of what is there; of gigabytes the one in done.json, if no file is younger."""
        patterns = (self.products, *_BESIDE.get(self.products, (layout.MADE_BY, layout.BACKGROUND)))
        files = sorted(
            file for pattern in patterns for file in self.folder.glob(pattern) if file.is_file()
        )
        stats = [file.stat() for file in files]
        note = self._note()
        noted = note.get("contents")
        if isinstance(noted, str) and sum(stat.st_size for stat in stats) > _QUICK_BYTES:
            since = (
                self.done.stat().st_ctime_ns
            )  # nobody can set this time, unlike that of the last change
            younger = [
                file for file, stat in zip(files, stats, strict=True) if stat.st_ctime_ns >= since
            ]
            if not younger or self._differ_in_use(younger, note):
                return noted
        return self._digest(files)

    def _digest(self, files: Iterable[Path]) -> str:
        """Return a hash of names below the folder and contents."""
        return digest(
            f"{file.relative_to(self.folder).as_posix()} {_content(file)}" for file in files
        )

    def _configs(self) -> str:
        """Return a hash of the config.json of the networks, without their use."""
        return self._digest(sorted(self.folder.glob(f"**/{layout.MODEL_CONFIG}")))

    def _differ_in_use(self, younger: Sequence[Path], note: Mapping[str, Any]) -> bool:
        """Return True if files that are younger than done.json differ at most in the use.

        A network is told how it is to be used after it is done.
        """
        are_configs = all(file.name == layout.MODEL_CONFIG for file in younger)
        return are_configs and note.get("configs") == self._configs()

    def _note(self) -> dict[str, Any]:
        return read_object(self.done, made_from=dict, files=str) if self.done.is_file() else {}

    def stamp(self) -> str:
        """A hash of what made the files and of what is there; of the content where it is one file of the run."""
        if self.prefix:
            file = self.folder / self.products
            return file_digest(file) if file.is_file() else "none"
        note = self._note()
        made = note.get("made_from", "unknown")
        return digest([str(made), self.contents() if "contents" in note else self.files()])

    def status(self, parts: Parts, where: Parts, restart: bool = False) -> Status:
        """Whether the stage is done, resumes, or has to be redone; ``where`` counts only until it is done."""
        if restart and self.folder.exists():
            return Status("redo", ("--restart",))
        if self.done.is_file():
            before = self._note()
            changed = differences(before["made_from"], parts)
            if changed:
                return self._changed(changed)
            # earlier notes have no hash of the content
            if before["files"] == self.files() and before.get("contents") in (
                None,
                self.contents(),
            ):
                return Status("done")
            why = (f"files in {self.folder} have changed since it was done",)
            lacks_note = before.get(layout.MADE_BY) is True and not self._has_note()
            return Status("redo" if self.products == layout.MODEL or lacks_note else "resume", why)
        if self.begun.is_file():
            changed = differences(read_object(self.begun), {**parts, **where})
            return self._changed(changed) if changed else Status("resume")
        return Status("resume" if self.folder.is_dir() and not self.prefix else "new")

    def _changed(self, why: tuple[str, ...]) -> Status:
        """Everything is redone, but of corrected photos only those whose corrections changed: the stage knows them."""
        per_photo = (
            why == (f"{CORRECTIONS.removeprefix(INPUT)} changed",) and self.products == "**/*.png"
        )
        return Status("resume" if per_photo else "redo", why)

    def _has_note(self) -> bool:
        """Whether there is a made_by.json that can be read."""
        try:
            return bool(read_object(self.folder / layout.MADE_BY))
        except TagmaskError:
            return False

    def begin(self, parts: Parts) -> None:
        notes = (self.begun, self.done, self.folder / layout.MADE_BY)
        if not any(os.path.lexists(note) for note in notes):
            self._refuse_foreign(
                self.folder.glob(self.products) if self.products.startswith("**") else ()
            )
        self.done.unlink(missing_ok=True)
        write_json(self.begun, parts)

    def finish(self, parts: Parts) -> None:
        self.done.unlink(missing_ok=True)
        hashes = {"files": self.files(), "contents": self.contents()}
        claimed = (
            {layout.MADE_BY: True}
            if not self.prefix and (self.folder / layout.MADE_BY).is_file()
            else {}
        )
        if self.products == layout.MODEL:
            hashes["configs"] = self._configs()
        write_json(self.done, {"made_from": parts, **hashes, **claimed})
        self.begun.unlink(missing_ok=True)

    def claim(
        self, parts: Parts, catalog: Catalog, what: str, restart: bool, files: Iterable[Path]
    ) -> None:
        """Write made_by.json; refuse to mix ``what`` (a plural noun) of two models or settings.

        On a restart ``files`` are removed first, so that whenever it is stopped, made_by.json describes what is there.
        """
        note = {**parts, "classes": list(catalog.classes), **catalog.identity}
        file = self.folder / layout.MADE_BY
        if not file.exists() and not self._is_of(parts):
            self._refuse_foreign(files)
        if restart:
            for path in files:
                path.unlink(missing_ok=True)
        elif file.exists():
            refuse_changes(read_object(file), note, self.folder, what)
            return  # the note stays as it is: later stages are made from its content
        write_json(file, note)

    def _is_of(self, parts: Parts) -> bool:
        """Whether a run has begun the stage with these settings."""
        begun = read_object(self.begun) if self.begun.is_file() else {}
        return bool(begun) and all(
            begun[name] == value for name, value in parts.items() if name in begun
        )

    def _refuse_foreign(self, files: Iterable[Path]) -> None:
        """Refuse to go on in a folder of files that nobody noted to have made."""
        file = next((file for file in files if os.path.lexists(file)), None)
        if file is not None:
            raise TagmaskError(
                f"{self.folder} holds {file.name} but no {layout.MADE_BY}, so tagmask did not make it; move the files "
                "elsewhere, or choose another --out."
            )

    def discard(self) -> None:
        """Move the folder aside in one step, so that a kill never leaves half of it."""
        if self.prefix:  # the folder is not the stage's own
            self.done.unlink(missing_ok=True)
            self.begun.unlink(missing_ok=True)
            return
        if not os.path.lexists(self.folder):
            return
        if os.path.lexists(self._aside) and not self.done.is_file():
            self._remove(
                self.folder, self._aside
            )  # a redo that was stopped: what it was to replace is still aside
        else:
            self._remove(self._aside, self.folder)
            os.replace(self.folder, self._aside)

    def restore(self) -> None:
        """Move it back in the place of whatever was made since."""
        if not self.prefix and os.path.lexists(self._aside):
            self._remove(self.folder, self._aside)
            os.replace(self._aside, self.folder)

    def sweep(self) -> None:
        """Remove what a kill has left half-written."""
        remove_temporaries(self.folder, below=not self.prefix)

    def clean(self) -> None:
        """Remove what was moved aside, except the user's own files, and what a kill has left half-written."""
        if not self.prefix:
            self._remove(self._aside, self.folder)
        self.sweep()

    def _remove(self, folder: Path, other: Path) -> None:
        """Remove a folder of the stage; files in it that no stage makes are the user's and go to the ``other`` one."""
        if folder.is_symlink():
            folder.unlink()  # what it leads to is the user's
            return
        for file in [*folder.rglob("*")]:
            place = other / file.relative_to(folder)
            if not file.is_dir() and not self._makes(file) and not os.path.lexists(place):
                place.parent.mkdir(parents=True, exist_ok=True)
                os.replace(file, place)
        shutil.rmtree(folder, ignore_errors=True)

    def _makes(self, file: Path) -> bool:
        """Whether a stage may have made a file, by its name."""
        suffixes = {
            ".json",
            ".jsonl",
            ".npz",
            ".png",
            ".safetensors",
            PARTIAL,
            Path(self.products).suffix,
        }
        return file.suffix in suffixes or file.name.startswith((".tmp", "events.out."))

    @property
    def _aside(self) -> Path:
        return self.folder.with_name(f".{self.folder.name}.discarded")


def files_of(folder: Path, pattern: str = "**/*.[np][pn][zg]") -> str:
    """A hash of the names and sizes of the files of a folder; by default of maps (.npz) and masks (.png)."""
    files = sorted(file for file in folder.glob(pattern) if file.is_file())
    return digest(f"{file.relative_to(folder).as_posix()} {file.stat().st_size}" for file in files)


def classes_of(folder: Path) -> list[str] | None:
    """The classes that the maps or masks of a folder were made for; None if it does not say."""
    file = folder / layout.MADE_BY
    names = read_object(file).get("classes") if file.is_file() else None
    if names is not None and not (
        isinstance(names, list) and all(isinstance(name, str) for name in names)
    ):
        raise TagmaskError(
            f"{file} does not name the classes as tagmask does; delete it, and make the files again."
        )
    return names


def check_classes(folder: Path, classes: Sequence[str], what: str) -> None:
    """Refuse ``what`` (a plural noun) made for other classes: their numbers mean other things."""
    made_for = classes_of(folder)
    if made_for is not None and list(made_for) != list(classes):
        raise TagmaskError(
            f"the {what} in {folder} were made for {len(made_for)} classes ({first_of(made_for, 3)}), but the images "
            f"have {len(classes)} ({first_of(classes, 3)}); give the data they were made with, or redo them with "
            "--restart."
        )


def key(parts: Mapping[str, Any]) -> str:
    """A short name for what something is made from: the same for the same values in any order."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def once(file: Path, parts: Mapping[str, Any], work: Callable[[], Any]) -> Any:
    """The result of ``work`` as JSON, from ``file`` if it was done before; ``parts`` are written beside it."""
    with alone(file.parent):
        if not file.is_file():
            began = time.monotonic()
            result = work()
            seconds = round(time.monotonic() - began, 1)
            write_json(file, {"settings": dict(parts), "seconds": seconds, "result": result})
        return read_object(file, result=object, seconds=(int, float))["result"]


def seconds_of(file: Path) -> float:
    """How long the work that ``once`` keeps in ``file`` took."""
    return float(read_object(file, result=object, seconds=(int, float))["seconds"])


def file_digest(path: Path, digits: int | None = 16) -> str:
    """The first digits of the SHA-256 of a file's content; None: all of them."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:digits]
    except FileNotFoundError:
        raise TagmaskError(f"{path} does not exist; check the path.") from None


def contents_of(files: Iterable[Path]) -> str:
    """A hash of the content of files, in this order."""
    return digest(_content(file) for file in files)


def _content(file: Path) -> str:
    """Return a hash of the content of a file; of a network's config.json without its use."""
    try:
        if file.name == layout.MODEL_CONFIG:
            return hashlib.sha256(_without_use(file.read_bytes())).hexdigest()
        return file_digest(file, None)
    except (TagmaskError, OSError):
        return "none"


def _without_use(content: bytes) -> bytes:
    """Return a config.json as it was before its network was told how it is to be used."""
    try:
        config = json.loads(content.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return content
    told = (layout.USE, layout.USE_VERSION)
    if not isinstance(config, dict) or not any(name in config for name in told):
        return content
    before = {name: value for name, value in config.items() if name not in told}
    text = json.dumps(before, indent=2, ensure_ascii=False) + "\n"  # as ``write_json`` writes it
    return text.encode("utf-8", "surrogateescape")


def read_log(file: Path) -> list[dict[str, float]]:
    """The rows of a training's log, numbers only; a line cut off by a kill is skipped."""
    rows = []
    for line in read_text(file, errors="replace").splitlines():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and is_a(row.get("step"), (int, float)):
            rows.append(
                {name: float(value) for name, value in row.items() if is_a(value, (int, float))}
            )
    return rows


def digest(lines: Iterable[str]) -> str:
    """A short hash of lines."""
    sha = hashlib.sha256()
    for line in lines:
        sha.update(line.encode("utf-8", "surrogateescape") + b"\n")
    return sha.hexdigest()[:16]


def _digest_of(path: Path) -> str:
    """A hash of an input: a network by its weights, a folder of files by the note of who made it."""
    if (path / layout.MADE_BY).is_file():
        return file_digest(path / layout.MADE_BY)
    return file_digest(path / layout.MODEL) if (path / layout.MODEL).is_file() else "unknown"


def _flat(values: Mapping[str, Any], prefix: str = "") -> Parts:
    flat: Parts = {}
    for name, value in values.items():
        flat |= (
            _flat(value, f"{prefix}{name}.")
            if isinstance(value, Mapping)
            else {prefix + name: value}
        )
    return flat
