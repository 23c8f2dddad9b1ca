"""Which images to check first, where there are no true masks: one rule for list, card and terminal.

In doubt is an image

    whose labels and tags name different classes,
    whose tags look wrong (1_classifier/tags.json),
    whose agreement or confidence is below one half,
    or that is of the tenth with the lowest agreement and confidence (at least 3, at most 20):
    a run whose images are all alike has a worst one too.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tagmask.report.images import ImageFacts

# agreement or confidence below it is a reason for doubt by itself
LOW = 0.5
# the images that are lowest in any case: a share of all, and how many at least and at most
LOWEST_SHARE = 0.1
LEAST_LOWEST = 3
MOST_LOWEST = 20
# images that the terminal names
MOST_NAMED = 3


@dataclass(frozen=True)
class Doubt:
    """An image to check, and why."""

    facts: ImageFacts
    reasons: tuple[str, ...]

    @property
    def why(self) -> str:
        """Return the reasons in one line."""
        return "; ".join(self.reasons)


def images_in_doubt(facts: Sequence[ImageFacts], odd_tags: Mapping[str, str]) -> list[Doubt]:
    """Return the images to check: those with a reason of their own first, the worst first.

    Args:
        facts: What is known about the images, without truth.
        odd_tags: Names of images whose tags look wrong, with what they look like.
    """
    ranked = sorted(facts, key=ImageFacts.rank)
    doubts = []
    for image in ranked:
        if reasons := _reasons(image, odd_tags.get(image.name, "")):
            doubts.append(Doubt(image, tuple(reasons)))
    named = {doubt.facts.name for doubt in doubts}
    known = [image for image in ranked if _lowest(image)]
    share = math.ceil(LOWEST_SHARE * len(known))
    count = min(max(share, LEAST_LOWEST), MOST_LOWEST)
    for image in known[:count]:
        if image.name not in named:
            doubts.append(Doubt(image, (_lowest(image),)))
    return doubts


def look_first(doubts: Sequence[Doubt]) -> str:
    """Name the images most in doubt, with the reason of each; empty if there are none.

    Args:
        doubts: The images to check, the worst first.
    """
    if not doubts:
        return ""
    named = [f"{doubt.facts.name} ({doubt.reasons[0]})" for doubt in doubts[:MOST_NAMED]]
    more = len(doubts) - MOST_NAMED
    rest = f" and {more} more in the report" if more > 0 else ""
    return f"look at these photos first: {', '.join(named)}{rest}"


def _reasons(image: ImageFacts, odd_tag: str) -> list[str]:
    """Return why an image is in doubt by itself; empty if it is not."""
    reasons = []
    for name, value in (("confidence", image.confidence), ("agreement", image.agreement)):
        if value is not None and value < LOW:
            reasons.append(f"{name} {100 * value:.1f} %")
    if image.missing:
        reasons.append(f"{', '.join(image.missing)} not found")
    if image.extra:
        reasons.append(f"{', '.join(image.extra)} found, not tagged")
    if odd_tag:
        reasons.append(odd_tag)
    return reasons


def _lowest(image: ImageFacts) -> str:
    """Return what an image is ranked by, in words; empty if nothing is known."""
    if image.agreement is not None:
        return f"agreement {100 * image.agreement:.1f} %, among the lowest"
    if image.confidence is not None:
        return f"confidence {100 * image.confidence:.1f} %, among the lowest"
    return ""
