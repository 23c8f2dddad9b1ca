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
        """Note a mistake; those of one ``kind`` are listed together."""
        self._kinds.setdefault(kind, []).append(f"{place}: {text}")

    def raise_if_any(self) -> None:
        total = sum(map(len, self._kinds.values()))
        if not total:
            return
        lines = [
            f"{self.source} has {total} mistake{'s' if total > 1 else ''}; correct and try again:"
        ]
        for texts in self._kinds.values():
            lines += [f"  {text}" for text in texts[:SHOWN]]
            if len(texts) > SHOWN:
                lines.append(f"  and {len(texts) - SHOWN} more of this kind")
        raise TagmaskError("\n".join(lines))


def missing_note(missing: Sequence[str]) -> list[str]:
    """A sentence about images that are listed but missing, if any."""
    return (
        [f"{_counted(len(missing))} listed but not found and left out: {first_of(missing)}."]
        if missing
        else []
    )


def odd_note(odd: Sequence[str]) -> list[str]:
    """A sentence about pipes, sockets, devices and broken links among the images, if any."""
    what = f"{len(odd):,} entries are no ordinary files (pipes, devices or broken links)"
    return [f"{what} and were left out: {first_of(sorted(odd))}."] if odd else []


def left_out_notes(missing: Sequence[str], odd: Sequence[str], untagged: int) -> list[str]:
    """Sentences about images that a reader left out: listed but missing, no ordinary files, without tags."""
    note = f"{_counted(untagged)} without any label and left out."
    absent = [file for file in missing if file not in odd]
    return [*missing_note(absent), *odd_note(odd), *([note] if untagged else [])]


def broken_note(sentences: Sequence[str]) -> list[str]:
    """A sentence about images whose label files cannot be read, if any."""
    shown = " ".join([*sentences[:NAMED], *(["…"] if len(sentences) > NAMED else [])])
    why = "left out because of a label file that cannot be read"
    return [f"{_counted(len(sentences))} {why}: {shown}"] if sentences else []


def _counted(images: int) -> str:
    return f"{images:,} image{' was' if images == 1 else 's were'}"
