"""Learning again from corrections, in seconds: the head goes on from where it is, on kept tokens.

Corrected cells are drawn more often (``training.head``); all others learn what the head itself answers, told the tags,
so that it changes where the corrections say so. Nothing is written until the result is accepted. Then the stages make
their files as in `tagmask run`, and their notes say so: a run afterwards finds them done.
"""

import copy
import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import torch

from tagmask.data.catalog import Catalog
from tagmask.data.corrections import fix
from tagmask.errors import TagmaskError
from tagmask.explore.view import View
from tagmask.files import only_one
from tagmask.labels import Mask
from tagmask.models.head import HeadSegmenter
from tagmask.pipeline import layout
from tagmask.pipeline.run import do_stage, status_of
from tagmask.pipeline.stages import Inputs, stage
from tagmask.stages.probabilities import predict_probabilities
from tagmask.stages.seeds import read_seeds, seed_catalog
from tagmask.training.head import Cells, answers, fit, gather_cells

FEWER = 6  # times fewer steps than the first training
LEAST_STEPS = 40
SHOWN = 48  # photos that changed most
Tell = Callable[[str, int, int], None]  # what, done, of how many


def refit(
    head: HeadSegmenter, cells: Cells, settings: Any, tell: Tell = lambda *_: None
) -> HeadSegmenter:
    """A head that has learnt from corrected cells; the other one stays as it is."""
    twin = copy.copy(head)
    twin._modules = {**head._modules, "linear": copy.deepcopy(head.linear)}
    labels = torch.where(cells.corrected[:, None], cells.labels, answers(head, cells))
    steps = max(LEAST_STEPS, (settings.steps or 0) // FEWER)
    for step, loss in fit(twin, cells, labels, settings, steps, 0):
        tell("learning", step, steps)
        if loss != loss:
            raise TagmaskError(f"the loss is {loss}; lower --segment.lr (now {settings.lr}).")
    return twin


class Learner:
    """What the button does, in a thread of its own."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.trial: HeadSegmenter | None = None
        self.progress: dict[str, Any] = {"state": "idle"}
        self._busy = threading.Lock()

    def refusal(self) -> str:
        """Why this run cannot learn again; empty if it can."""
        try:
            out = self.view.run.out
        except TagmaskError as error:
            return str(error)
        if not (out / layout.SEGMENTER / layout.MODEL).is_file():
            return "This run has no segmenter yet; finish it with `tagmask run`, then learn again here."
        if self.view.head is None:
            return (
                "The segmenter of this run is DeepLabV2, which takes hours to train. Corrections are kept, and "
                "`tagmask run` trains it again with them. A run with --segment.net head learns again here in seconds."
            )
        return ""

    def start(self, work: Callable[[], None], state: str) -> None:
        """Do ``work`` in the background, unless something is under way."""
        why = self.refusal()
        if why:
            raise TagmaskError(why)
        if not self._busy.acquire(blocking=False):
            raise TagmaskError("it is learning already; wait for it to end.")
        self.progress = {"state": state, "what": "starting", "done": 0, "total": 1}
        threading.Thread(target=self._attempt, args=(work,), daemon=True).start()

    def _attempt(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (TagmaskError, OSError, MemoryError, RuntimeError) as error:
            self.progress = {"state": "failed", "why": str(error)}
        finally:
            self._busy.release()

    def _tell(self, what: str, done: int, total: int) -> None:
        self.progress = {**self.progress, "what": what, "done": done, "total": total}

    def learn(self) -> None:
        """Fit a copy of the head, and find the photos that it changes most."""
        view, head = self.view, self.view.head
        assert head is not None
        catalog, settings, labels = (
            view.catalog,
            view.run.for_stage("segment"),
            view.run.out / layout.PSEUDO,
        )
        part = catalog.subset(
            [i for i in range(len(catalog)) if layout.label_file(labels, catalog.name(i)).is_file()]
        )

        def tokens_of(i: int) -> Any:
            self._tell("reading tokens", i + 1, len(part))
            return view.features.get(part, i)

        cells, _ = gather_cells(tokens_of, part, labels, head, settings.seed)
        if not cells.corrected.any() and not self._changed_tags():
            raise TagmaskError("nothing is corrected yet; correct a few pixels or tags first.")
        with view.lock:
            self.trial = refit(head, cells, settings, self._tell)
        changed = []
        for i in range(len(catalog)):
            self._tell("predicting", i + 1, len(catalog))
            before, after = (
                view.cell_chances(network, i).argmax(0) for network in (head, self.trial)
            )
            changed.append((float((before != after).float().mean()), i))
        most = [
            {"photo": i, "share": share}
            for share, i in sorted(changed, key=lambda row: -row[0])[:SHOWN]
            if share
        ]
        self.progress = {
            "state": "learnt",
            "changed": most,
            "photos": sum(share > 0 for share, _ in changed),
        }

    def mask(self, i: int) -> Mask | None:
        """The mask (H, W) that the trial gives, before sharpening; None if there is no trial."""
        view, catalog = self.view, self.view.catalog
        if self.trial is None:
            return None
        allowed = [view.numbers[c] for c in catalog.tags(i)] if view.run.predict.use_tags else None
        with view.lock:
            tokens = view.features.get(catalog, i)
            image = catalog.load_image(i)
            chances = predict_probabilities(
                self.trial, image, flip=False, tags=allowed, tokens=tokens
            )  # (K, H, W)
        labels = chances[[0, *(number + 1 for number in view.numbers)]].argmax(0).astype("uint8")
        return fix(labels, catalog.load_correction(i), catalog.name(i), unsure=False)

    def take_back(self) -> None:
        """Forget the trial; corrections stay."""
        if self._busy.locked():
            raise TagmaskError("it is learning; wait for it to end.")
        self.trial, self.progress = None, {"state": "idle"}

    def accept(self) -> None:
        """Make the trial the run's segmenter: pseudo labels of corrected photos, the head, and all masks."""
        view, trial, out = self.view, self.trial, self.view.run.out
        if trial is None:
            raise TagmaskError("there is nothing to accept; learn first.")
        with only_one(out):
            settings = dataclasses.replace(view.run, restart=False)
            self._seeds_of_changed_tags()
            inputs = Inputs(settings, view.catalog)
            self._do(inputs, "pseudo")
            row = stage("segment")
            record = row.record(out)
            record.discard()
            record.begin(inputs.parts(row))
            self._tell("saving the head", 1, 1)
            trial.eval().save(out / row.folder)
            record.finish(inputs.parts(row))
            record.clean()
            inputs.forget(row)
            self._do(inputs, "predict")
        view.__dict__.pop("head", None)
        self.trial, self.progress = None, {"state": "accepted"}

    def _do(self, inputs: Inputs, name: str) -> None:
        row = stage(name)
        self._tell(
            {"pseudo": "labelling corrected photos", "predict": "predicting masks"}[name], 0, 1
        )
        do_stage(inputs, row, status_of(inputs, row), name)

    def _changed_tags(self) -> list[int]:
        """Photos whose maps are not those of their tags."""
        catalog, folder, retagged = (
            self.view.catalog,
            self.view.run.out / layout.SEEDS,
            self.view.changes(),
        )

        def is_changed(i: int) -> bool:
            try:
                seeds = read_seeds(layout.seed_file(folder, catalog.name(i)))
            except TagmaskError:
                return True
            return bool(seeds["classes"].tolist() != list(catalog.tags(i)))

        return [i for i in range(len(catalog)) if catalog.name(i) in retagged and is_changed(i)]

    def _seeds_of_changed_tags(self) -> None:
        """Maps of photos with other tags; their labels are made again from them."""
        view, changed = self.view, self._changed_tags()
        if not changed:
            return
        self._tell("maps of changed tags", 0, len(changed))
        part: Catalog = view.catalog.subset(changed)
        seed_catalog(view.run.for_stage("seeds"), part)
        for i in range(len(part)):
            layout.label_file(view.run.out / layout.PSEUDO, part.name(i)).unlink(missing_ok=True)
