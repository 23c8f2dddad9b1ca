"""Systems that are not at hand: Windows, macOS, containers; their rules stand in for them."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tagmask import files
from tagmask.data.catalog import Catalog, refuse_clashes
from tagmask.data.folder import normal_path, read_folder
from tagmask.errors import TagmaskError
from tagmask.files import only_one, replacing, takes_for_same, write_json
from tagmask.runs import processes
from tagmask.runs.record import Record
from tagmask.training import loading

COMPOSED = "caf\u00e9"
DECOMPOSED = "cafe\u0301"


# Windows


def test_files_that_are_open_cannot_be_removed_or_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock works without its number in it, and its file may stay."""

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "it is open")

    monkeypatch.setattr(Path, "unlink", refuse)
    monkeypatch.setattr(Path, "write_text", refuse)
    with only_one(tmp_path):
        with pytest.raises(TagmaskError, match=r"in use by another tagmask \(process unknown\)"):
            only_one(tmp_path).__enter__()
        assert (tmp_path / ".tagmask.lock").exists()
    with only_one(tmp_path, shared=True), only_one(tmp_path, shared=True):
        pass


def test_a_file_that_another_program_holds_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_json(tmp_path / "a.json", 1)

    def refuse(source: Any, target: Any) -> None:
        raise PermissionError(errno.EACCES, "it is open", str(source))

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match=r"a\.json"):
        write_json(tmp_path / "a.json", 2)
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]
    assert (tmp_path / "a.json").read_text() == "1\n"


def test_folders_cannot_be_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def opened(path: Any, *rest: Any) -> int:
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, "a folder")
        return real(path, *rest)

    monkeypatch.setattr(os, "open", opened)
    write_json(tmp_path / "a.json", 1)
    assert (tmp_path / "a.json").read_text() == "1\n"


def test_a_process_is_not_asked_whether_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows the question would end it."""
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("it was asked"))
    monkeypatch.setattr(os, "name", "nt")
    assert files._lives(1)


def test_paths_with_backslashes(tmp_path: Path) -> None:
    assert normal_path(r"sub\a.png", tmp_path) == "sub/a.png"
    assert normal_path(r".\a.png", tmp_path) == "a.png"


# macOS


def disk_without_case(monkeypatch: pytest.MonkeyPatch) -> None:
    for room in ("tagmask.files", "tagmask.data.catalog"):
        monkeypatch.setattr(f"{room}.takes_for_same", lambda _: True)


def test_names_that_differ_in_case_or_accents_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for names in (["a", "A"], [COMPOSED, DECOMPOSED], ["x/a", "X/a"]):
        refuse_clashes(names, tmp_path)  # this disk tells them apart
    disk_without_case(monkeypatch)
    for names in (["a", "A"], [COMPOSED, DECOMPOSED], ["x/a", "X/a"]):
        with pytest.raises(TagmaskError, match="are the same name for the disk"):
            refuse_clashes(names, tmp_path)
        catalog = Catalog(["cat"], names, [[0], [0]])
        with pytest.raises(TagmaskError, match="rename one of the images"):
            Record(tmp_path / "2_seeds", "**/*.npz").claim({}, catalog, "seeds", False, [])
    refuse_clashes(["a", "b", "ab"], tmp_path)


def test_whether_a_disk_knows_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "Mixed"
    place.mkdir()
    assert not takes_for_same(place)
    assert not takes_for_same(place / "missing/sub")
    place.with_name("mIXED").mkdir()
    assert not takes_for_same(place)  # two folders
    monkeypatch.setattr(os.path, "samefile", lambda *_: True)
    assert takes_for_same(place)


@pytest.mark.parametrize(("on_disk", "listed"), [(DECOMPOSED, COMPOSED), (COMPOSED, DECOMPOSED)])
def test_a_table_may_write_accents_otherwise_than_the_disk(
    on_disk: str, listed: str, tmp_path: Path
) -> None:
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / f"photos/{on_disk}.png")
    for entry in (f"{listed}.png", f"{listed}.PNG", listed):
        (tmp_path / "t.csv").write_text(f"file,tags\n{entry},cat\n", encoding="utf-8")
        catalog = read_folder(tmp_path / "photos", tmp_path / "t.csv")
        assert [item.name for item in catalog] == [on_disk]
        assert catalog.load_image(0).shape == (4, 4, 3)


# containers, homes and clocks


def test_without_shared_memory_one_process_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    class Context:
        def Event(self) -> None:
            raise FileNotFoundError(errno.ENOENT, "no /dev/shm")

    monkeypatch.setattr(loading, "get_context", lambda _: Context())
    monkeypatch.setattr(processes, "pool", lambda *_: pytest.fail("processes are started"))
    loading.can_share.cache_clear()
    try:
        assert list(processes.each(abs, [-1, 2], 4)) == [1, 2]
        assert loading.loader([1, 2], workers=3).num_workers == 0
    finally:
        loading.can_share.cache_clear()


def test_a_home_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of tagmask's own goes there."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    with only_one(tmp_path / "run"):
        with replacing(tmp_path / "run/a.npz") as partial, partial.open("wb") as file:
            np.savez(file, a=np.ones(2))
        write_json(tmp_path / "run/done.json", {})
    assert list(home.iterdir()) == []
    shutil.rmtree(home)
    write_json(tmp_path / "run/done.json", {})


def test_clocks_that_jump_change_nothing(tmp_path: Path) -> None:
    """What is done is told by content; files may be of any time."""
    record = Record(tmp_path / "2_seeds", "**/*.npz")
    record.folder.mkdir()
    (record.folder / "a.npz").write_bytes(b"maps")
    record.finish({"size": 3})
    for when in (0, 1, 4e9):
        for file in record.folder.iterdir():
            os.utime(file, (when, when))
        assert record.status({"size": 3}, {}).state == "done"
    (record.folder / "a.npz").write_bytes(b"mops")
    os.utime(record.folder / "a.npz", (0, 0))
    assert record.status({"size": 3}, {}).state != "done"
