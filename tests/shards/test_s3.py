"""Shards in moto's S3: throttled, cut off, ended between data and note; nothing is lost or half done.

Needs the extra s3 and moto's server: pip install 'tagmask[s3]' 'moto[server]'.
"""

import io
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("s3fs", reason="the extra s3 is not installed")
pytest.importorskip("moto.server", reason="moto's server is not installed")

from tagmask.errors import TagmaskError
from tagmask.shards import storage
from tagmask.shards.engines import run_job
from tagmask.shards.source import open_shards
from tagmask.shards.storage import Folder
from tagmask.shards.tasks import ImageTask
from tagmask.shards.work import Job
from tests.shards.shop import files_at, files_in, put_shards, write_shards

ROWS: Any = SimpleNamespace(rows=10, root=None)


class Storm:
    """A WSGI program before moto's: some requests are refused, some answers are cut off."""

    def __init__(self, program: Any) -> None:
        self.program = program
        self.refuse_every = 0
        self.cut_every = 0
        self.ends_at = ""  # an object whose writing fails for good
        self.requests = 0
        self.refused = 0
        self.cut = 0

    def __call__(self, environment: Any, start: Any) -> Any:
        self.requests += 1
        is_ending = environment["REQUEST_METHOD"] == "PUT" and self.ends_at
        if is_ending and environment["PATH_INFO"].endswith(self.ends_at):
            start("403 Forbidden", [("Content-Length", "0")])
            return [b""]
        if self.refuse_every and self.requests % self.refuse_every == 0:
            self.refused += 1
            start("503 Slow Down", [("Content-Length", "0")])
            return [b""]
        answer = b"".join(self.program(environment, start))
        is_tar = environment["PATH_INFO"].endswith(".tar")
        if self.cut_every and is_tar and environment["REQUEST_METHOD"] == "GET":
            self.cut += 1
            if self.cut % self.cut_every == 0:
                return [answer[: len(answer) // 2]]
        return [answer]


@pytest.fixture(scope="module")
def storm() -> Iterator[Storm]:
    from threading import Thread

    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    program = Storm(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, program, threaded=True)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    before = dict(os.environ)
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    import s3fs

    s3fs.S3FileSystem().mkdir("room")
    yield program
    server.shutdown()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(autouse=True)
def _calm(storm: Storm, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(storage, "FIRST_WAIT", 0.05)
    yield
    storm.refuse_every = storm.cut_every = 0
    storm.ends_at = ""


def do(source: str, to: str) -> str:
    job = Job(ImageTask(), open_shards(source, ROWS), Folder(to), {"images": 1})
    return run_job(job, title="x", processes=1)


def test_a_bucket_is_a_folder(tmp_path: Path) -> None:
    put_shards("s3://room/in")
    do("s3://room/in", "s3://room/to")
    do(str(write_shards(tmp_path / "in")), str(tmp_path / "to"))
    assert files_at("s3://room/to") == files_in(tmp_path / "to")
    assert "3 already there" in do("s3://room/in", "s3://room/to")


def test_a_large_object_arrives_in_parts() -> None:
    content = os.urandom(20 << 20)
    folder = Folder("s3://room/large")
    folder.put("x.tar", io.BytesIO(content))
    with folder.copy("x.tar") as file:
        assert file.read() == content


def test_refused_and_cut_off_requests_change_nothing(storm: Storm) -> None:
    put_shards("s3://room/in-storm", shards=4)
    do("s3://room/in-storm", "s3://room/calm")
    storm.refuse_every = 3
    storm.cut_every = 2
    do("s3://room/in-storm", "s3://room/stormy")
    storm.refuse_every = storm.cut_every = 0
    assert storm.refused > 5
    assert storm.cut > 3
    assert files_at("s3://room/stormy") == files_at("s3://room/calm")


def test_an_end_between_data_and_note_is_not_seen_as_done(storm: Storm) -> None:
    put_shards("s3://room/in-end")
    do("s3://room/in-end", "s3://room/whole")
    storm.ends_at = "s1.note.json"
    with pytest.raises(TagmaskError, match="access is denied"):
        do("s3://room/in-end", "s3://room/ended")
    storm.ends_at = ""
    names = sorted(files_at("s3://room/ended"))
    assert names == ["made_by.json", "s0.note.json", "s0.tar", "s1.tar"]
    assert "2 shards made (8 images), 1 already there" in do("s3://room/in-end", "s3://room/ended")
    assert files_at("s3://room/ended") == files_at("s3://room/whole")


def test_a_missing_bucket_and_missing_rights_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TagmaskError, match="there are no shards"):
        do("s3://no-such-room/in", "s3://room/x")
    put_shards("s3://room/in-missing", shards=1)
    with pytest.raises(TagmaskError, match=r"no-such-room.*check the names of bucket"):
        do("s3://room/in-missing", "s3://no-such-room/to")


def test_missing_credentials_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import s3fs

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        with pytest.raises(TagmaskError, match=r"there are no credentials .*AWS_ACCESS_KEY_ID"):
            Folder("s3://room/in-alone").list()
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
