"""Which files lie in a folder, and what names they give to their pictures."""

import os
from collections.abc import Iterator
from pathlib import Path

SUFFIXES = frozenset(
    {
        ".jpg",
        ".jpeg",
        ".jfif",
        ".png",
        ".gif",
        ".bmp",
        ".tif",
        ".tiff",
        ".webp",
        ".avif",
        ".jp2",
        ".ppm",
        ".pgm",
    }
)


def strip_suffix(path: str) -> str:
    """The path without the suffix of a picture; other dots belong to the name."""
    stem, dot = os.path.splitext(path)
    return stem if dot.lower() in SUFFIXES else path


def walk(root: Path) -> Iterator[str]:
    """Relative paths of all files below ``root``, without hidden ones; links to folders are followed once."""
    seen: set[str] = set()
    for folder, folders, names in os.walk(root, followlinks=True):
        real = os.path.realpath(folder)
        folders[:] = [] if real in seen else sorted(name for name in folders if not name.startswith("."))
        if real in seen:
            continue
        seen.add(real)
        prefix = Path(folder).relative_to(root).as_posix()
        for name in names:
            if not name.startswith("."):
                yield name if prefix == "." else f"{prefix}/{name}"
