"""What newcomers type: each mistake is understood, or answered with what to type instead."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import tagmask.cli as cli
from tagmask.cli.understand import understand
from tagmask.data.scenes.catalog import Scenes


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with photos, a table, a finished run by name only, and VOC's layout."""
    scenes = Scenes(3, seed=5)
    for folder in ("photos", "holiday", "VOC/JPEGImages", "run/1_classifier", "run/5_segmenter"):
        (tmp_path / folder).mkdir(parents=True)
    rows = ["filename,label"]
    for i in range(3):
        Image.fromarray(scenes.load_image(i)).save(tmp_path / f"photos/{i}.jpg")
        rows.append(f"{i}.jpg,{scenes.classes[scenes.tags(i)[0]]}")
    Image.fromarray(scenes.load_image(0)).save(tmp_path / "new.jpg")
    Image.fromarray(scenes.load_image(0)).save(tmp_path / "holiday/new.jpg")
    (tmp_path / "tags.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "tags.xlsx").write_bytes(b"PK")
    (tmp_path / "run/config.toml").write_text("[train]\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


OWN = ["--preset", "own-photos"]
UNDERSTOOD: dict[str, list[str]] = {
    "run --images photos --tags tags.csv --out r1": (
        [*OWN, "--images", "photos", "--tags", "tags.csv", "--out", "r1"]
    ),
    "run photos --out r1": [*OWN, "--images", "photos", "--out", "r1"],
    "run photos tags.csv --out r1": (
        [*OWN, "--images", "photos", "--tags", "tags.csv", "--out", "r1"]
    ),
    "run VOC --out r1": ["--preset", "voc", "--root", "VOC", "--out", "r1"],
    "run --root VOC --out r1": ["--preset", "voc", "--root", "VOC", "--out", "r1"],
    "run --images i --annotations a.json --out r1": (
        ["--preset", "coco", "--images", "i", "--annotations", "a.json", "--out", "r1"]
    ),
    "run run": ["--config", "run/config.toml", "--out", "run"],
    "train --images photos --out r1": [*OWN, "--images", "photos", "--out", "r1"],
    "train run": ["--config", "run/config.toml", "--out", "run"],
    "train --out run": ["--config", "run/config.toml", "--out", "run"],
    "seeds run": ["--out", "run"],
    "report run": ["--out", "run"],
    "explore run": ["--out", "run"],
    "export run --to masks.json": ["--out", "run", "--format", "coco", "--to", "masks.json"],
    "export run --to masks.zip": ["--out", "run", "--format", "cvat", "--to", "masks.zip"],
    "export run --to net.onnx": ["--out", "run", "--onnx", "net.onnx"],
    "export run/5_segmenter --to m.json": ["--out", "run", "--format", "coco", "--to", "m.json"],
    "predict run new.jpg": ["new.jpg", "--model", "run/5_segmenter"],
    "seeds run new.jpg --tags dog": ["new.jpg", "--model", "run/1_classifier", "--tags", "dog"],
    "predict run holiday --to masks": (
        ["--photos", "holiday", "--model", "run/5_segmenter", "--out", "masks"]
    ),
    "serve run --images photos": ["--out", "run", "--label-studio", "--images", "photos"],
    "corrections run export.json": ["--out", "run", "--source", "export.json"],
    # other names of flags, another order
    "run tags.csv photos -o r1": [*OWN, "--tags", "tags.csv", "--images", "photos", "--out", "r1"],
    "run --image photos --labels=tags.csv --output r1": (
        [*OWN, "--images", "photos", "--tags=tags.csv", "--out", "r1"]
    ),
    "run --images photos tags.csv --out r1": (
        [*OWN, "--tags", "tags.csv", "--images", "photos", "--out", "r1"]
    ),
    "run photos --out r1 --weights w.pth": (
        [
            *OWN,
            "--images",
            "photos",
            "--out",
            "r1",
            "--train.weights",
            "w.pth",
            "--train.no-pretrained",
        ]
    ),
    "train photos --out r1 --weights w.pth": (
        [*OWN, "--images", "photos", "--out", "r1", "--weights", "w.pth", "--no-pretrained"]
    ),
    "predict new.jpg run": ["new.jpg", "--model", "run/5_segmenter"],
    "predict new.jpg --model run": ["new.jpg", "--model", "run/5_segmenter"],
    "predict --model run new.jpg --tag dog": (
        ["new.jpg", "--model", "run/5_segmenter", "--tags", "dog"]
    ),
    "predict --image new.jpg --model run": ["new.jpg", "--model", "run/5_segmenter"],
    "predict run/config.toml new.jpg": ["new.jpg", "--model", "run/5_segmenter"],
    "predict holiday run --to masks": (
        ["--photos", "holiday", "--model", "run/5_segmenter", "--out", "masks"]
    ),
    "export run masks.json": ["--out", "run", "--format", "coco", "--to", "masks.json"],
    "export run -o masks.json": ["--out", "run", "--format", "coco", "--to", "masks.json"],
    "export run net.onnx": ["--out", "run", "--onnx", "net.onnx"],
    "push run": ["--out", "run"],
    # what is spelt out stays as it is
    "train --preset scenes --out r1": ["--preset", "scenes", "--out", "r1"],
    "seeds new.jpg --model run/1_classifier": ["new.jpg", "--model", "run/1_classifier"],
    "export run --to x --format YOLO": ["--out", "run", "--format", "ultralytics", "--to", "x"],
    "export run --to x --format=Label_Studio": [
        *("--out", "run", "--format", "label-studio", "--to", "x"),
    ],
    "export run --to cover.csv": ["--out", "run", "--format", "table", "--to", "cover.csv"],
    "subclasses run --tag dog": ["--out", "run", "--tag", "dog"],
    "predict --out run --photos holiday": ["--out", "run", "--photos", "holiday"],
}


@pytest.mark.parametrize("line", UNDERSTOOD)
def test_is_understood(line: str, desk: Path) -> None:
    command, *arguments = line.split()
    assert understand(command, arguments) == UNDERSTOOD[line]


ANSWERED = {
    "train --out r1": "`tagmask demo`",
    "run --out r1": "--images photos --tags tags.csv",
    "run photos": "--out run",
    "run --images photos --tags tags.csv": "where to? Name a new folder",
    "run new.jpg --out r1": "is one photo; tagmask run learns from a folder",
    "run nowhere --out r1": "nowhere does not exist",
    "run --images photos --tags dog,sofa --out r1": "this is a table here",
    "predict holiday": "`tagmask predict RUN holiday --to masks`",
    "predict new.jpg": "which network? Name the run first: `tagmask predict RUN new.jpg`",
    "predict run holiday": "--to masks",
    "predict run new.jpg --tags tags.csv": "--tags dog,sofa",
    "predict run new.jpg new.jpg": "put them into a folder",
    "seeds run holiday": "takes one photo",
    "export photos --to masks.json": "photos is no run",
    "export --out photos --to masks.json": "photos is no run",
    "export run --to folder": "which format? Add --format voc",
    "export run --to x --format yoolo": "did you mean ultralytics?",
    "export run --to x --format labelm": "did you mean labelme?",
    "export run --to x --format 3d": "choose from coco, voc-test",
    "demo --out photos": "photos is not empty",
    "export run --to masks.txt": "which format is it? Add --format",
    "report": "which run? Name its folder: tagmask report run",
    "report nowhere": "nowhere does not exist; name the folder of a run",
    "report new.jpg": "works on a run, not on photos",
    "pseudo run new.jpg": "works on a run, not on photos",
    "exprot run": "did you mean `tagmask export`?",
    "photos": "`tagmask run photos --out run`",
    "new.jpg": "`tagmask predict RUN new.jpg`",
    "run": "there are no images",
    "run --preset own-foto --images photos --out r1": "did you mean 'own-photos'?",
    "run photos tags.csv r1": "Then write --out r1",
    "run photos holiday --out r1": "photos and holiday are two folders",
    "run photos/0.jpg photos/1.jpg --out r1": "tagmask run photos tags.csv --out run",
    "run Photos tags.csv --out r1": "Did you mean photos?",
    "run photos tagz.csv --out r1": "Did you mean tags.csv?",
    "run photos tags.xlsx --out r1": 'save a spreadsheet as "CSV UTF-8" first',
    "run --images photos --tags dog --out r1": "a table with the columns file and tags",
    "run --images photos --tags dog;sofa --out r1": "this is a table here",
    "run own-photos --out r1": "write --preset own-photos",
    "run photos tags.csv --out r1 --gpu": "a GPU is used if torch sees one",
    "train photos tags.csv --out r1 --device cuda": "a GPU is used if torch sees one",
    "run holiday --out r1": "holiday contains no tags",
    "demo photos": "`tagmask run photos tags.csv --out run`",
    "predict run new.jpg mask.png": "--mask mask.png the mask itself",
    "predict run new.jpg --to mask.png": "--mask FILE the mask",
    "predict run new.jpg --out mask.png": "--mask FILE the mask",
    "predict run holiday masks": "for the masks of holiday: --to masks",
    "predict run photos tags.csv --to masks": "`tagmask run photos tags.csv --out run`",
    "predict rum new.jpg": "Did you mean run?",
    "predict photos tags.csv": "photos is no run",
    "explore photos": "`tagmask studio photos`",
    "export run onnx": "which format?",
    "predict run nwe.jpg": "nwe.jpg does not exist; check the path. Did you mean new.jpg?",
    "predict run new.jpg": (
        "run/5_segmenter holds no network yet: the run was stopped before it was finished; "
        "`tagmask run run` goes on"
    ),
    "run --preset quik --images photos --out r1": "for your own photos: own-photos; all of them",
    "overlays run": "`tagmask export run --format overlays --to masks`",
    "yolo": "`tagmask export run --format ultralytics --to masks`",
    "coco run": "`tagmask export run --format coco --to masks.json`",
    "export photos": "photos is no run",
    "corrections run": "tagmask corrections run export.json",
    "check run photos": "works on a run, not on photos",
    "help nonsense": "there is no command 'nonsense'",
    "--hlep": "`tagmask --help`",
}


@pytest.mark.parametrize("line", ANSWERED)
def test_is_answered(line: str, desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(line.split())
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert ANSWERED[line] in said
    assert not (desk / "r1").exists()


def test_a_stage_takes_the_settings_of_its_run(headed: Path) -> None:
    """Typed alone, a stage does what it did in the run; flags and a preset win."""
    from tagmask.cli.parse import parse_stage
    from tagmask.runs.settings import run_values
    from tagmask.runs.table import stage

    of_run = run_values(None, headed / "config.toml")["segment"]
    row = stage("segment")
    _, again = parse_stage(row.settings, ["--out", str(headed)], "segment", "")
    assert again == of_run
    _, changed = parse_stage(row.settings, ["--out", str(headed), "--steps", "7"], "segment", "")
    assert getattr(changed, "steps") == 7  # noqa: B009
    assert getattr(changed, "net") == getattr(of_run, "net")  # noqa: B009


def test_another_network_does_not_take_them(headed: Path) -> None:
    from tagmask.cli.parse import parse_stage
    from tagmask.runs.table import stage

    words = ["--out", str(headed), "--net", "deeplab"]
    _, other = parse_stage(stage("segment").settings, words, "segment", "")
    assert not hasattr(other, "rounds")


def ended(words: Sequence[str]) -> Any:
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    return end.value.code


def test_presets_are_described(capsys: pytest.CaptureFixture[str]) -> None:
    from tagmask.cli.presets import ABOUT
    from tagmask.config import PRESETS

    assert ABOUT.keys() == PRESETS.keys()
    assert ended(["presets"]) == 0
    printed = capsys.readouterr().out
    assert all(f"  {name} " in printed for name in PRESETS)


@pytest.mark.parametrize(
    "words",
    [("help", "run"), ("--help", "run"), ("run", "--help"), ("run", "help"), ("run", "-help")],
)
def test_help_of_a_command(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(words) == 0
    assert "usage: tagmask run" in capsys.readouterr().out


@pytest.mark.parametrize("word", ["--version", "-V", "-v", "version"])
def test_version(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    from tagmask.version import __version__

    assert ended([word]) == 0
    assert capsys.readouterr().out == f"tagmask {__version__}\n"


@pytest.mark.parametrize("value", ["abc", "0,5"])
def test_a_number_that_is_none(value: str, desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The answer names the flag and the value, and no code of ours."""
    line = f"run photos tags.csv --out r1 --train.steps {value}"
    assert ended(line.split()) == 2
    said = capsys.readouterr().err
    assert "--train.steps" in said
    assert value in said
    assert "Limit(" not in said


@pytest.mark.parametrize("header", ["filename,label", "Image,Class", "path,category", "file,tags"])
def test_headers_of_tables(header: str, tmp_path: Path) -> None:
    from tagmask.data.report import Mistakes
    from tagmask.data.table import read_table

    (tmp_path / "t.csv").write_text(f"{header}\na.jpg,dog;person\nb.jpg,dog\n")
    table = read_table(tmp_path / "t.csv", Mistakes(tmp_path / "t.csv"))
    assert [row.tags for row in table.rows] == [("dog", "person"), ("dog",)]


def test_a_class_may_be_called_label(tmp_path: Path) -> None:
    from tagmask.data.report import Mistakes
    from tagmask.data.table import read_table

    (tmp_path / "t.csv").write_text("file,label\na.jpg,1\nb.jpg,0\n")
    table = read_table(tmp_path / "t.csv", Mistakes(tmp_path / "t.csv"))
    assert [row.tags for row in table.rows] == [("label",), ()]


def test_a_table_without_a_header(tmp_path: Path) -> None:
    from tagmask.data.report import Mistakes
    from tagmask.data.table import read_table
    from tagmask.errors import TagmaskError

    (tmp_path / "t.csv").write_text("a.jpg,dog\nb.jpg,dog\n")
    with pytest.raises(TagmaskError, match='add the line "file,tags" above it'):
        read_table(tmp_path / "t.csv", Mistakes(tmp_path / "t.csv"))


def test_a_folder_of_photos_that_cannot_be_read(tmp_path: Path) -> None:
    from tagmask.data.folder import read_folder
    from tagmask.errors import TagmaskError

    (tmp_path / "photos/dog").mkdir(parents=True)
    for i in range(3):
        (tmp_path / f"photos/dog/{i}.NEF").write_bytes(b"MM\0*")
    with pytest.raises(TagmaskError, match=r"3 photos that cannot be read \(\.nef\).*JPEG"):
        read_folder(tmp_path / "photos", None)


def test_selftest_says_what_works(capsys: pytest.CaptureFixture[str]) -> None:
    from tagmask.selftest import SelftestSettings, selftest

    said = selftest(SelftestSettings(device="cpu"))
    assert "all 6 parts work" in said
    assert "tagmask " in said


def test_selftest_says_in_its_last_line_if_the_default_weights_are_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tagmask import selftest as module

    monkeypatch.setattr(module, "_CHECKS", {"arithmetic": lambda _: "four"})
    monkeypatch.setattr(module, "_has_default_weights", lambda: False)
    last = module.selftest(module.SelftestSettings(device="cpu")).splitlines()[-1]
    assert last.startswith("all 1 parts work, but the default weights are not here: ")
    assert "--weights FILE" in last
    monkeypatch.setattr(module, "_has_default_weights", lambda: True)
    last = module.selftest(module.SelftestSettings(device="cpu")).splitlines()[-1]
    assert last == "all 1 parts work."


def test_selftest_names_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    from tagmask import selftest as module
    from tagmask.errors import TagmaskError

    def fail(device: Any) -> str:
        raise ArithmeticError("two and two are five")

    monkeypatch.setattr(module, "_CHECKS", {"arithmetic": fail})
    with pytest.raises(TagmaskError, match=r"(?s)FAILED: ArithmeticError: two and two.*1 of 1"):
        module.selftest(module.SelftestSettings(device="cpu"))
