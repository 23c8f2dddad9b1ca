"""Every write fails once: `make every-write`, or python scripts/every_write.py --help.

Commands work on three small photos. Each time they are about to change the disk (open a file for
writing, write it, fsync, rename, unlink, make or remove a folder), the state is copied twice. In
one copy this very operation fails, with a full disk, a broken disk and a refused permission in
turn. In the other the power is cut: what was written since the last fsync is lost, and so are some
of the renames. The command itself goes on to the next operation.

Every failing copy must end with a sentence or not fail at all, without a traceback. In every copy
nothing of the user may have changed, and the same command, started again, must end with the bytes
of the undisturbed one. Copies that hold the same files, byte for byte, count as one: the command is
started again in the first of them. A failure after which the copied process could not go on for a
reason of its own (torch and filelock refuse some work in copies of a process) is repeated in a
process that begins anew.
"""

import argparse
import builtins
import contextlib
import errno
import hashlib
import importlib
import io
import json
import os
import random
import re
import shutil
import sys
import tempfile
import time
import traceback
import weakref
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TQDM_DISABLE": "1"}

import numpy as np
import safetensors.torch
import torch
from PIL import Image
from safetensors import SafetensorError

import tagmask.features.cache
import tagmask.models.storage
import tagmask.training.checkpoint
from tagmask import layout
from tagmask.cli import main
from tagmask.config import ExploreSettings
from tagmask.data.images import write_mask
from tagmask.data.scenes.catalog import Scenes
from tagmask.errors import TagmaskError
from tagmask.studio.versions import FOLDER as VERSIONS

# loaded once: copies are forked
for library in (
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "pycocotools.mask",
    "scipy.ndimage",
    "tagmask.data.folder",
    "tagmask.exchange.corrections",
    "tagmask.exchange.export",
    "tagmask.report.stage",
    "tagmask.show.curve",
    "tagmask.show.seeds",
    "tagmask.stages.check",
    "tagmask.stages.predict",
    "tagmask.stages.pseudo",
    "tagmask.stages.score",
    "tagmask.stages.segment",
    "tagmask.stages.train",
    "tagmask.studio.opening",
    "tagmask.training.segmenter",
    "tomli_w",
    "typeguard",
    "tyro",
):
    importlib.import_module(library)

ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES)
CHANGING = {  # hold times, paths or inodes
    "config.toml",
    "report.html",
    "report.done.json",
    "log.jsonl",
    "resume.safetensors",
    layout.CONTENTS,
}


def _words(line: str) -> list[str]:
    return line.split()


COMMON = _words(
    "--no-estimate --rows 2 --train.steps 2 --train.batch 2 --train.size 32 --train.warmup 1 "
    "--train.save-every 1 --train.log-every 1 --train.val-every 100 --seeds.size 32 "
    "--pseudo.method crf --predict.no-crf --predict.no-flip"
)
DEEPLAB = _words(
    "--segment.steps 2 --segment.batch 2 --segment.size 33 --segment.workers 0 "
    "--segment.save-every 1"
)
HEAD = _words(
    "--segment.net head --segment.head-blocks 1 3 --segment.size 48 --segment.cells 64 "
    "--segment.steps 4"
)
DATA = _words("--data folder --images mine/photos --tags mine/tags.csv")
RUN = ["run", "--preset", "scenes", *COMMON, *DATA, "--masks", "mine/masks", "--out", "run"]


@dataclass(frozen=True)
class Job:
    """Commands, of which the last is disturbed; all paths are relative to the working folder."""

    name: str
    before: tuple[tuple[str, ...], ...]
    words: tuple[str, ...]
    made: str  # the file or folder that is compared
    again: tuple[str, ...] = ()  # started again after it was disturbed; default: the same command


def jobs() -> list[Job]:
    """Return what is tried."""
    run = (*RUN, *DEEPLAB)
    head = (*RUN, *HEAD)
    changed = (*run, "--train.lr", "0.002")
    exported = ("export", "--out", "run", "--to")
    train = _words(
        "train --steps 1 --size 32 --batch 2 --save-every 1 --val-every 100 --out run "
        "--backbone tagmask_tiny"
    )
    back = ("corrections", "--out", "run", "--from", "mine/back.json")
    return [
        Job("train", (), (*train, *DATA), "run"),
        Job("run", (), run, "run"),
        Job("run with a head", (), head, "run"),
        Job("redo", (run,), changed, "run"),
        Job("export coco", (run,), (*exported, "to.json", "--format", "coco"), "to.json"),
        Job("export yolo", (run,), (*exported, "to", "--format", "yolo-seg"), "to"),
        Job("export again", (run, (*exported, "to", "--format", "index")),
            (*exported, "to", "--format", "index"), "to"),
        Job("corrections", (run,), back, "run/corrections"),
        Job("run with corrections", (run, back), run, "run"),
        Job("accept", (head, back), ("accept", "run"), "run", head),
        Job("predict a photo", (run,), ("predict", "mine/photos/a.png", "--model",
            "run/5_segmenter", "--mask", "mask.png", "--show", "show.png"), "mask.png"),
    ]  # fmt: skip


def make_user(folder: Path) -> None:
    """Write three small photos with tags and masks, and a file of corrections."""
    scenes = Scenes(3)
    rows = ["file,tags"]
    tasks = []
    for i, name in enumerate("abc"):
        image = Image.fromarray(scenes.load_image(i)).resize((48, 40))
        mask = scenes.load_mask(i)
        assert mask is not None
        small = np.asarray(Image.fromarray(mask).resize((48, 40), Image.Resampling.NEAREST))
        tags = [scenes.classes[tag] for tag in scenes.tags(i)]
        for part in ("photos", "masks"):
            (folder / "mine" / part).mkdir(parents=True, exist_ok=True)
        image.save(folder / f"mine/photos/{name}.png")
        rows.append(f"{name}.png,{';'.join(tags)}")
        # the table names the classes in the order of their names
        write_mask(folder / f"mine/masks/{name}.png", (small > 0).astype(np.uint8))
        polygon = {"points": [[10, 10], [60, 10], [60, 70]], "polygonlabels": [tags[0]]}
        result: dict[str, Any] = {"type": "polygonlabels", "value": polygon}
        result |= {"original_width": 48, "original_height": 40}
        tasks.append({"data": {"image": f"{name}.png"}, "annotations": [{"result": [result]}]})
    (folder / "mine/tags.csv").write_text("\n".join(rows) + "\n")
    (folder / "mine/back.json").write_text(json.dumps(tasks[:2]))


@dataclass
class Operation:
    """A change of the disk that is about to happen."""

    number: int
    kind: str
    path: str


@dataclass
class Disk:
    """Watches what changes the disk below the working folder, from the first operation on."""

    hook: Callable[[Operation], None]
    count: int = 0
    unsynced: set[str] = field(default_factory=set)
    renamed: list[tuple[str, bytes | None]] = field(default_factory=list)  # path, content before
    files: "weakref.WeakSet[WatchedFile]" = field(default_factory=lambda: weakref.WeakSet())
    _quiet: bool = False

    def about_to(self, kind: str, path: Any) -> None:
        """Tell the hook of an operation, unless the hook itself is at work."""
        try:
            name = os.path.relpath(os.fspath(path))
        except (TypeError, ValueError):
            return
        if self._quiet or name.startswith(("..", "/")):
            return
        self._quiet = True
        self.count += 1
        try:
            self.hook(Operation(self.count, kind, name))
        finally:
            self._quiet = False
        self._remember(kind, name)

    def _remember(self, kind: str, name: str) -> None:
        """Note what a power cut would lose."""
        if kind == "write":
            self.unsynced.add(name)
        elif kind == "unlink":
            self.unsynced.discard(name)
        elif kind == "fsync":
            self.unsynced.discard(name)
            # after that of a folder its renames are on the disk
            self.renamed = [entry for entry in self.renamed if os.path.dirname(entry[0]) != name]

    def moved(self, source: str, target: str) -> None:
        """Note a rename before it happens."""
        name = os.path.relpath(target)
        before = Path(name).read_bytes() if os.path.isfile(name) else None
        if not os.path.isdir(source):
            self.renamed.append((name, before))
        if os.path.relpath(source) in self.unsynced:
            self.unsynced.discard(os.path.relpath(source))
            self.unsynced.add(name)


class WatchedFile:
    """A file whose first write is an operation; it has no number, so that nobody writes past it."""

    def __init__(self, file: Any, disk: Disk, path: Any) -> None:
        self._file = file
        self._disk = disk
        self._path = path
        self._is_written = False
        disk.files.add(self)

    def move(self, place: Path) -> None:
        """Go on in the copy of the file below ``place``, in a process that was copied.

        Otherwise what is written when the file is closed would go into the file of the parent.
        """
        if self._file.closed:
            return
        number = self._file.fileno()
        at = os.lseek(number, 0, os.SEEK_CUR)
        other = os.open(place / os.path.relpath(self._path), os.O_RDWR)
        os.lseek(other, at, os.SEEK_SET)
        os.dup2(other, number)
        os.close(other)

    def write(self, data: Any) -> Any:
        """Write, after the operation was announced."""
        if not self._is_written:
            self._disk.about_to("write", self._path)
            self._is_written = True
        return self._file.write(data)

    def fileno(self) -> int:
        """Refuse, so that Pillow writes through ``write``."""
        raise io.UnsupportedOperation("fileno")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "WatchedFile":
        self._file.__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        return self._file.__exit__(*error)

    def __iter__(self) -> Any:
        return iter(self._file)


def watch(disk: Disk) -> None:
    """Announce every change of the disk in this process to ``disk``, for good."""
    real_open = builtins.open
    numbers: dict[int, Any] = {}

    def watched_open(file: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
        if isinstance(file, int) or not set(mode) & set("wax+"):
            return real_open(file, mode, *rest, **options)
        disk.about_to("open", file)
        return WatchedFile(real_open(file, mode, *rest, **options), disk, file)

    real = {name: getattr(os, name) for name in ("open", "fsync", "replace", "rename")}
    real |= {name: getattr(os, name) for name in ("unlink", "remove", "mkdir", "rmdir")}

    def os_open(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        # a file that is only opened to be synced is no change; locks are the system's
        if flags & os.O_CREAT:
            disk.about_to("open", path)
        number: int = real["open"](path, flags, *rest, **options)
        numbers[number] = path
        return number

    def fsync(number: Any) -> None:
        disk.about_to("fsync", numbers.get(number, ""))
        real["fsync"](number)

    def rename(source: Any, target: Any, **options: Any) -> None:
        disk.about_to("rename", target)
        disk.moved(os.fspath(source), os.fspath(target))
        real["replace"](source, target, **options)

    def simple(name: str, kind: str) -> Callable[..., Any]:
        def work(path: Any, *rest: Any, **options: Any) -> Any:
            if "dir_fd" not in options or options["dir_fd"] is None:
                disk.about_to(kind, path)
            return real[name](path, *rest, **options)

        return work

    save_file = safetensors.torch.save_file

    def save(tensors: Any, path: Any, *rest: Any, **options: Any) -> None:
        try:
            disk.about_to("write", path)
        except OSError as error:
            # as its Rust tells it
            raise SafetensorError(f"I/O error: {error.strerror} (os error {error.errno})") from None
        save_file(tensors, path, *rest, **options)

    patches: dict[str, Any] = {"open": os_open, "fsync": fsync, "replace": rename}
    patches |= {"rename": rename, "unlink": simple("unlink", "unlink")}
    patches |= {"remove": simple("remove", "unlink"), "mkdir": simple("mkdir", "mkdir")}
    patches["rmdir"] = simple("rmdir", "rmdir")
    for name, function in patches.items():
        setattr(os, name, function)
    for library in (builtins, io):
        setattr(library, "open", watched_open)  # noqa: B010
    for module in (
        tagmask.features.cache,
        tagmask.models.storage,
        tagmask.training.checkpoint,
    ):
        module.save_file = save  # type: ignore[attr-defined]


def accept(out: str) -> None:
    """Learn from the corrections of a run and accept the result, as the studio's buttons do."""
    from tagmask.studio.opening import open_explorer

    studio = open_explorer(ExploreSettings(out=Path(out)))
    assert studio.learner is not None
    studio.learner.learn()
    try:
        studio._accept()
    except (TagmaskError, OSError) as error:
        # the page shows it
        print(f"error: {error}")
        raise SystemExit(1) from None


def command(words: tuple[str, ...], log: Path, prepare: Callable[[], None] | None = None) -> int:
    """Run a command in a process of its own, in the current folder, and return its exit code."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    _end_with(words, log, prepare)
    raise AssertionError


def _end_with(words: tuple[str, ...], log: Path, prepare: Callable[[], None] | None) -> None:
    """Run a command, and end this process with its exit code."""
    number = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    os.dup2(number, 1)
    os.dup2(number, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    torch.set_num_threads(1)
    code = 70
    try:
        if prepare is not None:
            prepare()
        if words[:1] == ("accept",):
            accept(*words[1:])
            raise SystemExit(0)
        main(list(words))
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def snapshot(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def products(place: Path) -> dict[str, str]:
    """Return hashes of what a command has made, as far as it is the same whenever it is made."""
    files = [place] if place.is_file() else sorted(place.rglob("*"))
    found = {}
    for file in files:
        if file.is_file() and file.name not in CHANGING:
            name = file.relative_to(place).as_posix()
            if name.startswith(f"{VERSIONS}/"):
                continue  # one more or less; ``_look_at`` checks that each is whole
            found[name] = hashlib.sha256(file.read_bytes()).hexdigest()
    return found


@dataclass
class Trial:
    """What became of one job."""

    job: Job
    operations: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    failures: int = 0  # copies in which an operation failed
    cuts: int = 0  # copies in which the power was cut
    tolerated: int = 0  # failures after which the command still ended well
    anew: int = 0  # failures in a process that began anew, since a copied one could not go on
    states: int = 0  # copies whose files differ, in each of which the command was started again
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0


def _role_names() -> dict[str, str]:
    """Return what stands for a file's short name in the temporary names of ``replacing``."""
    stems = [("abc"[i], suffix) for i in range(3) for suffix in ("png", "npz", "txt", "json")]
    return {
        f"{zlib.crc32(f'{stem}.{suffix}'.encode()):08x}": f"*.{suffix}" for stem, suffix in stems
    }


_ROLES = _role_names()


def role_of(path: str) -> str:
    """Return the path of a file with one name for all photos, and none for the process.

    Args:
        path: relative to the working folder, perhaps that of a temporary file.
    """
    folder, name = os.path.split(path)
    short, _, rest = name.partition(".")
    if rest.endswith("partial"):
        name = f"{_ROLES.get(short, short)}.partial"
    name = re.sub(r"^\.tagmask\.[0-9.]+lock$", ".tagmask.*.lock", name)
    name = re.sub(r"^[abc]\.", "*.", name)
    return os.path.join(folder, re.sub(r"^[0-9a-f]{16,}", "*", name))


LARGE = 1 << 16  # bytes; larger files of copies are links to one file


class Store:
    """Keeps every content that a file has had once, so that whole folders are copied quickly."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self._known: dict[tuple[int, ...], str] = {}

    def put(self, content: bytes) -> str:
        """Keep a content, and return its hash."""
        name = hashlib.sha256(content).hexdigest()
        if not (self.folder / name).exists():
            # a worker may keep the same one at the same time
            partial = self.folder / f"{name}.{os.getpid()}"
            partial.write_bytes(content)
            os.rename(partial, self.folder / name)
        return name

    def get(self, name: str) -> bytes:
        """Return the content of a hash."""
        return (self.folder / name).read_bytes()

    def read(self, place: Path) -> dict[str, str]:
        """Return what a folder holds: for each path below it a hash, or what else it is."""
        found = {}
        for root, folders, files in os.walk(place):
            for name in (*folders, *files):
                path = os.path.join(root, name)
                inside = os.path.relpath(path, place)
                if os.path.islink(path):
                    found[inside] = f"link {os.readlink(path)}"
                elif os.path.isdir(path):
                    found[inside] = "folder"
                else:
                    found[inside] = self._hash(path)
        return found

    def _hash(self, path: str) -> str:
        """Return the hash of a file; a large one is read once, since it is never changed."""
        status = os.stat(path)
        if status.st_size <= LARGE:
            return self.put(Path(path).read_bytes())
        seen = (status.st_ino, status.st_size, status.st_mtime_ns)
        if seen not in self._known:
            self._known[seen] = self.put(Path(path).read_bytes())
        return self._known[seen]

    def write(self, tree: dict[str, str], place: Path) -> None:
        """Make a folder that holds what ``read`` has returned."""
        place.mkdir()
        for name in sorted(tree):
            what = tree[name]
            path = place / name
            if what == "folder":
                path.mkdir()
            elif what.startswith("link "):
                path.symlink_to(what.removeprefix("link "))
            elif (self.folder / what).stat().st_size > LARGE:
                os.link(self.folder / what, path)
            else:
                path.write_bytes(self.get(what))

    def changed(self) -> list[str]:
        """Return the contents that were written over in place, through a copy."""
        found = []
        for file in self.folder.iterdir():
            if hashlib.sha256(file.read_bytes()).hexdigest() != file.name:
                found.append(file.name)
        return found


def key_of(tree: dict[str, str]) -> str:
    """Return a hash of what a folder holds, in which numbers of processes do not count.

    They are only in the names of temporary files, and none of these processes lives any more.
    """
    lines = []
    for name, what in tree.items():
        plain = re.sub(r"\.[0-9]+\.[0-9]+\.partial$", ".partial", name)
        lines.append(f"{plain}\0{what}")
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


class Brancher:
    """Copies the state before chosen operations, and lets them fail in the copy."""

    def __init__(
        self, work: Path, log: Path, every: int, first: int, seed: int, alike: int
    ) -> None:
        self.work = work
        self.every = every
        self.first = first
        self.seed = seed
        self.alike = alike
        self.met: Counter[str] = Counter()
        self.keys: set[str] = set()
        self.store = Store(work / "store")
        self.disk = Disk(self.before)
        self.notes = open(log, "w", buffering=1)  # noqa: SIM115

    def note(self, **values: Any) -> None:
        """Add a line for the process that started this one."""
        self.notes.write(json.dumps(values) + "\n")

    def before(self, operation: Operation) -> None:
        """Branch, or go on."""
        number = operation.number
        self.note(operation=number, kind=operation.kind, path=operation.path)
        if number % self.every != self.first % self.every:
            return
        role = f"{operation.kind} {role_of(operation.path)}"
        self.met[role] += 1
        if self.met[role] > self.alike:
            return
        tree = self.store.read(Path.cwd())
        self._cut(number, dict(tree))
        error = ERRORS[number // self.every % len(ERRORS)]
        case = f"fail-{number}"
        place = self.work / case
        self.store.write(tree, place)
        printed = self.work / f"{case}.txt"
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            what = f"{operation.kind} of {operation.path} fails ({errno.errorcode[error]})"
            text = printed.read_text(errors="replace")
            after = self.store.read(Path.cwd())
            if after != tree:
                names = [name for name in {**tree, **after} if tree.get(name) != after.get(name)]
                raise RuntimeError(f"{what}: the copy has written to {sorted(names)[:5]} outside")
            is_stuck = "Autograd-and-Fork" in text or "inherited across fork" in text
            key = "" if is_stuck else key_of(self.store.read(place))
            if is_stuck or key in self.keys:
                shutil.rmtree(place)
            if not is_stuck:
                self.keys.add(key)
            again: dict[str, Any] = {"number": number, "error": error, "role": role}
            self.note(case=case, what=what, code=code, key=key, **again)
            return
        # from here on in the copy
        for file in self.disk.files:
            file.move(place)
        os.chdir(place)
        os.dup2(os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), 1)
        os.dup2(1, 2)
        self.every = 1 << 62
        self.disk.hook = lambda _: None
        raise OSError(error, os.strerror(error), operation.path)

    def _cut(self, number: int, tree: dict[str, str]) -> None:
        """Copy what a disk holds after a power cut."""
        for name in self.disk.unsynced:
            if name in tree:
                tree[name] = self.store.put(b"")
        # a rename may be lost although a later one is not
        numbers = random.Random(f"{self.seed}/{number}")
        lost = [entry for entry in self.disk.renamed[-6:] if numbers.random() < 0.3]
        for name, content in reversed(lost):
            if tree.get(name, "folder") == "folder":
                continue
            if content is None:
                del tree[name]
            else:
                tree[name] = self.store.put(content)
        case = f"cut-{number}"
        key = key_of(tree)
        if key not in self.keys:
            self.keys.add(key)
            self.store.write(tree, self.work / case)
        self.note(case=case, what=f"power cut before operation {number}", code=None, key=key)


def try_job(
    job: Job,
    work: Path,
    every: int = 1,
    first: int = 0,
    seed: int = 0,
    most: int = 1 << 30,
    alike: int = 1 << 30,
    workers: int = 1,
) -> Trial:
    """Disturb a job at every operation, or at a sample of them.

    Args:
        job: the commands.
        work: an empty folder.
        every: disturb each n-th operation.
        first: the operation to begin with.
        seed: decides which renames a power cut loses.
        most: copies that are looked at.
        alike: disturb at most so many operations of the same kind on files of the same role.
        workers: processes that look at copies side by side.
    """
    began = time.monotonic()
    home = os.getcwd()
    live = work / "live"
    live.mkdir(parents=True)
    trial = Trial(job)
    try:
        make_user(live)
        os.chdir(live)
        for words in job.before:
            if command(words, work / "before.txt"):
                trial.faults.append(f"{words[0]} fails: {(work / 'before.txt').read_text()[-500:]}")
                return trial
        mine = snapshot(live / "mine")
        store = Store(work / "store")
        start = store.read(live)
        log = work / "operations.jsonl"

        def prepare() -> None:
            brancher = Brancher(work, log, every, first, seed, alike)
            watch(brancher.disk)

        code = command(job.words, work / "undisturbed.txt", prepare)
        if code:
            printed = (work / "undisturbed.txt").read_text()
            trial.faults.append(f"the undisturbed command fails: {printed[-500:]}")
            return trial
        expected = [products(live / job.made)]
        if job.again:
            # after both commands, or as if only the second had been given
            expected = []
            if command(job.again, work / "then.txt"):
                trial.faults.append(f"then it fails: {(work / 'then.txt').read_text()[-500:]}")
            expected.append(products(live / job.made))
            store.write(start, work / "before")
            os.chdir(work / "before")
            command(job.again, work / "then.txt")
            expected.append(products(work / "before" / job.made))
            os.chdir(live)
        alike_cases: dict[str, list[dict[str, Any]]] = {}
        for line in log.read_text().splitlines():
            entry = json.loads(line)
            if "case" not in entry:
                trial.operations += 1
                trial.kinds[entry["kind"]] += 1
            elif trial.failures + trial.cuts < most:
                trial.cuts += entry["code"] is None
                trial.failures += entry["code"] is not None
                trial.anew += not entry["key"]
                alike_cases.setdefault(entry["key"] or entry["case"], []).append(entry)
        groups = list(alike_cases.values())
        trial.states = len(groups)
        look = Look(job, work, store, start, mine, expected)
        for group, (begun, faults) in zip(groups, look.all(groups, workers), strict=True):
            for entry in group:
                what = f"{job.name}: {entry['what']}"
                ended = entry["code"] if entry["key"] else begun
                trial.tolerated += ended == 0
                own = look.told(entry["case"], ended)
                trial.faults += [f"{what}: {fault}" for fault in (*own, *faults)]
        for name in store.changed():
            trial.faults.append(f"{job.name}: the file with the hash {name} was written in place")
    finally:
        os.chdir(home)
        trial.seconds = time.monotonic() - began
    return trial


@dataclass
class Look:
    """What is needed to check a copy of the state."""

    job: Job
    work: Path
    store: Store
    start: dict[str, str]  # what the folder held before the command
    mine: dict[str, bytes]
    expected: list[dict[str, str]]

    def all(
        self, groups: list[list[dict[str, Any]]], workers: int
    ) -> list[tuple[int | None, list[str]]]:
        """Check the first copy of each group, in processes side by side.

        Returns:
            For each group the exit code of the disturbed command, if it had to begin anew, and what
            was wrong.
        """
        logs = [self.work / f"worker-{i}.jsonl" for i in range(workers)]
        pids = []
        for i, log in enumerate(logs):
            pid = os.fork()
            if not pid:
                code = 70
                try:
                    with log.open("w", buffering=1) as file:
                        for j in range(i, len(groups), workers):
                            file.write(json.dumps([j, *self.one(groups[j][0])]) + "\n")
                    code = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(code)
            pids.append(pid)
        for pid in pids:
            if os.waitpid(pid, 0)[1]:
                raise RuntimeError("a process that looks at copies has failed")
        found: dict[int, tuple[int | None, list[str]]] = {}
        for log in logs:
            for line in log.read_text().splitlines():
                j, code, faults = json.loads(line)
                found[j] = (code, faults)
        return [found[j] for j in range(len(groups))]

    def one(self, entry: dict[str, Any]) -> tuple[int | None, list[str]]:
        """Check one copy, start the command again in it, and compare; then remove it."""
        place = self.work / entry["case"]
        code = None if entry["key"] else self._begin_anew(entry, place)
        try:
            return code, self._faults(entry["case"], place)
        finally:
            os.chdir(self.work)
            shutil.rmtree(place, ignore_errors=True)

    def _begin_anew(self, entry: dict[str, Any], place: Path) -> int:
        """Let an operation fail in a command that begins anew, and return its exit code."""
        self.store.write(self.start, place)
        os.chdir(place)

        def fail(operation: Operation) -> None:
            if operation.number == entry["number"]:
                role = f"{operation.kind} {role_of(operation.path)}"
                assert role == entry["role"], f"{role} instead of {entry['role']}"
                raise OSError(entry["error"], os.strerror(entry["error"]), operation.path)

        return command(
            self.job.words, self.work / f"{entry['case']}.txt", lambda: watch(Disk(fail))
        )

    def told(self, case: str, code: int | None) -> list[str]:
        """Return what is wrong with the message of a command in which an operation failed.

        Args:
            case: its name.
            code: its exit code; None for a power cut.
        """
        if code is None:
            return []
        printed = (self.work / f"{case}.txt").read_text(errors="replace")
        if "Traceback" in printed or code not in (0, 1):
            return [f"code {code}, {printed.strip()[-600:]}"]
        if code and "error:" not in printed:
            return [f"code {code} without a sentence"]
        return []

    def _faults(self, case: str, place: Path) -> list[str]:
        """Start the command again in a copy, and return what was or is wrong with it."""
        faults = []
        if snapshot(place / "mine") != self.mine:
            faults.append("files of the user have changed")
        os.chdir(place)
        log = self.work / f"{case}-again.txt"
        if command(self.job.again or self.job.words, log):
            printed = log.read_text(errors="replace")
            return [*faults, f"then it does not go on: {printed.strip()[-600:]}"]
        for note in place.glob(f"run/{VERSIONS}/*/version.json"):
            masks = list((note.parent / layout.PREDICTIONS).glob("*.png"))
            network = note.parent / layout.SEGMENTER / layout.MODEL
            if len(masks) != 3 or not network.is_file():
                faults.append(f"{note.parent.relative_to(place)} is not whole")
        made = products(place / self.job.made)
        if made not in self.expected:
            best = self.expected[0]
            differing = [name for name in {**made, **best} if made.get(name) != best.get(name)]
            faults.append(f"other files: {sorted(differing)[:5]}")
        if snapshot(place / "mine") != self.mine:
            faults.append("files of the user have changed afterwards")
        return faults


def warm_up(folder: Path) -> None:
    """Do once what every command does slowly the first time: parse flags, draw, fill templates.

    The commands are forked from this process. It does not train, since torch cannot train in a
    process that was forked from one that has; and it uses paths that no job uses.

    Args:
        folder: an empty folder.
    """
    home = os.getcwd()
    make_user(folder / "warm")
    os.chdir(folder)
    try:
        for part in (DEEPLAB, HEAD):
            words = []
            for word in (*RUN[1:], *part):
                words.append(f"warm/{word}" if word == "run" or word.startswith("mine/") else word)
            if command(("run", *words), folder / "warm.txt"):
                raise RuntimeError((folder / "warm.txt").read_text())
            for name in ("score.done.json", "scores.json", "report.done.json", "report.html"):
                (folder / "warm/run" / name).unlink()
            shutil.rmtree(folder / "warm/run" / layout.PREDICTIONS)
            printed = io.StringIO()
            with (
                contextlib.redirect_stdout(printed),
                contextlib.redirect_stderr(printed),
                contextlib.suppress(SystemExit),
            ):
                main(["run", *words])
    finally:
        os.chdir(home)


def table(trials: list[Trial]) -> str:
    """Return a table of what was tried."""
    lines = [
        "| command | operations | failures | power cuts | different states | faults |",
        "|---|---|---|---|---|---|",
    ]
    for trial in trials:
        counts = (
            trial.operations,
            trial.failures,
            trial.cuts,
            trial.states,
            len(trial.faults),
        )
        lines.append(f"| {trial.job.name} | {' | '.join(map(str, counts))} |")
    sums = [
        sum(trial.operations for trial in trials),
        sum(trial.failures for trial in trials),
        sum(trial.cuts for trial in trials),
        sum(trial.states for trial in trials),
        sum(len(trial.faults) for trial in trials),
    ]
    lines.append(f"| together | {' | '.join(map(str, sums))} |")
    return "\n".join(lines) + "\n"


def start() -> None:
    """Try all jobs, or those that are named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--every", type=int, default=1, help="disturb each n-th operation")
    parser.add_argument("--first", type=int, default=0, help="the operation to begin with")
    parser.add_argument(
        "--alike",
        type=int,
        default=1 << 30,
        help="disturb at most so many operations of one kind on files of one role; default: all",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--job", action="append", help="by name; default: all")
    parser.add_argument("--workers", type=int, default=1, help="processes side by side")
    parser.add_argument("--summary", type=Path, help="file for the table")
    options = parser.parse_args()
    trials = []
    # without a real disk, on which every fsync takes its time
    memory = Path("/dev/shm")
    where = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="every-write-", dir=where) as folder:
        warm_up(Path(folder).resolve())
    for job in jobs():
        if options.job and job.name not in options.job:
            continue
        with tempfile.TemporaryDirectory(prefix="every-write-", dir=where) as folder:
            trial = try_job(
                job,
                Path(folder).resolve(),
                options.every,
                options.first,
                options.seed,
                alike=options.alike,
                workers=options.workers,
            )
        trials.append(trial)
        for fault in trial.faults:
            print(fault, flush=True)
        kinds = ", ".join(f"{count} {kind}" for kind, count in trial.kinds.most_common())
        print(
            f"{job.name}: {trial.operations} operations ({kinds}), {trial.failures} failures of "
            f"which {trial.tolerated} were tolerated, {trial.cuts} power cuts, "
            f"{trial.anew} anew, {trial.states} states, {len(trial.faults)} faults, "
            f"{trial.seconds:.0f} s",
            flush=True,
        )
        if options.summary:
            options.summary.write_text(table(trials))
    print(table(trials))
    sys.exit(any(trial.faults for trial in trials))


if __name__ == "__main__":
    start()
