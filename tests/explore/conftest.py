"""A small run with a head, copied for each test, and its explorer on a free port."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tagmask.config import ExploreSettings
from tagmask.explore.server import Server, open_explorer
from tagmask.pipeline.run import run
from tests.pipeline.tiny import head_run


@pytest.fixture(scope="session")
def headed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("explored") / "run"
    run(head_run(out))
    return out


@pytest.fixture
def out(headed: Path, tmp_path: Path) -> Path:
    shutil.copytree(headed, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def server(out: Path) -> Iterator[Server]:
    with Server(open_explorer(ExploreSettings(out=out))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
