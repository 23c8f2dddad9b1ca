"""Numbered versions of a run: what its masks were made from, and a way back to each.

``versions/N`` holds the folders that learning again replaces. Their files are links where the disk
can link: every file of a run is replaced as a whole and never changed in place.
"""

import os
import shutil
import time
from pathlib import Path
from typing import Any

from tagmask import layout
from tagmask.errors import TagmaskError
from tagmask.files import only_one, read_object, refuse_links, write_json

FOLDER = "versions"
_NOTE = "version.json"
_KEPT = (layout.PSEUDO, layout.SEGMENTER, layout.PREDICTIONS)


def list_versions(out: Path) -> list[dict[str, Any]]:
    """Return the versions of a run, the oldest first: number, when, what, corrected, current."""
    versions = []
    for folder in (out / FOLDER).glob("*"):
        is_number = folder.name.isascii() and folder.name.isdigit() and len(folder.name) < 10
        if is_number and (folder / _NOTE).is_file():
            note = read_object(folder / _NOTE, when=str, what=str, corrected=int)
            note["is_current"] = _is_current(out, folder)
            versions.append({"number": int(folder.name), **note})
    return sorted(versions, key=lambda version: int(version["number"]))


def current_version(out: Path) -> int:
    """Return the number of the version whose masks the run has; 0 if it is none."""
    current = [version["number"] for version in list_versions(out) if version["is_current"]]
    return max(current, default=0)


def keep_version(out: Path, what: str, corrected: int) -> int:
    """Keep the masks and the segmenter of a run as a new version.

    Args:
        out: Folder of the run.
        what: How they came about.
        corrected: How many photos were corrected.

    Returns:
        Its number; that of the current version if nothing has changed.
    """
    refuse_links(out / FOLDER)
    same = current_version(out)
    if same:
        return same
    number = 1 + max((version["number"] for version in list_versions(out)), default=0)
    target = out / FOLDER / str(number)
    for name in _KEPT:
        _link_tree(out / name, target / name)
    note = {"when": time.strftime("%Y-%m-%d %H:%M:%S"), "what": what, "corrected": corrected}
    # the note makes it a version: a kill before leaves none
    write_json(target / _NOTE, note)
    return number


def go_back(out: Path, number: int) -> None:
    """Make a version the current one; corrections stay as they are.

    Args:
        out: Folder of the run.
        number: The version.

    Raises:
        TagmaskError: There is no such version, or another command works in the run.
        OSError: The disk is full or fails; the run is as it was.
    """
    source = out / FOLDER / str(number)
    if not (source / _NOTE).is_file():
        raise TagmaskError(f"there is no version {number} of {out}.")
    refuse_links(out / FOLDER)
    with only_one(out):
        fresh = {name: out / f".{name}.version" for name in _KEPT}
        try:
            # a full disk is met here, before anything has changed
            for name, place in fresh.items():
                shutil.rmtree(place, ignore_errors=True)
                _link_tree(source / name, place)
            _exchange(out, fresh)
        finally:
            for place in fresh.values():
                shutil.rmtree(place, ignore_errors=True)


def _exchange(out: Path, fresh: dict[str, Path]) -> None:
    """Put other folders in the place of those of a run: all of them, or none if one fails."""
    moved: list[tuple[Path, Path]] = []
    try:
        for name, place in fresh.items():
            old = out / f".{name}.before"
            shutil.rmtree(old, ignore_errors=True)
            for source, target in ((out / name, old), (place, out / name)):
                if source.exists():
                    os.replace(source, target)
                    moved.append((source, target))
    except OSError:
        for source, target in reversed(moved):
            os.replace(target, source)
        raise
    for name in fresh:
        shutil.rmtree(out / f".{name}.before", ignore_errors=True)


def _link_tree(source: Path, target: Path) -> None:
    """Link every file of a folder into another; copy where the disk cannot link."""
    for file in source.rglob("*"):
        if not file.is_file():
            continue
        place = target / file.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        try:
            os.link(file, place)
        except OSError:
            shutil.copy2(file, place)


def _is_current(out: Path, version: Path) -> bool:
    """Return True if the run's masks are those of a version."""
    kept = version / layout.PREDICTIONS
    mine = out / layout.PREDICTIONS
    names = sorted(file.relative_to(kept) for file in kept.rglob("*.png"))
    if names != sorted(file.relative_to(mine) for file in mine.rglob("*.png")):
        return False
    for name in names:
        one, other = kept / name, mine / name
        if os.path.samefile(one, other):
            continue
        if one.stat().st_size != other.stat().st_size or one.read_bytes() != other.read_bytes():
            return False
    return True
