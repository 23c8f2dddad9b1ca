"""The numbers that the paper prints, from numbers.toml: other data and weights than a run of ours.

What the paper does not state is not there, and its cell stays empty.
"""

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

_DATA = {"voc": "PASCAL VOC 2012", "coco": "MS COCO 2014"}
MACHINE = "batch 1 on an RTX 2080 Ti"
NUMBERS: Mapping[str, Any] = tomllib.loads(
    files(__package__).joinpath("numbers.toml").read_text(encoding="utf-8")
)


def about(data: str = "voc") -> str:
    """Return the note below every table: what the paper's numbers were measured on.

    Args:
        data: "coco" for numbers of COCO, anything else for numbers of VOC.
    """
    name = _DATA.get(data, _DATA["voc"])
    return (
        f"paper: measured on {name} with its own weights and budget; "
        "on other data or budgets not to be compared number by number."
    )


def about_all(data: str) -> str:
    """Return the note of the page of all numbers: what the paper's were measured on.

    Args:
        data: Kind of the data; only of COCO are the paper's numbers of two data sets.
    """
    if data != "coco":
        return about(data)
    return (
        f"paper: Tables 1 and 11 were measured on {_DATA['coco']}, all others on {_DATA['voc']}, "
        "with its own weights and budget; on other data or budgets not to be compared number by "
        "number."
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
