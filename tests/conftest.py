"""One thread everywhere: contention costs far more than it gives on small tensors. And a small run with a head."""

import os
import shutil
from pathlib import Path

for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = (
        "1"  # before torch; processes that tests start inherit it
    )

import pytest  # noqa: E402
import torch  # noqa: E402

import tagmask.models  # noqa: E402, F401  before torchmetrics, which imports torchvision
import tests.pretend  # noqa: E402, F401  before the first backward pass, which counts the devices

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def headed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tagmask.runs.run import run
    from tests.runs.tiny import head_run

    out = tmp_path_factory.mktemp("headed") / "run"
    run(head_run(out))
    return out


@pytest.fixture
def out(headed: Path, tmp_path: Path) -> Path:
    """A run with a head, to be changed."""
    shutil.copytree(headed, tmp_path / "run")
    return tmp_path / "run"
