"""Kinds of mishaps that once did harm, one test or more for each; docs/explanation/safety.md lists them."""

import errno
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from accelerate.state import PartialState
from PIL import Image

from tagmask.cli import main
from tagmask.cli.streams import guarded_streams
from tagmask.cli.surroundings import check_surroundings
from tagmask.config import ExportSettings, PhotoSettings, PredictPhotoSettings, TrainSettings
from tagmask.data.catalog import Catalog
from tagmask.data.corrections import digest, read_labels
from tagmask.data.folder import read_folder
from tagmask.data.images import is_whole_mask, read_image, write_kept_mask, write_mask
from tagmask.data.tools import cvat_images
from tagmask.errors import (
    MOST_SHOWN,
    ImageError,
    OutputError,
    TagmaskError,
    message_of,
    printable,
)
from tagmask.exchange import label_studio_server
from tagmask.exchange.drawn import ellipse, rectangle
from tagmask.exchange.yolo import yaml_text
from tagmask.features.cache import TokenStore
from tagmask.files import (
    PARTIAL,
    collecting,
    only_one,
    reading,
    remove_temporaries_of,
    replacing,
    stamp_of,
    unwritable,
    write_json,
)
from tagmask.models.classifier import Classifier
from tagmask.runs.images import each_image
from tagmask.runs.record import Record, image_parts, mask_parts
from tagmask.stages import score
from tagmask.training.loop import make_accelerator
from tests.helpers import process_of, tiny_classifier
from tests.test_cli import run

needs_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes have no names here")
ODD = ["pipe", "link", "loop", "socket"]


def odd_file(folder: Path, kind: str) -> Path:
    """Make something at ``folder/odd`` that is no ordinary file."""
    path = folder / "odd"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        (folder / "mine.txt").write_text("mine")
        path.symlink_to(folder / "mine.txt")
    elif kind == "loop":
        path.symlink_to(path)
    else:
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(os.path.relpath(path))
    return path


# 1: what is no ordinary file is not replaced


@needs_pipes
@pytest.mark.parametrize("kind", ODD)
def test_only_ordinary_files_are_replaced(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = odd_file(tmp_path, kind)
    before = os.lstat(path)
    with pytest.raises(TagmaskError, match=r"choose another place|or another place"):
        write_json(path, {})
    assert os.lstat(path).st_mode == before.st_mode
    assert os.lstat(path).st_ino == before.st_ino
    assert sorted(file.name for file in tmp_path.iterdir() if file.suffix == PARTIAL) == []
    assert kind != "link" or (tmp_path / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("place", ["/dev/null", "/dev/stdout"])
@pytest.mark.skipif(not os.path.exists("/dev/null"), reason="there are no devices")
def test_devices_are_refused_before_anything_is_computed(place: str, tmp_path: Path) -> None:
    path = Path(place)
    assert unwritable(path)
    export: dict[str, Any] = {"out": tmp_path, "data": "scenes"}
    photo: dict[str, Any] = {"photo": tmp_path / "a.png", "model": tmp_path}
    settings: list[Any] = [
        ExportSettings(**export, to=path),
        ExportSettings(**export, onnx=path),
        PredictPhotoSettings(**photo, mask=path),
        PredictPhotoSettings(**photo, show=path),
        PhotoSettings(**photo, out=path),
        PhotoSettings(**photo, show=path),
    ]
    for each in settings:
        assert any(place in mistake for mistake in each.mistakes()), each


@needs_pipes
@pytest.mark.parametrize("kind", ODD)
def test_a_stage_ends_where_its_file_cannot_be_written(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image that was only skipped would leave a stage that looks done."""
    monkeypatch.chdir(tmp_path)
    odd_file(tmp_path, kind)
    catalog = Catalog(["cat"], ["odd"], [[0]])

    def work(_: int) -> None:
        write_mask(tmp_path / "odd", np.ones((3, 4), np.uint8))

    with pytest.raises(OutputError, match="odd is a"):
        each_image(work, catalog, [0], 1, "masks", True)


# 3: what was moved aside comes back


def kept_stage(out: Path) -> Record:
    record = Record(out / "5_segmenter", "model.safetensors")
    write_json(record.folder / "config.json", {"old": True})
    (record.folder / "model.safetensors").write_bytes(b"old")
    record.finish({"lr": 1})
    return record


def test_a_replacement_that_fails_leaves_the_old_network(tmp_path: Path) -> None:
    record = kept_stage(tmp_path)
    record.discard()
    record.begin({"lr": 2})
    (record.folder / "model.safetensors").write_bytes(b"half")
    record.restore()
    assert (record.folder / "model.safetensors").read_bytes() == b"old"
    assert record.status({"lr": 1}, {}).state == "done"


def test_a_kill_between_two_renames_leaves_the_old_network(tmp_path: Path) -> None:
    record = kept_stage(tmp_path)
    record.discard()  # and then a kill
    assert not record.folder.exists()
    assert record.status({"lr": 1}, {}).state == "done"
    assert (record.folder / "model.safetensors").read_bytes() == b"old"


# 4, 20, 21: the lock, who takes part in it, and links among the folders of a run


@needs_pipes
@pytest.mark.parametrize("kind", ODD)
def test_a_lock_that_is_no_ordinary_file(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    odd_file(tmp_path, kind).rename(tmp_path / ".tagmask.lock")
    with pytest.raises(TagmaskError, match="no lock of tagmask; remove it"), only_one(tmp_path):
        pass
    assert kind != "link" or (tmp_path / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("name", [".tagmask.lock", ".tagmask.123.456.lock"])
def test_a_lock_that_is_a_hard_link(name: str, tmp_path: Path) -> None:
    """To take a lock empties its file, under all its names."""
    (tmp_path / "mine.txt").write_text("mine")
    os.link(tmp_path / "mine.txt", tmp_path / name)
    with pytest.raises(TagmaskError, match="no lock of tagmask; move it"), only_one(tmp_path):
        pass
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_shared_lock_that_is_a_link(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / ".tagmask.123.456.lock").symlink_to(tmp_path / "mine.txt")
    with pytest.raises(TagmaskError, match="no lock of tagmask; remove it"), only_one(tmp_path):
        pass
    assert (tmp_path / "mine.txt").read_text() == "mine"


def hold(folder: str, shared: bool, begun: str) -> None:
    with only_one(Path(folder), shared):
        Path(begun).touch()
        time.sleep(600)


@pytest.fixture(params=[False, True], ids=["alone", "shared"])
def held(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, bool, int]]:
    """A run that another process holds, alone or with others."""
    out, begun = tmp_path / "run", tmp_path / "begun"
    process = process_of(hold, str(out), request.param, str(begun))
    process.start()
    end = time.monotonic() + 60
    while not begun.exists() and time.monotonic() < end:
        time.sleep(0.01)
    yield out, request.param, process.pid
    process.kill()
    process.join()


def test_who_may_come_in(held: tuple[Path, bool, int], tmp_path: Path) -> None:
    out, shared, pid = held
    wanted = rf"is in use by another tagmask \(process {pid}\)"
    with pytest.raises(TagmaskError, match=wanted), only_one(out):
        pass
    (tmp_path / "t.json").write_text("[]")
    words = ["--out", str(out), "--preset", "scenes", "--count", "4"]
    assert run("corrections", *words, "--from", str(tmp_path / "t.json")) == 1
    if shared:
        with reading(out), only_one(out, shared=True):
            pass
    else:
        with pytest.raises(TagmaskError, match=wanted), reading(out):
            pass
    assert not (out / "corrections").exists()


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    for shared in (False, True):
        begun = tmp_path / f"begun{shared}"
        process = process_of(hold, str(tmp_path / "run"), shared, str(begun))
        process.start()
        while not begun.exists():
            time.sleep(0.01)
        process.kill()
        process.join()
    with only_one(tmp_path / "run"):
        pass
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.parametrize("place", ["2_seeds", "4_pseudo/sub", "corrections", "0_tokens"])
def test_folders_of_a_run_that_are_links(place: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "run" / place
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TagmaskError, match=f"{place} is a link"), only_one(tmp_path / "run"):
        pass
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_no_lock_is_needed_to_read_a_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with reading(tmp_path):
        assert list(tmp_path.iterdir()) == []


# 6, 7: files of the user that change at equal size


def photos(folder: Path) -> Catalog:
    for name in "ab":
        (folder / "photos").mkdir(exist_ok=True)
        Image.new("RGB", (4, 3), (name == "a") * 255).save(folder / f"photos/{name}.bmp")
        write_mask(folder / f"{name}.png", np.ones((3, 4), np.uint8))
    files = [folder / f"photos/{name}.bmp" for name in "ab"]
    masks = [folder / f"{name}.png" for name in "ab"]
    return Catalog(["cat"], ["a", "b"], [[0], [0]], images=files, masks=masks)


@pytest.mark.parametrize("settled", [0.0, 2.0], ids=["old files", "new files"])
def test_a_photo_changed_at_equal_size_counts(
    settled: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tagmask.files._SETTLED", settled)
    catalog = photos(tmp_path)
    before = image_parts(catalog, tmp_path)
    assert image_parts(catalog, tmp_path) == before
    photo = tmp_path / "photos/a.bmp"
    status = photo.stat()
    photo.write_bytes(photo.read_bytes()[:-9] + b"123456789")
    os.utime(photo, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert photo.stat().st_size == status.st_size
    after = image_parts(catalog, tmp_path)
    assert after != before
    changed = [name for name in before if after[name] != before[name]]
    assert changed == ["input contents of images"]


@pytest.mark.parametrize("what", ["a mask", "the annotations"])
def test_truth_changed_at_equal_size_counts(what: str, tmp_path: Path) -> None:
    catalog = photos(tmp_path)
    annotations = tmp_path / "coco.json"
    annotations.write_text('{"x": 1}')
    settings: Any = SimpleNamespace(annotations=annotations)
    before = mask_parts(settings, catalog, tmp_path)
    assert mask_parts(settings, catalog, tmp_path) == before
    file = tmp_path / "a.png" if what == "a mask" else annotations
    status = file.stat()
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    after = mask_parts(settings, catalog, tmp_path)
    assert [name for name in before if after[name] != before[name]] == ["input contents of masks"]


def test_only_files_that_changed_are_hashed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tagmask.files._SETTLED", 0.0)
    catalog = photos(tmp_path)
    hashed: list[str] = []

    def hashing(path: str) -> str:
        hashed.append(Path(path).name)
        return "x"

    monkeypatch.setattr("tagmask.runs.contents.content_digest", hashing)
    image_parts(catalog, tmp_path)
    image_parts(catalog, tmp_path)
    assert sorted(hashed) == ["a.bmp", "b.bmp"]
    os.utime(tmp_path / "photos/b.bmp")
    image_parts(catalog, tmp_path)
    assert sorted(hashed) == ["a.bmp", "b.bmp", "b.bmp"]
    (tmp_path / ".contents.json").write_text('{"images": {"a": 3}}')
    image_parts(catalog, tmp_path)
    assert len(hashed) == 5


def test_the_clock_jumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file from the future is always in doubt, and one from long ago never is."""
    file = tmp_path / "a"
    file.write_bytes(b"1")
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now - 1e6)
    assert stamp_of(file) is None
    monkeypatch.setattr("time.time", lambda: now + 1e6)
    assert stamp_of(file) is not None


# 8, 15, 16: caches


@pytest.mark.parametrize("part", [0.2, 0.5, 0.8])
def test_a_flipped_byte_in_kept_labels(part: float, tmp_path: Path) -> None:
    labels = np.random.default_rng(0).integers(0, 4, (20, 30), dtype=np.uint8)
    file = tmp_path / "a.png"
    write_kept_mask(file, labels)
    assert is_whole_mask(file)
    whole = file.read_bytes()
    start = whole.index(b"IDAT")
    place = start + int(part * (len(whole) - start - 30))
    file.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
    assert not is_whole_mask(file)
    write_kept_mask(file, labels)
    other = tmp_path / "b.png"
    write_mask(other, labels)
    assert is_whole_mask(other)  # of an earlier version


@needs_pipes
def test_a_cache_that_cannot_be_read_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tagmask.data.scenes.catalog import Scenes

    model, scenes = tiny_classifier().eval(), Scenes(1)
    store = TokenStore.features_of(model, (1,), 48, tmp_path, 1.0)
    fresh = store.get(scenes, 0)
    file = next(tmp_path.rglob("*.safetensors"))
    file.unlink()
    os.mkfifo(file)  # reading it would never end
    again = TokenStore.features_of(model, (1,), 48, tmp_path, 1.0)
    assert torch.equal(again.get(scenes, 0).values, fresh.values)

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr("tagmask.features.cache.safe_open", fail)
    monkeypatch.setattr("tagmask.features.cache.write_json", fail)
    monkeypatch.setattr("tagmask.features.cache.replacing", fail)
    broken = TokenStore.features_of(model, (1,), 48, tmp_path, 1.0)
    assert torch.equal(broken.get(scenes, 0).values, fresh.values)


# 5, 10, 11, 12, 13: what comes from other tools and from the user


@pytest.fixture
def cvat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], int]:
    """Take over corrections from CVAT: the first photo is right, the second has some run lengths."""
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        (tmp_path / "photos").mkdir(exist_ok=True)
        Image.new("RGB", (4, 3)).save(tmp_path / f"photos/{name}.png")
    (tmp_path / "tags.csv").write_text("file,tags\na.png,cat\nb.png,cat\n")
    (tmp_path / "run").mkdir()

    def take(rle: str) -> int:
        box = 'label="cat" left="0" top="0" width="4" height="3" z_order="0"'
        images = [
            f'<image name="{name}.png" width="4" height="3"><mask {box} rle="{runs}"/></image>'
            for name, runs in (("a", "0,12"), ("b", rle))
        ]
        (tmp_path / "c.xml").write_text(f"<annotations>{''.join(images)}</annotations>")
        data = ("--data", "folder", "--images", "photos", "--tags", "tags.csv")
        return run("corrections", "--out", "run", *data, "--from", "c.xml")

    return take


@pytest.mark.parametrize(
    "rle",
    [
        "9223372036854775807,9223372036854775807,14",
        "4611686018427387904,4611686018427387904,4611686018427387904,4611686018427387904,12",
        "-5,17",
        "1" * 5000,
        "x",
        "",
        "11",
    ],
    ids=range(7),
)
def test_run_lengths_that_do_not_fit(
    rle: str, cvat: Callable[[str], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is written if one photo of many is wrong."""
    assert cvat(rle) == 1
    assert "c.xml" in capsys.readouterr().err
    assert not (tmp_path / "run/corrections").exists()
    assert cvat("3,9") == 0
    assert len(list((tmp_path / "run/corrections").glob("*.png"))) == 2


@needs_pipes
def test_a_pipe_among_the_corrections(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    assert digest(tmp_path, "a") == ""
    with pytest.raises(ImageError, match="pipe"):
        read_labels(tmp_path, "a", 3)


@needs_pipes
@pytest.mark.parametrize("name", ["p.zip", "p.xml", "p.json", "p.csv", "p.jsonl"])
@pytest.mark.parametrize("flag", ["--from", "--tags"])
def test_a_pipe_in_the_place_of_a_file(
    name: str, flag: str, cvat: Callable[[str], int], capsys: pytest.CaptureFixture[str]
) -> None:
    """It is refused before it is opened: that would wait for somebody who writes."""
    assert cvat("3,9") == 0
    os.mkfifo(name)
    words = ["--data", "folder", "--images", "photos", flag, name, "--out", "run"]
    command = ["run"] if flag == "--tags" else ["corrections", "--tags", "tags.csv"]
    if name in ("p.csv", "p.jsonl") and flag == "--from":
        pytest.skip("no corrections come as such a file")
    assert run(*command, *words) == 1
    assert f"{name} cannot be read (a folder, pipe" in capsys.readouterr().err


@needs_pipes
@pytest.mark.parametrize(("form", "to"), [("label-studio", "t.json"), ("table", "t.csv")])
def test_a_pipe_in_the_place_of_a_second_output(
    form: str, to: str, masks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("t.xml", "t.summary.csv"):
        os.mkfifo(masks / name)
    assert export(form, to) == 1
    assert "choose another place" in capsys.readouterr().err


def test_a_log_that_is_a_link_is_not_written_through(tmp_path: Path) -> None:
    from tagmask.training.loop import Loop

    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "log.jsonl").symlink_to(tmp_path / "mine.txt")
    trainer: Any = SimpleNamespace(is_main=True, folder=tmp_path, step=1)
    with pytest.raises(OutputError, match="is a link"):
        Loop._log(trainer, {"loss": 1.0})
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_half_a_zip(tmp_path: Path) -> None:
    file = tmp_path / "c.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("annotations.xml", "<annotations><image/></annotations>")
    file.write_bytes(file.read_bytes()[:60])
    with pytest.raises(TagmaskError, match=r"not a zip file.*export it from CVAT again"):
        cvat_images(file)


def test_a_zip_whose_content_is_damaged(tmp_path: Path) -> None:
    file = tmp_path / "c.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("annotations.xml", "<annotations><image/></annotations>" * 50)
    data = bytearray(file.read_bytes())
    start = data.index(b"annotations.xml") + len(b"annotations.xml")
    data[start : start + 8] = b"\xff" * 8
    file.write_bytes(data)
    with pytest.raises(TagmaskError, match=r"c\.zip cannot be read"):
        cvat_images(file)


def test_a_palette_picture_without_a_palette(tmp_path: Path) -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    head = struct.pack(">IIBBBBB", 4, 3, 8, 3, 0, 0, 0)
    rows = zlib.compress(b"\0\1\2\3\4" * 3)
    content = chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + content)
    with pytest.raises(ImageError, match=r"a\.png has pixels of kind P"):
        read_image(tmp_path / "a.png")


# 14: clients that go away


def test_a_client_that_resets_prints_nothing(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tagmask.config import ServeSettings

    class Slow:
        def answer(self, path: str, request: dict[str, Any]) -> dict[str, Any]:
            time.sleep(0.2)
            return {"x": "y" * 10_000_000}

    settings = ServeSettings(out=Path("x"), label_studio=True, port=0)
    backend: Any = Slow()
    server = label_studio_server._Server(settings, backend, b"")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for _ in range(3):
        client = socket.create_connection(("127.0.0.1", server.server_port))
        head = "POST /predict HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 2"
        client.sendall(f"{head}\r\n\r\n{{}}".encode())
        # with this setting a close is a reset
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    time.sleep(0.6)
    server.shutdown()
    server.server_close()
    assert capfd.readouterr().err == ""


# 17: too little memory for torch itself


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory")
@pytest.mark.parametrize("megabytes", [200, 300])
def test_too_little_memory_to_load_a_library(megabytes: int, tmp_path: Path) -> None:
    limit = megabytes << 20
    code = (
        f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit}));"
        "import sys; from tagmask.__main__ import main;"
        f"sys.argv = ['tagmask', 'train', '--preset', 'scenes', '--out', {str(tmp_path)!r}]; main()"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120)
    assert result.returncode == 1, result.stderr.decode()[-2000:]
    assert b"Traceback" not in result.stderr
    assert result.stderr.splitlines()[-1].startswith(b"error: ")


def test_a_network_that_does_not_fit_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is not to blame."""
    tiny_classifier().save(tmp_path / "net")

    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9")

    monkeypatch.setattr("tagmask.models.classifier.Classifier.build", fail)
    with pytest.raises(RuntimeError, match="allocate memory"):
        Classifier.load(tmp_path / "net")


# 18, 19: exports that are repeated or were stopped, and what they leave


@pytest.fixture
def masks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Photos and their masks in a run."""
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        (tmp_path / "photos").mkdir(exist_ok=True)
        Image.new("RGB", (8, 6)).save(tmp_path / f"photos/{name}.jpg")
        write_mask(tmp_path / f"run/6_predictions/{name}.png", np.ones((6, 8), np.uint8))
    (tmp_path / "tags.csv").write_text("file,tags\na.jpg,cat\nb.jpg,cat\n")
    return tmp_path


FOLDERS = ["index", "ultralytics", "yolo-seg", "fiftyone", "huggingface", "xanylabeling", "voc"]


def export(form: str, to: str = "to") -> int:
    data = ("--data", "folder", "--images", "photos", "--tags", "tags.csv")
    return run("export", "--out", "run", *data, "--format", form, "--to", to)


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.mark.parametrize("form", FOLDERS)
def test_an_export_that_was_stopped_is_repeated(
    form: str, masks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert export(form, "whole") == 0
    replace = os.replace
    count = 0

    def stop(*paths: Any) -> None:
        nonlocal count
        count += 1
        if count == (4 if form == "voc" else 3):  # a VOC export has copied a photo then
            raise KeyboardInterrupt
        replace(*paths)

    monkeypatch.setattr(os, "replace", stop)
    assert export(form) == 130
    monkeypatch.setattr(os, "replace", replace)
    assert json.loads((masks / "to/made_by.json").read_text())["complete"] is False
    (masks / "to/mine.txt").write_text("mine")
    assert export(form) == 0
    assert contents(masks / "to") == contents(masks / "whole") | {"mine.txt": b"mine"}


def test_a_path_of_a_thousand_folders(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def deep(_: list[str]) -> None:
        raise RecursionError("maximum recursion depth exceeded")

    monkeypatch.setattr("tagmask.cli._dispatch", deep)
    main_error(["export"])
    assert "nested too deep" in capsys.readouterr().err


def test_half_a_note_does_not_stop_an_export(masks: Path) -> None:
    """A power cut while the note is written leaves only its temporary file."""
    to = masks / "to"
    to.mkdir()
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], text=True, capture_output=True
    )
    process = gone.stdout.strip()
    short = f"{zlib.crc32(b'made_by.json'):08x}"
    half = to / f"{short}.{process}.1.partial"
    half.write_bytes(b"{")
    assert export("yolo-seg") == 0
    assert not half.exists()


@pytest.mark.parametrize(
    ("form", "to", "second"),
    [("table", "to.csv", "to.summary.csv"), ("label-studio", "to.json", "to.xml")],
)
def test_what_a_kill_left_of_the_second_file_goes(
    masks: Path, form: str, to: str, second: str
) -> None:
    dead = process_of(time.sleep, 0)
    dead.start()
    dead.join()
    short = f"{zlib.crc32(second.encode()):08x}"
    half = masks / f"{short}.{dead.pid}.{dead.pid}{PARTIAL}"
    half.write_text("x")
    assert export(form, to) == 0
    assert (masks / second).is_file()
    assert not half.exists()


def test_files_of_an_earlier_export_go_and_those_of_the_user_stay(masks: Path) -> None:
    assert export("index") == 0
    (masks / "to/masks/mine.png").write_bytes(b"mine")
    note = json.loads((masks / "to/made_by.json").read_text())
    note["files"] += ["../photos/a.jpg", "/etc/hostname", "masks/gone.png"]
    (masks / "to/made_by.json").write_text(json.dumps(note))
    (masks / "run/6_predictions/b.png").unlink()
    assert export("index") == 0
    names = sorted(path.name for path in (masks / "to").rglob("*.png"))
    assert names == ["a.png", "mine.png"]
    assert (masks / "photos/a.jpg").exists()
    assert export("yolo-seg") == 1  # of another format


def test_what_a_kill_left_half_written_goes(tmp_path: Path) -> None:
    target = tmp_path / "to.json"
    with replacing(target) as partial:
        partial.write_text("1")
        name = partial.name
    short = name.partition(".")[0]
    dead = process_of(time.sleep, 0)
    dead.start()
    dead.join()
    ours = tmp_path / f"{short}.{dead.pid}.{dead.pid}{PARTIAL}"
    alive = tmp_path / f"{short}.{os.getpid()}.1{PARTIAL}"
    others = tmp_path / f"00000000.{dead.pid}.1{PARTIAL}"
    mine = tmp_path / f"film{PARTIAL}"
    for file in (ours, alive, others, mine):
        file.write_text("x")
    remove_temporaries_of(target)
    assert not ours.exists()
    assert alive.exists() and others.exists() and mine.exists()  # noqa: PT018
    run_folder = tmp_path / "run"
    for folder in ("", "1_classifier", "corrections/sub"):
        (run_folder / folder).mkdir(parents=True, exist_ok=True)
        (run_folder / folder / ours.name).write_text("x")
        (run_folder / folder / mine.name).write_text("x")
    (run_folder / "mine").mkdir()
    (run_folder / "mine" / ours.name).write_text("x")
    with only_one(run_folder):
        pass
    left = sorted(str(path.relative_to(run_folder)) for path in run_folder.rglob(f"*{PARTIAL}"))
    assert left == sorted(
        [
            f"1_classifier/{mine.name}",
            f"corrections/sub/{mine.name}",
            mine.name,
            f"mine/{ours.name}",
        ]
    )


def test_what_was_written_is_collected(tmp_path: Path) -> None:
    write_json(tmp_path / "before.json", 1)
    with collecting() as outer:
        write_json(tmp_path / "a.json", 1)
        with pytest.raises(ValueError, match="no"), replacing(tmp_path / "b.json"):
            raise ValueError("no")
    assert outer == [tmp_path / "a.json"]


# 9, 22, 23, 24: what reaches lists, terminals and pages


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85", "\x1b", "\n", "\x00", "\x9b"])
def test_class_names_that_lists_cannot_hold(mark: str) -> None:
    with pytest.raises(TagmaskError, match="line break or control character"):
        Catalog([f"a{mark}b"], ["x"], [[0]])
    assert mark not in yaml_text(f"a{mark}b")
    assert mark not in printable(f"a{mark}b")


def test_names_cannot_command_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "\x1b]0;owned\x07\x1b[2J\u202egnp.\x9b31m"
    main_error(["predict", f"{name}.jpg", "--model", str(tmp_path / name)])
    printed = capsys.readouterr().err
    assert not set(printed) & set("\x1b\x07\x9b\u202e")
    assert "\\x1b[2J" in printed
    with guarded_streams():
        print(name)
        sys.stderr.write("\r\x1b[A")  # a progress bar goes up
    out, err = capsys.readouterr()
    assert not set(out) & set("\x1b\x07\x9b\u202e")
    assert err == "\r\x1b[A"


def main_error(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 1


def test_python_warnings_are_not_for_users(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "warnoptions", [])
    with guarded_streams():
        warnings.warn("for developers", stacklevel=1)
    assert "for developers" not in capsys.readouterr().err


def test_long_messages_are_cut(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert len(message_of(ValueError("x" * 200_000))) < MOST_SHOWN + 50
    label_studio_server._print_fault(f"task {'x' * 200_000!r}: not found")
    assert len(capsys.readouterr().err) < MOST_SHOWN + 50
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    (tmp_path / "t.csv").write_text("file,tags\na.png,background\n" + f"{'y' * 100_000}.png,cat\n")
    main_error(["run", "--data", "folder", "--images", str(tmp_path), "--tags",
                str(tmp_path / "t.csv"), "--out", str(tmp_path / "run")])  # fmt: skip
    assert len(capsys.readouterr().err) < MOST_SHOWN + 100


def test_numbers_in_messages_are_plain(tmp_path: Path) -> None:
    Image.fromarray(np.full((2, 2), 7, np.uint8)).save(tmp_path / "a.png")
    with pytest.raises(ImageError) as told:
        read_labels(tmp_path, "a", 3)
    assert "np." not in str(told.value)
    with pytest.raises(TagmaskError) as refused:
        Catalog(["a"], ["x"], [np.array([np.int64(4)])])
    assert "np." not in str(refused.value)


def test_a_table_that_cannot_be_used_names_its_lines_briefly(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    (tmp_path / "t.json").write_text(json.dumps([{"file": "a.png", "tags": [1] * 50_000}]))
    with pytest.raises(TagmaskError) as told:
        read_folder(tmp_path, tmp_path / "t.json")
    assert len(message_of(told.value)) < MOST_SHOWN + 50


@pytest.mark.parametrize(
    ("name", "value"),
    [("RANK", "abc"), ("WORLD_SIZE", "two"), ("LOCAL_RANK", "x"), ("LOCAL_WORLD_SIZE", ""),
     ("RANK", "5"), ("WORLD_SIZE", "0x2")],
)  # fmt: skip
def test_numbers_of_a_launch_that_are_none(
    name: str,
    value: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(name, value)
    main_error(["presets"])
    told = capsys.readouterr().err
    assert f"{name}={value}" in told
    assert "unset" in told


@pytest.mark.parametrize("world", ["2", "9" * 30])
def test_a_launch_that_nobody_started(
    world: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable that was left in the shell: accelerate would end with a traceback."""
    # accelerate itself changes the environment
    monkeypatch.setattr(os, "environ", os.environ.copy())
    os.environ |= {"WORLD_SIZE": world, "RANK": "0"}
    os.environ.pop("MASTER_ADDR", None)
    PartialState._reset_state()
    with pytest.raises(TagmaskError, match="unset RANK WORLD_SIZE"):
        make_accelerator(TrainSettings(), tmp_path)
    PartialState._reset_state()


def test_variables_of_libraries_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "nonsense")
    check_surroundings()
    assert os.environ["MPLBACKEND"] == "agg"
    # this one is read when its library is loaded, so another process loads it
    code = "from tagmask.cli.surroundings import check_surroundings; check_surroundings()"
    surroundings = {name: value for name, value in os.environ.items() if "TQDM" not in name}
    surroundings["TQDM_MININTERVAL"] = "abc"
    bars = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=surroundings
    )
    assert "TagmaskError: the environment sets TQDM_MININTERVAL" in bars.stderr


def test_a_table_with_a_column_for_each_of_100000_classes(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    names = ",".join(f"c{number}" for number in range(100_000))
    (tmp_path / "t.csv").write_text(f"file,{names}\na.png{',1' * 100_000}\n")
    began = time.process_time()
    with pytest.raises(TagmaskError, match="there are 100000 classes"):
        read_folder(tmp_path, tmp_path / "t.csv")
    # it took minutes when each name was looked for among those before it
    assert time.process_time() - began < 20


@pytest.mark.parametrize("size", [(-5.0, 3.0), (3.0, float("nan")), (1e300, 2.0)])
def test_regions_of_impossible_sizes(size: tuple[float, float]) -> None:
    """They marked nothing, so that the whole photo became background, or everything."""
    with pytest.raises(ValueError, match="a rectangle needs sides"):
        rectangle((1.0, 1.0), size, 0.0, (8, 8))
    with pytest.raises(ValueError, match="an ellipse needs radii"):
        ellipse((4.0, 4.0), size, 0.0, (8, 8))


def test_scores_keep_nothing_that_no_stage_wrote(tmp_path: Path) -> None:
    """What somebody else put into scores.json went on to every later one."""
    (tmp_path / "scores.json").write_text('{"step": [], "pseudo": {"images": 2}}')
    score._add_scores(tmp_path, {})
    assert json.loads((tmp_path / "scores.json").read_text()) == {"pseudo": {"images": 2}}
