"""The numbers that the paper prints, from numbers.toml: other data and weights than a run of ours.

What the paper does not state is not there, and its cell stays empty.
"""

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

ABOUT = (
    "paper: other data (PASCAL VOC 2012), other weights, other budget; "
    "not to be compared number by number."
)
MACHINE = "batch 1 on an RTX 2080 Ti"
NUMBERS: Mapping[str, Any] = tomllib.loads(
    files(__package__).joinpath("numbers.toml").read_text(encoding="utf-8")
)

# mIoU of seeds without affinity, with affinity
Pair = tuple[float | None, float | None]


def pairs(table: str) -> dict[str, Pair]:
    """Return the rows of a seed table as numbers without and with affinity.

    A number by itself is of maps with affinity; a list of one number is of maps without.
    """
    rows: dict[str, Pair] = {}
    for name, row in NUMBERS[table].items():
        if isinstance(row, float):
            rows[name] = (None, row)
        elif len(row) == 1:
            rows[name] = (row[0], None)
        else:
            rows[name] = (row[0], row[1])
    return rows


def footnotes(table: str) -> list[str]:
    """Return notes on where the paper contradicts itself in a table."""
    return [f"paper: {note}" for note in NUMBERS["footnotes"].get(table, [])]
