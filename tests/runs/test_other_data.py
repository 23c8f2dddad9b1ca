"""A run that would be replaced by the run of another table is refused; an edited table is not."""

from pathlib import Path

import pytest
from PIL import Image

from tagmask.config.run import RunSettings, write_config
from tagmask.errors import TagmaskError
from tagmask.files import write_json
from tagmask.runs.run import Run, _of_other_data
from tagmask.runs.settings import run_settings, run_values


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Photos with two tables, and a run that learned from the first."""
    monkeypatch.chdir(tmp_path)
    for folder in ("photos/cat", "photos/dog", "more"):
        Path(folder).mkdir(parents=True)
    for name in ("photos/cat/a.jpg", "photos/dog/b.jpg", "more/c.jpg"):
        Image.new("RGB", (8, 8)).save(name)
    Path("tags.csv").write_text("file,tags\ncat/a.jpg,cat\ndog/b.jpg,dog\n")
    Path("my list.csv").write_text("file,tags\ncat/a.jpg,sheep\ndog/b.jpg,horse\n")
    write_config(settings())
    write_json(Path("run/1_classifier/config.json"), {"classes": ["cat", "dog"]})
    return tmp_path


def settings(tags: str | None = "tags.csv", images: str = "photos", **changes: bool) -> RunSettings:
    values = run_values("own-photos", None)
    table = None if tags is None else Path(tags)
    return run_settings(
        {**values, "out": Path("run"), "images": Path(images), "tags": table} | changes
    )


def test_another_table_is_refused(desk: Path) -> None:
    before = Path("run/config.toml").read_text()
    with pytest.raises(TagmaskError) as caught:
        Run.of(settings("my list.csv"))()
    assert str(caught.value) == (
        "run was made with the tags of tags.csv, for other classes (cat, dog), and would be "
        "replaced. For a run of its own: `tagmask run photos 'my list.csv' --out other`; "
        "to replace it: add --restart."
    )
    assert Path("run/config.toml").read_text() == before


def test_other_photos_are_refused(desk: Path) -> None:
    Path("tags.csv").write_text("file,tags\nc.jpg,cow\n")
    with pytest.raises(TagmaskError, match="run was made with the photos in photos, for other"):
        Run.of(settings(images="more"))()


def test_a_table_instead_of_sub_folders_is_refused(desk: Path) -> None:
    write_config(settings(None))
    assert not _of_other_data(Run.of(settings(None)))
    assert not _of_other_data(Run.of(settings("tags.csv")))  # the same classes
    with pytest.raises(TagmaskError, match="made with the sub-folders of photos as tags"):
        Run.of(settings("my list.csv"))()


def test_what_goes_on(desk: Path) -> None:
    assert not _of_other_data(Run.of(settings("my list.csv", restart=True)))
    # the same classes
    Path("copy.csv").write_text(Path("tags.csv").read_text())
    assert not _of_other_data(Run.of(settings("copy.csv")))
    # edited
    Path("tags.csv").write_text("file,tags\ncat/a.jpg,cat\ndog/b.jpg,wolf\n")
    assert not _of_other_data(Run.of(settings()))
    # by another name for the same file
    assert not _of_other_data(Run.of(settings(str(desk / "tags.csv"))))
    # kept in the folder of the run, by the studio or from Python
    Path("run/tags_of_run.csv").write_text(Path("my list.csv").read_text())
    assert not _of_other_data(Run.of(settings("run/tags_of_run.csv")))
    # stopped before anything was learned
    Path("run/1_classifier/config.json").unlink()
    assert not _of_other_data(Run.of(settings("my list.csv")))


def test_from_another_folder(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path of a config.toml does not say from where; the same name is the same table."""
    Path("tags.csv").write_text("file,tags\ncat/a.jpg,cat\ndog/b.jpg,wolf\n")
    Path("elsewhere").mkdir()
    monkeypatch.chdir(desk / "elsewhere")
    values = run_values("own-photos", None)
    paths = {"out": Path("../run"), "images": Path("../photos"), "tags": Path("../tags.csv")}
    assert not _of_other_data(Run.of(run_settings({**values, **paths})))
