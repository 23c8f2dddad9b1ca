"""Imports go one way."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tagmask

SOURCE = Path(tagmask.__file__).parent
FORBIDDEN = {  # room: what it must not know
    "acr": {
        "tagmask.data",
        "tagmask.training",
        "tagmask.cli",
        "tagmask.config",
        "tagmask.files",
        "tagmask.models",
        "tagmask.show",
    },
    "scoring": {
        "tagmask.data",
        "tagmask.training",
        "tagmask.cli",
        "tagmask.config",
        "tagmask.files",
        "tagmask.models",
        "torch",
    },
    "masks": {"tagmask.data", "tagmask.training", "tagmask.cli", "tagmask.config", "tagmask.files"},
    "models": {"tagmask.training", "tagmask.data", "tagmask.cli", "tagmask.show", "tagmask.config"},
    "data": {"tagmask.training", "tagmask.cli", "tagmask.acr", "tagmask.show"},
    "paper": {"tagmask.cli"},
}


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("room", [room for room in FORBIDDEN if (SOURCE / room).is_dir()])
def test_rooms_import_one_way(room: str) -> None:
    files = sorted((SOURCE / room).rglob("*.py"))
    assert files
    for file in files:
        for name in imported(file):
            wrong = [other for other in FORBIDDEN[room] if name == other or name.startswith(other + ".")]
            assert not wrong, f"{file.relative_to(SOURCE)} imports {name}"


def test_nothing_is_unpickled() -> None:
    for file in SOURCE.rglob("*.py"):
        names = set(imported(file))
        assert not names & {"pickle", "marshal", "shelve", "dill"}, file
        text = file.read_text(encoding="utf-8")
        assert "allow_pickle=True" not in text
        assert "weights_only=False" not in text
        assert "np.load(" not in text or "allow_pickle=False" in text, file


def test_public_names_exist() -> None:
    for name in tagmask.__all__:
        assert getattr(tagmask, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tagmask.nothing  # noqa: B018
