"""The studio before it has a folder: the page lists folders, or copies photos into a new one.

Every folder gets a number when it is listed, and the page names folders by these numbers alone.
Photos that are dropped on the page go into a folder that it has made for them, nowhere else.
"""

import dataclasses
import os
import shutil
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tagmask import layout
from tagmask.config import StudioSettings, check
from tagmask.config.base import within
from tagmask.data.images import SUFFIXES, strip_suffix, walk
from tagmask.errors import TagmaskError
from tagmask.files import replacing
from tagmask.studio.app import Refused, Studio
from tagmask.studio.opening import open_studio

# folders that are listed of one folder
MOST_LISTED = 2000
# seconds for counting photos, so that a large disk is listed at once
COUNTING = 0.5
# bytes of one photo, and photos that are copied into one folder
MOST_PHOTO = 300_000_000
MOST_PHOTOS = 100_000
# bytes of the disk that stay free: the masks need some, too
SPARE = 500_000_000
# folders within folders of what is dropped
DEEPEST = 12
# characters that no name of a file has here
_FORBIDDEN = '<>:"|?*\\/' if os.name == "nt" else "\\/"


class Chooser:
    """Lists folders, makes one for dropped photos, and opens the studio of one.

    Args:
        settings: How to run on the folder that will be chosen.
    """

    def __init__(self, settings: StudioSettings) -> None:
        check(settings)
        self.settings = settings
        self._folders: list[Path] = []
        self._numbers: dict[Path, int] = {}
        # folders for dropped photos, and how many each has
        self._made: dict[Path, int] = {}
        self._lock = threading.RLock()
        self._is_chosen = False

    def begin(self) -> None:
        """Do nothing: there is no work in the background."""

    def end(self) -> None:
        """Do nothing: there is no work in the background."""

    def state(self) -> dict[str, Any]:
        """Return what the page shows first: the current folder, and where else to begin."""
        current = Path.cwd()
        places = {"current folder": current, "home": _home()}
        return {
            "mode": "choose",
            "title": "tagmask studio",
            "places": [
                {"folder": self._number(place), "name": name}
                for name, place in places.items()
                if place is not None
            ],
            "most": MOST_PHOTO,
            "suffixes": sorted(SUFFIXES),
            "listing": self.look(self._number(current)),
        }

    def _number(self, folder: Path) -> int:
        """Return the number of a folder; a new one if it was not listed yet."""
        with self._lock:
            if folder not in self._numbers:
                self._numbers[folder] = len(self._folders)
                self._folders.append(folder)
            return self._numbers[folder]

    def _folder(self, number: Any) -> Path:
        """Return the folder of a number; refuse one that no list had."""
        if type(number) is not int or not 0 <= number < len(self._folders):
            raise Refused(HTTPStatus.NOT_FOUND, "there is no such folder; load the page again.")
        return self._folders[number]

    def look(self, number: Any) -> dict[str, Any]:
        """List a folder.

        Args:
            number: Its number.

        Returns:
            Its ``path``; ``above``, the folders it lies in; ``photos`` that are known to be in it
            or below, and whether they were ``counted`` to the end; the ``folders`` in it, and how
            many were ``left`` off.

        Raises:
            TagmaskError: It cannot be read.
        """
        folder = self._folder(number)
        inside, photos = _contents(folder)
        is_counted = len(inside) <= MOST_LISTED
        end = time.monotonic() + COUNTING
        rows = []
        for path in inside[:MOST_LISTED]:
            # one large folder must not take the time of all others
            found, is_all = _count(path, min(end, time.monotonic() + COUNTING / 4))
            photos += found
            is_counted = is_counted and is_all
            rows.append(
                {
                    "folder": self._number(path),
                    "name": path.name,
                    "run": _is_run(path),
                    "photos": found,
                    "counted": is_all,
                }
            )
        above = [
            {"folder": self._number(parent), "name": parent.name or str(parent)}
            for parent in reversed(folder.parents)
        ]
        return {
            "folder": number,
            "path": str(folder),
            "name": folder.name or str(folder),
            "above": above,
            "run": _is_run(folder),
            "photos": photos,
            "counted": is_counted,
            "folders": rows,
            "left": max(0, len(inside) - MOST_LISTED),
        }

    def open(self, number: Any) -> Studio:
        """Open the studio of a folder of photos, or of a run.

        Args:
            number: The number of the folder.

        Raises:
            Refused: Another window has chosen already.
            TagmaskError: There is no photo in it.
        """
        folder = self._folder(number)
        with self._lock:
            if self._is_chosen:
                raise Refused(
                    HTTPStatus.CONFLICT, "another window has chosen a folder; load the page again."
                )
            studio = open_studio(dataclasses.replace(self.settings, folder=folder))
            self._is_chosen = True
        return studio

    def make(self, number: Any, name: Any, size: Any) -> dict[str, Any]:
        """Make a folder for photos that were dropped on the page.

        Args:
            number: The number of the folder in which it is made.
            name: Its name; there must be none of this name.
            size: Bytes of all photos together.

        Returns:
            The ``folder`` as a number.

        Raises:
            Refused: Something is of another type.
            TagmaskError: The name cannot be used, or there is too little room.
        """
        parent = self._folder(number)
        if not isinstance(name, str) or type(size) is not int or size < 0:
            raise Refused(HTTPStatus.BAD_REQUEST, "name a folder and how large the photos are.")
        why = _bad_name(name)
        if why:
            raise TagmaskError(f"the folder cannot be called {name!r}: {why}; choose another name.")
        folder = parent / name
        _check_room(parent, size)
        with self._lock:
            try:
                folder.mkdir()
            except FileExistsError:
                raise TagmaskError(
                    f"{folder} is there already; choose another name, or open it from the list."
                ) from None
            except OSError as error:
                raise TagmaskError(
                    f"{folder} cannot be made ({error.strerror}); choose another place."
                ) from None
            self._made[folder] = 0
        return {"folder": self._number(folder), "path": str(folder)}

    def receive(self, number: Any, file: str, read: Callable[[], bytes]) -> dict[str, Any]:
        """Write a photo that was dropped on the page.

        Args:
            number: The number of a folder that ``make`` has made.
            file: Path of the photo within it, with "/".
            read: Returns its content; it is called when nothing speaks against the name.

        Returns:
            How many ``photos`` the folder has now.

        Raises:
            Refused: The folder is another one.
            TagmaskError: The name cannot be used, it is no photo, or there is too little room.
        """
        folder = self._folder(number)
        if folder not in self._made:
            raise Refused(HTTPStatus.FORBIDDEN, "photos are copied into a new folder only.")
        parts = file.split("/")
        for part in parts:
            why = _bad_name(part)
            if why:
                raise TagmaskError(f"{file!r} cannot be copied: {why}; rename it.")
        if len(parts) > DEEPEST:
            raise TagmaskError(f"{file!r} lies too deep; drop a folder further down.")
        if strip_suffix(file) == file:
            raise TagmaskError(f"{file!r} is no photo; leave it out.")
        target = folder.joinpath(*parts)
        if not within(target, folder):
            raise TagmaskError(f"{target} leads out of {folder}; remove the link.")
        data = read()
        _check_room(folder, len(data))
        with self._lock:
            is_new = not target.exists()
            if is_new and self._made[folder] >= MOST_PHOTOS:
                raise TagmaskError(f"more than {MOST_PHOTOS:,} photos; copy them by hand.")
            with replacing(target) as partial:
                partial.write_bytes(data)
            self._made[folder] += is_new
            return {"photos": self._made[folder]}


def _home() -> Path | None:
    """Return the home folder of the user, if there is one."""
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return home if home.is_dir() else None


def _is_run(folder: Path) -> bool:
    """Return True if a folder holds a run."""
    try:
        return layout.is_run(folder) and (folder / layout.CONFIG).is_file()
    except OSError:
        return False


def _contents(folder: Path) -> tuple[list[Path], int]:
    """Return the folders in a folder by name, hidden ones apart, and how many photos it has."""
    inside = []
    photos = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if _is_folder(entry):
                    inside.append(folder / entry.name)
                else:
                    photos += strip_suffix(entry.name) != entry.name
    except OSError as error:
        raise TagmaskError(
            f"{folder} cannot be read ({error.strerror}); choose another folder."
        ) from None
    inside.sort(key=lambda path: (path.name.lower(), path.name))
    return inside, photos


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    """Return True for a folder or a link to one."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _count(folder: Path, until: float) -> tuple[int, bool]:
    """Return how many photos are below a folder, and whether all were found in time."""
    photos = 0
    if time.monotonic() > until:
        return photos, False
    for number, file in enumerate(walk(folder)):
        if number % 64 == 63 and time.monotonic() > until:
            return photos, False
        photos += strip_suffix(file) != file
    return photos, True


def _bad_name(name: str) -> str:
    """Say why a file or folder cannot be called so; empty if it can."""
    if not name.strip() or name.startswith("."):
        return "a name is not empty and does not begin with a dot"
    if os.name == "nt" and name[-1] in ". ":
        return "a name does not end with a dot or a space"
    wrong = [letter for letter in name if letter in _FORBIDDEN or ord(letter) < 32]
    if wrong:
        return f"{wrong[0]!r} cannot be part of a name"
    if len(name.encode("utf-8", "surrogatepass")) > 200:
        return "the name is too long"
    return ""


def _check_room(folder: Path, size: int) -> None:
    """Refuse to write more than the disk has room for."""
    free = shutil.disk_usage(folder).free - SPARE
    if size > free:
        raise TagmaskError(
            f"the disk of {folder} has room for {max(0, free) / 1e9:.1f} GB more, but the photos "
            f"take {size / 1e9:.1f} GB; choose another place."
        )
