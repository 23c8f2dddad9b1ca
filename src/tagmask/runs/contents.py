"""What is in the files of the user: hashes that are computed again only where files changed.

A file counts as unchanged while its size, times and inode are those at the time of its hash. The
hashes are kept in the folder of the run; without that note, or with a damaged one, every file is
hashed again.
"""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from tagmask import layout
from tagmask.errors import TagmaskError
from tagmask.files import content_digest, read_object, stamp_of, write_json

_THREADS = 8  # hashing leaves the interpreter to others
_AT_ONCE = 64  # files that a thread is handed together


def content_digests(out: Path, files: Mapping[str, str], kind: str) -> dict[str, str]:
    """Return a hash of the content of each file; empty for one that cannot be read.

    Args:
        out: the folder of the run, where the hashes are kept.
        files: the files by their names in the note.
        kind: which files these are, e.g. "images"; each kind has its own part of the note.
    """
    noted = _read_note(out)
    before = noted.get(kind, {})
    digests: dict[str, str] = {}
    stamps = {name: stamp_of(path) for name, path in files.items()}
    for name, stamp in stamps.items():
        known = before.get(name)
        if stamp is not None and isinstance(known, list) and known[:-1] == stamp:
            digests[name] = str(known[-1])
    unknown = [name for name in files if name not in digests]
    hashes = _hash_all([files[name] for name in unknown])
    digests.update(zip(unknown, hashes, strict=True))
    kept: dict[str, list[Any]] = {}
    for name, stamp in stamps.items():
        if stamp is not None and digests[name]:
            kept[name] = [*stamp, digests[name]]
    if unknown and out.is_dir() and kept != before:
        # without the note they are hashed again next time
        with suppress(OSError, TagmaskError):
            write_json(out / layout.CONTENTS, {**noted, kind: kept})
    return {name: digests[name] for name in files}


def _read_note(out: Path) -> dict[str, dict[str, Any]]:
    """Return the note by kind; empty if there is none that can be used."""
    try:
        note = read_object(out / layout.CONTENTS)
    except TagmaskError:
        return {}
    return {kind: part for kind, part in note.items() if isinstance(part, dict)}


def _hash_all(files: Sequence[str]) -> list[str]:
    """Return a hash of each file."""
    parts = [files[start : start + _AT_ONCE] for start in range(0, len(files), _AT_ONCE)]
    hashes: list[str] = []
    if parts:
        with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
            for part in pool.map(_hash_part, parts):
                hashes += part
    return hashes


def _hash_part(files: Sequence[str]) -> list[str]:
    """Return a hash of each of a few files, one after the other."""
    return [content_digest(file) for file in files]
