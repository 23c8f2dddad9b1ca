"""The numbers of the pages are those of the files under docs/results."""

import dataclasses
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def numbers() -> Any:
    spec = importlib.util.spec_from_file_location(
        "check_numbers", ROOT / "scripts/check_numbers.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["check_numbers"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_pages_agree_with_their_files(numbers: Any) -> None:
    found = numbers.check()
    assert found.mistakes == []
    assert found.compared >= 900


def test_a_wrong_number_is_found(numbers: Any) -> None:
    results = numbers.read_results(ROOT / "docs/results")
    page = ROOT / "docs/research/tables.md"
    table = next(one for one in numbers.tables(page) if one.titles[0] == "consistency")
    assert numbers.compare_table(table, results).mistakes == []
    name, first, *others = table.rows[1]
    wrong = (name, f"{float(first) + 0.1:.1f}", *others)
    changed = dataclasses.replace(table, rows=(table.rows[0], wrong, *table.rows[2:]))
    (mistake,) = numbers.compare_table(changed, results).mistakes
    assert name in mistake


@pytest.mark.parametrize(
    ("written", "value", "is_right"),
    [("5.8", 5.84, True), ("+5.8", 5.86, False), ("1,580", 1580.2, True), ("-0.0", -0.04, True)],
)
def test_rounding(numbers: Any, written: str, value: float, is_right: bool) -> None:
    assert numbers.agrees(written, value) is is_right
