"""The numbers that the paper prints, from numbers.toml: other data and other weights than a run of ours.

What the paper does not state is not there, and its cell stays empty.
"""

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

ABOUT = "paper: other data (PASCAL VOC 2012), other weights, other budget; not to be compared number by number."
MACHINE = "batch 1 on an RTX 2080 Ti"
NUMBERS: Mapping[str, Any] = tomllib.loads(
    files(__package__).joinpath("numbers.toml").read_text(encoding="utf-8")
)

Pair = tuple[float | None, float | None]  # mIoU of seeds without, with affinity


def pairs(table: str) -> dict[str, Pair]:
    """The rows of a seed table; a single number stands for maps with affinity, or for the first of two."""
    rows = NUMBERS[table].items()
    return {
        name: (None, row) if isinstance(row, float) else (row[0], *row[1:], None)[:2]
        for name, row in rows
    }


def footnotes(table: str) -> list[str]:
    """Where the paper contradicts itself in a table."""
    return [f"paper: {note}" for note in NUMBERS["footnotes"].get(table, [])]
