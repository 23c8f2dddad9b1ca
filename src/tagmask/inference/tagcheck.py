"""What is wrong with the tags: which cannot be learned, are probably missing, or probably wrong.

Every photo is scored by models that have not seen it (``linear.cross_validate``). A tag whose
scores do not rank its photos before the others cannot be learned from these photos; a photo
without a tag that scores like those with it probably lacks it, and the other way round.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tagmask.errors import TagmaskError
from tagmask.files import is_a, read_object
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


@dataclass(frozen=True)
class Suspect:
    """A photo whose tags look wrong, with all that speaks against them."""

    photo: str
    missing: tuple[str, ...] = ()  # tags that it lacks and looks like
    wrong: tuple[str, ...] = ()  # tags that it has and does not look like
    strength: float = 0.0  # of the strongest suspicion, from 0 to 1

    def words(self) -> str:
        """Say what the photo looks like, e.g. "looks like horse, not sheep"."""
        if not self.missing:
            return f"does not look like {' or '.join(self.wrong)}"
        alike = f"looks like {' and '.join(self.missing)}"
        if not self.wrong:
            return f"{alike}, which is no tag of it"
        return f"{alike}, not {' or '.join(self.wrong)}"


def suspects_of(findings: Iterable[TagFinding]) -> list[Suspect]:
    """Return each suspicious photo once, the most suspicious first.

    A photo that was given one tag instead of another is in the findings of both.

    Args:
        findings: one per tag.
    """
    missing: dict[str, list[str]] = {}
    wrong: dict[str, list[str]] = {}
    strengths: dict[str, float] = {}
    for finding in findings:
        for photo, score in finding.missing:
            missing.setdefault(photo, []).append(finding.tag)
            strengths[photo] = max(strengths.get(photo, 0.0), score)
        for photo, score in finding.wrong:
            wrong.setdefault(photo, []).append(finding.tag)
            strengths[photo] = max(strengths.get(photo, 0.0), 1 - score)
    suspects = []
    for photo in sorted(strengths, key=lambda photo: (-strengths[photo], photo)):
        lacks = tuple(missing.get(photo, ()))
        has = tuple(wrong.get(photo, ()))
        suspects.append(Suspect(photo, lacks, has, strengths[photo]))
    return suspects


def read_findings(file: Path) -> list[TagFinding]:
    """Return the findings that a training has written; none if there is no such file.

    Args:
        file: the tags.json of a classifier.

    Raises:
        TagmaskError: the file is damaged.
    """
    if not file.is_file():
        return []
    findings = []
    for row in read_object(file, tags=list)["tags"]:
        forms = {
            "tag": str,
            "photos": int,
            "average_precision": (int, float),
            "by_chance": (int, float),
        }
        is_whole = isinstance(row, dict) and all(
            is_a(row.get(name), form) for name, form in forms.items()
        )
        missing = _scores_of(row, "missing") if is_whole else None
        wrong = _scores_of(row, "wrong") if is_whole else None
        if missing is None or wrong is None:
            raise TagmaskError(f"{file} is damaged; delete {file.parent} and run the stage again.")
        values = {name: row[name] for name in forms}
        findings.append(TagFinding(**values, missing=missing, wrong=wrong))
    return findings


def _scores_of(row: dict[str, Any], name: str) -> tuple[tuple[str, float], ...] | None:
    """Return the photos and scores of a finding as JSON holds them; None if they are damaged."""
    pairs = row.get(name)
    if not isinstance(pairs, list):
        return None
    scores = []
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == 2):
            return None
        photo, score = pair
        if not (is_a(photo, str) and is_a(score, (int, float))):
            return None
        scores.append((photo, float(score)))
    return tuple(scores)


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
