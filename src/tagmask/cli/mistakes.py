"""Answers to what people type who know other programs: commands, flags and marks of theirs."""

import dataclasses
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tagmask.cli.spelling import known_format, other_flags
from tagmask.config.base import flag
from tagmask.errors import typed

_DASHES = "–—−‐‑"  # what word processors make of a hyphen
_QUOTES = "“”„‟‘’‚«»\"'"
# what other programs call a command, and what to type here
OTHER_COMMANDS = {
    **dict.fromkeys(("gui", "ui", "web", "app", "browser", "label", "annotate", "tag"), "studio"),
    **dict.fromkeys(("open", "view", "show", "browse", "look", "edit", "correct"), "explore"),
    **dict.fromkeys(("inference", "infer", "apply", "mask", "masks", "detect"), "predict"),
    **dict.fromkeys(("eval", "evaluate", "val", "validate", "metrics", "measure"), "score"),
    **dict.fromkeys(("resume", "continue", "start", "fit", "go", "make", "process"), "run"),
    **dict.fromkeys(("convert", "save", "download", "coco", "yolo", "cvat"), "export"),
    **dict.fromkeys(("example", "examples", "tour", "tutorial", "quickstart"), "demo"),
    **dict.fromkeys(("doctor", "info", "env", "diagnose", "benchmark"), "selftest"),
    **dict.fromkeys(("config", "settings", "recipes", "list-presets"), "presets"),
    **dict.fromkeys(("table", "tables", "figures", "reproduce", "ablation"), "paper"),
    **dict.fromkeys(("import", "upload"), "corrections"),
}
# formats that are one file, and how its name ends
_SUFFIXES = {
    "coco": ".json",
    "label-studio": ".json",
    "cvat": ".zip",
    "voc-test": ".tgz",
    "table": ".csv",
}
_NO_COMMANDS = {  # what is done without a command
    "install": "it is installed already; `tagmask selftest` says what works",
    "update": "`pip install --upgrade tagmask`, or `git pull` in the clone, brings a newer one",
    "upgrade": "`pip install --upgrade tagmask`, or `git pull` in the clone, brings a newer one",
    "init": "nothing is to be prepared: `tagmask run photos tags.csv --out run` begins",
    "new": "nothing is to be prepared: `tagmask run photos tags.csv --out run` begins",
    "delete": "delete the folder of the run, as any other; your photos are not in it",
    "remove": "delete the folder of the run, as any other; your photos are not in it",
    "clean": "delete the folder of the run, as any other; your photos are not in it",
    "list": "`tagmask --help` lists the commands, `tagmask presets` the presets",
    "ls": "`tagmask --help` lists the commands, `tagmask presets` the presets",
    "commands": "`tagmask --help` lists the commands, `tagmask presets` the presets",
}
_DEVICE = "leave it out: a GPU is used if torch sees one; CUDA_VISIBLE_DEVICES= hides it"
_AGAIN = "--restart makes everything again; without it the run goes on where it stopped"
_LOUD = "leave it out: the plan, the progress and what was left out are always printed"
_FROM_TABLE = "the classes are the tags in the table; for one photo: --tags dog,sofa"
_THRESHOLDS = ("--threshold", "--thresh", "--conf", "--score")
_THRESHOLD = "the score of the background decides; it is found without masks, or set it: {}"
_BROWSER = "leave it out: the page opens by itself; --no-browser prints its address alone"
_ONE_PHOTO = "--show FILE writes a picture to look at, --mask FILE the mask itself"
_OTHER_FLAGS: dict[str, str] = {  # of other programs
    **dict.fromkeys(("--force", "--overwrite", "-f", "-y", "--yes", "--exist-ok"), _AGAIN),
    **dict.fromkeys(("--resume", "--continue"), "leave it out: the same command resumes a run"),
    **dict.fromkeys(("--verbose", "-v", "-vv", "--debug", "--quiet", "-q"), _LOUD),
    **dict.fromkeys(
        ("--dry-run", "--plan", "-n"), "the plan comes first in any case; Ctrl-C stops there"
    ),
    **dict.fromkeys(("--cpu", "--gpu", "--cuda", "--device", "--no-cuda"), _DEVICE),
    **dict.fromkeys(
        ("--threads", "--num-threads", "-j"), "set OMP_NUM_THREADS=4 before the command"
    ),
    **dict.fromkeys(("--num-workers", "--workers", "--jobs"), "write --train.workers"),
    **dict.fromkeys(("--batch-size", "--bs", "-b"), "write --train.batch or --segment.batch"),
    **dict.fromkeys(("--learning-rate", "--lr0"), "write --train.lr or --segment.lr"),
    **dict.fromkeys(("--image-size", "--imgsz", "--img-size", "--resize"), "write --train.size"),
    **dict.fromkeys(("--fp16", "--amp", "--half", "--bf16"), "write --train.precision bf16"),
    **dict.fromkeys(("--class", "--classes", "--names", "--categories"), _FROM_TABLE),
    **dict.fromkeys(_THRESHOLDS, _THRESHOLD.format("`tagmask run RUN --pseudo.background 0.5`")),
    **dict.fromkeys(("--open", "--show-browser"), _BROWSER),
    **dict.fromkeys(("--project", "--experiment", "--run-name"), "--out names the folder"),
    **dict.fromkeys(("--quick", "--fast", "--small"), "--help shows what makes it shorter"),
    **dict.fromkeys(("--gt", "--ground-truth", "--truth"), "--masks FOLDER names true masks"),
    "--weights": "the network is that of the run: `tagmask predict RUN photo.jpg`",
    **dict.fromkeys(("--zip", "--tar"), "unpack the archive first, and name its folder"),
}
_OF_ONE_PHOTO = ("--save", "--save-to", "--output-file", "--result", "--png", "--dest")


def as_typed_plainly(words: Sequence[str]) -> list[str]:
    """Return words without what word processors do to them, and with a home folder for "~".

    Args:
        words: The command line; a word that names a file stays as it is.
    """
    plain = []
    for word in words:
        if Path(word).exists():
            plain.append(word)
            continue
        bare = word.strip(_QUOTES) or word
        start = re.match(rf"[{_DASHES}-]+", bare)
        if start is not None and set(start[0]) & set(_DASHES):
            bare = "--" + bare[start.end() :]
        if bare.startswith("~"):
            bare = _at_home(bare)
        if bare.endswith(",") and Path(bare.rstrip(",")).exists():
            bare = bare.rstrip(",")
        plain.append(bare)
    return plain


def _at_home(word: str) -> str:
    try:
        path = Path(word).expanduser()
    except RuntimeError:
        # there is no such user
        return word
    return str(path) if path.exists() else word


def other_command(word: str, rest: Sequence[str], known: Sequence[str]) -> str | None:
    """Return a sentence on a command that another program has; None if it is not known.

    Args:
        word: What was typed.
        rest: What follows it.
        known: The commands that there are.
    """
    small = word.lower().lstrip("-")
    line = typed(*rest)
    if small == "tagmask" and rest:
        return f"leave out the second tagmask: `tagmask {line}`."
    name = known_format(word)
    if name is not None and OTHER_COMMANDS.get(small, "export") == "export":
        run = typed(rest[0]) if rest else "run"
        to = f"masks{_SUFFIXES.get(name, '')}"
        return f"{word} is a format: `tagmask export {run} --format {name} --to {to}`."
    for name in (small, OTHER_COMMANDS.get(small, "")):
        if name in known:
            return f"there is no command {word!r}; did you mean `tagmask {name} {line}`?".replace(
                " `?", "`?"
            )
    if small in _NO_COMMANDS:
        return f"there is no command {word!r}: {_NO_COMMANDS[small]}."
    return None


def _flags_of(kind: type[Any], values: Any, prefix: str = "--") -> Iterator[str]:
    """Yield the flags of settings, with those of their parts."""
    for field in dataclasses.fields(kind):
        value = getattr(values, field.name, None)
        word = f"{prefix}{flag(field.name)}"
        if dataclasses.is_dataclass(value):
            yield from _flags_of(type(value), value, f"{word}.")
        else:
            yield word


def unknown_words(command: str, words: Sequence[str], values: Any) -> str:
    """Return a sentence on words of a command line that mean nothing there.

    Args:
        command: Name of the command.
        words: What is not known.
        values: The settings of the command, as a dataclass.
    """
    first = words[0]
    name = first.partition("=")[0]
    known = list(_flags_of(type(values), values))
    if name in ("True", "False", "true", "false", "yes", "no"):
        return f"{name}: switches take no value; write --x for yes, --no-x for no."
    if not name.startswith("-"):
        return (
            f"{name!r} has no place here; paths come first, then flags with their values; "
            f"`tagmask {command} --help` shows both."
        )
    if "-" + name in known:
        return f"{name}: write two dashes, -{name}."
    if command == "export" and known_format(name.lstrip("-")) is not None:
        return f"{name}: write --format {known_format(name.lstrip('-'))} --to masks."
    long = name if name.startswith("--") else "-" + name
    ends = [word for word in known if word.endswith("." + long[2:])]
    top = [word for word in ends if word.count(".") == 1]
    if ends:
        shown = " or ".join(top or ends)
        return f"{name}: of which stage? Write {shown}."
    if command == "predict" and name in _OF_ONE_PHOTO:
        return f"{name}: {_ONE_PHOTO}; --to FOLDER is for the masks of a folder of photos."
    remedy = _OTHER_FLAGS.get(name)
    if remedy == _BROWSER and "--browser" not in known:
        remedy = "open the file that the command names in a browser"
    if name in _THRESHOLDS and "--background" in known:
        remedy = _THRESHOLD.format("--background 0.5")
    if remedy is not None and _applies(remedy, known):
        return f"{name} is not known to tagmask {command}; {remedy}."
    near = difflib.get_close_matches(long, [*known, *other_flags(command)], n=1, cutoff=0.7)
    if near:
        return f"there is no {name} in tagmask {command}; did you mean {near[0]}?"
    return (
        f"there is no {name} in tagmask {command}; `tagmask {command} --help-all` lists "
        "what can be set."
    )


def _applies(remedy: str, known: Sequence[str]) -> bool:
    """Return True if a command has the flags that a remedy says to write."""
    named = re.findall(r"(?:write|or) (--[\w.-]+)", remedy)
    return not named or any(word in known for word in named)


def joined_by_blanks(words: Sequence[str]) -> str | None:
    """Return a path with blanks that was typed without quotes, so that it became several words.

    Args:
        words: Paths as they were typed.
    """
    for start in range(len(words)):
        for end in range(start + 2, len(words) + 1):
            path = " ".join(words[start:end])
            if Path(path).exists():
                return path
    return None


def about_path(path: str) -> str | None:
    """Return a sentence on a path that cannot be photos or a table, by its form; None otherwise.

    Args:
        path: What was typed.
    """
    suffix = Path(path).suffix.lower()
    if "*" in path and not Path(path).exists():
        return f"{path}: name the folder of the photos instead, {Path(path).parent}."
    if re.match(r"https?://", path) and suffix != ".tar":
        return f"{path} is an address; download the photos, and name their folder."
    if re.match(r"[A-Za-z]:[\\/]", path) and not Path(path).exists():
        drive, rest = path[0].lower(), path[2:].replace("\\", "/")
        return f"{path} is a path of Windows and not found here; in WSL it is /mnt/{drive}{rest}."
    if suffix in _ARCHIVES and not Path(path).is_dir():
        return f"{path} is an archive; unpack it, and name its folder."
    if suffix in _VIDEOS:
        stem = Path(path).stem
        return (
            f"{path} is a video; take photos from it first, one a second: "
            f"`ffmpeg -i {typed(path)} -r 1 {typed(stem + '/%05d.jpg')}`, in a new folder {stem}."
        )
    return None


_ARCHIVES = (".rar", ".7z", ".gz", ".tgz", ".xz")
_VIDEOS = (".mp4", ".mov", ".avi", ".mkv", ".webm", ".m4v")

_PAPER_TABLES: Mapping[str, tuple[str, ...]] = {  # of the paper, and what they are called here
    "table1": ("compare-coco",),
    "table2": ("compare-seeds", "pseudo"),
    "table3": ("compare-voc",),
    "table4": ("ablation",),
    "table5": ("methods",),
    "table6": ("backbones",),
    "table7": ("augmentations",),
    "table8": ("distances",),
    "table9": ("computation",),
    "table10": ("per-class", "segmentation"),
    "table11": ("per-class", "segmentation"),
}


def table_of_paper(word: str) -> str | None:
    """Return what a numbered table of the paper is called here; None if it is none.

    Args:
        word: What was typed, such as "table2", "Table 2" or "2".
    """
    number = re.fullmatch(r"(?:tab[a-z]*[\W_]*)?(\d+)", word.strip().lower())
    names = _PAPER_TABLES.get(f"table{number[1]}") if number else None
    return None if names is None else " or ".join(f"`tagmask paper {name}`" for name in names)
