"""Hours of hostile cases against the promises of docs/explanation/safety.md: `make torture`.

Each case is a function of the seed and its number alone, so it can be repeated: --case 17. Results are added to
cases.jsonl in the working folder; started again, the program goes on with the next number. summary.md counts them.

Every case checks: the exit code is 0, 1, 2 or 130; anything but 0 comes with a sentence and no traceback; it ends in
time; nothing of the user changes. Kills and damage also check that the same command then gives the undisturbed files.
"""

import argparse
import faulthandler
import hashlib
import importlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TQDM_MININTERVAL": "1"}

import numpy as np
import torch
from PIL import Image

from tagmask import layout
from tagmask.cli import main
from tagmask.data.corrections import TagChange, read_labels, read_tags, write_labels, write_tags
from tagmask.data.images import read_mask
from tagmask.data.scenes.catalog import Scenes
from tagmask.layout import label_file

# loaded once: cases are forked, and loading these takes longer than a run of seconds
LIBRARIES = (
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "pycocotools.mask",
    "scipy.ndimage",
    "tagmask.data.coco",
    "tagmask.data.folder",
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
    "tagmask.training.segmenter",
    "tomli_w",
    "typeguard",
    "tyro",
)
for library in LIBRARIES:
    importlib.import_module(library)


def _words(line: str) -> list[str]:
    return line.split()


# a run of seconds
SMALL = _words(
    "--no-estimate --rows 2 --train.steps 2 --train.batch 2 --train.size 32 --train.warmup 1 "
    "--train.save-every 1 --train.log-every 1 --train.val-every 100 --seeds.size 32 "
    "--pseudo.method crf --segment.steps 2 --segment.batch 2 --segment.size 33 "
    "--segment.workers 0 --segment.save-every 1 --predict.no-crf --predict.no-flip"
)
PHOTOS = 4
SCENES = ["run", "--preset", "scenes", "--count", str(PHOTOS), *SMALL]
CHANGING = {
    "config.toml",
    "report.html",
    "report.done.json",
    "log.jsonl",
    "resume.safetensors",
    ".tagmask.lock",
    ".contents.json",
}
SECONDS = 180  # after which a command hangs


@dataclass
class Case:
    """One case: its random numbers, its folder, and what was wrong."""

    number: int
    random: random.Random
    folder: Path
    reference: Path
    took: float  # seconds of an undisturbed run
    faults: list[str] = field(default_factory=list)
    kills: int = 0
    words: list[str] = field(default_factory=list)
    printed: str = ""
    hung: str = ""  # what a command has printed that hangs or failed, and where

    def run(
        self,
        words: list[str],
        after: float | None = None,
        prepare: Callable[[], None] | None = None,
    ) -> int:
        """A command in a process of its own; killed ``after`` seconds, if given."""
        self.words = words
        log = self.folder / "printed.txt"
        pid = os.fork()
        if not pid:
            _child(words, log, prepare)
        # on a busy machine an undisturbed run takes longer too
        patience = max(SECONDS, 15 * self.took)
        end = time.monotonic() + (patience if after is None else after)
        while time.monotonic() < end:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return self._check(os.waitstatus_to_exitcode(status), log)
            time.sleep(0.003)
        if after is None:
            # where it hangs is printed by faulthandler
            os.kill(pid, signal.SIGUSR1)
            time.sleep(2)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        if after is None:
            self.faults.append("it hangs")
            self.printed = log.read_text(errors="replace")
            self.hung = self.printed[-4000:]
        else:
            self.kills += 1
        return -signal.SIGKILL

    def _check(self, code: int, log: Path) -> int:
        self.printed = log.read_text(errors="replace")
        if "Traceback" in self.printed:
            self.faults.append(f"traceback: {self.printed.strip().splitlines()[-1][:200]}")
            self.hung = self.printed[self.printed.index("Traceback") :][-4000:]
        elif code not in (0, 1, 2, 130):
            self.faults.append(f"exit code {code}")
        elif code and not any(
            mark in self.printed for mark in ("error:", "rror", "stopped;", "full helptext")
        ):
            self.faults.append(f"exit code {code} without a sentence: {self.printed[-300:]!r}")
        return code

    def expect(self, fine: bool, fault: str) -> None:
        if not fine:
            self.faults.append(fault)

    def expect_same(self, out: Path, when: str) -> None:
        """Compare the files of a run with those of the undisturbed one."""
        made = products(out)
        wanted = products(self.reference)
        names = sorted(
            name for name in made.keys() | wanted.keys() if made.get(name) != wanted.get(name)
        )
        if names:
            self.faults.append(f"other files {when}: {', '.join(names[:5])}")


def _child(words: list[str], log: Path, prepare: Callable[[], None] | None) -> None:
    code = 70
    try:
        number = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(number, 1)
        os.dup2(number, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        signal.signal(signal.SIGINT, signal.default_int_handler)
        faulthandler.register(signal.SIGUSR1, file=2)
        torch.set_num_threads(1)
        if prepare is not None:
            prepare()
        main(words)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def products(out: Path) -> dict[str, str]:
    """The files of a run that are the same whenever it is made."""
    files = [
        file
        for file in out.rglob("*")
        if file.is_file() and file.name not in CHANGING and not file.name.startswith(".tagmask.")
    ]
    return {
        file.relative_to(out).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
    }


def snapshot(folder: Path) -> dict[str, Any]:
    """Everything of a folder: kinds, links and contents."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        content = (
            os.readlink(path)
            if path.is_symlink()
            else path.read_bytes()
            if path.is_file()
            else path.is_dir()
        )
        found[str(path.relative_to(folder))] = content
    return found


def kills(case: Case) -> None:
    """Killed up to three times at any moment; then it ends with the same files.

    A third of the cases begin with nothing, a third redo a finished run, and a third begin with
    one of the stages, so that the last ones are met as often as the first.
    """
    out = case.folder / "run"
    start = case.random.choice(["empty", "redo", "stage"])
    redo = start == "redo"
    if start != "empty":
        shutil.copytree(case.reference, out)
    if start == "stage":
        first = case.random.randrange(len(layout.FOLDERS))
        for name in layout.FOLDERS[first:]:
            shutil.rmtree(out / name, ignore_errors=True)
    change = ["--train.lr", "0.002"] if case.random.random() < 0.5 else ["--segment.lr", "0.002"]
    for _ in range(case.random.randint(1, 3)):
        words = [*SCENES, "--out", str(out), *(change if redo else [])]
        case.run(words, after=case.random.uniform(0, 0.9 * case.took))
    case.expect(case.run([*SCENES, "--out", str(out)]) == 0, "it does not resume")
    case.expect_same(out, "after a kill")


def interrupts(case: Case) -> None:
    """Ctrl-C at any moment; then the same files."""
    out = case.folder / "run"
    seconds = case.random.uniform(0, case.took)

    def alarm() -> None:
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
        signal.setitimer(signal.ITIMER_REAL, seconds)

    case.run([*SCENES, "--out", str(out)], prepare=alarm)
    case.expect(case.run([*SCENES, "--out", str(out)]) == 0, "it does not resume")
    case.expect_same(out, "after Ctrl-C")


def saves(case: Case) -> None:
    """Killed while the explorer saves corrections; the last whole ones are there, and `run` takes them."""
    out = case.folder / "run"
    shutil.copytree(case.reference, out)
    scenes, folder = Scenes(PHOTOS), out / layout.CORRECTIONS
    name, shape = scenes.name(0), scenes.load_image(0).shape[:2]

    def save() -> None:
        for turn in range(100_000):
            write_labels(folder, name, np.full(shape, turn % 3, np.uint8))
            write_tags(
                folder,
                {name: TagChange((scenes.classes[turn % 3],))},
                scenes.classes,
                scenes.identity,
            )

    for _ in range(case.random.randint(1, 5)):
        case.run(["explore"], after=case.random.uniform(0, 0.3), prepare=save)
    labels = read_labels(folder, name, len(scenes.classes))
    case.expect(labels is None or len(np.unique(labels)) == 1, "a correction is a mixture of two")
    read_tags(folder, scenes.classes, scenes.identity)
    case.expect(case.run([*SCENES, "--out", str(out)]) == 0, "it does not run with the corrections")
    if labels is not None:
        mask = read_mask(label_file(out / layout.PSEUDO, name), len(scenes.classes))
        case.expect(bool((mask == labels).all()), "the pseudo label does not hold the correction")


FORMATS = _words(
    "coco voc label-studio cvat overlays index ultralytics yolo-seg fiftyone huggingface "
    "xanylabeling labelme datumaro qupath napari table"
)


def exports(case: Case) -> None:
    """Killed while it exports, up to three times; repeated, it ends with the files of a whole one."""
    form = case.random.choice(FORMATS)
    suffix = ".csv" if form == "table" else ""
    to = case.folder / f"to{suffix}"
    words = ["export", "--out", str(case.reference), "--format", form, "--to"]
    whole = case.folder / f"whole{suffix}"
    began = time.monotonic()
    case.expect(case.run([*words, str(whole)]) == 0, f"{form} cannot be exported")
    took = time.monotonic() - began
    for _ in range(case.random.randint(1, 3)):
        case.run([*words, str(to)], after=case.random.uniform(0, took))
    case.expect(case.run([*words, str(to)]) == 0, f"{form} cannot be repeated")
    left = [file.name for file in case.folder.rglob("*.partial")]
    case.expect(not left, f"{form} leaves {left[:3]}")
    same = products(to) == products(whole) if to.is_dir() else to.read_bytes() == whole.read_bytes()
    case.expect(same, f"{form}: other files after a kill")


def crowds(case: Case) -> None:
    """Two commands at once in a run: one works, the other says so or shares the work."""
    out = case.folder / "run"
    shutil.copytree(case.reference, out)
    (out / "6_predictions" / layout.DONE).unlink()
    first = os.fork()
    if not first:
        _child([*SCENES, "--out", str(out)], case.folder / "first.txt", None)
    words = case.random.choice(
        [
            [*SCENES, "--out", str(out)],
            ["export", "--out", str(out), "--to", str(case.folder / "c.json")],
            ["predict", "--out", str(out)],
        ]
    )
    time.sleep(case.random.uniform(0, 0.5))
    case.run(words)
    os.waitpid(first, 0)
    told = (case.folder / "first.txt").read_text(errors="replace")
    case.expect("Traceback" not in told, f"traceback: {told[-300:]}")
    case.expect(case.run([*SCENES, "--out", str(out)]) == 0, "it does not go on afterwards")
    case.expect_same(out, "after two at once")


GARBAGE = [
    b"",
    b"[]",
    b"{}",
    b"null",
    b"9" * 5000,
    b"[" * 99_999,
    b"\xff\xfe",
    b"\0" * 50,
    b'{"step": []}',
    b"x = [",
]


def damage(case: Case) -> None:
    """A file of a finished run is damaged; the run says so or repairs it, and then has nothing to do."""
    out = case.folder / "run"
    shutil.copytree(case.reference, out)
    file = case.random.choice(sorted(path for path in out.rglob("*") if path.is_file()))
    data = file.read_bytes()
    how = case.random.choice(
        ["empty", "cut", "flip", "garbage", "delete", "folder", "loop", "pipe"]
    )
    if how in ("delete", "folder", "loop", "pipe"):
        file.unlink()
    if how == "cut":
        file.write_bytes(data[: case.random.randrange(len(data) + 1)])
    elif how == "flip":
        place = case.random.randrange(max(1, len(data)))
        file.write_bytes(
            data[:place]
            + bytes([data[place] ^ (1 << case.random.randrange(8))])
            + data[place + 1 :]
        )
    elif how in ("empty", "garbage"):
        file.write_bytes(b"" if how == "empty" else case.random.choice(GARBAGE))
    elif how == "folder":
        file.mkdir()
    elif how == "loop":
        file.symlink_to(file.name)
    elif how == "pipe":
        os.mkfifo(file)
    name = file.relative_to(out).as_posix()
    for command in case.random.sample(["score", "report", "seeds", "predict", "export"], 1):
        words = [
            command,
            "--out",
            str(out),
            *(["--to", str(case.folder / "c.json")] if command == "export" else []),
        ]
        case.run(words)
    if case.run([*SCENES, "--out", str(out)]):
        if file.is_dir() and not file.is_symlink():
            file.rmdir()
        else:
            file.unlink(missing_ok=True)
        case.expect(
            case.run([*SCENES, "--out", str(out)]) == 0,
            f"{name} ({how}): deleting it does not help",
        )
    case.run([*SCENES, "--out", str(out)])
    case.expect("nothing to do" in case.printed, f"{name} ({how}): there is always something to do")
    same = {
        path: value for path, value in products(case.reference).items() if "done.json" not in path
    }
    edited = name.endswith((".png", ".npz", "made_by.json", "background.json")) and how in (
        "flip",
        "cut",
        "garbage",
    )
    made = products(out)
    case.expect(
        edited or all(made.get(path) == value for path, value in same.items()),
        f"{name} ({how}): other files",
    )


NAMES = [
    "a",
    "b c",
    "ü",
    "x#y",
    "x.partial/a",
    "done.json/a",
    "l\nm",
    "-n",
    "a.png/b",
    "~",
    "%s",
    "{file}",
    ".h",
    "𝕏",
]
TAGS = [
    "cat",
    "dog",
    "background",
    "Background",
    "a\nb",
    "",
    " ",
    ";",
    "c:d",
    "\x1b[31m",
    "é",
    "#x",
    "cat",
    "dog",
    "cat",
]


def photos(case: Case) -> Path:
    """A folder of odd photos and tables of a user."""
    user = case.folder / "mine"
    names = case.random.sample(NAMES, case.random.randint(2, 6))
    rows = []
    for place, name in enumerate(names):
        file = user / "photos" / f"{name}.{case.random.choice(['jpg', 'png', 'JPG'])}"
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(Scenes(20, 1).load_image(place)).save(file, format="PNG")
            if case.random.random() < 0.15:
                file.write_bytes(file.read_bytes()[: case.random.randrange(200)])
        except OSError:
            continue  # one of the names is in the way of another
        tags = case.random.choice([case.random.choice(TAGS), "cat", "dog", "cat;dog"])
        rows.append((str(file.relative_to(user / "photos")), tags))
    if case.random.random() < 0.3:
        os.mkfifo(user / "photos/pipe.jpg")
        (user / "photos/loop.jpg").symlink_to("loop.jpg")
    kind = case.random.choice(["csv", "json", "jsonl"])
    if kind == "csv":
        cells = [["file", "tags"], *map(list, rows)]
        text = "\n".join(
            ",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in cells
        )
    elif kind == "json":
        text = json.dumps({file: tags.split(";") for file, tags in rows})
    else:
        text = "\n".join(json.dumps({"file": file, "tags": tags.split(";")}) for file, tags in rows)
    content = text.encode("utf-8", "surrogateescape")
    if case.random.random() < 0.1:
        content = content[: case.random.randrange(len(content))]
    (user / f"tags.{kind}").write_bytes(content)
    (user / "film.mp4.partial").write_bytes(b"mine")
    return user


def own_photos(case: Case) -> None:
    """Odd photos, names and tags through a whole run and an export; nothing of the user changes."""
    user = photos(case)
    before = snapshot(user)
    table = next(user.glob("tags.*"))
    out = case.folder / "run" if case.random.random() < 0.8 else user / "photos" / "run"
    data = ["--data", "folder", "--images", str(user / "photos"), "--tags", str(table)]
    words = ["run", "--preset", "scenes", *SMALL, *data, "--out", str(out)]
    code = case.run(words)
    if not code:
        case.run(words)
        case.expect("nothing to do" in case.printed, "there is always something to do")
        for kind in case.random.sample(["coco", "voc", "label-studio", "cvat", "overlays"], 2):
            places = [
                *(user / name for name in ("photos", "new", table.name, "film.mp4.partial")),
                case.folder / "to",
            ]
            to = case.random.choice(
                [
                    *places,
                    out / "6_predictions",
                    out / "config.toml",
                    next((user / "photos").iterdir()),
                ]
            )
            made = to.exists() or to.parent in (user, user / "photos")
            case.run(["export", "--out", str(out), "--format", kind, "--to", str(to)])
            if not made or to == user / "new":
                shutil.rmtree(to, ignore_errors=True)
                (user / "new.xml").unlink(missing_ok=True)
                to.unlink(missing_ok=True)
    after = snapshot(user)
    changed = [name for name in before if after.get(name) != before[name]]
    if "film.mp4.partial" in changed and "--to" in case.words:
        changed.remove("film.mp4.partial")  # named as the target itself
    case.expect(not changed, f"changed: {changed[:3]}")


VALUES = [
    "nan",
    "inf",
    "-1",
    "0",
    "1e308",
    "9" * 5000,
    "x",
    "none",
    "1e-320",
    "3",
    "0.5",
    "1 2",
    "/dev/null",
    "\udcff",
]
FLAGS = [
    "lr",
    "weight-decay",
    "momentum",
    "head-lr",
    "power",
    "clip",
    "epochs",
    "val-every",
    "steps",
    "batch",
    "accumulate",
    "size",
    "seed",
    "ema",
    "warmup",
]


def settings(case: Case) -> None:
    """Random numbers and texts as settings."""
    out = case.folder / "run"
    shutil.copytree(case.reference, out)
    before = products(out)
    flags = []
    for _ in range(case.random.randint(1, 3)):
        section = case.random.choice(["train", "segment", "pseudo.affinity"])
        flags += [f"--{section}.{case.random.choice(FLAGS)}", *case.random.choice(VALUES).split()]
    limit = (
        ["--train.steps", "3"]
        if not any("steps" in flag or "epochs" in flag for flag in flags)
        else []
    )
    code = case.run([*SCENES, "--out", str(out), *limit, *flags])
    if code:
        case.expect(products(out).keys() >= before.keys(), "a refused run has lost files")
        case.expect(
            case.run([*SCENES, "--out", str(out)]) == 0, "the old settings do not work any more"
        )
        case.expect(products(out) == before, "other files after refused settings")


def surroundings(case: Case) -> None:
    """Little memory, small files, private files, no home, no temporary folder, a clock that jumps, a disk so slow that
    the command is killed while it writes."""
    out = case.folder / "run"
    kind = case.random.choice(
        ["umask", "memory", "file size", "home", "temporary", "clock", "open files", "slow disk"]
    )
    size = case.random.choice([1, 2, 3, 4]) * 1_000_000_000
    small = case.random.choice([1_000, 20_000, 300_000, 900_000])

    def prepare() -> None:
        if kind == "umask":
            os.umask(0o077)
        elif kind == "memory":
            resource.setrlimit(resource.RLIMIT_AS, (size, size))
        elif kind == "file size":
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (small, small))
        elif kind == "home":
            os.environ.update(HOME="/nonexistent", XDG_CACHE_HOME="/proc/none")
        elif kind == "temporary":
            os.environ.update(TMPDIR="/dev/full", TMP="/dev/full", TEMP="/dev/full")
        elif kind == "open files":
            resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))
        elif kind == "slow disk":
            replace = os.replace

            def wait(*places: Any, **how: Any) -> None:
                time.sleep(0.3)
                replace(*places, **how)

            os.replace = wait

    case.run(
        [*SCENES, "--out", str(out)],
        after=case.took if kind == "slow disk" else None,
        prepare=prepare,
    )
    if kind == "clock" and out.exists():
        for file in out.rglob("*"):
            when = case.random.choice([0, 1e9, 4e9])
            os.utime(file, (when, when))
    case.expect(
        case.run([*SCENES, "--out", str(out)]) == 0, f"{kind}: it does not go on afterwards"
    )
    case.expect_same(out, f"after {kind}")


KINDS: dict[str, tuple[Callable[[Case], None], int]] = {  # how often each is tried
    "kills": (kills, 4),
    "interrupts": (interrupts, 1),
    "damage": (damage, 5),
    "own photos": (own_photos, 5),
    "settings": (settings, 4),
    "surroundings": (surroundings, 2),
    "saves": (saves, 2),
    "exports": (exports, 9),
    "crowds": (crowds, 1),
}


def make_reference(work: Path) -> tuple[Path, float]:
    """An undisturbed run, and how long it takes."""
    note, out = work / "reference.json", work / "reference"
    if not note.is_file():
        shutil.rmtree(out, ignore_errors=True)
        case = Case(0, random.Random(0), work, out, 0.0)
        began = time.monotonic()
        if case.run([*SCENES, "--out", str(out)]):
            sys.exit(f"the undisturbed run fails:\n{case.printed}")
        note.write_text(json.dumps({"seconds": time.monotonic() - began}))
    return out, float(json.loads(note.read_text())["seconds"])


def warm_up(reference: Path) -> None:
    """Parse a command line and compile the report's page once, for all cases that are forked."""
    from tagmask.report.page import environment

    with ExitStack() as quiet:
        nowhere = quiet.enter_context(open(os.devnull, "w"))
        quiet.enter_context(redirect_stdout(nowhere))
        quiet.enter_context(redirect_stderr(nowhere))
        quiet.enter_context(suppress(SystemExit))
        main([*SCENES, "--out", str(reference)])
    for name in environment().list_templates():
        environment().get_template(name)


def try_case(number: int, seed: int, work: Path) -> dict[str, Any]:
    """One case by its number."""
    numbers = random.Random(f"{seed}/{number}")
    kind = numbers.choices(list(KINDS), [weight for _, weight in KINDS.values()])[0]
    folder = work / "case"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    case = Case(number, numbers, folder, *make_reference(work))
    began = time.monotonic()
    KINDS[kind][0](case)
    result: dict[str, Any] = {
        "case": number,
        "kind": kind,
        "kills": case.kills,
        "faults": case.faults,
    }
    result["seconds"] = round(time.monotonic() - began, 1)
    if case.faults:
        result |= {"words": case.words, "printed": case.printed[-2000:], "hung": case.hung}
    return result


def summarise(work: Path, seed: int) -> str:
    rows = [json.loads(line) for line in (work / "cases.jsonl").read_text().splitlines()]
    lines = ["| cases | tried | faults |", "|---|---|---|"]
    tried, faulty = (
        Counter(row["kind"] for row in rows),
        Counter(row["kind"] for row in rows if row["faults"]),
    )
    lines += [f"| {kind} | {tried[kind]} | {faulty[kind]} |" for kind in KINDS]
    lines.append(f"| together | {len(rows)} | {sum(faulty.values())} |")
    minutes, kills = sum(row["seconds"] for row in rows) / 60, sum(row["kills"] for row in rows)
    lines += ["", f"Seed {seed}, {minutes:.0f} minutes, {kills} kills."]
    lines += [
        f"- case {row['case']} ({row['kind']}): {'; '.join(row['faults'])}"
        for row in rows
        if row["faults"]
    ]
    return "\n".join(lines) + "\n"


def start() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=Path("torture"), help="working folder")
    parser.add_argument("--case", type=int, help="repeat one case")
    options = parser.parse_args()
    work: Path = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    if options.case is not None:
        print(json.dumps(try_case(options.case, options.seed, work), indent=2))
        return
    log = work / "cases.jsonl"
    number = len(log.read_text().splitlines()) if log.is_file() else 0
    warm_up(make_reference(work)[0])
    end = time.monotonic() + 60 * options.minutes
    while time.monotonic() < end:
        result = try_case(number, options.seed, work)
        with log.open("a") as file:
            file.write(json.dumps(result) + "\n")
        if result["faults"]:
            print(f"case {number} ({result['kind']}): {'; '.join(result['faults'])}", flush=True)
        number += 1
        (work / "summary.md").write_text(summarise(work, options.seed))
    summary = (work / "summary.md").read_text()
    print(summary)
    sys.exit(any(json.loads(line)["faults"] for line in log.read_text().splitlines()))


if __name__ == "__main__":
    start()
