"""Every figure and table of the docs is listed with the commit that made it, and is the one that was listed."""

import re
import subprocess

import pytest

from tests.reproduction.small import script

MADE_BY = script("made_by")

REMEDY = "run `python scripts/made_by.py` after making it"


def test_every_figure_and_table_is_listed() -> None:
    assert set(MADE_BY.noted()) == set(MADE_BY.shown()), REMEDY


@pytest.mark.parametrize("name", MADE_BY.shown())
def test_it_is_the_one_that_was_listed(name: str) -> None:
    row = MADE_BY.noted()[name]
    assert MADE_BY.digest(name) == row["sha256"], f"{name} has changed; {REMEDY}."
    assert re.fullmatch("[0-9a-f]{10}", row["commit"])


def test_the_commits_are_in_the_history() -> None:
    commits = sorted({row["commit"] for row in MADE_BY.noted().values()})
    asked = ["git", "cat-file", "--batch-check=%(objecttype)"]
    try:
        done = subprocess.run(
            asked,
            input="\n".join(commits),
            cwd=MADE_BY.ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this copy of the project has no git history")
    kinds = done.stdout.split("\n")[: len(commits)]
    if any(kind.endswith("missing") for kind in kinds):
        pytest.skip("this copy of the project has a part of the history only")
    assert kinds == ["commit"] * len(commits)
