"""Code in the README and the docs runs; commands shown there exist with those flags; links and pictures are there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from PIL import Image

import tagmask.cli as cli
from tagmask.data.scenes.catalog import Scenes
from tagmask.methods import METHODS
from tagmask.runs.table import STAGES

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LARGEST = 150_000  # bytes of a picture
OTHER_FUNCTIONS = (  # of commands that are not stages
    "tagmask.demo:run_demo",
    "tagmask.runs.run:run",
    "tagmask.exchange.export:export_run",
    "tagmask.exchange.label_studio_server:serve",
    "tagmask.exchange.corrections:import_corrections",
    "tagmask.reproduction.command:run_paper",
    "tagmask.explore.server:explore",
)
ELSEWHERE = re.compile(
    r"does not exist; check the path|is not a folder; check the path"
)  # the reader's own files


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name
)
def test_python_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page one after the other: a later one may use names of an earlier one."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "docs"}
    with mock.patch.dict(METHODS):  # a page may add one
        for number, code in enumerate(blocks(page, "python"), 1):
            exec(compile(code, f"{page.name}, block {number}", "exec"), names)


def commands(page: Path) -> list[str]:
    """The tagmask commands of a page; of a shell loop its first turn."""
    lines = [
        line for block in blocks(page, "bash") for line in block.replace("\\\n", " ").splitlines()
    ]
    matches = [re.search(r"(?:^|-m |[A-Z]=\S+ )(tagmask [^&]*)", line) for line in lines]
    return [match[1].replace("$i", "0") for match in matches if match]


@pytest.mark.parametrize("line", sorted({line for page in PAGES for line in commands(page)}))
def test_commands_parse(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(line, comments=True)[1:]
    asked: list[Any] = []
    monkeypatch.chdir(tmp_path)

    def stop(settings: Any, catalog: None = None) -> Any:
        asked.append(settings)
        raise SystemExit(0)

    photo_forms = [row.photo[1] for row in STAGES if row.photo]
    for place in (*(row.function for row in STAGES), *photo_forms, *OTHER_FUNCTIONS):
        monkeypatch.setattr(place.replace(":", "."), stop)
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code in (0, None)
    mistakes = asked[0].mistakes() if asked and hasattr(asked[0], "mistakes") else []
    from_the_run = words[0] not in ("train", "run") and "--data" not in words
    unexpected = [mistake for mistake in mistakes if not ELSEWHERE.search(mistake)]
    assert [
        text for text in unexpected if not (from_the_run and "is missing; --data" in text)
    ] == []


def test_there_are_commands_and_code() -> None:
    assert sum(len(commands(page)) for page in PAGES) >= 40
    assert sum(len(blocks(page, "python")) for page in PAGES) >= 8
    assert "seeds --out voc --shard 0/8 " in " ".join(commands(ROOT / "docs/voc.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)#]+)", text)
    here = [link for link in links if not re.match(r"https?:", link)]
    assert [link for link in here if not (page.parent / link).is_file()] == []


def test_the_overview_of_results_is_that_of_its_files(tmp_path: Path) -> None:
    """The command on the page, its picture elsewhere, prints the table on the page."""
    page = ROOT / "docs/results.md"
    (line,) = (
        line
        for block in blocks(page, "bash")
        for line in block.splitlines()
        if "gains_overview" in line
    )
    words = [
        str(tmp_path / "gains.png") if word.endswith(".png") else word
        for word in shlex.split(line)[1:]
    ]
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, check=True, capture_output=True, encoding="utf-8"
    )
    rows = [row for row in done.stdout.splitlines() if row.startswith("|")]
    assert len(rows) >= 4
    assert "\n".join(rows) in page.read_text(encoding="utf-8")
    assert (tmp_path / "gains.png").is_file()


def test_pictures_are_small_and_shown() -> None:
    pictures = sorted((ROOT / "docs/pictures").iterdir())
    shown = " ".join(page.read_text(encoding="utf-8") for page in PAGES)
    for picture in pictures:
        assert f"](pictures/{picture.name})" in shown, picture.name
        assert picture.stat().st_size <= LARGEST, picture.name
        with Image.open(picture) as image:
            assert image.format == "PNG"


def test_your_own_photos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a newcomer types: the small trial, a look at the masks, the export, masks of other photos."""
    scenes, rows = Scenes(8, seed=5), ["file,tags"]
    for i in range(len(scenes)):
        file = tmp_path / "photos" / f"day {i % 2}" / f"{i}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(scenes.load_image(i)).save(file)
        rows.append(f"day {i % 2}/{i}.jpg,{';'.join(scenes.classes[c] for c in scenes.tags(i))}")
    (tmp_path / "tags.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "holiday").mkdir()
    Image.fromarray(scenes.load_image(0)).save(tmp_path / "holiday/new.png")
    monkeypatch.chdir(tmp_path)
    page = commands(ROOT / "docs/own-photos.md")
    measured = [line for line in page if "--split" in line]  # of photos that not everybody has
    lines = [
        line
        for line in page
        if line not in measured and ("tagmask run" not in line or "trial" in line)
    ]
    typed = [line.replace("run/", "trial/").replace("--out run", "--out trial") for line in lines]
    assert len(typed) == 7
    for line in typed:
        with pytest.raises(SystemExit) as ended:
            cli.main(shlex.split(line.replace("photo.jpg", "holiday/new.png"))[1:])
        assert ended.value.code == 0, capsys.readouterr().err
    printed = capsys.readouterr().out
    assert "plan for trial: 8 images" in printed
    assert "score    left out, these data have no masks" in printed
    assert (tmp_path / "trial/6_predictions/day 1/1.png").is_file()
    assert (tmp_path / "pictures/day 1/1.png").is_file()
    assert (tmp_path / "new/6_predictions/new.png").is_file()
    assert {"masks.json", "tasks.json", "masks.zip", "out.png"} <= {
        path.name for path in tmp_path.iterdir()
    }
    assert "check first" in (tmp_path / "trial/report.html").read_text(encoding="utf-8")
