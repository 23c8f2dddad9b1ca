"""A run in Python: ``tagmask.Run``, ``tagmask.load`` and what they return."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tagmask
from tagmask.data.images import read_mask
from tagmask.data.scenes.catalog import Scenes
from tagmask.inference import photo_mask
from tagmask.inference.probabilities import LabelProbabilities
from tagmask.models.affinity_net import AffinityNet
from tagmask.stages.predict import predict, read_probabilities
from tests.runs.tiny import IMAGES

SCENES = Scenes(IMAGES)


def tags_of(i: int) -> list[str]:
    return [SCENES.classes[c] for c in SCENES.tags(i)]


def test_a_prediction_is_the_mask_of_the_run(headed: Path, tmp_path: Path) -> None:
    model = tagmask.load(headed)
    assert model.classes == SCENES.classes
    result = model.predict(SCENES.load_image(0))
    assert np.array_equal(result.mask, read_mask(headed / "6_predictions/scene_000000.png", 10))
    assert result.classes == SCENES.classes
    assert result.probabilities.shape == (11, *result.mask.shape)
    np.testing.assert_allclose(result.probabilities.sum(0), 1, atol=1e-5)
    assert np.array_equal(result.probabilities.argmax(0), result.mask)
    result.save(tmp_path / "mask.png")
    assert np.array_equal(read_mask(tmp_path / "mask.png", 10), result.mask)
    result.save(tmp_path / "over.png", "overlay")
    height, width = result.mask.shape
    assert result.overlay().shape == (height, width, 3)
    named = result.overlay(legend=True)
    assert np.array_equal(named[:height, :width], result.overlay())
    assert len(named) > height
    assert np.array_equal(np.asarray(Image.open(tmp_path / "over.png")), named)
    result.save(tmp_path / "all.npz", "probabilities")
    assert read_probabilities(tmp_path / "all.npz").shape == result.probabilities.shape


def test_a_large_photo_is_the_mask_of_the_stage_and_keeps_no_probabilities(
    headed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is done in tiles is done by every door, and all classes only come if asked for."""
    model = tagmask.load(headed)
    photo = np.kron(SCENES.load_image(0), np.ones((3, 3, 1), np.uint8))
    whole = model.predict(photo)
    for name in ("AT_ONCE", "SMALL"):
        monkeypatch.setattr(photo_mask, name, 0)
    monkeypatch.setattr(photo_mask, "_tile", lambda *_: 64)
    dense = []

    def count(found: LabelProbabilities, classes: int) -> Any:
        dense.append(classes)
        return whole.probabilities

    monkeypatch.setattr(LabelProbabilities, "dense", count)
    result = model.predict(photo)
    assert np.array_equal(result.mask, predict(model, photo))
    assert (result.mask == whole.mask).mean() > 0.98
    assert not dense
    assert result.probabilities is result.probabilities
    assert dense == [11]


def test_batches_are_iterators_of_single_results(headed: Path) -> None:
    model = tagmask.load(headed, device="cpu")
    photos = [SCENES.load_image(i) for i in range(3)]
    tags = [tags_of(i) for i in range(3)]
    results = model.predict(iter(photos), tags)
    for i, result in enumerate(results):
        assert np.array_equal(result.mask, model.predict(photos[i], tags[i]).mask)
        labels = {0, *(1 + SCENES.classes.index(tag) for tag in tags[i])}
        assert set(np.unique(result.mask)) <= labels
    maps = list(model.localize(photos, [tags[0], tags[1], tags[2]]))
    assert [list(one) for one in maps] == tags
    with pytest.raises(ValueError, match="shorter"):
        list(model.predict(photos, tags[:2]))


def test_settings_that_are_none_are_named(headed: Path) -> None:
    model = tagmask.load(headed)
    with pytest.raises(tagmask.TagmaskError, match="no setting 'scale'; did you mean 'scales'"):
        model.predict(SCENES.load_image(0), scale=2.0)
    with pytest.raises(tagmask.TagmaskError, match="scales = 'big' is not of the form"):
        model.localize(SCENES.load_image(0), scales="big")


def test_maps_of_a_run_and_of_its_classifier_are_alike(headed: Path) -> None:
    photo = SCENES.load_image(1)
    by_run = tagmask.load(headed).localize(photo, tags_of(1))
    by_network = tagmask.load(headed / "1_classifier").localize(photo, tags_of(1))
    for tag, values in by_run.items():
        assert values.dtype == np.float32
        assert values.shape == photo.shape[:2]
        assert np.array_equal(values, by_network[tag])
    assert np.array_equal(tagmask.localize(tagmask.load(headed), photo, tags_of(1))[tag], values)


def test_what_a_folder_has_not_is_told(headed: Path, tmp_path: Path) -> None:
    photo = SCENES.load_image(0)
    with pytest.raises(tagmask.TagmaskError, match="holds a classifier alone; masks need"):
        tagmask.load(headed / "1_classifier").predict(photo)
    with pytest.raises(tagmask.TagmaskError, match="holds a segmenter alone; maps need"):
        tagmask.load(headed / "5_segmenter").localize(photo)
    AffinityNet("test_resnet").save(tmp_path / "net")
    with pytest.raises(tagmask.TagmaskError, match="holds AffinityNet, which makes no maps"):
        tagmask.load(tmp_path / "net")
    with pytest.raises(tagmask.TagmaskError, match="does not exist"):
        tagmask.load(tmp_path / "nothing")


def test_a_run_prints_nothing_and_tells_its_progress(
    out: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tagmask.progress._shows_bars", False)
    monkeypatch.setattr("tagmask.progress.logger.handlers", [])
    told: list[tagmask.Progress] = []
    run = tagmask.Run(out, progress=told.append)
    assert run.settings.count == IMAGES  # of the run in the folder
    assert run().made == ()
    assert told == []
    run.seeds(restart=True)
    assert [(one.title, one.done, one.total) for one in told] == [
        ("seeds", done + 1, IMAGES) for done in range(IMAGES)
    ]
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_tags_may_be_given_in_python(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for i in range(3):
        Image.fromarray(SCENES.load_image(i)).save(tmp_path / f"photos/{i}.png")
    tags = {f"{i}.png": tags_of(i) for i in range(3)}
    run = tagmask.Run(tmp_path / "run", images=tmp_path / "photos", tags=tags)
    assert [run.catalog.name(i) for i in range(3)] == ["0", "1", "2"]
    assert [run.catalog.classes[c] for c in run.catalog.tags(2)] == sorted(tags_of(2))
    assert json.loads((tmp_path / "run/tags.json").read_text()) == tags
    with pytest.raises(tagmask.TagmaskError, match=r"the tags of 0\.png are a text; give a list"):
        tagmask.Run(tmp_path / "other", images=tmp_path / "photos", tags={"0.png": "dog"})


def test_a_former_config_is_read_and_its_stages_are_done(out: Path) -> None:
    """The form before [data]: every table repeats the data, and a head has DeepLab's settings."""
    import tomli_w

    from tagmask.config import read_toml

    tables = read_toml(out / "config.toml")
    data = tables.pop("data")
    for name in ("train", "seeds", "pseudo", "segment", "predict"):
        tables[name] |= {**data, "out": str(out)}
    tables["run"] |= data
    tables["segment"] |= {"backbone": "resnet101", "momentum": 0.9, "batch": 10, "epochs": 15.0}
    (out / "config.toml").write_text(tomli_w.dumps(tables))
    assert tagmask.Run(out)().made == ()
    assert read_toml(out / "config.toml")["data"] == data
    assert "count" not in read_toml(out / "config.toml")["train"]


def test_config_is_written_once_per_run(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tagmask.files import write_text
    from tests.runs.tiny import head_run

    written: list[Path] = []

    def counted(path: Path, text: str) -> None:
        written.append(path)
        write_text(path, text)

    monkeypatch.setattr("tagmask.config.toml.write_text", counted)
    run = tagmask.Run.of(head_run(out))
    run()
    assert written == [out / "config.toml"]  # it names another folder: this is a copy
    shutil.rmtree(out / "6_predictions")
    assert "predict" in run().made
    assert written == [out / "config.toml"]  # and stays as it is
    shutil.rmtree(out / "6_predictions")
    (out / "config.toml").unlink()
    assert "predict" in run().made
    assert written == [out / "config.toml"] * 2
