"""A shard is done when its note is there and fits; whatever happens before, it is not."""

import errno
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tagmask.errors import TagmaskError
from tagmask.shards import storage
from tagmask.shards.engines import run_job
from tagmask.shards.source import open_shards
from tagmask.shards.storage import Folder
from tagmask.shards.tasks import ImageTask
from tagmask.shards.work import Job
from tests.shards.shop import (
    Flaky,
    files_at,
    files_in,
    jpeg,
    photos,
    put_shards,
    tar,
    write_shards,
)

ROWS: Any = SimpleNamespace(rows=10, root=None)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(storage, "FIRST_WAIT", 0.0)
    Flaky.store.clear()
    yield
    Flaky.store.clear()


class Counting(ImageTask):
    """Copies, and counts what it has seen."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def members(self, sample: Any) -> list[tuple[str, bytes]]:
        self.seen.append(sample.key)
        return super().members(sample)


def do(source: str, to: str, part: str | None = None, **options: Any) -> tuple[str, list[str]]:
    """Do a job, and return its summary and the images that were seen."""
    task = Counting()
    parts = {"images": options.pop("images", 1)}
    job = Job(task, open_shards(source, ROWS), Folder(to), parts, options.pop("restart", False))
    return run_job(job, title="x", shard=part, processes=1), task.seen


@pytest.mark.parametrize("count", [1, 2, 4])
def test_parts_together_make_the_files_of_one(count: int, tmp_path: Path) -> None:
    source = str(write_shards(tmp_path / "in", shards=5))
    do(source, str(tmp_path / "one"))
    for part in range(count):
        do(source, str(tmp_path / "parts"), f"{part}/{count}")
    assert files_in(tmp_path / "parts") == files_in(tmp_path / "one")
    assert len(files_in(tmp_path / "one")) == 11  # a tar and a note each, and who made them


def test_a_launched_process_takes_its_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = str(write_shards(tmp_path / "in", shards=3, images=1))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    _, seen = do(source, str(tmp_path / "to"))
    assert seen == ["p001"]


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    source, to = str(write_shards(tmp_path / "in")), str(tmp_path / "to")
    summary, seen = do(source, to)
    assert summary == f"images: 3 shards made (12 images), 0 already there, in {to}"
    summary, seen = do(source, to)
    assert (seen, "3 already there" in summary) == ([], True)
    # an input that changed is done again, one that was merely copied is not
    (tmp_path / "in/s1.tar").write_bytes(tar(photos(2, first=50)))
    (tmp_path / "in/s2.tar").write_bytes((tmp_path / "in/s2.tar").read_bytes())
    assert do(source, to)[1] == ["p050", "p051"]
    # a result that was lost or cut off is done again
    (tmp_path / "to/s0.tar").unlink()
    (tmp_path / "to/s2.tar").write_bytes(b"short")
    assert do(source, to)[1] == [f"p{number:03}" for number in (0, 1, 2, 3, 8, 9, 10, 11)]
    # --restart does all
    assert len(do(source, to, restart=True)[1]) == 10


def test_an_input_of_the_same_size_with_other_pixels_is_done_again(tmp_path: Path) -> None:
    source, to = write_shards(tmp_path / "in", shards=1), str(tmp_path / "to")
    do(str(source), to)
    content = bytearray((source / "s0.tar").read_bytes())
    place = content.index(jpeg(0)) + 100
    content[place] ^= 255
    (source / "s0.tar").write_bytes(content)
    assert len(do(str(source), to)[1]) == 4


def test_other_settings_are_refused(tmp_path: Path) -> None:
    source, to = str(write_shards(tmp_path / "in")), str(tmp_path / "to")
    do(source, to)
    before = files_in(tmp_path / "to")
    with pytest.raises(TagmaskError, match=r"images was 1 and is now 2.*--restart"):
        do(source, to, images=2)
    assert files_in(tmp_path / "to") == before
    do(source, to, images=2, restart=True)
    assert json.loads((tmp_path / "to/s0.note.json").read_text())["made_from"] == {"images": 2}


def test_files_of_others_are_not_replaced(tmp_path: Path) -> None:
    source = str(write_shards(tmp_path / "in"))
    (tmp_path / "to").mkdir()
    (tmp_path / "to/s1.tar").write_text("mine")
    with pytest.raises(TagmaskError, match=r"holds s1\.tar, which `tagmask` did not write"):
        do(source, str(tmp_path / "to"))
    assert files_in(tmp_path / "to") == {"s1.tar": b"mine"}
    (tmp_path / "to/s1.tar").rename(tmp_path / "to/made_by.json")
    with pytest.raises(TagmaskError, match=r"holds made_by\.json"):
        do(source, str(tmp_path / "to"))


class Killed(BaseException):
    """The process ends here."""


def test_an_end_at_any_operation_leaves_nothing_half_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of every operation on the storage in turn, the process ends before it; then it goes on."""
    put_shards("flaky://in", shards=2, images=2)
    do("flaky://in", str(tmp_path / "whole"))
    do("flaky://in", "flaky://whole")
    whole = files_at("flaky://whole")
    ends = 0
    while True:
        to = f"flaky://to{ends}"
        left = ends

        def trouble(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed

        monkeypatch.setattr(Flaky, "trouble", staticmethod(trouble))
        try:
            do("flaky://in", to)
            break
        except Killed:
            ends += 1
        finally:
            monkeypatch.setattr(Flaky, "trouble", staticmethod(lambda operation, path: None))
        now = files_at(to)
        for name, content in now.items():
            # whatever has a note is whole
            if name.endswith(".note.json"):
                data = name.replace(".note.json", ".tar")
                assert now[data] == whole[data]
                assert content == whole[name]
        do("flaky://in", to)
        assert files_at(to) == whole
    assert ends > 15


def test_an_end_in_the_middle_of_a_write_leaves_no_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half of the new data under the final name, as a careless storage keeps it: done again."""
    put_shards("flaky://in", shards=1)
    do("flaky://in", "flaky://to")
    whole = files_at("flaky://to")
    put_shards("flaky://in", shards=1, images=3)

    def trouble(operation: str, path: str) -> None:
        if operation == "write" and path.endswith(".note.json"):
            raise Killed

    monkeypatch.setattr(Flaky, "trouble", staticmethod(trouble))
    with pytest.raises(Killed):
        do("flaky://in", "flaky://to")
    # between data and note: the old note is gone, so that it does not vouch for the new data
    assert sorted(files_at("flaky://to")) == ["made_by.json", "s0.tar"]
    monkeypatch.setattr(Flaky, "trouble", staticmethod(lambda operation, path: None))
    put_shards("flaky://in", shards=1)
    do("flaky://in", "flaky://to")
    assert files_at("flaky://to") == whole


def test_trouble_that_passes_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    put_shards("flaky://in", shards=4)
    do("flaky://in", "flaky://calm")
    count = 0

    def trouble(operation: str, path: str) -> None:
        nonlocal count
        count += 1
        if count % 3 == 0:
            raise OSError(errno.EBUSY, "503 Slow Down")

    def cut(path: str) -> int | None:
        return 1000 if count % 5 == 1 and path.endswith(".tar") else None

    monkeypatch.setattr(Flaky, "trouble", staticmethod(trouble))
    monkeypatch.setattr(Flaky, "cut", staticmethod(cut))
    do("flaky://in", "flaky://stormy")
    monkeypatch.undo()
    assert files_at("flaky://stormy") == files_at("flaky://calm")


def test_a_damaged_shard_is_told_and_the_others_are_done(tmp_path: Path) -> None:
    source = write_shards(tmp_path / "in")
    content = (source / "s1.tar").read_bytes()
    (source / "s1.tar").write_bytes(content[: len(content) // 2])
    (source / "s3.tar").write_bytes(tar([("a.txt", b"x")]))
    with pytest.raises(TagmaskError) as told:
        do(str(source), str(tmp_path / "to"))
    message = str(told.value)
    assert "2 of 4 shards cannot be used; the others are done" in message
    assert "s1.tar is damaged" in message
    assert "s3.tar holds no image that can be used (a: it has no image" in message
    assert sorted(files_in(tmp_path / "to")) == [
        *("made_by.json", "s0.note.json", "s0.tar", "s2.note.json", "s2.tar"),
    ]


def test_memory_is_an_address(tmp_path: Path) -> None:
    put_shards("memory://in-work")
    do("memory://in-work", "memory://to-work")
    do(str(write_shards(tmp_path / "in")), str(tmp_path / "to"))
    assert files_at("memory://to-work") == files_in(tmp_path / "to")
