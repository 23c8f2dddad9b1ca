"""What a person has checked, and how good the masks were that they were shown.

``review/review.json`` in the folder of a run names the checked photos and those drawn at random.
Beside it lie two masks of each: ``first/NAME.png`` as it was first shown, before anybody corrected
the photo, and ``checked/NAME.png`` as the person left it. The first against the second is an honest
score of the run's masks, as far as the photos were drawn at random and checked completely.
"""

import hashlib
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from tagmask import layout
from tagmask.data.corrections import PERSON_UNSURE, fix
from tagmask.data.images import read_mask, write_awaited_mask
from tagmask.errors import TagmaskError
from tagmask.files import read_object, write_json
from tagmask.labels import UNSURE, Mask
from tagmask.scoring.interval import Interval, ratio_interval
from tagmask.studio.versions import current_version
from tagmask.studio.view import RunView

FOLDER = "review"
_NOTE = "review.json"
_FIRST = "first"
_CHECKED = "checked"


class Review:
    """The checked photos of a run.

    Args:
        view: The run.
    """

    def __init__(self, view: RunView) -> None:
        self.view = view
        self.folder = view.run.out / FOLDER
        self._lock = threading.RLock()
        self.checked: dict[str, dict[str, Any]] = {}
        self.drawn: list[str] = []
        # the version of the run whose mask was first shown, by photo
        self.shown: dict[str, int] = {}
        file = self.folder / _NOTE
        if file.is_file():
            note = read_object(file, checked=dict, drawn=list)
            self.checked = note["checked"]
            self.drawn = note["drawn"]
            self.shown = note.get("shown", {})

    def show_first(self, i: int) -> None:
        """Keep the mask of a photo as it is first shown, unless somebody corrected it before."""
        name = self.view.catalog.name(i)
        file = layout.label_file(self.folder / _FIRST, name)
        if file.exists() or self.view.catalog.correction_digest(i):
            return
        mask = self.view.layer("mask", i)
        if mask is not None:
            with self._lock:
                write_awaited_mask(file, mask)
                self.shown[name] = current_version(self.view.run.out)
                self._write()

    def check(self, i: int, is_good: bool) -> None:
        """Note that a person has checked a photo, or take it back.

        Args:
            i: Index of the photo.
            is_good: False takes it back.

        Raises:
            TagmaskError: The photo has no mask yet.
        """
        name = self.view.catalog.name(i)
        file = layout.label_file(self.folder / _CHECKED, name)
        with self._lock:
            if is_good:
                mask = self.view.layer("mask", i)
                if mask is None:
                    raise TagmaskError(f"{name} has no mask yet; make the masks first.")
                self.show_first(i)
                labels = fix(mask, self.view.layer("correction", i), name)
                write_awaited_mask(file, labels)
                self.checked[name] = {"when": time.strftime("%Y-%m-%d %H:%M:%S")}
            else:
                self.checked.pop(name, None)
                file.unlink(missing_ok=True)
            self._write()

    def draw(self, count: int) -> list[str]:
        """Draw more photos at random that are neither drawn nor corrected yet.

        Which ones is a function of their names, so nobody can choose; drawing again goes on.

        Args:
            count: How many.

        Returns:
            Their names.
        """
        catalog = self.view.catalog
        taken = {*self.drawn}
        free = []
        for i in range(len(catalog)):
            name = catalog.name(i)
            if name not in taken and name not in self.checked and not catalog.correction_digest(i):
                free.append(name)
        free.sort(key=lambda name: hashlib.blake2b(name.encode(), key=b"draw").digest())
        with self._lock:
            self.drawn += free[:count]
            self._write()
        return free[:count]

    def _write(self) -> None:
        note = {"checked": self.checked, "drawn": self.drawn, "shown": self.shown}
        write_json(self.folder / _NOTE, note)

    def scores(self) -> dict[str, Any]:
        """Return the IoU of each class on the photos that were drawn and checked.

        Photos whose first mask came from an earlier version of the run say nothing about this one.

        Returns:
            ``photos`` that count, ``drawn`` ones in all, ``earlier`` ones that are left out, for
            each class ``value``, ``low``, ``high`` and ``photos`` (None while there are too few),
            ``next``: what to do in a sentence, and ``worst``: a class to look at, or "".
        """
        version = current_version(self.view.run.out)
        current = [name for name in self.drawn if self.shown.get(name, version) == version]
        names = [name for name in current if name in self.checked]
        classes = self.view.catalog.classes
        parts: dict[int, list[float]] = {label: [] for label in range(len(classes) + 1)}
        wholes: dict[int, list[float]] = {label: [] for label in range(len(classes) + 1)}
        used = 0
        for name in names:
            pair = self._pair(name, len(classes))
            if pair is None:
                continue
            used += 1
            for label in parts:
                intersection, union = _overlap(*pair, label)
                parts[label].append(intersection)
                wholes[label].append(union)
        rows = []
        for label in parts:
            interval = ratio_interval(parts[label], wholes[label])
            seen = sum(whole > 0 for whole in wholes[label])
            rows.append(
                {
                    "label": "background" if label == 0 else classes[label - 1],
                    "photos": seen,
                    "interval": None if interval is None else _as_json(interval),
                }
            )
        advice, worst = _advice(rows, len(current) - len(names), used)
        return {
            "photos": used,
            "drawn": len(current),
            "earlier": len(self.drawn) - len(current),
            "version": version,
            "classes": rows,
            "next": advice,
            "worst": worst,
        }

    def _pair(self, name: str, classes: int) -> tuple[Mask, Mask] | None:
        """Return the mask first shown and the checked one; None if either is missing."""
        try:
            first = read_mask(layout.label_file(self.folder / _FIRST, name), classes)
            checked = read_mask(layout.label_file(self.folder / _CHECKED, name), classes)
        except TagmaskError:
            return None
        return (first, checked) if first.shape == checked.shape else None


def _overlap(first: Mask, checked: Mask, label: int) -> tuple[float, float]:
    """Return intersection and union of a label in pixels; unsure ones do not count."""
    known = (checked != UNSURE) & (checked != PERSON_UNSURE)
    one = (first == label) & known
    other = (checked == label) & known
    return float(np.count_nonzero(one & other)), float(np.count_nonzero(one | other))


def _as_json(interval: Interval) -> dict[str, float]:
    return {"value": interval.value, "low": interval.low, "high": interval.high}


def _advice(rows: list[dict[str, Any]], waiting: int, used: int) -> tuple[str, str]:
    """Say in a sentence what to check or correct next, and name the class it is about."""
    if waiting:
        return f"{waiting} of the drawn photos wait to be checked.", ""
    known = [row for row in rows if row["interval"] is not None and row["label"] != "background"]
    few = [row["label"] for row in rows if row["interval"] is None and row["label"] != "background"]
    if not used:
        return "Draw photos at random and check each of them completely.", ""
    if few:
        return f"Too few drawn photos show {', '.join(few[:5])}; draw more.", ""
    if not known:
        return "Draw more photos.", ""
    worst = min(known, key=lambda row: row["interval"]["value"])
    percent = round(100 * worst["interval"]["value"])
    sentence = (
        f"{worst['label']} is worst ({percent} %): correct a few photos of it and learn again."
    )
    return sentence, str(worst["label"])


def folders_of(out: Path) -> tuple[Path, Path]:
    """Return where a run keeps the masks as first shown and as checked."""
    return out / FOLDER / _FIRST, out / FOLDER / _CHECKED
