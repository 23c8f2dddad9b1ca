"""The demo from end to end, at two steps."""

import json
from pathlib import Path

import pytest
from PIL import Image

import tagmask.demo as demo
from tagmask.config import SCENE_PSEUDO, SCENES
from tagmask.demo import DemoSettings, run_demo


def test_demo_in_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(demo, "SCENES", {**SCENES, "batch": 4, "count": 40})
    monkeypatch.setattr(demo, "LABELLED", {**demo.LABELLED, "count": 30})
    network = {**SCENE_PSEUDO["affinity"], "steps": 2}
    monkeypatch.setattr(demo, "SCENE_PSEUDO", {**SCENE_PSEUDO, "affinity": network})
    run_demo(DemoSettings(out=tmp_path / "demo", steps=2))
    told = capsys.readouterr().out
    assert told.count("validation mAP") == 2
    for row in ("baseline seeds", "ACR seeds", "pseudo labels  ", "30 pictures not trained on"):
        assert row in told
    assert Image.open(tmp_path / "demo/seeds.png").size[0] > 400
    scores = json.loads((tmp_path / "demo/scores.json").read_text())
    assert scores["seeds"]["images"] == scores["pseudo"]["images"] == 30
    assert "<html" in (tmp_path / "demo/report.html").read_text()
    run_demo(DemoSettings(out=tmp_path / "demo", steps=2))  # typed again, it finds everything done
    assert "is trained already" in capsys.readouterr().out
