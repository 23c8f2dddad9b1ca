"""The whole run: end to end, again, with a change, and killed."""

import dataclasses
import json
import os
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from tagmask.cli import main
from tagmask.cli.parse import parse_run
from tagmask.config import PRESETS, PseudoSettings, TrainSettings, read_toml
from tagmask.config.run import RunSettings
from tagmask.errors import TagmaskError
from tagmask.notes import differences
from tagmask.runs.plan import duration, logged_rate
from tagmask.runs.record import Record, made_from
from tagmask.runs.run import Run, run_images
from tagmask.runs.settings import run_settings, run_values
from tagmask.runs.summary import RunSummary
from tagmask.runs.table import STAGES as TABLE
from tagmask.runs.table import stage as row_of
from tests.alone import alone_of, run
from tests.helpers import process_of
from tests.runs.tiny import IMAGES, STEPS, products, tiny_run
from tests.runs.toy import ROW

STAGES = ("train", "seeds", "pseudo", "segment", "predict", "check", "score", "report")


def test_from_images_and_tags_to_masks(finished: tuple[Path, RunSummary]) -> None:
    out, done = finished
    assert done.made == STAGES
    for folder, pattern in (
        ("2_seeds", "*.npz"),
        ("4_pseudo", "*.png"),
        ("6_predictions", "*.png"),
    ):
        assert len(list((out / folder).glob(pattern))) == IMAGES
    for folder in ("1_classifier", "5_segmenter"):
        assert (out / folder / "model.safetensors").is_file()
    scores = json.loads((out / "scores.json").read_text())
    printed = done.summary().splitlines()
    for title, value in (
        ("pseudo labels", scores["pseudo"]["miou_present"]),
        ("predictions", scores["predictions"]["miou_present"]),
        (
            "seeds with affinity",
            scores["seeds"]["refined"]["thresholds"]["cross_entropy"]["miou_present"],
        ),
    ):
        row = next(line for line in printed if line.startswith(title))
        assert row.removeprefix(title).split()[0] == f"{100 * value:.1f}"
    assert f"masks: {out / '6_predictions'}" in printed


def test_a_second_start_does_nothing(
    finished: tuple[Path, RunSummary], capsys: pytest.CaptureFixture[str]
) -> None:
    out = finished[0]
    before = {
        file: file.stat().st_mtime_ns
        for file in out.rglob("*")
        if file.is_file() and file.name != "config.toml"
    }
    again = run(parse_run(["--config", str(out / "config.toml"), "--no-estimate"]))
    assert again.made == ()
    assert again.summary().splitlines()[1:7] == finished[1].summary().splitlines()[1:7]
    assert "nothing to do" in again.summary()
    assert capsys.readouterr().out.count("done before") == len(STAGES)
    after = {
        file: file.stat().st_mtime_ns
        for file in out.rglob("*")
        if file.is_file() and file.name != "config.toml"
    }
    assert after == before


def test_a_changed_stage_is_redone_with_all_that_follow(
    finished: tuple[Path, RunSummary], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "copy"
    shutil.copytree(finished[0], out)  # a run may be moved
    old = products(out)
    settings = tiny_run(out, estimate=True)
    faster = settings.with_changes(segment={"lr": 0.5, "log_every": 3})
    done = run(faster)
    assert done.made == ("segment", "predict", "check", "score", "report")
    printed = capsys.readouterr().out
    assert (
        "[4/8] segment: redo (lr was 0.002 and is now 0.5)" in printed
    )  # log_every makes no difference
    assert "[5/8] predict: redo (segmenter changed)" in printed
    assert "train    done, nothing has changed" in printed
    assert "6 steps        about " in printed  # the plan
    new = products(out)
    assert new["5_segmenter/model.safetensors"] != old["5_segmenter/model.safetensors"]
    assert new["4_pseudo/scene_000003.png"] == old["4_pseudo/scene_000003.png"]

    (out / "6_predictions" / "scene_000003.png").unlink()  # only what is missing is made again
    assert run(dataclasses.replace(faster, estimate=False)).stages["predict"].state == "resume"
    assert products(out)["6_predictions/scene_000003.png"] == new["6_predictions/scene_000003.png"]


def test_affinity_net_outlives_a_change_of_what_comes_after_it(tmp_path: Path) -> None:
    settings, net = tiny_run(tmp_path), tmp_path / "3_affinity" / "model.safetensors"
    pseudo = settings.of(PseudoSettings)
    affinity = dataclasses.replace(pseudo.affinity, steps=2, batch=2, size=32)
    walk = dataclasses.replace(pseudo, method="walk", crf=False, affinity=affinity)
    assert run(settings.with_stages(walk)).made == (*STAGES[:2], "affinity", *STAGES[2:])
    trained = net.stat().st_mtime_ns
    done = run(settings.with_stages(dataclasses.replace(walk, background=0.3)))
    assert done.stages["pseudo"].why == ("background was the default and is now 0.3",)
    assert done.stages["affinity"].state == "done"
    assert net.stat().st_mtime_ns == trained
    longer = dataclasses.replace(walk, affinity=dataclasses.replace(affinity, steps=3))
    assert (
        "affinity.steps was 2 and is now 3"
        in run(settings.with_stages(longer)).stages["pseudo"].why
    )
    assert net.stat().st_mtime_ns > trained


def start(settings: RunSettings) -> None:
    """In a process of its own, silent."""
    torch.set_num_threads(1)
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    run(settings)


def far_enough(out: Path, stage: str, amount: int) -> bool:
    """Whether a stage has made as many steps or files."""
    folder = {
        "train": "1_classifier",
        "seeds": "2_seeds",
        "pseudo": "4_pseudo",
        "segment": "5_segmenter",
    }.get(stage)
    place = out / (folder or "6_predictions")
    if stage in ("train", "segment"):
        log = place / "log.jsonl"
        return log.is_file() and log.read_bytes().count(b"\n") >= amount
    return sum(1 for _ in place.glob("scene_*")) >= amount


def test_killed_five_times_it_ends_with_the_same_files(
    finished: tuple[Path, RunSummary], tmp_path: Path
) -> None:
    out, chance = tmp_path / "killed", random.Random(0)
    amidst = []
    for stage in STAGES[:5]:
        amount = chance.randint(1, STEPS - 2)
        process = process_of(start, tiny_run(out))
        process.start()
        while process.is_alive() and not far_enough(out, stage, amount):
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.02))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL, stage
        amidst += [] if row_of(stage).record(out).done.exists() else [stage]
    assert len(amidst) >= 2  # on a busy machine the kill may come after the end of a short stage
    assert not (out / "report.html").exists()
    last = process_of(start, tiny_run(out))
    last.start()
    last.join()
    assert last.exitcode == 0
    expected, found = products(finished[0]), products(out)
    assert found.keys() == expected.keys()
    assert [name for name in expected if found[name] != expected[name]] == []


def test_a_changed_note_can_be_deleted(finished: tuple[Path, RunSummary], tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(finished[0], out)
    note = out / "4_pseudo/made_by.json"
    note.write_text(note.read_text().replace('"alpha_low": 4.0', '"alpha_low": 5.0'))
    with pytest.raises(TagmaskError, match=r"alpha_low was 5\.0 and is now 4\.0"):
        run(tiny_run(out))
    note.unlink()
    assert "pseudo" in run(tiny_run(out)).made
    assert run(tiny_run(out)).made == ()
    expected, found = products(finished[0]), products(out)
    assert found == expected


def test_a_kill_after_the_last_note_leaves_nothing_behind(
    finished: tuple[Path, RunSummary], tmp_path: Path
) -> None:
    """Between the note that a stage is done and the removal of what it has replaced."""
    out = tmp_path / "run"
    shutil.copytree(finished[0], out)
    (out / "2_seeds/begun.json").write_text("{}")
    shutil.copytree(out / "2_seeds", out / ".2_seeds.discarded")
    (out / ".2_seeds.discarded/mine.txt").write_text("of the user")
    (out / "check.begun.json").write_text("{}")
    assert run(tiny_run(out)).made == ()
    assert not (out / "2_seeds/begun.json").exists()
    assert not (out / "check.begun.json").exists()
    assert not (out / ".2_seeds.discarded").exists()
    assert (out / "2_seeds/mine.txt").read_text() == "of the user"


def test_a_discarded_stage_leaves_nothing_behind(tmp_path: Path) -> None:
    record = Record(tmp_path / "2_seeds", "**/*.npz")
    record.begin({"size": 32})
    (record.folder / "a.npz").write_bytes(b"12")
    (record.folder / "0123abcd.77.partial").write_bytes(b"1")
    (record.folder / ".tmpa1B2c3").write_bytes(b"1")
    record.finish({"size": 32})
    assert record.status({"size": 32}, {}).state == "done"
    assert record.status({"size": 64}, {}).why == ("size was 32 and is now 64",)
    (record.folder / "a.npz").write_bytes(b"123")
    assert record.status({"size": 32}, {}).state == "resume"
    record.clean()
    assert sorted(file.name for file in record.folder.iterdir()) == ["a.npz", "done.json"]
    record.discard()
    assert not record.folder.exists()
    record.begin({"size": 64})
    record.restore()  # nothing was made in its place
    assert sorted(file.name for file in record.folder.iterdir()) == ["a.npz", "done.json"]
    record.discard()
    record.clean()
    assert list(tmp_path.iterdir()) == []


def test_a_report_needs_no_data_settings(finished: tuple[Path, RunSummary], tmp_path: Path) -> None:
    shutil.copytree(finished[0], tmp_path / "run")
    (tmp_path / "run/report.html").unlink()
    with pytest.raises(SystemExit) as ended:
        main(["report", "--out", str(tmp_path / "run")])
    assert ended.value.code == 0
    assert (tmp_path / "run/report.html").is_file()


def test_only_the_run_is_written(finished: tuple[Path, RunSummary], tmp_path: Path) -> None:
    shutil.copytree(finished[0], tmp_path / "run")
    (tmp_path / "run.old").mkdir()  # a user's own
    (tmp_path / "run.old/kept.txt").write_text("mine")
    assert run(tiny_run(tmp_path / "run")).made == ()
    assert (tmp_path / "run.old/kept.txt").read_text() == "mine"


def test_a_stage_that_cannot_begin_leaves_what_was_there(
    finished: tuple[Path, RunSummary], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a file may be damaged after it was looked at
    monkeypatch.setattr("tagmask.runs.run._check_starts", lambda *_: None)
    out = tmp_path / "run"
    shutil.copytree(finished[0], out)
    before = (out / "1_classifier/model.safetensors").read_bytes()
    (tmp_path / "w.safetensors").write_bytes(b"no weights")
    whole = tiny_run(out)
    weights = {"pretrained": False, "weights": tmp_path / "w.safetensors"}
    with pytest.raises(TagmaskError, match=r"w\.safetensors"):
        run(whole.with_changes(train=weights))
    assert (out / "1_classifier/model.safetensors").read_bytes() == before
    assert run(whole).made == ()


def test_what_the_data_lack_is_told_before_anything_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for tag in ("dog", "Dog"):
        (tmp_path / "photos" / tag).mkdir(parents=True)
        Image.new("RGB", (40, 30)).save(tmp_path / f"photos/{tag}/one.png")
    monkeypatch.setattr(
        "tagmask.runs.run.write_config", lambda _: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    data: Any = {"data": "folder", "images": tmp_path / "photos"}
    with pytest.raises(KeyboardInterrupt):
        run(tiny_run(tmp_path / "run", **data))
    assert "note: these tags look alike" in capsys.readouterr().out


def test_a_linked_folder_is_let_go(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/2_seeds").symlink_to(tmp_path / "disk")
    (tmp_path / "disk/a.npz").write_bytes(b"1")
    record = Record(tmp_path / "run/2_seeds", "**/*.npz")
    record.discard()
    record.clean()
    assert not record.folder.exists()
    assert (tmp_path / "disk/a.npz").exists()  # it may serve others


@pytest.mark.parametrize("content", ["[1]", "{}", '"text"'])
def test_notes_of_another_form_are_told(tmp_path: Path, content: str) -> None:
    record = Record(tmp_path, "*.npz")
    record.done.write_text(content)
    with pytest.raises(TagmaskError, match=r"done\.json was not written by tagmask; delete it"):
        record.status({}, {})


@pytest.mark.parametrize("note", ["done.json", "begun.json"])
def test_damaged_notes_may_be_deleted(tmp_path: Path, note: str) -> None:
    record = Record(tmp_path, "*.npz")
    (tmp_path / note).write_text('{"made_from"')
    with pytest.raises(
        TagmaskError, match=rf"{note} is not valid JSON .*; delete it, and its part is redone\.$"
    ):
        record.status({}, {})


@pytest.mark.parametrize("stage", ["train", "seeds", "pseudo", "segment", "predict", "check"])
def test_a_run_whose_damaged_note_was_deleted_is_finished_again(
    finished: tuple[Path, RunSummary], stage: str, tmp_path: Path
) -> None:
    """As the sentence advises; everything ends as it was."""
    out = tmp_path / "run"
    shutil.copytree(finished[0], out)
    note = row_of(stage).record(out).done
    note.write_text("{")
    with pytest.raises(TagmaskError, match="delete it, and its part is redone"):
        run(tiny_run(out))
    note.unlink()
    run(tiny_run(out))
    assert note.is_file()
    made = products(out)
    assert made.keys() == products(finished[0]).keys()
    for name, content in products(finished[0]).items():
        if not name.endswith(".json"):
            assert made[name] == content, name


def test_another_kind_of_classifier_is_another_training(tmp_path: Path) -> None:
    usual, mct = (
        made_from(
            parse_run(["--preset", f"scenes{kind}", "--out", str(tmp_path)]).of(TrainSettings)
        )
        for kind in ("", "-mct")
    )
    assert differences({**usual, "input images": 1}, {**mct, "input images": 1}) == (
        "kind was acr and is now mct",
    )


@pytest.fixture
def counts() -> Iterator[str]:
    """A stage of its own in the table, between predict and score."""
    TABLE.insert(6, ROW)
    try:
        yield ROW.name
    finally:
        TABLE.remove(ROW)


def test_a_stage_is_added_by_a_row(
    finished: tuple[Path, RunSummary],
    tmp_path: Path,
    counts: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "run"
    shutil.copytree(finished[0], out)
    assert run(tiny_run(out, estimate=True)).made == (counts,)
    printed = capsys.readouterr().out
    assert re.search(rf"counts +to do +{IMAGES} images +about 60 s", printed)
    assert f"counts: {IMAGES} made, 0 already there, in {out / '7_counts'}" in printed
    assert (out / "7_counts/scene_000003.txt").read_text().endswith(" tags\n")
    assert run(tiny_run(out)).made == ()
    (out / "7_counts/scene_000003.txt").unlink()
    assert run(tiny_run(out)).stages[counts].state == "resume"
    assert (out / "7_counts/scene_000003.txt").is_file()
    assert main_code("counts", "--out", str(out), "--count", "5", "--word", "labels") == 0
    assert (out / "7_counts/scene_000004.txt").read_text().endswith(" labels\n")


def test_a_stage_brings_settings_of_its_own(
    finished: tuple[Path, RunSummary],
    tmp_path: Path,
    counts: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its file, its settings and its row are all there is to it (tests/runs/toy.py)."""
    out = tmp_path / "run"
    shutil.copytree(finished[0], out)
    flags = ["--out", str(out), "--config", str(out / "config.toml"), "--no-estimate"]
    settings = parse_run([*flags, "--counts.word", "names"])
    assert run(settings).made == (counts,)
    assert (out / "7_counts/scene_000004.txt").read_text().endswith(" names\n")
    assert read_toml(out / "config.toml")["counts"] == {"word": "names"}
    again = parse_run(flags)  # from config.toml
    assert run(again).made == ()
    changed = run(parse_run([*flags, "--counts.word", "marks"]))
    assert changed.stages[counts].why == ("word was names and is now marks",)
    with pytest.raises(TagmaskError, match=r"counts: there is no setting 'wrod'; did you mean"):
        run_images(config=out / "config.toml", out=out, counts={"wrod": "x"})
    assert main_code("counts", "--help-all") == 0
    assert "--word" in capsys.readouterr().out
    assert main_code("run", "--preset", "scenes", "--out", str(out), "--counts.out", "x") == 1
    assert "--counts.out has no place in a run" in capsys.readouterr().err


@pytest.mark.parametrize("section", ["train", "segment", "pseudo"])
def test_weights_of_another_backbone_are_told_before_the_plan(
    section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_file({"conv1.weight": torch.zeros(2, 3)}, tmp_path / "w.safetensors")
    monkeypatch.setattr("tagmask.runs.run.plan", lambda *_: pytest.fail("the plan was made"))
    settings = tiny_run(tmp_path / "run").with_changes(pseudo={"method": "walk"})
    weights: dict[str, Any] = {"pretrained": False, "weights": tmp_path / "w.safetensors"}
    name = section
    if section == "pseudo":
        name = "affinity"
        affinity = settings.of(PseudoSettings).affinity
        weights = {"affinity": dataclasses.replace(affinity, **weights)}
    with pytest.raises(TagmaskError, match=rf"^{name}: weights file .*w\.safetensors does not fit"):
        run(settings.with_changes(**{section: weights}))


def test_stuff_that_is_no_tag_is_told_before_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tagmask.runs.run.plan", lambda *_: pytest.fail("the plan was made"))
    with pytest.raises(TagmaskError, match=r"^train: --stuff grss is no tag of these photos"):
        run(tiny_run(tmp_path / "run").with_changes(train={"objects": True, "stuff": "grss"}))


def test_weights_that_cannot_be_had_are_told_before_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(*_: Any) -> str:
        raise AssertionError("the plan was made first")

    monkeypatch.setattr("tagmask.runs.run.plan", measure)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    weights = {"backbone": "deit_tiny_patch16_224", "pretrained": True}
    offline = Run(tmp_path / "run", preset="scenes", data="scenes", count=4, train=weights)
    with pytest.raises(TagmaskError, match="could not be fetched"):
        offline()


def main_code(*words: str) -> Any:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return ended.value.code


def test_the_annotations_are_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tagmask.data.open

    opened, real = list[Any](), tagmask.data.open.open_catalog

    def counting(settings: Any, out: Any = None) -> Any:
        opened.append(settings)
        return real(settings, out)

    modules = [row.function.partition(":")[0] for row in TABLE]
    for module in ("tagmask.runs.run", *modules):
        monkeypatch.setattr(f"{module}.open_catalog", counting, raising=False)
    assert run(tiny_run(tmp_path / "run")).made == STAGES
    assert len(opened) == 1


def test_where_things_are_counts_only_until_a_stage_is_done(tmp_path: Path) -> None:
    record = Record(tmp_path / "1_classifier", "model.safetensors")
    record.begin({"lr": 1, "root": "here"})
    assert record.status({"lr": 1}, {"root": "here"}).state == "resume"
    assert record.status({"lr": 1}, {"root": "there"}).why == ("root was here and is now there",)
    (record.folder / "model.safetensors").write_bytes(b"1")
    record.finish({"lr": 1})
    assert record.status({"lr": 1}, {"root": "there"}).state == "done"
    (record.folder / "model.safetensors").unlink()  # a finished training does not write it again
    assert record.status({"lr": 1}, {"root": "there"}).state == "redo"


def test_differences_name_inputs_and_settings() -> None:
    before = {"lr": 0.1, "input seeds": "a", "old": 1}
    expected = ("lr was 0.1 and is now 0.2", "seeds changed", "old was 1 and is now the default")
    assert differences(before, {"lr": 0.2, "input seeds": "b"}) == expected


def test_a_setting_that_is_gone_changes_nothing_if_it_was_off() -> None:
    """Maps that were made with it are told to differ from those that would be made now."""
    assert differences({"compete": False, "propagation": 0.0, "lr": 1}, {"lr": 1}) == ()
    assert differences({"compete": True, "lr": 1}, {"lr": 1}) == (
        "compete was True and is now the default",
    )


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "1 s"), (89, "89 s"), (600, "10 min"), (7200, "2.0 h")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_rate_from_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    assert logged_rate(log) is None
    rows = [
        {"step": 20, "seconds": 50.0},
        {"step": 40, "seconds": 10.0},
        {"step": 60, "map": 1},
    ]  # resumed at 20
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert logged_rate(log) is None
    with log.open("a") as file:
        file.write(json.dumps({"step": 60, "seconds": 15.0}) + '\n5\n{"step": 8')
    assert logged_rate(log) == 0.25


@pytest.mark.parametrize("name", PRESETS)
def test_presets_can_be_used(name: str, tmp_path: Path) -> None:
    values = run_values(name, None)
    needed = {"folder": ("images",), "coco": ("images", "annotations"), "voc": ("root",)}.get(
        values["data"], ()
    )
    (tmp_path / "data").mkdir()
    assert (
        run_settings(
            {**values, "out": tmp_path / "out", **dict.fromkeys(needed, tmp_path / "data")}
        ).mistakes()
        == []
    )


def test_flags_reach_the_stages(tmp_path: Path) -> None:
    found = parse_run(
        ["--preset", "scenes", "--out", str(tmp_path), "--count", "5", "--train.steps", "9"]
    )
    train = alone_of(found, "train")
    assert (train.steps, train.count, alone_of(found, "predict").out) == (9, 5, tmp_path)
    assert alone_of(found, "pseudo").affinity.backbone == "test_resnet"


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    values = run_values("own-photos", None)
    values["train"] = dataclasses.replace(values["train"], restart=True, lr=0.0)
    found = run_settings({**values, "out": tmp_path}).mistakes()
    assert found == [
        "--images is missing; --data folder needs it.",
        "--train.restart has no place in a run; use --restart for the whole run, or delete the "
        "folder of the stage.",
        "train: --lr 0.0 must be above 0.",
    ]
    with pytest.raises(
        TagmaskError, match=r"--train\.count has no place in a run; give --count once"
    ):
        parse_run(["--preset", "scenes", "--out", str(tmp_path), "--train.count", "5"])
    with pytest.raises(TagmaskError, match="there is no preset 'paper'; did you mean 'voc-paper'"):
        run_values("paper", None)
    config = tmp_path / "config.toml"
    config.write_text("[train]\nstepz = 4\n[seeds]\nsize = 'big'\n")
    with pytest.raises(
        TagmaskError, match=r"did you mean 'steps'\?\n.*seeds: size = 'big' is not of the form"
    ):
        run_values(None, config)


@pytest.mark.parametrize("flags", [["--seeds.method", "generic"], ["--seeds.centre"]])
def test_maps_that_an_mctformer_has_not_are_refused_before_it_is_trained(
    flags: list[str], tmp_path: Path
) -> None:
    settings = parse_run(["--preset", "scenes-mct", "--out", str(tmp_path), *flags])
    assert settings.mistakes() == [
        "--train.kind mct has maps of its own; give --seeds.method acr and leave out --seeds.centre."
    ]
