"""Manifests: read by parts without being held, kept below their root, the same as CSV and Parquet."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from tagmask.errors import TagmaskError
from tagmask.shards.rows import Manifest, RowShard
from tagmask.shards.samples import Failures
from tagmask.shards.storage import Folder
from tests.shards.shop import jpeg

TEXT = (
    "\ufefffile,camera,tags\r\n"
    "a/1.jpg,x,dog;cat\r\n"
    "\r\n"
    '"a/with, comma.jpg","two\nlines",dog|dog\r\n'
    "ä/3.jpg,,\r\n"
    'a/4.jpg,x,"[""cat""]"\r\n'
)


def write(folder: Path, text: str = TEXT, name: str = "m.csv") -> Manifest:
    (folder / name).write_text(text, encoding="utf-8", newline="")
    return Manifest(Folder(str(folder)), name, Folder(str(folder)))


def rows_of(shards: list[RowShard]) -> list[list[tuple[str, tuple[str, ...]]]]:
    return [
        [(row.file, row.tags) for row in shard.table.rows(shard.first, shard.count)]
        for shard in shards
    ]


EXPECTED = [
    ("a/1.jpg", ("dog", "cat")),
    ("a/with, comma.jpg", ("dog",)),
    ("ä/3.jpg", ()),
    ("a/4.jpg", ("cat",)),
]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 100])
def test_any_part_is_read_by_itself(size: int, tmp_path: Path) -> None:
    shards = write(tmp_path).shards(size)
    parts = [EXPECTED[first : first + size] for first in range(0, 4, size)]
    assert rows_of(shards) == parts
    assert rows_of(shards[::-1]) == parts[::-1]
    assert [shard.name for shard in shards[:2]] == ["m-000000", "m-000001"][: len(parts)]
    # as another process has it
    assert rows_of(pickle.loads(pickle.dumps(shards))) == parts


def test_parquet_gives_the_same(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="manifests as Parquet")
    from pyarrow import parquet

    texts: list[Any] = ["dog;cat", "dog|dog", "", "cat"]
    lists: list[Any] = [list(tags) for _, tags in EXPECTED]
    for name, tags in (("texts", texts), ("lists", lists)):
        table = pyarrow.table({"file": [file for file, _ in EXPECTED], "tags": tags})
        parquet.write_table(table, tmp_path / f"{name}.parquet", row_group_size=3)
        manifest = Manifest(Folder(str(tmp_path)), f"{name}.parquet", Folder(str(tmp_path)))
        for size in (1, 2, 3, 100):
            parts = [EXPECTED[first : first + size] for first in range(0, 4, size)]
            assert rows_of(manifest.shards(size)) == parts
    digests = [shard.digest for shard in write(tmp_path).shards(2)]
    assert digests == [shard.digest for shard in manifest.shards(2)]


def test_a_damaged_parquet_is_told(tmp_path: Path) -> None:
    (tmp_path / "m.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(TagmaskError, match=r"m\.parquet is (no )?Parquet"):
        Manifest(Folder(str(tmp_path)), "m.parquet", Folder(str(tmp_path))).shards(2)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("colour,tags\na,b\n", 'no column of files: call it "file"; it has colour, tags'),
        ("file,tags\n", "has no rows"),
        ("", "no column of files"),
        ("file,tags\na.jpg\n", "has 1 cells, but the header has 2"),
        ('file,tags\n"a.jpg,x\n', "not valid CSV"),
        ("file\n" + "x" * (2 << 20), "line of more than"),
    ],
)
def test_what_is_no_manifest_is_told(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(TagmaskError, match=sentence):
        write(tmp_path, text).shards(10)


def test_other_encodings_are_told(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_bytes("file\nä.jpg\n".encode("latin-1"))
    with pytest.raises(TagmaskError, match="not UTF-8"):
        Manifest(Folder(str(tmp_path)), "m.csv", Folder(str(tmp_path))).shards(10)


def test_paths_stay_below_the_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "in.jpg").write_bytes(jpeg(1))
    (tmp_path / "out.jpg").write_bytes(jpeg(2))
    lines = ["file", "in.jpg", "../out.jpg", f"{tmp_path}/out.jpg", "s3://b/x.jpg", "no.jpg"]
    lines += ["in.txt", "in.png", f"{root}/in.jpg"]
    shard = write(root, "\n".join(lines) + "\n").shards(100)[0]
    failed = Failures()
    assert [sample.key for sample in shard.samples(failed)] == ["in"]
    assert failed.count == 7
    assert "absolute" in failed.why[f"{tmp_path}/out.jpg"]
    assert "absolute" in failed.why["/s3://b/x.jpg"]
    assert '".."' in failed.why["../out.jpg"]
    assert "does not exist" in failed.why["no"]
    assert "suffix" in failed.why["in.txt"]
    assert "twice" in failed.why["in.png"]


def test_files_and_tags_go_into_the_sample(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/x.1.JPG").write_bytes(jpeg(1))
    shard = write(tmp_path, "path\ttags\na/x.1.JPG\tdog\n", "m.tsv").shards(10)[0]
    (sample,) = shard.samples(Failures())
    assert (sample.key, sample.suffix, sample.tags()) == ("a/x_1", ".jpg", ("dog",))
    assert json.loads(sample.about or b"") == {"file": "a/x.1.JPG", "tags": ["dog"]}
    assert sample.file() == "a/x.1.JPG"


def test_rows_are_known_by_their_text_and_the_size_of_their_files(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg(1))
    before = write(tmp_path, "file,tags\na.jpg,dog\n").shards(10)[0].identity()
    assert write(tmp_path, "file,tags\na.jpg,dog\n").shards(10)[0].fits(before)
    assert not write(tmp_path, "file,tags\na.jpg,cat\n").shards(10)[0].fits(before)
    (tmp_path / "a.jpg").write_bytes(jpeg(1) + b"more")
    assert not write(tmp_path, "file,tags\na.jpg,dog\n").shards(10)[0].fits(before)
