"""A training has to earn its place: it is kept only if it helps on photos it has not seen.

The state before the first step, with the head that fits the untouched backbone, is one of the
candidates; the state with the best validation score and the last one are the others. A candidate
is better if it tells held-out tags better (lower loss, and no lower mean average precision) and if
its maps stay where they were: their mean along the border, divided by their mean over the photo,
must not rise much. A classifier that learns the surroundings shows in this ratio first.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from tagmask import layout
from tagmask.acr.localize import localize_both
from tagmask.errors import ImageError
from tagmask.files import read_object, write_json
from tagmask.inference.selfcheck import border_ratio
from tagmask.methods.baselines import weighted
from tagmask.models.kinds import load_classifier
from tagmask.models.tail import tail
from tagmask.training.classifier import ClassifierTask

START = "start"  # folder of the first candidate, below that of the classifier
MOST_RISE = 0.10  # of the border ratio
MOST_LOSS = 0.01  # of mean average precision that a lower loss may cost
MOST_PHOTOS = 40  # whose maps are looked at


class Judge:
    """Compares the states of a training.

    Args:
        task: the training, with the photos to judge on.
        folder: of the classifier.
    """

    def __init__(self, task: ClassifierTask, folder: Path) -> None:
        self.task = task
        self.folder = folder

    def keep_start(self) -> None:
        """Save the state before the first step, and forget the verdict on an earlier training."""
        (self.folder / layout.EARNED).unlink(missing_ok=True)
        self.task.classifier.save(self.folder / START)

    def decide(self) -> tuple[str, ...]:
        """Put the best state into the folder and into the task, and say why it was chosen.

        Returns:
            One sentence; also written to earned.json with the numbers.
        """
        if not len(self.task.val):
            return ("no photos were held out, so the training could not be judged; it is kept.",)
        candidates = {
            "no training": self.folder / START,
            "the best state of the training": self.folder / layout.BEST,
            "the end of the training": self.folder,
        }
        note = self.folder / layout.EARNED
        if note.is_file():  # a stage that was stopped afterwards; the end is no longer there
            measured = read_object(note, chosen=str, candidates=dict)["candidates"]
        else:
            measured = {}
            for name, place in candidates.items():
                if (place / layout.MODEL).is_file():
                    measured[name] = self._measure(place)
        chosen = choose(measured)
        write_json(note, {"chosen": chosen, "candidates": measured})
        self._take(candidates[chosen])
        self.task.classifier.save(self.folder)
        return (_sentence(chosen, measured),)

    def _take(self, place: Path) -> None:
        """Put the weights of a folder into the network that was trained."""
        # a folder that is finished also has an object finder, which is fitted anew
        self.task.classifier.vit.load_state_dict(load_classifier(place).vit.state_dict())

    def _measure(self, place: Path) -> dict[str, float]:
        """Return loss and precision on held-out tags, and where the maps are."""
        self._take(place)
        values = dict(self.task.scores_alone())
        values["border"] = self._border()
        return {name: round(value, 4) for name, value in values.items()}

    @torch.no_grad()
    def _border(self) -> float:
        """Return the mean border ratio of the maps of held-out photos."""
        task = self.task
        model = task.classifier.eval()
        first = task.settings.freeze
        ratios = []
        for i in range(min(MOST_PHOTOS, len(task.val))):
            classes = list(task.val.tags(i))
            if not classes:
                continue
            with suppress(ImageError):
                tokens = task.store.get(task.val, i)
                rest = tail(model, first, tokens.grid)
                options: dict[str, Any] = {
                    "method": weighted,
                    "affinity_steps": 2,
                    "affinity_blocks": range(len(rest.blocks)),
                }
                _, refined = localize_both(rest, tokens.values[:1], [classes], **options)
                ratios += [border_ratio(tag_map.cpu().numpy()) for tag_map in refined[0]]
        return sum(ratios) / max(1, len(ratios))


def choose(measured: dict[str, dict[str, float]]) -> str:
    """Return the name of the best candidate.

    Args:
        measured: of each candidate ``val_loss``, ``map`` and ``border``; "no training" first.
    """
    start = measured["no training"]
    chosen = "no training"
    for name, values in measured.items():
        if name == "no training":
            continue
        keeps_maps = values["border"] <= start["border"] + MOST_RISE
        tells_tags = values["map"] >= start["map"] - MOST_LOSS
        if keeps_maps and tells_tags and values["val_loss"] < measured[chosen]["val_loss"]:
            chosen = name
    return chosen


def _sentence(chosen: str, measured: dict[str, dict[str, float]]) -> str:
    """Say what was chosen and why."""
    start = measured["no training"]
    if chosen == "no training":
        ends = [name for name in measured if name != chosen]
        other = measured[ends[-1]] if ends else start
        verdict = "no training: it did not help on photos held out"
    else:
        other = measured[chosen]
        verdict = f"{chosen} is kept: it helps on photos held out"
    return (
        f"{verdict} (loss {start['val_loss']:.3f} → {other['val_loss']:.3f}, "
        f"mAP {start['map']:.3f} → {other['map']:.3f}, "
        f"maps at the border {start['border']:.2f} → {other['border']:.2f})."
    )
