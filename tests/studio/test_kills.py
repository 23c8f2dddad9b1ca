"""No acknowledged stroke is lost, whenever the server is killed.

`TAGMASK_KILLS=200 pytest tests/studio/test_kills.py` kills it more often.
"""

import http.client
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from tagmask.data.corrections import NOT_CORRECTED
from tagmask.data.scenes.catalog import Scenes
from tests.runs.tiny import IMAGES

ROOT = Path(__file__).parents[2]
Labels = np.ndarray[Any, np.dtype[np.uint8]]
KILLS = int(os.environ.get("TAGMASK_KILLS", "6"))
HEIGHT, WIDTH = Scenes(IMAGES).load_image(0).shape[:2]


class Client:
    """A page that paints strokes and remembers what the server has acknowledged."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        assert parts.hostname is not None
        self.path = parts.path
        self.connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)

    def read(self) -> tuple[str, Labels]:
        """Return the digest and the labels that the server has."""
        self.connection.request("GET", f"{self.path}correction/0")
        answer = self.connection.getresponse()
        data = answer.read()
        labels = np.full((HEIGHT, WIDTH), NOT_CORRECTED, np.uint8)
        if data:
            labels = np.frombuffer(data, np.uint8).reshape(HEIGHT, WIDTH).copy()
        return answer.headers["Digest"] or "", labels

    def paint(self, labels: Labels, draw: random.Random, before: str) -> str:
        """Paint a box into the labels, send it, and return the new digest."""
        top = draw.randrange(HEIGHT - 8)
        left = draw.randrange(WIDTH - 8)
        part = np.full((8, 8), draw.choice((0, 1, 2, 254)), np.uint8)
        labels[top : top + 8, left : left + 8] = part
        headers = {"X-Box": f"{top},{left},8,8", "X-Before": before}
        self.connection.request("POST", f"{self.path}correct/0", part.tobytes(), headers)
        answer = self.connection.getresponse()
        body = json.loads(answer.read())
        assert answer.status == 200, body
        return str(body["digest"])


@pytest.fixture(scope="module")
def start(
    headed: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], tuple[int, Client]]]:
    """Start a server on the run, and return its process and a client of it."""
    out = tmp_path_factory.mktemp("killed") / "run"
    shutil.copytree(headed, out)
    paths = [str(ROOT), os.environ["PYTHONPATH"]]
    zygote = subprocess.Popen(
        [sys.executable, "-m", "tests.studio.zygote", str(out)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        cwd=ROOT,
    )
    assert zygote.stdin is not None
    assert zygote.stdout is not None
    lines, answers = zygote.stdin, zygote.stdout

    def start_one() -> tuple[int, Client]:
        lines.write("\n")
        lines.flush()
        pid, address = answers.readline().split()
        return int(pid), Client(address)

    yield start_one
    zygote.kill()
    zygote.wait(60)
    lines.close()
    answers.close()


# a busy machine takes some seconds to start a server again
@pytest.mark.timeout(420 + 20 * KILLS)
def test_no_acknowledged_stroke_is_lost(start: Callable[[], tuple[int, Client]]) -> None:
    """The server is killed at random moments; what it has acknowledged is there afterwards."""
    draw = random.Random(0)
    possible: list[Labels] = []
    saved = 0
    for turn in range(KILLS):
        pid, client = start()
        digest, labels = client.read()
        # the last stroke may or may not be there: it was not acknowledged
        is_kept = any(np.array_equal(labels, one) for one in possible)
        assert is_kept or not turn, f"after kill {turn}"
        acknowledged = labels.copy()
        strokes = draw.randrange(4)
        for _ in range(strokes):
            digest = client.paint(labels, draw, digest)
            acknowledged = labels.copy()
        saved += strokes
        # a moment between the request and some time after its answer, however slow the machine is
        killer = threading.Timer(draw.uniform(0, 0.05), os.kill, (pid, signal.SIGKILL))
        killer.start()
        with suppress(OSError, http.client.HTTPException):
            while True:
                digest = client.paint(labels, draw, digest)
                acknowledged = labels.copy()
                saved += 1
        killer.join()
        possible = [acknowledged, labels]
    pid, client = start()
    _, labels = client.read()
    assert any(np.array_equal(labels, one) for one in possible)
    os.kill(pid, signal.SIGKILL)
    print(f"{KILLS} kills, {saved} strokes acknowledged, none lost")
    assert saved > 0


def test_a_kill_right_after_the_answer(start: Callable[[], tuple[int, Client]]) -> None:
    """The moment that matters most: the page says saved, and the process is gone."""
    draw = random.Random(1)
    expected: Labels | None = None
    for turn in range(4):
        pid, client = start()
        digest, labels = client.read()
        assert expected is None or np.array_equal(labels, expected), f"after kill {turn}"
        client.paint(labels, draw, digest)
        os.kill(pid, signal.SIGKILL)
        expected = labels
