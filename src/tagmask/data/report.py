"""What readers report to the user: all mistakes at once, and notes on what was left out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tagmask.errors import TagmaskError, first_of

SHOWN = 10  # mistakes of one kind that are printed in full
NAMED = 5  # damaged files whose fault a note names


@dataclass
class Mistakes:
    """Collects what is wrong with one file, to report all of it at once."""

    source: Path
    _kinds: dict[str, list[str]] = field(default_factory=dict)

    def add(self, kind: str, place: str, text: str) -> None:
        """Note a mistake.

        Args:
            kind: mistakes of one kind are listed together.
            place: where in the file it is, such as "line 3".
            text: what is wrong, and what to do.
        """
        self._kinds.setdefault(kind, []).append(f"{place}: {text}")

    def __len__(self) -> int:
        return sum(map(len, self._kinds.values()))

    def raise_if_any(self) -> None:
        """Raise a TagmaskError that lists the mistakes, if there are any."""
        total = len(self)
        if not total:
            return
        plural = "s" if total > 1 else ""
        lines = [f"{self.source} has {total} mistake{plural}; correct and try again:"]
        for texts in self._kinds.values():
            lines += [f"  {text}" for text in texts[:SHOWN]]
            if len(texts) > SHOWN:
                lines.append(f"  and {len(texts) - SHOWN} more of this kind")
        raise TagmaskError("\n".join(lines))


def missing_note(missing: Sequence[str]) -> list[str]:
    """Return a sentence about images that are listed but missing, if any."""
    if not missing:
        return []
    counted = _counted(len(missing))
    return [f"{counted} listed but not found and left out: {first_of(missing)}."]


def odd_note(odd: Sequence[str]) -> list[str]:
    """Return a sentence about pipes, sockets, devices and broken links among the images, if any."""
    if not odd:
        return []
    what = f"{len(odd):,} entries are no ordinary files (pipes, devices or broken links)"
    return [f"{what} and were left out: {first_of(sorted(odd))}."]


def left_out_notes(missing: Sequence[str], odd: Sequence[str], untagged: int) -> list[str]:
    """Return sentences about images that a reader left out.

    Args:
        missing: files that are listed, but not found.
        odd: files that are no ordinary files; they are not reported as missing.
        untagged: how many images have no tags.
    """
    absent = [file for file in missing if file not in odd]
    notes = [*missing_note(absent), *odd_note(odd)]
    if untagged:
        notes.append(f"{_counted(untagged)} without any label and left out.")
    return notes


def broken_note(sentences: Sequence[str]) -> list[str]:
    """Return a sentence about images whose label files cannot be read, if any."""
    if not sentences:
        return []
    shown = list(sentences[:NAMED])
    if len(sentences) > NAMED:
        shown.append("…")
    why = "left out because of a label file that cannot be read"
    counted = _counted(len(sentences))
    return [f"{counted} {why}: {' '.join(shown)}"]


def _counted(images: int) -> str:
    """Return the beginning of a sentence about a number of images."""
    verb = " was" if images == 1 else "s were"
    return f"{images:,} image{verb}"
