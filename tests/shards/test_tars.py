"""Tars from anywhere: read within bounds, named where they cannot be used, written the same each time."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from tagmask.shards import tars
from tagmask.shards.samples import Failures, Sample, ShardError, fault_of_key, key_of, split_name
from tagmask.shards.storage import Folder
from tagmask.shards.tars import TarWriter, read_tar, tar_shards
from tests.shards.shop import jpeg, photos, tar


def read(content: bytes) -> tuple[list[Sample], dict[str, str]]:
    failed = Failures()
    samples = list(read_tar(io.BytesIO(content), "x.tar", failed))
    return samples, failed.why


def member(name: str, content: bytes = b"", **fields: object) -> bytes:
    """A tar of one member with fields of its own, then a good photo."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        for key, value in fields.items():
            setattr(info, key, value)
        archive.addfile(info, io.BytesIO(content))
        good = tarfile.TarInfo("good.jpg")
        good.size = len(jpeg(1))
        archive.addfile(good, io.BytesIO(jpeg(1)))
    return buffer.getvalue()


def test_images_and_tags_come_in_order() -> None:
    samples, failed = read(tar(photos(3)))
    assert [sample.key for sample in samples] == ["p000", "p001", "p002"]
    assert [sample.tags() for sample in samples] == [("cat",), ("dog",), ("cat",)]
    assert samples[1].content == jpeg(1)
    assert samples[1].picture().shape == (12, 8, 3)
    assert not failed


def test_the_reader_of_webdataset_sees_the_same(tmp_path: Path) -> None:
    webdataset = pytest.importorskip("webdataset", reason="an independent reader of shards")
    with (tmp_path / "x.tar").open("wb") as file:
        writer = TarWriter(file)
        for name, content in photos(3):
            writer.add(f"day 1/{name}", content)
        writer.close()
    theirs = list(webdataset.WebDataset(str(tmp_path / "x.tar"), shardshuffle=False))
    ours, _ = read((tmp_path / "x.tar").read_bytes())
    assert [sample["__key__"] for sample in theirs] == [sample.key for sample in ours]
    assert [sample["jpg"] for sample in theirs] == [sample.content for sample in ours]
    assert [sample["json"] for sample in theirs] == [sample.about for sample in ours]


def test_names_are_cut_as_webdataset_cuts_them() -> None:
    assert split_name("a/b.seg.png") == ("a/b", ".seg.png")
    assert split_name("./a.b/c.jpg") == ("a.b/c", ".jpg")
    assert key_of("a.b/c.1.jpg") == "a.b/c_1"


@pytest.mark.parametrize(
    "name", ["/etc/passwd.jpg", "../up.jpg", "a/../../b.jpg", "a//b.jpg", "a\nb.jpg", "c:/x.jpg"]
)
def test_names_that_lead_out_are_named_and_left_out(name: str) -> None:
    samples, failed = read(member(name, jpeg(2)))
    assert [sample.key for sample in samples] == ["good"]
    assert len(failed) == 1
    assert "its name" in next(iter(failed.values()))


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
)
def test_links_and_devices_are_named_and_left_out(kind: bytes) -> None:
    samples, failed = read(member("bad.jpg", type=kind, linkname="/etc/passwd"))
    assert [sample.key for sample in samples] == ["good"]
    assert failed == {"bad": "it is a link, device, pipe or sparse file."}


def test_a_sparse_member_is_no_image() -> None:
    samples, failed = read(
        member("bad.jpg", pax_headers={"GNU.sparse.map": "0,1", "GNU.sparse.size": "9999999999"})
    )
    assert [sample.key for sample in samples] == ["good"]
    assert "sparse" in failed["bad"]


def test_large_members_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tars, "MAX_IMAGE", 10_000)
    samples, failed = read(member("big.jpg", bytes(20_000)))
    assert [sample.key for sample in samples] == ["good"]
    assert "20,000 bytes" in failed["big"]
    monkeypatch.setattr(tars, "MAX_JSON", 100)
    samples, failed = read(tar([("a.jpg", jpeg(1)), ("a.json", b" " * 200), ("b.jpg", jpeg(2))]))
    assert [sample.key for sample in samples] == ["b"]
    assert "200 bytes" in failed["a"]


def test_a_header_that_is_a_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tars, "MAX_HEADER", 4096)
    with pytest.raises(ShardError, match="header of"):
        read(member("a.jpg", pax_headers={"comment": "x" * 100_000}))


def test_too_many_members_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tars, "MAX_MEMBERS", 5)
    with pytest.raises(ShardError, match="more than 5 members"):
        read(tar(photos(3)))


@pytest.mark.parametrize("share", [0.05, 0.3, 0.5, 0.9])
def test_a_tar_that_ends_early_is_refused(share: float) -> None:
    content = tar(photos(6)).rstrip(b"\0")
    with pytest.raises(ShardError, match="damaged"):
        read(content[: int(share * len(content))])


def test_every_cut_is_refused_or_lossless() -> None:
    content = tar(photos(2))
    whole = [sample.key for sample in read(content)[0]]
    for size in range(0, len(content), 512):
        try:
            samples, failed = read(content[:size])
        except ShardError:
            continue
        assert [sample.key for sample in samples] == whole
        assert not failed


def test_garbage_between_members_is_refused() -> None:
    content = bytearray(tar(photos(4)))
    second = content.index(b"p001.jpg")
    content[second + 148 : second + 156] = b"garbage!"  # the check sum of its header
    with pytest.raises(ShardError, match="no end mark"):
        read(bytes(content))


@pytest.mark.parametrize("content", [b"", b"not a tar", b"\x1f\x8b" + bytes(600), bytes(10_240)])
def test_what_is_no_tar_is_refused_or_empty(content: bytes) -> None:
    if content == bytes(10_240):
        assert read(content) == ([], {})
        return
    with pytest.raises(ShardError, match=r"x\.tar is damaged, or no uncompressed tar"):
        read(content)


def test_keys_that_occur_twice_are_named() -> None:
    samples, failed = read(tar([*photos(2), *photos(1)]))
    assert [sample.key for sample in samples] == ["p000", "p001"]
    assert "twice" in failed["p000"]


def test_other_members_do_not_disturb() -> None:
    members = [
        *[("a.cls", b"1"), ("a.seg.png", b"mask"), ("a.jpg", jpeg(1)), ("a.npy", b"x")],
        *[("b.txt", b"words")],
        *[("c.photo.jpg", jpeg(3))],
    ]
    samples, failed = read(tar(members))
    assert [(sample.key, sample.suffix) for sample in samples] == [("a", ".jpg"), ("c", ".jpg")]
    assert samples[0].content == jpeg(1)
    assert failed == {"b": "it has no image, only other files."}


@pytest.mark.parametrize("about", [b"{", b"[]", b'{"tags": "dog"}', b'{"tags": [1]}', b"\xff"])
def test_damaged_tags_are_told(about: bytes) -> None:
    sample = Sample("a", ".jpg", jpeg(1), about)
    with pytest.raises(Exception, match=r"a\.json"):
        sample.tags()
    assert sample.known_tags() == ()


def test_the_original_name_cannot_lead_out() -> None:
    about = json.dumps({"file": "../../etc/x.jpg"}).encode()
    assert Sample("a", ".jpg", b"", about).file() == "a.jpg"
    assert Sample("a", ".jpg", b"", b'{"file": "b/a.1.jpg"}').file() == "b/a.1.jpg"


def test_the_bytes_depend_on_the_content_alone() -> None:
    made = []
    for _ in range(2):
        file = io.BytesIO()
        writer = TarWriter(file)
        writer.add("ä" * 120 + ".png", b"x")
        writer.close()
        made.append(file.getvalue())
    assert made[0] == made[1]


def test_failures_are_bounded() -> None:
    failed = Failures()
    for number in range(5000):
        failed.add(f"k{number}", "why\x1b[0m")
    assert failed.count == 5000
    assert len(failed.why) == 1000
    assert "\x1b" not in failed.why["k0"]


def test_no_shards_is_told(tmp_path: Path) -> None:
    from tagmask.errors import TagmaskError

    with pytest.raises(TagmaskError, match=r"no shards \(.tar\) at"):
        tar_shards(Folder(str(tmp_path)))
    assert fault_of_key("a/b") == ""
