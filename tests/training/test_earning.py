"""A training has to earn its place: the choice by hand, and whole trainings that are stopped."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tagmask.config import TrainSettings
from tagmask.files import write_json
from tagmask.models.classifier import Classifier
from tagmask.training.earning import Judge, choose
from tagmask.training.loop import Trained
from tests.alone import train
from tests.helpers import kill_once, tiny_settings

SIZE = 48
BEST, END = "the best state of the training", "the end of the training"


def values(loss: float, precision: float = 0.8, border: float = 0.45) -> dict[str, float]:
    return {"val_loss": loss, "map": precision, "border": border}


@pytest.mark.parametrize(
    ("trained", "chosen"),
    [
        pytest.param(values(0.3), END, id="better loss, same maps"),
        pytest.param(values(0.3, 0.9), END, id="better in both"),
        pytest.param(values(0.3, border=0.2), END, id="maps farther from the border"),
        pytest.param(values(0.3, border=1.05), "no training", id="maps at the border"),
        pytest.param(values(0.3, precision=0.6), "no training", id="tags told worse"),
        pytest.param(values(0.8, precision=0.9), "no training", id="worse loss"),
        pytest.param(values(0.5), "no training", id="no difference"),
    ],
)
def test_one_training_by_hand(trained: dict[str, float], chosen: str) -> None:
    assert choose({"no training": values(0.5), END: trained}) == chosen


def test_two_states_by_hand() -> None:
    """The better of the two, if both are allowed; otherwise the one that is."""
    start = {"no training": values(0.5)}
    assert choose({**start, BEST: values(0.3), END: values(0.4)}) == BEST
    assert choose({**start, BEST: values(0.4), END: values(0.3)}) == END
    assert choose({**start, BEST: values(0.4), END: values(0.3, border=0.9)}) == BEST
    assert choose({**start, BEST: values(0.4, 0.2), END: values(0.3, border=0.9)}) == "no training"
    assert choose(start) == "no training"


def settings(out: Path, **changes: Any) -> Any:
    small: dict[str, Any] = {
        "fixed_views": True,
        "head_first": True,
        "freeze": 2,
        "size": SIZE,
        "steps": 4,
        "count": 16,
        "val_fraction": 0.25,
        "earn": True,
        "save_every": 2,
        "lr": 1e-4,
    }
    return tiny_settings(out, **{**small, **changes})


WITH_OBJECTS = {"objects": True, "object_blocks": (1, 3), "object_size": SIZE}


def files(out: Path) -> dict[str, bytes]:
    folder = out / "1_classifier"
    names = ("model.safetensors", "config.json", "earned.json")
    return {name: (folder / name).read_bytes() for name in names}


def candidate(out: Path, chosen: str) -> Path:
    folder = out / "1_classifier"
    return {"no training": folder / "start", BEST: folder / "best", END: folder}[chosen]


def test_a_training_ends_with_a_choice(tmp_path: Path) -> None:
    done = train(settings(tmp_path))
    assert isinstance(done, Trained)
    earned = json.loads((tmp_path / "1_classifier/earned.json").read_text())
    assert list(earned["candidates"]) == ["no training", BEST, END]
    for measured in earned["candidates"].values():
        assert measured["val_loss"] > 0
        assert 0 <= measured["map"] <= 1
        assert measured["border"] > 0
    assert earned["chosen"] == choose(earned["candidates"])
    (sentence,) = (note for note in done.notes if "photos held out" in note)
    assert sentence in done.summary()
    kept = Classifier.load(tmp_path / "1_classifier")
    expected = Classifier.load(candidate(tmp_path, earned["chosen"]))
    for name, value in expected.state_dict().items():
        assert torch.equal(kept.state_dict()[name], value), name


@pytest.mark.parametrize(
    ("chosen", "objects"),
    [
        ("no training", False),
        (BEST, False),
        (END, False),
        ("no training", True),
        (BEST, True),
        (END, True),
    ],
)
def test_what_is_chosen_is_in_the_folder_also_the_second_time(
    chosen: str, objects: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is chosen; the stage may be run again on what it has made."""
    monkeypatch.setattr("tagmask.training.earning.choose", lambda _: chosen)
    options = settings(tmp_path, **(WITH_OBJECTS if objects else {}))
    train(options)
    first = files(tmp_path)
    assert json.loads(first["earned.json"])["chosen"] == chosen
    train(options)
    assert files(tmp_path) == first


@pytest.mark.parametrize("chosen", ["no training", END])
def test_a_restart_forgets_the_verdict(
    chosen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training with another rate, judged anew, as if nothing had been there."""
    with monkeypatch.context() as patch:
        patch.setattr("tagmask.training.earning.choose", lambda _: chosen)
        train(settings(tmp_path / "twice", lr=1e-2))
    train(settings(tmp_path / "twice", restart=True))
    train(settings(tmp_path / "once"))
    assert files(tmp_path / "twice") == files(tmp_path / "once")


class Stopped(Exception):
    """In place of a kill."""


@pytest.mark.parametrize("place", ["before", "measured", "noted", "saved"])
def test_stopped_behind_the_loop_it_ends_with_the_same_files(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the verdict, while it is made, before and after the chosen state is put in place."""
    whole, stopped = settings(tmp_path / "whole"), settings(tmp_path / "stopped")
    train(whole)

    def stop(*_: Any, **__: Any) -> None:
        raise Stopped

    decide = Judge.decide

    def decide_and_stop(self: Judge) -> tuple[str, ...]:
        decide(self)
        raise Stopped

    def note_and_stop(file: Path, note: dict[str, Any]) -> None:
        write_json(file, note)
        raise Stopped

    with monkeypatch.context() as patch:
        if place == "before":
            patch.setattr(Judge, "decide", stop)
        elif place == "measured":
            patch.setattr("tagmask.training.earning.write_json", stop)
        elif place == "noted":
            patch.setattr("tagmask.training.earning.write_json", note_and_stop)
        else:
            patch.setattr(Judge, "decide", decide_and_stop)
        with pytest.raises(Stopped):
            train(stopped)
    train(stopped)
    assert files(tmp_path / "stopped") == files(tmp_path / "whole")


def train_again(options: TrainSettings) -> None:
    torch.set_num_threads(1)
    train(options)


def test_killed_behind_the_loop_it_ends_with_the_same_files(tmp_path: Path) -> None:
    """A real kill, as soon as the network of the last step is there."""
    train(settings(tmp_path / "whole"))
    model = tmp_path / "killed/1_classifier/model.safetensors"
    kill_once(model.is_file, train_again, settings(tmp_path / "killed"))
    train(settings(tmp_path / "killed"))
    assert files(tmp_path / "killed") == files(tmp_path / "whole")


def test_without_photos_held_out_it_says_so(tmp_path: Path) -> None:
    done = train(settings(tmp_path, val_fraction=0.0))
    assert "no photos were held out" in done.summary()
    assert not (tmp_path / "1_classifier/earned.json").exists()


def test_it_needs_the_fitted_head(tmp_path: Path) -> None:
    for changes in ({"earn": True}, {"earn": False, "train_from": 5}):
        mistakes = settings(tmp_path, head_first=False, **changes).mistakes()
        assert any("add --head-first" in mistake for mistake in mistakes)
