"""The audit of the paper as data: places exist, settings are the presets', reasons are on the page."""

import ast
import csv
import tomllib
from pathlib import Path

import pytest

from tests.reproduction.small import script
from tests.reproduction.test_settings_page import PAGE, parsed, resolved, tables

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs/reference/paper-audit.csv"
with FILE.open(encoding="utf-8", newline="") as _file:
    ROWS = list(csv.DictReader(_file))


def names_in(tree: ast.Module) -> set[str]:
    """Every function, class, method and assigned name of a module, methods as Class.method."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    names.add(f"{node.name}.{inner.name}")
    return names


def test_there_are_at_least_a_hundred_statements() -> None:
    assert len(ROWS) >= 100
    assert len({(row["section"], row["paper"], row["setting"]) for row in ROWS}) == len(ROWS)
    assert {row["verdict"] for row in ROWS} <= {"right", "explained"}


@pytest.mark.parametrize("code", sorted({row["code"] for row in ROWS}))
def test_every_place_in_the_code_exists(code: str) -> None:
    name, _, symbol = code.partition(":")
    text = (ROOT / "src/tagmask" / name).read_text(encoding="utf-8")
    if name.endswith(".toml"):
        tomllib.loads(text)
        assert symbol in text
    else:
        assert symbol in names_in(ast.parse(text))


def test_settings_are_those_of_the_presets_and_of_the_page() -> None:
    columns = tables()
    for row in ROWS:
        if not row["setting"]:
            continue
        value = parsed(row["value"])
        assert resolved(row["preset"])[row["setting"]] == value, row
        cell = columns.get(row["preset"], {}).get(row["setting"])
        if cell is not None:
            assert cell.strip('"') == row["value"].strip('"'), row


def test_what_is_explained_is_explained_on_the_settings_page() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    for row in ROWS:
        if row["verdict"] == "explained":
            assert row["why"], row
            assert row["why"] in text, row
        else:
            assert not row["why"], row


def test_the_page_is_made_from_the_data() -> None:
    assert (ROOT / "docs/reference/paper-audit.md").read_text(encoding="utf-8") == script(
        "paper_audit"
    ).page()
