"""The page's pure modules, by node's own test runner."""

import shutil
import subprocess
from pathlib import Path

import pytest


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_modules_of_the_page() -> None:
    file = Path(__file__).with_name("labels.test.mjs")
    done = subprocess.run(
        ["node", "--test", str(file)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout[-3000:]
