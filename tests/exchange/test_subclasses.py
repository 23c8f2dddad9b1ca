"""Sub-classes as a command: kinds, names by tables, new tags; and every way to get them wrong."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tagmask.cli import main
from tagmask.data.folder import read_folder
from tagmask.data.images import write_mask
from tagmask.exchange.subclasses import pieces_of
from tagmask.models.classifier import Classifier
from tagmask.models.head import HeadSegmenter

DATA = ("--data", "folder", "--images", "photos", "--tags", "tags.csv")


def call(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["subclasses", "--out", "run", *DATA, *words])
    return int(ended.value.code or 0)


def read(path: str) -> list[dict[str, str]]:
    with Path(path).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def fill(path: str, names: dict[str, str]) -> None:
    """Write names into a table, by its first column."""
    rows = read(path)
    for row in rows:
        row["name"] = names.get(next(iter(row.values())), "")
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture(autouse=True)
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten photos of a thing in two colours; the network knows nothing, but colours differ."""
    monkeypatch.chdir(tmp_path)
    rows = ["file,tags"]
    rng = np.random.default_rng(0)
    for i in range(10):
        name = f"=day {i % 3}/ż {i}.png"
        photo = rng.integers(90, 110, (48, 64, 3)).astype(np.uint8)
        mask = np.zeros((48, 64), np.uint8)
        mask[8:40, 8:32] = 2
        photo[mask == 2] = (220, 30, 30) if i < 6 else (20, 40, 230)
        if i == 9:  # nothing was found
            mask[:] = 0
        path = Path("photos") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(photo).save(path)
        write_mask(Path("run/6_predictions") / name, mask)
        rows.append(f"{name},sponge;sea" if i % 2 else f"{name},sponge")
    Path("photos/sea.png").write_bytes(Path("photos/=day 0/ż 0.png").read_bytes())
    rows.append("sea.png,sea")
    Path("tags.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    torch.manual_seed(0)
    classifier = Classifier("tagmask_tiny", 2, img_size=64, classes=("sea", "sponge"))
    HeadSegmenter(classifier, (1, 3), 64).save(Path("run/5_segmenter"))


def test_kinds_by_colour_and_new_tags(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--tag", "sponge", "--into", "2", "--to", "kinds") == 0, capsys.readouterr().err
    assert "9 regions of 'sponge' in 2 kinds" in capsys.readouterr().out
    regions = read("kinds/regions.csv")
    assert [row["kind"] for row in regions] == ["1"] * 6 + ["2"] * 3
    first = regions[0]
    box = [first[side] for side in ("left", "top", "right", "bottom", "pixels")]
    assert box == ["8", "8", "31", "39", str(32 * 24)]
    assert first["photo"] == "'=day 0/ż 0.png", "no formula"
    assert [(row["kind"], row["regions"]) for row in read("kinds/kinds.csv")] == [
        ("1", "6"),
        ("2", "3"),
    ]
    with Image.open("kinds/kinds.png") as picture:
        assert picture.width > 300
    fill("kinds/kinds.csv", {"1": "red sponge", "2": "blue sponge"})
    # a name of a region counts more than that of its kind
    fill("kinds/regions.csv", {"2": "blue sponge"})
    assert call("--names", "kinds", "--to", "new.csv") == 0, capsys.readouterr().err
    printed = capsys.readouterr().out
    assert "blue sponge 4, red sponge 5" in printed
    assert "1 photos tagged 'sponge' have no region" in printed
    catalog = read_folder(Path("photos"), Path("new.csv"))
    assert catalog.classes == ("blue sponge", "red sponge", "sea")
    tags = {item.name: [catalog.classes[c] for c in item.tags] for item in catalog}
    assert tags["=day 0/ż 0"] == ["red sponge"]
    assert tags["=day 1/ż 1"] == ["blue sponge", "sea"]
    assert tags["=day 1/ż 7"] == ["blue sponge", "sea"]
    assert tags["sea"] == ["sea"]
    assert "=day 0/ż 9" not in tags
    assert call("--names", "kinds", "--to", "new.csv") == 1
    assert "new.csv exists" in capsys.readouterr().err


def test_what_has_no_name_is_learned(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--tag", "sponge", "--into", "2", "--to", "kinds") == 0, capsys.readouterr().err
    fill("kinds/regions.csv", {"1": "red", "2": "red", "3": "red", "7": "blue", "8": "blue"})
    assert call("--names", "kinds", "--to", "new.csv") == 0, capsys.readouterr().err
    printed = capsys.readouterr().out
    assert "4 regions without a name were named by the others" in printed
    assert "photos with each name: blue 3, red 6" in printed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to", "x"], "give --tag NAME to sort its regions, or --names FOLDER"),
        (["--tag", "sponge"], "--to is missing"),
        (["--tag", "cat", "--to", "x"], "--tag 'cat' is no tag of these photos"),
        (["--tag", "sponge", "--to", "photos"], "--to photos"),
        (["--tag", "sponge", "--into", "20", "--to", "x"], "too few for --into 20"),
        (["--tag", "sponge", "--into", "1", "--to", "x"], "--into 1 must be"),
        (
            ["--names", "nowhere", "--to", "x.csv"],
            "--names nowhere is not a folder; check the path",
        ),
        (["--names", "photos", "--to", "x"], "the new tags are a .csv file"),
        (["--names", "photos", "--to", "x.csv"], "made_by.json"),
    ],
)
def test_what_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*words) == 1
    assert message in capsys.readouterr().err
    assert not Path("x").exists()
    assert not Path("x.csv").exists()


def test_mistakes_in_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--tag", "sponge", "--into", "2", "--to", "kinds") == 0
    words = ("--names", "kinds", "--to", "new.csv")
    assert call(*words) == 1
    assert "have no name yet" in capsys.readouterr().err
    fill("kinds/kinds.csv", {"1": "red"})
    assert call(*words) == 1
    assert "only one name to choose from" in capsys.readouterr().err
    fill("kinds/kinds.csv", {"1": "red;blue", "2": "background"})
    assert call(*words) == 1
    error = capsys.readouterr().err
    assert "line 2" in error
    assert "leave out ; | , [ ]" in error
    assert "what has no tag is the background" in error
    fill("kinds/kinds.csv", {"1": "red", "2": "blue"})
    text = (
        Path("kinds/regions.csv")
        .read_text()
        .replace("\n2,1,", "\n77,1,")
        .replace("\n3,1,", "\n3,9,")
    )
    Path("kinds/regions.csv").write_text(text)
    assert call(*words) == 1
    error = capsys.readouterr().err
    assert 'there is no region "77"' in error
    assert '"9" is no kind' in error
    Path("kinds/regions.csv").write_text("region;kind\n")
    assert call(*words) == 1
    assert 'has no column "name"' in capsys.readouterr().err
    assert not Path("new.csv").exists()


def test_small_pieces_are_left_out() -> None:
    region = np.zeros((20, 20), bool)
    region[:10, :10] = True
    region[12:16, 12:16] = True  # 16 of 117 pixels
    region[19, 0] = True
    found = list(pieces_of(region))
    assert [int(piece.sum()) for piece, _ in found] == [100, 16]
    assert found[1][1] == (slice(12, 16), slice(12, 16))
    many = np.zeros((9, 9), bool)
    many[::2, ::2] = True  # 25 single pixels, each the largest
    assert len(list(pieces_of(many))) == 25
    assert not list(pieces_of(np.zeros((3, 3), bool)))
