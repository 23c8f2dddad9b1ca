"""Read tags from a camera-trap package, Camtrap DP 1.0.

The standard: https://camtrap-dp.tdwg.org

media.csv           mediaID, deploymentID, timestamp, filePath, fileName, fileMediatype, …
observations.csv    mediaID or an event (deploymentID, eventStart, eventEnd), observationLevel,
                    observationType, scientificName, …

An animal is tagged with its scientific name, a human or vehicle with that word; blank, unknown and
unclassified observations give no tag. Observations of single media count. If a package has none,
those of events count for all media of the deployment in that time. Videos are left out. A photo
whose path is the address of a server is looked for by its file name.
"""

import csv
import io
from datetime import datetime
from pathlib import Path

from tagmask.data.tools import Entry
from tagmask.errors import TagmaskError
from tagmask.files import read_text

MEDIA = "media.csv"
OBSERVATIONS = "observations.csv"
_NAMED_BY_TYPE = ("human", "vehicle")
_Record = dict[str, str]


def is_camtrap(folder: Path) -> bool:
    """Return True if a folder holds the two tables of a camera-trap package."""
    return (folder / MEDIA).is_file() and (folder / OBSERVATIONS).is_file()


def camtrap_entries(folder: Path) -> list[Entry]:
    """Return an entry for each photo of a package, with its tags.

    Args:
        folder: the package.

    Raises:
        TagmaskError: a table is not valid, lacks a column, or has a time that cannot be read.
    """
    media = _read(folder / MEDIA, ("mediaID", "deploymentID", "filePath"))
    columns = ("observationLevel", "observationType", "scientificName")
    observations = _read(folder / OBSERVATIONS, columns)
    of_media = [row for row in observations if row["observationLevel"] == "media"]
    tags: dict[str, dict[str, None]] = {row["mediaID"]: {} for row in media}
    for row in of_media:
        if _tag(row) and row.get("mediaID", "") in tags:
            tags[row["mediaID"]][_tag(row)] = None
    if not of_media:
        _add_events(folder, media, observations, tags)
    entries: list[Entry] = []
    for number, row in enumerate(media, start=1):
        if not row.get("fileMediatype", "").startswith("video/"):
            entries.append((f"medium {number}", _file(row), list(tags[row["mediaID"]])))
    return entries


def _file(row: _Record) -> str:
    """Return where a photo is; of one that lies on a server, the name that it had before."""
    path = row["filePath"]
    is_address = path.startswith(("http://", "https://"))
    return row.get("fileName") or path if is_address else path


def _tag(row: _Record) -> str:
    """Return the tag of an observation; empty if it gives none."""
    kind = row["observationType"]
    if kind == "animal":
        return row["scientificName"]
    return kind if kind in _NAMED_BY_TYPE else ""


def _add_events(
    folder: Path,
    media: list[_Record],
    observations: list[_Record],
    tags: dict[str, dict[str, None]],
) -> None:
    """Add the tags of events to all media of the same deployment in that time."""
    of_deployment: dict[str, list[tuple[datetime, str]]] = {}
    for row in media:
        time = _time(folder / MEDIA, row.get("timestamp", ""))
        of_deployment.setdefault(row["deploymentID"], []).append((time, row["mediaID"]))
    for row in observations:
        if row["observationLevel"] != "event" or not _tag(row):
            continue
        start = _time(folder / OBSERVATIONS, row.get("eventStart", ""))
        end = _time(folder / OBSERVATIONS, row.get("eventEnd", ""))
        for time, medium in of_deployment.get(row.get("deploymentID", ""), []):
            if start <= time <= end:
                tags[medium][_tag(row)] = None


def _time(path: Path, text: str) -> datetime:
    """Return a time with its zone, as the standard demands it."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise TagmaskError(
            f'{path} has the time "{text}"; events need times such as 2026-05-01T10:00:00+02:00.'
        )
    return time


def _read(path: Path, columns: tuple[str, ...]) -> list[_Record]:
    """Read a table of the package; every cell is a text without blanks at its ends."""
    try:
        rows = list(csv.DictReader(io.StringIO(read_text(path), newline=""), strict=True))
    except csv.Error as error:
        raise TagmaskError(f"{path} is not valid CSV ({error}); correct its quotes.") from None
    header = list(rows[0]) if rows else []
    absent = [name for name in columns if name not in header]
    if absent:
        raise TagmaskError(
            f"{path} has no row, or no column {absent[0]}, as Camtrap DP has it; export it again."
        )
    records = []
    for row in rows:
        cells = {key: cell.strip() for key, cell in row.items() if isinstance(cell, str)}
        if any(name not in cells for name in columns):
            raise TagmaskError(f"{path} has a row with too few cells; export it again.")
        records.append(cells)
    return records
