"""A sample of scripts/every_write.py: operations fail and the power is cut, and nothing is lost."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts/every_write.py"


def script() -> ModuleType:
    found = importlib.util.spec_from_file_location("every_write", SCRIPT)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["every_write"] = module
    found.loader.exec_module(module)
    return module


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are copied")
def test_a_training_survives_failing_writes_and_power_cuts(tmp_path: Path) -> None:
    words = [sys.executable, str(SCRIPT), "--job", "train", "--every", "17", "--first", "5"]
    summary = tmp_path / "summary.md"
    result = subprocess.run(
        [*words, "--summary", str(summary)], capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stdout + result.stderr
    row = summary.read_text().splitlines()[2]
    name, operations, failures, cuts, _, faults = row.strip("| ").split(" | ")
    assert name == "train"
    assert int(operations) > 30
    assert int(failures) == int(cuts) >= 2
    assert faults == "0"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are copied")
def test_a_write_that_is_not_atomic_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check itself: with a writer that writes in place and swallows errors it finds faults."""
    every_write = script()

    def careless(words: list[str]) -> None:
        for number in range(3):
            try:
                with open(f"run{number}.txt", "a") as file:
                    file.write("made")
            except OSError:
                pass
        raise SystemExit(0)

    monkeypatch.setattr(every_write, "main", careless)
    trial = every_write.try_job(every_write.Job("careless", (), (), "run0.txt"), tmp_path)
    assert trial.operations == 6
    assert any("other files" in fault for fault in trial.faults)
