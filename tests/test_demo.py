"""The demo from end to end, at one step."""

import json
from pathlib import Path

import pytest
from PIL import Image

import tagmask.demo as demo
from tagmask.config import SCENES
from tagmask.demo import DemoSettings, run_demo


def test_demo_in_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    small = {"batch": 4, "count": 40, "workers": 0}
    monkeypatch.setattr(demo, "SCENES", {**SCENES, **small})
    monkeypatch.setattr(demo, "SCORED", {**demo.SCORED, "count": 30})
    run_demo(DemoSettings(out=tmp_path / "demo", steps=2))
    told = capsys.readouterr().out
    assert "validation mAP" in told
    assert "with affinity (ACR)" in told
    assert Image.open(tmp_path / "demo/seeds.png").size[0] > 400
    assert json.loads((tmp_path / "demo/scores.json").read_text())["seeds"]["images"] == 30
    run_demo(DemoSettings(out=tmp_path / "demo", steps=2))  # typed again, it finds everything done
    assert "is trained already" in capsys.readouterr().out
