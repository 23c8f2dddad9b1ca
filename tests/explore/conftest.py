"""The explorer of a small run on a free port."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tagmask.config import ExploreSettings
from tagmask.explore.server import Server, open_explorer


@pytest.fixture
def server(out: Path) -> Iterator[Server]:
    with Server(open_explorer(ExploreSettings(out=out))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
