"""The commands on shards as a user types them, with a real network: against photos in a folder."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tagmask.cli import main
from tagmask.data.scenes.catalog import Scenes
from tagmask.stages.seeds import read_seeds
from tagmask.training.stream import draw
from tests.shards.shop import files_at, files_in, jpeg, tar


def say(capsys: pytest.CaptureFixture[str], *words: Any, code: int = 0) -> str:
    """Run a command, and return what it printed."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    printed = capsys.readouterr()
    assert ended.value.code == code, printed
    return printed.err if code else printed.out


def members(file: Path) -> dict[str, bytes]:
    """The members of a tar, by Python's own reader."""
    with tarfile.open(file) as archive:
        names = archive.getnames()
        return {name: archive.extractfile(name).read() for name in names}  # type: ignore[union-attr]


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ten scenes with tags, in a folder that the test works in."""
    monkeypatch.chdir(tmp_path)
    scenes = Scenes(10, seed=5)
    rows = ["file,tags"]
    (tmp_path / "photos/a").mkdir(parents=True)
    for i in range(len(scenes)):
        Image.fromarray(scenes.load_image(i)).save(tmp_path / f"photos/a/{i}.jpg")
        rows.append(f"a/{i}.jpg,{';'.join(scenes.classes[c] for c in scenes.tags(i))}")
    (tmp_path / "tags.csv").write_text("\n".join(rows) + "\n")
    return tmp_path / "photos"


def test_from_photos_to_shards_of_masks_and_exports(
    photos: Path, headed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = say(capsys, "shard", photos, "--tags", "tags.csv", "--to", "shards", "--images", 4)
    assert "3 shards made (10 images)" in told
    first = members(tmp_path / "shards/photos-000000.tar")
    assert first["a/0.jpg"] == (photos / "a/0.jpg").read_bytes()
    tags = (tmp_path / "tags.csv").read_text().splitlines()[1].split(",")[1]
    about = json.loads(first["a/0.json"])
    assert about["file"] == "a/0.jpg"
    assert sorted(about["tags"]) == sorted(tags.split(";"))

    # the same masks as of a folder of photos, byte by byte
    predict = ("predict", headed)
    say(capsys, *predict, "shards", "--to", "masks", "--processes", 1)
    say(capsys, *predict, photos, "--to", "flat")
    made: dict[str, bytes] = {}
    for file in sorted((tmp_path / "masks").glob("*.tar")):
        made |= {name: data for name, data in members(file).items() if name.endswith(".png")}
    flat = tmp_path / "flat/6_predictions"
    assert made == {f"a/{i}.png": (flat / f"a/{i}.png").read_bytes() for i in range(10)}
    note = json.loads((tmp_path / "masks/photos-000002.note.json").read_text())
    assert (note["images"], note["failed"], len(note["classes"])) == (2, 0, len(Scenes(1).classes))

    # rows of a manifest, in parts, to memory, with the same masks
    (photos / "all.csv").write_text((tmp_path / "tags.csv").read_text())
    for part in ("1/2", "0/2"):
        to = ("--to", "memory://masks-of-rows", "--rows", 4, "--shard", part)
        say(capsys, *predict, photos / "all.csv", *to)
    rows = files_at("memory://masks-of-rows")
    for number in range(3):
        tars = (tmp_path / f"masks/photos-00000{number}.tar").read_bytes()
        assert rows[f"all-00000{number}.tar"] == tars

    _check_exports(tmp_path, flat, capsys)
    _check_weights_count(headed, tmp_path, capsys)


def _check_exports(tmp_path: Path, flat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exports of shards against the masks themselves."""
    from pycocotools import mask as coco_mask

    say(capsys, "export", "masks", "--to", "coco", "--processes", 1)
    document = json.loads((tmp_path / "coco/photos-000001.json").read_text())
    names = {image["id"]: image["file_name"] for image in document["images"]}
    assert sorted(names.values()) == [f"a/{i}.jpg" for i in range(4, 8)]
    for one in document["annotations"]:
        mask = np.asarray(Image.open(flat / names[one["image_id"]].replace(".jpg", ".png")))
        assert (coco_mask.decode(one["segmentation"]) == (mask == one["category_id"])).all()
    say(capsys, "export", "masks", "--format", "table", "--to", "areas", "--processes", 1)
    areas = members(tmp_path / "areas/photos-000000.tar")
    assert sorted(areas) == ["areas.csv", "areas.summary.csv"]
    shown = ("--format", "overlays", "--photos", "shards", "--to", "shown", "--processes", 1)
    say(capsys, "export", "masks", *shown)
    picture = members(tmp_path / "shown/photos-000002.tar")["a/9.png"]
    photo = np.asarray(Image.open(tmp_path / "photos/a/9.jpg"))
    height, width, _ = np.asarray(Image.open(io.BytesIO(picture))).shape
    assert height > photo.shape[0]  # the names of the colours are below
    assert width >= photo.shape[1]
    # a shard without a note is not finished
    (tmp_path / "masks/photos-000001.note.json").unlink()
    index = ("--format", "index", "--to", "index", "--processes", 1)
    told = say(capsys, "export", "masks", *index, code=1)
    assert "1 of 3 shards cannot be used" in told
    assert "photos-000001.note.json is missing" in told


def _check_weights_count(headed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Other settings are refused; the run's own are where they start."""
    told = say(capsys, "predict", headed, "shards", "--to", "masks", "--flip", code=1)
    assert "flip was False and is now True" in told
    before = files_in(tmp_path / "masks")
    told = say(capsys, "predict", headed, "shards", "--to", "masks", "--processes", 1)
    assert "1 shards made (4 images), 2 already there" in told
    assert files_in(tmp_path / "masks").items() >= before.items()


def test_maps_of_shards_are_those_of_the_library(
    photos: Path, headed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import tagmask

    say(capsys, "shard", photos, "--tags", "tags.csv", "--to", "shards")
    say(capsys, "seeds", headed, "shards", "--to", "maps")
    made = members(tmp_path / "maps/photos-000000.tar")
    (tmp_path / "x.npz").write_bytes(made["a/3.npz"])
    seeds = read_seeds(tmp_path / "x.npz")
    model = tagmask.load(headed)
    names = [model.classifier.classes[c] for c in seeds["classes"].tolist()]
    expected = model.localize(photos / "a/3.jpg", names)
    for name, found in zip(names, seeds["refined"], strict=True):
        assert np.abs(found / 255 - expected[name]).max() <= 0.5 / 255 + 1e-4


def test_use_tags_rules_classes_out(
    photos: Path, headed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = (photos / "a/0.jpg").read_bytes()
    scenes = Scenes(1, seed=5)
    known = list(scenes.classes)
    shard = [("a.jpg", content), ("a.json", json.dumps({"tags": [known[2], "odd"]}).encode())]
    shard += [("b.jpg", content), ("c.jpg", b"no picture"), ("d.jpg", content), ("d.json", b"{")]
    (tmp_path / "in").mkdir()
    (tmp_path / "in/s.tar").write_bytes(tar(shard))
    told = say(capsys, "predict", headed, "in", "--to", "masks", "--use-tags", "--probabilities")
    assert "s/c: c.jpg is not a picture that can be read" in told
    assert "s/d: d.json is not valid JSON" in told
    made = members(tmp_path / "masks/s.tar")
    assert sorted(made) == ["a.json", "a.npz", "a.png", "b.json", "b.npz", "b.png"]
    with np.load(io.BytesIO(made["a.npz"]), allow_pickle=False) as arrays:
        chances = arrays["probabilities"].astype(np.float32)
    assert [k for k in range(len(chances)) if chances[k].any()] == [0, 3]
    assert np.abs(chances.sum(0) - 1).max() < 0.01
    mask = np.asarray(Image.open(io.BytesIO(made["a.png"])))
    assert (mask == chances.argmax(0)).all()
    assert not np.asarray(Image.open(io.BytesIO(made["b.png"]))).any()  # it has no tags


def test_a_sample_depends_on_names_and_seed_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tagmask.data.folder import read_folder
    from tests.shards.shop import photos as members_of

    monkeypatch.chdir(tmp_path)
    for folder in ("one", "two"):
        Path(folder).mkdir()
        for number in range(6):
            images = members_of(20, first=20 * number)
            if folder == "two":  # the order in a shard does not matter
                pairs = [images[i : i + 2] for i in range(0, len(images), 2)][::-1]
                images = [member for pair in pairs for member in pair]
            (tmp_path / folder / f"s{number}.tar").write_bytes(tar(images))
    drawn = ("--count", 10, "--from-shards", 3)
    told = say(capsys, "sample", "one", "--to", "a", *drawn)
    assert "10 images of 3 shards" in told
    say(capsys, "sample", "two", "--to", "b", *drawn)
    say(capsys, "sample", "two", "--to", "c", *drawn, "--seed", 1)
    one, two, three = (read_folder(Path(x, "images"), Path(x, "tags.csv")) for x in "abc")
    assert one.fingerprint() == two.fingerprint() != three.fingerprint()
    assert files_in(tmp_path / "a") == files_in(tmp_path / "b")
    # what a training sees at each step follows from the step
    order = [one.name(draw(position, len(one), 0)) for position in range(25)]
    again = [two.name(draw(position, len(two), 0)) for position in range(13, 25)]
    assert order[13:] == again
    # the same sample again changes nothing, another one is refused
    before = files_in(tmp_path / "a")
    say(capsys, "sample", "one", "--to", "a", *drawn)
    assert files_in(tmp_path / "a") == before
    told = say(capsys, "sample", "one", "--to", "a", "--count", 11, code=1)
    assert "count was 10 and is now 11" in told


def test_a_folder_of_photos_with_an_archive_is_no_shards(tmp_path: Path) -> None:
    from tagmask.cli.shards import is_shards

    (tmp_path / "s.tar").touch()
    assert is_shards(str(tmp_path))
    (tmp_path / "a.JPG").touch()
    assert not is_shards(str(tmp_path))
    assert is_shards("s3://bucket/x")
    assert is_shards("m.parquet")
    assert not is_shards("photo.jpg")


def test_what_cannot_be_done_is_said(
    photos: Path, headed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/s.tar").write_bytes(tar([("a.jpg", jpeg(1))]))
    (tmp_path / "in/x.tar.gz").write_bytes(b"")
    run = ("predict", headed)
    for words, sentence in (
        ((*run, "in", "--to", "in"), "lies in what is read"),
        ((*run, "in", "--to", "in/masks"), "lies in what is read"),
        ((*run, "memory://x/y", "--to", "memory://x/y/z"), "lies in what is read"),
        ((*run, "memory://nothing-here", "--to", "to"), "there are no shards"),
        ((*run, "--shards", "in/x.tar.gz", "--to", "to"), "compressed tar"),
        ((*run, "in", "--to", "to", "--root", "x"), "--root belongs to a manifest"),
        ((*run, "in", "--to", "to", "--shard", "3/2"), "--shard 3/2 must be i/n"),
        ((*run, "in", "--to", "to", "--ray-address", "auto"), "belongs to --engine ray"),
        ((*run, "in", "--to", "tags.csv"), "is a file; name a folder"),
        (("predict", "no-run", "in", "--to", "to"), "name a finished run first"),
        (("predict", headed, "more", "in", "--to", "to"), "one path too many"),
        (("export", "in", "--to", "to"), "s.note.json is missing"),
        (("export", "in", "--format", "overlays", "--to", "to"), "--photos is missing"),
        (("seeds", headed, "in", "--to", "to"), "no image that can be used (a: it has no tags"),
        (("shard", "memory://x", "--to", "to"), "is no manifest"),
        (("shard", "nowhere", "--to", "to"), "nowhere is not a folder"),
        (("sample", "in", "--to", "drawn"), "no images with tags"),
        (("run", "s3://b/shards", "--out", "x"), "tagmask sample s3://b/shards --to photos"),
    ):
        assert sentence in say(capsys, *words, code=1), words
