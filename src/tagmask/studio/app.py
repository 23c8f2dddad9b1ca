"""What the page asks for: photos, tags, corrections, checks, learning, runs and exports."""

import dataclasses
import io
import shlex
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tagmask import layout
from tagmask.config import (
    StudioSettings,
)
from tagmask.data.corrections import NOT_CORRECTED, fix
from tagmask.data.images import read_image
from tagmask.data.survey import copies_of
from tagmask.data.table import clean_tag
from tagmask.errors import TagmaskError
from tagmask.inference.selfcheck import read_verdicts, verdict_lines
from tagmask.studio import export as exports
from tagmask.studio import versions
from tagmask.studio.background import Comparison, Facts, Sources
from tagmask.studio.colours import bright_colours
from tagmask.studio.events import Events
from tagmask.studio.job import Job
from tagmask.studio.learn import Learner
from tagmask.studio.photos import SHOWN, THUMB, photos_of_catalog, photos_of_folder, picture
from tagmask.studio.review import Review
from tagmask.studio.tags import TABLE, TABLE_OF_RUN, TagTable, digest, tags_of_folders
from tagmask.studio.view import LAYERS, RunView, view_of

# answers to writes that may be sent again because their answer was lost
REMEMBERED = 500
# seconds that the page has for itself before networks are loaded
OPENING = 1.5
# photos that one request may change
MOST_CHANGES = 20_000


@dataclasses.dataclass
class Refused(Exception):
    """A request that gets no more than a status and a sentence."""

    status: HTTPStatus
    why: str


class Studio:
    """One folder of photos, one run or one photo; each answer is JSON or bytes.

    Args:
        views: The run or photo, and perhaps a second run on the same photos; none while a folder
            has no run yet.
        title: Title of the page.
        settings: The folder and how to run on it; None without one.
    """

    def __init__(
        self, views: list[RunView], title: str, settings: StudioSettings | None = None
    ) -> None:
        self.title = title
        self.settings = settings
        self.events = Events()
        self.stopped = threading.Event()
        self.saving = threading.RLock()
        self.job = Job(self._tell_job, self._run_ended)
        self.facts = Facts(self._sources, self.events.send)
        self.comparison: Comparison | None = None
        self._answers: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._masks_told = 0.0
        self._threads: list[threading.Thread] = []
        self.table: TagTable | None = None
        if settings is not None and settings.folder is not None:
            self.photos = photos_of_folder(settings.folder)
            self.table = TagTable(self.out / TABLE, self.photos)
            if not self.table.file.is_file() and settings.tags is not None:
                self.table.take_over(settings.folder, settings.tags)
            self.comparison = Comparison(
                settings,
                self.photos,
                self._small,
                self.tags,
                lambda: self.job.is_running,
                self.events.send,
            )
        else:
            self.photos = photos_of_catalog(views[0].catalog)
        self._thumbs = lru_cache(4096)(lambda i: self._picture(i, THUMB))
        self.notes = self._find_copies() if self.table is not None else {}
        self.folder_tags = tags_of_folders(self.photos) if self.table is not None else {}
        self._look_at(views)

    def _look_at(self, views: list[RunView]) -> None:
        """Show other runs, or the same run after it has changed."""
        self.views = views
        self.learner = Learner(views[0], self._tell_learning) if views else None
        self.review = Review(views[0]) if views and views[0].out is not None else None
        places = {photo.name: i for i, photo in enumerate(self.photos)}
        self.items: dict[int, int] = {}
        if views:
            catalog = views[0].catalog
            for item in range(len(catalog)):
                place = places.get(catalog.name(item))
                if place is not None:
                    self.items[place] = item
        self.facts.wanted.set()

    @property
    def out(self) -> Path:
        """Return the folder of the run.

        Raises:
            TagmaskError: This is a single photo.
        """
        if self.settings is not None and self.settings.out is not None:
            return self.settings.out
        return self.view.run.out

    @property
    def view(self) -> RunView:
        """Return the run that is worked on.

        Raises:
            Refused: There is none yet.
        """
        if not self.views:
            raise Refused(HTTPStatus.CONFLICT, "there is no run yet; make the masks first.")
        return self.views[0]

    def item(self, i: int) -> int:
        """Return the index of a photo in the run.

        Raises:
            Refused: The run does not have it.
        """
        self.view  # noqa: B018  says it if there is no run
        if i not in self.items:
            raise Refused(
                HTTPStatus.NOT_FOUND, "the run does not have this photo; it had no tag then."
            )
        return self.items[i]

    # what is shown

    def state(self) -> dict[str, Any]:
        """Return all that the page needs to be usable."""
        view = self.views[0] if self.views else None
        comparison = self.comparison
        tags = [self.tags(i) for i in range(len(self.photos))]
        classes = list(view.catalog.classes) if view else []
        mode = "folder" if self.table is not None else "run"
        if view is not None and view.out is None:
            mode = "photo"
        return {
            "title": self.title,
            "mode": mode,
            "out": "" if mode == "photo" else str(self.out),
            "runs": [str(v.out or "") for v in self.views],
            "classes": classes,
            "colours": bright_colours(len(classes) + 1).tolist(),
            "photos": [photo.name for photo in self.photos],
            "tags": tags,
            "tagDigests": [digest(names) for names in tags],
            "folderTags": self.folder_tags,
            "notes": self.notes,
            "inRun": sorted(self.items),
            "editable": view is not None and view.out is not None,
            "learning": None if self.learner is None else self.learner.progress,
            "job": self.job.state,
            "order": comparison.order if comparison else [],
            "suggestions": comparison.suggestions if comparison else [],
            "comparing": comparison.state if comparison else {"state": "idle"},
            "cards": exports.groups(),
            **self.marks(),
        }

    def marks(self) -> dict[str, Any]:
        """Return what is known about photos and changes while one works."""
        view = self.views[0] if self.views else None
        marks: dict[str, Any] = {
            "masks": [],
            "pseudo": [],
            "corrected": [],
            "checked": [],
            "drawn": [],
            "facts": [],
            "made": {},
            "foreign": "",
            "truth": False,
            "versions": [],
            "report": False,
            "verdicts": [],
            "outdated": False,
        }
        if view is None:
            return marks
        missing = {kind: set(view.missing(kind)) for kind in LAYERS}
        for kind, name in (("mask", "masks"), ("pseudo", "pseudo")):
            marks[name] = [i for i, item in self.items.items() if item not in missing[kind]]
        marks["truth"] = view.catalog.has_masks
        marks["facts"] = [
            view.facts[self.items[i]] if i in self.items else None for i in range(len(self.photos))
        ]
        if view.out is None:
            return marks
        corrected = {*view.changes(), *view.names_in(layout.CORRECTIONS)}
        marks["corrected"] = [i for i, p in enumerate(self.photos) if p.name in corrected]
        marks["made"] = {kind: (view.out / folder).is_dir() for kind, folder in LAYERS.items()}
        marks["foreign"] = " ".join(filter(None, (view.foreign(kind) for kind in LAYERS)))
        if self.review is not None:
            checked = self.review.checked
            marks["checked"] = [i for i, p in enumerate(self.photos) if p.name in checked]
            drawn = {*self.review.drawn}
            marks["drawn"] = [i for i, p in enumerate(self.photos) if p.name in drawn]
        marks["versions"] = versions.list_versions(view.out)
        marks["report"] = (view.out / layout.REPORT).is_file()
        marks["verdicts"] = _verdicts(view.out)
        marks["outdated"] = self._is_outdated()
        return marks

    def _is_outdated(self) -> bool:
        """Return True if tags have changed since the run in a way that it does not know."""
        if self.table is None:
            return False
        for i in range(len(self.photos)):
            tags = self.table[i]
            in_run = self._tags_in_run(i)
            if (tags or i in self.items) and set(tags) != set(in_run):
                return True
        return False

    def _tags_in_run(self, i: int) -> list[str]:
        if i not in self.items:
            return []
        catalog = self.views[0].catalog
        return [catalog.classes[c] for c in catalog.tags(self.items[i])]

    def tags(self, i: int) -> list[str]:
        """Return the tags of a photo by name."""
        if self.table is not None:
            return list(self.table[i])
        return self._tags_in_run(i)

    def info(self, i: int) -> dict[str, Any]:
        """Return what the page needs to open a photo, besides its pictures."""
        view = self.view
        item = self.item(i)
        if self.review is not None:
            self.review.show_first(item)
        return {
            "size": view.size(item),
            "tags": self._tags_in_run(i),
            "tagDigest": digest(self.tags(i)),
            "digest": view.catalog.correction_digest(item),
            "methods": [v.methods for v in self.views],
            "refusal": self.learner.refusal() if self.learner else "",
            "hasHead": view.out is not None and view.head is not None,
        }

    def _picture(self, i: int, side: int) -> bytes:
        photo = self.photos[i]

        def load() -> Any:
            if i in self.items:
                return self.views[0].catalog.load_image(self.items[i])
            assert photo.path is not None
            return read_image(photo.path)

        try:
            return picture(photo, side, load)
        except TagmaskError:
            self.notes[i] = "cannot be read"
            raise

    def thumb(self, i: int) -> bytes:
        """Return a small JPEG of a photo."""
        return self._thumbs(i)

    def image(self, i: int) -> bytes:
        """Return a photo as large as a screen, as JPEG."""
        return self._picture(i, SHOWN)

    def mask_thumb(self, i: int) -> bytes:
        """Return the mask of a photo, with what is corrected, as a small transparent PNG."""
        item = self.item(i)
        mask = self.view.layer("mask", item)
        if mask is None:
            raise Refused(HTTPStatus.NOT_FOUND, "there is no mask of this photo yet.")
        labels = fix(mask, self.view.layer("correction", item), self.photos[i].name, unsure=False)
        step = max(1, -(-max(labels.shape) // THUMB))
        small = labels[::step, ::step]  # (h, w)
        colours = np.zeros((256, 4), np.uint8)
        colours[:255, :3] = bright_colours(255)
        colours[1:255, 3] = 255
        buffer = io.BytesIO()
        Image.fromarray(colours[small], "RGBA").save(buffer, "PNG", compress_level=1)
        return buffer.getvalue()

    def layer(self, run: int, kind: str, i: int) -> bytes:
        """Return labels (H, W) as bytes; empty if there are none.

        Args:
            run: Index of the run.
            kind: "trial" for what was just learned, or a kind of ``RunView.layer``.
            i: Index of the photo.
        """
        if kind == "trial" and run == 0 and self.learner is not None:
            labels = self.learner.mask(self.item(i))
        else:
            labels = self.views[run].layer(kind, self.item_in(run, i))
        return b"" if labels is None else labels.tobytes()

    def preview(self, i: int) -> tuple[bytes, float]:
        """Return the mask that the last strokes would lead to, and the seconds that it took."""
        if self.learner is None:
            raise Refused(HTTPStatus.CONFLICT, "there is no run yet; make the masks first.")
        self.learner.prepare_preview()
        began = time.monotonic()
        labels = self.learner.preview(self.item(i))
        return labels.tobytes(), time.monotonic() - began

    def item_in(self, run: int, i: int) -> int:
        """Return the index of a photo in one of the runs.

        Args:
            run: The number of the run; 0 is the studio's own.
            i: The photo.

        Raises:
            Refused: The run does not have it.
        """
        if run == 0:
            return self.item(i)
        wanted = self.photos[i].name
        other = self.views[run].catalog
        for k in range(len(other)):
            if other.name(k) == wanted:
                return k
        raise Refused(HTTPStatus.NOT_FOUND, "the other run does not have this photo.")

    # what is written

    def once(self, key: str, write: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Write, or return the answer that the same request got before.

        Args:
            key: What the page calls this write; a page that lost the answer sends it again.
            write: Does it.
        """
        with self.saving:
            if key and key in self._answers:
                return self._answers[key]
            answer = write()
            if key:
                self._answers[key] = answer
                while len(self._answers) > REMEMBERED:
                    self._answers.popitem(last=False)
            return answer

    def correct(
        self, i: int, box: tuple[int, int, int, int], body: bytes, before: str, page: str
    ) -> dict[str, Any]:
        """Save what is corrected in a part of a photo, unless it has changed since it was read.

        Args:
            i: Index of the photo.
            box: Top, left, height and width of the part in pixels.
            body: Its labels, one byte for each pixel.
            before: Digest of the corrections that the page has read.
            page: Name of the page that writes; the others are told.

        Returns:
            The tags, their digest and the new digest.
        """
        item = self.item(i)
        view = self.view
        with self.saving:
            now, kept = view.correction(item)
            if before != now:
                raise Refused(
                    HTTPStatus.CONFLICT,
                    f"{self.photos[i].name} was corrected in another window meanwhile; "
                    "its current state is shown.",
                )
            if kept is None:
                labels = np.full(view.size(item), NOT_CORRECTED, np.uint8)
            else:
                labels = kept.copy()
            top, left, height, width = box
            part = np.frombuffer(body, np.uint8).reshape(height, width)
            _check_labels(part, len(view.catalog.classes))
            labels[top : top + height, left : left + width] = part
            tags_before = self._tags_in_run(i)
            view.save_labels(item, labels, part)
            tags = self._tags_in_run(i)
            if tags != tags_before and self.table is not None:
                self.table.change({i: tags})
            view.facts[item] = None
            if self.review is not None and self.photos[i].name in self.review.checked:
                self.review.check(item, True)
        self.facts.wanted.set()
        answer = self._answer(i)
        self.events.send("photos", {"photos": [answer], "page": page})
        return answer

    def _answer(self, i: int) -> dict[str, Any]:
        correction = ""
        if self.views and i in self.items and self.views[0].out is not None:
            correction = self.views[0].catalog.correction_digest(self.items[i])
        tags = self.tags(i)
        return {"photo": i, "tags": tags, "tagDigest": digest(tags), "digest": correction}

    def retag(self, changes: Any, page: str) -> dict[str, Any]:
        """Save the tags of photos; those that changed meanwhile are left as they are.

        Args:
            changes: List of ``photo``, its wanted ``tags`` and the digest ``before``.
            page: Name of the page that writes; the others are told.

        Returns:
            ``photos`` as they are now, and those of them in ``conflicts`` that were not written.

        Raises:
            Refused: The list has another form, or a tag is unknown to a run.
        """
        wanted: dict[int, list[str]] = {}
        conflicts = []
        with self.saving:
            for i, tags, before in self._parsed(changes):
                if before != digest(self.tags(i)):
                    conflicts.append(i)
                else:
                    wanted[i] = tags
            if wanted:
                self._save_tags(wanted)
            touched = [*wanted, *conflicts]
            answers = [self._answer(i) for i in touched]
        if self.comparison is not None:
            self.comparison.tags_changed.set()
        self.facts.wanted.set()
        written = [answer for answer in answers if answer["photo"] in wanted]
        if written:
            self.events.send("photos", {"photos": written, "page": page})
        return {"photos": answers, "conflicts": conflicts}

    def _parsed(self, changes: Any) -> list[tuple[int, list[str], str]]:
        """Return changes of tags, if the page has sent them as it should."""
        bad = Refused(HTTPStatus.BAD_REQUEST, "changes are a list of photo, tags and before.")
        if not isinstance(changes, list) or len(changes) > MOST_CHANGES:
            raise bad
        parsed = []
        for change in changes:
            if not isinstance(change, dict):
                raise bad
            photo = change.get("photo")
            tags = change.get("tags")
            before = change.get("before")
            if type(photo) is not int or not 0 <= photo < len(self.photos):
                raise bad
            if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
                raise bad
            if not isinstance(before, str):
                raise bad
            parsed.append((photo, sorted({clean_tag(tag) for tag in tags}), before))
        return parsed

    def _save_tags(self, wanted: Mapping[int, Sequence[str]]) -> None:
        """Write tags to the table, and as corrections of the run where it knows the classes."""
        numbers: dict[int, list[int]] = {}
        if self.views:
            known = {name: c for c, name in enumerate(self.view.catalog.classes)}
            for i, tags in wanted.items():
                unknown = [tag for tag in tags if tag not in known]
                if unknown and self.table is None:
                    raise TagmaskError(
                        f"the run has no class {unknown[0]!r}; its classes are {', '.join(known)}."
                    )
                if i in self.items and not unknown:
                    numbers[self.items[i]] = [known[tag] for tag in tags]
        if self.table is not None:
            self.table.change(wanted)
        if numbers:
            self.view.save_tags(numbers)
            for item in numbers:
                self.view.facts[item] = None

    def check(self, photos: Any, is_good: Any, page: str) -> dict[str, Any]:
        """Note that photos are checked, or take it back.

        Args:
            photos: Their indices.
            is_good: False takes it back.
            page: Name of the page that writes.
        """
        if not isinstance(photos, list) or type(is_good) is not bool:
            raise Refused(HTTPStatus.BAD_REQUEST, "name photos and whether they are checked.")
        if self.review is None:
            raise Refused(HTTPStatus.CONFLICT, "there is no run yet; make the masks first.")
        for i in photos:
            if type(i) is not int or not 0 <= i < len(self.photos):
                raise Refused(HTTPStatus.BAD_REQUEST, "there is no such photo.")
        # a photo that is named a million times is written once
        named = list(dict.fromkeys(photos))
        with self.saving:
            for i in named:
                self.review.check(self.item(i), is_good)
        answer = {"photos": named, "good": is_good}
        self.events.send("checked", {**answer, "page": page})
        return answer

    def draw(self, count: Any) -> dict[str, Any]:
        """Draw photos at random that are to be checked completely."""
        if type(count) is not int or not 1 <= count <= 1000:
            raise Refused(HTTPStatus.BAD_REQUEST, "draw 1 to 1000 photos.")
        if self.review is None:
            raise Refused(HTTPStatus.CONFLICT, "there is no run yet; make the masks first.")
        with self.saving:
            names = {*self.review.draw(count)}
        drawn = [i for i, photo in enumerate(self.photos) if photo.name in names]
        self._tell_marks()
        return {"drawn": drawn}

    def scores(self) -> dict[str, Any]:
        """Return how good the masks are, by the photos that were drawn and checked."""
        if self.review is None:
            raise Refused(HTTPStatus.CONFLICT, "there is no run yet; make the masks first.")
        return self.review.scores()

    # what takes longer

    def act(self, name: str) -> dict[str, Any]:
        """Do what a button says, and return how far it is."""
        learner = self.learner
        if learner is None:
            raise Refused(HTTPStatus.CONFLICT, "there is no run yet; make the masks first.")
        if name == "learn":
            learner.start(learner.learn, "learning")
        elif name == "accept":
            learner.start(self._accept, "accepting")
        else:
            learner.take_back()
        return learner.progress

    def _accept(self) -> dict[str, Any]:
        """Accept what was learned, as a new version; the one before is kept as well."""
        learner = self.learner
        assert learner is not None
        out = self.view.run.out
        if learner.trial is None:
            raise TagmaskError("there is nothing to accept; learn first.")
        versions.keep_version(out, "before learning again", 0)
        with self.saving:
            learner.accept()
        corrected = len(self.view.names_in(layout.CORRECTIONS))
        versions.keep_version(out, "learned from corrections", corrected)
        self.facts.wanted.set()
        self._tell_marks()
        return {"state": "accepted"}

    def go_back(self, number: Any) -> dict[str, Any]:
        """Make a version of the run the current one."""
        if type(number) is not int:
            raise Refused(HTTPStatus.BAD_REQUEST, "name the number of a version.")
        with self.saving:
            out = self.view.run.out
            if number not in [version["number"] for version in versions.list_versions(out)]:
                raise TagmaskError(f"there is no version {number} of {out}.")
            corrected = len(self.view.names_in(layout.CORRECTIONS))
            versions.keep_version(out, "before going back", corrected)
            versions.go_back(out, number)
            self._look_at([RunView(v.raw, v.classifier_folder, v.settings) for v in self.views])
        self.events.send("reload", {})
        return {"version": number}

    def start_run(self) -> dict[str, Any]:
        """Make masks from the tags: start `tagmask run`, or resume it.

        Raises:
            Refused: There are too few tags, or this is no folder.
        """
        if self.table is None or self.settings is None or self.settings.folder is None:
            raise Refused(
                HTTPStatus.CONFLICT, "the studio was opened on a run; type `tagmask run` for it."
            )
        if not any(self.table[i] for i in range(len(self.photos))):
            raise Refused(HTTPStatus.CONFLICT, "no photo has a tag yet; tag some first.")
        if not self.job.is_running:
            with self.saving:
                self._renumber_corrections()
                self.table.write(self.out / TABLE_OF_RUN)
            self.job.start(self._words())
        return self.job.state

    def _words(self) -> list[str | Path]:
        """Return the command line of the run."""
        settings = self.settings
        assert settings is not None and settings.folder is not None  # noqa: PT018
        words: list[str | Path] = ["run", "--preset", settings.preset]
        words += ["--images", settings.folder, "--tags", self.out / TABLE_OF_RUN, "--out", self.out]
        if settings.backbone is not None:
            words += ["--train.backbone", settings.backbone]
        if settings.weights is not None:
            words += ["--train.no-pretrained", "--train.weights", settings.weights]
        return [*words, *shlex.split(settings.flags)]

    def _renumber_corrections(self) -> None:
        """Give corrected pixels the numbers that their classes have in the new table.

        A class that no photo has any more leaves its pixels not corrected.
        """
        assert self.table is not None
        if not self.views:
            return
        view = self.view
        classes = sorted(self.table.counts())
        if list(view.catalog.classes) == classes:
            return
        numbers = np.full(256, NOT_CORRECTED, np.uint8)
        numbers[[0, 254]] = [0, 254]
        for c, name in enumerate(view.catalog.classes):
            if name in classes:
                numbers[c + 1] = classes.index(name) + 1
        view.renumber(numbers, classes)

    def _run_ended(self) -> None:
        self.reopen()
        if self.views:
            corrected = len(self.view.names_in(layout.CORRECTIONS))
            versions.keep_version(self.out, "made by a run", corrected)
        self.events.send("reload", {})

    def reopen(self) -> None:
        """Read the run again, after it was made or has changed."""
        if (self.out / layout.CONFIG).is_file():
            self._look_at([view_of(self.out)])

    def export(self, format: Any, only_checked: Any) -> dict[str, Any]:
        """Write the masks for another tool, and return where.

        Args:
            format: A name of ``tagmask export --format``.
            only_checked: True to leave out masks that nobody has checked.

        Raises:
            Refused: One of them is of another type.
        """
        if not isinstance(format, str) or type(only_checked) is not bool:
            raise Refused(HTTPStatus.BAD_REQUEST, "name a format and which photos.")
        checked = {*self.review.checked} if self.review and only_checked else None
        path = exports.export(self.view, format, checked)
        return {"path": str(path), "name": path.name}

    def exported(self, name: str) -> Path:
        """Return an export as a file to download.

        Raises:
            Refused: There is no export of this name.
        """
        folder = self.out / exports.FOLDER
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.name == name and not path.name.startswith("."):
                return exports.packed(path)
        raise Refused(HTTPStatus.NOT_FOUND, "there is no such export.")

    # what goes on in the background

    def begin(self) -> None:
        """Start what goes on while the page is open: facts to sort by, similarity, suggestions."""
        work: list[Callable[[], None]] = [self._warm_up, lambda: self.facts.follow(self.stopped)]
        comparison = self.comparison
        if comparison is not None:
            work.append(lambda: comparison.follow(self.stopped))
        self._threads = [
            threading.Thread(target=self._later, args=(one,), daemon=True) for one in work
        ]
        for thread in self._threads:
            thread.start()

    def _later(self, work: Callable[[], None]) -> None:
        """Do something in the background, once the page has had time to open."""
        if not self.stopped.wait(OPENING):
            work()

    def _warm_up(self) -> None:
        """Load networks while the page opens, so that it need not wait for them later."""
        with suppress(TagmaskError, OSError):
            for view in self.views:
                view.numbers  # noqa: B018
            if self.learner is not None:
                self.learner.refusal()

    def end(self) -> None:
        """Stop everything."""
        self.stopped.set()
        self.facts.wanted.set()
        if self.comparison is not None:
            self.comparison.tags_changed.set()
        self.job.end()
        # a network that is being loaded while the interpreter ends would abort it
        for thread in self._threads:
            thread.join(20)

    def _sources(self) -> Sources | None:
        """Return the run that facts are about; None while there is none, or it is being made."""
        if not self.views or self.job.is_running:
            return None
        return Sources(self.views[0], self.learner, self.items)

    def _small(self, i: int) -> bytes:
        """Return a small JPEG of a photo, and tell the pages if it cannot be read."""
        try:
            return self._thumbs(i)
        except TagmaskError:
            self.events.send("notes", self.notes)
            raise

    def _find_copies(self) -> dict[int, str]:
        """Return the photos that are copies of others, byte by byte, with a sentence each."""
        paths = {photo.path: i for i, photo in enumerate(self.photos) if photo.path is not None}
        notes = {}
        for group in copies_of(paths):
            first, *others = sorted(group, key=lambda path: paths[path])
            for path in others:
                notes[paths[path]] = f"a copy of {self.photos[paths[first]].name}"
        return notes

    def _tell_learning(self, progress: dict[str, Any]) -> None:
        if "changed" in progress:
            places = {item: i for i, item in self.items.items()}
            changed = [
                {**row, "photo": places[row["photo"]]}
                for row in progress["changed"]
                if row["photo"] in places
            ]
            progress = {**progress, "changed": changed}
        self.events.send("learning", progress)

    def _tell_job(self, state: dict[str, Any]) -> None:
        self.events.send("job", {**state, "log": state["log"][-60:]})
        stages = state["stages"]
        is_predicting = bool(stages) and stages[-1]["name"] == "predict"
        if is_predicting and time.monotonic() - self._masks_told > 1.5:
            self._masks_told = time.monotonic()
            self.reopen()
            self._tell_marks()

    def _tell_marks(self) -> None:
        self.events.send("marks", self.marks())


def _check_labels(labels: np.ndarray[Any, Any], classes: int) -> None:
    """Refuse labels that no class has."""
    wrong = labels[(labels > classes) & (labels < 254)]
    if wrong.size:
        raise TagmaskError(
            f"there is no label {wrong[0]}; with {classes} classes the last is {classes}."
        )


def _verdicts(out: Path) -> list[str]:
    """Return what the self-check of a run says, a sentence each; nothing without one."""
    try:
        return verdict_lines(read_verdicts(out / layout.CHECK))
    except TagmaskError as error:
        return [str(error)]
