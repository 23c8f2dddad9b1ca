"""Code in the README and the docs runs; commands shown there exist with those flags; links and pictures are there."""

import ast
import functools
import importlib.util
import inspect
import itertools
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from unittest import mock

import pytest
from PIL import Image

import tagmask
import tagmask.cli as cli
from tagmask.config import PRESETS
from tagmask.data.scenes.catalog import Scenes
from tagmask.methods import METHODS
from tagmask.runs.settings import run_values
from tagmask.runs.table import STAGES
from tests.alone import Alone

ROOT = Path(__file__).parents[1]
GENERATED = ("reference/commands.md", "reference/api.md", "tutorials/notebook.md")  # by `make docs`
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if not str(page).endswith(GENERATED)),
]
LARGEST = {"PNG": 350_000, "JPEG": 400_000, "WEBP": 400_000}  # bytes of a picture
OTHER_FUNCTIONS = (  # of commands that are not stages
    "tagmask.demo:run_demo",
    "tagmask.runs.run:run",
    "tagmask.exchange.export:export_run",
    "tagmask.exchange.label_studio_server:serve",
    "tagmask.exchange.label_studio_push:push",
    "tagmask.exchange.corrections:import_corrections",
    "tagmask.exchange.subclasses:subclasses",
    "tagmask.reproduction.command:run_paper",
    "tagmask.studio.server:explore",
    "tagmask.studio.server:studio",
    "tagmask.shards.commands:make_shards",
    "tagmask.shards.commands:predict_shards",
    "tagmask.shards.commands:seed_shards",
    "tagmask.shards.commands:export_shards",
    "tagmask.shards.sample:draw_sample",
)
ELSEWHERE = re.compile(
    r"does not exist; check the path|is not a folder; check the path"
)  # the reader's own files


# the preset for own photos with a tiny network, in seconds and without a download
QUICK: dict[str, Any] = {
    "train": {
        "backbone": "tagmask_tiny",
        "freeze": 2,
        "size": 64,
        "object_blocks": (1, 3),
        "object_size": 64,
    },
    "seeds": {"affinity_blocks": (2, 3)},
    "segment": {"head_blocks": (1, 3), "size": 64, "steps": 50},
}


def write_photos(folder: Path) -> None:
    """Write what the README speaks of: photos with a table of tags, and a new photo."""
    scenes = Scenes(8, seed=5)
    rows = ["file,tags"]
    (folder / "photos").mkdir()
    for i in range(len(scenes)):
        Image.fromarray(scenes.load_image(i)).save(folder / f"photos/{i}.jpg")
        tags = [scenes.classes[c].replace("cow", "dog") for c in scenes.tags(i)]
        rows.append(f"{i}.jpg,{';'.join(tags)}")
    (folder / "tags.csv").write_text("\n".join(rows) + "\n")
    Image.fromarray(Scenes(1, seed=6).load_image(0)).save(folder / "new.jpg")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name
)
def test_python_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page one after the other: a later one may use names of an earlier one."""
    monkeypatch.chdir(tmp_path)
    if page.name == "README.md":
        write_photos(tmp_path)
        monkeypatch.setattr(tagmask, "Run", functools.partial(tagmask.Run, **QUICK), raising=False)
    names: dict[str, Any] = {"__name__": "docs"}
    with mock.patch.dict(METHODS):  # a page may add one
        for number, code in enumerate(blocks(page, "python"), 1):
            exec(compile(code, f"{page.name}, block {number}", "exec"), names)


def imports(page: Path) -> Iterator[str]:
    """The names of the package that the code of a page imports, as ``module:name``."""
    for code in blocks(page, "python"):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tagmask"):
                yield from (f"{node.module}:{alias.name}" for alias in node.names)


def public_names() -> dict[str, Any]:
    """What the reference of the Python interface shows: ``module:name`` and the value."""
    path = ROOT / "docs/generate.py"
    spec = importlib.util.spec_from_file_location("generate", path)
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    names = {name: resolve_name(name) for name in (*generate.NAMES, *generate.DATA)}
    for place in tagmask._PUBLIC.values():
        names[place] = resolve_name(place)
    for module in generate.MODULES:
        for name, value in vars(importlib.import_module(module)).items():
            if not name.startswith("_"):
                names[f"{module}:{name}"] = value
    return names


def test_what_pages_import_is_public_and_documented() -> None:
    used = {name for page in PAGES for name in imports(page)}
    public = public_names()
    assert used <= public.keys(), sorted(used - public.keys())
    for name in sorted(used):
        value = public[name]
        if not callable(value):
            continue
        assert value.__doc__, name
        if inspect.isfunction(value) and len(inspect.signature(value).parameters) > 1:
            assert "Args:" in value.__doc__, name


def commands(page: Path) -> list[str]:
    """The tagmask commands of a page; of a shell loop its first turn."""
    lines = [
        line for block in blocks(page, "bash") for line in block.replace("\\\n", " ").splitlines()
    ]
    matches = [re.search(r"(?:^|-m |[A-Z]=\S+ )(tagmask [^&]*)", line) for line in lines]
    return [match[1].replace("$i", "0") for match in matches if match]


def lay_out(words: list[str]) -> None:
    """Make the folders and files that a command names by position: a run, photos, a table."""
    for word in itertools.takewhile(lambda word: not word.startswith("-"), words):
        path = Path(word)
        if "://" in word:  # in object storage
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix:
            path.touch()
        elif word == "run":
            for name in ("1_classifier", "5_segmenter"):
                (path / name).mkdir(parents=True)
            settings = (ROOT / "tests/witness/config.toml").read_bytes()
            (path / "config.toml").write_bytes(settings)
        else:
            path.mkdir()


@pytest.mark.parametrize("line", sorted({line for page in PAGES for line in commands(page)}))
def test_commands_parse(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(line, comments=True)[1:]
    asked: list[Any] = []
    monkeypatch.chdir(tmp_path)
    lay_out(words[1:])
    (tmp_path / "docs").symlink_to(ROOT / "docs")  # where the settings of measurements are

    def stop(settings: Any, *_: Any) -> Any:
        asked.append(getattr(settings, "settings", settings))
        raise SystemExit(0)

    def stop_stage(run: Any, settings: Any) -> None:
        asked.append(Alone(run, settings))
        raise SystemExit(0)

    monkeypatch.setattr("tagmask.runs.run.check_stage", stop_stage)

    photo_forms = [row.photo[1] for row in STAGES if row.photo]
    for place in (*photo_forms, *OTHER_FUNCTIONS):
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
    # a command in a loop of the shell is found, too
    of_tables = " ".join(commands(ROOT / "docs/how-to/paper-tables.md"))
    assert re.search(r"paper augmentations .*--shard \d/4 ", of_tables)


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub and Sphinx make them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    words = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {word.strip().replace(" ", "-") for word in words}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)]+)\)", text)
    here = [link for link in links if not re.match(r"https?:", link)]
    missing = []
    for link in here:
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.is_file() or (anchor and anchor not in anchors(target)):
            missing.append(link)
    assert missing == []


def test_every_page_is_on_the_site() -> None:
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    listed = {
        line.strip()
        for block in re.findall(r"```{toctree}\n(.*?)```", index, re.DOTALL)
        for line in block.splitlines()
        if line.strip() and not line.startswith(":")
    }
    pages = {page.relative_to(ROOT / "docs").with_suffix("").as_posix() for page in PAGES[2:]}
    generated = {name.removesuffix(".md") for name in GENERATED}
    assert listed == (pages | generated) - {"index"}


def test_licences_are_those_of_the_weights_that_presets_fetch() -> None:
    """Of every backbone, with the presets whose classifier starts from it."""
    import timm

    section = (ROOT / "docs/how-to/installation.md").read_text("utf-8").split("## Licences")[1]
    rows = re.findall(
        r"^\| `(\w+)` \| `(\w+)`, .* \| (.*) \| (.*) \|$", section.split("\n## ")[0], re.MULTILINE
    )
    told = {name: set(re.findall(r"`([\w-]+)`", presets)) for name, _, presets, _ in rows}
    classifiers: dict[str, set[str]] = {}
    others: dict[str, set[str]] = {}
    for preset in PRESETS:
        stages = run_values(preset, None)
        networks = [stages["pseudo"].affinity, stages["segment"]]
        if stages["train"].pretrained:
            classifiers.setdefault(stages["train"].backbone, set()).add(preset)
        for network in networks:
            if getattr(network, "pretrained", False) and hasattr(network, "backbone"):
                others.setdefault(network.backbone, set())
    del classifiers["tagmask_tiny"]  # comes with the package
    assert told == {**classifiers, **others}
    for name, tag, _, licence in rows:
        published = timm.get_pretrained_cfg(name)
        assert published is not None
        assert (published.tag, published.license) == (tag, licence.lower()), name


def test_headlines_are_those_of_their_pages() -> None:
    """A number with a decimal in a row of "What is known" is on the pages that the row links."""
    page = ROOT / "docs/research/index.md"
    first_table = page.read_text(encoding="utf-8").split("\n## ")[0]
    rows = [row for row in first_table.splitlines() if row.startswith("| ")]
    checked = 0
    for row in rows[1:]:
        _, question, answer, more, _ = row.split("|")
        linked = [page.parent / link.split("#")[0] for link in re.findall(r"\]\(([^)]+)\)", more)]
        text = " ".join(target.read_text(encoding="utf-8") for target in linked)
        for number in re.findall(r"\d+\.\d+", answer):
            assert number in text, f"{question.strip()} {number}"
            checked += 1
    assert checked >= 12


def test_the_readme_is_short_and_repeats_what_is_known() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    known = (ROOT / "docs/research/index.md").read_text(encoding="utf-8")
    assert "+5.8" in text
    assert "+5.8" in known


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its code cells one after the other, on drawn pictures."""
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((ROOT / "docs/tutorials/photos-to-masks.ipynb").read_text("utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] for cell in cells)
    names: dict[str, Any] = {"__name__": "notebook"}
    for number, cell in enumerate(cells, 1):
        exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
    assert names["mask"].shape == names["pixels"].shape[:2]
    assert (tmp_path / "run/report.html").is_file()


@pytest.mark.parametrize("command", ["judge", "judge-tags"])
def test_what_the_self_check_is_worth_is_what_its_files_say(command: str) -> None:
    """The command on the page prints what is on the page; old rows are read, too."""
    page = ROOT / "docs/research/few-photos.md"
    (line,) = (
        line
        for block in blocks(page, "bash")
        for line in block.splitlines()
        if f"few_photos.py {command} " in line
    )
    done = subprocess.run(
        [sys.executable, *shlex.split(line)[1:]],
        cwd=ROOT,
        check=True,
        capture_output=True,
        encoding="utf-8",
    )
    text = page.read_text(encoding="utf-8")
    printed = done.stdout.splitlines()
    assert len(printed) >= 3
    for row in printed:
        assert row in text


def test_the_overview_of_results_is_that_of_its_files(tmp_path: Path) -> None:
    """The command on the page, its picture elsewhere, prints the table on the page."""
    page = ROOT / "docs/research/consistency.md"
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
        assert f"pictures/{picture.name})" in shown, picture.name
        with Image.open(picture) as image:
            assert picture.stat().st_size <= LARGEST[str(image.format)], picture.name
            assert image.width >= 300, f"{picture.name} cannot be read at the width of a page"


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
    page = commands(ROOT / "docs/tutorials/own-photos.md")
    measured = [line for line in page if "--split" in line]  # of photos that not everybody has
    lines = [
        line
        for line in page
        if line not in measured and ("tagmask run" not in line or "trial" in line)
    ]
    # the pages speak of the long run; the short one stands for it here
    typed = [re.sub(r"(export|predict|check) run\b", r"\1 trial", line) for line in lines]
    assert len(typed) == 7
    for line in typed:
        own = line.replace("photo.jpg", "holiday/new.png").replace("dog,cat", "cow,fish")
        with pytest.raises(SystemExit) as ended:
            cli.main(shlex.split(own)[1:])
        assert ended.value.code == 0, capsys.readouterr().err
    printed = capsys.readouterr().out
    assert "plan for trial: 8 images" in printed
    assert "score    left out, these data have no masks" in printed
    assert (tmp_path / "trial/6_predictions/day 1/1.png").is_file()
    assert (tmp_path / "pictures/day 1/1.png").is_file()
    assert (tmp_path / "masks/6_predictions/new.png").is_file()
    assert {"masks.json", "tasks.json", "masks.zip", "out.png"} <= {
        path.name for path in tmp_path.iterdir()
    }
    assert "check first" in (tmp_path / "trial/report.html").read_text(encoding="utf-8")
