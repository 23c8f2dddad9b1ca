"""Imports go down only, and nothing is unpickled."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
from PIL import Image

import tagmask

SOURCE = Path(tagmask.__file__).parent
ORDER = [  # from the ground up: each knows only those listed before it
    "version",  # the version of the package
    "errors",  # sentences for users
    "layout",  # names of the files of a run
    "files",  # atomic writes, locks, guarded paths
    "progress",  # messages and progress of long work
    "labels",  # what the numbers in a mask mean
    "notes",  # two notes of what something was made from, compared
    "acr",  # the paper's mathematics on tensors
    "masks",  # from maps to masks: CRF, random walk, superpixels
    "scoring",  # masks against the truth
    "config",  # settings: one dataclass per stage, presets, TOML
    "models",  # networks and how they are stored
    "methods",  # map methods besides the paper's
    "data",  # catalog, readers, images, corrections, the built-in scenes
    "features",  # tokens of frozen blocks, computed once per photo
    "inference",  # maps, masks and the self-check of photos in memory
    "show",  # drawing
    "training",  # the loop, and what is trained with it
    "runs",  # record, plan, processes, the table of stages, a whole run
    "stages",  # train seeds pseudo segment predict check score
    "model",  # a trained run in Python
    "exchange",  # tags from, masks to and corrections from other tools
    "shards",  # photos by the million: shards in, shards of masks out
    "report",  # the page of a run, and its stage
    "studio",  # the page from photos to checked masks, which also looks inside a run
    "reproduction",  # every table and figure of the paper
    "demo",  # the tour of a few minutes
    "selftest",  # what works on this machine
    "cli",  # the command line
    "__init__",  # public names
    "__main__",  # `python -m tagmask`
]
PLACES = {room: place for place, room in enumerate(ORDER)}


def modules() -> dict[str, Path]:
    """Name to file."""
    names = {}
    for file in sorted(SOURCE.rglob("*.py")):
        parts = file.relative_to(SOURCE).with_suffix("").parts
        names[".".join(("tagmask", *(parts[:-1] if parts[-1] == "__init__" else parts)))] = file
    return names


@cache
def parsed(file: Path) -> ast.Module:
    """Parse a file, once for all tests of a worker."""
    return ast.parse(file.read_text(encoding="utf-8"))


def imported(file: Path) -> Iterator[str]:
    """Everything that a module imports, inside functions too."""
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def rooms_known(file: Path) -> Iterator[str]:
    """The rooms and modules of ``ORDER`` that a file imports, inside functions too."""
    for node in ast.walk(parsed(file)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file} imports relative to itself; name the room."
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            package, _, inner = name.partition(".")
            if package == "tagmask":
                room = inner.partition(".")[0]
                yield room if room in PLACES else "__init__"  # its public names


def test_every_room_has_a_place() -> None:
    folders = [folder for folder in SOURCE.iterdir() if any(folder.rglob("*.py"))]
    assert {*(folder.name for folder in folders), *(file.stem for file in SOURCE.glob("*.py"))} == {
        *ORDER
    }
    assert len(PLACES) == len(ORDER)


def test_contributing_tells_the_same_order() -> None:
    text = (SOURCE.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.split("| room | what |")[1].split("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if "`" in line]
    told = re.findall(r"`(\w+)`", " ".join(cells))
    assert told == [room for room in ORDER if room in told]


@pytest.mark.parametrize("room", ORDER)
def test_imports_go_down(room: str) -> None:
    files = sorted((SOURCE / room).rglob("*.py")) or [SOURCE / f"{room}.py"]
    for file in files:
        for other in rooms_known(file):
            assert PLACES[other] <= PLACES[room], f"{file.relative_to(SOURCE)} imports {other}"


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


@pytest.mark.parametrize("name", ["Maps", "Network", "Image", "Row", "View", "Picture", "Mask"])
def test_a_word_means_one_thing(name: str) -> None:
    """No two classes or aliases of the package share one of these names."""
    places = []
    for module, file in modules().items():
        for node in parsed(file).body:
            names: list[str] = []
            if isinstance(node, ast.ClassDef):
                names = [node.name]
            elif isinstance(node, ast.Assign):
                names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            if name in names:
                places.append(module)
    assert len(places) <= 1, places


def test_the_settings_name_every_objectness() -> None:
    """Map methods: tests/test_config.py; formats: tests/exchange/test_formats.py."""
    from tagmask.config import TrainSettings
    from tagmask.inference.objectness import METHODS

    assert set(get_args(get_type_hints(TrainSettings)["object_method"])) == set(METHODS)


def test_an_export_format_takes_a_row_alone(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stage takes three places: tests/runs/test_pipeline.py; a map method one: inference."""
    from tagmask.config import ExportSettings
    from tagmask.exchange.export import FORMATS, Format, export_run
    from tagmask.exchange.items import Exported
    from tagmask.files import write_text

    def write_shares(items: Any, classes: Any, to: Path) -> Exported:
        done = Exported(to)
        for item in done.checked(items, classes):
            write_text(to / f"{item.name}.txt", f"{(item.mask > 0).mean():.3f}\n")
        return done

    monkeypatch.setitem(FORMATS, "shares", Format(write_shares))
    settings = ExportSettings(out=out, count=12, format="shares", to=tmp_path / "to")  # type: ignore[arg-type]
    assert "12 masks in" in export_run(settings)
    mask = np.asarray(Image.open(out / "6_predictions/scene_000003.png"))
    assert float((tmp_path / "to/scene_000003.txt").read_text()) == round((mask > 0).mean(), 3)
