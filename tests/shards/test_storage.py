"""Addresses: what passes is waited for, what lasts is told, nothing arrives in halves."""

import errno
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from fsspec.registry import _registry

from tagmask.errors import TagmaskError
from tagmask.shards import storage
from tagmask.shards.storage import Folder, child, is_address, shown, split_address
from tests.shards.shop import Flaky


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(storage, "FIRST_WAIT", 0.0)
    Flaky.store.clear()
    yield
    Flaky.store.clear()


def fail_first(times: int, error: Exception) -> mock.Mock:
    """Trouble that passes after some attempts of each operation on each path."""
    seen: dict[tuple[str, str], int] = {}

    def trouble(operation: str, path: str) -> None:
        key = (operation, path)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] <= times:
            raise error

    return mock.Mock(side_effect=trouble)


@pytest.mark.parametrize("address", ["{tmp}", "file://{tmp}", "memory://room/{tmp}", "flaky://x"])
def test_files_go_there_and_back(address: str, tmp_path: Path) -> None:
    folder = Folder(address.format(tmp=tmp_path))
    assert folder.list() == {}
    assert folder.find("a/b.tar") is None
    assert folder.read_json("n.json") is None
    folder.put("a/b.tar", io.BytesIO(b"content"))
    folder.put_json("n.json", {"é": 1})
    assert list(folder.list()) == ["a/b.tar", "n.json"]
    assert list(folder.list(".tar")) == ["a/b.tar"]
    assert folder.list()["a/b.tar"].size == 7
    assert folder.read_json("n.json") == {"é": 1}
    with folder.copy("a/b.tar") as file:
        assert file.read() == b"content"
    with pytest.raises(TagmaskError, match="more than 3"):
        folder.read("a/b.tar", 3)
    folder.remove("n.json")
    folder.remove("n.json")
    assert list(folder.list()) == ["a/b.tar"]
    with pytest.raises(TagmaskError, match="does not exist"):
        folder.copy("none.tar")


def test_a_storage_that_does_not_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder("flaky://room")
    unavailable = OSError(errno.EBUSY, "503 Slow Down")
    monkeypatch.setattr(Flaky, "trouble", fail_first(2, unavailable))
    folder.put("a.tar", io.BytesIO(b"1234"))
    assert list(folder.list()) == ["a.tar"]
    with folder.copy("a.tar") as file:
        assert file.read() == b"1234"
    monkeypatch.setattr(Flaky, "trouble", fail_first(99, unavailable))
    with pytest.raises(TagmaskError, match=r"failed 6 times .*503 Slow Down.*resume"):
        folder.list()


def test_waits_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(storage, "FIRST_WAIT", 1.0)
    monkeypatch.setattr("tagmask.shards.storage.time.sleep", waits.append)
    monkeypatch.setattr(Flaky, "trouble", fail_first(5, OSError("503")))
    Folder("flaky://room").list()
    assert len(waits) == 5
    for place, wait in enumerate(waits):
        assert 0.5 * 2**place <= wait <= 2**place


def test_a_read_that_is_cut_off_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder("flaky://room")
    folder.put("a.tar", io.BytesIO(b"1234567"))
    reads: list[str] = []

    def cut(path: str) -> int | None:
        reads.append(path)
        return 3 if len(reads) % 3 else None

    monkeypatch.setattr(Flaky, "cut", staticmethod(cut))
    with folder.copy("a.tar") as file:
        assert file.read() == b"1234567"
    assert folder.read("a.tar", 100) == b"1234567"
    assert len(reads) == 6
    monkeypatch.setattr(Flaky, "cut", staticmethod(lambda path: 3))
    with pytest.raises(TagmaskError, match="3 of 7 bytes arrived"):
        folder.copy("a.tar")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (PermissionError("Forbidden"), "access is denied .*may list, read and write"),
        (FileNotFoundError("The specified bucket does not exist"), "does not exist .*bucket"),
        (type("NoCredentialsError", (Exception,), {})("Unable to locate"), "no credentials"),
        (OSError("Anonymous caller: no credentials"), "no credentials"),
        (IsADirectoryError("x"), "cannot be used"),
    ],
)
def test_what_lasts_is_told_at_once(
    error: Exception, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble = fail_first(99, error)
    monkeypatch.setattr(Flaky, "trouble", trouble)
    with pytest.raises(TagmaskError, match=sentence):
        Folder("flaky://room").put("a", io.BytesIO(b"x"))
    assert trouble.call_count == 1


@pytest.mark.parametrize(("kind", "package"), [("s3", "s3fs"), ("gs", "gcsfs")])
def test_a_missing_extra_is_named(kind: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    # a kind that was used before is not imported again
    monkeypatch.delitem(_registry, kind, raising=False)
    extra = {"s3": "s3", "gs": "gcs"}[kind]
    with pytest.raises(TagmaskError, match=rf"{kind}://room.*pip install 'tagmask\[{extra}\]'"):
        Folder(f"{kind}://room/{kind}").list()


def test_an_unknown_kind_of_address_is_told() -> None:
    with pytest.raises(TagmaskError, match="nowhere:// is no address that is known"):
        Folder("nowhere://room").list()


def test_passwords_are_not_shown() -> None:
    assert shown("ftp://me:secret@host/x") == "ftp://…@host/x"
    assert "secret" not in str(Folder("ftp://me:secret@host/x"))


def test_addresses_and_paths() -> None:
    assert is_address("s3://b/x")
    assert not is_address("c:/photos")
    assert not is_address("photos")
    assert split_address("s3://b/x/m.csv") == ("s3://b/x", "m.csv")
    assert child("s3://b/x/", "a.tar") == "s3://b/x/a.tar"


def test_a_note_that_is_no_note_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "n.json").write_text("{")
    (tmp_path / "m.json").write_text("[1]")
    assert Folder(str(tmp_path)).read_json("n.json") is None
    assert Folder(str(tmp_path)).read_json("m.json") is None
