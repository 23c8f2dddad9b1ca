"""Learning again from corrections, in seconds: the head goes on from where it is.

It learns on the feature cache. Corrected cells are drawn more often (``training.head``); all others
learn what the head itself answers with tags, so that it changes where the corrections say so.
Nothing is written until the result is accepted. Then the stages make their files as in
`tagmask run`, and their notes say so: a run afterwards finds them done.
"""

import copy
import dataclasses
import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tagmask import layout
from tagmask.config import HeadSettings, PredictSettings, SeedSettings
from tagmask.data.catalog import Catalog
from tagmask.data.corrections import fix
from tagmask.data.images import read_mask
from tagmask.errors import TagmaskError
from tagmask.files import only_one
from tagmask.inference.probabilities import predict_labels
from tagmask.labels import UNSURE, Mask
from tagmask.models.head import HeadSegmenter
from tagmask.runs.run import Run, do_stage, status_of
from tagmask.runs.table import stage
from tagmask.stages.seeds import read_seeds, seed_catalog
from tagmask.studio import instant
from tagmask.studio.review import folders_of
from tagmask.studio.view import RunView
from tagmask.training.head import Cells, answers, fit, gather_cells, person_labels

# times fewer steps than the first training
FEWER = 6
LEAST_STEPS = 40
# photos that changed most
SHOWN = 48
# what is done, how much of it, of how much
Tell = Callable[[str, int, int], None]


def refit(
    head: HeadSegmenter, cells: Cells, settings: Any, tell: Tell = lambda *_: None
) -> HeadSegmenter:
    """Return a head that has learned from corrected cells; the other one stays as it is.

    Args:
        head: The head to go on from.
        cells: The cells of all photos, and which of them are corrected.
        settings: Settings of the segmenter's training.
        tell: Called after each step with what is done, the step, and the number of steps.

    Raises:
        TagmaskError: The loss is no number any more.
    """
    # the two share all but the linear layer
    twin = copy.copy(head)
    twin._modules = {**head._modules, "linear": copy.deepcopy(head.linear)}
    # cells that nobody corrected are to stay as the head sees them
    own_answers = answers(head, cells)  # (M, K)
    labels = torch.where(cells.corrected[:, None], cells.labels, own_answers)  # (M, K)
    steps = max(LEAST_STEPS, (settings.steps or 0) // FEWER)
    for step, loss in fit(twin, cells, labels, settings, steps, 0):
        tell("learning", step, steps)
        if math.isnan(loss):
            raise TagmaskError(f"the loss is {loss}; lower --segment.lr (now {settings.lr}).")
    return twin


class Learner:
    """What the button does, in a thread of its own."""

    def __init__(
        self, view: RunView, tell: Callable[[dict[str, Any]], None] = lambda _: None
    ) -> None:
        """Remember what to learn on.

        Args:
            view: The run.
            tell: Called with the progress whenever it changes.
        """
        self.view = view
        self.trial: HeadSegmenter | None = None
        # the head whose second moments are known, and they
        self._moments: tuple[HeadSegmenter, Tensor] | None = None
        # corrected cells by photo, with the digest of the correction
        self._cells: dict[int, tuple[str, Tensor, Tensor]] = {}
        self._progress: dict[str, Any] = {"state": "idle"}
        self._tell_page = tell
        self._busy = threading.Lock()

    @property
    def progress(self) -> dict[str, Any]:
        """Return what is being done and how far it is."""
        return self._progress

    @progress.setter
    def progress(self, value: dict[str, Any]) -> None:
        self._progress = value
        self._tell_page(value)

    def refusal(self) -> str:
        """Say why this run cannot learn again; empty if it can."""
        try:
            out = self.view.run.out
        except TagmaskError as error:
            return str(error)
        if not (out / layout.SEGMENTER / layout.MODEL).is_file():
            return (
                "This run has no segmenter yet; "
                "finish it with `tagmask run`, then learn again here."
            )
        if self.view.head is None:
            return (
                "The segmenter of this run is DeepLabV2, which takes hours to train. "
                "Corrections are kept, and `tagmask run` trains it again with them. "
                "A run with --segment.net head learns again here in seconds."
            )
        return ""

    def start(self, work: Callable[[], dict[str, Any]], state: str) -> None:
        """Work in the background, unless something is under way.

        Args:
            work: Does it, and returns the progress to show then.
            state: What the page shows meanwhile.

        Raises:
            TagmaskError: The run cannot learn, or it is learning already.
        """
        why = self.refusal()
        if why:
            raise TagmaskError(why)
        if not self._busy.acquire(blocking=False):
            raise TagmaskError("it is learning already; wait for it to end.")
        self.progress = {"state": state, "what": "starting", "done": 0, "total": 1}
        threading.Thread(target=self._attempt, args=(work,), daemon=True).start()

    def _attempt(self, work: Callable[[], dict[str, Any]]) -> None:
        try:
            ended = work()
        except (TagmaskError, OSError, MemoryError, RuntimeError) as error:
            # a trial that could not be accepted can be accepted once there is space
            ended = {"state": "failed", "why": str(error), "trial": self.trial is not None}
        # a page that is told of the end may start the next work at once
        self._busy.release()
        self.progress = ended

    def _tell(self, what: str, done: int, total: int) -> None:
        self.progress = {**self.progress, "what": what, "done": done, "total": total}

    def learn(self) -> dict[str, Any]:
        """Fit a copy of the head, and return the photos that it changes most."""
        view = self.view
        head = view.head
        assert head is not None
        catalog = view.catalog
        settings = view.run.of(HeadSettings)
        labels = view.run.out / layout.PSEUDO
        labelled = []
        for i in range(len(catalog)):
            file = layout.label_file(labels, catalog.name(i))
            if file.is_file():
                labelled.append(i)
        part = catalog.subset(labelled)

        def tokens_of(i: int) -> Any:
            self._tell("reading tokens", i + 1, len(part))
            return view.features.get(part, i)

        cells, _ = gather_cells(tokens_of, part, labels, head, settings.seed)
        if not cells.corrected.any() and not self._changed_tags():
            raise TagmaskError("nothing is corrected yet; correct a few pixels or tags first.")
        with view.lock:
            trial = refit(head, cells, settings, self._tell)
            self.trial = trial
        changed = []
        for i in range(len(catalog)):
            self._tell("predicting", i + 1, len(catalog))
            before = view.cell_chances(head, i).argmax(0)  # (h, w)
            after = view.cell_chances(trial, i).argmax(0)  # (h, w)
            share = float((before != after).float().mean())
            if share > 0:
                row = {"photo": i, "share": share}
                better = self._better(i, before, after)
                changed.append(row if better is None else {**row, "better": better})
        most = sorted(changed, key=lambda change: -change["share"])
        return {"state": "learnt", "changed": most[:SHOWN], "photos": len(changed)}

    def _better(self, i: int, before: Tensor, after: Tensor) -> float | None:
        """Return by how much more of what is known of a photo is right now.

        Args:
            i: Index of the photo.
            before: Labels of its cells (h, w) by the head of the run.
            after: Those by the trial.

        Returns:
            The difference of the shares of right cells, from -1 to 1; None if nothing is known.
        """
        view = self.view
        catalog = view.catalog
        name = catalog.name(i)
        checked = layout.label_file(folders_of(view.run.out)[1], name)
        labels = catalog.load_mask(i)
        if checked.is_file():
            labels = read_mask(checked, len(catalog.classes))
        elif labels is None:
            correction = catalog.load_correction(i)
            if correction is not None:
                labels = fix(np.full_like(correction, UNSURE), correction, name)
        if labels is None:
            return None
        own = torch.tensor([0, *(number + 1 for number in view.numbers)])
        grid = (before.shape[0], before.shape[1])
        shares, known = person_labels(labels, grid, len(catalog.classes) + 1)
        truth = own[shares.argmax(1)]  # (n,)
        right_before = (before.flatten() == truth)[known].float().mean()
        right_after = (after.flatten() == truth)[known].float().mean()
        difference = float(right_after - right_before)
        return difference if math.isfinite(difference) else None

    def prepare_preview(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Compute once what every preview needs.

        Args:
            stopped: Returns True to end early.
        """
        head = self.view.head
        if head is None or (self._moments is not None and self._moments[0] is head):
            return
        moments = instant.second_moments(head, self.view.features, self.view.catalog, stopped)
        self._moments = (head, moments)

    def preview(self, i: int) -> Mask:
        """Return the mask (H, W) that a quick step from all corrections would give.

        Args:
            i: Index of the photo.

        Raises:
            TagmaskError: The run cannot learn, or nothing is corrected.
        """
        view = self.view
        head = view.head
        why = self.refusal()
        if why or head is None:
            raise TagmaskError(why)
        self.prepare_preview()
        assert self._moments is not None
        catalog = view.catalog
        corrected = view.names_in(layout.CORRECTIONS)
        features = []
        labels = []
        for k in range(len(catalog)):
            if catalog.name(k) not in corrected:
                continue
            digest = catalog.correction_digest(k)
            kept = self._cells.get(k)
            if kept is None or kept[0] != digest:
                cells = instant.corrected_cells(head, view.features, catalog, k, view.numbers)
                kept = (digest, *cells)
                self._cells[k] = kept
            features.append(kept[1])
            labels.append(kept[2])
        if not features:
            raise TagmaskError("nothing is corrected yet; correct a few pixels first.")
        quick = instant.step(head, self._moments[1], torch.cat(features), torch.cat(labels))
        return self._mask_by(quick, i)

    def mask(self, i: int) -> Mask | None:
        """Return the mask (H, W) that the trial gives, before sharpening; None without a trial."""
        return None if self.trial is None else self._mask_by(self.trial, i)

    def _mask_by(self, head: HeadSegmenter, i: int) -> Mask:
        """Return the mask (H, W) of a photo by a head, with what is corrected."""
        view = self.view
        catalog = view.catalog
        allowed = None
        if view.run.of(PredictSettings).use_tags:
            allowed = [view.numbers[c] for c in catalog.tags(i)]
        with view.lock:
            tokens = view.features.get(catalog, i)
            image = catalog.load_image(i)
            found = predict_labels(head, image, flip=False, tags=allowed, tokens=tokens)
        # from the labels of the network, which may know other classes, to those of the photos
        own = np.zeros(head.num_classes, np.uint8)
        for c, number in enumerate(view.numbers):
            own[number + 1] = c + 1
        labels = own[found.mask()]  # (H, W)
        return fix(labels, catalog.load_correction(i), catalog.name(i), unsure=False)

    def take_back(self) -> None:
        """Forget the trial; corrections stay."""
        if self._busy.locked():
            raise TagmaskError("it is learning; wait for it to end.")
        self.trial = None
        self.progress = {"state": "idle"}

    def accept(self) -> None:
        """Make the trial the run's segmenter.

        The pseudo labels of corrected photos and all masks are made again with it.
        """
        view = self.view
        trial = self.trial
        out = view.run.out
        if trial is None:
            raise TagmaskError("there is nothing to accept; learn first.")
        with only_one(out):
            settings = dataclasses.replace(view.run, restart=False)
            self._seeds_of_changed_tags()
            run = Run.of(settings, view.catalog)
            self._do(run, "pseudo", "labelling corrected photos")
            rows = (stage("segment"), stage("predict"))
            try:
                self._replace_head(run, trial)
                self._do(run, "predict", "predicting masks")
            except BaseException:
                # a full disk or Ctrl-C: the run keeps the head and the masks that it had
                for row in rows:
                    row.record(out).restore()
                raise
            for row in rows:
                row.record(out).clean()
        # the head is read again when it is next asked for
        view.__dict__.pop("head", None)
        self._cells = {}
        view.facts = [None] * len(view.catalog)
        self.trial = None

    def _replace_head(self, run: Run, trial: HeadSegmenter) -> None:
        """Save the trial as the run's segmenter; what was there is kept aside."""
        row = stage("segment")
        record = row.record(run.settings.out)
        record.discard()
        record.begin(run.parts(row))
        self._tell("saving the head", 1, 1)
        trial.eval().save(run.settings.out / row.folder)
        record.finish(run.parts(row))
        run.forget(row)

    def _do(self, run: Run, name: str, what: str) -> None:
        """Run a stage as a run does, and tell the page what is done."""
        row = stage(name)
        self._tell(what, 0, 1)
        do_stage(run, row, status_of(run, row), name)

    def _changed_tags(self) -> list[int]:
        """Return the photos whose maps are not those of their tags."""
        catalog = self.view.catalog
        retagged = self.view.changes()
        indices = [i for i in range(len(catalog)) if catalog.name(i) in retagged]
        return [i for i in indices if self._is_outdated(i)]

    def _is_outdated(self, i: int) -> bool:
        """Return True if the maps of a photo are missing or of other classes than its tags."""
        catalog = self.view.catalog
        folder = self.view.run.out / layout.SEEDS
        file = layout.seed_file(folder, catalog.name(i))
        try:
            seeds = read_seeds(file)
        except TagmaskError:
            return True
        return bool(seeds["classes"].tolist() != list(catalog.tags(i)))

    def _seeds_of_changed_tags(self) -> None:
        """Make the maps of photos with other tags, and remove the labels made from the old ones."""
        view = self.view
        changed = self._changed_tags()
        if not changed:
            return
        self._tell("maps of changed tags", 0, len(changed))
        part: Catalog = view.catalog.subset(changed)
        seed_catalog(Run.of(view.run, part), view.run.of(SeedSettings))
        labels = view.run.out / layout.PSEUDO
        for i in range(len(part)):
            file = layout.label_file(labels, part.name(i))
            file.unlink(missing_ok=True)
