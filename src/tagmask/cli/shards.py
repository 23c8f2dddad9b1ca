"""Commands on shards, said in flags: which command lines mean shards, and what they mean.

``tagmask predict run s3://bucket/shards --to MASKS`` means --shards s3://bucket/shards and
--model run/5_segmenter; ``tagmask shard photos --to shards`` means --source photos.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from tagmask import layout
from tagmask.cli import examples
from tagmask.cli.parse import from_flags, use_of_network
from tagmask.cli.understand import NETWORK_OF, PHOTOS, is_given, leading_paths
from tagmask.config import MapSettings, MaskSettings
from tagmask.config import shards as settings
from tagmask.errors import TagmaskError
from tagmask.layout import is_run

OWN = ("shard", "sample")  # commands on shards alone
_MANIFESTS = (".csv", ".tsv", ".parquet")
# command: its settings, its function, and the settings that its network was told
_COMMANDS: dict[str, tuple[type[Any], str, type[Any] | None]] = {
    "shard": (settings.MakeShardsSettings, "commands:make_shards", None),
    "sample": (settings.SampleSettings, "sample:draw_sample", None),
    "predict": (settings.PredictShardsSettings, "commands:predict_shards", MaskSettings),
    "seeds": (settings.SeedShardsSettings, "commands:seed_shards", MapSettings),
    "export": (settings.ExportShardsSettings, "commands:export_shards", None),
}


def is_shards(word: str) -> bool:
    """Return True if a word on a command line means shards, and not photos or a run."""
    if re.match(r"[a-z][a-z0-9+.-]+://", word) or word.lower().endswith((".tar", *_MANIFESTS)):
        return True
    folder = Path(word)
    if not folder.is_dir() or is_run(folder):
        return False
    suffixes = {file.suffix.lower() for file in folder.iterdir()}
    # a folder of photos may hold an archive, too
    return ".tar" in suffixes and not suffixes & PHOTOS


def means_shards(command: str, words: Sequence[str]) -> bool:
    """Return True if a command line is about shards.

    Args:
        command: Name of the command.
        words: What follows it on the command line.
    """
    if command in OWN:
        return True
    if command not in _COMMANDS:
        return False
    paths = leading_paths(words)
    if is_given(words, "--shards"):
        return True
    # shards come alone or after a run; a table after a folder of photos is one of tags
    if any(_is_folder_of_photos(path) for path in paths[:-1]):
        return False
    return bool(paths and is_shards(paths[-1]))


def _is_folder_of_photos(path: str) -> bool:
    folder = Path(path)
    if not folder.is_dir() or layout.is_run(folder):
        return False
    return any(file.suffix.lower() in PHOTOS for file in folder.iterdir())


def run_on_shards(command: str, words: Sequence[str]) -> str:
    """Run a command on shards, and return its summary.

    Args:
        command: Name of the command.
        words: What follows it on the command line.
    """
    kind, function, use = _COMMANDS[command]
    flags = _flags(command, words)
    start = use_of_network(use, flags) if use is not None else {}
    description = getattr(examples, f"{command.upper()}_SHARDS")
    parsed = from_flags(kind, start, flags, command, description)
    summary: str = resolve_name(f"tagmask.shards.{function}")(parsed)
    return summary


def _flags(command: str, words: Sequence[str]) -> list[str]:
    """Return the flags that a command line on shards means."""
    paths = leading_paths(words)
    rest = list(words[len(paths) :])
    first = "--source" if command == "shard" else "--shards"
    flags: list[str] = []
    if paths and not is_given(rest, first):
        flags += [first, paths.pop()]
    if len(paths) > (command in NETWORK_OF):
        raise TagmaskError(f"{paths[0]!r} is one path too many; see `tagmask {command} --help`.")
    if paths and command in NETWORK_OF and not is_given(rest, "--model"):
        network = Path(paths.pop()) / NETWORK_OF[command]
        if not network.is_dir():
            raise TagmaskError(
                f"{network} does not exist: name a finished run first, "
                f"`tagmask {command} RUN SHARDS --to ADDRESS`."
            )
        flags += ["--model", str(network)]
    return [*flags, *rest]
