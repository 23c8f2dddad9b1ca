"""What goes on while the page is open: facts to sort photos by, similarity and suggested tags."""

import io
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

from tagmask.config import StudioSettings
from tagmask.errors import TagmaskError
from tagmask.runs.settings import run_values
from tagmask.studio import suggest
from tagmask.studio.learn import Learner
from tagmask.studio.photos import Photo
from tagmask.studio.view import RunView

# how a message is sent to every page: its name and its content
Tell = Callable[[str, Any], None]


class Sources(NamedTuple):
    """The run whose photos are sorted."""

    view: RunView
    learner: Learner | None
    items: dict[int, int]  # index of a photo in the run, by its index in the studio


class Facts:
    """Finds out what the photos of a run are sorted by, whenever something has changed.

    Args:
        sources: Returns the run as it is now; None while there is none, or it is being made.
        tell: Sends a message to every page.
    """

    def __init__(self, sources: Callable[[], Sources | None], tell: Tell) -> None:
        self._sources = sources
        self._tell = tell
        self.wanted = threading.Event()

    def follow(self, stopped: threading.Event) -> None:
        """Gather facts whenever they are wanted, until the studio ends.

        Args:
            stopped: Set when the studio ends; ``wanted`` is set after it.
        """
        while not stopped.is_set():
            self.wanted.wait()
            self.wanted.clear()
            sources = self._sources()
            if sources is not None:
                self._gather(sources, stopped)

    def _gather(self, sources: Sources, stopped: threading.Event) -> None:
        view = sources.view
        places = {item: i for i, item in sources.items.items()}
        told = time.monotonic()
        fresh: dict[int, Any] = {}
        for item in view.gather_facts(stopped.is_set):
            if item in places:
                fresh[places[item]] = view.facts[item]
            if time.monotonic() - told > 0.5:
                self._tell("facts", fresh)
                fresh = {}
                told = time.monotonic()
        if fresh:
            self._tell("facts", fresh)
        learner = sources.learner
        with suppress(TagmaskError, OSError):
            if learner is not None and not learner.refusal():
                learner.prepare_preview(stopped.is_set)


class Comparison:
    """Compares photos, orders them by similarity, and suggests tags.

    Args:
        settings: Which network looks at the photos.
        photos: All photos.
        small: Returns a small JPEG of a photo; a TagmaskError says that it cannot be read.
        tags: Returns the tags of a photo.
        is_running: Returns True while a run needs the machine.
        tell: Sends a message to every page.
    """

    def __init__(
        self,
        settings: StudioSettings,
        photos: Sequence[Photo],
        small: Callable[[int], bytes],
        tags: Callable[[int], list[str]],
        is_running: Callable[[], bool],
        tell: Tell,
    ) -> None:
        self._settings = settings
        self._photos = photos
        self._small = small
        self._tags = tags
        self._is_running = is_running
        self._tell = tell
        self._vectors: torch.Tensor | None = None
        self.tags_changed = threading.Event()
        self.state: dict[str, Any] = {"state": "idle"}
        self.order: list[int] = []
        self.suggestions: list[dict[str, Any]] = []

    def follow(self, stopped: threading.Event) -> None:
        """Compute what photos look like, then suggest tags whenever tags have changed.

        Args:
            stopped: Set when the studio ends; ``tags_changed`` is set after it.
        """
        try:
            self._look_at_photos(stopped)
        except (TagmaskError, OSError, RuntimeError, MemoryError) as error:
            self._tell_state({"state": "failed", "why": str(error)})
            return
        self.tags_changed.set()
        while not stopped.is_set():
            self.tags_changed.wait()
            # tags come in bursts
            time.sleep(0.3)
            self.tags_changed.clear()
            if stopped.is_set() or self._vectors is None:
                return
            tags = [self._tags(i) for i in range(len(self._photos))]
            self.suggestions = suggest.suggest(self._vectors, tags)
            self._tell("suggestions", self.suggestions)

    def _look_at_photos(self, stopped: threading.Event) -> None:
        settings = self._settings
        total = len(self._photos)
        self._tell_state({"state": "loading", "done": 0, "total": total})
        train = run_values(settings.preset, None)["train"]
        model = suggest.load_network(
            settings.backbone or train.backbone,
            settings.weights,
            train.pretrained and settings.weights is None,
        )
        vectors: list[torch.Tensor] = []
        for i in range(total):
            if stopped.is_set():
                return
            # the run needs the machine
            while self._is_running() and not stopped.wait(0.5):
                pass
            vectors.append(self._vector(model, i))
            if i % 8 == 7:
                self._tell_state({"state": "comparing", "done": i + 1, "total": total})
        width = max(len(vector) for vector in vectors)
        self._vectors = torch.stack([v if len(v) else torch.zeros(width) for v in vectors])
        self.order = suggest.order_by_similarity(self._vectors)
        self._tell_state({"state": "done"})
        self._tell("order", self.order)

    def _vector(self, model: Any, i: int) -> torch.Tensor:
        """Return what a photo looks like; empty if it cannot be read."""
        try:
            data = self._small(i)
        except TagmaskError:
            return torch.zeros(0)
        small = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        return suggest.photo_vector(model, small)

    def _tell_state(self, state: dict[str, Any]) -> None:
        self.state = state
        self._tell("comparing", state)
