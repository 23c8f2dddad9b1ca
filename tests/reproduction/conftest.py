"""One folder of runs for all tests, so that each training is done once."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("paper")


@pytest.fixture(scope="package", autouse=True)
def _quick() -> Iterator[None]:
    """Without the plot of every score (tests/show look at it), and without looking through all modules for garbage.

    Either would take half of the time: there are dozens of trainings and scores, each collects garbage and draws.
    """
    gc.collect()
    gc.freeze()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tagmask.show.curve.curve_plot", lambda *_: None)
        yield
    gc.unfreeze()
