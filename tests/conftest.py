"""One thread everywhere: contention costs far more than it gives on small tensors. And a small run with a head."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = (
        "1"  # before torch; processes that tests start inherit it
    )

# processes that tests start connect to this machine alone, as the tests themselves do
os.environ["TAGMASK_TESTS_OFFLINE"] = "1"
_PATHS = [str(Path(__file__).parent / "offline"), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(path for path in _PATHS if path)

import pytest  # noqa: E402
import torch  # noqa: E402

import tagmask.models  # noqa: E402, F401  before torchmetrics, which imports torchvision
import tests.pretend  # noqa: E402, F401  before the first backward pass, which counts the devices
from tests.offline import sitecustomize as offline  # noqa: E402

torch.set_num_threads(1)
offline.block()


@pytest.fixture(autouse=True)
def _nothing_is_sent() -> Iterator[None]:
    """Fail a test that tried to reach another machine, whatever became of it."""
    offline.tried.clear()
    yield
    assert not offline.tried, f"something was to be sent to {offline.tried}"


@pytest.fixture(scope="session")
def headed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.alone import run
    from tests.runs.tiny import head_run

    out = tmp_path_factory.mktemp("headed") / "run"
    run(head_run(out))
    return out


@pytest.fixture
def out(headed: Path, tmp_path: Path) -> Path:
    """A run with a head, to be changed."""
    shutil.copytree(headed, tmp_path / "run")
    return tmp_path / "run"


# `make test-fast` leaves out what is marked; CONTRIBUTING.md says what the marks mean
MARKED = {
    "slow": (
        "exchange",
        "inference",
        "models",
        "report",
        "reproduction",
        "runs",
        "stages",
        "studio",
        "training",
        "test_cli",
        "test_cli_masks",
        "test_damaged",
        "test_demo",
        "test_docs",
        "test_doors",
        "test_every_write",
        "test_few_photos",
        "test_gpu",
        "test_hostile",
        "test_kinds",
        "test_model",
        "test_network",
    ),
    "processes": (
        "test_launch",
        "test_cli_launch",
        "test_ray",
        "test_s3",
        "test_bad_runs",
        "test_safety",
        "test_every_write",
    ),
    "browser": ("studio",),
    "real_data": ("test_voc", "test_coco"),
}


# tests with one of these build a ViT-S
LARGE = ("vit_small_patch14_reg4_dinov2", "vit_small_patch16_dinov3")


def marks_of(path: Path) -> set[str]:
    """Return the marks of a test file, by its name and its folder's."""
    names = set(path.relative_to(Path(__file__).parent).with_suffix("").parts)
    return {mark for mark, marked in MARKED.items() if names & set(marked)}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files without importing them where ``-m "not slow …"`` would drop all their tests."""
    wanted = str(config.option.markexpr)
    if collection_path.is_file() and " or " not in wanted:
        left_out = [mark for mark in marks_of(collection_path) if f"not {mark}" in wanted]
        if left_out:
            return True
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the name of their file or folder, and by what they use."""
    for item in items:
        for mark in marks_of(item.path):
            item.add_marker(mark)
        fixtures = getattr(item, "fixturenames", ())
        slow_names = ("selftest_says", "224-legrad", *LARGE)
        if "headed" in fixtures or any(name in item.name for name in slow_names):
            item.add_marker("slow")
