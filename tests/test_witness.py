"""The pledge: a run of this format opens in every later tagmask; one of a later format is refused.

``tests/witness`` was made by ``scripts/witness.py``. It is not made again when a test fails: then
tagmask has to read what it finds there.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import tagmask
from tagmask import layout
from tagmask.config import SeedSettings
from tagmask.data.corrections import TagChange, read_labels, read_tags
from tagmask.data.images import read_mask
from tagmask.data.scenes.catalog import Scenes
from tagmask.errors import TagmaskError
from tagmask.files import only_one, reading
from tagmask.inference.selfcheck import read_verdicts
from tagmask.runs.record import Record, classes_of
from tagmask.runs.run import Run
from tagmask.stages.seeds import read_seeds
from tests.test_cli import run

WITNESS = Path(__file__).parent / "witness"
SCENES = Scenes(3)
NAMES = [SCENES.name(i) for i in range(3)]


@pytest.fixture
def witness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run, with networks of zeros."""
    out = tmp_path / "run"
    shutil.copytree(WITNESS, out)
    for file in out.rglob("shapes.json"):
        shapes = json.loads(file.read_text())
        tensors = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
        save_file(tensors, file.with_name(layout.MODEL))
        file.unlink()
    monkeypatch.chdir(tmp_path)
    return out


def test_it_is_small() -> None:
    sizes = [file.stat().st_size for file in WITNESS.rglob("*") if file.is_file()]
    assert sum(sizes) < 300_000


def test_settings_are_read(witness: Path) -> None:
    settings = Run(witness).settings
    assert settings.mistakes() == []
    assert settings.count == 3
    assert settings.of(SeedSettings).size == 32


def test_maps_labels_and_corrections_are_read(witness: Path) -> None:
    classes = SCENES.classes
    for i, name in enumerate(NAMES):
        assert read_seeds(layout.seed_file(witness / layout.SEEDS, name))["refined"].ndim == 3
        for folder in (layout.PSEUDO, layout.PREDICTIONS):
            assert classes_of(witness / folder) == list(classes)
            mask = read_mask(layout.label_file(witness / folder, name), len(classes))
            assert mask.shape == SCENES.load_image(i).shape[:2]
    corrected = witness / layout.CORRECTIONS
    labels = read_labels(corrected, NAMES[0], len(classes))
    assert labels is not None
    assert (labels[:8, :8] == 0).all()
    assert read_tags(corrected, classes, SCENES.identity) == {NAMES[0]: TagChange((classes[0],))}
    assert read_verdicts(witness / layout.CHECK)


def test_networks_are_read(witness: Path) -> None:
    for folder in (layout.CLASSIFIER, layout.SEGMENTER):
        model: Any = tagmask.load(witness / folder)
        assert tuple(model.classes) == SCENES.classes


@pytest.mark.parametrize(
    ("folder", "products"),
    [(layout.SEEDS, "**/*.npz"), (layout.PSEUDO, "**/*.png"), (layout.PREDICTIONS, "**/*.png")],
)
def test_what_was_done_still_counts_as_done(folder: str, products: str, witness: Path) -> None:
    record = Record(witness / folder, products)
    made_from = json.loads(record.done.read_text())["made_from"]
    assert record.status(made_from, {}).state == "done"


def test_commands_work_on_it(witness: Path, tmp_path: Path) -> None:
    assert run("export", "--out", "run", "--to", "c.json") == 0
    assert len(json.loads((tmp_path / "c.json").read_text())["images"]) == 3
    assert run("score", "--out", "run") == 0


def test_a_run_from_the_future_is_refused(
    witness: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (witness / "format.json").write_text('{"format": 2, "new": []}')
    before = sorted(witness.rglob("*"))
    commands = (
        ["run", "--preset", "scenes"],
        ["seeds"],
        ["check"],
        ["score"],
        ["report"],
        ["export", "--to", "c.json"],
    )
    for words in commands:
        assert run(*words, "--out", "run") == 1
        assert "format 2, made by a later tagmask" in capsys.readouterr().err
    for place in (witness, witness / "5_segmenter"):
        with pytest.raises(TagmaskError, match="format 2, made by a later tagmask"):
            tagmask.load(place)
    with pytest.raises(TagmaskError, match="format 2, made by a later tagmask"):
        tagmask.Run(witness)
    assert sorted(witness.rglob("*")) == before
    (witness / "format.json").write_text('{"format": "x"}')
    with pytest.raises(TagmaskError, match=r"format\.json was not written by tagmask"):
        reading(witness).__enter__()


def test_a_new_run_says_its_format(tmp_path: Path) -> None:
    with only_one(tmp_path / "run"):
        pass
    assert not (tmp_path / "run").exists()
    with only_one(tmp_path / "run"):
        (tmp_path / "run/config.toml").write_text("")
    assert json.loads((tmp_path / "run/format.json").read_text()) == {"format": layout.FORMAT}
