"""Damaged, foreign and absurd files, numbers and streams end with a sentence, never with a traceback."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from tagmask.config import read_toml, read_values
from tagmask.config.run import RunTop
from tagmask.data.catalog import Catalog
from tagmask.data.coco import read_coco
from tagmask.data.folder import read_folder
from tagmask.data.images import write_mask
from tagmask.data.voc import read_voc
from tagmask.errors import ImageError, TagmaskError, enough_memory
from tagmask.exchange.items import from_folder, unlistable_name
from tagmask.exchange.label_studio import write_label_studio
from tagmask.files import read_arrays, read_json, read_object
from tagmask.models.classifier import Classifier
from tagmask.models.kinds import load
from tagmask.models.weights import fit_weights
from tagmask.runs.record import Record, classes_of, read_log
from tagmask.stages.seeds import read_seeds
from tagmask.training.checkpoint import read_state
from tests.helpers import tiny_classifier
from tests.test_cli import run

DIGITS = "9" * 5000
BAD_JSON = [DIGITS, "[" * 100_000, '{"a": ' * 50_000, "", "\x00", '"\udc80', "nul"]


@pytest.mark.parametrize("content", BAD_JSON, ids=range(7))
def test_json_that_cannot_be_read(content: str, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(content, errors="surrogateescape")
    with pytest.raises(TagmaskError, match=r"a\.json"):
        read_json(file)
    with pytest.raises(TagmaskError, match=r"a\.json"):
        read_coco(tmp_path, file)
    Image.new("RGB", (4, 4)).save(tmp_path / "x.png")
    with pytest.raises(TagmaskError, match=r"a\.json"):
        read_folder(tmp_path, file)


@pytest.mark.parametrize(
    "content",
    [
        f"[run]\ncount = {DIGITS}",
        "x = " + "[" * 5000,
        "[run]\nout = '\x00'",
        "\udcff",
        "x = {a=" * 5000,
    ],
    ids=range(5),
)
def test_toml_that_cannot_be_read(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.toml").write_text(content, errors="surrogateescape")
    with pytest.raises(TagmaskError, match=r"c\.toml"):
        read_toml(tmp_path / "c.toml")
    assert run("run", "--config", str(tmp_path / "c.toml"), "--out", str(tmp_path / "run")) == 1
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize(
    "value", [int("f" * 5000, 16), [int("f" * 5000, 16)], "x", {}, [[[]]], True, ""], ids=range(7)
)
def test_values_of_wrong_types(value: Any) -> None:
    for name in ("count", "data"):
        if (name, value) == ("count", int("f" * 5000, 16)):
            continue  # its limit is checked later
        with pytest.raises(TagmaskError, match=f"here: {name} = "):
            read_values(RunTop, {name: value}, "here")


@pytest.mark.parametrize(
    "flag", ["--count", "--train.lr", "--train.epochs", "--train.val-every", "--segment.scales"]
)
@pytest.mark.parametrize("value", [DIGITS, "1e400", "nan", "-1", "0", "x", "1e308"], ids=range(7))
def test_numbers_on_the_command_line(
    flag: str,
    value: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tagmask.runs.run.open_catalog", lambda *_: pytest.fail("it was accepted"))
    assert run(
        "run", "--preset", "scenes", "--no-estimate", "--out", str(tmp_path / "run"), flag, value
    ) in (1, 2)
    assert "Traceback" not in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "note",
    [
        {"made_from": [], "files": "x"},
        {"made_from": {}, "files": 3},
        {"made_from": "x", "files": "x"},
        {"files": "x"},
        [{}],
    ],
)
def test_notes_of_wrong_types(note: Any, tmp_path: Path) -> None:
    record = Record(tmp_path, "*.npz")
    record.done.write_text(json.dumps(note))
    for read in (lambda: record.status({}, {}), record.stamp):
        with pytest.raises(TagmaskError, match=r"done\.json was not written by tagmask; delete it"):
            read()
    (tmp_path / "made_by.json").write_text('{"classes": [1, 2]}')
    with pytest.raises(TagmaskError, match=r"made_by\.json does not name the classes"):
        classes_of(tmp_path)
    (tmp_path / "b.json").write_text('{"background": true}')
    with pytest.raises(TagmaskError, match="delete it, and its part is redone"):
        read_object(tmp_path / "b.json", background=(int, float))


def test_rows_of_a_log_that_are_none(tmp_path: Path) -> None:
    rows = [
        "[]",
        "3",
        '{"step": "2"}',
        '{"step": []}',
        f'{{"step": {DIGITS}}}',
        '{"step": 1e999}',
        "[" * 100_000,
    ]
    (tmp_path / "log.jsonl").write_text(
        "\n".join([*rows, '{"step": 3, "loss": "x", "lr": 1, "seconds": null}'])
    )
    assert read_log(tmp_path / "log.jsonl") == [{"step": 3.0, "lr": 1.0}]


@pytest.mark.parametrize(
    "state",
    [
        [],
        3,
        {"step": "1", "best": {}, "broken": [], "identity": {}},
        {"step": -1, "best": {}, "broken": []},
    ],
)
def test_a_resume_point_of_wrong_types(state: Any, tmp_path: Path) -> None:
    save_file(
        {"a": torch.zeros(1)},
        tmp_path / "resume.safetensors",
        metadata={"state": json.dumps(state)},
    )
    with pytest.raises(TagmaskError, match="cannot be read"):
        read_state(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"classes": [1, 2, 3]},
        {"classes": "abc"},
        {"classes": []},
        {"backbone": 7},
        {"backbone": "../../x"},
        {"img_size": [8, 8, 8]},
        {"img_size": "x"},
        {"img_size": -3},
        {"img_size": 10**9},
        {"crop_size": True},
        {"fixed_views": [1, "x"]},
        {"kind": []},
        {"kind": {}},
    ],
)
def test_a_network_whose_config_is_of_wrong_types(changes: dict[str, Any], tmp_path: Path) -> None:
    tiny_classifier().save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(TagmaskError):
        load(tmp_path)


def identity(tensors: dict[str, torch.Tensor], _: Any) -> dict[str, torch.Tensor]:
    return tensors


@pytest.mark.parametrize(
    "content",
    [
        [],
        3,
        "x",
        {},
        {1: torch.zeros(2)},
        {"state_dict": 3},
        {"model": {"x": 3}},
        {"pos_embed": torch.zeros(1, 3, 7, 2)},
    ],
)
def test_weights_of_odd_content(content: Any, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(TagmaskError, match=r"w\.pth"):
        Classifier("tagmask_tiny", 3, img_size=32, weights=tmp_path / "w.pth")


@pytest.mark.parametrize(
    "value", [torch.full((1, 17, 64), torch.nan), torch.zeros(7), torch.zeros(1, 3, 64)]
)
def test_weights_of_odd_shapes_and_values(value: torch.Tensor, tmp_path: Path) -> None:
    weights = {**tiny_classifier().vit.state_dict(), "pos_embed": value}
    save_file(weights, tmp_path / "w.safetensors")
    with pytest.raises(TagmaskError, match=r"w\.safetensors"):
        Classifier("tagmask_tiny", 3, img_size=32, weights=tmp_path / "w.safetensors")
    with pytest.raises(TagmaskError, match=r"w\.safetensors"):
        fit_weights(torch.nn.Linear(2, 2), "linear", tmp_path / "w.safetensors", identity, ())


@pytest.mark.parametrize(
    "arrays",
    [
        {"classes": np.array(["a"])},
        {"classes": np.array([0.5])},
        {"size": np.array([1.0, 1.0])},
        {"plain": np.full((1, 1, 1), np.nan, np.float16)},
        {"plain": np.array(["x"]).reshape(1, 1, 1)},
    ],
)
def test_maps_of_wrong_types(arrays: dict[str, Any], tmp_path: Path) -> None:
    whole: dict[str, Any] = {"classes": np.array([0]), "size": np.array([1, 1])}
    whole |= {kind: np.zeros((1, 1, 1), np.uint8) for kind in ("plain", "refined")}
    np.savez(tmp_path / "a.npz", **whole | arrays)
    with pytest.raises(TagmaskError, match=r"a\.npz is damaged"):
        read_seeds(tmp_path / "a.npz")
    with pytest.raises(TagmaskError, match="no ordinary file"):
        read_arrays(tmp_path, ("a",), "tagmask seeds")


XML = '<?xml version="1.0" encoding="{}"?>'


@pytest.mark.parametrize(
    ("head", "encoding", "is_read"),
    [
        (XML.format("klingon"), "utf-8", True),  # it is UTF-8 whatever it says
        (XML.format("utf-7"), "utf-8", True),
        (XML.format("utf-16"), "utf-16", True),
        ("<a>" * 50_000, "utf-8", False),
    ],
    ids=range(4),
)
def test_annotations_of_odd_encodings(
    head: str, encoding: str, is_read: bool, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        for folder in ("JPEGImages", "Annotations", "ImageSets/Segmentation"):
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 6)).save(tmp_path / f"JPEGImages/{name}.jpg")
        text = "<annotation><object><name>cat</name></object></annotation>"
        text = (head if name == "a" else "") + text
        (tmp_path / f"Annotations/{name}.xml").write_bytes(
            text.encode(encoding if name == "a" else "utf-8")
        )
    (tmp_path / "ImageSets/Segmentation/train.txt").write_text("a\nb\n")
    catalog = read_voc(tmp_path, "train")
    assert [item.name for item in catalog] == (["a", "b"] if is_read else ["b"])
    assert any("a.xml is not valid XML" in note for note in catalog.notes) is not is_read


@pytest.mark.parametrize(
    "names", [["done.json/a"], ["a", "a.png/b"], ["x/a", "x/a.npz/b"], ["made_by.json/a/b"]]
)
def test_folders_named_like_files_of_a_run(names: list[str]) -> None:
    with pytest.raises(TagmaskError, match="rename the folder"):
        Catalog(["cat"], names, [[0]] * len(names))


def test_folders_with_odd_names_are_no_trouble() -> None:
    names = ["x.partial/a", "a b/c", "x#/y", "sub/done.json/a", "done.json"]
    catalog = Catalog(["cat"], names, [[0]] * 5)
    assert [catalog.name(i) for i in range(5)] == names


@pytest.mark.parametrize("flag", ["--images", "--tags", "--masks", "--out", "--config"])
def test_a_link_to_itself(flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "loop").symlink_to("loop")
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    (tmp_path / "tags.csv").write_text("file,tags\na.png,cat\n")
    words = {
        "--images": str(tmp_path),
        "--tags": str(tmp_path / "tags.csv"),
        "--out": str(tmp_path / "run"),
    }
    words[flag] = str(tmp_path / "loop")
    flags = [word for pair in words.items() for word in pair]
    assert run("run", "--data", "folder", "--no-estimate", *flags) == 1
    assert "loop" in capsys.readouterr().err


def test_a_size_that_only_the_annotations_have(tmp_path: Path) -> None:
    Image.new("RGB", (8, 6)).save(tmp_path / "a.jpg")
    image = {"id": 1, "file_name": "a.jpg", "height": 65_535, "width": 65_535}
    thing = {"id": 1, "image_id": 1, "category_id": 1, "segmentation": [[0, 0, 4, 0, 4, 4]]}
    content = {"images": [image], "categories": [{"id": 1, "name": "cat"}], "annotations": [thing]}
    (tmp_path / "c.json").write_text(json.dumps(content))
    with pytest.raises(ImageError, match="the file says 65535×65535 pixels, the image has 8×6"):
        read_coco(tmp_path, tmp_path / "c.json").load_mask(0)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
    ],
)
def test_memory_that_runs_out_is_about_a_photo(error: Exception) -> None:
    wanted = pytest.raises(
        ImageError, match=r'"a\.jpg" needs more memory than there is; add --tile'
    )
    with wanted, enough_memory("a.jpg", "add --tile"):
        raise error
    with pytest.raises(RuntimeError, match="other"), enough_memory("a.jpg", ""):
        raise RuntimeError("other")


def test_memory_that_runs_out_in_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("tagmask.runs.run.open_catalog", fail)
    assert run("run", "--preset", "scenes", "--out", str(tmp_path / "run")) == 1
    assert "memory ran out; use a smaller --size or --batch, or --tile" in capsys.readouterr().err


NAMES = ["plain", "a b", "c\nd", "#e", "f#g"]


def test_names_that_lists_and_addresses_cannot_hold(tmp_path: Path) -> None:
    for name in NAMES:
        write_mask(tmp_path / f"{name}.png", np.ones((2, 2), np.uint8))
    catalog, damaged = Catalog(["cat"], NAMES, [[0]] * len(NAMES)), dict[str, str]()
    assert [
        item.name for item in from_folder(catalog, tmp_path, damaged, unusable=unlistable_name)
    ] == [
        "plain",
        "a b",
        "f#g",
    ]
    assert list(damaged) == ["c\nd", "#e"]
    write_label_studio(from_folder(catalog, tmp_path, {}), ["cat"], tmp_path / "t.json")
    urls = [
        task["data"]["image"].partition("d=photos/")[2]
        for task in json.loads((tmp_path / "t.json").read_text())
    ]
    assert urls == ["plain.jpg", "a%20b.jpg", "c%0Ad.jpg", "%23e.jpg", "f%23g.jpg"]


def command(*words: str, **how: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tagmask", *words], start_new_session=True, **how
    )


def hears_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize("seconds", [0.06, 0.1, 0.2, 0.4])
def test_ctrl_c_right_after_the_start(seconds: float, tmp_path: Path) -> None:
    words = ["run", "--preset", "scenes", "--out", str(tmp_path / "run"), "--count", "8"]
    process = command(
        *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=hears_ctrl_c
    )
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    _, printed = process.communicate(timeout=60)
    # before tagmask's own first line, Python itself may show a traceback or give up with code 1
    is_python_itself = b"init_import_site" in printed or b"Fatal Python error" in printed
    assert process.returncode in (130, -signal.SIGINT) or is_python_itself
    assert b"__main__.py" not in printed


@pytest.mark.skipif(os.name == "nt", reason="shells")
@pytest.mark.parametrize("closed", ["2>&-", "1>&-", "0<&-", "0<&- 1>&- 2>&-", "2>&1 | true"])
def test_closed_streams(closed: str, tmp_path: Path) -> None:
    small = "--preset scenes --count 4 --steps 1 --size 32 --batch 2"
    words = f"{sys.executable} -m tagmask train {small} --out {tmp_path}/run {closed}"
    result = subprocess.run(f"({words}); echo", shell=True, capture_output=True, timeout=120)
    assert b"Traceback" not in result.stdout + result.stderr
    assert "|" in closed or (tmp_path / "run/1_classifier/model.safetensors").is_file()
    assert all(
        b"step" not in file.read_bytes()[:200] for file in tmp_path.rglob("model.safetensors")
    )


def damage(file: Path, how: Callable[[bytes], bytes]) -> None:
    file.write_bytes(how(file.read_bytes()))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize(
    "how",
    [lambda _: b"", lambda data: data[: len(data) // 2], lambda _: b"[" * 100_000],
    ids=range(3),
)
def test_a_damaged_network(name: str, how: Callable[[bytes], bytes], tmp_path: Path) -> None:
    tiny_classifier().save(tmp_path)
    damage(tmp_path / name, how)
    with pytest.raises(TagmaskError):
        load(tmp_path)
    shutil.rmtree(tmp_path)
    with pytest.raises(TagmaskError, match="does not exist"):
        load(tmp_path)
