"""Other spellings of flags and paths, as people type them who know other programs."""

import difflib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from tagmask.config.exchange import File, Folder
from tagmask.errors import TagmaskError

_OUT = ("-o", "-out", "--output", "--outdir", "--out-dir", "--output-dir", "--output-folder")
_RESULTS = ("--to", "--save", "--save-dir", "--dest", "--name", "--results", "--result")
_IMAGES = (
    *("-i", "-images", "--image", "--photos", "--photo", "--folder", "--input", "--img", "--imgs"),
    *("--path", "--dir", "--src", "--source", "--dataset", "--image-dir"),
    *("--images-dir", "--image-folder", "--data-dir"),
)
_TAGS = ("-t", "-tags", "--tag", "--label", "--labels", "--csv", "--table", "--keywords")
# what a flag is called here, by command and other name
_LEARNING = {
    **dict.fromkeys((*_OUT, *_RESULTS), "--out"),
    **dict.fromkeys(_IMAGES, "--images"),
    **dict.fromkeys(_TAGS, "--tags"),
}
_OF_TRAINING = {"--weights": "--train.weights", "--backbone": "--train.backbone"}
_OTHER_NAMES: dict[str, dict[str, str]] = {
    "run": {**_LEARNING, **_OF_TRAINING},
    "train": _LEARNING,
    "predict": {"--tag": "--tags", "--class": "--tags", "--classes": "--tags", "--run": "--model"},
    "seeds": {"--tag": "--tags"},
    "explore": {"--tag": "--tags"},
    "export": dict.fromkeys((*_OUT, "--save", "--dest"), "--to"),
    # its --table is one of the paper's
    "paper": {name: own for name, own in _LEARNING.items() if name != "--table"} | _OF_TRAINING,
    "studio": {"-o": "--out", "--csv": "--tags", "--table": "--tags", "--labels": "--tags"},
}
# flags that take one value, after which a path may follow that belongs before all flags
_ONE_VALUE = (
    *("--images", "--tags", "--root", "--annotations", "--out", "--model", "--preset", "--data"),
    *("--masks", "--config", "--to", "--format", "--weights", "--backbone", "--train.weights"),
    "--train.backbone",
)
_OF_PHOTO = ("--image", "--photo", "--input", "--source", "--img", "-i")
# what people call the formats of an export
_FORMATS = {
    "yolo": "ultralytics",
    "yolov8": "ultralytics",
    "yolov11": "ultralytics",
    "yolo11": "ultralytics",
    "pascal": "voc",
    "pascal-voc": "voc",
    "mask": "index",
    "masks": "index",
    "png": "index",
    "labels": "index",
    "labelstudio": "label-studio",
    "x-anylabeling": "xanylabeling",
    "hf": "huggingface",
    "hugging-face": "huggingface",
    "json": "coco",
    "jpg": "overlays",
    "csv": "table",
    "parquet": "table",
    "excel": "table",
    "geojson": "qupath",
    "tiff": "geotiff",
    "overlay": "overlays",
    "pictures": "overlays",
}


def respelt(command: str, words: Sequence[str]) -> list[str]:
    """Return a command line with flags as they are called here.

    Args:
        command: Name of the command.
        words: What follows it on the command line.
    """
    names = _OTHER_NAMES.get(command, {})
    spelt = []
    for word in words:
        name, equals, value = word.partition("=")
        spelt.append(names.get(name, name) + equals + value)
    return spelt


def other_flags(command: str) -> list[str]:
    """Return the flags that a command knows by other names than its own, such as --weights.

    Args:
        command: Name of the command.
    """
    return [name for name in _OTHER_NAMES.get(command, {}) if name.startswith("--")]


def known_format(word: str) -> str | None:
    """Return the format of an export that a word means; None if it means none.

    Args:
        word: The format as it was typed.
    """
    plain = re.sub(r"[\s_]+", "-", word.lower())
    name = _FORMATS.get(plain, plain)
    return name if name in (*get_args(File), *get_args(Folder)) else None


def export_format(word: str) -> str:
    """Return the format of an export that a person means.

    Args:
        word: The format as it was typed.

    Raises:
        TagmaskError: There is no such format.
    """
    name = known_format(word)
    if name is not None:
        return name
    formats = [*get_args(File), *get_args(Folder)]
    plain = re.sub(r"[\s_]+", "-", word.lower())
    near = difflib.get_close_matches(plain, [*formats, *_FORMATS], n=1)
    remedy = f"choose from {', '.join(formats)}."
    if near:
        remedy = f"did you mean {_FORMATS.get(near[0], near[0])}? `tagmask export --help` has all."
    raise TagmaskError(f"--format {word}: there is no such format; {remedy}")


def paths_first(command: str, words: Sequence[str]) -> list[str]:
    """Return a command line whose paths without a flag come before all flags.

    A path is known by its place: it comes first, or after the one value of a flag.

    Args:
        command: Name of the command.
        words: What follows it on the command line.
    """
    takes_photo = command in ("predict", "seeds", "explore")
    paths: list[str] = []
    rest: list[str] = []
    is_free = True  # the next word, if it is no flag, belongs to no flag
    words = list(words)
    while words:
        word = words.pop(0)
        if takes_photo and word in _OF_PHOTO and words:
            paths.append(words.pop(0))
            is_free = True
        elif word in _ONE_VALUE and words:
            rest += [word, words.pop(0)]
            is_free = True
        elif word.startswith("-"):
            rest.append(word)
            is_free = "=" in word
        elif is_free:
            paths.append(word)
        else:
            rest.append(word)
    return [*paths, *rest]


def near_path(path: str) -> str:
    """Return a question that names a file or folder of almost the same name, or nothing.

    Args:
        path: A path that does not exist.
    """
    folder, name = os.path.split(path)
    where = Path(folder) if folder else Path()
    if not where.is_dir():
        return ""
    names = {entry.name.lower(): entry.name for entry in where.iterdir()}
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.6)
    if not near:
        return ""
    return f" Did you mean {os.path.join(folder, names[near[0]])}?"
