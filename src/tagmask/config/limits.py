"""The numbers that settings may have."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

HUGE = 1e9


@dataclass(frozen=True, repr=False)
class Limit:
    """Range of a number: ``x: Annotated[int, Limit(least=1)]``. Infinity and nan are never allowed.

    Unless ``most`` says more, numbers end at ``HUGE``: products of any two then fit single
    precision.
    """

    least: float = -math.inf
    above: float = -math.inf
    most: float = HUGE
    below: float = math.inf
    multiple: int | None = None
    rising: bool = False  # of several numbers, none is smaller than the one before
    example: str = ""

    def admits(self, *values: float) -> bool:
        """Return True if all values are within the range."""
        for value in values:
            if not self.least <= value <= self.most:
                return False
            if not self.above < value < self.below:
                return False
            if self.multiple is not None and value % self.multiple != 0:
                return False
        return not self.rising or sorted(values) == list(values)

    def __repr__(self) -> str:
        """Return the range in words: tyro shows it to users."""
        return str(self)

    def __str__(self) -> str:
        """Return the range in words, for an error message."""
        bounds = {
            "at least": self.least,
            "above": self.above,
            "at most": self.most,
            "below": self.below,
        }
        words = []
        if self.multiple is not None:
            words.append(f"a multiple of {self.multiple}")
        for word, bound in bounds.items():
            if abs(bound) < math.inf and bound != HUGE:
                words.append(f"{word} {bound}")
        text = " and ".join(words or ["finite"])
        if self.rising:
            text += ", the smaller one first"
        if self.example:
            text += f", e.g. {self.example}"
        return text


Count = Annotated[int, Limit(least=1)]
Side = Annotated[int, Limit(least=1, most=16_384)]  # of an image, in pixels
Images = Annotated[int, Limit(least=1, most=65_536)]  # in a batch
Processes = Annotated[int, Limit(least=1, most=256)]
Whole = Annotated[int, Limit(least=0)]
Positive = Annotated[float, Limit(above=0)]
NonNegative = Annotated[float, Limit(least=0)]
Share = Annotated[float, Limit(least=0, below=1)]
Scales = Annotated[tuple[float, ...], Limit(above=0, most=4)]
Blocks = Annotated[tuple[int, int], Limit(least=0, rising=True)]  # the first and the last
Seed = Annotated[int, Limit(least=0, most=2**63 - 1)]
Rows = Annotated[int, Limit(least=0, most=24)]  # of the report's gallery
Device = Literal["cpu", "gpu"]
