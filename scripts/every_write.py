"""Every write fails once: `make every-write`, or python scripts/every_write.py --help.

Commands work on three small photos. Each time they are about to change the disk (open a file for
writing, write it, fsync, rename, unlink, make or remove a folder), the state is copied twice. In
one copy this very operation fails, with a full disk, a broken disk and a refused permission in
turn. In the other the power is cut: what was written since the last fsync is lost, and so are some
of the renames. The command itself goes on to the next operation.

Every failing copy must end with a sentence or not fail at all, without a traceback. In every copy
nothing of the user may have changed, and the same command, started again, must end with the bytes
of the undisturbed one.
"""

import argparse
import builtins
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
    untold: int = 0  # torch cannot train on, nor filelock wait, in a process that was copied
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


class Brancher:
    """Copies the state before chosen operations, and lets them fail in the copy."""

    def __init__(
        self, work: Path, log: Path, every: int, first: int, seed: int, alike: int
    ) -> None:
        self.work = work
        self.log = log
        self.every = every
        self.first = first
        self.seed = seed
        self.alike = alike
        self.met: Counter[str] = Counter()
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
        self._cut(number)
        error = ERRORS[number // self.every % len(ERRORS)]
        place = self._copy(f"fail-{number}")
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            what = f"{operation.kind} of {operation.path} fails ({errno.errorcode[error]})"
            self.note(case=f"fail-{number}", what=what, code=code)
            return
        # from here on in the copy
        os.chdir(place)
        printed = os.open(place / "printed.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        self.every = 1 << 62
        self.disk.hook = lambda _: None
        raise OSError(error, os.strerror(error), operation.path)

    def _copy(self, name: str) -> Path:
        place = self.work / name
        shutil.copytree(".", place, symlinks=True)
        return place

    def _cut(self, number: int) -> None:
        """Copy what a disk holds after a power cut."""
        place = self._copy(f"cut-{number}")
        for name in self.disk.unsynced:
            if (place / name).is_file():
                (place / name).write_bytes(b"")
        # a rename may be lost although a later one is not
        numbers = random.Random(f"{self.seed}/{number}")
        lost = [entry for entry in self.disk.renamed[-6:] if numbers.random() < 0.3]
        for name, content in reversed(lost):
            if not (place / name).is_file():
                continue
            if content is None:
                (place / name).unlink()
            else:
                (place / name).write_bytes(content)
        self.note(case=f"cut-{number}", what=f"power cut before operation {number}", code=None)


def try_job(
    job: Job,
    work: Path,
    every: int = 1,
    first: int = 0,
    seed: int = 0,
    most: int = 1 << 30,
    alike: int = 1 << 30,
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
        if job.again:
            shutil.copytree(live, work / "before")
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
            os.chdir(work / "before")
            command(job.again, work / "then.txt")
            expected.append(products(work / "before" / job.made))
            os.chdir(live)
        cases = []
        for line in log.read_text().splitlines():
            entry = json.loads(line)
            if "case" in entry:
                cases.append(entry)
            else:
                trial.operations += 1
                trial.kinds[entry["kind"]] += 1
        for entry in cases[:most]:
            _look_at(trial, entry, work / entry["case"], mine, expected)
            shutil.rmtree(work / entry["case"], ignore_errors=True)
    finally:
        os.chdir(home)
        trial.seconds = time.monotonic() - began
    return trial


def _look_at(
    trial: Trial,
    entry: dict[str, Any],
    place: Path,
    mine: dict[str, bytes],
    expected: list[dict[str, str]],
) -> None:
    """Check one copy, start the command again in it, and compare."""
    what = f"{trial.job.name}: {entry['what']}"
    if entry["code"] is None:
        trial.cuts += 1
    else:
        trial.failures += 1
        printed = (place / "printed.txt").read_text(errors="replace")
        if "Autograd-and-Fork" in printed or "inherited across fork" in printed:
            trial.untold += 1
        elif "Traceback" in printed or entry["code"] not in (0, 1):
            trial.faults.append(f"{what}: code {entry['code']}, {printed.strip()[-600:]}")
        elif entry["code"] and "error:" not in printed:
            trial.faults.append(f"{what}: code {entry['code']} without a sentence")
        trial.tolerated += entry["code"] == 0
    if snapshot(place / "mine") != mine:
        trial.faults.append(f"{what}: files of the user have changed")
    os.chdir(place)
    code = command(trial.job.again or trial.job.words, place / "again.txt")
    if code:
        printed = (place / "again.txt").read_text(errors="replace")
        trial.faults.append(f"{what}: then it does not go on: {printed.strip()[-600:]}")
        return
    for note in place.glob(f"run/{VERSIONS}/*/version.json"):
        masks = list((note.parent / layout.PREDICTIONS).glob("*.png"))
        network = note.parent / layout.SEGMENTER / layout.MODEL
        if len(masks) != 3 or not network.is_file():
            trial.faults.append(f"{what}: {note.parent.relative_to(place)} is not whole")
    made = products(place / trial.job.made)
    if made not in expected:
        best = expected[0]
        differing = [name for name in {**made, **best} if made.get(name) != best.get(name)]
        trial.faults.append(f"{what}: other files: {sorted(differing)[:5]}")
    if snapshot(place / "mine") != mine:
        trial.faults.append(f"{what}: files of the user have changed afterwards")


def table(trials: list[Trial]) -> str:
    """Return a table of what was tried."""
    lines = ["| command | operations | failures | power cuts | faults |", "|---|---|---|---|---|"]
    for trial in trials:
        counts = (trial.operations, trial.failures, trial.cuts, len(trial.faults))
        lines.append(f"| {trial.job.name} | {' | '.join(map(str, counts))} |")
    sums = [
        sum(trial.operations for trial in trials),
        sum(trial.failures for trial in trials),
        sum(trial.cuts for trial in trials),
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
    parser.add_argument("--summary", type=Path, help="file for the table")
    options = parser.parse_args()
    trials = []
    for job in jobs():
        if options.job and job.name not in options.job:
            continue
        with tempfile.TemporaryDirectory(prefix="every-write-") as folder:
            trial = try_job(
                job,
                Path(folder).resolve(),
                options.every,
                options.first,
                options.seed,
                alike=options.alike,
            )
        trials.append(trial)
        for fault in trial.faults:
            print(fault, flush=True)
        kinds = ", ".join(f"{count} {kind}" for kind, count in trial.kinds.most_common())
        print(
            f"{job.name}: {trial.operations} operations ({kinds}), {trial.failures} failures of "
            f"which {trial.tolerated} were tolerated, {trial.cuts} power cuts, "
            f"{trial.untold} untold, {len(trial.faults)} faults, {trial.seconds:.0f} s",
            flush=True,
        )
        if options.summary:
            options.summary.write_text(table(trials))
    print(table(trials))
    sys.exit(any(trial.faults for trial in trials))


if __name__ == "__main__":
    start()
