"""The demo from end to end, at two steps."""

import json
import time
from pathlib import Path

import pytest
import torch
from PIL import Image

import tagmask.demo as demo
from tagmask.cli.commands import show_messages
from tagmask.config import PRESETS
from tagmask.demo import DemoSettings, run_demo
from tests.helpers import kill_once, tiny_settings


def test_demo_in_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    show_messages()
    monkeypatch.setattr(demo, "LABELLED", {**demo.LABELLED, "count": 30})
    scenes = PRESETS["scenes"]
    changed = {
        "run": {**scenes["run"], "count": 40},
        "pseudo": {**scenes["pseudo"], "affinity": {**scenes["pseudo"]["affinity"], "steps": 2}},
        "train": {**scenes["train"], "batch": 4},
        "segment": {**scenes["segment"], "steps": 2, "batch": 4, "workers": 0},
    }
    monkeypatch.setattr("tagmask.config.presets.PRESETS", {"scenes": {**scenes, **changed}})
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # no further processes to start
    run_demo(DemoSettings(out=tmp_path / "demo", steps=2))
    printed = capsys.readouterr().out
    assert printed.count("validation mAP") == 2
    for row in (
        "baseline seeds",
        "ACR seeds",
        "pseudo labels  ",
        "predictions  ",
        "30 pictures with tags",
    ):
        assert row in printed
    assert Image.open(tmp_path / "demo/seeds.png").size[0] > 400
    assert printed.index("demo/pictures.png") < printed.index(
        "validation mAP"
    )  # something to look at meanwhile
    assert Image.open(tmp_path / "demo/pictures.png").size[0] > 400
    scores = json.loads((tmp_path / "demo/scores.json").read_text())
    assert (
        scores["seeds"]["images"]
        == scores["pseudo"]["images"]
        == scores["predictions"]["images"]
        == 30
    )
    assert "<html" in (tmp_path / "demo/report.html").read_text()
    run_demo(DemoSettings(out=tmp_path / "demo", steps=2))  # typed again, it finds everything done
    assert "is trained already" in capsys.readouterr().out


def test_two_trainings_side_by_side_end_as_one_after_the_other(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with demo._beside({"train": (tiny_settings(tmp_path / "beside", steps=2).run, None)}):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    demo._run_quietly({"train": (tiny_settings(tmp_path / "alone", steps=2).run, None)})
    beside, alone = (
        tmp_path / name / "1_classifier/model.safetensors" for name in ("beside", "alone")
    )
    assert beside.read_bytes() == alone.read_bytes()


def _wait_beside(out: Path) -> None:
    torch.set_num_threads(2)
    with demo._beside({"train": (tiny_settings(out, steps=1_000_000, log_every=1).run, None)}):
        time.sleep(600)


def test_a_training_beside_ends_with_a_demo_that_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "1_classifier/log.jsonl"
    kill_once(log.is_file, _wait_beside, tmp_path)
    end, size = time.monotonic() + 60, -1
    while size != log.stat().st_size:  # a step takes milliseconds
        assert time.monotonic() < end, "it goes on"
        size = log.stat().st_size
        time.sleep(2)
