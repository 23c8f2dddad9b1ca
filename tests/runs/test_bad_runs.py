"""A disk that fills up or cannot be written, and Ctrl-C: a sentence, no half file, and the same files in the end."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from tagmask.errors import TagmaskError
from tagmask.files import PARTIAL, replacing
from tagmask.runs.processes import pool
from tests.helpers import process_of
from tests.runs.tiny import IMAGES, products
from tests.test_cli import run

PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
STAGES = {  # command: the folders it reads, what it makes, bytes left on the disk
    "train": ((), "1_classifier", 300_000),
    "seeds": (("1_classifier",), "2_seeds", 10 * PAGE),
    "pseudo": (("2_seeds",), "4_pseudo", 10 * PAGE),
    "segment": (("4_pseudo",), "5_segmenter", 300_000),
    "predict": (("5_segmenter",), "6_predictions", 8 * PAGE),
    "score": (("2_seeds", "4_pseudo", "6_predictions"), "scores.*", 2 * PAGE),
    "report": (("2_seeds", "4_pseudo", "6_predictions"), "report.html", 4 * PAGE),
}
PER_IMAGE = ("2_seeds", "4_pseudo", "6_predictions")
EXPORTS = {
    "coco": "a.json",
    "label-studio": "b.json",
    "cvat": "c.zip",
    "voc": "folder",
    "overlays": "pictures",
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=48m", "tagmask-test", str(place)]
    if (
        shutil.which("mount") is None
        or subprocess.run(mount, capture_output=True, timeout=20).returncode
    ):
        pytest.skip("a disk cannot be mounted here (needs Linux and root)")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True, timeout=20)


def begin(whole: Path, out: Path, command: str) -> list[str]:
    """Put what a stage reads into ``out``; returns the command."""
    out.mkdir()
    for folder in STAGES[command][0] if command in STAGES else ():
        shutil.copytree(whole / folder, out / folder)
    if command == "score":  # the verdicts are in scores.json, too
        shutil.copy(whole / "check.json", out / "check.json")
    if command in ("score", "report"):  # no settings of their own
        return [command, "--out", str(out), "--data", "scenes", "--count", str(IMAGES)]
    return [command, "--config", str(whole / "config.toml"), "--out", str(out)]


def fill(disk: Path, left: int) -> Path:
    """A file that leaves so many bytes on a disk."""
    ballast, free = disk / "ballast", os.statvfs(disk)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - left)
    return ballast


def half_files(folder: Path) -> list[Path]:
    return [*folder.rglob(f"*{PARTIAL}"), *folder.rglob(".tmp*")]


def made_by_stages(out: Path, place: str = "") -> dict[str, bytes]:
    """Files of a stage or of all; notes of the whole run apart, which tell 15 and 15.0 of a config.toml apart."""
    notes = ("done.json", "begun.json")
    found = {
        name: data for name, data in products(out).items() if name.startswith(place.rstrip("*"))
    }
    return {
        name: without_use(data) if name.endswith("/config.json") else data
        for name, data in found.items()
        if not name.endswith(notes)
    }


def without_use(config: bytes) -> bytes:
    """The config.json of a network without how it is used, which stages behind it decide."""
    values = json.loads(config)
    return json.dumps({k: v for k, v in values.items() if not k.startswith("use")}).encode()


@pytest.mark.parametrize("command", STAGES)
def test_a_disk_that_fills_up(
    command: str, whole: Path, disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, (_, place, left) = disk / "run", STAGES[command]
    words = begin(whole, out, command)
    ballast = fill(disk, left)
    assert run(*words) == 1
    printed = capsys.readouterr().err.splitlines()[-1]
    assert printed.startswith(f"error: {out}")
    assert printed.endswith(
        ": the disk is full; free some space and type the same command again to resume."
    )
    assert half_files(disk) == []
    expected, found = made_by_stages(whole, place), made_by_stages(out, place)
    names = [
        name for name in found if name.endswith((".npz", ".png", "model.safetensors", ".html"))
    ]
    assert {name: found[name] for name in names} == {name: expected[name] for name in names}
    assert len(names) < len(expected) or command == "report"
    if place in PER_IMAGE:
        assert len(names) > 0  # those that had room

    ballast.unlink()
    assert run(*words) == 0
    assert half_files(disk) == []
    assert made_by_stages(out, place) == expected
    assert command != "report" or (out / "report.html").is_file()


def test_a_whole_run_on_a_disk_that_fills_up(
    whole: Path, disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "run",
        "--config",
        str(whole / "config.toml"),
        "--out",
        str(disk / "run"),
        "--no-estimate",
    ]
    needed = sum(file.stat().st_size for file in (whole / "1_classifier").rglob("*"))
    ballast = fill(disk, needed + 1_000_000)
    assert run(*words) == 1
    assert "the disk is full" in capsys.readouterr().err
    assert half_files(disk) == []
    ballast.unlink()
    assert run(*words) == 0
    assert "train: resume" in capsys.readouterr().out
    assert made_by_stages(disk / "run") == made_by_stages(whole)


@pytest.mark.parametrize("kind", EXPORTS)
def test_an_export_that_does_not_fit(
    kind: str, whole: Path, disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = disk / EXPORTS[kind]
    words = ["export", "--out", str(whole), "--format", kind, "--to", str(to)]
    ballast = fill(disk, 0 if to.suffix else PAGE)
    assert run(*words) == 1
    assert f"error: {to}" in capsys.readouterr().err
    assert half_files(disk) == []
    assert to.is_dir() or not to.exists()
    ballast.unlink()
    assert run(*words) == 0
    assert to.exists()


@pytest.mark.parametrize("command", ["train", "seeds", "pseudo", "segment", "predict"])
def test_a_disk_that_is_read_only(
    command: str, whole: Path, disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = disk / "run"
    words = begin(whole, out, command)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True, timeout=20)
    before = products(disk)
    assert run(*words) == 1
    assert (
        "the disk is read-only; choose another --out." in capsys.readouterr().err.splitlines()[-1]
    )
    assert products(disk) == before


@pytest.mark.parametrize(
    ("command", "number", "message"),
    [
        ("train", errno.ENOSPC, "the disk is full; free some space"),
        ("seeds", errno.EDQUOT, "the disk quota is used up; free some space"),
        ("pseudo", errno.EACCES, "permission denied; choose another path"),
        ("report", errno.EROFS, "the disk is read-only; choose another --out"),
    ],
)
def test_a_write_that_fails_without_naming_the_file(
    command: str,
    number: int,
    message: str,
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = begin(whole, tmp_path / "run", command)

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr("tagmask.files.os.replace", refuse)
        assert run(*words) == 1
    printed = capsys.readouterr().err.splitlines()[-1]
    assert printed.startswith(f"error: {tmp_path / 'run'}/")
    assert message in printed
    assert half_files(tmp_path) == []


@pytest.mark.parametrize("command", ["train", "run"])
def test_a_run_in_a_file(
    command: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("not a folder")
    words = ["--config", str(whole / "config.toml"), "--out", str(tmp_path / "file" / "run")]
    assert run(command, *words, *(["--no-estimate"] if command == "run" else [])) == 1
    assert "a file is where a folder is needed; choose another path." in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def fail_writing(path: Path, error: BaseException) -> None:
    with replacing(path) as partial:
        partial.write_bytes(b"half")
        raise error


def test_the_disks_refusal_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a" / "x.bin"
    full = OSError(errno.ENOSPC, "No space left on device")
    words = ValueError("Error while serializing: I/O error: No space left on device (os error 28)")
    for error in (full, words):
        with pytest.raises(OSError, match="No space left") as raised:
            fail_writing(path, error)
        assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, str(path))
    elsewhere = PermissionError(errno.EACCES, "Permission denied", "image.jpg")
    for other in (elsewhere, ValueError("a mistake"), KeyboardInterrupt()):
        with pytest.raises(type(other)) as kept:
            fail_writing(path, other)
        assert kept.value is other
    assert list(path.parent.iterdir()) == []


def command_line(words: list[str], printed: Path) -> None:
    """A command in a process of its own, what it says in a file."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background
    from tagmask.cli import main

    torch.set_num_threads(1)
    os.setsid()
    with printed.open("w") as file:
        sys.stdout = sys.stderr = file
        os.dup2(file.fileno(), 2)
        main(words)


def until(found: Callable[[], bool], process: Any, seconds: float = 120) -> None:
    """Wait for something that a process makes."""
    end = time.monotonic() + seconds
    while not found():
        ended = (
            process.poll() is not None
            if isinstance(process, subprocess.Popen)
            else not process.is_alive()
        )
        assert not ended, "the command ended before it was stopped"
        assert time.monotonic() < end, "nothing was made in time"
        time.sleep(0.002)


def session(leader: int) -> list[int]:
    """Living processes of a session."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, number = stat.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue  # it has ended meanwhile
        found += [int(stat.parent.name)] if int(number) == leader and state != "Z" else []
    return found


def gone(leader: int, seconds: float = 30) -> bool:
    end = time.monotonic() + seconds
    while session(leader) and time.monotonic() < end:
        time.sleep(0.02)
    return not session(leader)


LONG: dict[str, tuple[list[str], str]] = {  # command: what makes it long, the first file it makes
    "run": (
        ["--train.steps", "100000", "--train.workers", "1", "--no-estimate"],
        "1_classifier/log.jsonl",
    ),
    "seeds": (["--count", "400"], "2_seeds/*.npz"),
    "predict": (["--count", "400"], "6_predictions/*.png"),
}
needs_sessions = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="processes are listed in /proc"
)


@needs_sessions
@pytest.mark.parametrize("command", LONG)
def test_ctrl_c(command: str, whole: Path, tmp_path: Path) -> None:
    flags, first = LONG[command]
    out, printed = tmp_path / "run", tmp_path / "printed.txt"
    words = [*begin(whole, out, command), *flags]
    with ended(process_of(command_line, words, printed)) as process:
        until(lambda: any(out.glob(first)), process)
        os.killpg(
            process.pid or 0, signal.SIGINT
        )  # as a terminal does: to all processes of the command
        process.join(60)
        assert process.exitcode == 130
        stopped_quietly(printed.read_text(), process.pid or 0, out)


def stopped_quietly(printed: str, leader: int, out: Path) -> None:
    assert printed.splitlines()[-1] == "stopped; type the same command again to resume."
    assert "Traceback" not in printed
    assert "Error" not in printed
    assert gone(leader)
    assert half_files(out) == []


@needs_sessions
def test_ctrl_c_with_processes(whole: Path, tmp_path: Path) -> None:
    out, printed = tmp_path / "run", tmp_path / "printed.txt"
    words = [
        *begin(whole, out, "pseudo"),
        "--processes",
        "2",
        "--background",
        "0.3",
        "--count",
        "400",
    ]
    for i in range(IMAGES, 400):  # images beyond the run's: their seeds are those of others
        os.link(out / f"2_seeds/scene_{i % IMAGES:06}.npz", out / f"2_seeds/scene_{i:06}.npz")
    with started([sys.executable, "-m", "tagmask", *words], printed) as process:
        until(lambda: any(out.glob("4_pseudo/*.png")), process)
        assert len(session(process.pid)) >= 3  # the command and its two processes
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == 130
        stopped_quietly(printed.read_text(), process.pid, out)


POOL = """
import sys, time
from tagmask.runs.processes import pool

def work(item):
    open(sys.argv[1], "w").close()
    time.sleep(600)

if __name__ == "__main__":
    with pool(2, work) as each:
        list(each(range(4)))
"""


@needs_sessions
def test_processes_of_a_killed_command_end(tmp_path: Path) -> None:
    (tmp_path / "waiting.py").write_text(POOL)
    begun, printed = tmp_path / "begun", tmp_path / "printed.txt"
    with started([sys.executable, str(tmp_path / "waiting.py"), str(begun)], printed) as process:
        until(begun.exists, process)
        process.kill()
        process.wait(60)
        assert gone(process.pid)
    assert "Traceback" not in printed.read_text()


def test_a_process_that_is_ended_from_outside() -> None:
    with (
        pytest.raises(TagmaskError, match="because memory ran out; use fewer --processes"),
        pool(1, os._exit) as each,
    ):
        list(each([3]))


@contextmanager
def hearing_ctrl_c() -> Iterator[None]:
    """Processes that start meanwhile hear Ctrl-C, even where the tests themselves run in a shell's background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def ended(process: Any) -> Iterator[Any]:
    """Start a process that makes a session of its own; nothing of it is left afterwards."""
    process.start()
    try:
        yield process
    finally:
        for left in {process.pid, *session(process.pid)}:
            with suppress(ProcessLookupError):
                os.kill(left, signal.SIGKILL)
        process.join(60)


@contextmanager
def started(words: list[str], printed: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A command in a session of its own, what it says in a file; nothing of it is left afterwards."""
    with printed.open("w") as file:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with hearing_ctrl_c():
            process = subprocess.Popen(
                words, stdout=file, stderr=file, start_new_session=True, env=environment
            )
    try:
        yield process
    finally:
        for left in session(process.pid):
            os.kill(left, signal.SIGKILL)
        process.wait(60)
