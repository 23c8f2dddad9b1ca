"""Exports from the page: all formats have words and endings, and checked photos go alone."""

import csv
import dataclasses
from pathlib import Path

import pytest

from tagmask.config import ExploreSettings
from tagmask.config.exchange import FILES
from tagmask.studio import export, numbers
from tagmask.studio.opening import open_explorer


def test_every_format_has_words_and_files_have_endings() -> None:
    assert all(export.CARDS.values())
    assert {*export._SUFFIX} == {*FILES}


def test_the_checked_photos_alone(out: Path) -> None:
    studio = open_explorer(ExploreSettings(out=out))
    studio.check([2, 5], True, "")
    answer = studio.export("index", True)
    assert answer["name"] == "index-version0-checked"
    written = {file.stem for file in Path(answer["path"]).rglob("*.png")}
    assert {Path(studio.photos[i].name).stem for i in (2, 5)} <= written
    assert studio.photos[0].name not in written
    assert studio.exported(answer["name"]).suffix == ".zip"
    table = Path(studio.export("table", True)["path"]).read_text()
    assert studio.photos[5].name in table
    assert studio.photos[0].name not in table


def test_numbers_are_those_of_the_table(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    studio = open_explorer(ExploreSettings(out=out))
    answer = numbers.numbers(studio.view)
    assert answer["problem"] == ""
    file = Path(studio.export("table", False)["path"])
    with file.with_name(f"{file.stem}.summary.csv").open(newline="") as table:
        rows = {row["class"]: row for row in csv.DictReader(table) if row["group"] == "all"}
    assert {row["name"] for row in answer["classes"]} == {*rows}
    for row in answer["classes"]:
        expected = rows[row["name"]]
        assert f"{row['mean_share']:.10g}" == expected["mean_share"]
        assert str(row["with_it"]) == expected["photos_with_it"]
    about = tmp_path / "about.csv"
    lines = [f"{photo.file},{i % 2}" for i, photo in enumerate(studio.photos)]
    about.write_text("\n".join(["file,side", *lines]) + "\n")
    told = dataclasses.replace(studio.view.run, about=about, by=("side",))
    monkeypatch.setattr(type(studio.view), "run", told)
    (by_side,) = numbers.numbers(studio.view)["tables"]
    assert by_side["column"] == "side"
    assert [value for value, _, _ in by_side["rows"]] == ["0", "1"]
