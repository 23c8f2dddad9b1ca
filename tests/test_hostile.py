"""Random tables, JSON, settings and damage against the promises of docs/explanation/safety.md.

`make torture` tries far more.

A command ends with code 0, or with a sentence and another code; never with a traceback. No input changes.
"""

import importlib.util
import json
import shutil
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from tagmask.cli import main
from tagmask.config import TrainSettings, read_values
from tagmask.config.run import RunTop
from tagmask.data.coco import read_coco
from tagmask.data.folder import read_folder
from tagmask.errors import TagmaskError
from tagmask.files import read_arrays, read_object
from tagmask.models.kinds import load
from tagmask.runs.record import Record, read_log
from tests.alone import alone
from tests.helpers import tiny_classifier

few = settings(
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
NAMES = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(
    [
        "a.png",
        "b.png",
        "background",
        "../a.png",
        "cat",
        "done.json",
        "\n",
        "\x00",
        "\ud800",
        "a.png/b",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | NAMES | st.just(int("9" * 400)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for name in ("a", "b"):
        Image.new("RGB", (8, 6)).save(folder / f"{name}.png")
    return folder


def scratch() -> Path:
    return Path(tempfile.mkdtemp(prefix="tagmask-hostile-"))


def refuses(work: Any) -> None:
    """Do some work; a sentence is as good as success, any other exception is not."""
    try:
        work()
    except TagmaskError as error:
        assert str(error).strip()  # noqa: PT017  a sentence, not silence


@few
@given(
    rows=st.lists(st.lists(NAMES, max_size=3), max_size=4), suffix=st.sampled_from([".csv", ".tsv"])
)
def test_tables(rows: list[list[str]], suffix: str, photos: Path) -> None:
    folder = scratch()
    text = "file,tags\n" + "\n".join(",".join(row) for row in rows)
    (folder / f"t{suffix}").write_bytes(text.encode("utf-8", "surrogatepass"))
    refuses(lambda: read_folder(photos, folder / f"t{suffix}"))
    shutil.rmtree(folder)


@few
@given(content=VALUES, suffix=st.sampled_from([".json", ".jsonl"]))
def test_json_tables(content: Any, suffix: str, photos: Path) -> None:
    folder = scratch()
    (folder / f"t{suffix}").write_text(json.dumps(content))
    refuses(lambda: read_folder(photos, folder / f"t{suffix}"))
    shutil.rmtree(folder)


PARTS = {
    "images": {"id": 1, "file_name": "a.png", "height": 6, "width": 8},
    "categories": {"id": 1, "name": "cat"},
    "annotations": {
        "image_id": 1,
        "category_id": 1,
        "segmentation": [[0, 0, 4, 0, 4, 4]],
        "iscrowd": 0,
        "bbox": [],
    },
}
CHANGES = st.sampled_from([(key, name) for key, entry in PARTS.items() for name in entry])


@few
@given(
    changes=st.dictionaries(
        CHANGES, VALUES | st.dictionaries(st.sampled_from(["size", "counts"]), VALUES), max_size=2
    )
)
def test_coco(changes: dict[tuple[str, str], Any], photos: Path) -> None:
    folder, content = scratch(), {key: [dict(entry)] for key, entry in PARTS.items()}
    for (key, name), value in changes.items():
        content[key][0][name] = value
    (folder / "c.json").write_text(json.dumps(content))

    def read() -> None:
        catalog = read_coco(photos, folder / "c.json")
        for i in range(len(catalog)):
            catalog.load_mask(i)

    refuses(read)
    shutil.rmtree(folder)


@few
@given(
    values=st.dictionaries(
        st.sampled_from(["lr", "size", "steps", "view", "batch", "images", "augment"]), VALUES
    )
)
def test_settings_of_any_type(values: dict[str, Any]) -> None:
    def read() -> None:
        arguments = read_values(TrainSettings, values, "here")
        assert all(
            mistake.strip()
            for mistake in alone(TrainSettings, **{"out": Path("x"), **arguments}).mistakes()
        )

    refuses(read)
    refuses(lambda: read_values(RunTop, values, "here"))


WORDS = st.sampled_from(
    [
        "run",
        "seeds",
        "export",
        "paper",
        "--out",
        "--preset",
        "scenes",
        "--count",
        "-1",
        "--to",
        "x",
        "",
        "--config",
        "--=",
    ]
)


@few
@given(words=st.lists(WORDS | NAMES.filter(lambda name: "\x00" not in name), max_size=5))
def test_command_lines(words: list[str]) -> None:
    folder, printed = scratch(), StringIO()
    if "--count" in words and "--out" in words:
        words = [*words, "--count", "0"]  # none of them is to begin
    with redirect_stdout(StringIO()), redirect_stderr(printed), pytest.raises(SystemExit) as ended:
        main([*words, "--tags", str(folder)])
    assert ended.value.code in (0, 1, 2)
    assert "Traceback" not in printed.getvalue()
    assert list(folder.iterdir()) == []
    folder.rmdir()


@few
@given(
    content=VALUES
    | st.dictionaries(st.sampled_from(["made_from", "files", "contents", "step", "loss"]), VALUES)
)
def test_notes(content: Any) -> None:
    folder = scratch()
    record = Record(folder, "*.npz")
    record.done.write_text(json.dumps(content))
    (folder / "log.jsonl").write_text(json.dumps(content))
    refuses(lambda: record.status({"size": 3}, {}))
    refuses(record.stamp)
    refuses(lambda: read_object(record.done, files=str))
    assert all("step" in row for row in read_log(folder / "log.jsonl"))
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("net")
    tiny_classifier().save(folder)
    return folder


@settings(few, max_examples=15)
@given(
    changes=st.dictionaries(
        st.sampled_from(["kind", "backbone", "img_size", "classes", "fixed_views"]), VALUES
    )
)
def test_configs_of_networks(changes: dict[str, Any], network: Path) -> None:
    folder = scratch()
    config = json.loads((network / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    shutil.copy(network / "model.safetensors", folder)
    refuses(lambda: load(folder))
    shutil.rmtree(folder)


@few
@given(place=st.integers(0, 10**6), byte=st.integers(0, 255), cut=st.booleans())
def test_damaged_arrays(place: int, byte: int, cut: bool) -> None:
    import numpy as np

    folder = scratch()
    np.savez_compressed(folder / "a.npz", classes=np.arange(3), size=np.array([4, 5]))
    data = bytearray((folder / "a.npz").read_bytes())
    data[place % len(data)] = byte
    (folder / "a.npz").write_bytes(data[: place % len(data)] if cut else data)
    refuses(lambda: read_arrays(folder / "a.npz", ("classes", "size"), "tagmask seeds"))
    shutil.rmtree(folder)


def _fuzzers() -> ModuleType:
    file = Path(__file__).parents[1] / "scripts/fuzz.py"
    found = importlib.util.spec_from_file_location("fuzz", file)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["fuzz"] = module
    found.loader.exec_module(module)
    return module


FUZZ = _fuzzers()
TARGETS = FUZZ.targets()
KEPT = sorted(FUZZ.KEPT.iterdir())


@pytest.mark.parametrize("file", KEPT, ids=lambda file: file.name)
def test_files_that_once_did_harm(file: Path) -> None:
    """They are named after their reader."""
    assert FUZZ.attempt(TARGETS[file.stem], file.read_bytes()) == ""


@pytest.mark.parametrize("name", TARGETS)
def test_changed_files(name: str) -> None:
    """A few of the changes that scripts/fuzz.py makes for minutes; the first ones are none."""
    seeds = len(TARGETS[name].seeds)
    tried, lines, findings = FUZZ.fuzz(name, TARGETS[name], 60, 0, most=seeds + 12)
    assert findings == {}
    assert tried == seeds + 12
    assert lines > 10


def test_a_reader_that_fails_is_found() -> None:
    """The fuzzer itself: a reader that trusts a length is caught."""

    def trusting(data: bytes, folder: Path) -> None:
        if data[:1] == b"4" and len(data) < 4:
            raise IndexError("too short")

    findings = FUZZ.fuzz("toy", FUZZ.Target((b"4abc",), trusting), 30, 0, most=300)[2]
    assert list(findings) == ["IndexError"]
