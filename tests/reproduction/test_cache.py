"""Trainings are shared, and what is finished is not done again."""

import dataclasses
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tagmask.stages.train as classifier
from tagmask.cli.commands import show_messages
from tagmask.data.scenes.catalog import Scenes
from tagmask.errors import TagmaskError
from tagmask.files import alone
from tagmask.reproduction.bench import Bench
from tagmask.reproduction.command import run_paper
from tagmask.runs.record import key, once, seconds_of
from tests.reproduction.small import small


def folder(out: Path, *flags: str, place: int = 0, **changes: Any) -> Path:
    return Bench(small(out, "ablation", *flags))._run(place, changes).folder


def test_the_same_settings_have_the_same_folder(tmp_path: Path) -> None:
    base = folder(tmp_path)
    assert base == folder(tmp_path)
    assert base == folder(
        tmp_path, "--train.workers", "1", "--train.log-every", "3"
    )  # change no weight
    assert base == folder(
        tmp_path, "--score-count", "3", "--random-seeds", "4", "--seeds.layers", "1"
    )  # nor do these
    others = {
        folder(tmp_path, alpha=0.0),
        folder(tmp_path, view="vflip"),
        folder(tmp_path, place=1),
        folder(tmp_path, "--count", "9"),
        folder(tmp_path, "--scene-seed", "5"),
        folder(tmp_path, "--train.steps", "2"),
    }
    assert len(others | {base}) == 7


def test_the_second_seed_is_the_next_number(tmp_path: Path) -> None:
    assert folder(tmp_path, place=1) == folder(tmp_path, "--train.seed", "1")


def test_a_key_does_not_depend_on_the_order() -> None:
    assert key({"a": 1, "b": [2, 3]}) == key({"b": [2, 3], "a": 1})
    assert key({"a": 1}) != key({"a": 1.5})


def test_once(tmp_path: Path) -> None:
    calls: list[int] = []

    def work() -> dict[str, Any]:
        calls.append(1)
        return {"value": 0.5, "missing": None}

    results = [once(tmp_path / "x" / "done.json", {"a": 1}, work) for _ in range(3)]
    assert results == [{"value": 0.5, "missing": None}] * 3
    assert len(calls) == 1
    assert seconds_of(tmp_path / "x" / "done.json") < 5
    (tmp_path / "x" / "done.json").write_text("[]")
    with pytest.raises(TagmaskError, match="delete it, and its part is redone"):
        once(tmp_path / "x" / "done.json", {}, work)


def test_a_failure_keeps_nothing(tmp_path: Path) -> None:
    def broken() -> Any:
        raise TagmaskError("no")

    with pytest.raises(TagmaskError, match="no"):
        once(tmp_path / "done.json", {}, broken)
    assert once(tmp_path / "done.json", {}, lambda: 3) == 3


def test_two_tables_do_not_make_the_same_thing_at_once(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    made: list[float] = []

    def work() -> float:
        time.sleep(0.2)
        made.append(time.monotonic())
        return 1.0

    threads = [
        threading.Thread(target=once, args=(tmp_path / "done.json", {}, work)) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    with alone(tmp_path):
        pass  # given back


def test_a_killed_table_does_not_redo_what_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = classifier.train, list[Path]()

    def counted(run: Any, settings: Any) -> Any:
        calls.append(run.out)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(run, settings)

    monkeypatch.setattr(classifier, "train", counted)
    settings = small(tmp_path, "ablation")
    with pytest.raises(KeyboardInterrupt):
        run_paper(settings)
    assert not (tmp_path / "ablation.csv").exists()
    (first,) = tmp_path.glob("runs/*/1_classifier/model.safetensors")
    made = first.stat().st_mtime_ns
    run_paper(settings)
    assert len(calls) == 5  # one finished, one killed, three more
    assert calls[0] == first.parents[1]
    assert calls[0] not in calls[1:]
    assert first.stat().st_mtime_ns == made

    scored = {file: file.stat().st_mtime_ns for file in tmp_path.glob("runs/*/maps-*/scored.json")}
    before = (tmp_path / "ablation.csv").read_text()
    run_paper(settings)
    assert len(calls) == 5
    assert {
        file: file.stat().st_mtime_ns for file in tmp_path.glob("runs/*/maps-*/scored.json")
    } == scored
    assert len(scored) == 4
    assert (tmp_path / "ablation.csv").read_text() == before


def test_masks_changed_in_place_are_scored_again(tmp_path: Path) -> None:
    """The same files with other content give other scores; without a change nothing is scored."""
    scenes = Scenes(6)
    for kind in ("images", "masks"):
        (tmp_path / kind).mkdir()
    lines = ["image,tags"]
    for i in range(len(scenes)):
        Image.fromarray(scenes.load_image(i)).save(tmp_path / f"images/{i}.png")
        Image.fromarray((scenes.load_mask(i) > 0).astype(np.uint8)).save(
            tmp_path / f"masks/{i}.png"
        )
        lines.append(f"{i}.png,thing")
    (tmp_path / "tags.csv").write_text("\n".join(lines) + "\n")
    settings = dataclasses.replace(
        small(tmp_path / "paper", "ablation"),
        data="folder",
        score_count=None,
        images=tmp_path / "images",
        tags=tmp_path / "tags.csv",
        masks=tmp_path / "masks",
    )

    def scores() -> tuple[float, int]:
        bench = Bench(settings)
        (score,) = bench.scored(bench.trained({"both": {}}))["both"]
        (file,) = (tmp_path / "paper").glob("runs/*/maps-*/scored.json")
        return score["refined"]["thresholds"]["oracle"]["miou_present"], file.stat().st_mtime_ns

    first, made = scores()
    assert scores() == (first, made)
    for i in range(len(scenes)):
        empty = np.zeros_like(scenes.load_mask(i))
        empty[0, 0] = 1
        Image.fromarray(empty).save(tmp_path / f"masks/{i}.png")
    second, again = scores()
    assert again > made
    assert second != first


def test_tables_share_trainings(shared_out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_paper(small(shared_out, "ablation"))

    def refused(settings: Any) -> Any:
        raise AssertionError(f"trained again: {settings.out}")

    monkeypatch.setattr(classifier, "train", refused)
    before = {
        file: file.stat().st_mtime_ns
        for file in shared_out.glob("runs/*/1_classifier/model.safetensors")
    }
    for name in ("methods", "layers", "affinity"):
        run_paper(small(shared_out, name))
    after = {
        file: file.stat().st_mtime_ns
        for file in shared_out.glob("runs/*/1_classifier/model.safetensors")
    }
    assert len(before) >= 4
    assert after == before


def test_deleted_weights_are_trained_again(tmp_path: Path) -> None:
    bench = Bench(small(tmp_path, "methods"))
    (run,) = bench.trained({"ACR": {}})["ACR"]
    weights = run.classifier / "model.safetensors"
    before = weights.read_bytes()
    weights.unlink()
    bench.trained({"ACR": {}})
    assert weights.read_bytes() == before


def test_time_left_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_messages()
    Bench(small(tmp_path, "ablation")).trained({"none": {"alpha": 0.0}, "both": {}})
    printed = capsys.readouterr().out
    assert "training 1 of 2 (none, seed 0)\n" in printed
    assert "training 2 of 2 (both, seed 0), about " in printed
    Bench(small(tmp_path, "ablation")).trained({"none": {"alpha": 0.0}, "both": {}})
    assert "training 2 of 2 (both, seed 0): done before" in capsys.readouterr().out
