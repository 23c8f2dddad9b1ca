"""Ray's actors give the bytes of no engine, also if one is killed in the middle.

Needs the extra ray: pip install 'tagmask[ray]'.
"""

import os
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tagmask.errors import TagmaskError
from tagmask.shards.engines import run_job
from tagmask.shards.source import open_shards
from tagmask.shards.storage import Folder
from tagmask.shards.tasks import ImageTask
from tagmask.shards.work import Job
from tests.shards.shop import files_in, tar, write_shards

ROWS: Any = SimpleNamespace(rows=10, root=None)


class Slow(ImageTask):
    """Copies slowly, and leaves the number of its process."""

    def __init__(self, folder: str, wait: float) -> None:
        self.folder = folder
        self.wait = wait

    def prepare(self) -> None:
        Path(self.folder, f"{os.getpid()}.started").touch()

    def members(self, sample: Any) -> list[tuple[str, bytes]]:
        time.sleep(self.wait)
        Path(self.folder, f"{os.getpid()}.seen").touch()
        return super().members(sample)


def job(source: Path, to: Path, witness: Path, wait: float) -> Job:
    witness.mkdir(exist_ok=True)
    shards = open_shards(str(source), ROWS)
    return Job(Slow(str(witness), wait), shards, Folder(str(to)), {"images": 1})


def test_without_ray_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    work = job(write_shards(tmp_path / "in"), tmp_path / "to", tmp_path / "w", 0)
    with pytest.raises(TagmaskError, match=r"pip install 'tagmask\[ray\]'.*--shard i/n"):
        run_job(work, title="x", engine="ray")


def kill_one(witness: Path, killed: list[int], ended: threading.Event) -> None:
    """Kill the first actor that has seen an image, in the middle of its shard."""
    while not ended.wait(0.02):
        seen = list(witness.glob("*.seen"))
        if seen:
            killed.append(int(seen[0].stem))
            os.kill(killed[0], signal.SIGKILL)
            return


def test_actors_make_the_same_bytes_also_if_one_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray.data", reason="the extra ray is not installed")
    # Ray's processes reach each other at this machine's own address, which is no loopback
    monkeypatch.delenv("TAGMASK_TESTS_OFFLINE", raising=False)
    source = write_shards(tmp_path / "in", shards=6, images=5)
    (source / "s9.tar").write_bytes(tar([("a.jpg", b"x")])[:700])
    with pytest.raises(TagmaskError, match="1 of 7 shards cannot be used"):
        run_job(job(source, tmp_path / "none", tmp_path / "w", 0), title="x", processes=1)
    witness = tmp_path / "w2"
    work = job(source, tmp_path / "ray", witness, 0.3)
    killed: list[int] = []
    ended = threading.Event()
    killer = threading.Thread(target=kill_one, args=(witness, killed, ended))
    killer.start()
    try:
        with pytest.raises(TagmaskError, match="1 of 7 shards cannot be used"):
            run_job(work, title="x", engine="ray", processes=2)
    finally:
        ended.set()
        killer.join()
    started = {int(file.stem) for file in witness.glob("*.started")}
    assert killed[0] in started
    assert len(started) >= 2, "another one took over"
    assert files_in(tmp_path / "ray") == files_in(tmp_path / "none")


def test_a_memory_of_ones_own_cannot_be_shared(tmp_path: Path) -> None:
    pytest.importorskip("ray.data", reason="the extra ray is not installed")
    shards = open_shards(str(write_shards(tmp_path / "in")), ROWS)
    work = Job(ImageTask(), shards, Folder("memory://of-this-process"), {"images": 1})
    with pytest.raises(TagmaskError, match="memory of this process"):
        run_job(work, title="x", engine="ray")
