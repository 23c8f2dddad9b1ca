"""Can these masks be believed? Signs that need no true masks, and a verdict per tag.

The signs of a tag, each between 0 and 1 where 1 is good:

    inside      its maps avoid the border of the photos (mean along the border over the mean)
    agreement   the masks of its photos agree with what stands out in them (``objectness``)
    stability   pseudo labels and the masks learned from them agree
    presence    it is found on the photos that have it, and does not fill them
    class       its cells are told from those of other tags: it is alone on its photos, or
                held-out photos with the tag are told from those without

The trust in a tag is their product, each to a power of its own: one bad sign is enough for doubt.

That photos with a tag can be told from others does not say which part of them is the tag: photos
that show it alone do. Without any, the class sign is one half at most, too little for "good".
docs/research/few-photos.md says how powers and limits were calibrated, and how well the verdict
predicts the true score.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tagmask.errors import TagmaskError
from tagmask.files import is_a, read_object

Level = Literal["good", "doubtful", "probably the surroundings"]
BAND = 0.035  # width of the border as a share of each side: one cell of 28
_BEST_BORDER = 0.35  # border ratio of very good maps
_WORST_BORDER = 0.95  # border ratio of maps that show the surroundings
FOUND = 0.002  # share of a photo below which a mask counts as empty
FILLED = 0.85  # share of a photo above which a mask counts as full
POWERS = {
    "inside": 0.15,
    "agreement": 0.5,
    "stability": 0.3,
    "presence": 1.0,
    "class": 0.8,
}
_LEAST = 0.001  # a sign of 0 leaves this much, so that the other signs still count
ENOUGH = 6  # photos from which on a tag that cannot be learned is suspicious by itself
NEVER_ALONE = 0.5  # the best class sign of a tag that is on no photo alone; it grows with those
# the least class sign of a tag on every photo: its masks are too large, but not the surroundings
EVERYWHERE = 0.2
RANDOM = 0.12  # of the way from chance to perfection: tags drawn at random come to about this
GOOD = 0.58  # trust from which a tag is called good
# signs of maps that are inverted, whatever the trust; 1 is good
INVERTED_INSIDE = 0.1
INVERTED_AGREEMENT = 0.15
SURROUNDINGS = 0.1  # trust below which it is probably the surroundings


@dataclass(frozen=True)
class Signs:
    """The signs of one tag; None where they could not be measured."""

    photos: int
    border_ratio: float | None = None
    agreement: float | None = None
    stability: float | None = None
    empty: float | None = None  # share of its photos whose mask lacks the tag
    full: float | None = None  # share of its photos that the tag fills
    learned: float | None = None  # how far its scores are from chance (0) to perfection (1)
    alone: float | None = None  # share of its photos on which no other tag competes with it
    is_everywhere: bool = False  # every photo with tags has it, so nothing shows what lacks it

    def values(self) -> dict[str, float]:
        """Return the signs that could be measured, 1 being good."""
        values: dict[str, float] = {}
        if self.border_ratio is not None:
            span = _WORST_BORDER - _BEST_BORDER
            values["inside"] = _clip((_WORST_BORDER - self.border_ratio) / span)
        if self.agreement is not None:
            values["agreement"] = _clip(self.agreement)
        if self.stability is not None:
            values["stability"] = _clip(self.stability)
        if self.empty is not None and self.full is not None:
            values["presence"] = _clip(1 - self.empty - self.full)
        told_apart = self._told_apart()
        # which tags come together says nothing of masks that nobody has looked at
        if told_apart is not None and (values or self.learned is not None):
            values["class"] = told_apart
        return values

    @property
    def is_never_alone(self) -> bool:
        """Return True if another tag competes with it on every photo."""
        return self.alone == 0

    def _told_apart(self) -> float | None:
        """Return how well its cells are told from those of other tags; None if nothing tells."""
        alone = self.alone or 0.0
        told_apart = None
        if self.learned is not None:
            told_apart = self._learned_or_alone()
            if self.photos >= ENOUGH and self.learned < RANDOM:
                told_apart /= 2  # the tags look as if they were drawn at random
        elif self.is_everywhere and self.alone is not None and self.alone < 1:
            # no photo shows the other tags without it
            told_apart = max(EVERYWHERE, alone)
        elif self.is_never_alone:
            told_apart = NEVER_ALONE
        if told_apart is None or self.alone is None:
            return told_apart
        return min(told_apart, _best_class(alone))

    def _learned_or_alone(self) -> float:
        """Return the share of its photos that either show it alone or are told from others."""
        alone = self.alone or 0.0
        return _clip(alone + (1 - alone) * _clip(self.learned or 0.0))

    @property
    def is_seldom_alone(self) -> bool:
        """Return True if it is learned well, but too seldom alone to know where it is."""
        if self.alone is None or self.learned is None:
            return self.is_never_alone
        return self._learned_or_alone() > _best_class(self.alone)


@dataclass(frozen=True)
class Verdict:
    """Whether the masks of a tag can be believed."""

    tag: str
    level: Level
    trust: float  # 0 to 1
    reason: str  # empty if good
    remedy: str  # empty if good
    signs: Signs

    def to_json(self) -> dict[str, Any]:
        """Return everything, for check.json and scores.json."""
        signs = {name: _rounded(value) for name, value in vars(self.signs).items()}
        return {
            "level": self.level,
            "trust": round(self.trust, 3),
            "reason": self.reason,
            "remedy": self.remedy,
            "signs": signs,
        }


def judge(tag: str, signs: Signs) -> Verdict:
    """Return the verdict on a tag.

    Args:
        tag: its name.
        signs: what was measured.
    """
    values = signs.values()
    trust = trust_of(values)
    is_inverted = _is_inverted(values)
    if trust >= GOOD and not is_inverted:
        return Verdict(tag, "good", trust, "", "", signs)
    reason, remedy = _explain(values, signs)
    level: Level = "doubtful"
    if trust < SURROUNDINGS or is_inverted:
        level = "probably the surroundings"
    return Verdict(tag, level, trust, reason, remedy, signs)


def trust_of(values: Mapping[str, float]) -> float:
    """Return the product of the signs that could be measured, each to its power; 0 without any.

    Powers are scaled so that their sum is the same whatever could be measured.

    Args:
        values: signs by name, 1 being good.
    """
    if not values:
        return 0.0
    scale = sum(POWERS.values()) / sum(POWERS[name] for name in values)
    trust = 1.0
    for name, value in values.items():
        trust *= max(_LEAST, value) ** (POWERS[name] * scale)
    return trust


def read_verdicts(file: Path) -> list[dict[str, Any]]:
    """Return the verdicts of a check.json, each with its tag; none if there is no such file.

    Raises:
        TagmaskError: if the file is damaged.
    """
    if not file.is_file():
        return []
    verdicts = []
    for tag, row in read_object(file, tags=dict)["tags"].items():
        forms = {"level": str, "trust": (int, float), "reason": str, "remedy": str}
        is_whole = isinstance(row, dict) and all(
            is_a(row.get(name), form) for name, form in forms.items()
        )
        if not is_whole:
            raise TagmaskError(f"{file} is damaged; delete it and run `tagmask check` again.")
        verdicts.append({**row, "tag": tag})
    return verdicts


def border_ratio(values: npt.NDArray[Any]) -> float:
    """Return the mean of a map (H, W) along its border, divided by its mean over all.

    1 for a constant map and for one that is 0 everywhere; below 1 where the middle is higher.
    """
    whole = float(values.mean())
    if not whole > 0:
        return 1.0
    inner = np.ones(values.shape, dtype=bool)
    rows = max(1, round(BAND * values.shape[0]))
    columns = max(1, round(BAND * values.shape[1]))
    inner[:rows] = False
    inner[-rows:] = False
    inner[:, :columns] = False
    inner[:, -columns:] = False
    border = values[~inner]
    return float(border.mean()) / whole


def overlap(first: npt.NDArray[np.bool_], second: npt.NDArray[np.bool_]) -> float:
    """Return the intersection over union of two masks of the same shape; 0 if both are empty.

    Args:
        first: booleans.
        second: booleans.
    """
    union = int((first | second).sum())
    return int((first & second).sum()) / union if union else 0.0


def verdict_lines(verdicts: list[dict[str, Any]]) -> list[str]:
    """Return one line on all good tags, and one for every other, the worst first.

    Args:
        verdicts: as check.json holds them, each with its tag.
    """
    good = [row["tag"] for row in verdicts if row["level"] == "good"]
    others = [row for row in verdicts if row["level"] != "good"]
    lines = []
    for row in sorted(others, key=lambda row: row["trust"]):
        lines.append(
            f'"{row["tag"]}": {row["level"]} (trust {row["trust"]:.2f}): {row["reason"]}; '
            f"{row['remedy']}."
        )
    if good:
        shown = ", ".join(good[:8])
        if len(good) > 8:
            shown += f" and {len(good) - 8} more"
        lines.append(f"masks look good, as far as can be told without true ones: {shown}")
    return lines


def _is_inverted(values: Mapping[str, float]) -> bool:
    """Return True if the maps are no lower at the border, or the masks avoid the objects."""
    is_at_the_border = values.get("inside", 1.0) < INVERTED_INSIDE
    is_off_the_objects = values.get("agreement", 1.0) < INVERTED_AGREEMENT
    return is_at_the_border or is_off_the_objects


def _explain(values: Mapping[str, float], signs: Signs) -> tuple[str, str]:
    """Return the reason of a bad verdict, by the sign that costs most, and what to do."""
    worst = min(values, key=lambda name: max(_LEAST, values[name]) ** POWERS[name], default="")
    if worst == "inside":
        return (
            f"its maps are {signs.border_ratio:.2f} as high along the border of the photos as "
            "over the whole photo, so they show what surrounds it",
            "add photos with it in other surroundings; if it is ground or sky, name it in "
            "--train.stuff",
        )
    if worst == "agreement":
        return (
            f"its masks and what stands out in its photos have only "
            f"{100 * (signs.agreement or 0):.0f} % of their area in common",
            "look at the masks; if the tag is no object, name it in --train.stuff, otherwise "
            "correct some of them",
        )
    if worst == "stability":
        return (
            "the masks differ from the labels they were learned from",
            "look at the labels (4_pseudo); correct some photos, or add photos of the tag",
        )
    if worst == "presence":
        return _explain_presence(signs)
    if worst == "class" and signs.is_everywhere and not signs.is_never_alone:
        return (
            f"every photo has it and {100 * (1 - (signs.alone or 0)):.0f} % have another tag "
            "beside it, so its masks may hold the other thing too",
            "add photos that do not show it, best with the other tags alone",
        )
    if worst == "class" and signs.is_seldom_alone:
        share = f"only {100 * (signs.alone or 0):.0f} % of its photos show"
        if signs.is_never_alone:
            share = "no photo shows"
        return (
            f"{share} it without another tag, so which part of a photo is which had to be guessed",
            "add photos that show it alone, and look at its masks",
        )
    if worst == "class":
        return (
            "photos with it cannot be told from photos without it",
            "add photos of it, or check its tags",
        )
    return "nothing could be measured", "make labels and masks of these photos first"


def _explain_presence(signs: Signs) -> tuple[str, str]:
    """Return the reason of a tag without masks or with masks of whole photos, and what to do."""
    parts = []
    if signs.empty:
        parts.append(f"{100 * signs.empty:.0f} % of its photos have no mask of it")
    if signs.full:
        parts.append(f"{100 * signs.full:.0f} % of its photos are filled by it")
    remedy = "check whether these photos show it"
    if signs.full:
        remedy += "; if it is ground or sky, name it in --train.stuff"
    return " and ".join(parts), remedy


def _best_class(alone: float) -> float:
    """Return the best class sign of a tag of whose photos a share shows it alone."""
    return NEVER_ALONE + (1 - NEVER_ALONE) * alone


def _clip(value: float) -> float:
    return min(1.0, max(0.0, value))


def _rounded(value: float | None) -> float | None:
    return value if value is None or isinstance(value, int) else round(value, 3)
