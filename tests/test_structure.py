"""Imports go one way, and nothing is unpickled."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tagmask

SOURCE = Path(tagmask.__file__).parent
MAY_IMPORT: dict[
    str, set[str]
] = {  # room: what it may know besides itself, errors, files and labels
    "acr": set(),
    "masks": set(),
    "scoring": set(),
    "methods": {"acr", "models"},
    "models": {"acr", "pipeline.layout"},
    "features": {"data", "models", "pipeline.layout"},
    "inference": {"scoring"},
    "config": {"acr", "pipeline.layout"},
    "data": {"config", "masks", "models", "scenes", "pipeline.layout"},
    "scenes": {"data"},
    "show": {"config", "data", "masks", "pipeline.layout", "scoring"},
    "export": {"data", "masks", "models", "show", "pipeline.layout"},
    "training": {
        "features",
        "inference",
        "methods",
        "acr",
        "config",
        "data",
        "masks",
        "models",
        "pipeline.layout",
        "pipeline.record",
        "scoring",
    },
    "report": {"config", "data", "pipeline.layout", "pipeline.record", "scoring", "show", "stages"},
    "stages": {
        "features",
        "inference",
        "methods",
        *(
            "acr",
            "config",
            "data",
            "export",
            "masks",
            "methods",
            "models",
            "report",
            "scoring",
            "show",
            "training",
        ),
        *("pipeline.layout", "pipeline.record"),
    },
    "live": {"config", "data", "export", "models", "stages", "pipeline.layout"},
    "pipeline": {"config", "data", "stages", "training"},
    "paper": {
        *(
            "acr",
            "config",
            "data",
            "masks",
            "methods",
            "models",
            "pipeline",
            "report",
            "scoring",
            "show",
            "stages",
        ),
        "training",
    },
    "explore": {
        "features",
        *(
            "acr",
            "config",
            "data",
            "masks",
            "methods",
            "models",
            "pipeline",
            "scoring",
            "stages",
            "training",
        ),
    },
    "cli": {"config", "explore", "live", "paper", "pipeline", "stages", "demo"},
}
TOP = {"__init__", "__main__", "demo", "errors", "files", "labels"}  # modules beside the rooms


def modules() -> dict[str, Path]:
    """Name to file."""
    names = {}
    for file in sorted(SOURCE.rglob("*.py")):
        parts = file.relative_to(SOURCE).with_suffix("").parts
        names[".".join(("tagmask", *(parts[:-1] if parts[-1] == "__init__" else parts)))] = file
    return names


def imported(file: Path) -> Iterator[str]:
    """Everything that a module imports, inside functions too."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_every_room_is_checked() -> None:
    rooms = {
        folder.name for folder in SOURCE.iterdir() if folder.is_dir() and any(folder.glob("*.py"))
    }
    assert rooms == MAY_IMPORT.keys()
    assert {file.stem for file in SOURCE.glob("*.py")} == TOP


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_rooms_import_one_way(room: str) -> None:
    allowed = {f"tagmask.{name}" for name in (room, "errors", "files", "labels", *MAY_IMPORT[room])}
    known = modules()
    for file in sorted((SOURCE / room).rglob("*.py")):
        for name in (name for name in imported(file) if name in known and name != "tagmask"):
            inside = any(name == other or name.startswith(other + ".") for other in allowed)
            is_parent = any(
                other.startswith(name + ".") for other in allowed
            )  # `from tagmask.pipeline import layout`
            assert inside or is_parent, f"{file.relative_to(SOURCE)} imports {name}"


def test_no_module_is_imported_in_a_circle() -> None:
    known = modules()
    edges = {
        name: {other for other in imported(file) if other in known} for name, file in known.items()
    }
    edges = {
        name: {other for other in others if not name.startswith(other + ".")}
        for name, others in edges.items()
    }
    del edges["tagmask"]  # its public names are looked up when they are used
    finished: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name in finished or name not in edges:
            return
        for other in sorted(edges[name] - {name}):
            visit(other, (*path, name))
        finished.add(name)

    for name in edges:
        visit(name, ())


@pytest.mark.parametrize("room", ["acr", "masks", "scoring"])
def test_the_mathematics_knows_no_files_and_no_torch_where_numpy_will_do(room: str) -> None:
    names = {
        name.split(".")[0] for file in (SOURCE / room).rglob("*.py") for name in imported(file)
    }
    assert not names & {"json", "tomllib", "safetensors", "PIL", "tqdm"}
    assert room != "scoring" or "torch" not in names


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
