"""What was made from what: the one mechanism behind skip, redo, resume and refusal.

``made_from`` lists every setting that affects the files of a stage, and a hash of every input. The
stage itself writes it to made_by.json and to a training's resume point, a run to begun.json and
done.json, the paper's tables into the names of their folders; ``tagmask.notes`` compares two such
lists. Images are identified by name and size, networks by their content.
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
from tagmask.data.catalog import Catalog, refuse_clashes
from tagmask.errors import TagmaskError, first_of
from tagmask.files import (
    PARTIAL,
    alone,
    file_size,
    is_a,
    read_json,
    read_object,
    read_text,
    remove_temporaries,
    write_json,
    write_text,
)
from tagmask.notes import CONTENTS, INPUT, Parts, differences, refuse_changes
from tagmask.runs.contents import content_digests

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
    """Return what a stage with these settings is made from.

    Args:
        settings: The stage's own settings.
        inputs: Folders of networks, or folders of files with a made_by.json, by their titles.
        unused: Settings whose names begin with one of these do not count.
    """
    parts: Parts = {}
    for name, value in _flat(to_plain(settings)).items():
        last = name.rpartition(".")[2]
        if last == "weights":
            parts[f"{INPUT}file of {name}"] = file_digest(Path(value))
        elif last not in NO_DIFFERENCE and not name.startswith(tuple(unused)):
            parts[name] = value
    for title, path in (inputs or {}).items():
        parts[f"{INPUT}{title}"] = _digest_of(path)
    return parts


def places(settings: Any, data: DataSettings | None = None) -> Parts:
    """Return where the images and weights of a stage are; this counts only until it is done.

    Args:
        settings: The stage's own settings.
        data: Where the images are; default: they do not count.
    """
    parts: Parts = {}
    if data is not None:
        plain = to_plain(data)
        parts = {name: plain[name] for name in DATA if name in plain}
    for name, value in _flat(to_plain(settings)).items():
        if name.rpartition(".")[2] == "weights":
            parts[name] = value
    return parts


def image_parts(catalog: Catalog, out: Path) -> Parts:
    """Return names and tags, and the images themselves.

    Args:
        catalog: the images.
        out: the folder of the run, which keeps hashes of their content.
    """
    sizes = digest(map(str, catalog.file_sizes("images")))
    parts: Parts = dict(zip(IMAGES, (catalog.fingerprint(), sizes), strict=True))
    return parts | _content_parts(out, catalog.files("images"), "images")


def correction_parts(catalog: Catalog) -> Parts:
    """Return the pixels that a person has corrected; nothing if there are none."""
    if not catalog.corrections:
        return {}
    corrected: dict[str, str] = {}
    for i in range(len(catalog)):
        content = catalog.correction_digest(i)
        if content:
            corrected[catalog.name(i)] = content
    if not corrected:
        return {}
    return {CORRECTIONS: digest(f"{name} {content}" for name, content in sorted(corrected.items()))}


def mask_parts(settings: DataSettings, catalog: Catalog, out: Path) -> Parts:
    """Return the masks that stages are scored against.

    Args:
        settings: where the data are.
        catalog: the images with their masks.
        out: the folder of the run, which keeps hashes of their content.
    """
    sizes = [file_size(settings.annotations), *catalog.file_sizes("masks")]
    parts: Parts = {f"{INPUT}masks": digest(map(str, sizes))}
    files = catalog.files("masks")
    if settings.annotations is not None:
        files[""] = str(settings.annotations)  # no image has this name
    return parts | _content_parts(out, files, "masks")


def _content_parts(out: Path, files: Mapping[str, str], kind: str) -> Parts:
    """Return a hash of the content of the user's files; nothing if there are none."""
    if not files:
        return {}
    digests = content_digests(out, files, kind)
    lines = (f"{name} {content}" for name, content in sorted(digests.items()))
    return {f"{CONTENTS}{kind}": digest(lines)}


@dataclass(frozen=True)
class Status:
    """How far a stage is, and why it is not simply skipped."""

    state: Literal["new", "resume", "redo", "done"]
    why: tuple[str, ...] = ()


def _read_note(path: Path, **forms: type) -> dict[str, Any]:
    """Return a note on a stage; one that is damaged may be deleted, because it can be made again.

    Args:
        path: the file.
        **forms: for each key that it must have the type of its value.

    Raises:
        TagmaskError: if it is damaged, or holds anything else.
    """
    read_json(path, remedy="delete it, and its part is redone")
    return read_object(path, **forms)


@dataclass(frozen=True)
class Record:
    """The notes in a stage's folder, and the files that the stage makes."""

    folder: Path
    products: str  # pattern below the folder
    prefix: str = ""  # of the notes, if the folder is the run itself

    @property
    def done(self) -> Path:
        """Return the path of the note that the stage is finished."""
        return self.folder / f"{self.prefix}{layout.DONE}"

    @property
    def begun(self) -> Path:
        """Return the path of the note that the stage has begun."""
        return self.folder / f"{self.prefix}{layout.BEGUN}"

    def files(self) -> str:
        """Return a hash of the names and sizes of what is there."""
        return files_of(self.folder, self.products)

    def contents(self) -> str:
        """Return a hash of the content of what is there.

        Of gigabytes it is the one in done.json, if no file is younger.
        """
        beside = _BESIDE.get(self.products, (layout.MADE_BY, layout.BACKGROUND))
        files: list[Path] = []
        for pattern in (self.products, *beside):
            files += [file for file in self.folder.glob(pattern) if file.is_file()]
        files.sort()
        stats = [file.stat() for file in files]
        note = self._note()
        noted = note.get("contents")
        if isinstance(noted, str) and sum(stat.st_size for stat in stats) > _QUICK_BYTES:
            # nobody can set this time, unlike that of the last change
            since = self.done.stat().st_ctime_ns
            younger = []
            for file, stat in zip(files, stats, strict=True):
                if stat.st_ctime_ns >= since:
                    younger.append(file)
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
        return _read_note(self.done, made_from=dict, files=str) if self.done.is_file() else {}

    def stamp(self) -> str:
        """Return a hash of what made the files and of what is there.

        Where it is one file of the run, it is a hash of its content.
        """
        if self.prefix:
            file = self.folder / self.products
            return file_digest(file) if file.is_file() else "none"
        note = self._note()
        made = note.get("made_from", "unknown")
        return digest([str(made), self.contents() if "contents" in note else self.files()])

    def status(self, parts: Parts, where: Parts, restart: bool = False) -> Status:
        """Return whether the stage is done, resumes, or has to be redone.

        Args:
            parts: What it is made from now.
            where: Where its images and weights are; this counts only until it is done.
            restart: Redo it in any case.
        """
        self._recover()
        if restart and self.folder.exists():
            return Status("redo", ("--restart",))
        if self.done.is_file():
            before = self._note()
            changed = differences(before["made_from"], parts)
            if changed:
                return self._changed(changed)
            if before["files"] == self.files():
                # earlier notes have no hash of the content
                noted = before.get("contents")
                if noted is None or noted == self.contents():
                    return Status("done")
            why = (f"files in {self.folder} have changed since it was done",)
            lacks_note = before.get(layout.MADE_BY) is True and not self._has_note()
            is_redone = self.products == layout.MODEL or lacks_note
            return Status("redo" if is_redone else "resume", why)
        if self.begun.is_file():
            changed = differences(_read_note(self.begun), {**parts, **where})
            return self._changed(changed) if changed else Status("resume")
        return Status("resume" if self.folder.is_dir() and not self.prefix else "new")

    def _changed(self, why: tuple[str, ...]) -> Status:
        """Return that everything is redone, unless only corrections of photos changed.

        The stage itself knows which photos those are.
        """
        corrected = f"{CORRECTIONS.removeprefix(INPUT)} changed"
        is_per_photo = why == (corrected,) and self.products == "**/*.png"
        return Status("resume" if is_per_photo else "redo", why)

    def _has_note(self) -> bool:
        """Return True if there is a made_by.json that can be read."""
        try:
            return bool(read_object(self.folder / layout.MADE_BY))
        except TagmaskError:
            return False

    def begin(self, parts: Parts) -> str | None:
        """Note what the stage is made from, before it makes anything.

        Args:
            parts: What it is made from, with the places of images and weights.

        Returns:
            The note that the stage was done before, for ``take_back``; None if there is none.

        Raises:
            TagmaskError: The folder holds files that nobody noted to have made.
        """
        notes = (self.begun, self.done, self.folder / layout.MADE_BY)
        if not any(os.path.lexists(note) for note in notes):
            is_per_image = self.products.startswith("**")
            self._refuse_foreign(self.folder.glob(self.products) if is_per_image else ())
        before = read_text(self.done) if self.done.is_file() else None
        self.done.unlink(missing_ok=True)
        write_json(self.begun, parts)
        return before

    def take_back(self, before: str | None) -> None:
        """Put back what a stage that failed found: what it was to replace, and its note.

        The note has hashes of the files, so what the stage has changed meanwhile is noticed.

        Args:
            before: What ``begin`` returned.
        """
        self.restore()
        if before is not None and self.folder.is_dir():
            write_text(self.done, before)
            self.begun.unlink(missing_ok=True)

    def finish(self, parts: Parts) -> None:
        """Note that the stage is done, with hashes of what it has made.

        Args:
            parts: What it was made from.
        """
        self.done.unlink(missing_ok=True)
        hashes = {"files": self.files(), "contents": self.contents()}
        claimed = {}
        if not self.prefix and (self.folder / layout.MADE_BY).is_file():
            claimed[layout.MADE_BY] = True
        if self.products == layout.MODEL:
            hashes["configs"] = self._configs()
        write_json(self.done, {"made_from": parts, **hashes, **claimed})
        self.begun.unlink(missing_ok=True)

    def claim(
        self, parts: Parts, catalog: Catalog, what: str, restart: bool, files: Iterable[Path]
    ) -> None:
        """Write made_by.json, or refuse to mix files of two models or settings.

        Args:
            parts: What the files are made from.
            catalog: The images.
            what: A plural noun for messages, such as "masks".
            restart: Remove ``files`` first, so that whenever it is stopped, made_by.json describes
                what is there.
            files: What the stage makes.

        Raises:
            TagmaskError: The folder holds files that were made from something else.
        """
        refuse_clashes([catalog.name(i) for i in range(len(catalog))], self.folder)
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
        """Return True if a run has begun the stage with these settings."""
        begun = _read_note(self.begun) if self.begun.is_file() else {}
        shared = begun.keys() & parts.keys()
        return bool(begun) and all(begun[name] == parts[name] for name in shared)

    def _refuse_foreign(self, files: Iterable[Path]) -> None:
        """Refuse to go on in a folder of files that nobody noted to have made."""
        file = next((file for file in files if os.path.lexists(file)), None)
        if file is not None:
            raise TagmaskError(
                f"{self.folder} holds {file.name} but no {layout.MADE_BY}, so tagmask did not "
                "make it; move the files elsewhere, or choose another --out."
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
            # a redo that was stopped: what it was to replace is still aside
            self._remove(self.folder, self._aside)
        else:
            self._remove(self._aside, self.folder)
            os.replace(self.folder, self._aside)

    def _recover(self) -> None:
        """Put back what a killed process had moved aside, if nothing is in its place yet."""
        is_missing = not os.path.lexists(self.folder)
        if not self.prefix and is_missing and os.path.lexists(self._aside):
            os.replace(self._aside, self.folder)

    def restore(self) -> None:
        """Move it back in the place of whatever was made since."""
        if not self.prefix and os.path.lexists(self._aside):
            self._remove(self.folder, self._aside)
            os.replace(self._aside, self.folder)

    def sweep(self) -> None:
        """Remove what a kill has left half-written."""
        remove_temporaries(self.folder, below=not self.prefix)

    def clean(self) -> None:
        """Remove what was moved aside or left half-written by a kill; keep the user's files."""
        if not self.prefix:
            self._remove(self._aside, self.folder)
        self.sweep()

    def settle(self) -> None:
        """Remove what a stage that is done still had to remove when it was killed."""
        self.begun.unlink(missing_ok=True)
        if not self.prefix and os.path.lexists(self._aside):
            self._remove(self._aside, self.folder)

    def _remove(self, folder: Path, other: Path) -> None:
        """Remove a folder of the stage; move files that no stage makes to the ``other`` one."""
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
        """Return True if a stage may have made a file, by its name."""
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
    """Return a hash of the names and sizes of the files of a folder.

    Args:
        folder: The folder.
        pattern: Which files count; default: maps (.npz) and masks (.png).
    """
    files = sorted(file for file in folder.glob(pattern) if file.is_file())
    lines = []
    for file in files:
        name = file.relative_to(folder).as_posix()
        lines.append(f"{name} {file.stat().st_size}")
    return digest(lines)


def classes_of(folder: Path) -> list[str] | None:
    """Return the classes that the maps or masks of a folder were made for; None if unknown."""
    file = folder / layout.MADE_BY
    names = read_object(file).get("classes") if file.is_file() else None
    if names is not None and not (
        isinstance(names, list) and all(isinstance(name, str) for name in names)
    ):
        raise TagmaskError(
            f"{file} does not name the classes as tagmask does; "
            "delete it, and make the files again."
        )
    return names


def check_classes(folder: Path, classes: Sequence[str], what: str) -> None:
    """Refuse files made for other classes: their numbers mean other things.

    Args:
        folder: Where they are.
        classes: Those of the images.
        what: A plural noun for the message, such as "masks".

    Raises:
        TagmaskError: They were made for other classes.
    """
    made_for = classes_of(folder)
    if made_for is not None and list(made_for) != list(classes):
        raise TagmaskError(
            f"the {what} in {folder} were made for {len(made_for)} classes "
            f"({first_of(made_for, 3)}), but the images have {len(classes)} "
            f"({first_of(classes, 3)}); give the data they were made with, "
            "or redo them with --restart."
        )


def key(parts: Mapping[str, Any]) -> str:
    """Return a short name for what something is made from, the same in any order."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def once(file: Path, parts: Mapping[str, Any], work: Callable[[], Any]) -> Any:
    """Return the result of some work, from a file if it was done before.

    Args:
        file: Keeps the result as JSON.
        parts: What it is made from; written beside it.
        work: Does it.
    """
    with alone(file.parent):
        if not file.is_file():
            began = time.monotonic()
            result = work()
            seconds = round(time.monotonic() - began, 1)
            write_json(file, {"settings": dict(parts), "seconds": seconds, "result": result})
        return read_object(file, result=object, seconds=(int, float))["result"]


def seconds_of(file: Path) -> float:
    """Return how long the work that ``once`` keeps in ``file`` took."""
    return float(read_object(file, result=object, seconds=(int, float))["seconds"])


def file_digest(path: Path, digits: int | None = 16) -> str:
    """Return the SHA-256 of a file's content.

    Args:
        path: The file.
        digits: How many digits; None: all of them.

    Raises:
        TagmaskError: There is no such file.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:digits]
    except FileNotFoundError:
        raise TagmaskError(f"{path} does not exist; check the path.") from None


def contents_of(files: Iterable[Path]) -> str:
    """Return a hash of the content of files, in this order."""
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
    """Return the rows of a training's log, numbers only; a line cut off by a kill is skipped."""
    rows = []
    for line in read_text(file, errors="replace").splitlines():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and is_a(row.get("step"), (int, float)):
            numbers = {}
            for name, value in row.items():
                if is_a(value, (int, float)):
                    numbers[name] = float(value)
            rows.append(numbers)
    return rows


def digest(lines: Iterable[str]) -> str:
    """Return a short hash of lines."""
    sha = hashlib.sha256()
    for line in lines:
        sha.update(line.encode("utf-8", "surrogateescape") + b"\n")
    return sha.hexdigest()[:16]


def _digest_of(path: Path) -> str:
    """Return a hash of an input.

    It is that of a network's weights, or of the note of who made a folder of files.
    """
    if (path / layout.MADE_BY).is_file():
        return file_digest(path / layout.MADE_BY)
    return file_digest(path / layout.MODEL) if (path / layout.MODEL).is_file() else "unknown"


def _flat(values: Mapping[str, Any], prefix: str = "") -> Parts:
    flat: Parts = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
