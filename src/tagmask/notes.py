"""Two notes of what something was made from, compared: what changed, in words."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tagmask.errors import TagmaskError

Parts = dict[str, Any]
INPUT = "input "  # names of inputs begin with it
CONTENTS = f"{INPUT}contents of "  # earlier notes have only sizes
# settings that are gone, and the value of each that does what is done without it
GONE: Mapping[str, Any] = {"compete": False, "propagation": 0.0}


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a clause for everything that has changed: inputs by name, settings with both values.

    Args:
        before: What a thing was made from.
        now: What it would be made from.
    """
    clauses = []
    for name in {**now, **before}:
        if name.startswith(CONTENTS) and name not in before:
            continue
        if name in GONE and before.get(name) == GONE[name]:
            continue
        old, new = (parts.get(name) for parts in (before, now))
        if old != new and name.startswith(INPUT):
            clauses.append(f"{name.removeprefix(INPUT)} changed")
        elif old != new:
            old, new = ("the default" if value is None else value for value in (old, new))
            clauses.append(f"{name} was {old} and is now {new}")
    return tuple(clauses)


def refuse_changes(
    before: Mapping[str, Any], now: Mapping[str, Any], folder: Path, what: str
) -> None:
    """Refuse to continue in a folder whose content was made from something else.

    Args:
        before: What it was made from.
        now: What it would be made from.
        folder: The folder.
        what: Its content, a plural noun.

    Raises:
        TagmaskError: If the two differ.
    """
    changed = differences(before, now)
    if changed:
        raise TagmaskError(
            f"{folder} holds {what} made with other settings or inputs ({shorten(changed, 5)}); "
            "choose another --out, or add --restart to start over."
        )


def shorten(reasons: Sequence[str], most: int = 3) -> str:
    """Return the first few reasons, and how many more there are.

    Args:
        reasons: All reasons.
        most: How many are named.
    """
    more = [f"and {len(reasons) - most} more"] if len(reasons) > most else []
    return "; ".join([*reasons[:most], *more])
