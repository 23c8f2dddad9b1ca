"""What is wrong with the tags: which cannot be learned, are probably missing, or probably wrong.

Every photo is scored by models that have not seen it (``linear.cross_validate``). A tag whose
scores do not rank its photos before the others cannot be learned from these photos; a photo
without a tag that scores like those with it probably lacks it, and the other way round.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tagmask.scoring.average_precision import average_precision

MISSING = 0.9  # probability from which an absent tag is suspicious
WRONG = 0.1  # probability up to which a given tag is suspicious
LISTED = 20  # suspicious photos of a tag, the worst


@dataclass(frozen=True)
class TagFinding:
    """What the other photos say about one tag."""

    tag: str
    photos: int  # that have it
    average_precision: float  # of the held-out scores, 0 to 1
    by_chance: float  # what scores without any knowledge would have
    missing: tuple[tuple[str, float], ...]  # photos without the tag that look like it, worst first
    wrong: tuple[tuple[str, float], ...]  # photos with the tag that do not

    @property
    def learned(self) -> float:
        """Return how far the tag was learned: 0 = no better than chance, 1 = without a mistake."""
        if not self.by_chance < 1:
            return 0.0
        return max(0.0, (self.average_precision - self.by_chance) / (1 - self.by_chance))


def check_tags(
    logits: Tensor, targets: Tensor, tags: Sequence[str], photos: Sequence[str]
) -> list[TagFinding]:
    """Compare held-out scores with the tags.

    Args:
        logits: held-out scores (N, K), of ``linear.cross_validate``.
        targets: the tags (N, K) of 0 and 1.
        tags: names of the K tags.
        photos: names of the N photos.

    Returns:
        One finding per tag, in order.
    """
    probabilities = torch.sigmoid(logits).cpu().numpy()
    truth = targets.cpu().numpy()
    precision = average_precision(probabilities, truth)
    findings = []
    for k, tag in enumerate(tags):
        has_it = truth[:, k] > 0
        score = probabilities[:, k]
        missing = _worst(photos, score, ~has_it & (score >= MISSING), highest_first=True)
        wrong = _worst(photos, score, has_it & (score <= WRONG), highest_first=False)
        by_chance = float(has_it.mean()) if len(has_it) else 0.0
        found = 0.0 if np.isnan(precision[k]) else float(precision[k])
        findings.append(
            TagFinding(tag, int(has_it.sum()), found, by_chance, tuple(missing), tuple(wrong))
        )
    return findings


def _worst(
    photos: Sequence[str],
    score: "np.ndarray[tuple[int], np.dtype[np.float32]]",
    suspicious: "np.ndarray[tuple[int], np.dtype[np.bool_]]",
    highest_first: bool,
) -> list[tuple[str, float]]:
    """Return the suspicious photos with their scores, the most suspicious first."""
    chosen = np.flatnonzero(suspicious).tolist()
    chosen.sort(key=lambda i: -score[i] if highest_first else score[i])
    return [(photos[i], round(float(score[i]), 3)) for i in chosen[:LISTED]]
