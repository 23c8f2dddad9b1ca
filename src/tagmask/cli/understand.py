"""Say in flags what a person means who types paths alone, or flags without the data they belong to.

    tagmask run photos tags.csv --out run      --images photos --tags tags.csv, preset own-photos
    tagmask run run                            --config run/config.toml: resume
    tagmask seeds run                          --out run
    tagmask predict run photo.jpg              --photo photo.jpg --model run/5_segmenter
    tagmask predict run holiday --to masks     --photos holiday --model run/5_segmenter --out masks
    tagmask export run --to masks.zip          --out run --format cvat

It works on words alone: the settings are parsed afterwards, from the flags that it returns. What
cannot be understood is refused with a sentence that says what to type.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from tagmask.cli.help import ASKED
from tagmask.cli.mistakes import about_path, joined_by_blanks
from tagmask.cli.spelling import export_format, known_format, near_path, paths_first, respelt
from tagmask.config import PRESETS
from tagmask.config.run import data_of, read_config
from tagmask.errors import TagmaskError, typed
from tagmask.layout import CLASSIFIER, CONFIG, FOLDERS, SEGMENTER, is_run

TABLES = {".csv", ".tsv", ".txt", ".json", ".jsonl", ".ndjson", ".xml", ".zip"}
PHOTOS = {
    *(".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp", ".gif"),
    *(".heic", ".heif", ".avif", ".jfif"),
}
# flags of data, and which data they are
OF_DATA = {
    "--annotations": "coco",
    "--root": "voc",
    "--images": "folder",
    "--tags": "folder",
    "--count": "scenes",
    "--scene-seed": "scenes",
}
PRESET_OF_DATA = {"folder": "own-photos", "voc": "voc", "coco": "coco"}
# commands that work in a run that exists, besides its stages
ON_A_RUN = ("export", "explore", "serve", "push", "corrections", "subclasses")
NETWORK_OF = {"seeds": CLASSIFIER, "explore": CLASSIFIER, "predict": SEGMENTER}
FORMAT_OF_SUFFIX = {
    ".json": ("--format", "coco"),
    ".zip": ("--format", "cvat"),
    ".tgz": ("--format", "voc-test"),
    ".gz": ("--format", "voc-test"),
    ".csv": ("--format", "table"),
    ".tsv": ("--format", "table"),
    ".parquet": ("--format", "table"),
}
GPU = ("--gpu", "--cuda", "--device")
DATA_KINDS = ("scenes", "folder", "voc", "coco")
NO_DATA = (
    "there are no images: give your photos (--images photos --tags tags.csv), VOC (--root FOLDER) "
    "or COCO (--images FOLDER --annotations FILE); `tagmask demo` shows everything on built-in "
    "pictures, which --data scenes names here."
)


def understand(command: str, arguments: Sequence[str]) -> list[str]:
    """Return the flags that a command line means.

    Args:
        command: Name of the command.
        arguments: What follows it on the command line.

    Raises:
        TagmaskError: Something necessary is missing, or a path is not what the command needs.
    """
    words = list(arguments)
    if ASKED & set(words):
        return words
    if command == "paper":
        return _paper(words)
    if command == "studio":
        return _studio(words)
    if command == "demo" and words and not words[0].startswith("-"):
        if not Path(words[0]).exists():
            raise TagmaskError(f"for the folder of the results write --out {words[0]}.")
        raise TagmaskError(
            "tagmask demo draws its own pictures; with yours: "
            f"`tagmask run {typed(words[0])} tags.csv --out run`."
        )
    words = respelt(command, words)
    works_on_a_run = command in (*ON_A_RUN, *_stages())
    if works_on_a_run or command in ("run", "train"):
        words = paths_first(command, words)
    paths = leading_paths(words)
    rest = words[len(paths) :]
    if command == "run":
        rest = _run(paths, rest)
    elif command == "train":
        rest = _train(paths, rest)
    elif works_on_a_run:
        rest = _on_a_run(command, paths, rest)
    else:
        return words
    return rest


def _paper(words: list[str]) -> list[str]:
    """Return the flags of a table of the paper, with the data that its paths and flags mean."""
    words = paths_first("paper", respelt("paper", words))
    paths = leading_paths(words)
    if not paths or paths[0] not in _paper_tables():
        return words
    rest = words[len(paths) :]
    flags = [*_data_of(paths[1:], f"paper {paths[0]}", rest), *rest]
    flags = _without_download(flags, "--train.")
    if not _names_data(flags) and any(is_given(flags, name) for name in OF_DATA):
        flags = [*_inferred(flags), *flags]
        _need_out(flags, f"paper {paths[0]}")
    return [paths[0], *flags]


def _paper_tables() -> list[str]:
    from tagmask.reproduction.names import NAMES

    return list(NAMES)


def _studio(words: list[str]) -> list[str]:
    """Return the flags of the studio: a folder of photos or of a run, and a table."""
    words = paths_first("studio", respelt("studio", words))
    paths = leading_paths(words)
    rest = words[len(paths) :]
    flags: list[str] = []
    for path in paths:
        is_table = Path(path).suffix.lower() in TABLES and Path(path).is_file()
        if is_table and len(paths) > 1:
            flags += ["--tags", path]
        elif is_table:
            raise TagmaskError(
                f"{path} is a table; the studio begins with photos: "
                f"`tagmask studio photos {typed(path)}`."
            )
        elif _is_photo(path) and Path(path).is_file():
            raise TagmaskError(
                f"{path} is one photo; the studio takes a folder: "
                f"`tagmask studio {typed(Path(path).parent)}`."
            )
        elif not Path(path).exists():
            blanks = joined_by_blanks(paths)
            remedy = f' Blanks need quotes: "{blanks}".' if blanks else near_path(path)
            raise TagmaskError(
                about_path(path) or f"{path} does not exist; check the path.{remedy}"
            )
        elif "--folder" in flags:
            raise TagmaskError(
                f"{value_of(flags, '--folder')} and {path} are two folders; the studio takes one."
            )
        else:
            flags += ["--folder", path]
    return [*flags, *rest]


def _stages() -> list[str]:
    """Return the stages that work in a run that exists."""
    from tagmask.runs.table import STAGES

    return [row.name for row in STAGES if row.name != "train"]


def _run(paths: list[str], rest: list[str]) -> list[str]:
    """Return the flags of a whole run."""
    if len(paths) == 1 and _folder_of_run(paths[0]):
        return ["--config", str(Path(paths[0]) / CONFIG), "--out", paths[0], *rest]
    flags = _learning("run", paths, rest)
    return [*_inferred(flags), *flags]


def _train(paths: list[str], rest: list[str]) -> list[str]:
    """Return the flags of a training."""
    if len(paths) == 1 and _folder_of_run(paths[0]):
        rest = ["--out", paths[0], *rest]
        paths = []
    flags = _learning("train", paths, rest)
    config = Path(value_of(flags, "--out") or "") / CONFIG
    names_images = any(is_given(flags, name) for name in OF_DATA)
    if not _names_data(flags) and not names_images and _has_training(config):
        # resume the training of the run
        return ["--config", str(config), *flags]
    return [*_inferred(flags), *flags]


def _learning(command: str, paths: list[str], rest: list[str]) -> list[str]:
    """Return the flags of a command that learns from images; refuse what cannot be meant."""
    runs = [path for path in paths if _folder_of_run(path)]
    if runs:
        others = [path for path in paths if path not in runs]
        if not any(Path(path).is_dir() for path in others):
            others = [_photos_of(runs[0]), *others]
        out = value_of(rest, "--out") or "other"
        new = typed("tagmask", "run", *others, "--out", "other" if out in runs else out)
        raise TagmaskError(
            f"{runs[0]} is a run: `tagmask run {typed(runs[0])}` goes on with its photos and tags. "
            f"For a new one: `{new}`; "
            f"for masks of new photos: `tagmask predict {typed(runs[0])} FOLDER --to masks`."
        )
    data = value_of(rest, "--data")
    if data is not None and Path(data).is_dir() and data not in DATA_KINDS:
        # the folder of the images is meant
        paths = [data, *paths]
        rest = without(rest, "--data")
    for word in GPU:
        if is_given(rest, word):
            raise TagmaskError(
                f"leave {word} out: a GPU is used if torch sees one; `tagmask run … --gpus all` "
                "uses several."
            )
    flags = [*_data_of(paths, command, rest), *rest]
    _refuse_words(flags)
    _refuse_out_of_photos(flags)
    if _names_data(flags) or any(is_given(flags, name) for name in OF_DATA):
        _need_out(flags, command)
    return _without_download(flags, "--train." if command == "run" else "--")


def _photos_of(run: str) -> str:
    """Return the folder of the photos of a run, or a word for it if it is not known."""
    try:
        data = data_of(read_config(Path(run) / CONFIG))
    except (TagmaskError, OSError):
        data = {}
    return str(data.get("images") or data.get("root") or "photos")


def _without_download(flags: list[str], prefix: str) -> list[str]:
    """Return flags in which a file of weights stands instead of those that are published."""
    given = [f"{prefix}pretrained", f"{prefix}no-pretrained"]
    is_said = any(is_given(flags, name) for name in given)
    if is_given(flags, f"{prefix}weights") and not is_said:
        return [*flags, f"{prefix}no-pretrained"]
    return flags


def _on_a_run(command: str, paths: list[str], rest: list[str]) -> list[str]:
    """Return the flags of a command that works in a run, or on photos with its network."""
    if command == "export":
        rest = _with_format(rest)
    if command == "serve" and not is_given(rest, "--label-studio"):
        rest = ["--label-studio", *rest]
    runs = [path for path in paths if _folder_of_run(path)]
    if runs:
        # the run may be named after its photos
        paths.remove(runs[0])
        paths.insert(0, runs[0])
    model = value_of(rest, "--model")
    if model is not None and command in NETWORK_OF and _folder_of_run(model):
        # the network of the run is meant
        rest = ["--model", str(Path(model) / NETWORK_OF[command]), *without(rest, "--model")]
    folder = None
    if paths and (_folder_of_run(paths[0]) or not _is_network_given(rest, paths[0])):
        folder = _checked_run(command, paths.pop(0))
    if command == "corrections" and not paths and not _names_source(rest):
        raise TagmaskError(
            "which corrections? Name what the other tool has exported: "
            f"`tagmask corrections {typed(folder or 'run')} export.json`."
        )
    if not paths:
        if folder is None:
            _check_out(command, rest)
            return rest
        if command == "export" and is_given(rest, "--out") and not is_given(rest, "--to"):
            # the run is named already, so this is the place for the masks
            to = value_of(rest, "--out") or ""
            return ["--out", folder, *_with_format(["--to", to, *without(rest, "--out")])]
        return ["--out", folder, *rest]
    if command == "subclasses" and len(paths) == 1 and not is_given(rest, "--tag"):
        return ["--out", folder or "", "--tag", paths[0], *rest]
    if command == "score" and len(paths) == 1 and Path(paths[0]).is_dir():
        return ["--out", folder or "", "--masks", paths[0], *rest]
    if command == "corrections" and len(paths) == 1:
        return ["--out", folder or "", "--source", paths[0], *rest]
    if command == "export" and len(paths) == 1 and not is_given(rest, "--to"):
        _refuse_format_alone(folder or "", paths[0])
        return ["--out", folder or "", *_with_format(["--to", paths[0], *rest])]
    return _on_photos(command, folder, paths, rest)


def _refuse_format_alone(folder: str, word: str) -> None:
    """Refuse the name of a format where the file or folder to write is needed."""
    name = known_format(word)
    if name is not None and not Path(word).exists():
        raise TagmaskError(
            f"{word} is a format; say where to, too: "
            f"`tagmask export {typed(folder)} --format {name} --to masks`."
        )


def _on_photos(command: str, folder: str | None, paths: list[str], rest: list[str]) -> list[str]:
    """Return the flags of a command on a photo or on a folder of photos."""
    if command not in NETWORK_OF:
        raise TagmaskError(
            f"tagmask {command} works on a run, not on photos; leave out {paths[0]!r}, or type "
            f"`tagmask predict RUN {typed(paths[0])}` for a mask."
        )
    _refuse_more(command, paths)
    if len(paths) > 1:
        raise TagmaskError(
            f"{len(paths)} photos were named; tagmask {command} takes one, or a folder: "
            f"put them into a folder and type `tagmask predict RUN FOLDER --to masks`."
        )
    (path,) = paths
    model: list[str] = []
    if not is_given(rest, "--model"):
        if folder is None:
            raise TagmaskError(
                f"which network? Name the run first: `tagmask {command} RUN {typed(path)}`; "
                "a run is made by `tagmask run`."
            )
        network = Path(folder) / NETWORK_OF[command]
        if not network.is_dir():
            raise TagmaskError(
                f"{network} does not exist: the run is not finished; "
                f"`tagmask run {typed(folder)}` resumes it."
            )
        model = ["--model", str(network)]
    has_network = Path(value_of([*model, *rest], "--model") or "").is_dir()
    if has_network and not Path(path).exists():
        fault = about_path(path)
        raise TagmaskError(fault or f"{path} does not exist; check the path.{near_path(path)}")
    if not Path(path).is_dir():
        _check_tags_of_photo(rest)
        # the maps of one photo are one file, so `seeds` knows what --out is
        places = ("--to",) if command == "seeds" else ("--to", "--out", "-o", "--output")
        for word in places:
            if is_given(rest, word):
                raise TagmaskError(
                    f"{word}: which result of one photo? --show FILE writes a picture to look at, "
                    "--mask FILE the mask; `--to FOLDER` is for a folder of photos."
                )
        return [path, *model, *rest]
    if command != "predict":
        raise TagmaskError(f"{path} is a folder; tagmask {command} takes one photo of it.")
    if is_given(rest, "--tags") and not Path(value_of(rest, "--tags") or "").exists():
        raise TagmaskError(
            f"--tags is for one photo; masks of a folder with tags are made from a table: "
            f"`tagmask run {typed(path)} tags.csv --out other`. Without tags, leave it out."
        )
    for word in ("-o", "--output"):
        if is_given(rest, word):
            rest = ["--to", value_of(rest, word) or "", *without(rest, word)]
    to = value_of(rest, "--to")
    if to is None and not is_given(rest, "--out"):
        raise TagmaskError(f"where to? Add a folder for the masks of {path}: --to masks.")
    if to is not None:
        rest = ["--out", to, *without(rest, "--to")]
    return ["--photos", path, *model, *rest]


def _refuse_more(command: str, paths: Sequence[str]) -> None:
    """Refuse a second path that is no photo, and say what it may be."""
    if len(paths) != 2:
        return
    first, second = paths
    if Path(second).suffix.lower() in TABLES:
        raise TagmaskError(
            f"tagmask {command} takes no table; masks of photos with tags are made by "
            f"`tagmask run {typed(first)} {typed(second)} --out run`."
        )
    if Path(second).exists():
        return
    if Path(first).is_dir():
        raise TagmaskError(f"{second} does not exist; for the masks of {first}: --to {second}.")
    if not Path(second).suffix:
        raise TagmaskError(
            f"{second} does not exist; if it is a tag of {first}: --tags {second}, and several "
            "with commas: --tags dog,sofa."
        )
    raise TagmaskError(
        f"{second} does not exist; --show {second} writes a picture of the mask of {first}, "
        f"--mask {second} the mask itself."
    )


def _with_format(rest: list[str]) -> list[str]:
    """Return the flags of an export with the format that the file to write has."""
    to = value_of(rest, "--to")
    typed = value_of(rest, "--format")
    if typed is not None:
        name = export_format(typed)
        return rest if name == typed else ["--format", name, *without(rest, "--format")]
    if to is None:
        return rest
    suffix = Path(to).suffix.lower()
    if suffix == ".onnx":
        return ["--onnx", to, *without(rest, "--to")]
    if suffix in FORMAT_OF_SUFFIX:
        return [*FORMAT_OF_SUFFIX[suffix], *rest]
    if suffix:
        raise TagmaskError(
            f"--to {to}: which format is it? Add --format: coco and label-studio write .json, cvat "
            ".zip, voc-test .tgz, table .csv or .parquet, and the others a folder; "
            "`tagmask export --help` lists them."
        )
    raise TagmaskError(
        f"--to {to} is a folder: which format? Add --format voc, overlays, ultralytics, fiftyone, "
        "huggingface or another; `tagmask export --help` lists them."
    )


def _data_of(paths: list[str], command: str, rest: Sequence[str]) -> list[str]:
    """Return the flags of images and tags that are named by position."""
    flags: list[str] = []
    folders = [path for path in paths if Path(path).is_dir()]
    if len(folders) > 1:
        raise TagmaskError(
            f"{' and '.join(folders)} are two folders; tagmask {command} learns from one: put the "
            "photos together, in folders of their own if you like."
        )
    blanks = joined_by_blanks(paths)
    if blanks is not None:
        raise TagmaskError(f'a path with blanks needs quotes: "{blanks}".')
    tables = [path for path in paths if Path(path).suffix.lower() in TABLES]
    for path in paths:
        file = Path(path)
        fault = about_path(path)
        has_other_table = len(tables) > 1 or not (folders or is_given(rest, "--images"))
        if fault is None and file.suffix.lower() == ".zip" and has_other_table:
            fault = f"{path} is an archive; unpack it, and name its folder."
        if fault is not None:
            raise TagmaskError(fault)
        if "://" in path or file.suffix.lower() == ".tar":
            raise TagmaskError(
                f"{path} are shards; tagmask {command} learns from a sample of them: "
                f"`tagmask sample {typed(path)} --to photos`, then "
                f"`tagmask {command} photos/images photos/tags.csv --out run`."
            )
        if file.is_dir():
            is_voc = (file / "JPEGImages").is_dir()
            flags += ["--root" if is_voc else "--images", path]
        elif file.suffix.lower() in TABLES:
            flags += ["--tags", path]
        elif _is_photo(path) and file.exists():
            raise TagmaskError(
                f"{path} is one photo; tagmask {command} learns from a folder of them: "
                f"`tagmask {command} {typed(file.parent)} tags.csv --out run`. "
                f"For a mask of it: `tagmask predict RUN {typed(path)}`."
            )
        elif path in PRESETS:
            raise TagmaskError(f"{path} is a preset; write --preset {path}.")
        elif file.exists():
            raise TagmaskError(
                f"{path} is neither a folder of photos nor a table of tags ({_tables()}); "
                'save a spreadsheet as "CSV UTF-8" first.'
            )
        elif flags and not is_given(rest, "--out"):
            raise TagmaskError(
                f"{path} does not exist; is it the folder for the results? Then write --out {path}."
            )
        else:
            raise TagmaskError(
                f"{path} does not exist; tagmask {command} takes a folder of photos and a table of "
                f"their tags: tagmask {command} photos tags.csv --out run.{near_path(path)}"
            )
    return flags


def _tables() -> str:
    return ", ".join(sorted(TABLES))


def _inferred(flags: Sequence[str]) -> list[str]:
    """Return which data and preset the flags mean, if they name neither."""
    if _names_data(flags):
        return []
    for name, data in OF_DATA.items():
        if is_given(flags, name):
            preset = PRESET_OF_DATA.get(data)
            return ["--data", data] if preset is None else ["--preset", preset]
    raise TagmaskError(NO_DATA)


def _names_data(flags: Sequence[str]) -> bool:
    return any(is_given(flags, name) for name in ("--data", "--preset", "--config"))


def _need_out(flags: Sequence[str], command: str) -> None:
    """Refuse a command that does not say where to write."""
    if not is_given(flags, "--out") and not is_given(flags, "--config"):
        raise TagmaskError(
            f"where to? Name a new folder for the results: tagmask {command} … --out run."
        )


def _refuse_out_of_photos(flags: Sequence[str]) -> None:
    """Refuse to write the results among the photos."""
    out = value_of(flags, "--out")
    images = value_of(flags, "--images") or value_of(flags, "--root")
    if out is None or images is None or _folder_of_run(out):
        return
    if os.path.realpath(out) == os.path.realpath(images):
        raise TagmaskError(
            f"--out {out} is the folder of the photos; name a new one for the results: --out run."
        )


def _refuse_words(flags: Sequence[str]) -> None:
    """Refuse tags where a table of tags is needed."""
    tags = value_of(flags, "--tags")
    if tags is None or Path(tags).exists() or tags.startswith("embedded"):
        return
    if not re.search("[,;]", tags):
        # it may name a table or another tool's folder that is missing
        near = near_path(tags)
        if near:
            raise TagmaskError(f"{tags} does not exist; check the path.{near}")
        return
    raise TagmaskError(
        f"--tags {tags}: this is a table here, with a line file,tags and then a line per photo: "
        "beach/001.jpg,dog;person. For photos in one folder per tag leave --tags out."
    )


def _check_tags_of_photo(rest: Sequence[str]) -> None:
    """Refuse a table where the tags of one photo are needed."""
    tags = value_of(rest, "--tags")
    if tags is not None and Path(tags).suffix.lower() in TABLES:
        raise TagmaskError(f"--tags {tags}: write what is on this photo instead: --tags dog,sofa.")


def _checked_run(command: str, path: str) -> str:
    """Return the folder of a run; refuse one that is none, and say what it is."""
    folder = Path(path)
    if folder.name in FOLDERS and is_run(folder.parent):
        return str(folder.parent)
    if not folder.exists():
        raise TagmaskError(
            f"{path} does not exist; name the folder of a run, or check the path.{near_path(path)}"
        )
    if not folder.is_dir():
        for parent in list(folder.parents)[:2]:
            if _folder_of_run(str(parent)):
                return str(parent)
        raise TagmaskError(f"{path} is a file; name the folder of a run first.")
    if is_run(folder):
        return path
    if command == "predict":
        raise TagmaskError(
            f"{path} is no run, so there is no network in it. For masks of its photos: "
            f"`tagmask predict RUN {typed(path)} --to masks`; a run is made by `tagmask run`."
        )
    remedy = ""
    if command == "explore":
        remedy = (
            f" `tagmask studio {typed(path)}` begins with photos: "
            "tag them, make masks, look at them."
        )
    raise TagmaskError(
        f"{path} is no run: it has no {CONFIG}. A run is made by `tagmask run photos tags.csv "
        f"--out run`; name its folder.{remedy}"
    )


def _check_out(command: str, rest: Sequence[str]) -> None:
    """Refuse --out that is no run where one must exist, and a command without a run."""
    out = value_of(rest, "--out")
    if out is None:
        needs_none = any(is_given(rest, name) for name in ("--photo", "--config", "--model"))
        if not needs_none:
            raise TagmaskError(f"which run? Name its folder: tagmask {command} run.")
        return
    # these have everything that they need from flags
    is_whole = any(is_given(rest, name) for name in ("--model", "--data", "--preset", "--config"))
    if not is_whole and Path(out).is_dir() and any(Path(out).iterdir()):
        _checked_run(command, out)


def leading_paths(words: Sequence[str]) -> list[str]:
    """Return the words before the first flag."""
    paths: list[str] = []
    for word in words:
        if word.startswith("-"):
            break
        paths.append(word)
    return paths


def _has_training(config: Path) -> bool:
    if not config.is_file():
        return False
    return "[train]" in config.read_text(encoding="utf-8", errors="replace")


def _folder_of_run(path: str) -> bool:
    return (Path(path) / CONFIG).is_file()


def _names_source(rest: Sequence[str]) -> bool:
    return any(is_given(rest, name) for name in ("--source", "--from", "--config"))


def _is_network_given(rest: Sequence[str], path: str) -> bool:
    """Return True if a path is a photo, or can only be one because the network is named."""
    return _is_photo(path) or (is_given(rest, "--model") and Path(path).exists())


def _is_photo(path: str) -> bool:
    return Path(path).suffix.lower() in PHOTOS


def is_given(words: Sequence[str], name: str) -> bool:
    """Return True if a flag is given, as ``name VALUE`` or ``name=VALUE``.

    Args:
        words: The words of the command line.
        name: The flag, with its dashes.
    """
    return any(word.partition("=")[0] == name for word in words)


def value_of(words: Sequence[str], name: str) -> str | None:
    """Return the value of a flag, or None if it is not given or has no value.

    Args:
        words: The words of the command line.
        name: The flag, with its dashes.
    """
    for index, word in enumerate(words):
        if word == name:
            return words[index + 1] if index + 1 < len(words) else None
        if word.startswith(name + "="):
            return word.partition("=")[2]
    return None


def without(words: Sequence[str], name: str) -> list[str]:
    """Return the words without a flag and its value.

    Args:
        words: The words of the command line.
        name: The flag, with its dashes.
    """
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word == name:
            skip = True
        elif not word.startswith(name + "="):
            kept.append(word)
    return kept
