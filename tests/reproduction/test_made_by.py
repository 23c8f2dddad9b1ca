"""Every figure and table of the docs is listed with the commit that made it, and is the one that was listed."""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tagmask.reproduction.bench import Bench
from tagmask.reproduction.figures import patch_order
from tests.reproduction.small import script, small

MADE_BY = script("made_by")

REMEDY = "run `python scripts/made_by.py` after making it"


def test_every_figure_and_table_is_listed() -> None:
    assert set(MADE_BY.noted()) == set(MADE_BY.shown()), REMEDY


@pytest.mark.parametrize("name", MADE_BY.shown())
def test_it_is_the_one_that_was_listed(name: str) -> None:
    row = MADE_BY.noted()[name]
    assert MADE_BY.digest(name) == row["sha256"], f"{name} has changed; {REMEDY}."
    assert re.fullmatch("[0-9a-f]{10}", row["commit"])


def test_the_commits_are_commits() -> None:
    """Those that this copy of the history has: it may be a part, or some may have been joined."""
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
    assert {kind for kind in kinds if not kind.endswith("missing")} <= {"commit"}


def test_what_is_out_of_date_is_said_on_the_page() -> None:
    page = MADE_BY.ROOT / "docs/research/tables.md"
    text = " ".join(page.read_text(encoding="utf-8").split())
    for name, row in MADE_BY.noted().items():
        if row["differs"]:
            assert row["differs"] in text, name
            assert name.rsplit("/", 1)[-1] in text, name


def test_a_lost_commit_is_replaced_and_words_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changed file loses the words about its former content; an unchanged one keeps them."""
    for folder in ("docs/pictures", "docs/results"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("same.csv", "changed.csv", "new.csv"):
        (tmp_path / "docs/results" / name).write_text(name)
    monkeypatch.setattr(MADE_BY, "ROOT", tmp_path)
    monkeypatch.setattr(MADE_BY, "FILE", tmp_path / "docs/results/made-by.csv")
    monkeypatch.setattr(MADE_BY, "git", lambda *_: "0123456789")
    same = MADE_BY.digest("docs/results/same.csv")
    lines = [
        "file,sha256,commit,differs",
        f"docs/results/same.csv,{same},ffffffffff,old colours",
        "docs/results/changed.csv,0000000000000000,ffffffffff,old colours",
    ]
    MADE_BY.FILE.write_text("\n".join(lines) + "\n")
    MADE_BY.main(None)
    noted = MADE_BY.noted()
    assert {name.rsplit("/", 1)[-1]: row["differs"] for name, row in noted.items()} == {
        "same.csv": "old colours",
        "changed.csv": "",
        "new.csv": "",
    }
    assert {row["commit"] for row in noted.values()} == {"0123456789"}


def test_pictures_of_research_pages_are_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another picture is none, unless it is listed."""
    for folder in ("docs/pictures", "docs/results", "docs/research"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("plot.png", "steps.png", "listed.png"):
        (tmp_path / "docs/pictures" / name).write_text(name)
    (tmp_path / "docs/research/a.md").write_text("![A plot](../pictures/plot.png)\n")
    monkeypatch.setattr(MADE_BY, "ROOT", tmp_path)
    monkeypatch.setattr(MADE_BY, "FILE", tmp_path / "docs/results/made-by.csv")
    assert MADE_BY.shown() == ["docs/pictures/plot.png"]
    lines = ["file,sha256,commit,differs", "docs/pictures/listed.png,00,00,"]
    MADE_BY.FILE.write_text("\n".join([*lines, "docs/pictures/gone.png,00,00,"]) + "\n")
    assert MADE_BY.shown() == ["docs/pictures/listed.png", "docs/pictures/plot.png"]


def test_the_patch_order_of_the_docs_is_what_the_code_draws(tmp_path: Path) -> None:
    drawn = patch_order(Bench(small(tmp_path, "patch-order"))).picture
    shown = Image.open(MADE_BY.ROOT / "docs/pictures/paper-patch-order.png").convert("RGB")
    # stored with fewer colours
    assert np.abs(np.asarray(shown, float) - drawn).mean() < 3
