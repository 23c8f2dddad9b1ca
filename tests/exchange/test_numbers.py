"""The table of areas: every number by hand, real units, groups, and texts that are no formulas."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tagmask.cli import main
from tagmask.data.corrections import write_labels
from tagmask.data.images import write_mask
from tagmask.exchange.numbers import harmless
from tagmask.files import write_arrays

# cat: 3 pixels in two pieces; dog: 8 pixels; one unsure pixel
FIRST = np.array([[1, 1, 0, 2, 2], [0, 0, 0, 2, 2], [1, 0, 255, 2, 2], [0, 0, 0, 2, 2]], np.uint8)
SECOND = np.array([[0, 0], [2, 0]], np.uint8)


@pytest.fixture(autouse=True)
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, mask in {"=1+1": FIRST, "sub/b": SECOND}.items():
        path = Path(f"photos/{name}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", mask.shape[::-1]).save(path)
        write_mask(Path(f"run/6_predictions/{name}.png"), mask)
    Path("tags.json").write_text(json.dumps({"=1+1": ["cat", "dog"], "sub/b": ["cat", "dog"]}))


def export(*words: str) -> int:
    data = ("--data", "folder", "--images", "photos", "--tags", "tags.json")
    with pytest.raises(SystemExit) as ended:
        main(["export", "--out", "run", *data, "--format", "table", *words])
    return int(ended.value.code or 0)


def read(path: str) -> list[dict[str, str]]:
    with Path(path).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_number_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    chances = np.zeros((3, 4, 5), np.float16)
    chances[1] = 0.5
    chances[1, 2, 0] = 0.875
    write_arrays(Path("run/6_predictions/=1+1.npz"), probabilities=chances)
    write_labels(Path("run/corrections"), "sub/b", SECOND)
    assert export("--to", "areas.csv", "--mm-per-pixel", "0.5") == 0, capsys.readouterr().err
    cat, dog, absent, single = read("areas.csv")
    assert cat == {
        "photo": "'=1+1", "file": "'=1+1.png", "class": "cat", "width": "5", "height": "4", "pixels": "3",
        "share": "0.15", "percent_of_photo": "15", "pieces": "2", "left": "0", "top": "0", "right": "1", "bottom": "2",
        "centre_x": "0.8333333333", "centre_y": "1.166666667", "certainty": "0.625", "corrected": "no",
        "area_mm2": "0.75",
    }  # fmt: skip
    assert (dog["pixels"], dog["share"], dog["pieces"], dog["area_mm2"]) == ("8", "0.4", "1", "2")
    assert dog["percent_of_photo"] == "40"
    # a tag without a pixel is a row too: nought is a result
    assert (absent["photo"], absent["class"], absent["pixels"]) == ("sub/b", "cat", "0")
    assert (absent["left"], absent["pieces"], absent["area_mm2"]) == ("", "0", "0")
    assert single["file"] == "sub/b.png"
    assert (single["certainty"], single["corrected"]) == ("", "yes")
    assert (single["centre_x"], single["centre_y"]) == ("0.5", "1.5")
    summary = read("areas.summary.csv")
    assert [(row["group"], row["class"]) for row in summary] == [("all", "cat"), ("all", "dog")]
    assert summary[0]["photos_with_it"] == "1"
    assert summary[1]["mean_share"] == f"{(0.4 + 0.25) / 2:.6g}"
    assert summary[1]["share_of_all"] == f"{9 / 24:.6g}"
    assert summary[1]["mean_percent_of_photo"] == "32.5"
    assert summary[1]["percent_of_all_pixels"] == "37.5"
    # the dog is on both photos, the cat on one
    assert [row["percent_where_found"] for row in summary] == ["15", "32.5"]
    assert summary[1]["area_mm2"] == "2.25"
    printed = capsys.readouterr().out
    assert (
        "found: dog on 2 of 2 photos (where it is found: 32.5 % of the photo; over all photos: "
        "32.5 %), cat on 1 of 2 photos (where it is found: 15.0 % of the photo; over all photos: "
        "7.5 %)" in printed
    )
    assert export("--to", "areas.csv") == 0, "its own files may be written again"


def test_columns_of_the_user(capsys: pytest.CaptureFixture[str]) -> None:
    Path("about.csv").write_text(
        "file,site,mm_per_pixel,note\n=1+1.png,north,2,@SUM(A1)\nsub/b.png,south,,\n"
    )
    assert export("--to", "areas.csv", "--about", "about.csv", "--by", "site") == 0, (
        capsys.readouterr().err
    )
    rows = read("areas.csv")
    assert [row["site"] for row in rows] == ["north", "north", "south", "south"]
    assert [row["area_mm2"] for row in rows] == ["12", "32", "", ""]
    assert rows[0]["note"] == "'@SUM(A1)"
    assert "1 photos have no scale" in capsys.readouterr().out
    found = {(row["group"], row["value"], row["class"]): row for row in read("areas.summary.csv")}
    assert found["site", "north", "dog"]["mean_share"] == "0.4"
    assert found["site", "north", "dog"]["area_mm2"] == "32"
    assert found["site", "south", "dog"]["area_mm2"] == ""
    assert found["all", "", "dog"]["photos"] == "2"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dog", "dog"),
        ("=1+1", "'=1+1"),
        ("a;=1+1", "a;'=1+1"),  # in a country where cells are separated by semicolons
        ('x", =1', "x\",' =1"),
        ("a;b,c-d e=f", "a;b,c-d e=f"),
        ("\n+x", "'\n'+x"),
        ("＝1", "'＝1"),
        ("-3.75", "-3.75"),  # a longitude
        ("+1e-3", "+1e-3"),
        ("-3.75-x", "'-3.75-x"),
    ],
)
def test_harmless_texts_by_hand(text: str, expected: str) -> None:
    assert harmless(text) == expected


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t=", " =cmd|' /C calc'!A0"])
def test_no_text_is_a_formula(start: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("tags.json").write_text(json.dumps({"sub/b": [f"{start.strip()}x", "dog"]}))
    Path("run/6_predictions/sub/b.png").unlink()
    write_mask(Path("run/6_predictions/sub/b.png"), np.ones((2, 2), np.uint8))
    Path("about.csv").write_text(f'file,{start.strip()}c\nsub/b,"{start}y"\n')
    assert export("--to", "a.csv", "--about", "about.csv") == 0, capsys.readouterr().err
    for file in ("a.csv", "a.summary.csv"):
        for row in csv.reader(Path(file).read_text().splitlines()):
            assert not any(cell.lstrip().startswith(("=", "+", "-", "@")) for cell in row), row


def test_decimal_comma(capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers change, and only their spelling; cells of the user's own table stay."""
    Path("about.csv").write_text("file,height_cm\n=1+1.png,1.5\nsub/b.png,2.5\n")
    plain = ("--to", "plain.csv", "--about", "about.csv")
    comma = ("--to", "comma.csv", "--about", "about.csv", "--decimal-comma")
    assert export(*plain) == 0
    assert export(*comma) == 0, capsys.readouterr().err
    with Path("comma.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter=";"))
    assert (rows[0]["share"], rows[0]["percent_of_photo"], rows[0]["pixels"]) == ("0,15", "15", "3")
    for row, same in zip(rows, read("plain.csv"), strict=True):
        assert row.pop("height_cm") == same.pop("height_cm")
        assert {name: cell.replace(",", ".") for name, cell in row.items()} == same
    assert "all;;dog;2;2;9;0,325;0,375;32,5;37,5;32,5" in Path("comma.summary.csv").read_text()
    assert export(*comma) == 0, "its own files may be written again"
    assert export("--to", "comma.tsv", "--decimal-comma") == 0
    assert "\t0,15\t" in Path("comma.tsv").read_text()


def test_parquet() -> None:
    parquet: Any = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    assert export("--to", "areas.parquet", "--mm-per-pixel", "3") == 0
    table = parquet.read_table("areas.parquet").to_pylist()
    assert [(row["photo"], row["class"], row["pixels"]) for row in table] == [
        ("=1+1", "cat", 3),
        ("=1+1", "dog", 8),
        ("sub/b", "cat", 0),
        ("sub/b", "dog", 1),
    ]
    assert [row["area_mm2"] for row in table] == [27, 72, 0, 9]
    assert table[2]["centre_x"] is None
    assert len(parquet.read_table("areas.summary.parquet")) == 2
    assert export("--to", "areas.parquet") == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to", "areas.txt"], "a table is a .csv, .tsv or .parquet file"),
        (["--to", "a.csv", "--by", "site"], "--by names columns of --about"),
        (["--to", "a.csv", "--about", "x.csv"], "--about x.csv does not exist"),
        (["--to", "a.csv", "--about", "about.csv", "--by", "date"], "its columns are site, share"),
        (["--to", "a.csv", "--about", "about.csv"], 'has a column "share", as the table itself'),
        (["--to", "a.csv", "--about", "other.csv"], "is about none of these photos"),
        (["--to", "a.csv", "--about", "scale.csv"], 'mm_per_pixel is "0"; write a number above 0'),
        (["--to", "a.csv", "--mm-per-pixel", "0"], "--mm-per-pixel 0.0 must be above 0"),
        (["--to", "a.parquet", "--decimal-comma"], "--decimal-comma: Parquet holds numbers"),
        (["--to", "mine.csv"], "would replace mine.summary.csv"),
    ],
)
def test_what_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("about.csv").write_text("file,site,share\nsub/b,north,1\n")
    Path("other.csv").write_text("file,site\nelse.png,north\n")
    Path("scale.csv").write_text("file,mm_per_pixel\nsub/b,0\n")
    Path("mine.summary.csv").write_text("my own\n")
    assert export(*words) == 1
    assert message in capsys.readouterr().err
    assert not Path("a.csv").exists()
