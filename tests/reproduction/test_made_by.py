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


def test_its_code_has_not_changed_since() -> None:
    """Or somebody has said why it stands."""
    remedy = "make it again, or run `python scripts/made_by.py --stands FILE WHY`"
    assert not MADE_BY.changed(), f"what these show has changed; {remedy}."


def test_what_a_row_names_is_there() -> None:
    for name, row in MADE_BY.noted().items():
        assert row["shows"], name
        for shown in row["shows"].split():
            assert (MADE_BY.ROOT / shown).exists(), f"{name} shows {shown}, which is gone"


def test_words_about_code_do_not_count_and_code_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MADE_BY, "ROOT", tmp_path)
    file = tmp_path / "room/code.py"
    file.parent.mkdir()
    file.write_text('def f(a, b):\n    """Add."""\n    return a + b\n')
    before = MADE_BY.code_digest("room")
    file.write_text('def f(\n    a, b\n):\n    """Add two."""\n    # plain\n    return a + b\n')
    assert MADE_BY.code_digest("room") == before
    file.write_text('def f(a, b):\n    """Add."""\n    return a - b\n')
    assert MADE_BY.code_digest("room") != before
    file.write_text('def f(a, b):\n    """Add."""\n    return a + b\n')
    (tmp_path / "room/page.js").write_text("let a;\n")
    assert MADE_BY.code_digest("room") != before


def test_a_file_that_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its row keeps the commit and says why."""
    for folder in ("docs/pictures", "docs/results"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "docs/results/a.csv").write_text("a")
    (tmp_path / "code.py").write_text("a = 1\n")
    monkeypatch.setattr(MADE_BY, "ROOT", tmp_path)
    monkeypatch.setattr(MADE_BY, "FILE", tmp_path / "docs/results/made-by.csv")
    monkeypatch.setattr(MADE_BY, "git", lambda *_: "0123456789")
    monkeypatch.setattr(MADE_BY, "has_commit", lambda _: True)
    MADE_BY.note(None)
    lines = MADE_BY.FILE.read_text().replace("0123456789,,", "0123456789,code.py,")
    MADE_BY.FILE.write_text(lines)
    MADE_BY.note(None)
    assert MADE_BY.changed() == []
    (tmp_path / "code.py").write_text("a = 2\n")
    assert MADE_BY.changed() == ["docs/results/a.csv"]
    MADE_BY.note(None)
    assert MADE_BY.changed() == ["docs/results/a.csv"]
    MADE_BY.stand("docs/results/a.csv", "b was meant")
    assert MADE_BY.changed() == []
    row = MADE_BY.noted()["docs/results/a.csv"]
    assert row["stands"] == "b was meant"
    assert row["commit"] == "0123456789"


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
        "file,sha256,commit,shows,code,stands,differs",
        f"docs/results/same.csv,{same},ffffffffff,docs,00,so,old colours",
        "docs/results/changed.csv,0000000000000000,ffffffffff,docs,00,so,old colours",
    ]
    MADE_BY.FILE.write_text("\n".join(lines) + "\n")
    MADE_BY.note(None)
    noted = MADE_BY.noted()
    assert {name.rsplit("/", 1)[-1]: row["differs"] for name, row in noted.items()} == {
        "same.csv": "old colours",
        "changed.csv": "",
        "new.csv": "",
    }
    assert {row["commit"] for row in noted.values()} == {"0123456789"}


def test_the_patch_order_of_the_docs_is_what_the_code_draws(tmp_path: Path) -> None:
    drawn = patch_order(Bench(small(tmp_path, "patch-order"))).picture
    shown = Image.open(MADE_BY.ROOT / "docs/pictures/paper-patch-order.png").convert("RGB")
    assert np.abs(np.asarray(shown, float) - drawn).mean() < 3
