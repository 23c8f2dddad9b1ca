"""What a careless person types: each line is understood, or answered with what to type instead."""

import shlex
from dataclasses import fields, make_dataclass
from pathlib import Path

import pytest
from PIL import Image

import tagmask.cli as cli
from tagmask.cli.mistakes import as_typed_plainly, unknown_words
from tagmask.cli.parse import with_place
from tagmask.cli.spelling import _OTHER_NAMES
from tagmask.cli.understand import understand
from tagmask.config import (
    ExploreSettings,
    PredictPhotoSettings,
    PredictSettings,
    SeedSettings,
    StudioSettings,
    TrainSettings,
)
from tagmask.config.base import flag
from tagmask.config.exchange import ExportSettings
from tagmask.config.paper import PaperTop
from tagmask.config.run import RunTop
from tagmask.data.folder import read_folder
from tagmask.errors import TagmaskError
from tagmask.runs.settings import run_values


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with photos, a table, a run by name only, and what else lies on a desk."""
    for folder in ("photos", "holiday", "empty", "zips", "masks", "My Drive/Fotos", "run"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("1_classifier", "5_segmenter"):
        (tmp_path / "run" / name).mkdir()
    (tmp_path / "run/config.toml").write_text("[train]\n")
    for file in ("photos/0.jpg", "new.jpg", "holiday/new.jpg"):
        Image.new("RGB", (8, 8)).save(tmp_path / file)
    (tmp_path / "tags.csv").write_text("file,tags\n0.jpg,dog\n")
    for file in ("photos.zip", "zips/a.zip", "video.mp4", "IMG.HEIC", "notes.docx", "net.pth"):
        (tmp_path / file).write_bytes(b"PK")
    monkeypatch.chdir(tmp_path)
    return tmp_path


OWN = "--preset own-photos"
DATA = "--images photos --tags tags.csv"
UNDERSTOOD = {
    "run -i photos -t tags.csv -o r1": f"{OWN} {DATA} --out r1",
    "run --path photos --csv tags.csv --save r1": f"{OWN} {DATA} --out r1",
    "run --dir photos --keywords tags.csv --dest r1": f"{OWN} {DATA} --out r1",
    "run --dataset photos --table tags.csv --name r1": f"{OWN} {DATA} --out r1",
    "run --src photos --labels tags.csv --to r1": f"{OWN} {DATA} --out r1",
    "run photos tags.csv -out r1": f"{OWN} {DATA} --out r1",
    "run photos tags.csv —out r1": f"{OWN} {DATA} --out r1",
    "run photos tags.csv –-out r1": f"{OWN} {DATA} --out r1",
    "run “photos” ‘tags.csv’ --out r1": f"{OWN} {DATA} --out r1",
    "run photos, tags.csv --out r1": f"{OWN} {DATA} --out r1",
    "run --data photos --out r1": f"{OWN} --images photos --out r1",
    "run --data folder photos --out r1": "--images photos --data folder --out r1",
    "run 'My Drive/Fotos' tags.csv --out r1": (
        f"{OWN} --images 'My Drive/Fotos' --tags tags.csv --out r1"
    ),
    "studio photos tags.csv": "--folder photos --tags tags.csv",
    "studio tags.csv photos": "--tags tags.csv --folder photos",
    "studio photos --csv tags.csv": "--folder photos --tags tags.csv",
    "predict new.jpg --run run": "new.jpg --model run/5_segmenter",
    "predict --source new.jpg --model run": "new.jpg --model run/5_segmenter",
    "predict run new.jpg --classes dog": "new.jpg --model run/5_segmenter --tags dog",
    "predict run holiday -o masks": "--photos holiday --model run/5_segmenter --out masks",
    "export run --out masks.json": "--out run --format coco --to masks.json",
    "export run --save masks.json": "--out run --format coco --to masks.json",
    "export run --to m --format json": "--out run --format coco --to m",
    "score run masks": "--out run --masks masks",
    "subclasses run dog": "--out run --tag dog",
    "paper ablation photos tags.csv --out p": f"ablation {OWN} {DATA} --out p",
    "paper ablation --images photos --out p": f"ablation {OWN} --images photos --out p",
    "paper ablation --out p": "ablation --out p",
}


@pytest.mark.parametrize("line", UNDERSTOOD)
def test_is_understood(line: str, desk: Path) -> None:
    command, *words = as_typed_plainly(shlex.split(line))
    assert understand(command, words) == shlex.split(UNDERSTOOD[line])


def test_other_names_are_no_flags_of_the_command() -> None:
    """Otherwise a flag would mean something else than its help says."""
    kinds = {
        "run": RunTop,
        "paper": PaperTop,
        "train": with_place(TrainSettings),
        "seeds": with_place(SeedSettings),
        "predict": with_place(PredictSettings),
        "export": ExportSettings,
        "studio": StudioSettings,
        "explore": ExploreSettings,
    }
    assert kinds.keys() == _OTHER_NAMES.keys()
    for command, kind in kinds.items():
        own = {f"--{flag(field.name)}" for field in fields(kind)}
        if command == "export":
            own.discard("--out")  # of a run that is named already, it is the place to write
        assert not own & (_OTHER_NAMES[command].keys() - {"--photos"}), command


ANSWERED = {
    # words of other programs
    "gui": "did you mean `tagmask studio`?",
    "annotate photos": "did you mean `tagmask studio photos`?",
    "open run": "did you mean `tagmask explore run`?",
    "infer run new.jpg": "did you mean `tagmask predict run new.jpg`?",
    "evaluate run masks": "did you mean `tagmask score run masks`?",
    "resume run": "did you mean `tagmask run run`?",
    "convert run": "did you mean `tagmask export run`?",
    "quickstart": "did you mean `tagmask demo`?",
    "doctor": "did you mean `tagmask selftest`?",
    "reproduce": "did you mean `tagmask paper`?",
    "RUN photos --out r1": "did you mean `tagmask run photos --out r1`?",
    "tagmask run photos --out r1": "leave out the second tagmask: `tagmask run photos --out r1`",
    "install": "`tagmask selftest` says what works",
    "upgrade": "`pip install --upgrade tagmask`",
    "init": "`tagmask run photos tags.csv --out run` begins",
    "delete run": "delete the folder of the run",
    "ls": "`tagmask --help` lists the commands",
    "--verison": "did you mean `tagmask --version`?",
    "photos tags.csv": "`tagmask run photos tags.csv --out run`",
    # paths
    "run https://drive.google.com/drive/folders/1a --out r1": "is an address; download the photos",
    "run 'C:\\Users\\anna\\Pictures' tags.csv --out r1": "/mnt/c/Users/anna/Pictures",
    "run 'photos/*.jpg' tags.csv --out r1": "name the folder of the photos instead, photos",
    "run My Drive/Fotos tags.csv --out r1": 'a path with blanks needs quotes: "My Drive/Fotos"',
    "run photos.zip tags.csv --out r1": "photos.zip is an archive; unpack it",
    "run photos.zip --out r1": "photos.zip is an archive; unpack it",
    "run video.mp4 --out r1": "`ffmpeg -i video.mp4 -r 1 video/%05d.jpg`",
    "run IMG.HEIC --out r1": "is one photo; tagmask run learns from a folder",
    "run photos notes.docx --out r1": "neither a folder of photos nor a table",
    "run photos tags.csv --out photos": "is the folder of the photos; name a new one",
    "run run photos": "`tagmask predict run FOLDER --to masks`",
    "run run tags.csv": "`tagmask run run` goes on with its photos and tags",
    "train run photos": "`tagmask run photos --out other`",
    "studio new.jpg": "`tagmask studio .`",
    "studio tags.csv": "`tagmask studio photos tags.csv`",
    "studio nowhere": "nowhere does not exist",
    "studio photo": "Did you mean photos?",
    "studio My Drive/Fotos": 'Blanks need quotes: "My Drive/Fotos"',
    "studio photos holiday": "are two folders; the studio takes one",
    "demo r1": "write --out r1",
    # photos and masks
    "predict run new.jpg dog": "--tags dog, and several with commas",
    "predict run new.jpg --tags dog cat": "several with commas: --tags dog,sofa",
    "predict run holiday --tags dog --to masks": "`tagmask run holiday tags.csv --out other`",
    "predict net.pth new.jpg": "name the folder of a run first",
    "export run coco": "`tagmask export run --format coco --to masks`",
    "export run yolo": "`tagmask export run --format ultralytics --to masks`",
    "paper table2": "`tagmask paper compare-seeds` or `tagmask paper pseudo`",
    "paper 'Table 4'": "`tagmask paper ablation`",
    "paper 9": "`tagmask paper computation`",
    "paper ablation photos tags.csv": "where to?",
}


@pytest.mark.parametrize("line", ANSWERED)
def test_is_answered(line: str, desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(shlex.split(line))
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert ANSWERED[line] in said
    assert not (desk / "r1/1_classifier").exists()


FLAGS = {  # a command, and a flag that it has not
    "run --epochs": "Write --train.epochs",
    "run --lr": "Write --train.lr or --segment.lr",
    "run --seed": "Write --train.seed or --segment.seed",
    "run --batch-size": "write --train.batch",
    "run --imgsz": "write --train.size",
    "run --force": "--restart makes everything again",
    "run --overwrite": "--restart makes everything again",
    "run --resume": "the same command resumes a run",
    "run --verbose": "are always printed",
    "run -v": "are always printed",
    "run --dry-run": "the plan comes first in any case",
    "run --cpu": "CUDA_VISIBLE_DEVICES= hides it",
    "run --threads": "set OMP_NUM_THREADS=4",
    "run --num-workers": "write --train.workers",
    "run --fp16": "write --train.precision bf16",
    "run --classes": "the classes are the tags in the table",
    "run --project": "--out names the folder",
    "run --gt": "--masks FOLDER names true masks",
    "run --weight": "did you mean --weights?",
    "run --weigths": "did you mean --weights?",
    "run --wieghts": "did you mean --weights?",
    "run --bakcbone": "did you mean --backbone?",
    "run --restrat": "did you mean --restart?",
    "run --gibberish": "`tagmask run --help-all` lists",
    "run -restart": "write two dashes, --restart",
    "run False": "switches take no value",
    "run somewhere": "paths come first, then flags",
    "predict --save": "--show FILE writes a picture to look at",
    "predict --threshold": "`tagmask run RUN --pseudo.background 0.5`",
    "predict --weights": "the network is that of the run",
    "export --yolo": "--format ultralytics --to masks",
    "export --coco": "--format coco --to masks",
    "studio --open": "the page opens by itself",
}


@pytest.mark.parametrize("line", FLAGS)
def test_flags_of_other_programs(line: str) -> None:
    command, word = line.split()
    values = {**run_values("own-photos", None), "restart": False}
    settings = {
        "run": make_dataclass("Flags", values)(**values),
        "predict": PredictPhotoSettings(photo=Path("a.jpg"), model=Path("m")),
        "export": ExportSettings(out=Path("run")),
        "studio": StudioSettings(),
    }
    assert FLAGS[line] in unknown_words(command, [word, "1"], settings[command])


@pytest.mark.parametrize("command", ["explore", "studio"])
@pytest.mark.parametrize("is_opened", [True, False])
def test_only_a_page_that_is_opened_is_called_so(
    command: str,
    is_opened: bool,
    desk: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(f"tagmask.studio.server.{command}", lambda settings: "ended")
    with pytest.raises(SystemExit):
        cli.main([command, "run", *([] if is_opened else ["--no-browser"])])
    assert ("opening" in capsys.readouterr().err) is is_opened


SUGGESTED = {  # with paths that have blanks
    "'My Drive/Fotos' 'my list.csv'": "`tagmask run 'My Drive/Fotos' 'my list.csv' --out run`",
    "run 'my run' 'my list.csv' --out other": (
        "`tagmask run 'My Drive/Fotos' 'my list.csv' --out other`"
    ),
    "run 'my run' holiday": "`tagmask run holiday --out other`",
    "run 'my run' tags.csv --out r1": "`tagmask run 'My Drive/Fotos' tags.csv --out r1`",
    "run 'my run' tags.csv --out 'my run'": "tags.csv --out other`",
    "annotate 'My Drive/Fotos'": "did you mean `tagmask studio 'My Drive/Fotos'`?",
    "'my run'": "`tagmask explore 'my run'`",
    "overlays 'my run'": "`tagmask export 'my run' --format overlays --to masks`",
    "export 'my run' coco": "`tagmask export 'my run' --format coco --to masks`",
    "predict 'my run' new.jpg": "`tagmask run 'my run'` resumes it",
    "corrections 'my run'": "`tagmask corrections 'my run' export.json`",
    "studio 'my list.csv'": "`tagmask studio photos 'my list.csv'`",
}


@pytest.mark.parametrize("line", SUGGESTED)
def test_suggestions_can_be_typed(
    line: str, desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (desk / "my list.csv").write_text("file,tags\n0.jpg,dog\n")
    (desk / "my run").mkdir()
    (desk / "my run/config.toml").write_text('[data]\nimages = "My Drive/Fotos"\n')
    with pytest.raises(SystemExit) as ended:
        cli.main(shlex.split(line))
    assert ended.value.code == 1
    assert SUGGESTED[line] in capsys.readouterr().err


@pytest.mark.parametrize("table", [None, Path("tags.csv")])
def test_a_folder_without_photos(table: Path | None, desk: Path) -> None:
    with pytest.raises(TagmaskError, match="There are no photos in the folder"):
        read_folder(Path("empty"), table)
    with pytest.raises(TagmaskError, match=r"archives and no photos; unpack a\.zip first"):
        read_folder(Path("zips"), table)


def test_a_flag_that_is_not_known_is_an_error_in_a_sentence(desk: Path) -> None:
    from tagmask.cli.parse import from_flags

    with pytest.raises(TagmaskError, match="--zoom in tagmask studio"):
        from_flags(StudioSettings, {}, ["--zoom", "2"], "studio", "")
