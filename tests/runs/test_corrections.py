"""A run notices corrections: it redoes what depends on them, photo by photo, and nothing else."""

from pathlib import Path

import numpy as np

from tagmask.data.corrections import (
    NOT_CORRECTED,
    PERSON_UNSURE,
    TagChange,
    write_labels,
    write_tags,
)
from tagmask.data.images import read_mask
from tagmask.data.scenes.catalog import CLASSES, Scenes
from tests.alone import run
from tests.runs.tiny import IMAGES, head_run

NAME, OTHER = Scenes(IMAGES).name(0), Scenes(IMAGES).name(1)


def correct(out: Path, label: int = 3) -> None:
    labels = np.full(Scenes(1).load_image(0).shape[:2], NOT_CORRECTED, np.uint8)
    labels[10:40, 10:40], labels[50:60, 50:60] = label, PERSON_UNSURE
    write_labels(out / "corrections", NAME, labels)


def test_corrected_pixels_are_fixed_and_nothing_else_is_redone(out: Path) -> None:
    pseudo = {file.name: file.stat().st_mtime_ns for file in (out / "4_pseudo").glob("*.png")}
    correct(out)
    summary = run(head_run(out))
    states = {name: status.state for name, status in summary.stages.items()}
    assert states == {
        "train": "done",
        "seeds": "done",
        "pseudo": "resume",
        "segment": "redo",
        "predict": "redo",
        "check": "redo",
        "score": "redo",
        "report": "redo",
    }
    assert summary.stages["pseudo"].why == ("corrections changed",)
    written = {
        file.name
        for file in (out / "4_pseudo").glob("*.png")
        if pseudo[file.name] != file.stat().st_mtime_ns
    }
    assert written == {f"{NAME}.png"}
    label, mask = (
        read_mask(out / folder / f"{NAME}.png", len(CLASSES))
        for folder in ("4_pseudo", "6_predictions")
    )
    assert (label[10:40, 10:40] == 3).all()
    assert (label[50:60, 50:60] == 255).all()
    assert (mask[10:40, 10:40] == 3).all()
    assert (mask != 255).all()
    assert not run(head_run(out)).made


def test_a_correction_that_is_taken_back_leaves_the_first_result(out: Path) -> None:
    before = {
        folder: (out / folder / f"{NAME}.png").read_bytes()
        for folder in ("4_pseudo", "6_predictions")
    }
    correct(out)
    run(head_run(out))
    (out / f"corrections/{NAME}.png").unlink()
    run(head_run(out))
    assert before == {folder: (out / folder / f"{NAME}.png").read_bytes() for folder in before}


def test_corrected_tags_are_learnt_from_by_every_stage(out: Path) -> None:
    scenes = Scenes(IMAGES)
    absent = next(name for k, name in enumerate(CLASSES) if k not in scenes.tags(0))
    write_tags(out / "corrections", {NAME: TagChange(added=(absent,))}, CLASSES, scenes.identity)
    assert run(head_run(out)).made[0] == "train"
    with np.load(out / f"2_seeds/{NAME}.npz", allow_pickle=False) as seeds:
        assert seeds["classes"].tolist() == sorted([*scenes.tags(0), CLASSES.index(absent)])
