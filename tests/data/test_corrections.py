"""Corrections: files of their own, seen through the catalog, refused where they do not fit."""

import json
from pathlib import Path

import numpy as np
import pytest

from tagmask.config import TrainSettings
from tagmask.data.catalog import Catalog
from tagmask.data.corrections import (
    NOT_CORRECTED,
    PERSON_UNSURE,
    TagChange,
    digest,
    digest_in,
    fix,
    read_labels,
    read_tags,
    write_labels,
    write_tags,
)
from tagmask.data.images import write_mask
from tagmask.data.open import open_catalog
from tagmask.data.scenes.catalog import Scenes
from tagmask.errors import ImageError, TagmaskError
from tests.alone import alone

CLASSES = ("cat", "dog", "fish")


def catalog() -> Catalog:
    return Catalog(CLASSES, ["a", "b/c"], [[0], [1, 2]])


def labels(*rows: list[int]) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.array(rows, np.uint8)


def test_corrected_pixels_replace_labels_and_unsure_ones_are_not_learnt_from() -> None:
    before = labels([1, 2, 0, 3])
    correction = labels([0, NOT_CORRECTED, PERSON_UNSURE, 2])
    assert fix(before, correction, "a").tolist() == [[0, 2, 255, 2]]
    assert fix(before, correction, "a", unsure=False).tolist() == [[0, 2, 0, 2]]
    assert fix(before, None, "a") is before
    with pytest.raises(
        ImageError, match='the correction of "a" is 4×1 pixels but the photo is 1×4'
    ):
        fix(before.T, correction, "a")


def test_labels_are_written_and_read_and_removed_with_the_last_pixel(tmp_path: Path) -> None:
    correction = labels([0, 3, PERSON_UNSURE, NOT_CORRECTED])
    write_labels(tmp_path, "b/c", correction)
    back = read_labels(tmp_path, "b/c", 3)
    assert back is not None
    assert back.tolist() == correction.tolist()
    assert digest(tmp_path, "b/c") != digest(tmp_path, "a") == ""
    with pytest.raises(ImageError, match="holds the label 3; with 2 classes"):
        read_labels(tmp_path, "b/c", 2)
    write_labels(tmp_path, "b/c", np.full_like(correction, NOT_CORRECTED))
    assert read_labels(tmp_path, "b/c", 3) is None
    assert not list((tmp_path / "b").iterdir())


def test_a_correction_is_on_the_disk_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person is told that it is saved: a power cut must not take it back."""
    synced: list[Path] = []
    monkeypatch.setattr("tagmask.files._sync_folder", synced.append)
    drawn = np.random.default_rng(0).integers(0, 6, (40, 60)).astype(np.uint8)
    drawn[10:30] = 254
    write_labels(tmp_path, "a/photo", drawn)
    assert synced == [tmp_path / "a"]
    kept = read_labels(tmp_path, "a/photo", 5)
    assert kept is not None
    assert (kept == drawn).all()


def test_a_mask_remembers_the_correction_it_was_made_with(tmp_path: Path) -> None:
    write_mask(tmp_path / "plain.png", labels([0, 1]))
    write_mask(tmp_path / "fixed.png", labels([0, 1]), correction="abc")
    assert [digest_in(tmp_path / f"{name}.png") for name in ("plain", "fixed", "missing")] == [
        "",
        "abc",
        "",
    ]


def test_tags_change_for_every_reader_of_the_catalog(tmp_path: Path) -> None:
    changes = {"a": TagChange(added=("fish",), removed=("cat",)), "b/c": TagChange()}
    write_tags(tmp_path, changes, CLASSES, {})
    assert json.loads((tmp_path / "tags.json").read_text())["photos"] == {
        "a": {"added": ["fish"], "removed": ["cat"]}
    }
    view = catalog().corrected(tmp_path)
    assert [view.tags(i) for i in range(2)] == [(2,), (1, 2)]
    assert view.fingerprint() != catalog().fingerprint()
    assert view.subset([1]).corrections == tmp_path
    assert view.class_counts().tolist() == [0, 1, 2]


def test_the_catalog_of_a_run_is_opened_with_its_corrections(tmp_path: Path) -> None:
    settings = alone(TrainSettings, out=tmp_path, count=3)
    before = open_catalog(settings.run, tmp_path)
    assert before.corrections is None
    wanted = next(name for k, name in enumerate(before.classes) if k not in before.tags(0))
    write_tags(
        tmp_path / "corrections",
        {before.name(0): TagChange(added=(wanted,))},
        before.classes,
        before.identity,
    )
    after = open_catalog(settings.run, tmp_path)
    assert {*after.tags(0)} == {*before.tags(0), before.classes.index(wanted)}
    assert after.tags(1) == before.tags(1)
    other = Scenes(3, seed=1)  # pictures of the same names, but others
    assert other.corrected(tmp_path / "corrections") is other


def test_corrections_for_other_classes_and_damaged_files_are_refused(tmp_path: Path) -> None:
    write_tags(tmp_path, {}, ("cat", "dog"), {})
    with pytest.raises(TagmaskError, match="were made for 2 classes"):
        read_tags(tmp_path, CLASSES, {})
    file = tmp_path / "tags.json"
    for text, sentence in (
        ("{", "not valid JSON"),
        ('{"classes": [], "photos": 3, "identity": {}}', "was not written by tagmask"),
        (
            f'{{"classes": {json.dumps(CLASSES)}, "identity": {{}}, "photos": {{"a": []}}}}',
            "does not list added",
        ),
        (
            f'{{"classes": {json.dumps(CLASSES)}, "identity": {{}}, "photos": {{"a": {{"added": 1}}}}}}',
            "does not list",
        ),
    ):
        file.write_text(text)
        with pytest.raises(TagmaskError, match=sentence):
            catalog().corrected(tmp_path)
