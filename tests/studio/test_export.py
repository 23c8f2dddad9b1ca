"""Exports from the page: all formats have words and endings, and checked photos go alone."""

from pathlib import Path

from tagmask.config import ExploreSettings
from tagmask.config.exchange import FILES
from tagmask.studio import export
from tagmask.studio.app import open_explorer


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
