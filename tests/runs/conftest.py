"""One undisturbed run that the tests of this folder share; they copy it before they change it."""

from pathlib import Path

import pytest

from tagmask.runs.summary import RunSummary
from tests.alone import run
from tests.runs.tiny import tiny_run


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunSummary]:
    out = tmp_path_factory.mktemp("runs") / "whole"
    return out, run(tiny_run(out))


@pytest.fixture(scope="session")
def whole(finished: tuple[Path, RunSummary]) -> Path:
    return finished[0]
