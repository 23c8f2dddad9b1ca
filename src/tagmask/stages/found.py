"""What masks hold, in words: which tags were found, which were not, and how much they cover."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tagmask.labels import Mask, as_percent, cover_words

MOST_TAGS = 4  # that a line names
_WHY = "not on the photo, too small, hidden, or taken for another"


def shares_in(mask: Mask, classes: int) -> dict[int, float]:
    """Return the share of the pixels that each class of a mask has; those without any are left out.

    Args:
        mask: uint8 labels (H, W), c + 1 for class c.
        classes: how many classes there are.
    """
    counts = np.bincount(mask.ravel(), minlength=256)  # (256,)
    shares = {}
    for c in range(classes):
        if counts[c + 1]:
            shares[c] = float(counts[c + 1] / mask.size)
    return shares


def describe(shares: Mapping[int, float], classes: Sequence[str]) -> str:
    """Say which classes are in a mask, the largest first, and how much of the photo they cover.

    Args:
        shares: share of the photo by class.
        classes: names of the classes.
    """
    if not shares:
        return "the mask is all background."
    parts = []
    for c in sorted(shares, key=lambda c: -shares[c]):
        parts.append(f"{classes[c]} {as_percent(shares[c])}")
    return f"classes: {', '.join(parts)} of the photo"


def not_found(shares: Mapping[int, float], tags: Sequence[str], classes: Sequence[str]) -> str:
    """Say which given tags a mask lacks, and what that means; empty if it has them all.

    Args:
        shares: share of the photo by class.
        tags: what was given.
        classes: names of the classes.
    """
    found = {classes[c] for c in shares}
    missing = [tag for tag in dict.fromkeys(tags) if tag not in found]
    if not missing:
        return ""
    it = "it is" if len(missing) == 1 else "they are"
    tag = "this tag" if len(missing) == 1 else "these tags"
    return f"not found: {', '.join(missing)}; no pixel was given {tag}: {it} {_WHY}."


@dataclass
class FoundTags:
    """On how many photos each tag was found, and how much of them it covers.

    Args:
        classes: names of the classes.
        are_told: the masks were made with the tags of the photos given.
    """

    classes: Sequence[str]
    are_told: bool
    photos: int = 0
    empty: int = 0  # photos whose mask is all background
    given: dict[int, int] = field(default_factory=dict)  # photos with a tag
    found: dict[int, int] = field(default_factory=dict)  # photos whose mask has it
    shares: dict[int, float] = field(default_factory=dict)  # of those photos, summed

    def add(self, shares: Mapping[int, float], tags: Iterable[int]) -> None:
        """Count a photo.

        Args:
            shares: share of the photo by class.
            tags: what the photo is tagged with.
        """
        self.photos += 1
        self.empty += not shares
        own = set(tags)
        for c in own:
            self.given[c] = self.given.get(c, 0) + 1
        for c, share in shares.items():
            # a person may have corrected a mask with more than the tags
            if self.are_told and c not in own:
                continue
            self.found[c] = self.found.get(c, 0) + 1
            self.shares[c] = self.shares.get(c, 0.0) + share

    def to_json(self) -> list[Any]:
        """Return the counts as JSON can hold them, for ``merge`` in another process."""
        counts = []
        for c in sorted({*self.given, *self.found}):
            counts.append([c, self.given.get(c, 0), self.found.get(c, 0), self.shares.get(c, 0.0)])
        return [self.photos, self.empty, counts]

    def merge(self, part: list[Any]) -> None:
        """Add the counts of another process.

        Args:
            part: what its ``to_json`` returned.
        """
        photos, empty, counts = part
        self.photos += photos
        self.empty += empty
        for c, given, found, shares in counts:
            self.given[c] = self.given.get(c, 0) + given
            self.found[c] = self.found.get(c, 0) + found
            self.shares[c] = self.shares.get(c, 0.0) + shares

    def line(self) -> str:
        """Return one line on all photos; empty if there are none."""
        if not self.photos:
            return ""
        return self._line_with_tags() if self.are_told else self._line_without_tags()

    def _line_with_tags(self) -> str:
        parts = []
        order = sorted(filter(self.given.get, self.given), key=lambda c: -self.given[c])
        for c in order[:MOST_TAGS]:
            found = self.found.get(c, 0)
            given = self.given[c]
            parts.append(f"{self.classes[c]} on {found} of its {given} photos{self._cover(c)}")
        if not parts:
            return ""
        line = f"tags found: {', '.join(parts)}{_more(order)}"
        if any(self.found.get(c, 0) < count for c, count in self.given.items()):
            line += f"; a tag that was not found is {_WHY}"
        return line

    def _line_without_tags(self) -> str:
        order = sorted(filter(self.found.get, self.found), key=lambda c: -self.found[c])
        parts = []
        for c in order[:MOST_TAGS]:
            parts.append(f"{self.classes[c]} on {self.found[c]}{self._cover(c)}")
        if self.empty:
            parts.append(f"nothing on {self.empty}")
        return f"found on {self.photos} photos: {', '.join(parts)}{_more(order)}"

    def _cover(self, c: int) -> str:
        """Return how much of a photo a class covers, in brackets; empty if it is on none."""
        found = self.found.get(c, 0)
        if not found:
            return ""
        share = self.shares[c]
        return f" ({cover_words(share / found, share / self.photos)})"


def _more(order: Sequence[int]) -> str:
    return f" and {len(order) - MOST_TAGS} more" if len(order) > MOST_TAGS else ""
